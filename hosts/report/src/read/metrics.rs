//! The measurements of a run.

use crate::files::lines;
use fl_core::ClientId;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The file of the measurements.
pub(super) const METRICS: &str = "metrics.jsonl";

/// A line of `metrics.jsonl`: one measured number; `None` if it is not finite.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "MetricLine")]
pub struct Metric {
    /// The step. Lines of one step share it.
    pub step: Arc<str>,
    /// Number of the round; 0 for a step that runs once.
    pub round: u64,
    /// The name of the measure. Lines of one name share it.
    pub name: Arc<str>,
    /// The number, or the mean over clients.
    pub value: Option<f64>,
    /// Standard deviation over clients.
    pub std: Option<f64>,
    /// The numbers that it was made from; boxed because few lines have any.
    pub details: Option<Box<MetricDetails>>,
}

/// The numbers that a measurement was made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricDetails {
    /// One number for each of `clients`.
    pub each: Vec<Option<f64>>,
    /// The clients that have a number.
    pub clients: Vec<ClientId>,
    /// Examples by true and by predicted class.
    pub confusion: Vec<Vec<u64>>,
}

impl Metric {
    /// Returns one number for each client that has one; none if it is not a mean over clients.
    pub fn each(&self) -> &[Option<f64>] {
        self.details.as_ref().map_or(&[], |of| &of.each)
    }

    /// Returns each client that has a number, with it.
    pub fn by_client(&self) -> impl Iterator<Item = (ClientId, Option<f64>)> {
        let details = self.details.iter();
        details.flat_map(|of| of.clients.iter().copied().zip(of.each.iter().copied()))
    }

    /// Returns examples by true and by predicted class; none if they were not counted.
    pub fn confusion(&self) -> &[Vec<u64>] {
        self.details.as_ref().map_or(&[], |of| &of.confusion)
    }
}

/// A measurement as it is written.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MetricLine {
    step: String,
    round: u64,
    name: String,
    value: Option<f64>,
    std: Option<f64>,
    each: Vec<Option<f64>>,
    clients: Vec<ClientId>,
    confusion: Vec<Vec<u64>>,
}

impl From<MetricLine> for Metric {
    fn from(line: MetricLine) -> Self {
        let details = MetricDetails {
            each: line.each,
            clients: line.clients,
            confusion: line.confusion,
        };
        Self {
            step: line.step.into(),
            round: line.round,
            name: line.name.into(),
            value: line.value,
            std: line.std,
            details: (details != MetricDetails::default()).then(|| details.into()),
        }
    }
}

/// Reads all measurements. Texts that are equal are kept once. With `brief`, only the last
/// measurement of each name keeps its details.
pub(super) fn measurements(path: &Path, notices: &mut Vec<String>, brief: bool) -> Vec<Metric> {
    let mut all: Vec<Metric> = Vec::new();
    let mut last: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    lines(path, METRICS, notices, &mut |mut metric: Metric| {
        if let Some(before) = all.last().filter(|before| before.step == metric.step) {
            metric.step = before.step.clone();
        }
        match last.get_mut(&metric.name) {
            Some(at) => {
                let before = &mut all[*at];
                metric.name = before.name.clone();
                if brief {
                    before.details = None;
                }
                *at = all.len();
            }
            None => {
                last.insert(metric.name.clone(), all.len());
            }
        }
        all.push(metric);
    });
    all
}
