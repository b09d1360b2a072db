//! Runs that are killed, stopped, starved and given more to do.
use crate::common::{fails, fl, json, out, quick as spec, root, start, user_dir};
use crate::library;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command};

/// Waits until a run has come so far that `path` is there.
pub fn until(child: &mut Child, path: &Path) {
    while !path.exists() {
        assert_eq!(child.try_wait().unwrap(), None, "it is to run for long");
        std::thread::yield_now();
    }
}

#[cfg(unix)]
pub fn send(child: &Child, signal: &str) {
    let mut kill = Command::new("kill");
    let id = child.id().to_string();
    assert!(kill.args([signal, &id]).status().unwrap().success());
}

/// More rounds than any test waits for.
const LONG: [&str; 2] = ["--set", "protocol.rounds=1000000"];

/// How many steps the run in `folder` has done.
fn done(dir: &Path, folder: &str) -> u64 {
    let args = ["run", "--resume", folder, "--stop-after", "1"];
    let o = fl(dir, &args);
    let error = String::from_utf8(o.stderr).unwrap();
    let number = error.split(" has done ").nth(1);
    let number = number.and_then(|rest| rest.split(' ').next());
    number.map_or(1, |n| n.parse().unwrap())
}

/// Whose answer got lost and who is asked again has learnt once, whatever it keeps: SCAFFOLD's
/// control variate, momentum.
#[test]
fn who_is_asked_again_answers_as_if_for_the_first_time() {
    let d = tempfile::tempdir().unwrap();
    let momentum = [
        "--set",
        "protocol.fresh=false",
        "--set",
        "parts.model={use: dfdx, net: [outputs], optimiser: {sgd: {lr: 0.05, momentum: 0.9}}}",
    ];
    let lost = "faults={on-nan: {retry: 50}, on-error: {retry: 50}, inject: [{what: nan, share: 0.4}, {what: straggle, share: 0.3}]}";
    let cases: [(&str, &[&str]); 2] = [("scaffold", &[]), ("fedavg", &momentum)];
    for (name, more) in cases {
        let model = |folder: &str, faults: &[&str]| {
            let spec = spec(name);
            let out = format!("{name}-{folder}");
            let args = [&["run", &spec, "--json", "--out", &out], more, faults].concat();
            let ran = json(d.path(), &args);
            (
                ran,
                fs::read(d.path().join(out).join("models/model")).unwrap(),
            )
        };
        let (_, whole) = model("whole", &[]);
        for (folder, how) in [
            ("here", &[][..]),
            ("apart", &["--processes", "2"]),
            ("small", &["--memory", "64MiB"]),
        ] {
            let faults = [&["--set", lost], how].concat();
            let (_, again) = model(folder, &faults);
            assert!(whole == again, "{name}, {folder}");
        }
        let journal = fs::read_to_string(d.path().join(format!("{name}-here/journal.jsonl")));
        assert!(
            journal.unwrap().contains("\"again\":[["),
            "{name}: nobody was asked again"
        );
    }
}

#[test]
fn a_run_that_is_killed_in_its_first_second_goes_on() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let dir = d.path();
    for k in 0..3 {
        let folder = format!("r{k}");
        let mut child = start(
            dir,
            &[&["run", &spec, "--out", &folder], &LONG[..]].concat(),
        );
        until(&mut child, &dir.join(&folder).join("state"));
        child.kill().unwrap();
        child.wait().unwrap();
        let to = (done(dir, &folder) + 3).to_string();
        let whole = format!("whole{k}");
        let stop = ["--stop-after", &to, "--json"];
        let resumed = json(dir, &[&["run", "--resume", &folder], &stop[..]].concat());
        let begin = ["run", &spec, "--out", &whole];
        let straight = json(dir, &[&begin[..], &LONG, &stop].concat());
        assert_eq!(resumed["digest"], straight["digest"]);
    }
}

#[test]
fn a_run_without_a_checkpoint_begins_anew_and_says_so() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let dir = d.path();
    let whole = json(dir, &["run", &spec, "--out", "whole", "--json"]);
    out(dir, &["run", &spec, "--out", "r", "--stop-after", "1"]);
    // as it is before the first step ends
    fs::remove_file(dir.join("r/state")).unwrap();
    fs::create_dir_all(dir.join("r/messages")).unwrap();
    let half = ["r/.tmpHalf", "r/models/.tmpHalf", "r/messages/.tmpHalf"].map(|at| dir.join(at));
    half.iter().for_each(|at| fs::write(at, "half").unwrap());
    let o = fl(dir, &["run", "--resume", "r", "--json"]);
    let said = String::from_utf8(o.stderr).unwrap();
    assert!(
        o.status.success() && said.contains("the run starts again"),
        "{said}"
    );
    let resumed: Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(resumed["digest"], whole["digest"]);
    for file in ["journal.jsonl", "metrics.jsonl", "costs.jsonl"] {
        let of = |folder: &str| fs::read_to_string(dir.join(folder).join(file)).unwrap();
        assert_eq!(of("r"), of("whole"));
    }
    assert!(half.iter().all(|at| !at.exists()));

    // killed while the folder was made: the same command does, and --resume says which
    out(dir, &["run", &spec, "--out", "b", "--stop-after", "1"]);
    for gone in ["state", "run.json"] {
        fs::remove_file(dir.join("b").join(gone)).unwrap();
    }
    let (code, error) = fails(dir, &["run", "--resume", "b"]);
    assert!(
        code == 1 && error.contains("start it again with --out b"),
        "{error}"
    );
    let (code, error) = fails(dir, &["run", &spec, "--out", "b"]);
    assert!(
        code == 1 && error.contains("is not empty"),
        "its journal has lines: {error}"
    );
    for lines in [
        "journal.jsonl",
        "metrics.jsonl",
        "costs.jsonl",
        "receipts.jsonl",
    ] {
        fs::write(dir.join("b").join(lines), "").unwrap();
    }
    // and even before the spec was there
    fs::remove_file(dir.join("b/spec.yaml")).unwrap();
    let (code, error) = fails(dir, &["run", "--resume", "b"]);
    assert!(
        code == 1 && error.contains("start it again with --out b"),
        "{error}"
    );
    out(dir, &["run", &spec, "--out", "b"]);
    // but a spec of the user's own is not taken for what a run left
    fs::create_dir(dir.join("own")).unwrap();
    fs::write(dir.join("own/spec.yaml"), "mine").unwrap();
    let (code, error) = fails(dir, &["run", &spec, "--out", "own"]);
    assert!(code == 1 && error.contains("is not empty"), "{error}");
    assert_eq!(fs::read(dir.join("own/spec.yaml")).unwrap(), b"mine");
}

/// Is this signal ignored here, and so by every program that is begun here (a job in the background
/// ignores SIGINT)?
#[cfg(unix)]
fn ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[test]
#[cfg(unix)]
fn a_signal_ends_the_step_and_a_second_one_the_program() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let dir = d.path();
    for (signal, code) in [("-TERM", 143), ("-INT", 130), ("-HUP", 129)] {
        if ignored(code - 128) {
            eprintln!("skipped: whoever began these tests lets them ignore {signal}");
            continue;
        }
        let folder = format!("r{code}");
        let mut child = start(
            dir,
            &[&["run", &spec, "--out", &folder], &LONG[..]].concat(),
        );
        until(&mut child, &dir.join(&folder).join("state"));
        send(&child, signal);
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{said}");
        let how = format!("run --resume {folder}");
        assert!(
            said.contains("stopping after the current step") && said.contains(&how),
            "{said}"
        );
        let to = (done(dir, &folder) + 2).to_string();
        out(dir, &["run", "--resume", &folder, "--stop-after", &to]);
    }
    // a step that never ends
    let step = ["--set", "protocol.local={epochs: 100000, batch: 1}"];
    let mut child = start(dir, &[&["run", &spec, "--out", "long"], &step[..]].concat());
    until(&mut child, &dir.join("long/run.json"));
    send(&child, "-TERM");
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = said.any(|line| line.unwrap().contains("send it again to abort"));
    assert!(told);
    send(&child, "-TERM");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}

#[test]
#[cfg(unix)]
fn a_signal_ends_a_search_after_its_step() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let few = ["--set", "data.limit.train=10", "--steps", "1000000"];
    let mut child = start(
        d.path(),
        &[&["attack", "gradient", &spec], &few[..]].concat(),
    );
    // the run that it watches comes first, and goes
    let run = std::env::temp_dir().join(format!("fl-attack-{}", child.id()));
    until(&mut child, &run);
    while run.exists() {
        std::thread::yield_now();
    }
    send(&child, "-TERM");
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(143), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_that_was_to_be_ignored_is() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let mut sh = Command::new("sh");
    let script = "trap '' HUP; exec \"$0\" \"$@\"";
    sh.args([
        "-c",
        script,
        env!("CARGO_BIN_EXE_fl"),
        "run",
        &spec,
        "--out",
        "r",
    ]);
    sh.env("XDG_DATA_HOME", user_dir());
    let mut child = sh.args(LONG).current_dir(d.path()).spawn().unwrap();
    until(&mut child, &d.path().join("r/state"));
    send(&child, "-HUP");
    let state = fs::read(d.path().join("r/state")).unwrap();
    // it has gone on when the state is another, which every second round makes sure of
    assert!(!state.is_empty() && child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn checkpoints_come_as_often_as_the_spec_says() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let dir = d.path();
    let report = |folder: &str, every: &str| {
        let set = format!("checkpoint={every}");
        out(dir, &["run", &spec, "--out", folder, "--set", &set]);
        fs::read_to_string(dir.join(folder).join("report.md")).unwrap()
    };
    let all = report("all", "{every: {rounds: 1}, keep: false}");
    assert!(
        all.contains("Checkpoints: 5, "),
        "after each of five rounds: {all}"
    );
    let second = report("second", "{every: {rounds: 2}, keep: false}");
    assert!(
        second.contains("Checkpoints: 3, "),
        "after 1, 3 and 5: {second}"
    );
    assert!(!dir.join("second/state").exists());
    let kept = report("kept", "{every: {rounds: 100}}");
    assert!(
        kept.contains("Checkpoints: 2, "),
        "the first, and before the last: {kept}"
    );
    let (code, error) = fails(
        dir,
        &["check", &spec, "--set", "checkpoint.every={rounds: 0}"],
    );
    assert!(code == 2 && error.contains("must be at least 1"), "{error}");
}

#[test]
fn a_run_that_ended_gets_more_rounds() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    for name in [
        "fedavg",
        "scaffold",
        "server-adam",
        "fednova",
        "fesem",
        "ds-fl",
        "fkd",
        "selective-fd",
    ] {
        let spec = spec(name);
        let rounds = |n: usize| format!("protocol.rounds={n}");
        // measured after the third and the sixth round only, and after the last
        let run = |folder: &str, n: usize| {
            let set = rounds(n);
            let args = ["run", &spec, "--out", folder, "--json", "--set", &set];
            json(dir, &[&args[..], &["--set", "evaluate.every=3"]].concat())
        };
        let (short, long) = (format!("{name}-short"), format!("{name}-long"));
        let (four, seven) = (run(&short, 4), run(&long, 7));
        assert_ne!(four["digest"], seven["digest"]);
        if !four["privacy"].is_null() {
            // what it keeps must not show more than its results, and they decide about no release
            assert!(!dir.join(&short).join("state").exists());
            fails(dir, &["run", "--resume", &short, "--set", &rounds(7)]);
            continue;
        }
        let more = rounds(7);
        let go_on = ["run", "--resume", &short, "--set", &more];
        let part = json(
            dir,
            &[&go_on[..], &["--stop-after", "5", "--json"]].concat(),
        );
        assert!(part["stopped"].is_string());
        let all = json(dir, &["run", "--resume", &short, "--json"]);
        assert_eq!(all["digest"], seven["digest"], "{name}");
        for file in ["spec.yaml", "journal.jsonl", "metrics.jsonl", "costs.jsonl"] {
            let of = |folder: &str| fs::read_to_string(dir.join(folder).join(file)).unwrap();
            assert_eq!(of(&short), of(&long), "{name}/{file}");
        }
    }
    let refused = |sets: &[&str], says: &str| {
        let mut args = vec!["run", "--resume", "fedavg-short"];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let (code, error) = fails(dir, &args);
        assert!(code == 2 && error.contains(says), "{code}: {error}");
    };
    refused(
        &["seed=2"],
        "--set seed: the run in fedavg-short keeps the settings that it began with",
    );
    refused(
        &["protocol.rounds=9", "parts.model.lr=0.2"],
        "--set parts.model.lr",
    );
    refused(&["protocol.rounds=3"], "began with 7; give 7 or more");
    let (code, error) = fails(dir, &["run", "--resume", "fedavg-short"]);
    assert!(
        code == 1 && error.contains("to give it more rounds"),
        "{error}"
    );
}

#[test]
fn a_run_that_goes_on_says_nothing_twice() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("attacked"));
    let dir = d.path();
    out(dir, &["run", &spec, "--out", "whole"]);
    // the largest number is as good as any
    let never = "checkpoint.every={rounds: 18446744073709551615}";
    let stop = [
        "run",
        &spec,
        "--out",
        "r",
        "--stop-after",
        "2",
        "--set",
        never,
    ];
    out(dir, &stop);
    out(dir, &["run", "--resume", "r", "--threads", "1000"]);
    let notes = |folder: &str| {
        let text = fs::read_to_string(dir.join(folder).join("outcome.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["notes"].clone()
    };
    assert!(!notes("r").as_array().unwrap().is_empty());
    assert_eq!(notes("r"), notes("whole"));
    for wrong in ["0", "1025", "100000", "-1", "x"] {
        let threads = format!("--threads={wrong}");
        let (code, error) = fails(dir, &["run", &spec, "--out", "w", &threads]);
        let says = "must be a whole number from 1 to 1024";
        assert!(code == 2 && error.contains(says), "{wrong}: {error}");
    }
}

#[test]
#[cfg(unix)]
fn a_pipe_is_no_file() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let dir = d.path();
    let pipe = |name: &str| {
        let _ = fs::remove_file(dir.join(name));
        Command::new("mkfifo").arg(dir.join(name)).status().unwrap()
    };
    out(dir, &["run", &spec, "--out", "r", "--stop-after", "1"]);
    for name in [
        "r/state",
        "r/journal.jsonl",
        "r/run.json",
        "r/spec.yaml",
        "r/lock",
    ] {
        let kept = fs::read(dir.join(name)).unwrap();
        pipe(name);
        let (code, error) = fails(dir, &["run", "--resume", "r"]);
        assert!(
            code > 0 && error.contains("no regular file"),
            "{name}: {error}"
        );
        fs::remove_file(dir.join(name)).unwrap();
        fs::write(dir.join(name), kept).unwrap();
    }
    // a link would have its target written to
    fs::remove_file(dir.join("r/lock")).unwrap();
    std::os::unix::fs::symlink(dir.join("elsewhere"), dir.join("r/lock")).unwrap();
    let (code, error) = fails(dir, &["run", "--resume", "r"]);
    assert!(code == 1 && error.contains("it is a link"), "{error}");
    assert!(!dir.join("elsewhere").exists());
    fs::remove_file(dir.join("r/lock")).unwrap();
    out(dir, &["run", "--resume", "r"]);
    pipe("a.yaml");
    for args in [
        &["run", "a.yaml"][..],
        &["check", "a.yaml"],
        &["plan", "a.yaml"],
        &["data", "show", "a.yaml"],
        &["try", "aggregator", "mean", "--input", "a.yaml"],
    ] {
        let (code, error) = fails(dir, args);
        assert!(
            code > 0 && error.contains("no regular file"),
            "{args:?}: {error}"
        );
    }
}

/// A library that misbehaves as its setting says, beside a spec that uses it.
#[cfg(unix)]
fn hostile(dir: &Path) -> bool {
    if !library::cc() {
        return false;
    }
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let source = root().join("hosts/cli/tests/program/hostile.c");
    let quiet = ["-Wno-unused-function", "-Wno-unused-const-variable", "-lm"];
    library::compile(&source, &dir.join("h.so"), &quiet);
    let exits = [&quiet[..], &["-DEXITS_AT_LOAD"]].concat();
    library::compile(&source, &dir.join("exits.so"), &exits);
    let leaves = [&quiet[..], &["-DLEAVES_AT_LOAD"]].concat();
    library::compile(&source, &dir.join("leaves.so"), &leaves);
    let text = "name: h\nplugins: [{path: h.so, isolate: false}]\ndata: {set: blobs, clients: 3}\n\
        protocol: {use: fedavg, rounds: 3}\n\
        parts: {model: {use: linear}, aggregator: {use: hostile}}\n";
    fs::write(dir.join("h.yaml"), text).unwrap();
    let input = r#"{"messages": [{"from": 0, "tensors": {"w": [1, 2]}}, {"from": 1, "tensors": {"w": [3, 4]}}]}"#;
    fs::write(dir.join("in.json"), input).unwrap();
    true
}

#[test]
#[cfg(target_os = "linux")]
fn a_library_that_ends_the_program_is_named() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let run = ["run", "h.yaml", "--out", "r", "--set"];
    let (code, error) = fails(dir, &[&run[..], &["parts.aggregator.mode=exits"]].concat());
    let says = "aggregator `hostile` from h.so: it ended the program in the middle of a call";
    assert!(code == 1 && error.contains(says), "{code}: {error}");
    let (code, error) = fails(dir, &["list", "--plugin", "exits.so", "--isolate=false"]);
    assert!(
        code == 1 && error.contains("exits.so: it ended the program"),
        "{code}: {error}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_library_that_ends_the_program_without_a_word_never_ends_it_with_success() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let mode = |mode: &str| format!("parts.aggregator.mode={mode}");
    let says = "a library ended the program with exit code 0 before it was done";
    for how in ["leaves", "becomes"] {
        let run = ["run", "h.yaml", "--out", how, "--set", &mode(how)];
        let (code, error) = fails(dir, &run);
        assert!(code == 1 && error.contains(says), "{how}: {code}: {error}");
    }
    let (code, error) = fails(dir, &["list", "--plugin", "leaves.so", "--isolate=false"]);
    assert!(code == 1 && error.contains(says), "{code}: {error}");
    let crash = ["run", "h.yaml", "--out", "c", "--set", &mode("crashes")];
    let (code, error) = fails(dir, &crash);
    assert!(
        code == 139
            && error.contains(
                "a segmentation fault in a loaded library ended the program (loaded: h.so)"
            ),
        "{code}: {error}"
    );

    // a signal reaches the run, and a user who kills one process kills the other
    let quiet = mode("as-it-is");
    let long = |folder: &str| {
        let run = ["run", "h.yaml", "--out", folder, "--set", &quiet];
        let mut child = start(dir, &[&run[..], &LONG].concat());
        until(&mut child, &dir.join(folder).join("state"));
        child
    };
    let mut child = long("t");
    send(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let mut killed = long("k");
    killed.kill().unwrap();
    killed.wait().unwrap();
    for folder in ["t", "k"] {
        let to = (done(dir, folder) + 3).to_string();
        out(dir, &["run", "--resume", folder, "--stop-after", &to]);
    }
}

/// The process that a library makes of the program's must not go on with the run.
#[test]
#[cfg(target_os = "linux")]
fn exact_a_library_that_doubles_the_process_answers_once() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let digest = |mode: &str, folder: &str, more: &[&str]| {
        let set = format!("parts.aggregator.mode={mode}");
        let run = ["run", "h.yaml", "--json", "--out", folder, "--set", &set];
        json(dir, &[&run[..], more].concat())["digest"].clone()
    };
    let whole = digest("as-it-is", "whole", &[]);
    let apart = "plugins=[{path: h.so, isolate: {sandbox: false}}]";
    for mode in ["forks", "forks-raw"] {
        let (here, isolated) = (format!("{mode}-here"), format!("{mode}-apart"));
        assert_eq!(whole, digest(mode, &here, &[]), "{mode}");
        assert_eq!(whole, digest(mode, &isolated, &["--set", apart]), "{mode}");
    }
}

#[test]
#[cfg(unix)]
fn a_small_stack_is_enough() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let limited = |command: &[&str]| {
        let mut sh = Command::new("sh");
        sh.args(["-c", "ulimit -s 256 && exec \"$0\" \"$@\""]);
        sh.arg(env!("CARGO_BIN_EXE_fl")).args(command);
        sh.env("XDG_DATA_HOME", user_dir());
        let done = sh.current_dir(d.path()).output().unwrap();
        let error = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{:?}: {error}", done.status);
    };
    limited(&["check", &spec]);
    limited(&["run", &spec, "--out", "r", "--stop-after", "1"]);
    limited(&["run", "--help"]);
}

#[test]
#[cfg(unix)]
fn a_file_that_is_too_large_is_an_error() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let limited = "ulimit -f 1 && exec \"$0\" \"$@\"";
    let run = Command::new("bash")
        .args(["-c", limited, env!("CARGO_BIN_EXE_fl"), "run", &spec])
        .args(["--out", "r", LONG[0], LONG[1]])
        .env("XDG_DATA_HOME", user_dir())
        .current_dir(d.path())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(
        run.status.code() == Some(1) && error.contains("File too large"),
        "{:?}: {error}",
        run.status
    );
}

/// As a user who may begin but few threads and processes.
#[test]
#[cfg(target_os = "linux")]
fn what_the_system_does_not_give_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let dir = d.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    let fl = env!("CARGO_BIN_EXE_fl");
    let limited = |n: usize, how: &[&str]| {
        let limit = format!("ulimit -u {n} && exec \"$0\" \"$@\"");
        let mut run = Command::new("setpriv");
        run.args([
            "--reuid=43210",
            "--regid=43210",
            "--clear-groups",
            "bash",
            "-c",
        ]);
        let folder = format!("r{n}{}", how.concat());
        run.args([&limit, fl, "run", &spec, "--out", &folder]);
        run.args(how).current_dir(dir);
        run.env("XDG_DATA_HOME", dir.join("user")).output()
    };
    // the limit is not root's, and only root can be another user
    let other = |o: &std::process::Output| o.status.success();
    if !limited(1000, &[]).as_ref().is_ok_and(other) {
        return eprintln!(
            "skipped: this test needs root, setpriv, and a folder that others can read"
        );
    }
    for n in 1..12 {
        for how in [
            &["--threads", "1"][..],
            &[],
            &["--processes", "1"],
            &["--processes", "2"],
        ] {
            let run = limited(n, how).unwrap();
            let error = String::from_utf8_lossy(&run.stderr);
            assert!(!error.contains("panicked"), "{n}, {how:?}: {error}");
            // a shell that cannot begin says so itself
            assert!(
                run.status.code().is_some(),
                "{n}, {how:?}: {:?}",
                run.status
            );
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn how_a_library_rounds_is_its_own_business() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let digest = |mode: &str| {
        let set = format!("parts.aggregator.mode={mode}");
        let args = [
            "run",
            "h.yaml",
            "--threads",
            "1",
            "--json",
            "--out",
            mode,
            "--set",
            &set,
        ];
        json(dir, &args)["digest"].clone()
    };
    assert_eq!(digest("rounds-up"), digest("as-it-is"));
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_that_is_shown_steers_a_terminal_or_passes_for_a_line_of_the_program() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let part = [
        "try",
        "aggregator",
        "hostile",
        "--plugin",
        "h.so",
        "--input",
        "in.json",
    ];
    let o = fl(
        dir,
        &[&part[..], &["--settings", "{mode: forges}"]].concat(),
    );
    let said = String::from_utf8(o.stderr).unwrap();
    assert!(
        o.status.success() && said.contains("fine\\nerror: forged"),
        "{said}"
    );
    assert!(
        said.lines().all(|line| !line.starts_with("error")),
        "{said}"
    );
    for text in [
        "name: \"\\e[31mred\"\n",
        "\"\\e]0;title\\a\": 1\nname: x\n",
        "name: x\ndata: {set: \"\\e[2Jblobs\"}\n",
        "name: x\ndata: {set: blobs}\nprotocol: {use: \"\\u202e\"}\n",
    ] {
        fs::write(dir.join("e.yaml"), text).unwrap();
        let (code, error) = fails(dir, &["check", "e.yaml"]);
        let bare = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(code == 2 && !error.contains(bare), "{text:?}: {error:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_library_that_is_pinned_may_be_anybody_s_and_is_what_was_hashed() {
    use sha2::{Digest, Sha256};
    use std::os::unix::fs::PermissionsExt;
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    // two folders up every user may write
    fs::create_dir_all(dir.join("open/a")).unwrap();
    fs::copy(dir.join("h.so"), dir.join("open/a/h.so")).unwrap();
    fs::set_permissions(dir.join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let (code, error) = fails(dir, &["list", "--plugin", "open/a/h.so"]);
    assert!(
        code == 3 && error.contains("open, and could replace it"),
        "{code}: {error}"
    );
    let spec = fs::read_to_string(dir.join("h.yaml")).unwrap();
    let hash = fl_core::hex(&Sha256::digest(fs::read(dir.join("h.so")).unwrap()));
    let of = |hash: &str| spec.replace("path: h.so", &format!("path: open/a/h.so, sha256: {hash}"));
    fs::write(dir.join("pinned.yaml"), of(&hash)).unwrap();
    out(dir, &["check", "pinned.yaml"]);
    fs::write(dir.join("pinned.yaml"), of(&"0".repeat(64))).unwrap();
    let (code, error) = fails(dir, &["check", "pinned.yaml"]);
    assert!(code == 3 && error.contains(&hash), "{code}: {error}");
    // one that finds another beside itself
    let other = "int other(void) { return 1; }\n";
    fs::write(dir.join("other.c"), other).unwrap();
    let source = "#include \"fl_plugin.h\"\nint other(void); int use(void); int use(void) { return other(); }\n";
    fs::write(dir.join("needs.c"), source).unwrap();
    let beside = dir.display().to_string();
    let exports = "-fvisibility=default";
    library::compile(&dir.join("other.c"), &dir.join("libother.so"), &[exports]);
    let flags = [exports, "-L", &beside, "-Wl,-rpath,$ORIGIN"];
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-I"])
        .arg(root().join("fl-core/include"));
    cc.args(flags)
        .args(["-o", "needs.so", "needs.c", "-lother"])
        .current_dir(dir);
    assert!(cc.status().unwrap().success());
    let (code, error) = fails(dir, &["list", "--plugin", "needs.so"]);
    assert!(code == 3 && error.contains("($ORIGIN)"), "{code}: {error}");
}
