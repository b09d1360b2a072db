//! The program under test, as a user runs it.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace")
}

/// `fl`, with a data folder of this user for tests: no test writes into the home.
pub fn program() -> Command {
    let mut fl = Command::new(env!("CARGO_BIN_EXE_fl"));
    fl.env("XDG_DATA_HOME", user_dir());
    fl
}

/// The user's data folder in tests.
pub fn user_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("user")
}

/// Runs `fl` in `dir`.
pub fn fl(dir: &Path, args: &[&str]) -> Output {
    program()
        .args(args)
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .output()
        .expect("fl starts")
}

/// Starts `fl` in `dir`, and does not wait.
pub fn start(dir: &Path, args: &[&str]) -> Child {
    let mut fl = program();
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

/// What a run of a spec prints. On one thread, over the wire, in two processes, with little memory,
/// and stopped after `steps` and resumed, it has the same digest and the same measures.
pub fn alike_in_five_ways(dir: &Path, spec: &[&str], steps: &str) -> Value {
    let ways = tempfile::tempdir_in(dir).expect("a folder");
    let run = |name: &str, how: &[&str]| {
        let folder = ways.path().join(name).display().to_string();
        let args = [&["run"], spec, &["--json", "--out", &folder], how].concat();
        (json(dir, &args), folder)
    };
    let (plain, _) = run("plain", &["--threads", "1"]);
    for (name, how) in [
        ("wire", &["--threads", "3", "--wire"][..]),
        ("processes", &["--processes", "2"]),
        ("memory", &["--memory", "1KiB"]),
    ] {
        let (other, _) = run(name, how);
        assert_eq!(plain["digest"], other["digest"], "{spec:?}: {name}");
        assert_eq!(plain["metrics"], other["metrics"], "{spec:?}: {name}");
    }
    let (stopped, folder) = run("stopped", &["--stop-after", steps]);
    assert!(!stopped["stopped"].is_null(), "{spec:?}: {stopped}");
    let resumed = json(dir, &["run", "--resume", &folder, "--json"]);
    assert_eq!(plain["digest"], resumed["digest"], "{spec:?}: resumed");
    assert_eq!(plain["metrics"], resumed["metrics"], "{spec:?}: resumed");
    plain
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

/// What makes quick specs cheap enough for tests that run every one many times: less data, and less
/// of the same steps.
const SHORTER: [(&str, &str); 14] = [
    ("train: 4000, test: 1000", "train: 1000, test: 200"),
    ("train: 3000, test: 500", "train: 1000, test: 200"),
    ("train: 1500, test: 500", "train: 600, test: 200"),
    ("train: 1500, test: 400", "train: 600, test: 200"),
    ("train: 1200, test: 400", "train: 600, test: 200"),
    (
        "cells: { train: 90, test: 30 }",
        "cells: { train: 36, test: 12 }",
    ),
    ("\n  steps: 25\n", "\n  steps: 5\n"),
    ("noise: 16\n  steps: 100", "noise: 16\n  steps: 20"),
    ("steps: 20, batch: 8", "steps: 5, batch: 8"),
    ("\n  rounds: 12\n", "\n  rounds: 4\n"),
    ("{ every: 6 }", "{ every: 2 }"),
    ("rounds: 20, ", "rounds: 8, "),
    ("epochs: 30, batch: 32", "epochs: 8, batch: 32"),
    ("epochs: 6, batch: 8", "epochs: 2, batch: 8"),
];

/// A quick spec made shorter, in `dir`.
pub fn shorter(dir: &Path, spec: &Path) -> String {
    let text = std::fs::read_to_string(spec).expect("a spec");
    let text = (SHORTER.iter()).fold(text, |text, (long, short)| text.replace(long, short));
    let at = dir.join(spec.file_name().expect("a name"));
    std::fs::write(&at, text).expect("written");
    at.display().to_string()
}

#[test]
fn what_is_made_shorter_is_in_quick_specs() {
    let all = specs("quick").into_iter();
    let all: String = all.map(|at| std::fs::read_to_string(at).unwrap()).collect();
    for (long, _) in SHORTER {
        assert!(all.contains(long), "no quick spec has `{long}`");
    }
}

/// A run that is done.
pub struct Done {
    /// What it printed.
    pub outcome: Value,
    /// Its files, by their names in its folder.
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Done {
    pub fn digest(&self) -> &str {
        self.outcome["digest"].as_str().expect("a digest")
    }

    /// One of its files.
    pub fn read(&self, name: &str) -> &str {
        std::str::from_utf8(&self.files[Path::new(name)]).expect("UTF-8")
    }

    /// Its models, by their names.
    pub fn models(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let of = |at: &Path| at.strip_prefix("models").ok().map(Path::to_owned);
        let all = self.files.iter();
        all.filter_map(|(at, bytes)| Some((of(at)?, bytes.clone())))
            .collect()
    }
}

/// A quick spec made shorter and run on one thread: once for all tests that compare with it.
pub fn whole(spec: &Path) -> &'static Done {
    type All = BTreeMap<PathBuf, &'static OnceLock<Done>>;
    static ALL: Mutex<All> = Mutex::new(All::new());
    let mut all = ALL.lock().expect("no test holds it");
    let one = *(all.entry(spec.into())).or_insert_with(|| Box::leak(Box::new(OnceLock::new())));
    drop(all);
    one.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a folder");
        let spec = shorter(dir.path(), spec);
        let args = ["run", &spec, "--json", "--out", "whole", "--threads", "1"];
        let outcome = json(dir.path(), &args);
        let whole = dir.path().join("whole");
        let files = files(&whole).into_iter().map(|at| {
            let bytes = std::fs::read(&at).expect("a file");
            (at.strip_prefix(&whole).expect("of it").to_owned(), bytes)
        });
        let files = files.collect();
        Done { outcome, files }
    })
}

/// The files in a folder and below, in order.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).expect("a folder");
    let all = all.map(|entry| entry.expect("an entry").path());
    let all = all.flat_map(|at| if at.is_dir() { files(&at) } else { vec![at] });
    let mut all: Vec<PathBuf> = all.collect();
    all.sort();
    all
}
