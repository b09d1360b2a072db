//! [`Curve`]: measurements by round, with the costs up to each.

use crate::read::{Cost, Metric, Run};
use crate::svg;
use fl_core::privacy::Observer;
use std::collections::BTreeMap;

/// One measurement of a curve.
#[derive(Clone, Debug)]
pub(crate) struct Point<'r> {
    pub metric: &'r Metric,
    /// Bytes that had crossed by then, in both directions; `None` if the journal does not show it.
    pub bytes: Option<u64>,
    cost: Option<&'r Cost>,
}

impl Point<'_> {
    /// Returns epsilon by then.
    pub fn epsilon(&self, observer: Observer) -> Option<f64> {
        self.cost?.epsilon(observer)
    }
}

/// All measurements with one name.
#[derive(Clone, Debug)]
pub(crate) struct Curve<'r> {
    pub name: &'r str,
    pub points: Vec<Point<'r>>,
}

/// Returns whether these rounds increase from point to point.
fn go_up(rounds: &[u64]) -> bool {
    rounds.is_sorted_by(|a, b| a < b)
}

/// Returns the positions of points of these rounds: the rounds if they increase, otherwise one
/// after the other, as a step after the rounds has number 0.
pub fn positions(rounds: &[u64]) -> Vec<f64> {
    if go_up(rounds) {
        rounds.iter().map(|round| *round as f64).collect()
    } else {
        (1..=rounds.len()).map(|n| n as f64).collect()
    }
}

/// Returns the name of the horizontal axis of points of these rounds.
pub fn axis(rounds: &[u64]) -> &'static str {
    if go_up(rounds) {
        "round"
    } else {
        "measurement"
    }
}

impl Curve<'_> {
    fn rounds(&self) -> Vec<u64> {
        self.points.iter().map(|p| p.metric.round).collect()
    }

    /// Returns the positions of the points.
    pub fn at(&self) -> Vec<f64> {
        positions(&self.rounds())
    }

    /// Returns the name of the horizontal axis.
    pub fn axis(&self) -> &'static str {
        axis(&self.rounds())
    }
}

/// Returns every curve of a run: scores first, and else in order of their first points.
pub(crate) fn curves(run: &Run) -> Vec<Curve<'_>> {
    let mut all: Vec<Curve<'_>> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let costs = run.costs.iter().flatten();
    let costs: BTreeMap<&str, &Cost> = costs.map(|c| (&c.step[..], c)).collect();
    let by_journal = match run.costs {
        Some(_) => Vec::new(),
        None => bytes_by_journal(run),
    };
    for (number, metric) in run.metrics.iter().enumerate() {
        // an incomplete step has no cost
        let cost = costs.get(&metric.step[..]).copied();
        let bytes = match by_journal.get(number) {
            Some(bytes) => *bytes,
            None => cost.map(|c| c.bytes_up.saturating_add(c.bytes_down)),
        };
        let at = *places.entry(&metric.name).or_insert_with(|| {
            all.push(Curve {
                name: &metric.name,
                points: Vec::new(),
            });
            all.len() - 1
        });
        all[at].points.push(Point {
            metric,
            bytes,
            cost,
        });
    }
    all.sort_by_key(|curve| !svg::is_share(curve.name));
    all
}

/// Returns the bytes by then for a folder of an older fl. A step without requests counts after all
/// requests if no later step has any; otherwise the journal does not show it.
fn bytes_by_journal(run: &Run) -> Vec<Option<u64>> {
    let mut by_step: BTreeMap<&str, u64> = BTreeMap::new();
    let mut bytes = 0_u64;
    for entry in &run.journal {
        bytes = bytes
            .saturating_add(entry.sent())
            .saturating_add(entry.received());
        by_step.insert(&entry.step, bytes);
    }
    let last_asking = run
        .metrics
        .iter()
        .rposition(|m| by_step.contains_key(&m.step[..]));
    let of = |(at, metric): (usize, &Metric)| match by_step.get(&metric.step[..]) {
        Some(bytes) => Some(*bytes),
        None if last_asking.is_none_or(|last| at > last) => Some(bytes),
        None => None,
    };
    run.metrics.iter().enumerate().map(of).collect()
}
