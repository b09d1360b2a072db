//! What a library must not take with it: the end of the program, and how this thread rounds.

use super::process_mark::process_mark;
use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Calls into libraries that are going on, on all threads.
static AWAY: AtomicUsize = AtomicUsize::new(0);

/// Does this process only serve a library, so that its parent sees how it ends?
static OWN: AtomicBool = AtomicBool::new(false);

/// This process is a library's own: it may end it as it likes.
#[cfg(unix)]
pub(crate) fn own_process() {
    OWN.store(true, Ordering::Relaxed);
    // what ends a group of processes is for the program, which still asks this one
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: nothing is run for a signal that is ignored.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Ends this process; nothing of a library is run any more.
#[cfg(unix)]
pub fn leave() -> ! {
    // SAFETY: nothing else is run.
    unsafe { libc::_exit(0) }
}

thread_local! {
    /// In whose code this thread is; it has no destructor, so that it can be looked at while the
    /// program ends.
    static IN: Cell<Option<(*const u8, usize)>> = const { Cell::new(None) };
}

/// While it lives, this thread is in code of a library: if that ends the program, the program says
/// so and fails, and however it sets the rounding of numbers, afterwards it is as before. A copy of
/// the process that the library makes ends with it: it must not go on with the run as well.
pub(crate) struct ForeignCallGuard {
    before: Option<(*const u8, usize)>,
    rounding: Rounding,
    /// The process that has called, see [`process_mark`].
    process: u32,
}

impl ForeignCallGuard {
    /// `who` is called; the name must live as long as this.
    pub fn with(who: &str) -> Self {
        static ONCE: Once = Once::new();
        #[cfg(unix)]
        ONCE.call_once(|| {
            // SAFETY: the function has the required type, and touches nothing that may be
            // gone by then.
            unsafe { libc::atexit(ended) };
        });
        #[cfg(not(unix))]
        ONCE.call_once(|| {});
        AWAY.fetch_add(1, Ordering::Relaxed);
        Self {
            before: IN.replace(Some((who.as_ptr(), who.len()))),
            rounding: Rounding::now(),
            process: process_mark(),
        }
    }
}

impl Drop for ForeignCallGuard {
    fn drop(&mut self) {
        #[cfg(unix)]
        if process_mark() != self.process {
            leave();
        }
        self.rounding.set();
        IN.set(self.before);
        AWAY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `f`, which is code of the library `who`, such as its initialisers. If it ends the program,
/// the program says so and exits with code 1; how numbers are rounded is as before.
pub fn during<T>(who: &str, f: impl FnOnce() -> T) -> T {
    let _away = ForeignCallGuard::with(who);
    f()
}

/// The program ends unasked: `exit` in the middle of a library's code.
#[cfg(unix)]
extern "C" fn ended() {
    use std::io::Write;
    if AWAY.load(Ordering::Relaxed) == 0 || OWN.load(Ordering::Relaxed) {
        return;
    }
    let who = IN.get().map(|(data, length)| {
        // SAFETY: the caller that set it is still in its call, and lent a text for as long.
        unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(data, length)) }
    });
    let who = crate::marshal::plain(who.unwrap_or("a library"));
    let _ = writeln!(
        std::io::stderr(),
        "error: {who}: it ended the program in the middle of a call; --resume continues a run from its last checkpoint"
    );
    // SAFETY: nothing else is run.
    unsafe { libc::_exit(1) };
}

/// While it lives, this thread is back in the host's code, in the middle of a library's: it rounds
/// as the host does.
pub(super) struct CallbackGuard(Rounding);

impl CallbackGuard {
    pub fn with(host: Rounding) -> Self {
        let library = Rounding::now();
        host.set();
        Self(library)
    }
}

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// How this thread rounds floating-point numbers, and what it does about tiny ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounding(Register);

#[cfg(target_arch = "x86_64")]
type Register = u32;
#[cfg(not(target_arch = "x86_64"))]
type Register = u64;

impl Rounding {
    /// As it is.
    pub fn now() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let mut mxcsr: Register = 0;
            // SAFETY: it writes the four bytes that it is given.
            unsafe {
                std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack, preserves_flags));
            }
            Self(mxcsr)
        }
        #[cfg(target_arch = "aarch64")]
        {
            let fpcr: Register;
            // SAFETY: it reads a register that every program may read.
            unsafe {
                std::arch::asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack, preserves_flags));
            }
            Self(fpcr)
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        Self(0)
    }

    /// As it was.
    pub fn set(self) {
        if self == Self::now() {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the value is one that the register had, so no reserved bit is set.
        unsafe {
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const self.0, options(nostack, readonly));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the value is one that the register had.
        unsafe {
            std::arch::asm!("msr fpcr, {}", in(reg) self.0, options(nomem, nostack));
        }
    }
}
