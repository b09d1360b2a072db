//! The program under test, as a user runs it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace")
}

/// Runs `fl` in `dir`.
pub fn fl(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fl"))
        .args(args)
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .output()
        .expect("fl starts")
}

/// Starts `fl` in `dir`, and does not wait.
pub fn start(dir: &Path, args: &[&str]) -> Child {
    let mut fl = Command::new(env!("CARGO_BIN_EXE_fl"));
    fl.args(args).current_dir(dir);
    fl.stdout(Stdio::piped()).stderr(Stdio::piped());
    fl.spawn().unwrap()
}

/// Where this spec of `specs/quick` is.
pub fn quick(name: &str) -> String {
    let path = root().join(format!("specs/quick/{name}.yaml"));
    path.display().to_string()
}

/// stdout of a run that must succeed.
pub fn out(dir: &Path, args: &[&str]) -> String {
    let o = fl(dir, args);
    assert!(
        o.status.success(),
        "fl {args:?} exited with {:?}:\n{}",
        o.status.code(),
        String::from_utf8_lossy(&o.stderr)
    );
    String::from_utf8(o.stdout).expect("UTF-8")
}

/// The words of a text, however its lines are broken.
pub fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Exit code and stderr.
pub fn fails(dir: &Path, args: &[&str]) -> (i32, String) {
    let o = fl(dir, args);
    assert!(
        o.stdout.is_empty(),
        "stdout carries results only: {}",
        String::from_utf8_lossy(&o.stdout)
    );
    (
        o.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&o.stderr).into_owned(),
    )
}

/// The one JSON object that `fl .. --json` prints.
pub fn json(dir: &Path, args: &[&str]) -> Value {
    let text = out(dir, args);
    assert_eq!(text.lines().count(), 1, "exactly one line: {text}");
    serde_json::from_str(&text).expect("one JSON object")
}

/// Every spec below `specs/NAME`, in order.
pub fn specs(name: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(root().join("specs").join(name))
        .expect("the folder")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        .collect();
    all.sort();
    assert!(!all.is_empty());
    all
}

/// A spec for tests that run every quick one many times: the longest, FedIOD's, with a fifth of its
/// steps.
pub fn shorter(dir: &Path, spec: &Path) -> String {
    let text = std::fs::read_to_string(spec).expect("a spec");
    let at = match text.contains("\n  steps: 25\n") {
        true => dir.join(spec.file_name().expect("a name")),
        false => return spec.display().to_string(),
    };
    std::fs::write(&at, text.replace("\n  steps: 25\n", "\n  steps: 5\n")).expect("written");
    at.display().to_string()
}
