//! Reads PTX. Knows the instructions that exact kernels need and refuses all others.

use std::collections::HashMap;

/// What an instruction reads or writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    /// A register of 32 bits.
    R(usize),
    /// A register of 64 bits.
    D(usize),
    /// A predicate.
    P(usize),
    /// A number, or the address of a shared array.
    Number(u64),
    /// A place in the grid, see [`SPECIAL`].
    Special(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// One of both is NaN.
    Nan,
    /// None of both is NaN.
    Num,
    // as the above, and true for NaN
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Type {
    S32,
    U32,
    F32,
    F64,
    /// 64 bits without a sign.
    B64,
    S64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// A parameter at this position.
    Param(usize),
    /// A parameter at the position in a register, this many bytes further on.
    ParamAt(i64),
    Load {
        shared: bool,
        offset: i64,
    },
    Store {
        shared: bool,
        offset: i64,
    },
    Mov,
    Add,
    Sub,
    Mul,
    MulHigh,
    MulWide {
        signed: bool,
    },
    MadWide {
        signed: bool,
    },
    Mad,
    Div,
    Rem,
    Neg,
    Abs,
    Min,
    Max,
    And,
    Or,
    Xor,
    Not,
    Shl,
    Shr,
    Insert,
    Select,
    Compare(Comparison),
    FloatAdd,
    FloatSub,
    FloatMul,
    FloatDiv,
    FloatFma,
    FloatSqrt,
    FloatReciprocal,
    FloatNeg,
    FloatAbs,
    DoubleAdd,
    DoubleSub,
    DoubleMul,
    DoubleDiv,
    Widen {
        signed: bool,
    },
    DoubleFromFloat,
    FloatFromDouble,
    FloatFromInt {
        signed: bool,
    },
    DoubleFromInt,
    IntFromFloat,
    Branch(usize),
    Barrier,
    Return,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    /// The predicate that must be true, or false when the flag is set.
    pub guard: Option<(usize, bool)>,
    pub op: Op,
    pub ty: Type,
    pub to: Operand,
    pub from: [Operand; 4],
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Where it starts among all parameters, in bytes.
    pub at: usize,
    /// Its length in bytes.
    pub bytes: usize,
}

/// One kernel of a module.
#[derive(Debug)]
pub struct Kernel {
    /// As in the module.
    pub name: String,
    /// In order.
    pub parameters: Vec<Parameter>,
    pub(crate) code: Vec<Instruction>,
    /// The text of each instruction, for messages.
    pub(crate) text: Vec<String>,
    /// Bytes of shared memory; the first 16 belong to no array.
    pub(crate) shared: usize,
    /// Registers of 32 bits, of 64 bits, and predicates.
    pub(crate) registers: [usize; 3],
}

/// Names of the places in a grid: thread, size of a block, block, size of the grid.
pub(crate) const SPECIAL: [&str; 12] = [
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
];

/// Reads all kernels of a module.
///
/// # Errors
/// Names the kernel and the line that is not known, not exact, or not PTX.
pub fn read(text: &str) -> Result<Vec<Kernel>, String> {
    let clean = |line: &str| line.split("//").next().unwrap_or("").to_string();
    let clean: Vec<String> = text.lines().map(clean).collect();
    let clean = clean.join("\n");
    let mut parts = clean.split(".visible .entry ");
    let head = parts.next().unwrap_or_default();
    if let Some(line) = head.lines().find(|l| l.contains(".func")) {
        return Err(format!("a function that is no kernel: `{}`", line.trim()));
    }
    parts
        .map(|part| {
            let (head, rest) = part.split_once('{').ok_or("a kernel without a body")?;
            let (body, _) = rest
                .split_once("\n}")
                .ok_or("a kernel's body without an end")?;
            let (name, list) = head.split_once('(').ok_or("a kernel without parameters")?;
            let name = name.trim();
            kernel(name, list, body).map_err(|e| format!("kernel `{name}`: {e}"))
        })
        .collect()
}

fn bad<T>(line: &str, why: &str) -> Result<T, String> {
    Err(format!("{why}: `{line}`"))
}

fn number(text: &str, line: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| format!("not a number, `{text}`: `{line}`"))
}

fn signed(text: &str, line: &str) -> Result<i64, String> {
    text.parse()
        .map_err(|_| format!("not a number, `{text}`: `{line}`"))
}

/// Parameters, and where each starts by its name.
fn parameters(list: &str) -> Result<(Vec<Parameter>, HashMap<String, usize>), String> {
    let (mut all, mut names, mut at) = (Vec::new(), HashMap::new(), 0usize);
    let list = list.split_once(')').ok_or("parameters without an end")?.0;
    for line in list.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let last = *words.last().unwrap_or(&"");
        let (align, bytes, name) = match words.get(1) {
            Some(&".u32" | &".f32" | &".s32") => (4, 4, last),
            Some(&".u64") => (8, 8, last),
            Some(&".align") => {
                let array = last.trim_end_matches(']').split_once('[');
                let (name, n) = array.ok_or_else(|| format!("no size: `{line}`"))?;
                let align = number(words.get(2).unwrap_or(&""), line)?;
                (align, number(n, line)?, name)
            }
            _ => return bad(line, "unknown parameter"),
        };
        at = at.next_multiple_of(align);
        all.push(Parameter { at, bytes });
        names.insert(name.to_string(), at);
        at += bytes;
    }
    Ok((all, names))
}

/// What is declared in a kernel's body.
#[derive(Default)]
struct Names {
    registers: HashMap<String, Operand>,
    shared: HashMap<String, usize>,
    labels: HashMap<String, usize>,
    parameters: HashMap<String, usize>,
}

impl Names {
    fn operand(&self, text: &str) -> Result<Operand, String> {
        if let Some(register) = self.registers.get(text) {
            return Ok(*register);
        }
        // the address of a parameter is its position among all
        if let Some(at) = self.shared.get(text).or(self.parameters.get(text)) {
            return Ok(Operand::Number(*at as u64));
        }
        if let Some(at) = SPECIAL.iter().position(|s| *s == text) {
            return Ok(Operand::Special(at));
        }
        let hex = text.strip_prefix("0f").or_else(|| text.strip_prefix("0d"));
        let value = match hex {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse::<i64>().ok().map(|v| v as u64),
        };
        value
            .map(Operand::Number)
            .ok_or_else(|| format!("unknown operand `{text}`"))
    }

    /// `[register+offset]` or `[name+offset]`.
    fn address(&self, text: &str) -> Result<(Operand, i64), String> {
        let inner = text.trim_start_matches('[').trim_end_matches(']');
        let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
        let offset = offset
            .parse()
            .map_err(|_| format!("no offset, `{offset}`"))?;
        Ok((self.operand(base)?, offset))
    }
}

fn kernel(name: &str, list: &str, body: &str) -> Result<Kernel, String> {
    let (parameters, places) = parameters(list)?;
    let mut names = Names {
        parameters: places,
        ..Names::default()
    };
    let (mut shared, mut registers, mut text) = (16, [0; 3], Vec::new());
    for statement in body.split(';') {
        let mut line = statement.trim();
        while let Some((label, rest)) = line.split_once(':').filter(|(l, _)| l.starts_with('$')) {
            names.labels.insert(label.to_string(), text.len());
            line = rest.trim();
        }
        if line.is_empty() || line.starts_with(".pragma") {
            continue;
        }
        if let Some(declared) = line.strip_prefix(".reg ") {
            let (ty, rest) = declared.split_once(char::is_whitespace).unwrap_or(("", ""));
            let file = match ty {
                ".f32" | ".b32" => 0,
                ".b64" | ".f64" => 1,
                ".pred" => 2,
                _ => return bad(line, "unknown register"),
            };
            let range = rest.trim().trim_end_matches('>').split_once('<');
            let (prefix, n) = range.ok_or_else(|| format!("no range of registers: `{line}`"))?;
            for at in 0..number(n, line)? {
                let at_file = registers[file];
                let register = match file {
                    0 => Operand::R(at_file),
                    1 => Operand::D(at_file),
                    _ => Operand::P(at_file),
                };
                names.registers.insert(format!("{prefix}{at}"), register);
                registers[file] += 1;
            }
        } else if line.starts_with(".shared") {
            let array = line.rsplit(' ').next().unwrap_or("").trim_end_matches(']');
            let (id, n) = array
                .split_once('[')
                .ok_or_else(|| format!("no size: `{line}`"))?;
            names.shared.insert(id.to_string(), shared);
            shared = (shared + number(n, line)?).next_multiple_of(16);
        } else if line.starts_with('.') {
            return bad(line, "unknown declaration");
        } else {
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            text.extend(parts(line)?);
        }
    }
    let code = text.iter().map(|line| instruction(line, &names));
    Ok(Kernel {
        name: name.into(),
        parameters,
        code: code.collect::<Result<_, _>>()?,
        text,
        shared,
        registers,
    })
}

/// A load of several registers as one load for each.
fn parts(line: String) -> Result<Vec<String>, String> {
    let Some((name, list)) = line.split_once(" {") else {
        return Ok(vec![line]);
    };
    let vector = [".v2", ".v4"].into_iter().find(|v| name.contains(v));
    let (registers, address) = list
        .split_once("}, [")
        .ok_or_else(|| format!("unknown instruction: `{line}`"))?;
    let Some(vector) = vector.filter(|_| name.starts_with("ld.")) else {
        return bad(&line, "unknown instruction");
    };
    let (base, offset) = address
        .trim_end_matches(']')
        .split_once('+')
        .unwrap_or((address.trim_end_matches(']'), "0"));
    if registers.split(',').any(|r| r.trim() == base) {
        return bad(&line, "a load over its own address");
    }
    let (name, offset) = (name.replace(vector, ""), signed(offset, &line)?);
    let bytes = if name.ends_with("64") { 8 } else { 4 };
    let each = (0..).zip(registers.split(','));
    let one = |(at, register): (i64, &str)| {
        format!(
            "{name} {}, [{base}+{}]",
            register.trim(),
            offset + at * bytes
        )
    };
    Ok(each.map(one).collect())
}

fn instruction(line: &str, names: &Names) -> Result<Instruction, String> {
    let (guard, rest) = match line.strip_prefix('@') {
        Some(guarded) => {
            let (guard, rest) = guarded.split_once(' ').unwrap_or(("", ""));
            let Operand::P(p) = names.operand(guard.trim_start_matches('!'))? else {
                return bad(line, "the guard is no predicate");
            };
            (Some((p, guard.starts_with('!'))), rest)
        }
        None => (None, line),
    };
    let (name, operands) = rest.split_once(' ').unwrap_or((rest, ""));
    let operands: Vec<&str> = operands.split(',').map(str::trim).collect();
    let words: Vec<&str> = name.split('.').collect();
    refuse(&words, line)?;
    let ty = match words[words.len() - 1] {
        "f32" => Type::F32,
        "f64" => Type::F64,
        "s32" => Type::S32,
        "s64" => Type::S64,
        "u64" | "b64" => Type::B64,
        _ => Type::U32,
    };
    let nothing = Operand::Number(0);
    let mut ins = Instruction {
        guard,
        op: Op::Return,
        ty,
        to: nothing,
        from: [nothing; 4],
    };
    match (words[0], words.get(1)) {
        ("ret", None) => {}
        ("bra", _) => {
            let label = names.labels.get(operands[0]);
            ins.op = Op::Branch(*label.ok_or_else(|| format!("no such label: `{line}`"))?);
        }
        ("bar", Some(&"sync")) if operands == ["0"] => ins.op = Op::Barrier,
        ("ld", Some(&"param")) => {
            let inner = operands[1].trim_start_matches('[').trim_end_matches(']');
            let (id, offset) = inner.split_once('+').unwrap_or((inner, "0"));
            ins.op = match (names.parameters.get(id), names.registers.get(id)) {
                (Some(at), _) => Op::Param(at + number(offset, line)?),
                (None, Some(register @ Operand::D(_))) => {
                    ins.from[0] = *register;
                    Op::ParamAt(signed(offset, line)?)
                }
                _ => return bad(line, "no such parameter"),
            };
            ins.to = names.operand(operands[0])?;
        }
        ("ld" | "st", Some(space)) => {
            let store = words[0] == "st";
            let shared = match *space {
                "global" => false,
                "shared" => true,
                _ => return bad(line, "unknown memory"),
            };
            if words.len() != 3 || matches!(ty, Type::B64 | Type::F64 | Type::S64) {
                return bad(line, "an access that is not of 32 bits");
            }
            let (base, offset) = names.address(operands[usize::from(!store)])?;
            ins.from[0] = base;
            if store {
                ins.from[1] = names.operand(operands[1])?;
                ins.op = Op::Store { shared, offset };
            } else {
                ins.to = names.operand(operands[0])?;
                ins.op = Op::Load { shared, offset };
            }
        }
        _ => {
            ins.to = names.operand(operands[0])?;
            for (from, text) in ins.from.iter_mut().zip(&operands[1..]) {
                *from = names.operand(text)?;
            }
            ins.op = arithmetic(&words, ty, line)?;
        }
    }
    Ok(ins)
}

/// Refuses what could give other numbers on another card.
fn refuse(words: &[&str], line: &str) -> Result<(), String> {
    if ["atom", "red"].contains(&words[0]) {
        return bad(line, "an atomic instruction");
    }
    let inexact = ["ftz", "approx", "full", "sat"];
    if words.iter().any(|w| inexact.contains(w)) {
        return bad(line, "arithmetic that is not exact");
    }
    let float = matches!(words.last(), Some(&"f32" | &"f64"));
    let rounds = ["add", "sub", "mul", "fma", "mad", "div", "sqrt", "rcp"].contains(&words[0]);
    if float && rounds && !(words.len() == 3 && words[1] == "rn") {
        return bad(
            line,
            "arithmetic that may be contracted or rounded otherwise",
        );
    }
    Ok(())
}

fn arithmetic(words: &[&str], ty: Type, line: &str) -> Result<Op, String> {
    let signed = |at: usize| words.get(at) == Some(&"s32");
    Ok(match (words[0], ty) {
        ("mov", _) => Op::Mov,
        ("cvta", _) if words[1..] == ["to", "global", "u64"] => Op::Mov,
        ("add", Type::F32) => Op::FloatAdd,
        ("sub", Type::F32) => Op::FloatSub,
        ("mul", Type::F32) => Op::FloatMul,
        ("div", Type::F32) => Op::FloatDiv,
        ("fma", Type::F32) => Op::FloatFma,
        ("sqrt", Type::F32) => Op::FloatSqrt,
        ("rcp", Type::F32) => Op::FloatReciprocal,
        ("neg", Type::F32) => Op::FloatNeg,
        ("abs", Type::F32) => Op::FloatAbs,
        ("add", Type::F64) => Op::DoubleAdd,
        ("sub", Type::F64) => Op::DoubleSub,
        ("mul", Type::F64) => Op::DoubleMul,
        ("div", Type::F64) => Op::DoubleDiv,
        ("add", _) => Op::Add,
        ("sub", _) => Op::Sub,
        ("mul", _) if words[1] == "wide" => Op::MulWide { signed: signed(2) },
        ("mad", _) if words[1] == "wide" => Op::MadWide { signed: signed(2) },
        ("mul", _) if words[1] == "lo" => Op::Mul,
        ("mul", Type::S32 | Type::U32) if words[1] == "hi" => Op::MulHigh,
        ("mad", Type::S32 | Type::U32) if words[1] == "lo" => Op::Mad,
        ("div", Type::S32 | Type::U32) => Op::Div,
        ("rem", Type::S32 | Type::U32) => Op::Rem,
        ("neg", Type::S32) => Op::Neg,
        ("abs", Type::S32) => Op::Abs,
        ("min", Type::S32 | Type::U32) => Op::Min,
        ("max", Type::S32 | Type::U32) => Op::Max,
        ("and", _) => Op::And,
        ("or", _) => Op::Or,
        ("xor", _) => Op::Xor,
        ("not", _) => Op::Not,
        ("shl", _) => Op::Shl,
        ("shr", _) => Op::Shr,
        ("bfi", Type::U32) => Op::Insert,
        ("selp", _) => Op::Select,
        ("setp", _) if words.len() == 3 => Op::Compare(match words[1] {
            "eq" => Comparison::Eq,
            "ne" => Comparison::Ne,
            "lt" => Comparison::Lt,
            "le" => Comparison::Le,
            "gt" => Comparison::Gt,
            "ge" => Comparison::Ge,
            "nan" => Comparison::Nan,
            "num" => Comparison::Num,
            "equ" => Comparison::Equ,
            "neu" => Comparison::Neu,
            "ltu" => Comparison::Ltu,
            "leu" => Comparison::Leu,
            "gtu" => Comparison::Gtu,
            "geu" => Comparison::Geu,
            _ => return bad(line, "unknown comparison"),
        }),
        ("cvt", _) => match words[1..] {
            ["f64", "f32"] => Op::DoubleFromFloat,
            ["rn", "f32", "f64"] => Op::FloatFromDouble,
            ["rn", "f32", "s32"] => Op::FloatFromInt { signed: true },
            ["rn", "f32", "u32"] => Op::FloatFromInt { signed: false },
            ["rn", "f64", "s32"] => Op::DoubleFromInt,
            ["rzi", "s32", "f32"] => Op::IntFromFloat,
            ["s64", "s32"] => Op::Widen { signed: true },
            ["u64", "u32"] => Op::Widen { signed: false },
            ["u32", "u64"] => Op::Mov,
            _ => return bad(line, "unknown conversion"),
        },
        _ => return bad(line, "unknown instruction"),
    })
}
