//! What was measured, round by round, and what it had cost by then.

use crate::read::{Metric, Run};
use fl_core::privacy::Observer;
use std::collections::BTreeMap;

/// One measurement of a curve.
#[derive(Clone, Debug)]
pub(crate) struct Point<'r> {
    pub metric: &'r Metric,
    /// Bytes that had crossed by then, both ways; `None` if the journal does not tell.
    pub bytes: Option<u64>,
    /// Epsilon by then.
    pub epsilon: BTreeMap<Observer, f64>,
}

/// Everything that was measured under one name.
#[derive(Clone, Debug)]
pub(crate) struct Curve<'r> {
    pub name: &'r str,
    pub points: Vec<Point<'r>>,
}

impl Curve<'_> {
    /// Do the rounds go up from point to point?
    fn by_round(&self) -> bool {
        let mut pairs = self.points.windows(2);
        pairs.all(|pair| pair[0].metric.round < pair[1].metric.round)
    }

    /// Where the points stand: at their rounds if these go up, otherwise one after the other.
    pub fn at(&self) -> Vec<f64> {
        match self.by_round() {
            true => self.points.iter().map(|p| p.metric.round as f64).collect(),
            false => (1..=self.points.len()).map(|n| n as f64).collect(),
        }
    }

    /// What the points stand at.
    pub fn axis(&self) -> &'static str {
        match self.by_round() {
            true => "round",
            false => "measurement",
        }
    }
}

/// Every curve of a run, in order of their first points.
pub(crate) fn curves(run: &Run) -> Vec<Curve<'_>> {
    let spent = spent(run);
    let mut all: Vec<Curve<'_>> = Vec::new();
    for (metric, (bytes, epsilon)) in run.metrics.iter().zip(spent) {
        let point = Point {
            metric,
            bytes,
            epsilon,
        };
        match all.iter_mut().find(|c| c.name == metric.name) {
            Some(curve) => curve.points.push(point),
            None => all.push(Curve {
                name: &metric.name,
                points: vec![point],
            }),
        }
    }
    all
}

/// What had been spent when each number was measured. A step that asks nobody stands after all questions if no later step asks
/// anybody; otherwise the journal does not tell.
fn spent(run: &Run) -> Vec<(Option<u64>, BTreeMap<Observer, f64>)> {
    let mut by_step: BTreeMap<&str, (u64, BTreeMap<Observer, f64>)> = BTreeMap::new();
    let (mut bytes, mut epsilon) = (0_u64, BTreeMap::new());
    for entry in &run.journal {
        bytes = bytes
            .saturating_add(entry.sent())
            .saturating_add(entry.received());
        if let Some(all) = &entry.privacy {
            epsilon = all.iter().filter_map(|(o, e)| Some((*o, (*e)?))).collect();
        }
        by_step.insert(&entry.step, (bytes, epsilon.clone()));
    }
    let last_asking = run
        .metrics
        .iter()
        .rposition(|m| by_step.contains_key(&m.step[..]));
    let of = |(at, metric): (usize, &Metric)| match by_step.get(&metric.step[..]) {
        Some((bytes, epsilon)) => (Some(*bytes), epsilon.clone()),
        None if last_asking.is_none_or(|last| at > last) => (Some(bytes), epsilon.clone()),
        None => (None, BTreeMap::new()),
    };
    run.metrics.iter().enumerate().map(of).collect()
}
