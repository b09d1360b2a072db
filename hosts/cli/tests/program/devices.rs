//! `device: cuda`: the digest of the processor, on the PTX interpreter of `tests/fake-cuda`.

use crate::common::{quick, root};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The interpreter, which is built with these tests.
fn driver() -> PathBuf {
    let name = format!(
        "{}fake_cuda{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    let here = std::env::current_exe().unwrap();
    here.with_file_name(name)
}

fn fl(dir: &Path, driver: &Path, shuffle: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fl"))
        .args(args)
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .env("FL_CUDA_DRIVER", driver)
        .env("FAKE_CUDA_SHUFFLE", shuffle)
        .output()
        .expect("fl starts")
}

fn digest(done: &Output) -> String {
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let json: Value = serde_json::from_slice(&done.stdout).expect("one JSON object");
    json["digest"].as_str().expect("a digest").to_string()
}

/// Each trainer of a quick spec on a card.
fn on_card(dir: &Path, name: &str) -> String {
    let text = std::fs::read_to_string(root().join(quick(name))).unwrap();
    let changed = text.replace("use: dfdx,", "use: dfdx, device: cuda,");
    assert!(changed != text, "{name} trains nothing with dfdx");
    let path = dir.join(format!("{name}.yaml"));
    std::fs::write(&path, changed).unwrap();
    path.display().to_string()
}

/// Runs a quick spec on both, with what `set` makes of it.
fn same(name: &str, set: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (dir, driver) = (dir.path(), driver());
    let set: Vec<&str> = set.iter().flat_map(|s| ["--set", s]).collect();
    let run = |spec: &str, out: &str, shuffle: &str, more: &[&str]| {
        let all = [&["run", spec, "--json", "--out", out], more, &set].concat();
        digest(&fl(dir, &driver, shuffle, &all))
    };
    let (cpu, card) = (quick(name), on_card(dir, name));
    let wanted = run(&cpu, "cpu", "0", &[]);
    assert_eq!(
        run(&card, "card", "0", &["--threads", "2"]),
        wanted,
        "{name}"
    );
    let bound = "parts.model.device={cuda: 0, memory: 0.5}";
    if name == "fednova" {
        // clients that train at once share launches
        let all = ["--threads", "6", "--set", bound];
        assert_eq!(run(&cpu, "bound", "0", &all), wanted, "{name}: a bound");
    }
    let shuffled = run(&card, "shuffled", "5", &["--threads", "1"]);
    assert_eq!(shuffled, wanted, "{name}: blocks in another order");
}

#[test]
fn exact_digests_of_networks_on_a_card() {
    same("fednova", &["protocol.rounds=2"]);
    same(
        "selective-fd",
        &["protocol.rounds=1", "protocol.distil.steps=2"],
    );
}

#[test]
#[ignore = "some minutes of the interpreter"]
fn exact_digests_of_every_quick_spec_on_a_card() {
    for name in [
        "feddf",
        "fedgen",
        "fediod",
        "fedkd",
        "fedkd-multi-label",
        "fednova",
        "reconstruction",
        "segmentation",
        "selective-fd",
        "asyn-dgan",
    ] {
        same(name, &[]);
    }
}

#[test]
fn exact_a_run_goes_on_where_it_is_told_to_on_either_device() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, driver, spec) = (dir.path(), driver(), quick("fednova"));
    let fl = |args: &[&str]| fl(dir, &driver, "0", args);
    let wanted = digest(&fl(&["run", &spec, "--json", "--out", "whole"]));
    let half = ["run", &spec, "--out", "half", "--stop-after", "2"];
    assert!(fl(&half).status.success());
    let device = "parts.model.device=cuda";
    let rest = ["run", "--json", "--resume", "half", "--set", device];
    assert_eq!(digest(&fl(&rest)), wanted);
}

#[test]
fn a_card_without_a_driver_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, missing) = (dir.path(), Path::new("/no/such/driver.so"));
    let card = on_card(dir, "fednova");
    // a check makes every model, and needs no card
    assert!(fl(dir, missing, "0", &["check", &card]).status.success());
    let done = fl(dir, missing, "0", &["run", &card, "--out", "run"]);
    assert!(!done.status.success());
    let said = String::from_utf8_lossy(&done.stderr);
    // the system says which file it is, once
    let (_, said) = said
        .split_once("device: cuda needs NVIDIA's driver: ")
        .expect("the device");
    let (why, _) = said
        .split_once("; install it, or use `device: cpu`\n")
        .expect("what to do");
    assert_eq!(why.matches("/no/such/driver.so").count(), 1, "{why}");
}

#[test]
fn a_doctor_says_what_is_there_and_whether_cards_are_right() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, driver) = (dir.path(), driver());
    let done = fl(dir, &driver, "0", &["doctor", "--data-dir", "."]);
    assert!(done.status.success());
    let said = String::from_utf8_lossy(&done.stdout);
    let card = "cuda:0   PTX interpreter, compute capability 7.0, driver for CUDA 12.1: gives the processor's numbers";
    assert!(said.contains(card), "{said}");
    assert!(said.contains("data     .\n"), "{said}");
    let none = fl(dir, Path::new("none.so"), "0", &["doctor", "--json"]);
    let json: Value = serde_json::from_slice(&none.stdout).unwrap();
    let why = json["cuda"]["why"].as_str().unwrap();
    assert!(
        why.starts_with("device: cuda needs NVIDIA's driver: none.so: "),
        "{why}"
    );
}
