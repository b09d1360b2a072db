//! A stream of the driver, and the work that it gets: at once, or together with that of others.

use super::card::{Card, Kernel, MEMBERS};
use super::functions::{Functions, Handle, functions};
use fl_core::Result;
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads of a block in which each thread computes one number.
pub(super) const THREADS: u32 = 256;

/// A stream, until its last buffer is dropped.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) card: Arc<Card>,
    pub(super) handle: usize,
    /// Marks how far its work is, for other streams.
    pub(super) event: usize,
    /// The most bytes of all buffers on the card when this queue makes one.
    pub(super) most: u64,
    /// The work that waits for that of other models; `None` if work begins at once.
    pub(super) later: Mutex<Option<Vec<Work>>>,
}

/// One piece of work that may be done together with that of other models.
#[derive(Debug)]
pub enum Work {
    Launch {
        kernel: Kernel,
        grid: [u32; 2],
        arguments: Vec<u64>,
    },
    Clear {
        address: u64,
        n: usize,
    },
    Free {
        address: u64,
        bytes: u64,
    },
}

impl Work {
    /// Returns what must agree for pieces of work to be one launch: the kernel, or 0 and 1.
    pub fn kind(&self) -> usize {
        match self {
            Self::Launch { kernel, .. } => kernel.handle,
            Self::Clear { .. } => 0,
            Self::Free { .. } => 1,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(all) = functions()
            && self.card.enter(all).is_ok()
        {
            // SAFETY: both were made by `Queue::new`; no buffer holds the stream any more
            unsafe {
                (all.end_event)(self.event as Handle);
                (all.end_stream)(self.handle as Handle);
            }
        }
    }
}

impl Stream {
    pub(super) fn later(&self) -> MutexGuard<'_, Option<Vec<Work>>> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) -> Result<&'static Functions> {
        let all = functions()?;
        self.card.enter(all)?;
        Ok(all)
    }

    /// Does this work now, or later together with that of other models.
    pub(super) fn does(&self, work: Work) -> Result<()> {
        match &mut *self.later() {
            Some(later) => {
                later.push(work);
                Ok(())
            }
            None => self.now(&[&work]),
        }
    }

    /// Does one piece of work of several models, which all have the same kind: one launch.
    pub(super) fn now(&self, works: &[&Work]) -> Result<()> {
        let (all, stream) = (self.begin()?, self.handle as Handle);
        let mut launch = None::<(Kernel, [u32; 2], Vec<u64>, u32)>;
        for work in works {
            match work {
                Work::Clear { address, n } => {
                    // SAFETY: the numbers lie in a buffer, see `Queue::clear`; it is freed later
                    let code = unsafe { (all.fill)(*address, 0, *n, stream) };
                    all.check(code, "cannot clear memory of the card")?;
                }
                Work::Free { address, bytes } => {
                    self.card.held.fetch_sub(*bytes, Ordering::Relaxed);
                    // SAFETY: a buffer that was dropped; all work on it comes before
                    let code = unsafe { (all.free)(*address, stream) };
                    all.check(code, "cannot free memory of the card")?;
                }
                Work::Launch {
                    kernel,
                    grid,
                    arguments,
                } => {
                    let room = || (*kernel, [0, 0], vec![0; kernel.words * MEMBERS], 0);
                    let (_, largest, block, members) = launch.get_or_insert_with(room);
                    block[*members as usize * kernel.words..][..kernel.words]
                        .copy_from_slice(arguments);
                    *largest = [0, 1].map(|i| largest[i].max(grid[i]));
                    *members += 1;
                }
            }
        }
        let Some((kernel, grid, block, members)) = launch else {
            return Ok(());
        };
        self.card.launches.fetch_add(1, Ordering::Relaxed);
        let block: [*const c_void; 1] = [block.as_ptr().cast()];
        // SAFETY: the kernel is loaded in this context; its one parameter is as long as `block`,
        // whose buffers are freed later; the driver copies it before it returns
        let code = unsafe {
            (all.launch)(
                kernel.handle as Handle,
                grid[0],
                grid[1],
                members,
                THREADS,
                1,
                1,
                0,
                stream,
                block.as_ptr(),
                std::ptr::null(),
            )
        };
        let text = || {
            let mut known = self.card.kernels.iter();
            let name = known.find(|(_, k)| k.handle == kernel.handle);
            let name = name.map_or("", |(name, _)| name);
            format!("kernel `{name}` on {}", self.card.name)
        };
        match code {
            0 => Ok(()),
            _ => all.check(code, &text()),
        }
    }

    /// Lets later work of this stream wait for the work of another one so far.
    pub(super) fn follow(&self, other: &Self) -> Result<()> {
        let all = self.begin()?;
        // SAFETY: streams and event live as long as their queues
        let codes = unsafe {
            [
                (all.record)(other.event as Handle, other.handle as Handle),
                (all.wait_event)(self.handle as Handle, other.event as Handle, 0),
            ]
        };
        let check = |code| all.check(code, "cannot order two streams");
        codes.into_iter().try_for_each(check)
    }
}
