//! Objects of two label maps: every pixel has the number of its object, 0 is background.

use anyhow::{Result, ensure};
use ndarray::ArrayView2;
use pathfinding::prelude::{Matrix, kuhn_munkres};
use std::collections::{BTreeMap, BTreeSet};

/// How an object of one map finds its partner in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partner {
    /// By the largest intersection over union.
    Iou,
    /// By the largest overlap (the gland challenge).
    Overlap,
}

/// How predictions are paired with the objects of the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// By falling intersection over union, each object once.
    Sorted,
    /// Each object of the truth with its best prediction, which several may share (Kumar et al.
    /// 2017's code).
    Reuse,
    /// Each object of the truth, by number, with the best remaining prediction.
    Sequential,
    /// The assignment with the largest sum (Kuhn and Munkres).
    Best,
}

/// The objects of two label maps, and their overlaps.
#[derive(Clone, Debug)]
pub struct Objects {
    truth: Vec<usize>,
    prediction: Vec<usize>,
    /// The number of pixels in common, if any: (truth, prediction), by number.
    shared: BTreeMap<(usize, usize), usize>,
}

impl Objects {
    /// Counts the pixels of the objects of two label maps.
    ///
    /// # Errors
    /// If they have different shapes.
    pub fn of(truth: ArrayView2<'_, u32>, prediction: ArrayView2<'_, u32>) -> Result<Self> {
        ensure!(
            truth.dim() == prediction.dim(),
            "two pictures of {:?} and {:?} pixels",
            truth.dim(),
            prediction.dim()
        );
        let numbers = |map: ArrayView2<'_, u32>| {
            let all: BTreeSet<u32> = map.iter().copied().filter(|n| *n > 0).collect();
            all.into_iter().zip(0..).collect::<BTreeMap<u32, usize>>()
        };
        let (of_truth, of_prediction) = (numbers(truth), numbers(prediction));
        let mut all = Self {
            truth: vec![0; of_truth.len()],
            prediction: vec![0; of_prediction.len()],
            shared: BTreeMap::new(),
        };
        for (t, p) in truth.iter().zip(prediction) {
            let (t, p) = (of_truth.get(t), of_prediction.get(p));
            if let Some(t) = t {
                all.truth[*t] += 1;
            }
            if let Some(p) = p {
                all.prediction[*p] += 1;
            }
            if let (Some(t), Some(p)) = (t, p) {
                *all.shared.entry((*t, *p)).or_default() += 1;
            }
        }
        Ok(all)
    }

    fn union(&self, t: usize, p: usize) -> usize {
        self.truth[t] + self.prediction[p] - self.shared.get(&(t, p)).copied().unwrap_or(0)
    }

    fn iou(&self, t: usize, p: usize) -> f64 {
        let shared = self.shared.get(&(t, p)).copied().unwrap_or(0);
        shared as f64 / self.union(t, p) as f64
    }

    fn nothing(&self) -> Option<f64> {
        let some = !self.truth.is_empty() || !self.prediction.is_empty();
        some.then_some(0.0)
    }

    /// Half of the mean Dice of the objects of the truth with their partners, weighted by area, and
    /// half of that of the predictions. An object without a partner counts 0. `None` if there is no
    /// object at all.
    pub fn object_dice(&self, by: Partner) -> Option<f64> {
        let nothing = self.nothing()?;
        let score = |t: usize, p: usize, shared: usize| match by {
            Partner::Iou => self.iou(t, p),
            Partner::Overlap => shared as f64,
        };
        // the best partner of each object of both maps, the lower number on a tie
        let mut of_truth = vec![None; self.truth.len()];
        let mut of_prediction = vec![None; self.prediction.len()];
        for (&(t, p), &shared) in &self.shared {
            let dice = 2.0 * shared as f64 / (self.truth[t] + self.prediction[p]) as f64;
            let score = score(t, p, shared);
            for best in [&mut of_truth[t], &mut of_prediction[p]] {
                if best.is_none_or(|(known, _)| score > known) {
                    *best = Some((score, dice));
                }
            }
        }
        let mean = |areas: &[usize], partners: &[Option<(f64, f64)>]| {
            let all = areas.iter().sum::<usize>() as f64;
            let dice = |best: &Option<(f64, f64)>| best.map_or(0.0, |(_, dice)| dice);
            let each = areas.iter().zip(partners);
            each.map(|(area, best)| *area as f64 / all * dice(best))
                .sum::<f64>()
        };
        Some(if self.truth.is_empty() || self.prediction.is_empty() {
            nothing
        } else {
            0.5 * (mean(&self.truth, &of_truth) + mean(&self.prediction, &of_prediction))
        })
    }

    /// The aggregated Jaccard index: the pixels that paired objects share, over their unions and
    /// the areas of all objects without a partner. `None` if there is no object at all.
    pub fn aji(&self, pairing: Pairing) -> Option<f64> {
        let nothing = self.nothing()?;
        let pairs = self.pairs(pairing);
        let shared = |(t, p): &(usize, usize)| self.shared.get(&(*t, *p)).copied().unwrap_or(0);
        let common: usize = pairs.iter().map(shared).sum();
        let unions: usize = pairs.iter().map(|(t, p)| self.union(*t, *p)).sum();
        let alone = |areas: &[usize], paired: BTreeSet<usize>| {
            let others = areas
                .iter()
                .enumerate()
                .filter(|(n, _)| !paired.contains(n));
            others.map(|(_, area)| area).sum::<usize>()
        };
        let all = unions
            + alone(&self.truth, pairs.iter().map(|(t, _)| *t).collect())
            + alone(&self.prediction, pairs.iter().map(|(_, p)| *p).collect());
        Some(if all == 0 {
            nothing
        } else {
            common as f64 / all as f64
        })
    }

    fn pairs(&self, pairing: Pairing) -> Vec<(usize, usize)> {
        let mut falling: Vec<(f64, usize, usize)> = self
            .shared
            .keys()
            .map(|&(t, p)| (self.iou(t, p), t, p))
            .collect();
        falling.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        if pairing == Pairing::Sequential {
            falling.sort_by_key(|(_, t, _)| *t);
        }
        if pairing == Pairing::Best {
            return self.best();
        }
        let (mut truths, mut predictions) = (BTreeSet::new(), BTreeSet::new());
        let free = falling.into_iter().filter(|(_, t, p)| {
            let free = !truths.contains(t) && !predictions.contains(p);
            if free {
                truths.insert(*t);
                if pairing != Pairing::Reuse {
                    predictions.insert(*p);
                }
            }
            free
        });
        free.map(|(_, t, p)| (t, p)).collect()
    }

    fn best(&self) -> Vec<(usize, usize)> {
        // whole numbers, and at least as many columns as rows
        let weight = |t: usize, p: usize| (self.iou(t, p) * 1e15) as i64;
        let (rows, columns) = (self.truth.len(), self.prediction.len());
        if rows == 0 || columns == 0 {
            return Vec::new();
        }
        let turned = rows > columns;
        let weights = if !turned {
            Matrix::from_fn(rows, columns, |(t, p)| weight(t, p))
        } else {
            Matrix::from_fn(columns, rows, |(p, t)| weight(t, p))
        };
        let (_, chosen) = kuhn_munkres(&weights);
        let pairs = chosen.into_iter().enumerate();
        let pairs = pairs.map(|(row, column)| if turned { (column, row) } else { (row, column) });
        pairs
            .filter(|pair| self.shared.contains_key(pair))
            .collect()
    }
}
