//! Grows one tree, depth first.

use crate::bins::Binned;
use crate::criterion::{Best, Cost, Criterion, Node};
use crate::model::{Grown, Next, Split};
use fl_core::Draws;
use std::ops::Range;

/// When to stop, and how many features to search.
pub struct Plan {
    /// Longest path from the root to a leaf.
    pub depth: usize,
    /// Features that a node searches.
    pub features: usize,
    /// Least mass of a leaf, in units of the criterion.
    pub min_mass: f64,
    /// A split must gain more than this; in units of the criterion.
    pub floor: f64,
}

/// The samples that a tree is grown on. Growing changes their order.
pub struct Field<'a> {
    pub rows: &'a mut [u32],
    /// The contribution of each sample.
    pub stats: &'a mut [u64],
    /// If not empty: scores by row, to which the value of the leaf is added.
    pub scores: &'a mut [f32],
}

/// Samples in an order in which those of a node are adjacent, and their contributions.
struct Order<'a> {
    rows: &'a mut [u32],
    stats: &'a mut [u64],
}

impl Order<'_> {
    fn samples(&self, at: Range<usize>) -> (&[u32], &[u64]) {
        (&self.rows[at.clone()], &self.stats[at])
    }
}

/// Features whose histograms a node counts at once.
const SOME: usize = 8;

/// Grows trees one after the other and reuses its buffers.
pub struct Grower<'a> {
    binned: &'a Binned,
    plan: Plan,
    /// Gains by feature, over all trees.
    pub gains: Vec<f64>,
    /// Cost of the leaves of the last tree.
    pub cost: Cost,
    tree: Grown,
    /// Features in the order of a node's search; ascending if a node searches all.
    order: Vec<u32>,
    /// Unused histograms of all features.
    spare: Vec<Vec<u64>>,
    /// The histograms of some features.
    some: Vec<u64>,
    other_rows: Vec<u32>,
    other_stats: Vec<u64>,
}

impl<'a> Grower<'a> {
    pub fn new(binned: &'a Binned, plan: Plan) -> Self {
        Self {
            binned,
            gains: vec![0.0; binned.width()],
            cost: Cost::default(),
            tree: Grown::default(),
            order: Vec::new(),
            spare: Vec::new(),
            some: Vec::new(),
            other_rows: Vec::new(),
            other_stats: Vec::new(),
            plan,
        }
    }

    /// Grows one tree.
    pub fn grow<C: Criterion>(
        &mut self,
        criterion: &C,
        field: &mut Field<'_>,
        draws: &mut Draws,
    ) -> Grown {
        self.cost = Cost::default();
        self.order = (0..self.binned.width() as u32).collect();
        let mut rows = std::mem::take(&mut self.other_rows);
        let mut stats = std::mem::take(&mut self.other_stats);
        rows.resize(field.rows.len(), 0);
        stats.resize(field.rows.len(), 0);
        let (total, all) = (criterion.total(field.stats), 0..field.rows.len());
        let first = Order {
            rows: field.rows,
            stats: field.stats,
        };
        let other = Order {
            rows: &mut rows,
            stats: &mut stats,
        };
        let mut growth = Growth {
            grower: self,
            criterion,
            orders: [first, other],
            scores: field.scores,
            draws,
        };
        let histograms = if growth.ends(0, &total) {
            None
        } else {
            growth.histograms(all.clone(), 0, &total)
        };
        growth.node(all, 0, &total, histograms);
        (self.other_rows, self.other_stats) = (rows, stats);
        std::mem::take(&mut self.tree)
    }
}

/// A tree in progress.
struct Growth<'g, 'a, C> {
    grower: &'g mut Grower<'a>,
    criterion: &'g C,
    /// The samples of a node are in the first if its depth is even, in the second if it is odd.
    orders: [Order<'g>; 2],
    scores: &'g mut [f32],
    draws: &'g mut Draws,
}

impl<C: Criterion> Growth<'_, '_, C> {
    /// Returns whether a node with this sum is a leaf for any features.
    fn ends(&self, depth: usize, total: &[u64]) -> bool {
        depth == self.grower.plan.depth
            || self.criterion.settled(total)
            || self.criterion.mass(total) < 2.0 * self.grower.plan.min_mass
    }

    /// Grows the subtree of a node. `histograms` are those of all features, if a node searches all.
    fn node(
        &mut self,
        at: Range<usize>,
        depth: usize,
        total: &[u64],
        histograms: Option<Vec<u64>>,
    ) -> Next {
        let best = if self.ends(depth, total) {
            None
        } else {
            self.best(at.clone(), depth, total, histograms.as_deref())
        };
        let Some(best) = best else {
            self.grower.spare.extend(histograms);
            let value = self.leaf(total);
            self.reach(at, depth, |_| value);
            return Next::leaf(value);
        };
        let left = &best.left;
        let right: Vec<u64> = total
            .iter()
            .zip(left)
            .map(|(t, l)| t.wrapping_sub(*l))
            .collect();
        let place = self.grower.tree.splits.len();
        self.grower.tree.splits.push(Split {
            feature: best.feature as u32,
            threshold: self.grower.binned.threshold(best.feature, best.bin),
            left: Next::leaf(0),
            right: Next::leaf(0),
        });
        let ends = [self.ends(depth + 1, left), self.ends(depth + 1, &right)];
        let next = if ends == [true, true] {
            // the samples of two leaves need no further sorting
            self.grower.spare.extend(histograms);
            let (l, r) = (self.leaf(left), self.leaf(&right));
            let column = self.grower.binned.column(best.feature);
            self.reach(at, depth, |row| {
                if usize::from(column[row]) <= best.bin {
                    l
                } else {
                    r
                }
            });
            [Next::leaf(l), Next::leaf(r)]
        } else {
            let middle = self.part(at.clone(), depth, best.feature, best.bin);
            let sides = [at.start..middle, middle..at.end];
            let [h_left, h_right] =
                self.children(&sides, depth + 1, [left, &right], ends, histograms);
            let [at_left, at_right] = sides;
            [
                self.node(at_left, depth + 1, left, h_left),
                self.node(at_right, depth + 1, &right, h_right),
            ]
        };
        let split = &mut self.grower.tree.splits[place];
        [split.left, split.right] = next;
        Next::split(place)
    }

    fn leaf(&mut self, total: &[u64]) -> usize {
        let leaves = &mut self.grower.tree.leaves;
        let before = leaves.len();
        self.criterion.leaf(total, leaves);
        self.grower.cost.add(self.criterion.cost(total));
        // every leaf of a tree has the same number of values
        before / (leaves.len() - before)
    }

    /// Adds the values of leaves to the scores of their samples.
    fn reach(&mut self, at: Range<usize>, depth: usize, leaf: impl Fn(usize) -> usize) {
        if !self.scores.is_empty() {
            for row in &self.orders[depth % 2].rows[at] {
                let row = *row as usize;
                self.scores[row] += self.grower.tree.leaves[leaf(row)];
            }
        }
    }

    /// Returns the best split, if one gains enough.
    fn best(
        &mut self,
        at: Range<usize>,
        depth: usize,
        total: &[u64],
        histograms: Option<&[u64]>,
    ) -> Option<Best> {
        let node = Node {
            total,
            min_mass: self.grower.plan.min_mass,
        };
        let (_, stats) = self.orders[depth % 2].samples(at.clone());
        let rounding = self.criterion.rounding(total, stats)?;
        let worth = self.criterion.worth(total);
        let mut best = Best::above(worth + self.grower.plan.floor - rounding);
        let (binned, stride) = (self.grower.binned, self.criterion.stride());
        if let Some(all) = histograms {
            for feature in 0..binned.width() {
                let place = binned.place(feature);
                let histogram = &all[place.start * stride..place.end * stride];
                self.criterion.scan(feature, histogram, &node, &mut best);
            }
        } else {
            // As in scikit-learn: a feature with one value for all samples of the node counts as
            // searched, but the search continues until a feature with different values.
            let (width, mut differ, mut looked) = (binned.width(), false, 0);
            let (wanted, samples) = (
                self.grower.plan.features,
                self.orders[depth % 2].samples(at),
            );
            while looked < width && (looked < wanted || !differ) {
                // those that are searched in any case, some at once
                let end = (looked + SOME).min(wanted).max(looked + 1);
                for looked in looked..end {
                    let other = looked + self.draws.below(width - looked);
                    self.grower.order.swap(looked, other);
                }
                let features = &self.grower.order[looked..end];
                let bins = features.iter().map(|f| binned.bins(*f as usize));
                let some = &mut self.grower.some;
                some.resize(bins.sum::<usize>() * stride, 0);
                self.criterion.fill(binned, features, samples, total, some);
                let mut rest = &some[..];
                for feature in features {
                    let feature = *feature as usize;
                    let (one, after) = rest.split_at(binned.bins(feature) * stride);
                    rest = after;
                    if binned.bins(feature) > 1 {
                        differ |= self.criterion.scan(feature, one, &node, &mut best);
                    }
                }
                looked = end;
            }
        }
        (!best.left.is_empty()).then(|| {
            self.grower.gains[best.feature] += best.worth - worth;
            best
        })
    }

    /// Returns the histograms of all features, if a node searches all.
    fn histograms(&mut self, at: Range<usize>, depth: usize, total: &[u64]) -> Option<Vec<u64>> {
        let (binned, stride) = (self.grower.binned, self.criterion.stride());
        if self.grower.plan.features < binned.width() {
            return None;
        }
        let mut all = self.grower.spare.pop().unwrap_or_default();
        all.resize(binned.all_bins() * stride, 0);
        let (samples, features) = (self.orders[depth % 2].samples(at), &self.grower.order);
        self.criterion
            .fill(binned, features, samples, total, &mut all);
        Some(all)
    }

    /// Returns the histograms of both children: only the smaller one is counted, and the other is
    /// the parent's minus it.
    fn children(
        &mut self,
        sides: &[Range<usize>; 2],
        depth: usize,
        totals: [&[u64]; 2],
        ends: [bool; 2],
        parent: Option<Vec<u64>>,
    ) -> [Option<Vec<u64>>; 2] {
        let Some(mut parent) = parent else {
            return [None, None];
        };
        let small = usize::from(sides[1].len() < sides[0].len());
        let Some(counted) = self.histograms(sides[small].clone(), depth, totals[small]) else {
            return [None, None];
        };
        let (small_one, large_one) = if ends[1 - small] {
            self.grower.spare.push(parent);
            (Some(counted), None)
        } else {
            for (all, part) in parent.iter_mut().zip(&counted) {
                *all = all.wrapping_sub(*part);
            }
            if ends[small] {
                self.grower.spare.push(counted);
                (None, Some(parent))
            } else {
                (Some(counted), Some(parent))
            }
        };
        match small {
            0 => [small_one, large_one],
            _ => [large_one, small_one],
        }
    }

    /// Writes the samples of a node into the other order: those that go left, and then those that
    /// go right. Returns where these begin.
    fn part(&mut self, at: Range<usize>, depth: usize, feature: usize, bin: usize) -> usize {
        let column = self.grower.binned.column(feature);
        let [first, other] = &mut self.orders;
        let (from, to) = match depth % 2 {
            0 => (first, other),
            _ => (other, first),
        };
        let (rows, stats) = (&mut to.rows[at.clone()], &mut to.stats[at.clone()]);
        let (mut left, mut right) = (0, rows.len());
        let (from_rows, from_stats) = from.samples(at.clone());
        for (row, stat) in from_rows.iter().zip(from_stats) {
            // without a branch: the direction of a sample cannot be predicted
            let goes_left = usize::from(usize::from(column[*row as usize]) <= bin);
            right -= 1 - goes_left;
            let place = right ^ ((left ^ right) & goes_left.wrapping_neg());
            (rows[place], stats[place]) = (*row, *stat);
            left += goes_left;
        }
        at.start + left
    }
}
