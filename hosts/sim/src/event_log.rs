//! [`EventLog`]: a file of lines that a listener writes into the run folder.

use fl_core::Result;
use fl_files::{AppendLog, LogPosition};
use serde::Serialize;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file of lines in the run folder. A checkpoint knows how long it is: a run that goes on removes
/// what is behind, as those steps are done again. Clones write the same file.
#[derive(Clone)]
pub struct EventLog {
    name: &'static str,
    file: Arc<Mutex<Option<AppendLog>>>,
}

impl EventLog {
    /// Returns the log of this name, such as `energy.jsonl`. The run opens it, if a listener has it
    /// ([`Listener::log`](crate::Listener::log)).
    pub fn new(name: &'static str) -> Self {
        let file = Arc::default();
        Self { name, file }
    }

    /// Writes a line; without a run folder, nothing.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&self, line: &impl Serialize) -> Result<()> {
        self.file().as_mut().map_or(Ok(()), |file| file.add(line))
    }

    /// Returns whether a file of the run folder itself may have this name.
    pub(crate) fn is_name(name: &str) -> bool {
        name.ends_with(".jsonl") && !name.contains(['/', '\\', ':'])
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Writes behind the part that the last checkpoint knows, if it knows the file.
    pub(crate) fn open(&self, folder: &Path, known: Option<AppendLog>) -> Result<()> {
        let path = folder.join(self.name);
        let file = match known {
            Some(file) => file,
            None if path.exists() => AppendLog::open(path, None)?,
            None => AppendLog::create(path)?,
        };
        file.go_on()?;
        *self.file() = Some(file);
        Ok(())
    }

    /// Flushes the file to the disk, and returns its position; none without a run folder.
    pub(crate) fn flush(&self) -> Result<Option<LogPosition>> {
        self.file().as_ref().map(AppendLog::flush).transpose()
    }

    fn file(&self) -> MutexGuard<'_, Option<AppendLog>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_a_file_of_the_run_folder() {
        assert!(EventLog::is_name("energy.jsonl"));
        for other in [
            "../energy.jsonl",
            "/x.jsonl",
            "a\\b.jsonl",
            "c:x.jsonl",
            "state",
        ] {
            assert!(!EventLog::is_name(other), "{other}");
        }
    }
}
