//! Libraries that tests load.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The library that cargo made of a crate beside this test.
pub fn beside(crate_name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a file");
    let file = format!(
        "{}{crate_name}{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    let library = test.parent().expect("in a folder").join(file);
    assert!(
        library.is_file(),
        "cargo did not make {}",
        library.display()
    );
    library
}

/// Is there a C compiler? If not, says that something is skipped.
pub fn cc() -> bool {
    let found = Command::new("cc").arg("--version").output();
    let found = found.is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: there is no `cc` here");
    }
    found
}

/// Compiles a library from C, once for all tests that want the same.
pub fn compile(source: &Path, out: &Path, flags: &[&str]) {
    static MADE: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let made = || MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = std::fs::read_to_string(source).expect("a source");
    let what = format!("{flags:?} {text}");
    if let Some(bytes) = made().get(&what) {
        return std::fs::write(out, bytes).expect("the library");
    }
    compile_anew(source, out, flags);
    made().insert(what, std::fs::read(out).expect("the library"));
}

fn compile_anew(source: &Path, out: &Path, flags: &[&str]) {
    let include = crate::common::root().join("fl-core/include");
    let made = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-O2", "-ffp-contract=off"])
        .args(["-fPIC", "-fvisibility=hidden", "-shared", "-I"])
        .arg(include)
        .args(flags)
        .arg("-o")
        .args([out, source])
        .output()
        .expect("cc starts");
    assert!(
        made.status.success(),
        "cc {flags:?}: {}",
        String::from_utf8_lossy(&made.stderr)
    );
}
