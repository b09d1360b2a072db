//! Files and folders of a node that only its owner may read.

use anyhow::Context;
use fl_core::Result;
pub(crate) use fl_files::private;
use std::fs::{self, File, OpenOptions};
use std::path::Path;

/// Writes a private file of a node, as a whole, and so that a crash of the system
/// does not undo it.
pub(crate) fn last(path: &Path, bytes: &[u8]) -> Result<()> {
    fl_files::write_secret(path, bytes)?;
    path.parent().map_or(Ok(()), fl_files::sync)
}

/// Makes a folder of a node, or takes the one that is there, if no other user may write to it.
pub(crate) fn folder(path: &Path) -> std::io::Result<()> {
    let mut make = fs::DirBuilder::new();
    make.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut make, 0o700);
    make.create(path)?;
    #[cfg(unix)]
    fl_files::own(&path.metadata()?)?;
    Ok(())
}

/// Opens a file of a node to read.
pub(crate) fn open(path: &Path) -> std::io::Result<File> {
    fl_files::open_own(path, OpenOptions::new().read(true))
}

/// Waits until no other process has this lock.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let file = fl_files::open_own(path, &mut options);
    let file = file.and_then(|file| file.lock().map(|()| file));
    file.with_context(|| format!("locking {}", path.display()))
}

/// Random bytes of a node's own, drawn when its home was made.
pub(crate) fn own<const N: usize>(path: &Path) -> Result<[u8; N]> {
    let bytes = fl_files::read_own(path).with_context(|| format!("reading {}", path.display()))?;
    let bytes = bytes.try_into().ok();
    bytes.with_context(|| format!("{} is damaged: it has {N} bytes", path.display()))
}
