//! `device: cuda`: the digest of the processor, on the PTX interpreter of `tests/fake-cuda`.

use crate::common::{quick, root};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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

fn command(dir: &Path, driver: &Path, args: &[&str]) -> Command {
    let mut fl = crate::common::program();
    fl.args(args).current_dir(dir);
    fl.env("NO_COLOR", "1").env("FL_CUDA_DRIVER", driver);
    fl.stdout(Stdio::piped()).stderr(Stdio::piped());
    fl
}

fn fl(dir: &Path, driver: &Path, shuffle: &str, args: &[&str]) -> Output {
    let mut fl = command(dir, driver, args);
    fl.env("FAKE_CUDA_SHUFFLE", shuffle);
    fl.output().expect("fl starts")
}

/// Why a command failed.
fn failure(done: &Output) -> String {
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success(), "{said}");
    said
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
        let apart = run(&card, "apart", "0", &["--processes", "2"]);
        assert_eq!(apart, wanted, "{name}: processes on one card");
    }
    let shuffled = run(&card, "shuffled", "5", &["--threads", "1"]);
    assert_eq!(shuffled, wanted, "{name}: blocks in another order");
}

#[test]
fn exact_digests_of_networks_on_a_card() {
    same("fednova", &["protocol.rounds=2"]);
    // every kernel of it, on few and small batches: the interpreter takes its time
    same(
        "selective-fd",
        &[
            "data.set.glyphs={train: 300, test: 50}",
            "protocol.rounds=1",
            "protocol.local.batch=16",
            "protocol.distil={steps: 2, batch: 32}",
        ],
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
    let [cpu, card] = ["cpu", "cuda"].map(|device| format!("parts.model.device={device}"));
    for (folder, first, then) in [("up", &cpu, &card), ("down", &card, &cpu)] {
        let half = ["run", &spec, "--out", folder, "--stop-after", "2"];
        assert!(
            fl(&[&half[..], &["--set", first]].concat())
                .status
                .success()
        );
        let rest = ["run", "--json", "--resume", folder, "--set", then];
        assert_eq!(digest(&fl(&rest)), wanted, "{then}");
    }
}

#[test]
fn exact_two_runs_at_once_and_one_that_is_killed_on_a_card() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, driver) = (dir.path(), driver());
    let (spec, card) = (quick("fednova"), on_card(dir, "fednova"));
    let run = |spec: &str, out: &str| {
        let args = ["run", spec, "--json", "--out", out];
        command(dir, &driver, &args).spawn().unwrap()
    };
    let [whole, one, other] = [(&spec, "whole"), (&card, "one"), (&card, "other")]
        .map(|(spec, out)| run(spec, out))
        .map(|child| digest(&child.wait_with_output().unwrap()));
    assert_eq!([&one, &other], [&whole; 2]);
    // the card is checked after this file is there
    let mut child = run(&card, "killed");
    while !dir.join("killed/run.json").exists() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended first");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let rest = ["run", "--json", "--resume", "killed"];
    assert_eq!(digest(&fl(dir, &driver, "0", &rest)), whole);
}

#[test]
fn exact_a_run_goes_on_after_its_card_was_full() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, driver) = (dir.path(), driver());
    let card = on_card(dir, "fednova");
    let run = |out: &str, variable: &str, value: &str| {
        let args = ["run", &card, "--json", "--out", out, "--threads", "1"];
        let mut run = command(dir, &driver, &args);
        run.env(variable, value).output().unwrap()
    };
    let counts = dir.join("counts");
    let wanted = digest(&run("whole", "FAKE_CUDA_COUNTS", counts.to_str().unwrap()));
    let launches = std::fs::read_to_string(counts).unwrap().lines().count();
    let most = (launches * 3 / 4).to_string();
    let why = failure(&run("full", "FAKE_CUDA_MEMORY_ENDS", &most));
    let advice = "device: cuda: PTX interpreter has no memory left; use smaller batches, train fewer \
                  clients at once (`--threads`), or end what else uses it";
    assert!(why.contains(advice), "{why}");
    assert!(why.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{why}");
    let rest = ["run", "--json", "--resume", "full"];
    assert_eq!(digest(&fl(dir, &driver, "0", &rest)), wanted);
}

#[test]
fn a_card_that_is_not_there_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, driver, spec) = (dir.path(), driver(), quick("fednova"));
    let set = ["--set", "parts.model.device=cuda:7"];
    let why = failure(&fl(
        dir,
        &driver,
        "0",
        &[&["run", &spec, "--out", "run"][..], &set].concat(),
    ));
    let wanted = "device: cuda:7: this machine has 1 cards, from cuda:0 on";
    assert!(why.contains(wanted), "{why}");
}

#[test]
fn a_card_without_a_driver_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, missing) = (dir.path(), Path::new("/no/such/driver.so"));
    let card = on_card(dir, "fednova");
    // a check makes every model, and needs no card
    let checked = fl(dir, missing, "0", &["check", &card]);
    let said = String::from_utf8_lossy(&checked.stderr);
    let due = "parts.model: device: cuda needs NVIDIA's driver: ";
    assert!(checked.status.success() && said.contains(due), "{said}");
    let there = fl(dir, &driver(), "0", &["check", &card]);
    assert!(there.stderr.is_empty(), "{there:?}");
    let said = failure(&fl(dir, missing, "0", &["run", &card, "--out", "run"]));
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
