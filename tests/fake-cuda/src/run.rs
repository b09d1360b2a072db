//! Runs a kernel: 32 threads at a time in lockstep, those that are furthest behind first.

use crate::memory::{Buffer, Memory, Writer};
use crate::order::Moment;
use crate::ptx::{Comparison, Instruction, Kernel, Op, Operand, Type};
use pulp::Arch;
use std::sync::Arc;

type Lanes = [u32; 32];
type Lanes64 = [u64; 32];

/// Bytes at the start of shared memory that belong to no array.
const BEFORE: u64 = 16;

/// The size of a launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// Threads of a block in each direction.
    pub block: [u32; 3],
    /// Number of the launch in this process, at least 1.
    pub number: u32,
    /// Blocks and warps run in another order for each seed; 0: in their own.
    pub shuffle: u64,
    /// When it runs.
    pub moment: Moment,
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Instructions of all threads.
    pub instructions: u64,
    /// Words that threads read and wrote in the buffers.
    pub accesses: u64,
    /// Bytes of the buffers that were used, each once for reads and once for writes.
    pub bytes: u64,
}

/// A word of shared memory. Epochs count barriers, from 1; 0 is never.
#[derive(Clone, Copy, Default)]
struct SharedWord {
    value: u32,
    written: (u32, u32),
    read: (u32, u32),
}

const PARTED: &str = "a barrier that not all threads of a block reach";

/// The reader of a word that several threads read.
const MANY: u32 = u32::MAX;

struct Block {
    shared: Vec<SharedWord>,
    epoch: u32,
    writer: Writer,
}

struct Warp {
    r: Vec<Lanes>,
    d: Vec<Lanes64>,
    p: Vec<u32>,
    at: [usize; 32],
    /// Threads that are there at all.
    all: u32,
    live: u32,
    waits: u32,
    special: [Lanes; 12],
    first: u32,
}

impl Kernel {
    /// Runs a grid with these parameters.
    ///
    /// # Errors
    /// Names the kernel and what it must not do.
    pub fn run(
        &self,
        launch: &Launch,
        parameters: &[u8],
        memory: &Memory,
    ) -> Result<Counts, String> {
        self.grid(launch, parameters, memory)
            .map_err(|e| format!("kernel `{}`: {e}", self.name))
    }

    fn grid(&self, launch: &Launch, parameters: &[u8], memory: &Memory) -> Result<Counts, String> {
        let Launch { grid, block, .. } = *launch;
        let blocks: u64 = grid.iter().map(|n| u64::from(*n)).product();
        let threads: u64 = block.iter().map(|n| u64::from(*n)).product();
        if threads == 0 || threads > 1024 || blocks == 0 || grid[1] > 65535 || grid[2] > 65535 {
            return Err(format!(
                "cannot launch {grid:?} blocks of {block:?} threads"
            ));
        }
        // a launch may touch the buffers that it was given, and no others
        let mut buffers: Vec<Arc<Buffer>> = Vec::new();
        for bytes in parameters.as_chunks().0 {
            let found = memory.find(u64::from_le_bytes(*bytes));
            buffers.extend(found.filter(|f| buffers.iter().all(|b| b.start != f.start)));
        }
        let mut run = Run {
            kernel: self,
            launch,
            parameters,
            uses: vec![(false, false); buffers.len()],
            accesses: 0,
            buffers: &buffers,
        };
        let instructions = Arch::new().dispatch(
            #[inline(always)]
            || run.all(blocks, threads as u32),
        )?;
        let mut bytes = 0;
        for (buffer, (read, written)) in buffers.iter().zip(&run.uses) {
            bytes += buffer.bytes * (u64::from(*read) + u64::from(*written));
            match (read, written) {
                (_, true) => buffer.written(&launch.moment)?,
                (true, false) => buffer.read(&launch.moment)?,
                (false, false) => {}
            }
        }
        Ok(Counts {
            instructions,
            accesses: run.accesses,
            bytes,
        })
    }
}

struct Run<'a> {
    kernel: &'a Kernel,
    launch: &'a Launch,
    parameters: &'a [u8],
    buffers: &'a [Arc<Buffer>],
    /// Whether each buffer was read, and written.
    uses: Vec<(bool, bool)>,
    accesses: u64,
}

impl Run<'_> {
    #[inline(always)]
    fn all(&mut self, blocks: u64, threads: u32) -> Result<u64, String> {
        let Launch {
            grid,
            number,
            shuffle,
            ..
        } = *self.launch;
        let (width, height) = (u64::from(grid[0]), u64::from(grid[1]));
        let count = u64::from(threads.div_ceil(32));
        let mut warps: Vec<Warp> = (0..count).map(|_| Warp::new(self.kernel)).collect();
        let mut done = 0;
        for i in 0..blocks {
            let b = shuffled(i, blocks, shuffle);
            let place = [b % width, b / width % height, b / width / height].map(|n| n as u32);
            let mut block = Block {
                shared: vec![SharedWord::default(); self.kernel.shared / 4],
                epoch: 1,
                writer: Writer {
                    launch: number,
                    block: b as u32,
                },
            };
            for (at, warp) in warps.iter_mut().enumerate() {
                warp.begin(at as u32 * 32, threads, place, self.launch);
            }
            while warps.iter().any(|w| w.live != 0) {
                for w in 0..count {
                    let warp = &mut warps[shuffled(w, count, shuffle) as usize];
                    done += self.until_it_waits(warp, &mut block)?;
                }
                if warps.iter().any(|w| w.waits != 0) {
                    if warps.iter().any(|w| w.waits == 0) {
                        return Err(PARTED.into());
                    }
                    warps.iter_mut().for_each(|w| w.waits = 0);
                }
                block.epoch += 1;
            }
        }
        Ok(done)
    }

    /// Runs a warp until every thread has ended or waits.
    #[inline(always)]
    fn until_it_waits(&mut self, w: &mut Warp, block: &mut Block) -> Result<u64, String> {
        let code = &self.kernel.code;
        let mut done = 0;
        loop {
            let runs = w.live & !w.waits;
            if runs == 0 {
                return Ok(done);
            }
            let lanes = || (0..32).filter(|l| runs >> l & 1 == 1);
            let mut at = lanes().map(|l| w.at[l]).min().unwrap_or_default();
            let mask: u32 = lanes().filter(|l| w.at[*l] == at).map(|l| 1 << l).sum();
            let others = lanes().map(|l| w.at[l]).filter(|o| *o != at).min();
            let next = others.unwrap_or(usize::MAX);
            // these go on until they part, or come to where others are
            loop {
                let Some(ins) = code.get(at) else {
                    w.live &= !mask;
                    break;
                };
                done += u64::from(mask.count_ones());
                let on = match ins.guard {
                    Some((p, true)) => mask & !w.p[p],
                    Some((p, false)) => mask & w.p[p],
                    None => mask,
                };
                match ins.op {
                    Op::Branch(to) => {
                        if on == mask && to < next {
                            at = to;
                            continue;
                        }
                        if on == 0 && at + 1 < next {
                            at += 1;
                            continue;
                        }
                        w.go(mask & on, to);
                        w.go(mask & !on, at + 1);
                        break;
                    }
                    Op::Return => {
                        w.live &= !on;
                        w.go(mask, at + 1);
                        break;
                    }
                    Op::Barrier => {
                        if on != w.all {
                            return Err(PARTED.into());
                        }
                        w.waits = on;
                        w.go(mask, at + 1);
                        break;
                    }
                    _ => {
                        if let Err(why) = self.step(w, ins, on, block) {
                            return Err(format!("{why}: `{}`", self.kernel.text[at]));
                        }
                    }
                }
                at += 1;
                if at >= next {
                    w.go(mask, at);
                    break;
                }
            }
        }
    }

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
    fn step(
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
                let words = match wide {
                    true => places.map(|at| word(self.parameters, at)),
                    false => places.map(|at| word(self.parameters, at).map(|v| v & 0xffff_ffff)),
                };
                if (0..32).any(|l| on >> l & 1 == 1 && words[l].is_none()) {
                    return Err("reads behind the last parameter".into());
                }
                let words = words.map(Option::unwrap_or_default);
                match wide {
                    true => w.put64(to, on, words),
                    false => w.put32(to, on, words.map(|v| v as u32)),
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
                    let product = match signed {
                        true => (i64::from(a[l] as i32) * i64::from(b[l] as i32)) as u64,
                        false => u64::from(a[l]) * u64::from(b[l]),
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
                let widen = |v: u32| match signed {
                    true => i64::from(v as i32) as u64,
                    false => u64::from(v),
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

/// Position `i` of a permutation of `0..n`.
fn shuffled(i: u64, n: u64, shuffle: u64) -> u64 {
    if shuffle == 0 {
        return i;
    }
    let mut step = ((shuffle * 7919) % n.max(1)) | 1;
    while common_divisor(step, n) != 1 {
        step += 2;
    }
    (i * step + shuffle) % n
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

impl Warp {
    fn new(kernel: &Kernel) -> Self {
        let [r, d, p] = kernel.registers;
        Self {
            r: vec![[u32::MAX; 32]; r],
            d: vec![[u64::MAX; 32]; d],
            p: vec![0; p],
            at: [0; 32],
            all: 0,
            live: 0,
            waits: 0,
            special: [[0; 32]; 12],
            first: 0,
        }
    }

    /// The threads from `first` on of a block of `threads`, at `place` in the grid.
    fn begin(&mut self, first: u32, threads: u32, place: [u32; 3], launch: &Launch) {
        self.r.fill([u32::MAX; 32]);
        self.d.fill([u64::MAX; 32]);
        self.p.fill(0);
        (self.at, self.all, self.waits, self.first) = ([0; 32], 0, 0, first);
        let Launch { grid, block, .. } = launch;
        for l in 0..32 {
            let thread = first + l as u32;
            if thread < threads {
                self.all |= 1 << l;
            }
            let row = thread / block[0];
            let of_thread = [thread % block[0], row % block[1], row / block[1]];
            for i in 0..3 {
                self.special[i][l] = of_thread[i];
                self.special[3 + i][l] = block[i];
                self.special[6 + i][l] = place[i];
                self.special[9 + i][l] = grid[i];
            }
        }
        self.live = self.all;
    }

    #[inline(always)]
    fn go(&mut self, mask: u32, to: usize) {
        for l in 0..32 {
            if mask >> l & 1 == 1 {
                self.at[l] = to;
            }
        }
    }

    #[inline(always)]
    fn v32(&self, from: Operand) -> Lanes {
        match from {
            Operand::R(i) => self.r[i],
            Operand::Number(v) => [v as u32; 32],
            Operand::Special(i) => self.special[i],
            Operand::D(i) => self.d[i].map(|v| v as u32),
            Operand::P(_) => [0; 32],
        }
    }

    #[inline(always)]
    fn v64(&self, from: Operand) -> Lanes64 {
        match from {
            Operand::D(i) => self.d[i],
            Operand::Number(v) => [v; 32],
            Operand::R(i) => self.r[i].map(u64::from),
            Operand::Special(i) => self.special[i].map(u64::from),
            Operand::P(_) => [0; 32],
        }
    }

    #[inline(always)]
    fn mask(&self, from: Operand) -> u32 {
        match from {
            Operand::P(i) => self.p[i],
            _ => 0,
        }
    }

    #[inline(always)]
    fn put32(&mut self, to: Operand, on: u32, v: Lanes) {
        let Operand::R(i) = to else { return };
        if on == u32::MAX {
            self.r[i] = v;
        } else {
            let old = self.r[i];
            self.r[i] = std::array::from_fn(|l| if on >> l & 1 == 1 { v[l] } else { old[l] });
        }
    }

    #[inline(always)]
    fn put64(&mut self, to: Operand, on: u32, v: Lanes64) {
        let Operand::D(i) = to else { return };
        if on == u32::MAX {
            self.d[i] = v;
        } else {
            let old = self.d[i];
            self.d[i] = std::array::from_fn(|l| if on >> l & 1 == 1 { v[l] } else { old[l] });
        }
    }

    #[inline(always)]
    fn two(&mut self, ins: &Instruction, on: u32, f: impl Fn(u32, u32) -> u32) {
        let (a, b) = (self.v32(ins.from[0]), self.v32(ins.from[1]));
        self.put32(ins.to, on, std::array::from_fn(|l| f(a[l], b[l])));
    }

    #[inline(always)]
    fn float(&mut self, ins: &Instruction, on: u32, f: impl Fn(f32, f32, f32) -> f32) {
        let [a, b, c, _] = ins.from.map(|from| self.v32(from).map(f32::from_bits));
        let one = |l: usize| f(a[l], b[l], c[l]).to_bits();
        self.put32(ins.to, on, std::array::from_fn(one));
    }

    #[inline(always)]
    fn double(&mut self, ins: &Instruction, on: u32, f: impl Fn(f64, f64) -> f64) {
        let [a, b, ..] = ins.from.map(|from| self.v64(from).map(f64::from_bits));
        let one = |l: usize| f(a[l], b[l]).to_bits();
        self.put64(ins.to, on, std::array::from_fn(one));
    }

    /// An operation on bits: of predicates, of 64 or of 32.
    #[inline(always)]
    fn bits(&mut self, ins: &Instruction, on: u32, f: impl Fn(u64, u64) -> u64) {
        let [x, y, ..] = ins.from;
        match ins.to {
            Operand::P(i) => {
                let v = f(u64::from(self.mask(x)), u64::from(self.mask(y))) as u32;
                self.p[i] = self.p[i] & !on | v & on;
            }
            Operand::D(_) => {
                let (a, b) = (self.v64(x), self.v64(y));
                self.put64(ins.to, on, std::array::from_fn(|l| f(a[l], b[l])));
            }
            _ => {
                let (a, b) = (self.v32(x), self.v32(y));
                let one = |l: usize| f(u64::from(a[l]), u64::from(b[l])) as u32;
                self.put32(ins.to, on, std::array::from_fn(one));
            }
        }
    }

    #[inline(always)]
    fn compare(&mut self, ins: &Instruction, on: u32, comparison: Comparison) {
        let Operand::P(to) = ins.to else { return };
        let [x, y, ..] = ins.from;
        let yes = match ins.ty {
            Type::F32 => {
                let (a, b) = (self.v32(x), self.v32(y));
                let pair = |l: usize| (f32::from_bits(a[l]), f32::from_bits(b[l]));
                every(|l| {
                    let (a, b) = pair(l);
                    floats(comparison, a.partial_cmp(&b))
                })
            }
            Type::F64 => {
                let (a, b) = (self.v64(x), self.v64(y));
                let pair = |l: usize| (f64::from_bits(a[l]), f64::from_bits(b[l]));
                every(|l| {
                    let (a, b) = pair(l);
                    floats(comparison, a.partial_cmp(&b))
                })
            }
            Type::S32 => {
                let (a, b) = (self.v32(x), self.v32(y));
                whole(comparison, |l| (a[l] as i32, b[l] as i32))
            }
            Type::U32 => {
                let (a, b) = (self.v32(x), self.v32(y));
                whole(comparison, |l| (a[l], b[l]))
            }
            Type::S64 => {
                let (a, b) = (self.v64(x), self.v64(y));
                whole(comparison, |l| (a[l] as i64, b[l] as i64))
            }
            Type::B64 => {
                let (a, b) = (self.v64(x), self.v64(y));
                whole(comparison, |l| (a[l], b[l]))
            }
        };
        self.p[to] = self.p[to] & !on | yes & on;
    }
}

#[inline(always)]
fn every(f: impl Fn(usize) -> bool) -> u32 {
    (0..32).fold(0, |mask, l| mask | u32::from(f(l)) << l)
}

#[inline(always)]
fn whole<T: Ord>(comparison: Comparison, pair: impl Fn(usize) -> (T, T)) -> u32 {
    let test = |f: fn(&T, &T) -> bool| {
        every(|l| {
            let (a, b) = pair(l);
            f(&a, &b)
        })
    };
    match comparison {
        Comparison::Eq | Comparison::Equ => test(T::eq),
        Comparison::Ne | Comparison::Neu => test(T::ne),
        Comparison::Lt | Comparison::Ltu => test(T::lt),
        Comparison::Le | Comparison::Leu => test(T::le),
        Comparison::Gt | Comparison::Gtu => test(T::gt),
        Comparison::Ge | Comparison::Geu => test(T::ge),
        Comparison::Nan => 0,
        Comparison::Num => u32::MAX,
    }
}

#[inline(always)]
fn floats(comparison: Comparison, order: Option<std::cmp::Ordering>) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match comparison {
        Comparison::Eq => order == Some(Equal),
        Comparison::Ne => order.is_some_and(|o| o != Equal),
        Comparison::Lt => order == Some(Less),
        Comparison::Le => matches!(order, Some(Less | Equal)),
        Comparison::Gt => order == Some(Greater),
        Comparison::Ge => matches!(order, Some(Greater | Equal)),
        Comparison::Nan => order.is_none(),
        Comparison::Num => order.is_some(),
        Comparison::Equ => matches!(order, None | Some(Equal)),
        Comparison::Neu => order != Some(Equal),
        Comparison::Ltu => matches!(order, None | Some(Less)),
        Comparison::Leu => order != Some(Greater),
        Comparison::Gtu => matches!(order, None | Some(Greater)),
        Comparison::Geu => order != Some(Less),
    }
}
