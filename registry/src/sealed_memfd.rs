//! The bytes of a library: their owner, a copy that cannot be changed, and their hash.

use fl_core::hex;
use fl_core::regular_file::sha256_of;
use sha2::Digest;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

/// Opens a regular file. Unless it is `pinned`, only its owner may be able to change it, and that
/// must be the user of this program, or root.
pub(crate) fn open(path: &Path, pinned: bool) -> Result<File, String> {
    // looked at before it is opened, because opening a pipe waits for a writer; and again when
    // it cannot be replaced
    let regular = |about: std::fs::Metadata| match (about.is_dir(), about.is_file()) {
        (true, _) => Err("it is a directory; a plugin is a shared library".to_string()),
        (_, false) => Err("it is no regular file".into()),
        _ => Ok(about),
    };
    regular(path.metadata().map_err(|e| e.to_string())?)?;
    let file = File::open(path).map_err(|e| e.to_string())?;
    let about = regular(file.metadata().map_err(|e| e.to_string())?)?;
    #[cfg(unix)]
    if !pinned {
        use crate::file_permissions::{Untrusted, trusted};
        trusted(path, &about).map_err(|why| match why {
            Untrusted::Writable(_) => why.to_string(),
            Untrusted::Other(_) => {
                format!("{why}; copy the library, or give the sha256 that it must have")
            }
        })?;
    }
    #[cfg(not(unix))]
    let _ = (about, pinned);
    Ok(file)
}

/// A copy of a file's bytes that cannot be changed.
#[cfg(target_os = "linux")]
pub(crate) fn copy(file: &mut File) -> std::io::Result<File> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut copy = File::from(memfd_create("fl-plugin", flags)?);
    std::io::copy(file, &mut copy)?;
    let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&copy, all)?;
    Ok(copy)
}

/// On other systems there are no seals: the file itself.
#[cfg(not(target_os = "linux"))]
pub(crate) fn copy(file: &mut File) -> std::io::Result<File> {
    file.try_clone()
}

pub(crate) fn hash(file: &mut File) -> std::io::Result<String> {
    file.rewind()?;
    Ok(hex(&sha256_of(file)?.finalize()))
}

/// Fails unless this is a SHA-256 in hexadecimal.
///
/// # Errors
/// Says what one looks like.
pub fn is_sha256(hash: &str) -> Result<(), String> {
    if hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit()) {
        Ok(())
    } else {
        Err("`sha256` must have 64 hexadecimal digits".into())
    }
}

/// Does this text occur in the file?
pub(crate) fn says(file: &mut File, text: &[u8]) -> bool {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    read.is_ok() && bytes.windows(text.len()).any(|some| some == text)
}
