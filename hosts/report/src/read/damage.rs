//! Files of a folder that contradict each other, and runs that are not done.

use super::journal::journalled;
use super::{Cost, Entry, Metric, Outcome, Traffic};
use fl_core::privacy::Observer;
use std::collections::BTreeMap;
use std::path::Path;

/// Describes a contradiction between the files of a finished run about its bytes and epsilons.
/// `costs` are the lines of `costs.jsonl`, if the folder has it.
pub(super) fn other_costs(
    outcome: &Outcome,
    journal: &[Entry],
    costs: Option<&[Cost]>,
) -> Option<String> {
    let said = outcome.bytes?;
    let bytes = |file: &str, found: Traffic| {
        (found != said).then(|| {
            format!(
                "{file} is damaged: it has {} bytes up and {} down, and outcome.json has {} and {}.",
                found.up, found.down, said.up, said.down
            )
        })
    };
    let epsilon = |cost: &Cost| {
        let differs = |o: &Observer| outcome.epsilon(*o).flatten() != cost.epsilon(*o);
        let observer = Observer::ALL.into_iter().find(differs)?;
        let shown = |e: Option<f64>| e.map_or("nothing".into(), |e| e.to_string());
        Some(format!(
            "costs.jsonl is damaged: its last epsilon against {observer} is {}, and outcome.json says {}.",
            shown(cost.epsilon(observer)),
            shown(outcome.epsilon(observer).flatten())
        ))
    };
    let crossed = |cost: &Cost| Traffic {
        up: cost.bytes_up,
        down: cost.bytes_down,
    };
    let has_price = Observer::ALL
        .iter()
        .any(|o| outcome.epsilon(*o).flatten().is_some());
    let of_costs = || match costs {
        None => has_price.then(|| {
            "There is no costs.jsonl, so epsilons by step are missing: somebody removed it.".into()
        }),
        Some([]) => Some("costs.jsonl is damaged: it is empty.".into()),
        Some([.., last]) => bytes("costs.jsonl", crossed(last)).or_else(|| epsilon(last)),
    };
    bytes("journal.jsonl", journalled(journal)).or_else(of_costs)
}

/// Describes a contradiction between two files of a finished run about one number.
pub(super) fn contradiction(outcome: &Outcome, metrics: &[Metric]) -> Option<String> {
    let last: BTreeMap<&str, &Metric> = metrics.iter().map(|m| (&m.name[..], m)).collect();
    let found = outcome.metrics.iter().find_map(|(name, said)| {
        let last = |name: &str| last.get(name).copied();
        // a deviation is on its mean's line
        let found = match (last(name), name.strip_suffix(".std").map(last)) {
            (Some(of), _) => of.value,
            (None, Some(Some(mean))) => mean.std,
            (None, _) => return Some((name, *said, None)),
        };
        (found != *said).then_some((name, *said, found))
    });
    let (name, said, last) = found?;
    let shown = |value: Option<f64>| value.map_or("nothing".into(), |v| v.to_string());
    Some(format!(
        "metrics.jsonl is damaged: its last `{name}` is {}, and outcome.json says {}.",
        shown(last),
        shown(said)
    ))
}

pub(super) fn not_done(path: &Path, journal: &[Entry]) -> String {
    let so_far = match journal.last() {
        Some(entry) => format!("the last exchange of its journal is of {}", entry.step),
        None => "no exchange has taken place yet".into(),
    };
    let how = match (path.join("lock").exists(), path.join("state").exists()) {
        (_, true) => "it is running, or was stopped and can go on with --resume",
        (true, false) => "it still works, or was ended",
        _ => "it has failed, or was ended",
    };
    format!("This run is not done: {so_far}; {how}. The page shows the results so far.")
}
