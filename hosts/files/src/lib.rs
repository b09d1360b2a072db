//! Files that are whole or not there. [`write()`] replaces one at once, an [`AppendLog`] only
//! grows, lines of a chain ([`chained_line()`]) show every change, and a [`Lock`] gives a folder to
//! one process.

mod append_log;
mod atomic_file;
mod beginning;
mod chained_line;
mod file_hash;

pub use append_log::{AppendLog, LogPosition};
#[cfg(unix)]
pub use atomic_file::own;
pub use atomic_file::{
    LOCK, Lock, UNFINISHED, create_secret, open_own, open_unlinked, present, private, read_own,
    refuse_links, remove, sync, tidy, unfinished, write, write_secret, write_unlinked, write_with,
};
pub use beginning::beginning;
pub use chained_line::{ChainHash, chained_line, read_chained};
pub use file_hash::FileHash;
