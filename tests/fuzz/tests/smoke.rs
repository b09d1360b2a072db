//! Each target over its corpus, and over a few mutations of it: always the same ones.
//! `FL_MUTATIONS=100000` tries so many of each file.

use fl_fuzz::{TARGETS, mutated};
use std::path::Path;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |path| std::fs::read(path).unwrap();
    files.into_iter().map(read).collect()
}

fn smoke(name: &str) {
    let target = TARGETS.iter().find(|t| t.name == name).expect("a target");
    let files = corpus(name);
    assert!(!files.is_empty(), "{name} has no corpus");
    let wanted = std::env::var("FL_MUTATIONS").ok();
    let wanted = wanted.map(|n| n.parse().expect("FL_MUTATIONS is a number"));
    for (at, file) in files.iter().enumerate() {
        (target.run)(file);
        for seed in 0..wanted.unwrap_or(target.mutations) {
            let tried = Tried(name, at, seed);
            (target.run)(&mutated(file, seed));
            std::mem::forget(tried);
        }
    }
}

/// Says which input a target fails with: its name, the number of its file, and the seed.
struct Tried<'n>(&'n str, usize, u64);

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        let Self(name, at, seed) = self;
        eprintln!("{name}: file {at}, seed {seed}");
    }
}

macro_rules! smoke {
    ($($test:ident => $name:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            smoke($name);
        })*

        #[test]
        fn every_target_has_a_test_and_a_line_for_the_fuzzer() {
            let tested = [$($name),*];
            let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
            assert_eq!(names, tested);
            let manifest = include_str!("../../../fuzz/Cargo.toml");
            for name in names {
                let line = format!("name = \"{name}\"");
                assert!(manifest.contains(&line), "fuzz/Cargo.toml has no {line}");
            }
        }
    };
}

smoke! {
    spec => "spec",
    wire => "wire",
    csv => "csv",
    jsonl => "jsonl",
    leaf => "leaf",
    libsvm => "libsvm",
    npy => "npy",
    npz => "npz",
    idx => "idx",
    images => "images",
    parquet => "parquet",
    archive => "archive",
    published => "published",
    checkpoint => "checkpoint",
    report => "report",
    description => "description",
    answers => "answers",
    calls => "calls",
    protocols => "protocols",
    trial => "try",
}
