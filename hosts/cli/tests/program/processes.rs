//! Clients in processes of their own: the same digests, whatever happens to the processes.

use crate::common::{fails, fl, json, out, quick, shorter, specs, start, whole};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `spec` into the folder `to`.
fn run(dir: &Path, spec: &str, to: &str, more: &[&str]) -> Value {
    json(dir, &[&["run", spec, "--json", "--out", to], more].concat())
}

/// The processes that this one has begun, from any thread.
#[cfg(target_os = "linux")]
fn children(of: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{of}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).ok();
    let lists: Vec<String> = threads.filter_map(of_thread).collect();
    lists
        .iter()
        .flat_map(|list| list.split_whitespace().map(String::from))
        .collect()
}

fn signal(which: &str, id: &str) {
    // one that has ended meanwhile is as good
    let _ = Command::new("kill").args([which, id]).output();
}

#[test]
fn exact_processes_change_nothing() {
    for spec in specs("quick") {
        let d = tempfile::tempdir().unwrap();
        let (whole, dir, spec) = (whole(&spec), d.path(), shorter(d.path(), &spec));
        let apart = run(dir, &spec, "apart", &["--processes", "3"]);
        assert_eq!(apart["digest"], whole.digest(), "{spec}");
        for file in ["journal.jsonl", "metrics.jsonl", "costs.jsonl", "spec.yaml"] {
            let read = fs::read_to_string(dir.join("apart").join(file)).unwrap();
            assert!(read == whole.read(file), "{spec}: {file} differs");
        }
        let models = fs::read_dir(dir.join("apart/models")).unwrap();
        let models = models.map(|entry| {
            let at = entry.unwrap().path();
            (at.file_name().unwrap().into(), fs::read(&at).unwrap())
        });
        let models: BTreeMap<PathBuf, Vec<u8>> = models.collect();
        assert!(models == whole.models(), "{spec}: other models");
    }
}

#[test]
fn exact_a_run_with_processes_goes_on_with_others_and_gets_more_rounds() {
    // whose clients remember nothing, control variates, and models
    for name in ["fedavg", "scaffold", "fedkd"] {
        let (d, spec) = (tempfile::tempdir().unwrap(), quick(name));
        let dir = d.path();
        let whole = run(dir, &spec, "whole", &[]);
        let begin = ["--processes", "2", "--stop-after", "2"];
        run(dir, &spec, "r", &begin);
        let (code, error) = fails(dir, &["run", "--resume", "r"]);
        assert!(
            code == 1 && error.contains("resume it with `--processes`"),
            "{error}"
        );
        let go_on = ["run", "--resume", "r", "--processes", "3", "--json"];
        assert_eq!(json(dir, &go_on)["digest"], whole["digest"], "{name}");
    }
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("scaffold"));
    let dir = d.path();
    let more = ["--set", "protocol.rounds=9"];
    let whole = run(dir, &spec, "whole", &more);
    run(dir, &spec, "r", &["--processes", "2"]);
    let go_on = ["run", "--resume", "r", "--processes", "2", "--json"];
    let grown = json(dir, &[&go_on[..], &more].concat());
    assert_eq!(grown["digest"], whole["digest"]);
    // in the other order
    run(dir, &spec, "here", &["--stop-after", "2"]);
    let (code, error) = fails(dir, &["run", "--resume", "here", "--processes", "2"]);
    assert!(
        code == 1 && error.contains("resume it without `--processes`"),
        "{error}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn exact_processes_that_are_killed_are_begun_anew() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("scaffold"));
    let dir = d.path();
    let rounds = [
        "--set",
        "protocol.rounds=40",
        "--set",
        "protocol.local.epochs=20",
    ];
    let whole = run(dir, &spec, "whole", &rounds);
    let apart = ["run", &spec, "--out", "r", "--json", "--processes", "2"];
    let mut fl = start(dir, &[&apart[..], &rounds].concat());
    // twice each: after three deaths over one request the request is at fault
    let mut killed = std::collections::BTreeSet::new();
    while fl.try_wait().unwrap().is_none() && killed.len() < 4 {
        std::thread::yield_now();
        let live =
            |id: &String| fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|c| !c.is_empty());
        let new = children(fl.id())
            .into_iter()
            .filter(|id| !killed.contains(id));
        let new: Vec<String> = new.filter(live).collect();
        if dir.join("r/state").exists() && new.len() == 2 {
            new.iter().for_each(|id| signal("-9", id));
            killed.extend(new);
        }
    }
    let done = fl.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{said}");
    assert!(
        killed.len() == 4 && said.contains("signal: 9"),
        "{killed:?} {said}"
    );
    let outcome: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(outcome["digest"], whole["digest"]);
}

#[test]
#[cfg(target_os = "linux")]
fn exact_a_leader_that_is_killed_goes_on_and_leaves_no_process() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("scaffold"));
    let dir = d.path();
    let long = ["--set", "protocol.rounds=1000000"];
    for (k, file) in ["run.json", "elsewhere/leader", "state"]
        .into_iter()
        .enumerate()
    {
        let folder = format!("r{k}");
        let begin = ["run", &spec, "--out", &folder, "--processes", "2"];
        let mut fl = start(dir, &[&begin[..], &long].concat());
        while !dir.join(&folder).join(file).exists() {
            assert_eq!(fl.try_wait().unwrap(), None);
        }
        let left = children(fl.id());
        if file == "state" {
            // what the leader asks is for the program, not for a part that reads its standard input
            let input = |id: &String| fs::read_link(format!("/proc/{id}/fd/0")).unwrap();
            let inputs: Vec<_> = left.iter().map(input).collect();
            assert!(
                inputs.len() == 2 && inputs.iter().all(|i| i == Path::new("/dev/null")),
                "{inputs:?}"
            );
        }
        fl.kill().unwrap();
        fl.wait().unwrap();
        for id in left {
            // they end as soon as their sockets close
            while fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|c| !c.is_empty()) {
                std::thread::yield_now();
            }
        }
        let steps = format!("{folder}-steps");
        let resume = [
            "run",
            "--resume",
            &folder,
            "--processes",
            "2",
            "--json",
            "--stop-after",
        ];
        let o = crate::common::fl(dir, &[&resume[..], &["1"]].concat());
        let error = String::from_utf8(o.stderr).unwrap();
        let done = error
            .split(" has done ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let to = done.map_or(1, |n| n.parse::<usize>().unwrap()) + 3;
        let to = to.to_string();
        let resumed = json(dir, &[&resume[..], &[&to]].concat());
        let straight = run(
            dir,
            &spec,
            &steps,
            &[&long[..], &["--stop-after", &to]].concat(),
        );
        assert_eq!(
            resumed["digest"], straight["digest"],
            "killed when {file} was there"
        );
    }
}

#[test]
fn what_clients_have_learnt_is_never_lost_in_silence() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    for (name, steps, remembers) in [
        ("fedavg", "2", false),
        ("scaffold", "2", true),
        ("fedkd", "1", true),
    ] {
        let spec = quick(name);
        let whole = run(dir, &spec, &format!("{name}-whole"), &[]);
        let folder = format!("{name}-r");
        run(
            dir,
            &spec,
            &folder,
            &["--processes", "2", "--stop-after", steps],
        );
        fs::remove_dir_all(dir.join(&folder).join("elsewhere/home/runs")).unwrap();
        let resume = ["run", "--resume", &folder, "--processes", "2", "--json"];
        if !remembers {
            assert_eq!(json(dir, &resume)["digest"], whole["digest"], "{name}")
        } else {
            let (code, error) = fails(dir, &resume);
            let lost = "its node knows 0 of ";
            assert!(
                code == 1 && error.contains(lost) && error.contains("are lost"),
                "{name}: {error}"
            );
        }
    }
    // damaged is not lost, and not used either
    let spec = quick("scaffold");
    run(
        dir,
        &spec,
        "damaged",
        &["--processes", "2", "--stop-after", "2"],
    );
    let runs = dir.join("damaged/elsewhere/home/runs");
    let run = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let file = run.join("client-0");
    let mut bytes = fs::read(&file).unwrap();
    bytes[40] ^= 1;
    fs::write(&file, bytes).unwrap();
    let (code, error) = fails(dir, &["run", "--resume", "damaged", "--processes", "2"]);
    assert!(
        code == 1 && error.contains("checksum does not match"),
        "{error}"
    );
}

#[test]
#[cfg(unix)]
fn a_run_folder_that_others_could_replace_is_refused_before_it_is_made() {
    use std::os::unix::fs::PermissionsExt;
    let d = tempfile::tempdir().unwrap();
    let (dir, open) = (d.path(), d.path().join("open"));
    fs::create_dir(&open).unwrap();
    let mode = |mode| fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    let apart = ["--quiet", "--processes", "2"];
    let spec = quick("fedavg");
    for (to, folder) in [("open/run", ""), ("open/new/run", "/open")] {
        let (_, said) = fails(dir, &[&["run", &spec, "--out", to][..], &apart].concat());
        let why = "every user may write to its folder";
        assert!(said.contains(why) && said.contains(folder), "{said}");
        assert!(
            said.contains("take another folder") && said.contains(to),
            "{said}"
        );
        assert!(!said.contains("node"), "{said}");
        assert_eq!(fs::read_dir(&open).unwrap().count(), 0, "{to}");
    }
    // a folder without a name goes below the working directory
    fails(&open, &[&["run", &spec][..], &apart].concat());
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    // as /tmp is
    mode(0o1777);
    run(dir, &spec, "open/run", &["--processes", "2"]);
}

#[test]
fn a_client_that_is_too_slow_is_what_the_spec_says() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("fedavg"));
    let dir = d.path();
    // no process starts in a microsecond, so the greeting fails, which no policy
    // excuses
    let hurry = ["--processes", "2", "--deadline", "0.000001"];
    let begin = ["run", &spec, "--out", "r"];
    let (code, error) = fails(dir, &[&begin[..], &hurry].concat());
    assert!(
        code == 1 && error.contains("did not reply within"),
        "{error}"
    );
    assert!(
        !dir.join("r").exists(),
        "a run that cannot begin leaves nothing behind"
    );
    let (code, error) = fails(dir, &[&begin[..], &["--deadline", "1"]].concat());
    assert!(
        code == 2 && error.contains("only with --processes or --node"),
        "{error}"
    );
    for wrong in ["0", "-1", "nan", "inf", "1e30"] {
        let deadline = format!("--deadline={wrong}");
        let (code, error) = fails(
            dir,
            &[&begin[..], &["--processes", "2", &deadline]].concat(),
        );
        assert!(code == 2 && error.contains("seconds"), "{wrong}: {error}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn exact_a_signal_ends_the_step_and_the_run_goes_on() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("fedavg"));
    let dir = d.path();
    let long = ["--set", "protocol.rounds=1000000"];
    let begin = ["run", &spec, "--out", "r", "--processes", "2"];
    let mut leader = start(dir, &[&begin[..], &long].concat());
    while !dir.join("r/state").exists() {
        assert_eq!(leader.try_wait().unwrap(), None);
    }
    // not that of Ctrl-C, which a job in the background is begun to ignore
    signal("-TERM", &leader.id().to_string());
    let mut said = String::new();
    let code = leader.wait().unwrap().code();
    leader
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(code, Some(143), "{said}");
    assert!(said.contains("run --resume r"), "{said}");
    let resume = [
        "run",
        "--resume",
        "r",
        "--processes",
        "2",
        "--json",
        "--stop-after",
    ];
    let o = fl(dir, &[&resume[..], &["1"]].concat());
    let error = String::from_utf8(o.stderr).unwrap();
    let done = error
        .split(" has done ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let to = (done.map_or(1, |n| n.parse::<usize>().unwrap()) + 2).to_string();
    let resumed = json(dir, &[&resume[..], &[&to]].concat());
    let straight = run(
        dir,
        &spec,
        "straight",
        &[&long[..], &["--stop-after", &to]].concat(),
    );
    assert_eq!(resumed["digest"], straight["digest"]);
}

#[test]
fn exact_noise_of_the_system_and_libraries_go_with_the_processes() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("fedkd-priced"));
    let dir = d.path();
    let noise = ["--set", "noise=system"];
    let here = run(dir, &spec, "here", &noise);
    let apart = run(
        dir,
        &spec,
        "apart",
        &[&noise[..], &["--processes", "2"]].concat(),
    );
    // what is left in the digest is the order of the questions; what they cost is the same
    assert_eq!(apart["digest"], here["digest"]);
    assert_eq!(apart["privacy"], here["privacy"]);
    assert!(
        !dir.join("apart/elsewhere").exists(),
        "the secret goes with the run"
    );
    out(dir, &["report", "apart"]);
}
