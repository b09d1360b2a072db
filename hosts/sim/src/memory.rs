//! [`Memory`]: a limit on the program's memory. Fewer clients work at once if another would exceed
//! it.

use bytesize::ByteSize;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The limit divided by this is for states of clients that are not at work.
pub(crate) const STATES: u64 = 4;

/// The limit divided by this is for answers that wait for their turn.
const WAITING: u64 = 8;

/// Bytes of memory that the program holds.
#[derive(Clone, Copy, Default)]
struct MemoryUse {
    now: u64,
    /// The maximum so far.
    most: u64,
}

/// The number of clients at work, and their measured memory.
struct MemorySamples {
    working: usize,
    /// The use when no client was last at work, and the most clients at work at once since then.
    idle: MemoryUse,
    at_once: usize,
    /// The use before any client worked.
    first: u64,
    /// The bytes of one client; `None` before any has worked.
    each: Option<u64>,
    /// The most clients at once within the limit so far. The allocator keeps their memory, and the
    /// system counts it as used, so there may seem to be no room for as many again.
    fitted: usize,
    /// One more client than this exceeded the limit.
    at_most: usize,
    /// The use with one client at work, if it exceeded the limit.
    passed: Option<u64>,
    /// Whether the user was warned.
    told: bool,
}

impl MemorySamples {
    /// Returns how many clients may work at once; at least one.
    fn allowed(&self, limit: u64) -> usize {
        let Some(each) = self.each else {
            return 1;
        };
        // memory that the allocator has kept serves the next clients
        let kept = each.saturating_mul(self.fitted as u64);
        let base = self.idle.now.saturating_sub(kept).max(self.first);
        let room = limit.saturating_sub(base) / each.max(1);
        let fit = usize::try_from(room).unwrap_or(usize::MAX).max(self.fitted);
        fit.clamp(1, self.at_most)
    }
}

/// The limit, and the clients at work.
pub(crate) struct Memory {
    limit: u64,
    held: Box<dyn Fn() -> MemoryUse + Send + Sync>,
    seen: Mutex<MemorySamples>,
}

impl Memory {
    /// Sets a limit in bytes.
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

    /// Returns how many bytes of answers may wait for their turn; `otherwise` without this limit.
    pub fn waiting(&self, otherwise: u64) -> u64 {
        otherwise.min(self.limit / WAITING)
    }

    /// Returns whether this worker, counted from 0, may let a client begin, and counts it then. The
    /// first always may. Workers have priority by number, not in turn, because allocator and
    /// networks keep memory per thread.
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

    /// Counts a client that has finished.
    pub fn ends(&self) {
        let held = (self.held)();
        let mut seen = self.seen();
        let most = if held.most > seen.idle.most {
            held.most
        } else {
            held.now
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

    /// Returns a warning if the limit cannot be kept, once.
    pub fn passed(&self) -> Option<String> {
        let mut seen = self.seen();
        let held = seen
            .passed
            .filter(|_| !std::mem::replace(&mut seen.told, true))?;
        let [held, limit] = [held, self.limit].map(|bytes| ByteSize(bytes).display().iec());
        Some(format!(
            "the program holds {held} with one client at work, above the limit of {limit} (--memory); raise the limit"
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

/// Returns the maximum use, which Linux records.
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

    /// Simulates a program that holds `held` bytes and frees nothing.
    fn greedy(limit: u64, held: &Arc<AtomicU64>) -> Memory {
        let held = held.clone();
        Memory::of(limit, move || {
            let now = held.load(Ordering::Relaxed);
            MemoryUse { now, most: now }
        })
    }

    /// Returns how many of eight workers work at once if the program has `base` bytes and each
    /// takes `each`.
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
        // a limit that cannot be kept gives a warning
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

    /// Every client's begin and end reads the use, so it must not cost more in a larger program.
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
