//! A warp: the registers of 32 threads, and arithmetic on all of them.

use super::Launch;
use crate::ptx::{Comparison, Instruction, Kernel, Operand, Type};

type Lanes = [u32; 32];
type Lanes64 = [u64; 32];

pub(super) struct Warp {
    pub r: Vec<Lanes>,
    pub d: Vec<Lanes64>,
    pub p: Vec<u32>,
    pub at: [usize; 32],
    /// Threads that are there at all.
    pub all: u32,
    pub live: u32,
    pub waits: u32,
    pub special: [Lanes; 12],
    pub first: u32,
}

impl Warp {
    pub fn new(kernel: &Kernel) -> Self {
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
    pub fn begin(&mut self, first: u32, threads: u32, place: [u32; 3], launch: &Launch) {
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
    pub fn go(&mut self, mask: u32, to: usize) {
        for l in 0..32 {
            if mask >> l & 1 == 1 {
                self.at[l] = to;
            }
        }
    }

    #[inline(always)]
    pub fn v32(&self, from: Operand) -> Lanes {
        match from {
            Operand::R(i) => self.r[i],
            Operand::Number(v) => [v as u32; 32],
            Operand::Special(i) => self.special[i],
            Operand::D(i) => self.d[i].map(|v| v as u32),
            Operand::P(_) => [0; 32],
        }
    }

    #[inline(always)]
    pub fn v64(&self, from: Operand) -> Lanes64 {
        match from {
            Operand::D(i) => self.d[i],
            Operand::Number(v) => [v; 32],
            Operand::R(i) => self.r[i].map(u64::from),
            Operand::Special(i) => self.special[i].map(u64::from),
            Operand::P(_) => [0; 32],
        }
    }

    #[inline(always)]
    pub fn mask(&self, from: Operand) -> u32 {
        match from {
            Operand::P(i) => self.p[i],
            _ => 0,
        }
    }

    #[inline(always)]
    pub fn put32(&mut self, to: Operand, on: u32, v: Lanes) {
        let Operand::R(i) = to else { return };
        if on == u32::MAX {
            self.r[i] = v;
        } else {
            let old = self.r[i];
            self.r[i] = std::array::from_fn(|l| if on >> l & 1 == 1 { v[l] } else { old[l] });
        }
    }

    #[inline(always)]
    pub fn put64(&mut self, to: Operand, on: u32, v: Lanes64) {
        let Operand::D(i) = to else { return };
        if on == u32::MAX {
            self.d[i] = v;
        } else {
            let old = self.d[i];
            self.d[i] = std::array::from_fn(|l| if on >> l & 1 == 1 { v[l] } else { old[l] });
        }
    }

    #[inline(always)]
    pub fn two(&mut self, ins: &Instruction, on: u32, f: impl Fn(u32, u32) -> u32) {
        let (a, b) = (self.v32(ins.from[0]), self.v32(ins.from[1]));
        self.put32(ins.to, on, std::array::from_fn(|l| f(a[l], b[l])));
    }

    #[inline(always)]
    pub fn float(&mut self, ins: &Instruction, on: u32, f: impl Fn(f32, f32, f32) -> f32) {
        let [a, b, c, _] = ins.from.map(|from| self.v32(from).map(f32::from_bits));
        let one = |l: usize| f(a[l], b[l], c[l]).to_bits();
        self.put32(ins.to, on, std::array::from_fn(one));
    }

    #[inline(always)]
    pub fn double(&mut self, ins: &Instruction, on: u32, f: impl Fn(f64, f64) -> f64) {
        let [a, b, ..] = ins.from.map(|from| self.v64(from).map(f64::from_bits));
        let one = |l: usize| f(a[l], b[l]).to_bits();
        self.put64(ins.to, on, std::array::from_fn(one));
    }

    /// An operation on bits: of predicates, of 64 or of 32.
    #[inline(always)]
    pub fn bits(&mut self, ins: &Instruction, on: u32, f: impl Fn(u64, u64) -> u64) {
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
    pub fn compare(&mut self, ins: &Instruction, on: u32, comparison: Comparison) {
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
