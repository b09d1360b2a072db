//! [`Curve`]: measurements by round, with the costs up to each.

use crate::read::{Cost, Metric, Run};
use crate::svg;
use fl_core::privacy::Observer;
use std::collections::BTreeMap;

/// One measurement of a curve.
#[derive(Clone, Debug)]
pub(crate) struct Point<'r> {
    pub metric: &'r Metric,
    cost: Option<&'r Cost>,
}

impl Point<'_> {
    /// Returns the bytes that had crossed by then, in both directions.
    pub fn bytes(&self) -> Option<u64> {
        let cost = self.cost?;
        Some(cost.bytes_up.saturating_add(cost.bytes_down))
    }

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
    for metric in &run.metrics {
        // an incomplete step has no cost
        let cost = costs.get(&metric.step[..]).copied();
        let at = *places.entry(&metric.name).or_insert_with(|| {
            all.push(Curve {
                name: &metric.name,
                points: Vec::new(),
            });
            all.len() - 1
        });
        all[at].points.push(Point { metric, cost });
    }
    all.sort_by_key(|curve| !svg::is_share(curve.name));
    all
}
