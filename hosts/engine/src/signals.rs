//! Signals that stop a run: the first lets the current step end, but no call of an isolated library
//! that goes on for longer than two seconds; the second ends the program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The signals that this program has received.
#[derive(Clone, Default)]
pub struct Signals {
    /// Set by the first signal.
    pub stop: Arc<AtomicBool>,
    signal: Arc<AtomicI32>,
}

impl Signals {
    /// The exit code of a program that a signal stopped, as shells know it; `None` without a
    /// signal.
    pub fn exit_code(&self) -> Option<u8> {
        let signal = self.signal.load(Ordering::Relaxed);
        (signal > 0).then(|| 128u8.saturating_add(signal as u8))
    }

    /// Listens from now on to SIGTERM, SIGINT and SIGHUP. A signal that this program was started to
    /// ignore (`nohup`) stays ignored.
    ///
    /// # Errors
    /// When the system refuses.
    #[cfg(unix)]
    pub fn listen() -> std::io::Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let ignored = ignored();
        let wanted = [SIGTERM, SIGINT, SIGHUP].into_iter();
        let wanted: Vec<i32> = wanted.filter(|s| ignored >> (s - 1) & 1 == 0).collect();
        let received = Self::default();
        let mut signals = signal_hook::iterator::Signals::new(wanted)?;
        let on = received.clone();
        LISTENING.store(true, Ordering::Relaxed);
        let listener = move || {
            for signal in signals.forever() {
                if let Some(child) = child() {
                    let signal = rustix::process::Signal::from_named_raw(signal);
                    let _ = signal.map(|signal| rustix::process::kill_process(child, signal));
                    continue;
                }
                if on.stop.swap(true, Ordering::Relaxed) {
                    // the last checkpoint stands, whatever is being written now
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                on.signal.store(signal, Ordering::Relaxed);
                fl_core::abi::hurry_calls();
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
                log::info!(
                    "{name} received: stopping after the current step; send it again to abort"
                );
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(listener)?;
        Ok(received)
    }

    /// From now on, signals are for the process `child` of this program.
    ///
    /// # Errors
    /// As [`Signals::listen`].
    #[cfg(unix)]
    pub fn pass_on(child: u32) -> std::io::Result<()> {
        CHILD.store(child as i32, Ordering::Relaxed);
        if !LISTENING.load(Ordering::Relaxed) {
            Self::listen()?;
        }
        Ok(())
    }

    /// From now on, a file that becomes larger than this process may write is an error of what
    /// writes it, and does not end the program.
    ///
    /// # Errors
    /// When the system refuses.
    #[cfg(unix)]
    pub fn outlive_large_files() -> std::io::Result<()> {
        let received = Arc::default();
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, received)?;
        Ok(())
    }

    /// On other systems a signal ends the program.
    ///
    /// # Errors
    /// None.
    #[cfg(not(unix))]
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self::default())
    }
}

/// Does a thread listen to signals?
#[cfg(unix)]
static LISTENING: AtomicBool = AtomicBool::new(false);

/// The process that signals are passed on to; 0: none.
#[cfg(unix)]
static CHILD: AtomicI32 = AtomicI32::new(0);

#[cfg(unix)]
fn child() -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(CHILD.load(Ordering::Relaxed))
}

/// A bit for each signal that is ignored, the first for signal 1; only Linux says so.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
