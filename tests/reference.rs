//! Replays the reference cases: `tests/reference/*.json`, and those in the folder that
//! `FL_REFERENCE_DIR` names (other inputs, the same operations). A case is met if every number is
//! within its tolerance of what is expected; all cases that are not are reported together.
//!
//! An operation is a function from a case's inputs to what it gives, by the code that runs use. It
//! stands in the `OPS` of the file here that replays its family.

#[path = "reference/bandwidth.rs"]
mod bandwidth;
#[path = "reference/distillation.rs"]
mod distillation;
#[path = "reference/fediod.rs"]
mod fediod;
#[path = "reference/fedkd.rs"]
mod fedkd;
#[path = "reference/metrics.rs"]
mod metrics;
#[path = "reference/parameters.rs"]
mod parameters;
#[path = "reference/partition.rs"]
mod partition;
#[path = "reference/privacy.rs"]
mod privacy;
#[path = "reference/replay.rs"]
mod replay;
#[path = "reference/table16.rs"]
mod table16;
#[path = "reference/votes.rs"]
mod votes;

#[path = "reference/selective_fd.rs"]
mod selective_fd;

use replay::{Inputs, Op, cases, implemented, mismatches};
use std::panic::catch_unwind;
use std::path::PathBuf;

const OPS: [&[Op]; 10] = [
    bandwidth::OPS,
    distillation::OPS,
    fediod::OPS,
    fedkd::OPS,
    metrics::OPS,
    parameters::OPS,
    partition::OPS,
    selective_fd::OPS,
    privacy::OPS,
    votes::OPS,
];

fn folders() -> Vec<PathBuf> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("reference");
    let other = std::env::var_os("FL_REFERENCE_DIR").map(PathBuf::from);
    [own].into_iter().chain(other).collect()
}

#[test]
fn every_case_is_met() {
    let (mut failures, mut met) = (Vec::new(), 0);
    for case in folders().iter().flat_map(|folder| cases(folder)) {
        let place = format!("{}: {} ({})", case.file, case.name, case.op);
        let Some(op) = implemented(&OPS, &case.op) else {
            failures.push(format!("{place}: no such operation is known here"));
            continue;
        };
        match catch_unwind(|| op(&Inputs(&case.inputs))) {
            Ok(Ok(got)) => {
                let wrong = mismatches(&got, &case.expected, case.tolerance);
                met += usize::from(wrong.is_empty());
                failures.extend(wrong.into_iter().map(|what| format!("{place}: {what}")));
            }
            Ok(Err(error)) => failures.push(format!("{place}: {error:#}")),
            Err(_) => failures.push(format!("{place}: it panicked")),
        }
    }
    assert!(
        failures.is_empty(),
        "{} mismatches, {met} cases met\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn every_operation_has_one_implementation() {
    let mut names: Vec<&str> = OPS
        .iter()
        .flat_map(|ops| ops.iter().map(|(name, _)| *name))
        .collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        assert!(pair[0] != pair[1], "`{}` is implemented twice", pair[0]);
    }
}
