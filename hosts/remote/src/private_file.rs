//! Files and folders of a node that only its owner may read.

use anyhow::Context;
#[cfg(unix)]
use anyhow::ensure;
use fl_core::Result;
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

/// Refuses a file that other users can read. No later `chmod` mends that: `lost` says what a reader
/// of the file can do.
#[cfg(unix)]
pub(crate) fn private(path: &Path, lost: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let Ok(about) = fs::metadata(path) else {
        return Ok(());
    };
    let mode = about.permissions().mode() & 0o777;
    ensure!(
        mode & 0o077 == 0,
        "{} has mode {mode:03o}, so other users may have read it; if none has, run `chmod 600` on it; otherwise {lost}",
        path.display()
    );
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn private(_: &Path, _: &str) -> Result<()> {
    Ok(())
}

/// Random bytes of a node's own, drawn when its home was made.
pub(crate) fn own<const N: usize>(path: &Path) -> Result<[u8; N]> {
    let bytes = fl_files::read_own(path).with_context(|| format!("reading {}", path.display()))?;
    let bytes = bytes.try_into().ok();
    bytes.with_context(|| format!("{} is damaged: it has {N} bytes", path.display()))
}
