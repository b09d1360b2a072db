//! What receipts say of this process.

use crate::receipt_log::SessionFacts;
use crate::record::ReceiptSession;
use fl_files::FileHash;
use std::path::PathBuf;
use std::sync::OnceLock;

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
        let hash = FileHash::of(&read).ok()?;
        Some(FileHash {
            path: name.display().to_string(),
            ..hash
        })
    };
    PROGRAM.get_or_init(hashed).as_ref()
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
