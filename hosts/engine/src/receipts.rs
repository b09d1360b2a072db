//! What a run's receipts say of this process, and who signs them.

use fl_ledger::SigningKey;
use fl_sim::{FileHash, Manifest, ReceiptSession, ReceiptSigner, SessionFacts};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A key that signs for the leader.
struct LeaderKey(SigningKey);

impl ReceiptSigner for LeaderKey {
    fn key(&self) -> String {
        self.0.public()
    }

    fn sign(&self, text: &[u8]) -> anyhow::Result<String> {
        self.0.sign(text)
    }
}

/// Reads the secret key that signs receipts.
///
/// # Errors
/// As [`SigningKey::read`].
pub(crate) fn signer(path: &Path) -> anyhow::Result<Box<dyn ReceiptSigner>> {
    Ok(Box::new(LeaderKey(SigningKey::read(path)?)))
}

/// Returns what receipts say of this process, once one is due.
pub(crate) fn session(manifest: &Manifest) -> SessionFacts {
    // while the run begins; without a thread it is hashed when the first receipt is due
    let _ = std::thread::Builder::new().spawn(program);
    let session = ReceiptSession {
        version: manifest.begun.version.clone(),
        spec: manifest.spec_sha256.clone(),
        program: None,
        libraries: manifest.libraries.clone(),
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
pub(crate) fn program() -> Option<&'static FileHash> {
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
