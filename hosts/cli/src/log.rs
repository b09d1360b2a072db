//! Messages to the user: on stderr, and in the file of `--log`.

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

static QUIET: AtomicBool = AtomicBool::new(false);
/// Stands for the time of a wrong clock.
const NO_TIME: &str = "(no time)";
static LOG: Mutex<Option<File>> = Mutex::new(None);

/// Prints what the engine logs.
struct Engine;

impl log::Log for Engine {
    fn enabled(&self, about: &log::Metadata<'_>) -> bool {
        about.target().starts_with("fl_")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            say(record.args());
        }
    }

    fn flush(&self) {}
}

/// From now on.
pub fn begin(quiet: bool, log: Option<&Path>) -> anyhow::Result<()> {
    QUIET.store(quiet, Ordering::Relaxed);
    // a program that has set a logger of its own keeps it
    if log::set_logger(&Engine).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
    let open = |path: &Path| {
        // opening a pipe would wait for its reader
        let pipe = path.metadata().is_ok_and(|about| !about.is_file());
        let pipe = pipe && !path.starts_with("/dev");
        let file = if pipe {
            Err(std::io::Error::other("it is no regular file"))
        } else if !begins_a_log(path) {
            Err(std::io::Error::other(
                "it has other lines than those of a log: name another file",
            ))
        } else {
            OpenOptions::new().create(true).append(true).open(path)
        };
        file.with_context(|| format!("--log {}", path.display()))
    };
    *LOG.lock().unwrap_or_else(PoisonError::into_inner) = log.map(open).transpose()?;
    Ok(())
}

/// Is there no file, an empty one, or one that begins as [`note`] begins a line?
fn begins_a_log(path: &Path) -> bool {
    let first = fl_files::beginning(path, "2026-01-01T00:00:00Z".len());
    let first = String::from_utf8_lossy(&first);
    first.is_empty() || first.starts_with(NO_TIME) || humantime::parse_rfc3339(&first).is_ok()
}

/// Are only errors printed?
pub fn quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints a message. If stderr cannot be written, only this line is lost.
pub fn say(text: impl Display) {
    if quiet() { note(text) } else { complain(text) }
}

/// As [`say`], but also with `--quiet`: an error.
pub fn complain(text: impl Display) {
    let text = crate::sanitize::plain(&text.to_string());
    if !crate::capture::keep(crate::capture::Stream::Err, &text) {
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    note(text);
}

/// Only for the log.
pub fn note(text: impl Display) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = log.as_mut() {
        let now = fl_sim::time(SystemTime::now()).unwrap_or(NO_TIME.into());
        let line = format!("{now} {}\n", crate::sanitize::plain(&text.to_string()));
        if let Err(error) = file.write_all(line.as_bytes()) {
            // printed once: the run is worth more than its log
            *log = None;
            drop(log);
            complain(format_args!("note: --log: {error}; it ends here"));
        }
    }
}

/// A progress bar, hidden with `--quiet`.
pub fn bar(bar: ProgressBar) -> ProgressBar {
    if quiet() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}
