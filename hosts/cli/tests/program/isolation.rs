//! Libraries in processes of their own: by default, and with `--isolate`.
#![cfg(target_os = "linux")]
use crate::common::{fails, fl, json, out, root, start};
use crate::kills::{send, until};
use crate::library;
use crate::verify::{forge, receipts};
use fl_receipts::ReceiptRecord;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A library whose parts end their process as their setting says, beside a spec.
fn hostile(dir: &Path) -> bool {
    if !library::cc() {
        return false;
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let source = root().join("hosts/cli/tests/program/hostile.c");
    let quiet = [
        "-Wno-unused-function",
        "-Wno-unused-const-variable",
        "-Wno-infinite-recursion",
        "-lm",
    ];
    let compile = |file: &str, more: &[&str]| {
        library::compile(&source, &dir.join(file), &[&quiet[..], more].concat());
    };
    compile("h.so", &["-DREACHES", "-pthread"]);
    compile("exits.so", &["-DEXITS_AT_LOAD"]);
    let role = ["-DROLE=\"privacy mechanism\"", "-DSIGNATURE=\"params\""];
    compile("p.so", &[&role[..], &["-DREACHES", "-pthread"]].concat());
    let input = r#"{"messages": [{"from": 0, "tensors": {"w": [1, 2]}}, {"from": 1, "tensors": {"w": [3, 4]}}]}"#;
    fs::write(dir.join("in.json"), input).unwrap();
    true
}

#[test]
fn parts_apart_come_to_what_parts_here_come_to() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let library = library::beside("fl_plugin_example_dynamic");
    let loaded = ["--plugin", library.to_str().unwrap()];
    let spec = root().join("specs/quick/fedavg.yaml").display().to_string();
    let digest = |name: &str, more: &[&str]| {
        let run = ["run", &spec, "--json", "--out", name];
        let parts = [
            "--set",
            "parts.aggregator={use: momentum-mean}",
            "--set",
            "parts.cohort={use: by-size, share: 0.5}",
            "--set",
            "parts.privacy={use: laplace-params, clip: 50.0, scale: 0.001}",
        ];
        json(dir, &[&run[..], &parts, &loaded, more].concat())["digest"].clone()
    };
    let here = digest("here", &["--isolate=false"]);
    assert_eq!(here, digest("apart", &[]));
    assert_eq!(here, digest("wire", &["--wire", "--threads", "1"]));
    // stopped and resumed, and set in the spec
    out(
        dir,
        &[
            &[
                "run",
                &spec,
                "--out",
                "stopped",
                "--stop-after",
                "2",
                "--isolate",
            ],
            &loaded[..],
        ]
        .concat(),
    );
    let plain = json(dir, &["run", &spec, "--json", "--out", "plain"])["digest"].clone();
    assert_eq!(
        json(dir, &["run", "--resume", "stopped", "--json"])["digest"],
        plain
    );
    let mine = format!(
        "plugins: [{{ path: {}, isolate: {{ call-seconds: 60.0 }} }}]\n",
        library.display()
    );
    fs::write(
        dir.join("mine.yaml"),
        mine + &fs::read_to_string(&spec).unwrap(),
    )
    .unwrap();
    let own = [
        "run",
        "mine.yaml",
        "--json",
        "--out",
        "own",
        "--set",
        "parts.aggregator.use=momentum-mean",
    ];
    let other = [
        &[
            "run",
            &spec,
            "--json",
            "--out",
            "other",
            "--set",
            "parts.aggregator.use=momentum-mean",
        ],
        &loaded[..],
    ]
    .concat();
    assert_eq!(json(dir, &own)["digest"], json(dir, &other)["digest"]);
    // and every property of every part
    for (part, settings) in [
        ("momentum-mean", "{}"),
        ("by-size", "{share: 0.5}"),
        ("laplace-params", "{scale: 1.0}"),
    ] {
        let kit = [
            "test",
            "--isolate",
            "--conformance",
            part,
            "--settings",
            settings,
        ];
        out(dir, &[&kit[..], &loaded].concat());
    }
}

#[test]
fn a_verifier_isolates_whatever_the_folder_says() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let text = "name: h\nplugins: [{path: h.so, isolate: false}]\ndata: {set: blobs, clients: 3}\nkeep: messages\n\
         protocol: {use: fedavg, rounds: 1}\n\
         parts: {model: {use: linear}, aggregator: {use: hostile, mode: as-it-is}}\n";
    fs::write(dir.join("h.yaml"), text).unwrap();
    out(dir, &["run", "h.yaml", "--out", "r"]);
    let folder = dir.join("r");
    let spec = fs::read_to_string(folder.join("spec.yaml")).unwrap();
    assert!(spec.contains("isolate: false"), "{spec}");
    out(dir, &["verify", "r"]);
    // another user's folder, whose library writes a file where it can
    let records = receipts(&folder);
    for isolate in ["isolate: false", "isolate: {sandbox: false}"] {
        let spec = spec.replace("mode: as-it-is", "mode: writes");
        let spec = spec.replace("isolate: false", isolate);
        fs::write(folder.join("spec.yaml"), &spec).unwrap();
        let hash = fl_files::FileHash::of(&folder.join("spec.yaml"))
            .unwrap()
            .sha256;
        let mut forged = records.clone();
        for record in &mut forged {
            match record {
                ReceiptRecord::Session(session) => session.spec.clone_from(&hash),
                ReceiptRecord::End(end) => {
                    end.files.retain(|file| file.path != "spec.yaml");
                }
                _ => {}
            }
        }
        forge(&folder, &forged);
        let (code, error) = fails(dir, &["verify", "r"]);
        assert!(
            code == 1 && error.contains("writes: Permission denied"),
            "{isolate}: {error}"
        );
        assert!(!dir.join("written").exists(), "{isolate}");
    }
    // unless the verifier says otherwise
    let (code, error) = fails(dir, &["verify", "r", "--isolate=false"]);
    assert!(code == 1 && error.contains("writes: done"), "{error}");
}

#[test]
fn what_a_library_does_to_its_process_is_an_error_of_its_part() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let spec = |isolate: &str, mode: &str| {
        let text = format!(
            "name: h\nplugins: [{{path: h.so, isolate: {isolate}}}]\ndata: {{set: blobs, clients: 3}}\n\
             protocol: {{use: fedavg, rounds: 3}}\n\
             parts: {{model: {{use: linear}}, aggregator: {{use: hostile, mode: {mode}}}}}\n"
        );
        fs::write(dir.join("h.yaml"), text).unwrap();
    };
    for (at, (mode, isolate, why)) in [
        (
            "exits",
            "{}",
            "it ended its process with exit code 0, in the middle of a call",
        ),
        (
            "crashes",
            "{}",
            "its process was ended by signal 11, in the middle of a call",
        ),
        (
            "aborts",
            "{}",
            "its process was ended by signal 6, in the middle of a call",
        ),
        (
            "overflows",
            "{}",
            "its process was ended by signal 11, in the middle of a call",
        ),
        (
            "loops",
            "{call-seconds: 1.0}",
            "its process was ended: a call took longer than 1 seconds",
        ),
        (
            "leaves",
            "{}",
            "it ended its process with exit code 0, in the middle of a call",
        ),
        (
            "loops",
            "{cpu-seconds: 1}",
            "its process was ended by signal 24, in the middle of a call",
        ),
        (
            "eats",
            "{memory-gib: 0.5}",
            "its process was ended by signal 11, in the middle of a call",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        spec(isolate, mode);
        let out = format!("{mode}-{at}");
        let (code, error) = fails(dir, &["run", "h.yaml", "--out", &out]);
        let says = format!("aggregator `hostile` from h.so: {why}");
        assert!(
            code == 1 && error.contains(&says),
            "{mode}: {code}: {error}"
        );
        let logged = error.contains("last words");
        assert_eq!(logged, mode == "aborts", "{error}");
    }
    // what it had kept is there: with another part the run goes on from its last step
    spec("{}", "crashes");
    let resume = ["run", "--resume", "crashes-1", "--json"];
    let (code, error) = fails(dir, &resume);
    assert!(code == 1 && error.contains("signal 11"), "{code}: {error}");
    let (code, error) = fails(dir, &["list", "--plugin", "exits.so", "--isolate"]);
    assert!(
        code == 3 && error.contains("it ended its process with exit code 0"),
        "{code}: {error}"
    );
    for wrong in [
        "{call-seconds: 0.0}",
        "{memory-gib: 0.0}",
        "{memory: 1}",
        "{cpu-seconds: 0}",
        "{threads: 1}",
        "5",
    ] {
        spec(wrong, "nan");
        let (code, error) = fails(dir, &["check", "h.yaml"]);
        assert!(
            code == 2 && error.contains("plugins[0].isolate"),
            "{wrong}: {code}: {error}"
        );
    }
}

/// A library reaches for what is not its own, and says what came of it.
fn reached(dir: &Path, mode: &str, isolate: &str) -> String {
    let text = format!(
        "name: h\nplugins: [{{path: h.so{isolate}}}]\ndata: {{set: blobs, clients: 3}}\n\
         protocol: {{use: fedavg, rounds: 3}}\n\
         parts: {{model: {{use: linear}}, aggregator: {{use: hostile, mode: {mode}}}}}\n"
    );
    fs::write(dir.join("h.yaml"), text).unwrap();
    let out = dir.join("reached");
    let (_, error) = fails(dir, &["run", "h.yaml", "--out", out.to_str().unwrap()]);
    // a spec that is refused makes none
    let _ = fs::remove_dir_all(out);
    error
}

/// What a library in its sandbox is refused, and the error that it gets. Outside it succeeds or
/// gets another error.
const REFUSED: &[(&str, &str)] = &[
    ("reads", "Permission denied"),
    ("reads-the-output", "No such device"),
    ("writes", "Permission denied"),
    ("writes-what-it-may-read", "Permission denied"),
    ("lists", "Permission denied"),
    ("removes", "Operation not permitted"),
    ("renames", "Operation not permitted"),
    ("makes-a-folder", "Operation not permitted"),
    ("links", "Operation not permitted"),
    ("changes-rights", "Operation not permitted"),
    ("cuts", "Operation not permitted"),
    ("connects", "Operation not permitted"),
    ("connects-here", "Operation not permitted"),
    ("netlinks", "Operation not permitted"),
    ("executes", "Operation not permitted"),
    ("runs-a-shell", "Operation not permitted"),
    ("forks-a-child", "Operation not permitted"),
    ("forks-fast", "Operation not permitted"),
    ("signals", "Operation not permitted"),
    ("signals-all", "Operation not permitted"),
    ("traces", "Operation not permitted"),
    ("looks-into-the-program", "Permission denied"),
    ("keeps-memory", "Operation not permitted"),
    ("maps-other-memory", "Operation not permitted"),
    ("asks-in-a-ring", "Operation not permitted"),
    ("raises-limits", "Operation not permitted"),
    ("cuts-the-log", "Operation not permitted"),
    ("unblocks-the-log", "Operation not permitted"),
];

#[test]
fn a_library_reaches_nothing_outside_of_its_process() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    fs::write(dir.join("secret"), "s").unwrap();
    fs::create_dir(dir.join("may")).unwrap();
    fs::write(dir.join("may/read"), "r").unwrap();
    for (mode, why) in REFUSED {
        let reads = match *mode {
            "writes-what-it-may-read" => ", isolate: {reads: [may]}",
            _ => "",
        };
        let error = reached(dir, mode, reads);
        assert!(error.contains(&format!("{mode}: {why}")), "{error}");
    }
    assert_eq!(fs::read_to_string(dir.join("secret")).unwrap(), "s");
    assert_eq!(fs::read_to_string(dir.join("may/read")).unwrap(), "r");
    for kept in ["written", "made", "linked", "taken"] {
        assert!(!dir.join(kept).exists(), "{kept}");
    }
    // what it may do, and what it is granted
    for (mode, isolate) in [
        ("begins-a-thread", ""),
        ("reads-what-it-may", ", isolate: {reads: [may]}"),
        ("reads", ", isolate: {sandbox: false}"),
        ("forks-a-child", ", isolate: {sandbox: false}"),
        ("writes", ", isolate: false"),
    ] {
        let error = reached(dir, mode, isolate);
        assert!(error.contains(&format!("{mode}: done")), "{error}");
    }
    // an aggregator may ask the program nothing
    let error = reached(dir, "asks-out-of-turn", "");
    assert!(
        error.contains("it asks in a call that nobody answers"),
        "{error}"
    );
    // what the program was begun with is not for its libraries, in a sandbox or not
    for sandbox in ["true", "false"] {
        let isolate = format!(", isolate: {{sandbox: {sandbox}}}");
        reached(dir, "has-a-file-of-the-shell", &isolate); // writes the spec
        let run = format!(
            "exec 7<secret; {} run h.yaml --out shell",
            env!("CARGO_BIN_EXE_fl")
        );
        let mut shell = Command::new("sh");
        let run = shell.args(["-c", &run]).current_dir(dir).output().unwrap();
        fs::remove_dir_all(dir.join("shell")).unwrap();
        let error = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(
            error.contains("has-a-file-of-the-shell: No such"),
            "{error}"
        );
    }
    // one that has closed its socket is not asked again
    let error = reached(dir, "closes", "");
    assert!(
        error.contains("closes: done") || error.contains("its process"),
        "{error}"
    );
}

#[test]
fn a_call_ends_in_its_time_and_a_library_with_the_program() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    // each byte comes in time, and the message does not
    let error = reached(dir, "drips", ", isolate: {call-seconds: 1.0}");
    let late = "its process was ended: a call took longer than 1 seconds";
    assert!(error.contains(late), "{error}");
    // a message of more bytes than its memory allows is not read
    let limits = ", isolate: {memory-gib: 0.5}";
    let error = reached(dir, "announces-too-much", limits);
    let long = "a message of 20971520 bytes is longer than the 8388608 that its memory allows";
    assert!(error.contains(long), "{error}");
    // threads are counted while it runs
    let error = reached(dir, "begins-many-threads", ", isolate: {threads: 20}");
    let many = "its process was ended: it has ";
    let most = "threads and may have 20; if it needs more, raise `threads` of `isolate`";
    assert!(error.contains(many) && error.contains(most), "{error}");
    // this comes back only if nobody holds the program's error output any more
    let error = reached(dir, "outlives", "");
    assert!(error.contains("outlives: done"), "{error}");
}

#[test]
fn the_first_signal_ends_a_call_that_never_ends() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let text = "name: h\nplugins: [{path: h.so}]\ndata: {set: blobs, clients: 3}\n\
         protocol: {use: fedavg, rounds: 3}\n\
         parts: {model: {use: linear}, aggregator: {use: hostile, mode: loops}}\n";
    fs::write(dir.join("h.yaml"), text).unwrap();
    let mut child = start(dir, &["run", "h.yaml", "--out", "r"]);
    until(&mut child, &dir.join("r/run.json"));
    send(&child, "-TERM");
    let ended = child.wait_with_output().unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    let late = "its process was ended: a call took longer than 2 seconds after the signal to stop";
    assert!(error.contains(late), "{error}");
    assert_eq!(ended.status.code(), Some(143), "{error}");
}

/// A call that a signal cuts off is no fault of its client: no one is left out of the step, which
/// is done again when the run goes on.
#[test]
fn a_signal_leaves_no_client_out() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let text = "name: h\nplugins: [{path: p.so, isolate: {sandbox: false}}]\n\
         data: {set: blobs, clients: 3}\nevaluate: {every: 300}\n\
         checkpoint: {every: {rounds: 20}}\nfaults: {on-error: drop}\n\
         protocol: {use: fedavg, rounds: 300}\n\
         parts: {model: {use: linear}, aggregator: {use: mean}, privacy: {use: hostile, mode: is-held}}\n";
    fs::write(dir.join("h.yaml"), text).unwrap();
    let digest = |args: &[&str]| json(dir, &[args, &["--json"]].concat())["digest"].clone();
    let whole = digest(&["run", "h.yaml", "--out", "whole"]);
    for (out, more) in [("here", &[][..]), ("apart", &["--processes", "2"])] {
        let run = ["run", "h.yaml", "--out", out, "--threads", "1"];
        let mut child = start(dir, &[&run[..], more].concat());
        until(&mut child, &dir.join(out).join("state"));
        fs::write(dir.join("hold"), "").unwrap();
        until(&mut child, &dir.join("held"));
        send(&child, "-TERM");
        let ended = child.wait_with_output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert!(error.contains("after the signal to stop"), "{error}");
        assert_eq!(ended.status.code(), Some(143), "{error}");
        assert!(!dir.join(out).join("outcome.json").exists());
        fs::remove_file(dir.join("hold")).unwrap();
        fs::remove_file(dir.join("held")).unwrap();
        assert_eq!(digest(&[&["run", "--resume", out], more].concat()), whole);
    }
}

#[test]
fn a_library_in_its_sandbox_sees_a_few_names_of_the_environment() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let seen = |isolate: &str| {
        reached(dir, "sees-the-environment", isolate); // writes the spec
        let mut run = crate::common::program();
        run.args(["run", "h.yaml", "--out", "seen"])
            .current_dir(dir);
        let run = run.env("SECRET_TOKEN", "hunter2").output().unwrap();
        fs::remove_dir_all(dir.join("seen")).unwrap();
        String::from_utf8_lossy(&run.stderr).into_owned()
    };
    let error = seen("");
    assert!(error.contains("sees-the-environment: No such"), "{error}");
    let error = seen(", isolate: {sandbox: false}");
    assert!(error.contains("sees-the-environment: done"), "{error}");
}

#[test]
fn the_flag_is_stronger_than_the_spec_and_says_what_it_overrides() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let away = tempfile::tempdir().unwrap();
    let outside = away.path().canonicalize().unwrap().display().to_string();
    let reads = format!("{{reads: [may, {outside}]}}");
    fs::create_dir(dir.join("may")).unwrap();
    fs::write(dir.join("may/read"), "r").unwrap();
    fs::write(dir.join("secret"), "s").unwrap();
    let all = "it may do all that you may do";
    for (isolate, what) in [
        ("false", format!("`isolate: false`: {all}")),
        ("{sandbox: false}", format!("`sandbox: false`: {all}")),
        (
            &*reads,
            format!("`reads` outside of the spec's folder: {outside};"),
        ),
    ] {
        let isolate = format!(", isolate: {isolate}");
        // the spec stands beside the library, and `reached` gives its errors
        let error = reached(dir, "reads", &isolate);
        let opened = error.contains("reads: done");
        assert_eq!(opened, !isolate.contains("may"), "{error}");
        assert!(error.contains(&what), "{error}");
        assert!(error.contains("; --isolate refuses that"), "{error}");
        let strict = ["run", "h.yaml", "--isolate", "--out", "strict"];
        let (_, error) = fails(dir, &strict);
        assert!(error.contains("reads: Permission denied"), "{error}");
        assert!(error.contains(&what), "{error}");
        assert!(error.contains("; --isolate overrides that"), "{error}");
        fs::remove_dir_all(dir.join("strict")).unwrap();
    }
    let error = reached(dir, "reads", ", isolate: {reads: [may, mai]}");
    assert!(
        error.contains("`isolate.reads` names ") && error.contains("/mai, and there is no such"),
        "{error}"
    );
    // what lies in the spec's folder may still be read
    reached(dir, "reads-what-it-may", &format!(", isolate: {reads}"));
    let strict = ["run", "h.yaml", "--isolate", "--out", "strict"];
    let (_, error) = fails(dir, &strict);
    assert!(error.contains("reads-what-it-may: done"), "{error}");
    fs::remove_dir_all(dir.join("strict")).unwrap();
    // processes of clients hold to it too
    for (isolate, mode, came) in [
        ("false", "reads", "reads: Permission denied"),
        ("{sandbox: false}", "reads", "reads: Permission denied"),
        (&*reads, "reads-what-it-may", "reads-what-it-may: done"),
    ] {
        let text = format!(
            "name: h\nplugins: [{{path: p.so, isolate: {isolate}}}]\n\
             data: {{set: blobs, clients: 3}}\nprotocol: {{use: fedavg, rounds: 3}}\n\
             parts: {{model: {{use: linear}}, aggregator: {{use: mean}}, privacy: {{use: hostile, mode: {mode}}}}}\n"
        );
        fs::write(dir.join("h.yaml"), text).unwrap();
        for processes in [&[][..], &["--processes", "2"]] {
            let run = [&strict[..], processes].concat();
            let (_, error) = fails(dir, &run);
            assert!(error.contains(came), "{processes:?}: {error}");
            // a run that fails in its first step leaves nothing
            let _ = fs::remove_dir_all(dir.join("strict"));
        }
    }
}

#[test]
fn an_initialiser_is_in_the_sandbox_too() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !library::cc() {
        return;
    }
    let source = root().join("hosts/cli/tests/program/hostile.c");
    let flags = ["-Wno-unused-function", "-DWRITES_AT_LOAD"];
    library::compile(&source, &dir.join("w.so"), &flags);
    let list = ["list", "aggregator", "--plugin", "w.so"];
    assert!(out(dir, &list).contains("hostile"));
    assert!(!dir.join("written").exists());
    // the user asks for it to be loaded into the program
    out(dir, &[&list[..], &["--isolate=false"]].concat());
    assert!(dir.join("written").exists());
}

/// Without a word about it in the spec.
#[test]
fn a_library_has_processes_of_its_own_unless_the_spec_or_the_user_says_otherwise() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let spec = |isolate: &str| {
        let text = format!(
            "name: h\nplugins: [{{path: h.so{isolate}}}]\ndata: {{set: blobs, clients: 3}}\n\
             protocol: {{use: fedavg, rounds: 3}}\n\
             parts: {{model: {{use: linear}}, aggregator: {{use: hostile, mode: leaves}}}}\n"
        );
        fs::write(dir.join("h.yaml"), text).unwrap();
    };
    let apart = "it ended its process with exit code 0, in the middle of a call";
    let here = "a library ended the program with exit code 0 before it was done";
    for (at, (isolate, flag, why)) in [
        ("", None, apart),
        ("", Some("--isolate"), apart),
        ("", Some("--isolate=false"), here),
        (", isolate: true", Some("--isolate=false"), apart),
        (", isolate: false", None, here),
        // the user's word counts more than the spec's
        (", isolate: false", Some("--isolate"), apart),
    ]
    .into_iter()
    .enumerate()
    {
        spec(isolate);
        let out = at.to_string();
        let args: Vec<&str> = ["run", "h.yaml", "--out", &out]
            .into_iter()
            .chain(flag)
            .collect();
        let (code, error) = fails(dir, &args);
        assert!(
            code == 1 && error.contains(why),
            "{isolate} {flag:?}: {code}: {error}"
        );
    }
}

/// What a setting asks for and the sandbox refuses is said before the run.
#[test]
fn fl_check_says_which_settings_need_more_than_the_sandbox_gives() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let source = root().join("hosts/cli/tests/program/hostile.c");
    let setting = r#"-DSETTING="{\"name\": \"device\", \"doc\": \"Where.\", \"schema\": {\"type\": \"string\", \"default\": \"cpu\"}}""#;
    let flags = [setting, "-Wno-unused-function", "-lm"];
    library::compile(&source, &dir.join("card.so"), &flags);
    fs::create_dir(dir.join("may")).unwrap();
    fs::write(dir.join("may/read"), "r").unwrap();
    let noted = |library: &str, isolate: &str, setting: &str| {
        let text = format!(
            "name: h\nplugins: [{{path: {library}{isolate}}}]\ndata: {{set: blobs, clients: 3}}\n\
             protocol: {{use: fedavg, rounds: 3}}\n\
             parts: {{model: {{use: linear}}, aggregator: {{use: hostile{setting}}}}}\n"
        );
        fs::write(dir.join("h.yaml"), text).unwrap();
        let output = fl(dir, &["check", "h.yaml"]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{text}");
        text
    };
    let card = noted("card.so", "", ", device: cuda");
    let advice = "`device` is `cuda`, and the sandbox of its library refuses devices; write `isolate: { sandbox: false }`";
    assert!(card.contains(advice), "{card}");
    let file = noted("h.so", "", ", mode: may/read");
    let (advice, place) = (
        "`mode` names a file, which the sandbox of its library keeps it from reading; write `isolate: { reads: [",
        dir.canonicalize().unwrap().join("may/read"),
    );
    let place = place.display().to_string();
    assert!(file.contains(advice) && file.contains(&place), "{file}");
    for (library, isolate, setting) in [
        ("card.so", "", ", device: cpu"),
        ("card.so", ", isolate: {sandbox: false}", ", device: cuda"),
        ("card.so", ", isolate: false", ", device: cuda"),
        ("h.so", ", isolate: {reads: [may]}", ", mode: may/read"),
        ("h.so", "", ", mode: may"),
    ] {
        let text = noted(library, isolate, setting);
        let refused = text.contains("the sandbox of its library");
        assert!(!refused, "{isolate} {setting}: {text}");
    }
}

#[test]
fn a_client_whose_part_crashes_is_dropped_and_the_others_go_on() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let text = "name: h\nplugins: [{path: p.so, isolate: {}}]\ndata: {set: blobs, clients: 4}\n\
        protocol: {use: fedavg, rounds: 3}\nfaults: {on-error: drop}\n\
        parts:\n  model: {use: linear}\n  aggregator: {use: mean}\n\
        \x20 privacy: [{use: hostile, mode: crashes, clients: 2}, {use: gaussian-update, clip: 100.0, noise-multiplier: 1.0e-6}]\n";
    fs::write(dir.join("h.yaml"), text).unwrap();
    let run = json(dir, &["run", "h.yaml", "--json", "--out", "r"]);
    assert!(run["metrics"]["accuracy"].as_f64().unwrap() > 0.5, "{run}");
    let journal = fs::read_to_string(dir.join("r/journal.jsonl")).unwrap();
    // what it had kept is gone with its process, so it stays out
    assert_eq!(
        journal.matches("\"dropped\":[[2,\"").count(),
        3,
        "{journal}"
    );
    assert!(journal.contains("signal 11"), "{journal}");
}

/// It holds the loader's lock, which a thread needs that begins.
#[test]
fn a_library_that_hangs_while_it_is_loaded_does_not_outlive_the_program() {
    use std::io::{BufRead, BufReader};
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !library::cc() {
        return;
    }
    let source = root().join("hosts/cli/tests/program/hostile.c");
    let flags = ["-Wno-unused-function", "-Wno-unused-const-variable", "-lm"];
    let hangs = [&flags[..], &["-Wno-infinite-recursion", "-DHANGS_AT_LOAD"]].concat();
    library::compile(&source, &dir.join("hangs.so"), &hangs);
    let forks = [&hangs[..], &["-DFORKS_FIRST"]].concat();
    library::compile(&source, &dir.join("forks.so"), &forks);
    // outside of a sandbox it may begin a process, which ends too
    let spec = "name: h\nplugins: [{path: forks.so, isolate: {sandbox: false}}]\n";
    fs::write(dir.join("forks.yaml"), spec).unwrap();
    let commands: [&[&str]; 2] = [&["list", "--plugin", "hangs.so"], &["check", "forks.yaml"]];
    for command in commands.repeat(10) {
        let mut child = start(dir, command);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "begun");
        child.kill().unwrap();
        child.wait().unwrap();
        // open as long as a process of the library lives
        assert!(lines.next().is_none(), "it was not ended");
    }
    let spec = "name: h\nplugins: [{path: hangs.so, isolate: {call-seconds: 0.5}}]\n";
    fs::write(dir.join("h.yaml"), spec).unwrap();
    let (code, error) = fails(dir, &["check", "h.yaml"]);
    assert!(
        code == 3 && error.contains("a call took longer than 0.5 seconds"),
        "{code}: {error}"
    );
}
