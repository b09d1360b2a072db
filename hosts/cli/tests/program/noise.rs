//! Noise of the system as a user meets it: no two runs alike, one run the same after a stop,
//! nothing left to take it off with.

use crate::common::{fails, fl, json, out, root};
use serde_json::Value;
use std::fs;
use std::path::Path;

const SYSTEM: [&str; 2] = ["--set", "noise=system"];

fn run(dir: &Path, spec: &str, to: &str, more: &[&str]) -> Value {
    let spec = root().join("specs/quick").join(spec);
    let mut args = vec!["run", spec.to_str().unwrap(), "--out", to, "--json"];
    args.extend(more);
    json(dir, &args)
}

/// What a run left that is not the same in every run: the models.
fn models(dir: &Path) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = fs::read_dir(dir.join("models"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    all.sort();
    all.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn no_two_runs_have_the_same_noise_and_all_have_the_same_digest() {
    let dir = tempfile::tempdir().unwrap();
    for spec in ["fedkd-priced.yaml", "fedkt-l1.yaml", "ds-fl.yaml"] {
        let name = |n: u32| format!("{spec}-{n}");
        let (a, b) = (
            run(dir.path(), spec, &name(1), &SYSTEM),
            run(dir.path(), spec, &name(2), &SYSTEM),
        );
        let seeded = run(dir.path(), spec, &name(3), &[]);
        assert_eq!(
            a["digest"], b["digest"],
            "it leaves out what depends on noise"
        );
        assert_ne!(a["digest"], seeded["digest"]);
        let [one, other] = [1, 2].map(|n| models(&dir.path().join(name(n))));
        assert!(one != other, "{spec}: two runs with the same noise");
        for n in [1, 2] {
            assert!(!dir.path().join(name(n)).join("noise-key").exists());
        }
        let said = |answer: &Value| answer["privacy"]["clients"]["noise"].clone();
        if said(&a).is_string() {
            assert_eq!(
                (said(&a), said(&seeded)),
                ("system".into(), "seeded".into())
            );
        }
        // the price does not know where noise comes from, unless it was worked out from the votes
        let epsilon = |answer: &Value| answer["privacy"]["readers"]["epsilon"].clone();
        assert_eq!(epsilon(&a), epsilon(&seeded), "{spec}");
    }
}

#[test]
fn a_stopped_run_goes_on_with_its_noise() {
    let dir = tempfile::tempdir().unwrap();
    let spec = root().join("specs/quick/ds-fl.yaml");
    let spec = spec.to_str().unwrap();
    let stopped = fl(
        dir.path(),
        &[
            "run",
            spec,
            "--set",
            "noise=system",
            "--out",
            "run",
            "--stop-after",
            "1",
        ],
    );
    assert!(stopped.status.success(), "{stopped:?}");
    let key = dir.path().join("run/noise-key");
    assert_eq!(fs::read(&key).unwrap().len(), 32);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(&key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "for nobody else's eyes");
    }
    // two that go on from the same place draw the same
    let copied = fs_copy(&dir.path().join("run"), &dir.path().join("copy"));
    copied.unwrap();
    // and the run does not resume with another key, or without one
    let other = dir.path().join("copy/noise-key");
    let kept = fs::read(&other).unwrap();
    for (key, said) in [
        (Some(vec![7; 32]), "is not the key of this run"),
        (None, "without the run's first key"),
    ] {
        match key {
            Some(key) => fs::write(&other, key).unwrap(),
            None => fs::remove_file(&other).unwrap(),
        }
        let (code, text) = fails(dir.path(), &["run", "--resume", "copy"]);
        assert!(code == 1 && text.contains(said), "{code} {text}");
    }
    fs::write(&other, kept).unwrap();
    for name in ["run", "copy"] {
        out(dir.path(), &["run", "--resume", name]);
        assert!(!dir.path().join(name).join("noise-key").exists());
    }
    let [one, other] = ["run", "copy"].map(|name| models(&dir.path().join(name)));
    assert!(one == other, "the same run, the same noise");
}

fn fs_copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs_copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
