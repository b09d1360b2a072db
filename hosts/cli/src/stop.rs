//! Signals that end a program: the first lets the step that is going on come to its end, the second ends the program at once.

use crate::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// What was asked of the program from outside.
#[derive(Clone, Default)]
pub struct Asked {
    /// Is the run to stop?
    pub stop: Arc<AtomicBool>,
    signal: Arc<AtomicI32>,
}

impl Asked {
    /// The exit code of a program that a signal has stopped, as shells know it; `None`: there was no signal.
    pub fn exit_code(&self) -> Option<u8> {
        let signal = self.signal.load(Ordering::Relaxed);
        (signal > 0).then(|| 128u8.saturating_add(signal as u8))
    }

    /// # Errors
    /// When there was a signal.
    pub fn ended(&self) -> Result<(), Failure> {
        self.exit_code()
            .map_or(Ok(()), |code| Err(Failure::Stopped(code)))
    }
}

/// Listens from now on. Signals that whoever began the program lets it ignore (`nohup`) stay ignored.
///
/// # Errors
/// When the system does not let it.
#[cfg(unix)]
pub fn listen() -> std::io::Result<Asked> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let ignored = ignored();
    let wanted = [SIGTERM, SIGINT, SIGHUP].into_iter();
    let wanted: Vec<i32> = wanted.filter(|s| ignored >> (s - 1) & 1 == 0).collect();
    let asked = Asked::default();
    let mut signals = signal_hook::iterator::Signals::new(wanted)?;
    let told = asked.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if told.stop.swap(true, Ordering::Relaxed) {
                    // the last checkpoint stands, whatever is being written now
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                told.signal.store(signal, Ordering::Relaxed);
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
                crate::say(format_args!(
                    "{name}: it stops after the step that is going on; the same again ends it at once"
                ));
            }
        })?;
    Ok(asked)
}

/// Elsewhere the system ends the program.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn listen() -> std::io::Result<Asked> {
    Ok(Asked::default())
}

/// A bit for each signal that is ignored, the first for signal 1; only Linux says so.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
