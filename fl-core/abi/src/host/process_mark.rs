//! Which process this is, for less than a call of the system.

/// Returns a number that a process does not share with one that it forks, however it does that.
///
/// On Linux the number is in a page that the kernel wipes in the new process (since Linux 4.14), so
/// that reading it takes a nanosecond. Elsewhere it is the system's number of the process. A child
/// of `vfork` has its parent's memory, and so its parent's mark: C forbids it to return.
pub(crate) fn process_mark() -> u32 {
    #[cfg(all(target_os = "linux", not(miri)))]
    if let Some(mark) = wiped::mark() {
        return mark;
    }
    std::process::id()
}

#[cfg(all(target_os = "linux", not(miri)))]
mod wiped {
    use memmap2::{MmapMut, MmapRaw};
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// The page; `None` where the kernel does not wipe it.
    static PAGE: LazyLock<Option<MmapRaw>> = LazyLock::new(|| {
        let page = MmapRaw::from(MmapMut::map_anon(size_of::<AtomicU32>()).ok()?);
        // SAFETY: the advice is for this mapping alone, which is private and stays for ever.
        let wiped =
            unsafe { libc::madvise(page.as_mut_ptr().cast(), page.len(), libc::MADV_WIPEONFORK) };
        (wiped == 0).then_some(page)
    });
    /// The last mark that this process or one of its ancestors had.
    static LAST: AtomicU32 = AtomicU32::new(0);

    pub fn mark() -> Option<u32> {
        let page = PAGE.as_ref()?;
        // SAFETY: the page begins with four bytes that are only used by this reference's like.
        let mark = unsafe { AtomicU32::from_ptr(page.as_mut_ptr().cast()) };
        let known = mark.load(Ordering::Relaxed);
        if known != 0 {
            return Some(known);
        }
        // two threads may come here at once: the first mark holds
        let new = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let now = mark.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
        Some(now.map_or_else(|first| first, |_| new))
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::super::foreign_call_guard::ForeignCallGuard;
    use super::process_mark;

    /// The exit code of a process that the kernel forks, which does nothing but `f`.
    fn forked(f: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the new process only reads and writes its own memory and ends, so it waits for no
        // lock that another thread held.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        assert!(child >= 0, "it cannot fork");
        if child == 0 {
            let code = f();
            // SAFETY: nothing else is run.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: the child is this process's own.
        unsafe { libc::waitpid(child as i32, &raw mut status, 0) };
        assert!(libc::WIFEXITED(status), "{status}");
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_fork_has_a_mark_of_its_own_and_keeps_it() {
        let here = process_mark();
        assert_eq!(
            forked(|| i32::from(process_mark() == here)
                + 2 * i32::from(process_mark() != process_mark())),
            0
        );
        assert_eq!(process_mark(), here);
    }

    #[test]
    fn a_fork_inside_of_a_call_ends_with_the_call_even_after_calls_of_its_own() {
        // what the first call of a process makes must not be half made by another test's thread
        drop(ForeignCallGuard::with("first"));
        let code = forked(|| {
            let call = ForeignCallGuard::with("outer");
            let twin = forked(|| {
                drop(ForeignCallGuard::with("inner"));
                drop(call);
                7
            });
            twin + 1
        });
        assert_eq!(code, 1, "the twin has gone on");
    }
}
