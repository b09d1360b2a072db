//! Sameness: the same spec and seed give the same digest for any number of threads, again, and
//! after a stop.

use crate::common::{alike_in_five_ways, fails, fl, json, out, quick, root, shorter, specs, whole};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

fn digest(dir: &Path, args: &[&str]) -> String {
    json(dir, args)["digest"]
        .as_str()
        .expect("a digest")
        .to_string()
}

/// Runs `spec` into the folder `out` below `dir`.
fn run(dir: &Path, spec: &str, out: &str, more: &[&str]) -> String {
    digest(
        dir,
        &[&["run", spec, "--json", "--out", out], more].concat(),
    )
}

#[test]
fn exact_threads_and_repetition_change_nothing() {
    for spec in specs("quick") {
        let dir = tempfile::tempdir().unwrap();
        let (whole, spec) = (whole(&spec), shorter(dir.path(), &spec));
        let one = whole.digest();
        for (out, threads, more) in [
            ("two", "2", &[][..]),
            // one client at work, and what clients keep on the disk
            ("three", "3", &["--memory", "1MiB"]),
        ] {
            assert_eq!(
                run(
                    dir.path(),
                    &spec,
                    out,
                    &[&["--threads", threads], more].concat()
                ),
                one,
                "{spec} on {threads} threads"
            );
            for file in ["journal.jsonl", "metrics.jsonl", "costs.jsonl", "spec.yaml"] {
                let of_it = fs::read_to_string(dir.path().join(out).join(file)).unwrap();
                assert!(
                    of_it == whole.read(file),
                    "{spec}: {file} differs on {threads} threads"
                );
            }
        }
        // every message through its wire form, every client made anew from its saved state before
        // each question
        assert_eq!(
            run(dir.path(), &spec, "wire", &["--wire"]),
            one,
            "{spec} over the wire"
        );
        let other = run(dir.path(), &spec, "other", &["--set", "seed=99"]);
        assert_ne!(other, one, "{spec}: another seed is another run");
    }
}

#[test]
fn exact_splits_noise_and_resized_images_have_one_digest_in_five_ways() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let spec = quick("fedavg");
    let mut digests = BTreeSet::new();
    let mut check = |spec: &str, sets: &[&str]| {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let spec: Vec<&str> = [spec].into_iter().chain(sets).collect();
        let plain = alike_in_five_ways(dir, &spec, "2");
        assert!(digests.insert(plain["digest"].to_string()), "{spec:?}");
    };
    check(&spec, &["data.split={shards: 2}"]);
    for noise in ["variance", "deviation"] {
        let noise = format!("data.feature-noise={{{noise}: 0.3}}");
        check(&spec, &["data.split={shards: 2}", &noise]);
    }
    // JPEG and PNG, grey and in colour, of four sizes
    let samples = root().join("tests/fuzz/corpus/images");
    for (class, names) in [
        ("cat", ["grey.jpg", "grey.png", "grey16.png"]),
        ("dog", ["palette.png", "rgb.png", "rgba.png"]),
    ] {
        let folder = dir.join("images").join(class);
        fs::create_dir_all(&folder).unwrap();
        for name in names {
            fs::copy(samples.join(name), folder.join(name)).unwrap();
        }
    }
    let images = |by: &str, colours: &str| {
        let how = format!("resize: {{height: 3, width: 2, by: {by}}}, colours: {colours}");
        let path = dir.join("images").display().to_string();
        format!(
            "{{files: {{format: {{images: {{{how}}}}}, train: {path}, test: {path}, classes: [cat, dog]}}}}"
        )
    };
    for (by, colours) in [("crop", "grey"), ("stretch", "grey"), ("crop", "rgb")] {
        let set = format!("data.set={}", images(by, colours));
        check(&spec, &[&set, "data.clients=2", "data.split=iid"]);
    }
}

#[test]
fn a_limit_on_memory_that_cannot_be_kept_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let said = |out: &str, memory: &str| {
        let spec = quick("fedavg");
        let done = fl(
            dir.path(),
            &["run", &spec, "--out", out, "--memory", memory],
        );
        assert!(done.status.success());
        let said = String::from_utf8(done.stderr).unwrap();
        let of_it = |line: &&str| line.contains("with one client at work");
        said.lines().filter(of_it).map(String::from).collect()
    };
    let notes: Vec<String> = said("tight", "1MiB");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("above the limit of 1.0 MiB"), "{notes:?}");
    assert_eq!(said("wide", "64GiB"), Vec::<String>::new());
    // the report says nothing of the machine
    let notes = |out: &str| fs::read_to_string(dir.path().join(out).join("report.md")).unwrap();
    assert!(!notes("tight").contains("one client at work"));
}

/// Runs `spec` into `folder`, with a stop after each of these steps; the last call is to end the
/// run.
fn in_pieces(dir: &Path, spec: &str, folder: &str, stops: &[u64], steps: u64) -> String {
    let mut from = vec!["run", spec, "--out", folder];
    for stop in stops {
        let at = stop.to_string();
        let more = ["--json", "--stop-after", &at, "--threads", "3"];
        let stopped = json(dir, &[&from[..], &more].concat());
        assert!(
            stopped["stopped"].is_string(),
            "{spec} stopped after {stop} of {steps}: {stopped}"
        );
        from = vec!["run", "--resume", folder];
    }
    // a run that would stop where it ends, ends
    let at = steps.to_string();
    let more = ["--json", "--stop-after", &at, "--threads", "2"];
    let ended = json(dir, &[&from[..], &more].concat());
    assert!(ended["stopped"].is_null(), "{spec}: {ended}");
    ended["digest"].as_str().unwrap().into()
}

#[test]
fn exact_a_run_that_was_stopped_anywhere_ends_as_if_it_had_not() {
    for spec in specs("quick") {
        let dir = tempfile::tempdir().unwrap();
        let (whole, spec) = (whole(&spec), shorter(dir.path(), &spec));
        let steps = whole.outcome["rounds"].as_u64().unwrap();
        let every: Vec<u64> = (1..steps).collect();
        let middle: Vec<u64> = every.get(every.len() / 2).into_iter().copied().collect();
        for (folder, stops) in [("every", every), ("middle", middle)] {
            let pieces = in_pieces(dir.path(), &spec, folder, &stops, steps);
            assert_eq!(whole.digest(), pieces, "{spec}, stopped after {stops:?}");
            for file in ["journal.jsonl", "metrics.jsonl", "costs.jsonl"] {
                assert_eq!(
                    fs::read_to_string(dir.path().join(folder).join(file)).unwrap(),
                    whole.read(file),
                    "{spec}: {file} after stops at {stops:?}"
                );
            }
        }
    }
}

#[test]
fn a_run_can_stop_twice_and_a_done_run_cannot_go_on() {
    let (dir, spec) = (
        tempfile::tempdir().unwrap(),
        root().join("specs/quick/fedavg.yaml").display().to_string(),
    );
    let whole = run(dir.path(), &spec, "whole", &[]);
    out(
        dir.path(),
        &["run", &spec, "--out", "r", "--stop-after", "1"],
    );
    out(dir.path(), &["run", "--resume", "r", "--stop-after", "3"]);
    assert_eq!(
        digest(dir.path(), &["run", "--resume", "r", "--json"]),
        whole
    );
    let (code, error) = fails(dir.path(), &["run", "--resume", "r"]);
    assert_eq!(
        (code, error.contains("the run in r is done")),
        (1, true),
        "{error}"
    );
}

#[test]
fn a_damaged_or_changed_run_folder_is_refused() {
    let (dir, spec) = (
        tempfile::tempdir().unwrap(),
        root().join("specs/quick/fedavg.yaml").display().to_string(),
    );
    out(
        dir.path(),
        &["run", &spec, "--out", "r", "--stop-after", "2"],
    );
    let state = dir.path().join("r/state");
    let good = fs::read(&state).unwrap();
    for cut in [0, 20, good.len() / 2, good.len() - 1] {
        fs::write(&state, &good[..cut]).unwrap();
        let (code, error) = fails(dir.path(), &["run", "--resume", "r"]);
        assert!(
            code == 1 && (error.contains("damaged") || error.contains("cut short")),
            "{cut}: {error}"
        );
    }
    fs::write(&state, &good).unwrap();
    let file = dir.path().join("r/spec.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("rounds: 5", "rounds: 6")).unwrap();
    let (_, error) = fails(dir.path(), &["run", "--resume", "r"]);
    assert!(error.contains("has changed since the run began"), "{error}");
}

#[test]
fn the_resolved_spec_is_the_same_run() {
    for spec in specs("quick") {
        let dir = tempfile::tempdir().unwrap();
        let first = whole(&spec);
        fs::write(dir.path().join("first.yaml"), first.read("spec.yaml")).unwrap();
        let second = run(dir.path(), "first.yaml", "second", &[]);
        assert_eq!(second, first.digest(), "{}", spec.display());
    }
}

#[test]
fn every_full_size_spec_is_right() {
    let folders = fs::read_dir(root().join("specs"))
        .unwrap()
        .map(|e| e.unwrap().path())
        // a study is no spec, and neither is the book
        .filter(|p| p.is_dir() && !p.ends_with("studies") && !p.ends_with("book"));
    let mut checked = 0;
    for folder in folders {
        for spec in specs(&folder.file_name().unwrap().to_string_lossy()) {
            // the model that another run keeps is not there yet
            let from_run = fs::read_to_string(&spec).unwrap().contains("initial:");
            let set: &[&str] = if from_run {
                &["--set", "protocol.initial=null"]
            } else {
                &[]
            };
            let spec = spec.display().to_string();
            out(&root(), &[&["check", &spec], set].concat());
            checked += 1;
        }
    }
    assert!(checked > 5, "only {checked} specs");
}

#[test]
fn a_spec_without_its_data_is_fine_and_the_data_are_noted() {
    let dir = tempfile::tempdir().unwrap();
    let check = |spec: &str| {
        let spec = root().join("specs").join(spec).display().to_string();
        let done = crate::common::program()
            .args(["check", &spec])
            .env("FL_DATA_DIR", dir.path())
            .output()
            .unwrap();
        assert!(done.status.success());
        assert!(
            String::from_utf8(done.stdout)
                .unwrap()
                .ends_with(": fine\n")
        );
        String::from_utf8(done.stderr).unwrap()
    };
    let note = check("fedkd/cifar10.yaml");
    assert!(
        note.contains("note: ") && note.contains("there is no"),
        "{note}"
    );
    assert_eq!(check("quick/fedkd.yaml"), "");
}

#[test]
fn what_a_plan_foretells_is_what_is_sent() {
    for spec in specs("quick") {
        let dir = tempfile::tempdir().unwrap();
        let (whole, spec) = (whole(&spec), shorter(dir.path(), &spec));
        let plan = json(dir.path(), &["plan", &spec, "--json"]);
        let mut sent: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
        for line in whole.read("journal.jsonl").lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let total = |side: &str| {
                line[side]["values"].as_u64().unwrap() + line[side]["keys"].as_u64().unwrap()
            };
            let sums = sent
                .entry(line["question"].as_str().unwrap().into())
                .or_default();
            *sums = (
                sums.0 + 1,
                sums.1 + total("bytes_down"),
                sums.2 + total("bytes_up"),
            );
        }
        let planned: Vec<&str> = plan["questions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|q| q["question"].as_str().unwrap())
            .collect();
        assert!(
            sent.keys().all(|q| planned.contains(&q.as_str())),
            "{spec}: asked {:?}, planned {planned:?}",
            sent.keys()
        );
        for q in plan["questions"].as_array().unwrap() {
            let Some((times, down, up)) = sent.get(q["question"].as_str().unwrap()) else {
                continue;
            };
            assert_eq!(*times, q["times"].as_u64().unwrap(), "{spec}: {q}");
            let most = |side: &str| {
                q[side]["bytes"]
                    .as_u64()
                    .map(|b| b * times * q["clients"].as_u64().unwrap())
            };
            assert!(
                most("down").is_none_or(|m| *down <= m) && most("up").is_none_or(|m| *up <= m),
                "{spec}: {down} down, {up} up, planned {q}"
            );
        }
    }
}

#[test]
fn nothing_is_overwritten() {
    let (dir, spec) = (
        tempfile::tempdir().unwrap(),
        root().join("specs/quick/solo.yaml").display().to_string(),
    );
    out(dir.path(), &["run", &spec, "--out", "r"]);
    let (code, error) = fails(dir.path(), &["run", &spec, "--out", "r"]);
    assert!(code != 0 && error.contains("not empty"), "{error}");
    out(dir.path(), &["run", &spec]);
    out(dir.path(), &["run", &spec]);
    assert!(
        dir.path().join("runs/quick-solo-1/report.md").exists()
            && dir.path().join("runs/quick-solo-2/report.md").exists()
    );
    assert!(
        fl(dir.path(), &["run", &spec, "--out", "/proc/nowhere"])
            .status
            .code()
            == Some(1)
    );
}

/// Every `use` of a spec, at any depth.
fn uses(value: &serde_yaml::Value, found: &mut BTreeSet<String>) {
    match value {
        serde_yaml::Value::Mapping(map) => {
            for (key, value) in map {
                match (key.as_str(), value.as_str()) {
                    (Some("use"), Some(part)) => _ = found.insert(part.into()),
                    _ => uses(value, found),
                }
            }
        }
        serde_yaml::Value::Sequence(all) => all.iter().for_each(|value| uses(value, found)),
        _ => {}
    }
}

#[test]
fn exact_quick_digests_are_the_committed_ones() {
    let path = root().join("specs/quick/digests.txt");
    let mut now = "# The digest, protocol, parts and data set of each quick spec. Studies tell by them whether\n# another program made a result. FL_UPDATE=1 cargo test -p fl-cli --test program quick_digests\n".to_string();
    for spec in specs("quick") {
        let dir = tempfile::tempdir().unwrap();
        let digest = run(dir.path(), &spec.display().to_string(), "run", &[]);
        let resolved = fs::read_to_string(dir.path().join("run/spec.yaml")).unwrap();
        let resolved: serde_yaml::Value = serde_yaml::from_str(&resolved).unwrap();
        // of several stages the first
        let first = resolved
            .get("stages")
            .map_or(&resolved, |stages| &stages[0]);
        let protocol = first["protocol"]["use"].as_str().unwrap();
        let mut parts = BTreeSet::new();
        uses(&resolved, &mut parts);
        parts.remove(protocol);
        let set = &resolved["data"]["set"];
        let set = set
            .as_str()
            .or_else(|| set.as_mapping()?.keys().next()?.as_str());
        parts.extend(set.map(String::from));
        let parts = Vec::from_iter(parts).join(" ");
        let name = spec.file_stem().unwrap().to_str().unwrap();
        now += &format!("{name} {digest} {protocol} {parts}\n");
    }
    if std::env::var_os("FL_UPDATE").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let held = fs::read_to_string(&path).unwrap();
    let other = now
        .lines()
        .zip(held.lines())
        .find(|(now, held)| now != held);
    assert!(
        now == held,
        "the first of other digests: {other:?}; is that meant? CONTRIBUTING.md (Digests) says what to do"
    );
}
