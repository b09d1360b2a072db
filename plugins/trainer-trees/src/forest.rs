//! Trees that vote: one, or a forest.

use crate::bins::Binned;
use crate::criterion::{Cost, Criterion, ManyClasses, TwoClasses, pair};
use crate::grow::{Field, Grower, Plan};
use crate::model::{Model, Sum};
use crate::settings::{Forest, Tree};
use crate::targets::Goal;
use fl_core::{FitReport, Stream};

/// The smallest gain, as a share of all samples, that is not rounding.
const ROUNDING: f64 = 1e-12;
/// Samples are counted in whole units; their total must stay below this for any bootstrap.
const MOST: f64 = (1u64 << 30) as f64;

impl Tree {
    /// Returns a forest of this one tree on all samples.
    pub fn alone(self) -> Forest {
        Forest {
            trees: 1,
            bootstrap: false,
            features: self.features,
            purity: self.purity,
            min_leaf: self.min_leaf,
            min_gain: self.min_gain,
            depth: self.depth,
            bins: self.bins,
            class_weights: self.class_weights,
        }
    }
}

/// Fits a forest to `goal`, which is not empty.
pub fn fit(settings: &Forest, x: &Binned, goal: &Goal, stream: &Stream) -> (Model, FitReport) {
    let units = units(goal);
    let weights = goal.class_weights(&settings.class_weights);
    let purity = settings.purity.clone();
    let stat = |class: u32, n: u32| match (weights.len(), class) {
        (2, 0) => pair(0, n),
        (2, _) => pair(n as i32, 0),
        _ => pair(class as i32, n),
    };
    let job = Job {
        settings,
        x,
        goal,
        stream,
        units,
        stat,
    };
    match weights[..] {
        [a, b] => job.run(&TwoClasses {
            purity,
            weights: [a, b],
        }),
        _ => job.run(&ManyClasses {
            purity,
            weights: weights.clone(),
        }),
    }
}

/// Returns the units of a sample of weight 1: one if all weights are whole, else the largest power
/// of two that fits.
fn units(goal: &Goal) -> f64 {
    if goal.plain {
        return 1.0;
    }
    let mut heaviest = vec![0.0; goal.rows];
    for e in &goal.entries {
        heaviest[e.row as usize] += f64::from(e.weight);
    }
    let most = heaviest.iter().copied().fold(0.0, f64::max) * goal.rows as f64;
    libm::exp2(libm::log2(MOST / most).floor())
}

struct Job<'a, S> {
    settings: &'a Forest,
    x: &'a Binned,
    goal: &'a Goal,
    stream: &'a Stream,
    units: f64,
    /// The contribution of some units of a class.
    stat: S,
}

impl<S: Fn(u32, u32) -> u64> Job<'_, S> {
    fn run<C: Criterion>(&self, criterion: &C) -> (Model, FitReport) {
        let (settings, goal) = (self.settings, self.goal);
        let parts: Vec<(u32, u32, u32)> = goal
            .entries
            .iter()
            .map(|e| {
                (
                    e.row,
                    e.class,
                    (f64::from(e.weight) * self.units).round() as u32,
                )
            })
            .filter(|(_, _, n)| *n > 0)
            .collect();
        let all: Vec<u64> = parts
            .iter()
            .map(|(_, class, n)| (self.stat)(*class, *n))
            .collect();
        let weight = criterion.cost(&criterion.total(&all)).weight;
        let plan = Plan {
            depth: settings.depth,
            features: settings.features.of(self.x.width()),
            min_mass: settings.min_leaf as f64 * self.units,
            floor: (settings.min_gain - ROUNDING) * weight,
        };
        let mut grower = Grower::new(self.x, plan);
        // all trees of a single class are equal
        let trees = if goal.one_class() { 1 } else { settings.trees };
        let (mut rows, mut stats) = (Vec::new(), Vec::new());
        let (mut model, mut cost) = (
            Model::blank(Sum::Votes, self.x.width(), goal.classes),
            Cost::default(),
        );
        for t in 0..trees {
            let mut draws = self.stream.child("tree", t as u64).draws();
            rows.clear();
            stats.clear();
            if settings.bootstrap {
                let mut times = vec![0u32; goal.rows];
                for _ in 0..goal.rows {
                    times[draws.below(goal.rows)] += 1;
                }
                rows.resize(parts.len(), 0);
                stats.resize(parts.len(), 0);
                let mut drawn = 0;
                for (row, class, n) in &parts {
                    // always written, and kept if drawn: no branch to mispredict
                    let times = times[*row as usize];
                    (rows[drawn], stats[drawn]) = (*row, (self.stat)(*class, n * times));
                    drawn += usize::from(times > 0);
                }
                rows.truncate(drawn);
                stats.truncate(drawn);
            } else {
                rows.extend(parts.iter().map(|(row, _, _)| *row));
                stats.extend(&all);
            }
            let mut field = Field {
                rows: &mut rows,
                stats: &mut stats,
                scores: &mut [],
            };
            let tree = grower.grow(criterion, &mut field, &mut draws);
            model.trees.push(tree);
            cost.add(grower.cost);
        }
        // in samples, as if each had been counted once
        let gains: Vec<f64> = grower.gains.iter().map(|gain| gain / self.units).collect();
        let mut seen = vec![false; goal.classes];
        for of in model
            .trees
            .iter()
            .flat_map(|t| t.leaves.chunks(goal.classes))
        {
            seen.iter_mut()
                .zip(of)
                .for_each(|(seen, p)| *seen |= *p > 0.0);
        }
        (
            model.with_gains(&gains).without(|class| !seen[class]),
            FitReport {
                steps: trees,
                loss: cost.cost / cost.weight.max(f64::MIN_POSITIVE),
                falls: None,
            },
        )
    }
}
