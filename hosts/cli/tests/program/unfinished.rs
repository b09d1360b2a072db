//! Runs that are not done beside others on the same rows.
use crate::common::{fl, flat, out, quick};
use crate::ledger::{epsilon, patients, same_on_page, set, show, two_sites};
use std::fs;

#[test]
fn every_copy_of_a_stopped_run_counts() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    two_sites(dir);
    let spec = patients("s", "A.csv, B.csv", "test.csv").replace("rounds: 1,", "rounds: 40,");
    fs::write(dir.join("s.yaml"), spec).unwrap();
    let count = || show(dir)["data-sets"][0]["runs"].as_array().unwrap().len();
    out(dir, &["run", "s.yaml", "--out", "R", "--stop-after", "2"]);
    let copy = |to: &str| {
        fs::create_dir(dir.join(to)).unwrap();
        for entry in fs::read_dir(dir.join("R")).unwrap() {
            let from = entry.unwrap().path();
            if from.is_file() {
                fs::copy(&from, dir.join(to).join(from.file_name().unwrap())).unwrap();
            }
        }
    };
    copy("R2");
    copy("R3");
    out(dir, &["run", "--resume", "R2", "--stop-after", "39"]);
    assert_eq!(count(), 1, "it took the stopped run's place");
    out(dir, &["run", "--resume", "R"]);
    assert_eq!(count(), 2);
    out(dir, &["run", "--resume", "R3"]);
    assert_eq!(count(), 3);
    let all = show(dir);
    let all = epsilon(&all["data-sets"][0]["together"]["readers"]["epsilon"]);
    // 2 common releases, 38 more of R, 37 of R2: sqrt(77) / 5 moves in all
    assert!(all >= 8.5204, "{all}");
    // it goes on from its own stop, and stays one run
    out(dir, &["run", "--resume", "R2"]);
    assert_eq!(count(), 3);
    // a page counts what is stopped with all that it may release
    same_on_page(dir, &["R", "R2", "R3"]);
}

#[test]
fn a_run_that_is_not_done_counts_on_a_page() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    two_sites(dir);
    let spec = patients("s", "A.csv, B.csv", "test.csv").replace("rounds: 1,", "rounds: 4,");
    fs::write(dir.join("s.yaml"), &spec).unwrap();
    out(dir, &["run", "s.yaml", "--out", "R"]);
    out(dir, &["run", "s.yaml", "--out", "S", "--stop-after", "2"]);
    same_on_page(dir, &["R", "S"]);
    let page = fs::read_to_string(dir.join("page.html")).unwrap();
    for said in [page, flat(&out(dir, &["ledger", "show", "l"]))] {
        let due = "one run is not done, and if it failed or was stopped because of rows, nothing covers that";
        assert!(said.contains(due), "{said}");
    }
}

#[test]
fn a_run_that_failed_in_its_first_exchange_counts_on_a_page() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("dp-fedavg"));
    let (dir, ledger) = (d.path(), set(d.path()));
    out(dir, &["ledger", "init", "l"]);
    let run = |folder: &str, more: &[&str]| {
        let args = ["run", &spec, "--out", folder, "--set", "protocol.rounds=2"];
        fl(dir, &[&args[..], more].concat())
    };
    assert!(run("R", &["--set", &ledger]).status.success());
    // steps that no number holds
    let far = ["--set", "parts.model.lr=3e38"];
    let failed = run("F", &[&far[..], &["--set", &ledger]].concat());
    let said = String::from_utf8_lossy(&failed.stderr);
    let due = "F: the folder stays, so that totals of privacy count the run";
    assert!(!failed.status.success() && said.contains(due), "{said}");
    same_on_page(dir, &["R", "F"]);
    // without an accountant it leaves nothing
    let plain = ["parts.accountant=null", "parts.server-privacy=null"];
    let plain = plain.map(|set| ["--set", set]).concat();
    let failed = run(
        "G",
        &[&far[..], &plain, &["--set", "protocol.use=fedavg"]].concat(),
    );
    assert!(!failed.status.success() && !dir.join("G").exists());
}
