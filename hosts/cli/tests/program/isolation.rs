//! `--isolate`: libraries in processes of their own.
#![cfg(target_os = "linux")]
use crate::common::{fails, json, out, root, start};
use crate::library;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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
    compile("h.so", &[]);
    compile("exits.so", &["-DEXITS_AT_LOAD"]);
    let role = ["-DROLE=\"privacy mechanism\"", "-DSIGNATURE=\"params\""];
    compile("p.so", &role);
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
    let here = digest("here", &[]);
    assert_eq!(here, digest("apart", &["--isolate"]));
    assert_eq!(
        here,
        digest("wire", &["--isolate", "--wire", "--threads", "1"])
    );
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
fn what_a_library_does_to_its_process_is_an_error_of_its_part() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let spec = |isolate: &str, mode: &str| {
        let text = format!(
            "name: h\nplugins: [{{path: h.so, isolate: {isolate}}}]\ndata: {{set: blobs, clients: 3}}\n\
             protocol: {{use: param-rounds, rounds: 3}}\n\
             parts: {{model: {{use: linear}}, aggregator: {{use: hostile, mode: {mode}}}}}\n"
        );
        fs::write(dir.join("h.yaml"), text).unwrap();
    };
    for (mode, isolate, why) in [
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
            "eats",
            "{memory-gib: 0.5}",
            "its process was ended by signal 11, in the middle of a call",
        ),
    ] {
        spec(isolate, mode);
        let (code, error) = fails(dir, &["run", "h.yaml", "--out", mode]);
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
    let resume = ["run", "--resume", "crashes", "--json"];
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

#[test]
fn a_client_whose_part_crashes_is_dropped_and_the_others_go_on() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !hostile(dir) {
        return;
    }
    let text = "name: h\nplugins: [{path: p.so, isolate: {}}]\ndata: {set: blobs, clients: 4}\n\
        protocol: {use: param-rounds, rounds: 3}\nfaults: {on-error: drop}\n\
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
    use std::io::Read;
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    if !library::cc() {
        return;
    }
    let source = root().join("hosts/cli/tests/program/hostile.c");
    let flags = ["-Wno-unused-function", "-Wno-unused-const-variable", "-lm"];
    let hangs = [&flags[..], &["-Wno-infinite-recursion", "-DHANGS_AT_LOAD"]].concat();
    library::compile(&source, &dir.join("hangs.so"), &hangs);
    for _ in 0..10 {
        let args = ["list", "--plugin", "hangs.so", "--isolate"];
        let mut child = start(dir, &args);
        while !dir.join("begun").exists() {
            assert_eq!(child.try_wait().unwrap(), None, "it is to hang");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // open as long as a process of the library lives
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        fs::remove_file(dir.join("begun")).unwrap();
        assert!(!dir.join("outlived").exists(), "{said}");
    }
}
