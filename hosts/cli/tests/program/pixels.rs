//! Every method that works for tasks of pixels, from its spec to its measures.

use crate::common::{fl, flat, json, quick, specs};

#[test]
fn bounded_every_spec_of_segmentation_runs_and_measures_what_it_learnt() {
    let dir = tempfile::tempdir().unwrap();
    let small = "data.set={cells: {train: 24, test: 6}}";
    for spec in specs("segmentation") {
        let path = spec.display().to_string();
        let less: &[&str] = match spec.file_stem().unwrap().to_str().unwrap() {
            "fedkd" => &["protocol.local.epochs=1", "protocol.student.epochs=1"],
            "fedmd" => &["protocol.rounds=1", "protocol.warm-up.epochs=1"],
            "fedavg" => &["protocol.rounds=1"],
            "fediod" => &[
                "protocol.local.epochs=10",
                "protocol.rounds=1",
                "protocol.steps=20",
                "protocol.batch=6",
            ],
            "asyn-dgan" => &[
                "protocol={use: asyn-dgan, rounds: 1, steps: 20, l1: 10, patches: 8x8, student: {epochs: 4, batch: 8}}",
                "parts.generator.optimiser.adam.lr=0.01",
            ],
            _ => &["protocol.local.epochs=1"],
        };
        let sets = less.iter().chain([&small]).flat_map(|set| ["--set", set]);
        let run: Vec<&str> = ["run", &path, "--json"].into_iter().chain(sets).collect();
        let apart = [&run[..], &["--wire", "--threads", "1"]].concat();
        let (found, apart) = (json(dir.path(), &run), json(dir.path(), &apart));
        assert_eq!(found["digest"], apart["digest"], "{path}");
        let dice = [&found["metrics"]["dice"], &found["metrics"]["clients.dice"]];
        let dice = dice.into_iter().find_map(serde_json::Value::as_f64);
        // a network that has hardly learnt finds some of the nuclei, and not all of them
        let dice = dice.unwrap_or_else(|| panic!("{path}: {found}"));
        assert!((0.02..0.98).contains(&dice), "{path}: {dice}");
    }
}

#[test]
fn bounded_every_spec_of_reconstruction_runs_and_makes_images() {
    let dir = tempfile::tempdir().unwrap();
    let small = [
        "data.set={glyphs: {train: 60, test: 12}}",
        "data.limit={}",
        "data.split=iid",
        "data.clients=2",
    ];
    for spec in specs("reconstruction") {
        let path = spec.display().to_string();
        let less: &[&str] = match spec.file_stem().unwrap().to_str().unwrap() {
            "fedkd" => &["protocol.local.epochs=2", "protocol.student.epochs=4"],
            "fedmd" => &[
                "protocol.rounds=1",
                "protocol.warm-up.epochs=4",
                "protocol.samples=12",
            ],
            "fedavg" => &["protocol.rounds=3"],
            _ => &["protocol.local.epochs=4"],
        };
        let sets = less.iter().chain(&small).flat_map(|set| ["--set", set]);
        let run: Vec<&str> = ["run", &path, "--json"].into_iter().chain(sets).collect();
        let apart = [&run[..], &["--wire", "--threads", "1"]].concat();
        let (found, apart) = (json(dir.path(), &run), json(dir.path(), &apart));
        assert_eq!(found["digest"], apart["digest"], "{path}");
        for (name, range) in [("psnr", 5.0..30.0), ("ssim", 0.01..0.95)] {
            let of = [
                &found["metrics"][name],
                &found["metrics"][format!("clients.{name}")],
            ];
            let of = of.into_iter().find_map(serde_json::Value::as_f64);
            let of = of.unwrap_or_else(|| panic!("{path}: {found}"));
            assert!(range.contains(&of), "{path}: {name} {of}");
        }
    }
}

#[test]
fn distances_that_leave_masks_out_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let spec = quick("segmentation");
    let still = [
        "data.set={cells: {train: 24, test: 6}}",
        "protocol.rounds=1",
        "evaluate.every=1",
        "parts.model.optimiser={adam: {lr: 0.000001}}",
    ];
    let sets = still.iter().flat_map(|set| ["--set", set]);
    let run: Vec<&str> = ["run", &spec].into_iter().chain(sets).collect();
    let run = fl(dir.path(), &run);
    let said = flat(&String::from_utf8_lossy(&run.stderr));
    let note = "round 1: `hd95` is of 0.0 % of the cases only: it is not defined for the others";
    assert!(run.status.success() && said.contains(note), "{said}");
}
