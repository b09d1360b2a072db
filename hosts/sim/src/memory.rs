//! A limit on the program's memory: fewer clients work at once when another would pass it.

use bytesize::ByteSize;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Of the limit, what goes to states of clients who are not at work: one part in so many.
pub(crate) const STATES: u64 = 4;

/// And to answers that wait for their turn.
const WAITING: u64 = 8;

/// Bytes of memory that the program holds.
#[derive(Clone, Copy, Default)]
struct MemoryUse {
    now: u64,
    /// At most, since it began.
    most: u64,
}

/// How many clients are at work, and what they were seen to take.
struct MemorySamples {
    working: usize,
    /// When nobody was at work last: what was held then, and how many have been at work at once since.
    idle: MemoryUse,
    at_once: usize,
    /// What was held before anybody worked.
    first: u64,
    /// What one takes, in bytes; `None`: nobody has worked yet.
    each: Option<u64>,
    /// So many at once have stayed below the limit. The allocator keeps for later what they took and the system counts it
    /// as held, so it need not look as if there was room for as many again.
    fitted: usize,
    /// One more than this passed the limit.
    at_most: usize,
    /// What was held with one client at work, if it was more than the limit.
    passed: Option<u64>,
    /// That has been said.
    told: bool,
}

impl MemorySamples {
    /// How many may be at work at once; one always may.
    fn allowed(&self, limit: u64) -> usize {
        let Some(each) = self.each else {
            return 1;
        };
        // what the allocator has kept of those who were at work serves those who come
        let kept = each.saturating_mul(self.fitted as u64);
        let base = self.idle.now.saturating_sub(kept).max(self.first);
        let room = limit.saturating_sub(base) / each.max(1);
        let fit = usize::try_from(room).unwrap_or(usize::MAX).max(self.fitted);
        fit.clamp(1, self.at_most)
    }
}

/// The limit, and who is at work.
pub(crate) struct Memory {
    limit: u64,
    held: Box<dyn Fn() -> MemoryUse + Send + Sync>,
    seen: Mutex<MemorySamples>,
}

impl Memory {
    /// So many bytes.
    pub fn new(limit: u64) -> Self {
        Self::of(limit, held)
    }

    fn of(limit: u64, held: impl Fn() -> MemoryUse + Send + Sync + 'static) -> Self {
        Self {
            limit,
            held: Box::new(held),
            seen: Mutex::new(MemorySamples {
                working: 0,
                idle: MemoryUse::default(),
                at_once: 0,
                first: 0,
                each: None,
                fitted: 1,
                at_most: usize::MAX,
                passed: None,
                told: false,
            }),
        }
    }

    fn seen(&self) -> MutexGuard<'_, MemorySamples> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes of answers may wait for their turn, if otherwise so many may.
    pub fn waiting(&self, otherwise: u64) -> u64 {
        otherwise.min(self.limit / WAITING)
    }

    /// May this worker, counted from 0, let a client begin? If so it is counted. The first always may. The others are not let in
    /// turn by turn: what the allocator and the networks keep for later, they keep for each thread.
    pub fn begins(&self, worker: usize) -> bool {
        let held = (self.held)();
        let mut seen = self.seen();
        if seen.working == 0 {
            (seen.idle, seen.at_once) = (held, 0);
            seen.first = seen.each.map_or(held.now, |_| seen.first);
        }
        let may = worker < seen.allowed(self.limit);
        if may {
            seen.working += 1;
            seen.at_once = seen.at_once.max(seen.working);
        }
        may
    }

    /// One has done its work.
    pub fn ends(&self) {
        let held = (self.held)();
        let mut seen = self.seen();
        let most = match held.most > seen.idle.most {
            true => held.most,
            false => held.now,
        };
        let each = most.saturating_sub(seen.idle.now) / seen.at_once as u64;
        seen.each = seen.each.max(Some(each));
        if most <= self.limit {
            seen.fitted = seen.fitted.max(seen.at_once);
        } else if seen.at_once > 1 {
            seen.at_most = seen.at_most.min(seen.at_once - 1);
        } else {
            seen.passed = Some(most);
        }
        seen.working -= 1;
    }

    /// What the user should know if the limit cannot be kept; said once.
    pub fn passed(&self) -> Option<String> {
        let mut seen = self.seen();
        let held = seen
            .passed
            .filter(|_| !std::mem::replace(&mut seen.told, true))?;
        let [held, limit] = [held, self.limit].map(|bytes| ByteSize(bytes).display().iec());
        Some(format!(
            "the program holds {held} with one client at work, more than the {limit} that it may have; fewer cannot be at work"
        ))
    }
}

fn held() -> MemoryUse {
    let now = memory_stats::memory_stats().map_or(0, |stats| stats.physical_mem as u64);
    MemoryUse {
        now,
        most: most().unwrap_or(now).max(now),
    }
}

/// Linux knows how much was held at most.
fn most() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A program that holds `held` bytes and gives nothing back.
    fn greedy(limit: u64, held: &Arc<AtomicU64>) -> Memory {
        let held = held.clone();
        Memory::of(limit, move || {
            let now = held.load(Ordering::Relaxed);
            MemoryUse { now, most: now }
        })
    }

    /// How many of eight workers are at work at once when the program has `base` bytes and each of them takes `each`.
    fn at_once(limit: u64, base: u64, each: u64) -> (usize, Option<u64>) {
        let held = Arc::new(AtomicU64::new(base));
        let memory = greedy(limit, &held);
        let mut most = 0;
        for _ in 0..20 {
            let begun = (0..8).filter(|k| memory.begins(*k)).count();
            most = most.max(begun);
            held.fetch_max(base + begun as u64 * each, Ordering::Relaxed);
            (0..begun).for_each(|_| memory.ends());
        }
        let passed = memory.seen().passed;
        assert_eq!(memory.passed().is_some(), passed.is_some());
        assert_eq!(memory.passed(), None, "it is said once");
        (most, passed)
    }

    #[test]
    fn so_many_work_at_once_as_fit() {
        assert_eq!(at_once(1000, 100, 100), (8, None));
        assert_eq!(at_once(1000, 100, 300), (3, None));
        assert_eq!(at_once(1000, 700, 200), (1, None));
        // what cannot be kept is said
        assert_eq!(at_once(1000, 900, 200), (1, Some(1100)));
        assert_eq!(at_once(1000, 2000, 0), (1, Some(2000)));
    }

    #[test]
    fn clients_who_turn_out_larger_are_fewer() {
        let held = Arc::new(AtomicU64::new(0));
        let memory = greedy(1000, &held);
        let begun = || (0..8).filter(|k| memory.begins(*k)).count();
        assert_eq!(begun(), 1, "nobody knows yet what one takes");
        held.store(200, Ordering::Relaxed);
        memory.ends();
        assert_eq!(begun(), 5);
        held.store(1500, Ordering::Relaxed);
        (0..5).for_each(|_| memory.ends());
        held.store(200, Ordering::Relaxed);
        assert_eq!(begun(), 3, "one of them took 260");
    }

    #[test]
    fn the_system_says_what_is_held() {
        let before = held();
        let block = vec![1_u8; 64 << 20];
        let after = held();
        assert!(after.now >= before.now + (32 << 20), "{}", block.len());
        assert!(after.most >= after.now);
    }

    /// A client's begin and end ask what is held, so it must not cost more in a larger program.
    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_held_is_read_from_files_that_do_not_grow_with_the_program() {
        let io = || std::fs::read_to_string("/proc/thread-self/io").ok();
        let Some(before) = io() else {
            return eprintln!("skipped: this system does not count what a thread reads");
        };
        // each thread has a stack, and each stack is a mapping
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for _ in 0..64 {
            let wait = wait.clone();
            std::thread::spawn(move || wait.lock().unwrap().recv());
        }
        let read = |text: String| -> u64 {
            let count = text.lines().find_map(|line| line.strip_prefix("rchar: "));
            count.unwrap().parse().unwrap()
        };
        let all: u64 = (0..10).map(|_| held().now).sum();
        assert!(all > 0);
        let read = read(io().unwrap()) - read(before);
        drop(stop);
        assert!(read < 10 * (4 << 10), "{} bytes each time", read / 10);
    }
}
