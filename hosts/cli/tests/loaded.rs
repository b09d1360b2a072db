//! A program that links no parts runs every quick spec with parts from libraries, one for each
//! crate of ours, and gets the digest of the program that links them.
//!
//! This test is such a program: it links data sets and measures, and no part. The libraries are
//! made of what cargo has compiled already, so each costs its linking alone.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "the tests of the program use more of it")]
#[path = "program/common.rs"]
mod common;

use common::root;
use fl_engine::{ExecuteOptions, Folder};
use fl_plugin_data_files as _;
use fl_plugin_data_images as _;
use fl_plugin_data_synthetic as _;
use fl_plugin_data_tables as _;
use fl_plugin_data_texts as _;
use fl_plugin_dense_prediction as _;
use fl_registry::{Catalogue, Isolation, Library};
use fl_sim::{Execution, Outcome, StoppedRun};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of parts.
const CRATES: [&str; 22] = [
    "accounting",
    "attacks",
    "averaging",
    "baselines",
    "class-distill",
    "client-selectors",
    "clustered-rounds",
    "co-distill",
    "dp-sgd",
    "fair",
    "fediod",
    "fedkd",
    "fedkt",
    "generators",
    "one-shot",
    "param-rounds",
    "robust",
    "sample-selectors",
    "server-optimisers",
    "trainer-dfdx",
    "trainer-linear",
    "trainer-trees",
];

/// The newest of the files that cargo has made of a crate.
fn compiled(deps: &Path, name: &str) -> PathBuf {
    let start = format!("lib{name}-");
    let all = std::fs::read_dir(deps).unwrap().map(|e| e.unwrap().path());
    let own = all.filter(|path| {
        let file = path.file_name().unwrap().to_string_lossy();
        file.starts_with(&start) && file.ends_with(".rlib")
    });
    let newest = own.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("cargo did not make {start}*.rlib in {}", deps.display()))
}

/// Links a library of one crate.
fn link(crate_name: &str, dir: &Path) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let name = format!("fl_plugin_{}", crate_name.replace('-', "_"));
    let (source, library) = (
        dir.join(format!("{name}.rs")),
        dir.join(format!("lib{name}.so")),
    );
    let text = format!("extern crate {name} as _;\nfl_core::export_plugins!();\n");
    std::fs::write(&source, text).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let external = |name: &str| format!("{name}={}", compiled(deps, name).display());
    let made = Command::new(rustc)
        .env("CARGO_PKG_NAME", format!("fl-plugin-{crate_name}"))
        .args([
            "--crate-type",
            "cdylib",
            "--edition",
            "2024",
            "-C",
            "strip=debuginfo",
        ])
        .arg("-L")
        .arg(format!("dependency={}", deps.display()))
        .args([
            "--extern",
            &external(&name),
            "--extern",
            &external("fl_core"),
            "-o",
        ])
        .args([&library, &source])
        .output()
        .expect("rustc starts");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{crate_name}: {said}");
    library
}

/// The parts of these libraries, and no others.
fn catalogue(libraries: &[PathBuf], isolated: bool) -> Catalogue {
    assert!(fl_core::linked_parts().is_empty(), "this test links parts");
    let none = Catalogue::linked().unwrap();
    let none = if isolated {
        fl_registry::isolate_with(vec![env!("CARGO_BIN_EXE_fl").into()]);
        none
    } else {
        none.isolating(Isolation::Off)
    };
    let libraries: Vec<_> = libraries.iter().map(Library::at).collect();
    none.with(&libraries).unwrap_or_else(|e| panic!("{e}"))
}

/// A run of this spec in this program, which stops after this number of steps.
fn run(spec: &Path, catalogue: &Catalogue, folder: Folder, stop_after: Option<usize>) -> Outcome {
    let document = fl_engine::parse(spec).unwrap();
    let spec = fl_engine::read(&document, catalogue).unwrap_or_else(|e| panic!("{e}"));
    let dir = std::env::var("FL_DATA_DIR").unwrap_or_default();
    let data = fl_engine::data(&spec, Path::new(&dir)).unwrap();
    let execution = Execution {
        stop_after,
        ..Execution::default()
    };
    let options = ExecuteOptions::new(dir.into(), Vec::new(), execution);
    let outcome = fl_engine::execute(&spec, data, folder, options);
    outcome.unwrap_or_else(|e| panic!("{}: {e:#}", spec.name))
}

fn digest(spec: &Path, catalogue: &Catalogue, out: &Path) -> String {
    run(spec, catalogue, Folder::New(out.into()), None).digest
}

/// The digest of a run of this spec in the program that links all parts.
fn linked(spec: &Path, out: &Path) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_fl"))
        .args(["run", "--json", "--out"])
        .args([out, spec])
        .env("XDG_DATA_HOME", common::user_dir())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", spec.display());
    let outcome: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    outcome["digest"].as_str().unwrap().into()
}

/// The quick specs, made shorter.
fn specs(dir: &Path) -> Vec<PathBuf> {
    let all = common::specs("quick").into_iter();
    let mut all: Vec<PathBuf> = all.map(|spec| common::shorter(dir, &spec).into()).collect();
    // a trainer that clips the gradients of examples together
    let text = std::fs::read_to_string(dir.join("dp-sgd.yaml")).unwrap();
    let (linear, network) = (
        "{ use: linear, lr: 0.5 }",
        "{ use: dfdx, net: [{ linear: 8 }, relu, outputs], optimiser: { sgd: { lr: 0.5 } } }",
    );
    assert!(text.contains(linear), "{text}");
    let own = dir.join("dp-sgd-network.yaml");
    std::fs::write(&own, text.replace(linear, network)).unwrap();
    all.push(own);
    all
}

/// Specs that a part of ours is asked back in the middle of; `FL_ISOLATE_ALL=1` isolates every one.
const ISOLATED: [&str; 5] = [
    "fedgen",
    "fedkd",
    "dp-sgd",
    "dp-sgd-network",
    "selective-fd",
];

/// Specs that are stopped and go on: with states at clients, at the server, and with a model.
const STOPPED: [&str; 3] = ["scaffold", "fesem", "fedgen"];

#[test]
fn exact_a_program_without_parts_runs_every_quick_spec_with_libraries() {
    let dir = tempfile::tempdir().unwrap();
    let libraries: Vec<_> = CRATES.iter().map(|name| link(name, dir.path())).collect();
    let (here, apart) = (catalogue(&libraries, false), catalogue(&libraries, true));
    let every = std::env::var_os("FL_ISOLATE_ALL").is_some();
    for spec in specs(dir.path()) {
        let name = spec.file_stem().unwrap().to_string_lossy().into_owned();
        let out = |how: &str| dir.path().join(format!("{name}-{how}"));
        let due = linked(&spec, &out("linked"));
        assert_eq!(digest(&spec, &here, &out("loaded")), due, "{name}");
        if every || ISOLATED.contains(&&*name) {
            assert_eq!(
                digest(&spec, &apart, &out("isolated")),
                due,
                "{name}, isolated"
            );
        }
        if STOPPED.contains(&&*name) {
            let folder = out("stopped");
            run(&spec, &here, Folder::New(folder.clone()), Some(2));
            let stopped = Folder::Stopped(Box::new(StoppedRun::open(&folder, false).unwrap()));
            let go_on = run(&spec, &here, stopped, None);
            assert_eq!(go_on.digest, due, "{name}, stopped");
        }
    }
    // the budget of a loaded protocol, mechanism and accountant ends the rounds of a linked one
    let text = std::fs::read_to_string(root().join("specs/quick/dp-fedavg.yaml")).unwrap();
    let spec = dir.path().join("budget.yaml");
    std::fs::write(&spec, text + "budget: { epsilon: 6 }\n").unwrap();
    let due = linked(&spec, &dir.path().join("budget-linked"));
    for (how, catalogue) in [("loaded", &here), ("isolated", &apart)] {
        let folder = Folder::New(dir.path().join(format!("budget-{how}")));
        let outcome = run(&spec, catalogue, folder, None);
        assert_eq!(outcome.digest, due, "with a budget, {how}");
        assert!(outcome.rounds < 20, "the budget ends no round");
    }
}

/// FedKT as a paper's authors would give it: a library, in a program that links FedKT too.
#[test]
fn exact_a_library_takes_the_place_of_what_the_program_links_if_the_spec_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let library = link("fedkt", dir.path());
    let spec = root().join("specs/quick/fedkt.yaml");
    let with = |more: &str, out: &str| {
        let plugins = format!("plugins=[{{path: {}{more}}}]", library.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_fl"));
        let command = command.current_dir(&dir).args(["run", "--out", out]);
        command.env("XDG_DATA_HOME", common::user_dir());
        let done = command.arg(&spec).args(["--set", &plugins]).output();
        let done = done.unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), said)
    };
    let (code, said) = with("", "refused");
    assert_eq!(code, Some(3), "{said}");
    let told = "to take that of the library for the whole run, name the library under `plugins` with `replaces: linked`";
    assert!(
        said.contains("two parts are called") && said.contains(told),
        "{said}"
    );
    assert!(!dir.path().join("refused").exists());

    let due = linked(&spec, &dir.path().join("linked"));
    let read = |out: &str, file: &str| -> serde_json::Value {
        let text = std::fs::read(dir.path().join(out).join(file)).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    for (out, isolate) in [("apart", ""), ("here", ", isolate: false")] {
        let (code, said) = with(&format!(", replaces: linked{isolate}"), out);
        assert_eq!(code, Some(0), "{said}");
        let told = "takes the place of what the program links: ";
        assert!(
            said.contains(told) && said.contains("protocol `two-tier-vote`"),
            "{said}"
        );
        assert_eq!(
            read(out, "outcome.json")["outcome"]["digest"],
            due.as_str(),
            "{out}"
        );
        let notes = read(out, "run.json").to_string();
        assert!(notes.contains(told), "{notes}");
    }
    // so the parts of the run are those of the library
    let kept = std::fs::read_to_string(dir.path().join("here/spec.yaml")).unwrap();
    assert!(kept.contains("replaces: linked"), "{kept}");
}
