//! Files of a run folder: written whole or not at all, hashed, and locked.

use anyhow::{Context, bail, ensure};
use fl_core::regular_file::{MOST_TEXT, open_regular, read_text, sha256_of};
use fl_core::{Result, hex};
use sha2::Digest;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Suffix of a file until it is complete. A crash may leave one behind.
pub const UNFINISHED: &str = ".tmp";

/// The lock file of a run. It names the run's process, which holds the lock while it lives.
pub const LOCK: &str = "lock";

/// Writes a file so that a crash leaves the old or the new one. The umask sets the mode of a new
/// file; an existing one keeps its mode, and a link keeps its target. Devices and pipes are written
/// to directly.
///
/// # Errors
/// If it cannot be written; the old content is still there then.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_with(path, |out| Ok(out.write_all(bytes)?))
}

/// As [`write()`], of what `fill` writes piece by piece.
///
/// # Errors
/// As [`write()`], and those of `fill`.
pub fn write_with(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let what = || format!("writing {}", path.display());
    match path.metadata() {
        Ok(about) if about.is_file() => {
            let real = path.canonicalize().with_context(what)?;
            replace(&real, fill, mode(0o600), Some(about.permissions())).with_context(what)
        }
        Ok(about) if about.is_dir() => bail!("{}: it is a folder", what()),
        Ok(_) => {
            let file = OpenOptions::new().write(true).open(path);
            let mut out = BufWriter::new(file.with_context(what)?);
            fill(&mut out).with_context(what)?;
            out.flush().with_context(what)
        }
        Err(_) => replace(path, fill, mode(0o666), None).with_context(what),
    }
}

/// As [`write()`], of a file of a run folder: a link is replaced, and its target stays as it is.
///
/// # Errors
/// As [`write()`].
pub fn write_unlinked(path: &Path, bytes: &[u8]) -> Result<()> {
    let what = || format!("writing {}", path.display());
    let fill = |out: &mut dyn Write| Ok(out.write_all(bytes)?);
    let old = path.symlink_metadata().ok().filter(fs::Metadata::is_file);
    let kept = old.map(|about| about.permissions());
    let first = if kept.is_some() { 0o600 } else { 0o666 };
    replace(path, fill, mode(first), kept).with_context(what)
}

/// As [`write()`], readable by the owner only.
///
/// # Errors
/// As [`write()`].
pub fn write_secret(path: &Path, bytes: &[u8]) -> Result<()> {
    let what = || format!("writing {}", path.display());
    let fill = |out: &mut dyn Write| Ok(out.write_all(bytes)?);
    replace(path, fill, mode(0o600), None).with_context(what)
}

/// Opens a file that no other user can have written: a regular file of the current user or root
/// that others may not write to. Follows no link, and waits for no pipe. A file made by `options`
/// is accessible by its owner only.
///
/// # Errors
/// If it is another file, or cannot be opened.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> std::io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    let file = open_unlinked(path, options)?;
    #[cfg(unix)]
    own(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file of a run folder. Follows no link, which could lead out of the folder, and
/// waits for no pipe.
///
/// # Errors
/// If it is another file, or cannot be opened.
pub fn open_unlinked(path: &Path, options: &mut OpenOptions) -> std::io::Result<File> {
    #[cfg(unix)]
    {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        std::os::unix::fs::OpenOptionsExt::custom_flags(options, flags.bits() as i32);
    }
    let file = options.open(path).map_err(|error| {
        if path.is_symlink() {
            std::io::Error::other("it is a link, which is not followed; remove it")
        } else {
            error
        }
    })?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    Ok(file)
}

/// Fails if a folder, or one below it, has anything but files and folders. Another user may have
/// made a run folder: what a process writes there must not go elsewhere through a link, nor wait
/// for a pipe.
///
/// # Errors
/// Names the first such entry.
pub fn refuse_links(folder: &Path) -> Result<()> {
    let what = || format!("reading {}", folder.display());
    for entry in fs::read_dir(folder).with_context(what)? {
        let entry = entry.with_context(what)?;
        let (kind, path) = (entry.file_type().with_context(what)?, entry.path());
        let found = if kind.is_symlink() {
            "a link"
        } else {
            "no regular file"
        };
        ensure!(
            kind.is_file() || kind.is_dir(),
            "{}: it is {found}, and no run makes one in its folder; remove it",
            path.display()
        );
        if kind.is_dir() {
            refuse_links(&path)?;
        }
    }
    Ok(())
}

/// Fails if a user other than the current one or root owns the file, or may write to it.
#[cfg(unix)]
pub fn own(about: &fs::Metadata) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let (owner, mode) = (about.uid(), about.mode() & 0o777);
    if ![0, rustix::process::geteuid().as_raw()].contains(&owner) {
        let text = format!("it belongs to user {owner}, who could have put anything there");
        return Err(std::io::Error::other(text));
    }
    if mode & 0o022 != 0 {
        let text = format!(
            "it has mode {mode:03o}, so others may have put anything there; if no one has, chmod go-w"
        );
        return Err(std::io::Error::other(text));
    }
    Ok(())
}

/// Refuses a file that other users can read. No later `chmod` mends that: `lost` says what a reader
/// of the file can do.
///
/// # Errors
/// If its mode lets them.
#[cfg(unix)]
pub fn private(path: &Path, lost: &str) -> Result<()> {
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

/// Modes are of Unix.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn private(_: &Path, _: &str) -> Result<()> {
    Ok(())
}

/// Reads the whole of such a file.
///
/// # Errors
/// As [`open_own`].
pub fn read_own(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_own(path, OpenOptions::new().read(true))?;
    if file.take(MOST_TEXT + 1).read_to_end(&mut bytes)? as u64 > MOST_TEXT {
        Err(std::io::Error::other("it has more than 256 MiB"))
    } else {
        Ok(bytes)
    }
}

/// Returns what was read, or made of a file; `None` if there is no such file.
///
/// # Errors
/// Any other error.
pub fn present<T>(found: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Removes a file, or a folder with all that is in it, if it is there.
///
/// # Errors
/// If it stays.
pub fn remove(path: &Path) -> std::io::Result<()> {
    let removed = if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    present(removed).map(drop)
}

/// Makes an empty file, or empties an existing one, accessible by its owner only.
///
/// # Errors
/// If it cannot be made, or another user can have written it.
pub fn create_secret(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let file = open_own(path, &mut options)?;
    file.set_len(0)?;
    if let Some(mode) = mode(0o600) {
        // an existing file has kept its mode
        file.set_permissions(mode)?;
    }
    Ok(file)
}

#[cfg(unix)]
fn mode(mode: u32) -> Option<fs::Permissions> {
    Some(std::os::unix::fs::PermissionsExt::from_mode(mode))
}

#[cfg(not(unix))]
fn mode(_: u32) -> Option<fs::Permissions> {
    None
}

fn replace(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<()>,
    mode: Option<fs::Permissions>,
    kept: Option<fs::Permissions>,
) -> Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut unfinished = tempfile::Builder::new();
    unfinished.prefix(UNFINISHED);
    if let Some(mode) = mode {
        unfinished.permissions(mode);
    }
    let mut file = unfinished.tempfile_in(folder.unwrap_or(Path::new(".")))?;
    if let Some(kept) = kept {
        // not restricted by the umask
        file.as_file().set_permissions(kept)?;
    }
    let mut out = BufWriter::new(file.as_file_mut());
    fill(&mut out)?;
    out.flush()?;
    drop(out);
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Makes the names in `folder` durable: a written or renamed file survives a crash of the system.
///
/// # Errors
/// If the file system cannot confirm it.
pub fn sync(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // some file systems lack it
        Err(error)
            if !matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            return Err(error).with_context(|| format!("syncing {}", folder.display()));
        }
        _ => {}
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// Returns the incomplete files that a crash left in `folder`.
///
/// # Errors
/// If the folder cannot be read, or a file not removed.
pub fn unfinished(folder: &Path) -> Result<Vec<PathBuf>> {
    let what = || format!("tidying {}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(what)? {
        let entry = entry.with_context(what)?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with(UNFINISHED) && entry.path().is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Removes the incomplete files that a crash left in `folder`.
///
/// # Errors
/// If the folder cannot be read, or a file not removed.
pub fn tidy(folder: &Path) -> Result<()> {
    for path in unfinished(folder)? {
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

/// Returns the SHA-256 of a file.
pub(crate) fn hash(path: &Path) -> std::io::Result<String> {
    Ok(hex(&sha256_of(open_regular(path)?)?.finalize()))
}

/// The number of further attempts at a lock that another process holds.
const PATIENCE: usize = 50;

/// A run folder in use. The system releases the lock when the process ends for any reason.
pub struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Locks `folder` for this process.
    ///
    /// # Errors
    /// If another process has it; names the process.
    pub fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(LOCK);
        let what = || format!("locking {}", path.display());
        let mut options = OpenOptions::new();
        // readable, so that users can find the process
        options.read(true).write(true).create(true).truncate(false);
        let mut file = open_unlinked(&path, &mut options).with_context(what)?;
        let mut locked = file.try_lock();
        // a process that was killed may take a moment to end
        for _ in 0..PATIENCE {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
            locked = file.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = read_text(&path).ok();
                let holder = holder.and_then(|text| text.trim().parse::<u32>().ok());
                let holder = holder.map_or("another process".into(), |id| format!("process {id}"));
                bail!("the run in {} is in use by {holder}", folder.display())
            }
            // some network file systems lack locks: the run matters more
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(what),
        }
        file.set_len(0).with_context(what)?;
        writeln!(file, "{}", std::process::id()).with_context(what)?;
        Ok(Self { path, file })
    }

    /// Removes the lock of a run that is over and cannot be resumed.
    pub fn remove(self) {
        // first the name, then the lock; a file that stays only names its last process
        let _ = fs::remove_file(&self.path);
        drop(self.file);
    }
}
