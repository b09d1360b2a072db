//! `fl export`, `fl completions`, `fl man`, `--quiet` and `--log`.
use crate::common::{fails, fl, out, root};
use std::fs;

fn spec(name: &str) -> String {
    root()
        .join(format!("specs/quick/{name}.yaml"))
        .display()
        .to_string()
}

#[test]
fn measurements_and_models_go_to_other_tools() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    out(dir.path(), &["run", &spec("fedavg"), "--out", "linear"]);
    out(dir.path(), &["run", &spec("fedkd"), "--out", "nets"]);
    out(dir.path(), &["run", &spec("fesem"), "--out", "centres"]);
    let args = [
        "export",
        "linear",
        "nets",
        "centres",
        "--csv",
        "m.csv",
        "--tensorboard",
        "tb",
        "--safetensors",
        "st",
    ];
    let written = out(dir.path(), &args);

    let csv = fs::read_to_string(at("m.csv")).unwrap();
    let metrics = fs::read_to_string(at("nets/metrics.jsonl")).unwrap();
    let line = metrics
        .lines()
        .find(|l| l.contains("clients.accuracy"))
        .unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    for (client, value) in line["each"].as_array().unwrap().iter().enumerate() {
        let row = format!("nets,teachers,0,clients.accuracy,{client},{value},,");
        assert!(csv.lines().any(|l| l == row), "{row} is not in\n{csv}");
    }

    // records: length, its sum, content, its sum
    let events = written
        .lines()
        .find(|l| l.starts_with("tb/linear/events.out.tfevents."))
        .unwrap();
    let bytes = fs::read(at(events)).unwrap();
    let (mut rest, mut contents) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        contents.push(&rest[12..12 + length]);
        rest = &rest[16 + length..];
    }
    assert!(contents[0].ends_with(b"\x1a\x0dbrain.Event:2"));
    let measured = fs::read_to_string(at("linear/metrics.jsonl")).unwrap();
    let costs = fs::read_to_string(at("linear/costs.jsonl")).unwrap();
    let spreads = measured.lines().filter(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["std"].is_f64()
    });
    // bytes up and down after each step; there is no accountant
    let expected = 1 + measured.lines().count() + spreads.count() + 2 * costs.lines().count();
    assert_eq!(contents.len(), expected);
    // the sum that TensorBoard checks of eight bytes 24, 0, ..: taken from one of its own files
    assert_eq!(&bytes[..8], &24_u64.to_le_bytes());
    assert_eq!(&bytes[8..12], &[0xa3, 0x7f, 0x4b, 0x22]);

    for (file, tensor) in [
        ("st/linear/model.safetensors", "weight"),
        ("st/nets/student.safetensors", "0."),
        ("st/centres/centre-0.safetensors", "weight"),
        ("st/centres/centre-1.safetensors", "weight"),
    ] {
        let bytes = fs::read(at(file)).unwrap();
        let names: Vec<String> = safetensors(&bytes);
        assert!(
            names.iter().any(|n| n.contains(tensor)),
            "{file}: {names:?}"
        );
    }
    let (code, error) = fails(dir.path(), &["export", "linear"]);
    assert!(code == 2 && error.contains("--csv"), "{error}");
}

/// Names of the tensors of a safetensors file: its head is JSON.
#[test]
#[cfg(unix)]
fn what_is_written_stands_where_a_name_leads() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    out(dir.path(), &["run", &spec("fedavg"), "--out", "r"]);
    // a link stays one, and the file it leads to its mode
    fs::write(at("real.csv"), "").unwrap();
    fs::set_permissions(at("real.csv"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real.csv", at("link.csv")).unwrap();
    out(dir.path(), &["export", "r", "--csv", "link.csv"]);
    let real = fs::read_to_string(at("real.csv")).unwrap();
    assert!(
        real.contains("accuracy") && at("link.csv").is_symlink(),
        "{real}"
    );
    let mode = at("real.csv").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    // a pipe stays one, and its reader gets all of it
    let made = std::process::Command::new("mkfifo")
        .arg(at("pipe"))
        .status();
    if made.is_ok_and(|status| status.success()) {
        let pipe = at("pipe");
        let reader = std::thread::spawn(move || fs::read_to_string(pipe).unwrap());
        out(dir.path(), &["export", "r", "--csv", "pipe"]);
        assert_eq!(reader.join().unwrap(), real);
    }
    // what is no page is not replaced by one
    let spec = fs::read_to_string(at("r/spec.yaml")).unwrap();
    let (code, error) = fails(dir.path(), &["report", "r", "--out", "r/spec.yaml"]);
    assert!(
        code == 2 && error.contains("exists and is no page"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(at("r/spec.yaml")).unwrap(), spec);
    out(dir.path(), &["report", "r", "--out", "p.html"]);
    out(dir.path(), &["report", "r", "--out", "p.html"]);
}

fn safetensors(bytes: &[u8]) -> Vec<String> {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let head: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    head.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn quiet_says_errors_only_and_a_log_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    // it has something to say
    let run = [
        "run",
        &spec("fedkd"),
        "--out",
        "r",
        "--quiet",
        "--log",
        "log.txt",
    ];
    let done = fl(dir.path(), &run);
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    let log = fs::read_to_string(dir.path().join("log.txt")).unwrap();
    assert!(
        log.contains("Z note: 1 release is not accounted for") && log.contains("Z quick-fedkd: "),
        "{log}"
    );
    let stopped = fl(
        dir.path(),
        &["run", &spec("fedavg"), "--quiet", "--stop-after", "2"],
    );
    let [said, summary] = [stopped.stderr, stopped.stdout].map(|s| String::from_utf8(s).unwrap());
    assert!(
        said.starts_with("stopped after round 2; resume with: ") && said.lines().count() == 1,
        "{said}"
    );
    assert!(
        summary
            .lines()
            .next()
            .unwrap()
            .contains(", stopped after round 2, "),
        "{summary}"
    );
    let (code, error) = fails(dir.path(), &["--quiet", "run", "none.yaml"]);
    assert!(code == 2 && error.contains("none.yaml"), "{error}");
    if std::path::Path::new("/dev/full").exists() {
        let full = [
            "run",
            &spec("fedavg"),
            "--out",
            "full",
            "--log",
            "/dev/full",
        ];
        let done = fl(dir.path(), &full);
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success());
        assert_eq!(said.matches("note: --log: ").count(), 1, "{said}");
    }
}

#[test]
fn a_log_and_an_export_replace_no_file_of_another_kind() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::copy(spec("fedavg"), at("s.yaml")).unwrap();
    fs::write(at("people.csv"), "age,label\n3,1\n").unwrap();
    let before = fs::read(at("s.yaml")).unwrap();
    let (_, error) = fails(
        dir.path(),
        &["run", "s.yaml", "--log", "s.yaml", "--out", "r"],
    );
    assert!(
        error.contains("it has other lines than those of a log"),
        "{error}"
    );
    assert_eq!(fs::read(at("s.yaml")).unwrap(), before);
    for _ in 0..2 {
        out(dir.path(), &["check", "s.yaml", "--log", "log.txt"]);
    }
    out(dir.path(), &["run", "s.yaml", "--out", "r"]);
    let (code, error) = fails(dir.path(), &["export", "r", "--csv", "people.csv"]);
    assert!(
        code == 2 && error.contains("other columns than an export"),
        "{error}"
    );
    assert_eq!(
        fs::read_to_string(at("people.csv")).unwrap(),
        "age,label\n3,1\n"
    );
    for _ in 0..2 {
        out(dir.path(), &["export", "r", "--csv", "m.csv"]);
    }
}

#[test]
fn a_measurement_or_an_epsilon_that_one_run_lacks_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for (name, of) in [("a", "fedavg"), ("b", "fedavg"), ("dp", "dp-sgd")] {
        out(dir.path(), &["run", &spec(of), "--out", name]);
    }
    out(dir.path(), &["compare", "a", "b"]);
    let file = dir.path().join("b/metrics.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    fs::write(&file, rest).unwrap();
    let differ = fl(dir.path(), &["compare", "a", "b"]);
    let said = String::from_utf8(differ.stdout).unwrap();
    assert_eq!(differ.status.code(), Some(1), "{said}");
    assert!(said.contains(" steps, and in one run alone in 1"), "{said}");
    fs::remove_file(dir.path().join("dp/costs.jsonl")).unwrap();
    let said = fl(dir.path(), &["export", "dp", "--csv", "dp.csv"]).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(
        said.contains("There is no costs.jsonl, so epsilons by step are missing"),
        "{said}"
    );
}

#[test]
fn the_values_of_a_summary_stand_in_one_column_whatever_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let own = "data.test={own: 0.3}";
    let said = out(dir.path(), &["run", &spec("fedavg"), "--set", own]);
    let longest = said
        .lines()
        .skip(1)
        .filter_map(|l| l.split_whitespace().next());
    assert!(longest.map(str::len).max() > Some(20), "{said}");
    let digest = said.lines().find(|line| line.starts_with("  digest"));
    let column = digest.and_then(|line| line.rfind(' ')).unwrap();
    for line in said.lines().skip(1) {
        let (name, value) = line.split_at(column + 1);
        assert!(name.ends_with(' ') && !value.starts_with(' '), "{said}");
    }
}

#[test]
fn shells_and_man_know_every_command() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = out(dir.path(), &["completions", shell]);
        assert!(
            ["run", "study", "compare"]
                .iter()
                .all(|c| script.contains(c)),
            "{shell}"
        );
    }
    out(dir.path(), &["man", "pages"]);
    for page in ["fl.1", "fl-run.1", "fl-study.1"] {
        assert!(dir.path().join("pages").join(page).exists(), "{page}");
    }
}
