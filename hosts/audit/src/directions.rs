//! Where to look: the direction in which the unit moves what observers see.

use crate::views::{View, Views};
use fl_core::privacy::Observer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is left of a run for the judgement: facts, and one number for each message and model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Facts that differ from those of the first pilot run; `None` for one that is missing.
    pub facts: BTreeMap<String, Option<String>>,
    /// Positions along the directions.
    pub numbers: BTreeMap<String, f64>,
}

/// A direction of unit length, and how far the unit moves a run along it.
#[derive(Clone, Debug)]
struct Direction {
    along: Vec<f32>,
    shift: f64,
}

/// The directions of all messages and models, from pilot runs, and the facts of the first of them.
pub struct Directions {
    of: BTreeMap<Observer, BTreeMap<String, Direction>>,
    baseline: BTreeMap<Observer, BTreeMap<String, String>>,
}

/// Adds up differences of pilot runs.
#[derive(Default)]
pub struct Pilots {
    /// Sums of differences, of pilot runs with even and with odd numbers.
    halves: [BTreeMap<Observer, BTreeMap<String, Vec<f32>>>; 2],
    baseline: Option<BTreeMap<Observer, BTreeMap<String, String>>>,
    pairs: usize,
}

impl Pilots {
    /// Adds two runs, one of each world, with the same secret randomness. Their noise is the same,
    /// so that only the unit makes the difference.
    pub fn add(&mut self, one: Views, other: &Views) {
        let half = &mut self.halves[self.pairs % 2];
        self.pairs += 1;
        for (observer, view) in &one {
            let of = half.entry(*observer).or_default();
            let there = other.get(observer);
            for (name, a) in &view.numbers {
                let b = there.and_then(|view| view.numbers.get(name));
                let Some(b) = b.filter(|b| b.len() == a.len()) else {
                    continue;
                };
                let sum = of.entry(name.clone()).or_insert_with(|| vec![0.0; a.len()]);
                if sum.len() == a.len() {
                    for ((sum, a), b) in sum.iter_mut().zip(a).zip(b) {
                        let difference = a - b;
                        *sum += if difference.is_finite() {
                            difference
                        } else {
                            0.0
                        };
                    }
                }
            }
        }
        self.baseline.get_or_insert_with(|| {
            let facts = one
                .into_iter()
                .map(|(observer, view)| (observer, view.facts));
            facts.collect()
        });
    }

    /// Returns the directions.
    pub fn finish(self) -> Directions {
        let [even, odd] = self.halves;
        let (n_even, n_odd) = (self.pairs.div_ceil(2), self.pairs / 2);
        let mut of = BTreeMap::new();
        for (observer, messages) in even {
            let others = odd.get(&observer);
            let directions = messages.into_iter().filter_map(|(name, sum)| {
                let other = others.and_then(|others| others.get(&name));
                let direction = direction(sum, n_even, other.map(Vec::as_slice), n_odd)?;
                Some((name, direction))
            });
            of.insert(observer, directions.collect());
        }
        Directions {
            of,
            baseline: self.baseline.unwrap_or_default(),
        }
    }
}

/// The direction of two sums of differences. The shift is estimated from both halves: what chance
/// moves in one half it does not move in the other.
fn direction(
    mut sum: Vec<f32>,
    n: usize,
    other: Option<&[f32]>,
    n_other: usize,
) -> Option<Direction> {
    let product = |a: &[f32], b: &[f32]| -> f64 {
        let all = a.iter().zip(b);
        all.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let mut shift = product(&sum, &sum) / (n * n) as f64;
    let mut runs = n;
    if let Some(other) = other.filter(|other| other.len() == sum.len() && n_other > 0) {
        shift = product(&sum, other) / (n * n_other) as f64;
        sum.iter_mut().zip(other).for_each(|(a, b)| *a += b);
        runs += n_other;
    }
    let length = product(&sum, &sum).sqrt();
    if !length.is_finite() || length <= 0.0 {
        return None;
    }
    sum.iter_mut()
        .for_each(|x| *x = (f64::from(*x) / length) as f32);
    Some(Direction {
        along: sum,
        shift: shift.max(0.0) / (length / runs as f64),
    })
}

impl Directions {
    /// Reduces what an observer saw of a run.
    pub fn reduce(&self, observer: Observer, view: View) -> Observation {
        let empty = BTreeMap::new();
        let baseline = self.baseline.get(&observer).unwrap_or(&empty);
        let missing = baseline
            .keys()
            .filter(|name| !view.facts.contains_key(*name));
        let missing: Vec<String> = missing.cloned().collect();
        let differs = view
            .facts
            .into_iter()
            .filter(|(name, fact)| baseline.get(name) != Some(fact));
        let facts = differs.map(|(name, fact)| (name, Some(fact)));
        let facts = facts
            .chain(missing.into_iter().map(|name| (name, None)))
            .collect();
        let mut numbers = BTreeMap::new();
        for (name, direction) in self.of.get(&observer).into_iter().flatten() {
            let Some(seen) = view.numbers.get(name) else {
                continue;
            };
            if seen.len() == direction.along.len() {
                let along = seen.iter().zip(&direction.along);
                let at: f64 = along.map(|(x, d)| f64::from(*x) * f64::from(*d)).sum();
                if at.is_finite() {
                    numbers.insert(name.clone(), at);
                }
            }
        }
        Observation { facts, numbers }
    }

    /// Returns how far the unit moves a run along the direction of this message or model.
    pub fn shift(&self, observer: Observer, name: &str) -> f64 {
        let of = self.of.get(&observer).and_then(|of| of.get(name));
        of.map_or(0.0, |direction| direction.shift)
    }

    /// Returns the fact of the first pilot run.
    pub fn baseline(&self, observer: Observer, name: &str) -> Option<&str> {
        let of = self.baseline.get(&observer)?;
        of.get(name).map(String::as_str)
    }
}
