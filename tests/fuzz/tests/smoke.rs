//! Each target over its corpus, and over a few mutations of it: always the same ones.

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
    for file in files {
        (target.run)(&file);
        for seed in 0..target.mutations {
            (target.run)(&mutated(&file, seed));
        }
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
