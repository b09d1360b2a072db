//! What is fed with anything at all. Each target takes bytes and must return, whatever they are: it
//! panics on a mistake in the program, such as numbers that are not finite where the program
//! promises that they are.
//!
//! `fuzz/` runs them under libFuzzer (`tests/bench/fuzz.sh`); the smoke test runs each over its
//! corpus and some mutations.

mod bytes;
mod data;
mod folder;
mod host;
mod library;
mod mutate;
mod protocol;
mod spec;
mod trial;
mod wire;

pub use mutate::mutated;

/// Something to be fed.
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Feeds it.
    pub run: fn(&[u8]),
    /// How many mutations of each file of its corpus the smoke test tries: as many as take a second
    /// or so.
    pub mutations: u64,
}

const fn target(name: &'static str, run: fn(&[u8]), mutations: u64) -> Target {
    Target {
        name,
        run,
        mutations,
    }
}

/// Every target.
pub const TARGETS: &[Target] = &[
    target("spec", spec::spec, 60),
    target("wire", wire::wire, 300),
    target("csv", data::csv, 100),
    target("jsonl", data::jsonl, 100),
    target("leaf", data::leaf, 100),
    target("libsvm", data::libsvm, 100),
    target("npy", data::npy, 100),
    target("npz", data::npz, 100),
    target("idx", data::idx, 100),
    target("images", data::images, 100),
    target("parquet", data::parquet, 100),
    target("archive", data::archive, 100),
    target("published", data::published, 100),
    target("checkpoint", folder::checkpoint, 30),
    target("report", folder::report, 30),
    target("description", library::description, 100),
    target("answers", library::answers, 300),
    target("calls", host::calls, 300),
    target("protocols", protocol::protocols, 100),
    target("try", trial::trial, 100),
];

/// Feeds the target of this name.
///
/// # Panics
/// When there is none, or when it found a mistake.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|t| t.name == name);
    (target.expect("a target").run)(data);
}
