//! One instruction of a warp.

use super::warp::Warp;
use super::{Block, Run};
use crate::memory::Buffer;
use crate::ptx::{Instruction, Op, Operand, Type};

/// Bytes at the start of shared memory that belong to no array.
const BEFORE: u64 = 16;

/// The reader of a word that several threads read.
const MANY: u32 = u32::MAX;

impl Run<'_> {
    #[inline(always)]
    fn access(
        &mut self,
        w: &mut Warp,
        ins: &Instruction,
        on: u32,
        block: &mut Block,
        (shared, offset, store): (bool, i64, bool),
    ) -> Result<(), String> {
        let base = w.v64(ins.from[0]);
        let mut v = if store { w.v32(ins.from[1]) } else { [0; 32] };
        let mut buffer = None::<(usize, &Buffer)>;
        if !shared {
            self.accesses += u64::from(on.count_ones());
        }
        for l in (0..32).filter(|l| on >> l & 1 == 1) {
            let address = base[l].wrapping_add(offset as u64);
            // addresses of shared memory have 32 bits
            let address = if shared {
                u64::from(address as u32)
            } else {
                address
            };
            if !address.is_multiple_of(4) {
                return Err(format!("an address that is no multiple of 4, {address:#x}"));
            }
            if shared {
                let inside = address >= BEFORE && address / 4 < block.shared.len() as u64;
                if !inside {
                    return Err(format!("an access outside shared memory, at {address}"));
                }
                let (epoch, thread) = (block.epoch, w.first + l as u32);
                let word = &mut block.shared[(address / 4) as usize];
                let others = |(when, by): (u32, u32)| when == epoch && by != thread;
                if others(word.written) || store && others(word.read) {
                    return Err("two threads at one word of shared memory without a \
                        barrier between them"
                        .into());
                }
                if store {
                    (word.value, word.written) = (v[l], (epoch, thread));
                } else {
                    if word.written.0 == 0 {
                        return Err("reads a word of shared memory that no one wrote".into());
                    }
                    let by = if others(word.read) { MANY } else { thread };
                    word.read = (epoch, by);
                    v[l] = word.value;
                }
                continue;
            }
            let holds = |b: &Buffer| (b.start..b.start + b.bytes).contains(&address);
            if !buffer.is_some_and(|(_, b)| holds(b)) {
                let found = self.buffers.iter().position(|b| holds(b));
                buffer = found.map(|at| (at, &*self.buffers[at]));
                if let Some((at, _)) = buffer {
                    self.uses[at].0 |= !store;
                    self.uses[at].1 |= store;
                }
            }
            let Some((_, b)) = buffer else {
                let outside = "an access outside the buffers given to the launch";
                return Err(format!("{outside}, at {address:#x} by lane {l}"));
            };
            let at = ((address - b.start) / 4) as usize;
            if store {
                b.store(at, v[l], block.writer)?;
            } else {
                v[l] = b.load(at, block.writer)?;
            }
        }
        if !store {
            w.put32(ins.to, on, v);
        }
        Ok(())
    }

    #[inline(always)]
    pub fn step(
        &mut self,
        w: &mut Warp,
        ins: &Instruction,
        on: u32,
        block: &mut Block,
    ) -> Result<(), String> {
        let (to, from, wide) = (ins.to, ins.from, matches!(ins.to, Operand::D(_)));
        match ins.op {
            Op::Param(at) if wide => {
                let bytes = self.parameters[at..].first_chunk().copied();
                w.put64(to, on, [u64::from_le_bytes(bytes.unwrap_or_default()); 32]);
            }
            Op::Param(at) => {
                let bytes = self.parameters[at..].first_chunk().copied();
                w.put32(to, on, [u32::from_le_bytes(bytes.unwrap_or_default()); 32]);
            }
            Op::ParamAt(offset) => {
                let places = w
                    .v64(from[0])
                    .map(|at| at.wrapping_add(offset as u64) as usize);
                let words = if wide {
                    places.map(|at| word(self.parameters, at))
                } else {
                    places.map(|at| word(self.parameters, at).map(|v| v & 0xffff_ffff))
                };
                if (0..32).any(|l| on >> l & 1 == 1 && words[l].is_none()) {
                    return Err("reads behind the last parameter".into());
                }
                let words = words.map(Option::unwrap_or_default);
                if wide {
                    w.put64(to, on, words)
                } else {
                    w.put32(to, on, words.map(|v| v as u32))
                }
            }
            Op::Load { shared, offset } => {
                return self.access(w, ins, on, block, (shared, offset, false));
            }
            Op::Store { shared, offset } => {
                return self.access(w, ins, on, block, (shared, offset, true));
            }
            Op::Mov => match to {
                Operand::D(_) => w.put64(to, on, w.v64(from[0])),
                Operand::P(_) => w.bits(ins, on, |a, _| a),
                _ => w.put32(to, on, w.v32(from[0])),
            },
            Op::Add if wide => w.bits(ins, on, u64::wrapping_add),
            Op::Add => w.two(ins, on, u32::wrapping_add),
            Op::Sub if wide => w.bits(ins, on, u64::wrapping_sub),
            Op::Sub => w.two(ins, on, u32::wrapping_sub),
            Op::Mul if wide => w.bits(ins, on, u64::wrapping_mul),
            Op::Mul => w.two(ins, on, u32::wrapping_mul),
            Op::MulHigh if ins.ty == Type::S32 => w.two(ins, on, |a, b| {
                ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
            }),
            Op::MulHigh => w.two(ins, on, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
            Op::MulWide { signed } | Op::MadWide { signed } => {
                let (a, b) = (w.v32(from[0]), w.v32(from[1]));
                let more = matches!(ins.op, Op::MadWide { .. });
                let c = if more { w.v64(from[2]) } else { [0; 32] };
                let one = |l: usize| {
                    let product = if signed {
                        (i64::from(a[l] as i32) * i64::from(b[l] as i32)) as u64
                    } else {
                        u64::from(a[l]) * u64::from(b[l])
                    };
                    product.wrapping_add(c[l])
                };
                w.put64(to, on, std::array::from_fn(one));
            }
            Op::Mad => {
                let (a, b, c) = (w.v32(from[0]), w.v32(from[1]), w.v32(from[2]));
                let one = |l: usize| a[l].wrapping_mul(b[l]).wrapping_add(c[l]);
                w.put32(to, on, std::array::from_fn(one));
            }
            Op::Div | Op::Rem => {
                let (a, b) = (w.v32(from[0]), w.v32(from[1]));
                if (0..32).any(|l| on >> l & 1 == 1 && b[l] == 0) {
                    return Err("divides a whole number by 0".into());
                }
                let (signed, divides) = (ins.ty == Type::S32, ins.op == Op::Div);
                let one = |l: usize| match (signed, divides) {
                    (_, _) if b[l] == 0 => 0,
                    (true, true) => (a[l] as i32).wrapping_div(b[l] as i32) as u32,
                    (true, false) => (a[l] as i32).wrapping_rem(b[l] as i32) as u32,
                    (false, true) => a[l] / b[l],
                    (false, false) => a[l] % b[l],
                };
                w.put32(to, on, std::array::from_fn(one));
            }
            Op::Neg => w.two(ins, on, |a, _| a.wrapping_neg()),
            Op::Abs => w.two(ins, on, |a, _| (a as i32).unsigned_abs()),
            Op::Min if ins.ty == Type::S32 => {
                w.two(ins, on, |a, b| (a as i32).min(b as i32) as u32);
            }
            Op::Min => w.two(ins, on, u32::min),
            Op::Max if ins.ty == Type::S32 => {
                w.two(ins, on, |a, b| (a as i32).max(b as i32) as u32);
            }
            Op::Max => w.two(ins, on, u32::max),
            Op::And => w.bits(ins, on, |a, b| a & b),
            Op::Or => w.bits(ins, on, |a, b| a | b),
            Op::Xor => w.bits(ins, on, |a, b| a ^ b),
            Op::Not => w.bits(ins, on, |a, _| !a),
            Op::Shl if wide => w.bits(ins, on, |a, b| if b > 63 { 0 } else { a << b }),
            Op::Shl => w.two(ins, on, |a, b| if b > 31 { 0 } else { a << b }),
            Op::Shr if ins.ty == Type::S64 => {
                w.bits(ins, on, |a, b| ((a as i64) >> b.min(63)) as u64);
            }
            Op::Shr if wide => w.bits(ins, on, |a, b| if b > 63 { 0 } else { a >> b }),
            Op::Shr if ins.ty == Type::S32 => {
                w.two(ins, on, |a, b| ((a as i32) >> b.min(31)) as u32);
            }
            Op::Shr => w.two(ins, on, |a, b| if b > 31 { 0 } else { a >> b }),
            Op::Insert => {
                let [a, b, at, n] = from.map(|from| w.v32(from));
                let one = |l: usize| {
                    let (at, n) = (at[l].min(32), n[l].min(32));
                    let mask = (((1u64 << n) - 1) << at) as u32;
                    b[l] & !mask | (u64::from(a[l]) << at) as u32 & mask
                };
                w.put32(to, on, std::array::from_fn(one));
            }
            Op::Select => {
                let m = w.mask(from[2]);
                if wide {
                    let (a, b) = (w.v64(from[0]), w.v64(from[1]));
                    let one = |l: usize| if m >> l & 1 == 1 { a[l] } else { b[l] };
                    w.put64(to, on, std::array::from_fn(one));
                } else {
                    let (a, b) = (w.v32(from[0]), w.v32(from[1]));
                    let one = |l: usize| if m >> l & 1 == 1 { a[l] } else { b[l] };
                    w.put32(to, on, std::array::from_fn(one));
                }
            }
            Op::FloatAdd => w.float(ins, on, |a, b, _| a + b),
            Op::FloatSub => w.float(ins, on, |a, b, _| a - b),
            Op::FloatMul => w.float(ins, on, |a, b, _| a * b),
            Op::FloatDiv => w.float(ins, on, |a, b, _| a / b),
            Op::FloatFma => w.float(ins, on, f32::mul_add),
            Op::FloatSqrt => w.float(ins, on, |a, _, _| a.sqrt()),
            Op::FloatReciprocal => w.float(ins, on, |a, _, _| 1.0 / a),
            Op::FloatNeg => w.float(ins, on, |a, _, _| -a),
            Op::FloatAbs => w.float(ins, on, |a, _, _| a.abs()),
            Op::DoubleAdd => w.double(ins, on, |a, b| a + b),
            Op::DoubleSub => w.double(ins, on, |a, b| a - b),
            Op::DoubleMul => w.double(ins, on, |a, b| a * b),
            Op::DoubleDiv => w.double(ins, on, |a, b| a / b),
            Op::Widen { signed } => {
                let widen = |v: u32| {
                    if signed {
                        i64::from(v as i32) as u64
                    } else {
                        u64::from(v)
                    }
                };
                w.put64(to, on, w.v32(from[0]).map(widen));
            }
            Op::DoubleFromFloat => {
                let widen = |v: u32| f64::from(f32::from_bits(v)).to_bits();
                w.put64(to, on, w.v32(from[0]).map(widen));
            }
            Op::FloatFromDouble => {
                let narrow = |v: u64| (f64::from_bits(v) as f32).to_bits();
                w.put32(to, on, w.v64(from[0]).map(narrow));
            }
            Op::FloatFromInt { signed: true } => w.two(ins, on, |a, _| (a as i32 as f32).to_bits()),
            Op::FloatFromInt { signed: false } => w.two(ins, on, |a, _| (a as f32).to_bits()),
            Op::DoubleFromInt => {
                let convert = |v: u32| f64::from(v as i32).to_bits();
                w.put64(to, on, w.v32(from[0]).map(convert));
            }
            Op::IntFromFloat => w.two(ins, on, |a, _| f32::from_bits(a) as i32 as u32),
            Op::Compare(comparison) => w.compare(ins, on, comparison),
            Op::Branch(_) | Op::Barrier | Op::Return => {}
        }
        Ok(())
    }
}

/// The eight bytes at `at`; 0 for those of the last four that are missing.
fn word(parameters: &[u8], at: usize) -> Option<u64> {
    let low: [u8; 4] = parameters.get(at..)?.first_chunk().copied()?;
    let high = parameters
        .get(at + 4..)
        .and_then(|rest| rest.first_chunk().copied());
    let [low, high] = [low, high.unwrap_or_default()].map(u32::from_le_bytes);
    Some(u64::from(high) << 32 | u64::from(low))
}
