//! What receipts say of this process.

use crate::receipt_log::SessionFacts;
use crate::record::ReceiptSession;
use fl_files::FileHash;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
#[cfg(unix)]
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns what receipts say of this process, once one is due: the version of fl, the SHA-256 of
/// `spec.yaml`, and every loaded library.
pub fn session(version: &str, spec: &str, libraries: &[FileHash]) -> SessionFacts {
    // while the run begins; without a thread it is hashed when the first receipt is due
    let _ = std::thread::Builder::new().spawn(program);
    let session = ReceiptSession {
        version: version.into(),
        spec: spec.into(),
        program: None,
        libraries: libraries.to_vec(),
        key: None,
    };
    Box::new(move || {
        Ok(ReceiptSession {
            program: program().cloned(),
            ..session
        })
    })
}

/// Returns the file that this code was loaded from, with its hash: the program, or the library of
/// the Python package. `None` if the system does not say.
pub fn program() -> Option<&'static FileHash> {
    static PROGRAM: OnceLock<Option<FileHash>> = OnceLock::new();
    let hashed = || {
        let program = std::env::current_exe().ok()?;
        let own = loaded_from().filter(|own| *own != program);
        let (read, name) = match (own, cfg!(target_os = "linux")) {
            (Some(own), _) => (own.clone(), own),
            // this very program, whatever is built in its place meanwhile
            (None, true) => (PathBuf::from("/proc/self/exe"), program),
            (None, false) => (program.clone(), program),
        };
        Some(FileHash {
            path: name.display().to_string(),
            sha256: kept_hash(&read, fl_data_kit::user_dir(), state(&read))?,
        })
    };
    PROGRAM.get_or_init(hashed).as_ref()
}

/// Returns the SHA-256 of the program. It takes longer than all else that a short run does, so a
/// file in `folder` keeps it while the program is the one of this `state`.
fn kept_hash(program: &Path, folder: Option<PathBuf>, state: Option<String>) -> Option<String> {
    let now = || Some(FileHash::of(program).ok()?.sha256);
    let Some((folder, state)) = folder.zip(state) else {
        return now();
    };
    let path = folder.join("program.sha256");
    let kept = fl_files::read_own(&path).ok();
    let kept = kept.and_then(|text| String::from_utf8(text).ok());
    if let Some((hash, of)) = kept.as_deref().and_then(|text| text.split_once(' '))
        && of == state
        && hash.len() == 64
        && hash.bytes().all(|digit| digit.is_ascii_hexdigit())
    {
        return Some(hash.into());
    }
    let hash = now()?;
    // without it the next process hashes as well
    let _ = std::fs::create_dir_all(&folder)
        .map_err(Into::into)
        .and_then(|()| fl_files::write_secret(&path, format!("{hash} {state}").as_bytes()));
    Some(hash)
}

/// Returns what changes whenever a file does: which file it is, its size, and the time of its last
/// change, which no program can set. `None` if it is so new that it may change within the same tick of the
/// clock.
#[cfg(unix)]
fn state(file: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    const TICK: i64 = 2;
    let about = file.metadata().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs() as i64;
    let old = now.checked_sub(about.ctime())? > TICK;
    old.then(|| {
        let (changed, nanos) = (about.ctime(), about.ctime_nsec());
        let (device, number, size) = (about.dev(), about.ino(), about.size());
        format!("{device} {number} {size} {changed} {nanos}")
    })
}

#[cfg(not(unix))]
fn state(_: &Path) -> Option<String> {
    None
}

/// Returns the file whose mapping has the code of this function, on Linux.
fn loaded_from() -> Option<PathBuf> {
    let at = loaded_from as *const () as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let bound = |text| usize::from_str_radix(text, 16).ok();
        let here = (bound(from)?..bound(to)?).contains(&at);
        let path = rest.splitn(5, ' ').nth(4)?.trim_start();
        here.then(|| PathBuf::from(path))
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn exact_a_hash_is_kept_while_the_program_is_the_same_one() {
        let dir = tempfile::tempdir().unwrap();
        let (program, kept) = (dir.path().join("program"), dir.path().join("user"));
        let hash = |folder: Option<&Path>, of: Option<&str>| {
            kept_hash(&program, folder.map(Into::into), of.map(Into::into)).unwrap()
        };
        let kept = Some(&*kept);
        fs::write(&program, "one").unwrap();
        let one = hash(None, None);
        assert_eq!([hash(kept, Some("1")), hash(kept, None)], [&*one; 2]);
        // what tells programs apart is their state
        fs::write(&program, "two").unwrap();
        assert_eq!(hash(kept, Some("1")), one);
        let two = hash(kept, None);
        assert_ne!(two, one);
        assert_eq!([hash(kept, Some("2")), hash(None, Some("1"))], [&*two; 2]);
        fs::write(&program, "one").unwrap();
        assert_eq!(hash(kept, Some("2")), two);
        assert_eq!(hash(kept, Some("1")), one);
        // a file that was just written may change again at once
        assert_eq!(state(&program), None);
    }
}
