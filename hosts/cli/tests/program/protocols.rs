//! Protocols in libraries: what goes wrong in them, and how runs with them go on.

use crate::common::{fl, json, out, quick, start};
use crate::library;

#[test]
fn a_protocol_that_misbehaves_gets_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let library = library::beside("fl_hostile").display().to_string();
    let error = |how: &str, more: &[&str]| {
        let (spec, protocol) = (
            quick("solo"),
            format!("protocol={{use: misbehaves, how: {how}}}"),
        );
        let run = [
            "run", &spec, "--out", how, "--plugin", &library, "--set", &protocol,
        ];
        let done = fl(dir.path(), &[&run[..], more].concat());
        assert!(!done.status.success(), "{how}");
        String::from_utf8(done.stderr).unwrap()
    };
    let noise = "parts.privacy={use: laplace-params, clip: 1.0, scale: 1.0}";
    let example = library::beside("fl_plugin_example_dynamic")
        .display()
        .to_string();
    for isolate in [&["--isolate=false"][..], &[]] {
        for (how, more, says) in [
            ("panic", &[][..], "it panicked: in lead"),
            ("answer", &[], "it panicked: in answer"),
            ("undeclared", &[], "declares no exchange `another number`"),
            (
                "outlasts",
                &["--threads", "1"],
                "used a part of the program after its call",
            ),
            (
                "hides",
                &["--set", noise, "--plugin", &example],
                "the answer was made without one",
            ),
        ] {
            let said = error(how, &[more, isolate].concat());
            assert!(said.contains(says), "{how} {isolate:?}: {said}");
        }
    }
    #[cfg(target_os = "linux")]
    {
        let plugins = format!("plugins=[{{path: {library:?}, isolate: {{call-seconds: 0.5}}}}]");
        for how in ["stay", "asks"] {
            let run = ["run", &quick("solo"), "--out", how, "--set", &plugins];
            let protocol = format!("protocol={{use: misbehaves, how: {how}}}");
            let done = fl(dir.path(), &[&run[..], &["--set", &protocol]].concat());
            let said = String::from_utf8(done.stderr).unwrap();
            assert!(said.contains("took longer than"), "{how}: {said}");
        }
    }
}

/// A run of the protocol `tallies` in a library, with these settings.
fn tallies(settings: &str) -> [String; 6] {
    let library = library::beside("fl_hostile").display().to_string();
    let protocol = format!("protocol={{use: tallies, {settings}}}");
    let parts = "parts={}".to_string();
    let set = || "--set".to_string();
    ["--plugin".into(), library, set(), protocol, set(), parts]
}

fn words<'a>(all: &[&'a [&'a str]], more: &'a [String]) -> Vec<&'a str> {
    let all = all.iter().flat_map(|words| words.iter().copied());
    all.chain(more.iter().map(String::as_str)).collect()
}

const ISOLATED: [&[&str]; 2] = [&["--isolate=false"], &[]];

#[test]
fn exact_a_run_of_a_loaded_protocol_goes_on_after_a_stop_and_a_kill() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), quick("solo"));
    let dir = dir.path();
    let short = tallies("rounds: 5");
    let whole = json(
        dir,
        &words(&[&["run", &spec, "--json", "--out", "whole"]], &short),
    );
    for (at, isolate) in ISOLATED.into_iter().enumerate() {
        // a stop after every step
        for stop in 1..5 {
            let folder = format!("stopped-{at}-{stop}");
            let begin = ["run", &spec, "--out", &folder, "--stop-after"];
            out(
                dir,
                &words(&[&begin, &[&stop.to_string()], isolate], &short),
            );
            let go_on = json(
                dir,
                &words(&[&["run", "--json", "--resume", &folder], isolate], &[]),
            );
            assert_eq!(go_on["digest"], whole["digest"], "{folder}");
        }
        // a kill in the middle of the second step or of a later one
        let slow = tallies("rounds: 5, pause: 100");
        let straight = format!("straight-{at}");
        let straight = ["run", &spec, "--json", "--out", &straight];
        let due = json(dir, &words(&[&straight, isolate], &slow));
        let folder = format!("killed-{at}");
        let begin = ["run", &spec, "--out", &folder, "--threads", "1"];
        let mut child = start(dir, &words(&[&begin, isolate], &slow));
        let state = dir.join(&folder).join("state");
        while !state.exists() {
            assert_eq!(child.try_wait().unwrap(), None, "it is to run for long");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let go_on = json(
            dir,
            &words(&[&["run", "--json", "--resume", &folder], isolate], &[]),
        );
        assert_eq!(go_on["digest"], due["digest"], "{folder}");
    }
}

#[test]
fn what_a_loaded_protocol_gets_wrong_in_a_run_is_named() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), quick("solo"));
    let dir = dir.path();
    let error = |args: &[&str]| {
        let done = fl(dir, args);
        assert!(!done.status.success(), "{args:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    // it writes a file, to say two things: the sandbox forbids that
    let begun = dir.join("begun");
    let kind = tallies(&format!("wrong: kind, begun: {begun:?}"));
    let here = ["--out", "kind", "--threads", "1", "--isolate=false"];
    let said = error(&words(&[&["run", &spec], &here], &kind));
    assert!(said.contains("its output is no scalar message"), "{said}");
    for (at, isolate) in ISOLATED.into_iter().enumerate() {
        let folder = format!("forgets-{at}");
        let begin = ["run", &spec, "--out", &folder, "--stop-after", "1"];
        out(dir, &words(&[&begin, isolate], &tallies("wrong: forgets")));
        let said = error(&words(&[&["run", "--resume", &folder], isolate], &[]));
        let due = "the saved state of the protocol";
        assert!(said.contains(due), "{said}");
    }
    // a process of the library that ends in the middle of a step
    let run = [
        "run",
        &spec,
        "--out",
        "abort",
        "--threads",
        "1",
        "--isolate",
    ];
    let said = error(&words(&[&run], &tallies("wrong: abort")));
    assert!(said.contains("its process was ended by signal 6"), "{said}");
}

#[test]
fn a_loaded_protocol_sees_a_clients_own_rows_alone() {
    let (dir, library) = (tempfile::tempdir().unwrap(), library::beside("fl_hostile"));
    let library = library.display().to_string();
    for (at, isolate) in ISOLATED.into_iter().enumerate() {
        let run = [
            "run",
            &quick("solo"),
            "--out",
            &format!("run-{at}"),
            "--plugin",
            &library,
        ];
        let set = ["--set", "protocol={use: misbehaves, how: looks}"];
        out(dir.path(), &words(&[&run, &set, isolate], &[]));
    }
}
