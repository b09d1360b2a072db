//! Runs a kernel: 32 threads at a time in lockstep, those that are furthest behind first.

mod step;
mod warp;

use crate::memory::{Buffer, Memory, Writer};
use crate::order::Moment;
use crate::ptx::{Kernel, Op};
use pulp::Arch;
use std::sync::Arc;
use warp::Warp;

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

struct Block {
    shared: Vec<SharedWord>,
    epoch: u32,
    writer: Writer,
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
