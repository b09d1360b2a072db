//! Predictions of a fitted model.

use crate::bits::{LEAVES, ROWS};
use crate::model::{Grown, Model, Next, Sum, UNSEEN};
use crate::scored::SCORED;
use fl_core::Samples;
use ndarray::Array2;
use std::ops::Range;

/// The smallest share of the best class's probability that a class gets, so that logarithms are
/// finite.
const FLOOR: f64 = 1e-9;

/// A node for prediction: both children are adjacent, and a leaf leads to itself. Every row
/// therefore takes the same number of steps, without a branch (which would be mispredicted half the
/// time).
#[derive(Clone, Copy)]
struct Node {
    threshold: f32,
    feature: u32,
    /// The left child; the right one is next to it.
    next: u32,
    leaf: u32,
}

/// A tree for prediction.
struct Walk {
    nodes: Vec<Node>,
    depth: usize,
}

impl Walk {
    fn new(tree: &Grown) -> Self {
        let root = if tree.splits.is_empty() {
            Next::leaf(0)
        } else {
            Next::split(0)
        };
        // level by level; `row <= infinity` always
        let (mut places, mut nodes, mut levels) = (vec![root], Vec::new(), 0);
        while nodes.len() < places.len() {
            levels += 1;
            for at in nodes.len()..places.len() {
                let place = places[at];
                nodes.push(if place.is_leaf() {
                    Node {
                        threshold: f32::INFINITY,
                        feature: 0,
                        next: at as u32,
                        leaf: place.at() as u32,
                    }
                } else {
                    let split = &tree.splits[place.at()];
                    let next = places.len() as u32;
                    places.extend([split.left, split.right]);
                    Node {
                        threshold: split.threshold,
                        feature: split.feature,
                        next,
                        leaf: 0,
                    }
                });
            }
        }
        Self {
            nodes,
            depth: levels - 1,
        }
    }

    /// Returns the leaves of `N` adjacent rows. Several rows walk together: a step waits for
    /// memory, and steps of different rows do not wait for each other.
    fn leaves<const N: usize>(&self, rows: &[f32], width: usize) -> [usize; N] {
        let mut at = [0; N];
        for _ in 0..self.depth {
            for (k, at) in at.iter_mut().enumerate() {
                let node = &self.nodes[*at];
                let right = rows[k * width + node.feature as usize] > node.threshold;
                *at = node.next as usize + usize::from(right);
            }
        }
        at.map(|at| self.nodes[at].leaf as usize)
    }
}

/// Rows that walk together.
const ABREAST: usize = 8;

impl Model {
    /// Returns scores, `samples x classes`.
    pub fn predict(&self, x: &Samples) -> Array2<f32> {
        let mut scores = Array2::zeros((x.len(), self.classes));
        let out = scores.as_slice_mut().expect("a fresh array is contiguous");
        let each = self.values().max(1);
        let small = self.trees.iter().all(|t| t.leaves.len() / each <= LEAVES);
        if let Some(bits) = small.then(|| SCORED.bits(x)).flatten() {
            self.blocks(out, ROWS, |at, t, leaves: &mut [u8]| {
                bits.leaves(&self.trees[t], at.start / ROWS, leaves);
            });
            return scores;
        }
        let walks: Vec<Walk> = self.trees.iter().map(Walk::new).collect();
        // a block's numbers stay in cache while all trees use them
        let block = (16_384 / self.width.max(1)).clamp(1, 256);
        let mut values = vec![0.0; block * self.width];
        self.blocks(out, block, |at, t, leaves: &mut [usize]| {
            let leaves = &mut leaves[..at.len()];
            if t == 0 {
                let values = &mut values[..at.len() * self.width];
                x.write(&at.collect::<Vec<_>>(), values);
            }
            self.visit(&walks[t], &values, leaves);
        });
        scores
    }

    /// Returns the values of a leaf.
    fn values(&self) -> usize {
        match self.sum {
            Sum::Votes => self.classes,
            Sum::Margins => 1,
        }
    }

    /// Writes the scores of all rows, block after block: `find` writes the leaf of each row of a
    /// block in a tree; the last block may be shorter than there is room.
    fn blocks<L: Copy + Default>(
        &self,
        out: &mut [f32],
        block: usize,
        mut find: impl FnMut(Range<usize>, usize, &mut [L]),
    ) where
        usize: From<L>,
    {
        // the scores of a single tree are those of its leaves: one logarithm for each of them
        let of_leaves = match &self.trees[..] {
            [tree] => self.scores_of_leaves(tree),
            _ => Vec::new(),
        };
        let classes = self.classes;
        let mut leaves = vec![L::default(); block];
        let mut sums = vec![0.0; block * classes];
        for (b, out) in out.chunks_mut(block * classes).enumerate() {
            let at = b * block..b * block + out.len() / classes;
            if !of_leaves.is_empty() {
                find(at, 0, &mut leaves);
                for (leaf, out) in leaves.iter().zip(out.chunks_mut(classes)) {
                    let leaf = usize::from(*leaf);
                    out.copy_from_slice(&of_leaves[leaf * classes..(leaf + 1) * classes]);
                }
                continue;
            }
            let sums = &mut sums[..out.len()];
            sums.fill(0.0);
            for (t, tree) in self.trees.iter().enumerate() {
                find(at.clone(), t, &mut leaves);
                if self.sum == Sum::Votes && classes == 2 {
                    // without a slice for each row
                    let (sums, values) = (sums.as_chunks_mut().0, tree.leaves.as_chunks().0);
                    for (leaf, sum) in leaves.iter().zip(sums) {
                        let ([a, b], [p, q]): (&mut [f64; 2], &[f32; 2]) =
                            (sum, &values[usize::from(*leaf)]);
                        *a += f64::from(*p);
                        *b += f64::from(*q);
                    }
                    continue;
                }
                for (leaf, sum) in leaves.iter().zip(sums.chunks_mut(classes)) {
                    self.add_leaf(t, usize::from(*leaf), &tree.leaves, sum);
                }
            }
            for (sum, row) in sums.chunks(classes).zip(out.chunks_mut(classes)) {
                self.score(sum, row);
            }
        }
    }

    /// Returns the scores of the rows of each leaf of a tree that is alone, leaf after leaf.
    fn scores_of_leaves(&self, tree: &Grown) -> Vec<f32> {
        let leaves = tree.leaves.len() / self.values().max(1);
        let mut scores = vec![0.0; leaves * self.classes];
        for (leaf, scores) in scores.chunks_mut(self.classes.max(1)).enumerate() {
            let mut sum = vec![0.0; self.classes];
            self.add_leaf(0, leaf, &tree.leaves, &mut sum);
            self.score(&sum, scores);
        }
        scores
    }

    /// Writes the scores of a row from the sum of its leaves.
    fn score(&self, sum: &[f64], scores: &mut [f32]) {
        let top = sum.iter().copied().fold(0.0, f64::max);
        for ((score, s), base) in scores.iter_mut().zip(sum).zip(&self.base) {
            *score = match self.sum {
                Sum::Votes if top > 0.0 => libm::log((s / top).max(FLOOR)) as f32,
                Sum::Votes => 0.0,
                Sum::Margins => (f64::from(*base) + s) as f32,
            };
        }
        if self.base.contains(&UNSEEN) {
            self.score_unseen(scores);
        }
    }

    /// Gives each class that the model has not seen an even share of the probability: `1 / classes`
    /// where those of the seen classes add up to 1. This is below the largest of theirs.
    fn score_unseen(&self, scores: &mut [f32]) {
        let all = || scores.iter().zip(&self.base);
        let seen = || {
            all()
                .filter(|(_, base)| **base != UNSEEN)
                .map(|(s, _)| f64::from(*s))
        };
        let top = seen().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = seen().map(|score| libm::exp(score - top)).sum();
        let even = (top + libm::log(sum / self.classes as f64)) as f32;
        for (score, base) in scores.iter_mut().zip(&self.base) {
            if *base == UNSEEN {
                *score = even;
            }
        }
    }

    /// Writes the leaf of each of some rows.
    fn visit(&self, walk: &Walk, values: &[f32], leaves: &mut [usize]) {
        let from = |i: usize| &values[i * self.width..];
        let (together, rest) = leaves.as_chunks_mut::<ABREAST>();
        for (i, leaves) in together.iter_mut().enumerate() {
            *leaves = walk.leaves(from(i * ABREAST), self.width);
        }
        for (i, leaf) in rest.iter_mut().enumerate() {
            [*leaf] = walk.leaves(from(together.len() * ABREAST + i), self.width);
        }
    }

    fn add_leaf(&self, t: usize, leaf: usize, leaves: &[f32], sum: &mut [f64]) {
        let classes = self.classes;
        match self.sum {
            Sum::Votes => {
                let of = &leaves[leaf * classes..(leaf + 1) * classes];
                for (s, p) in sum.iter_mut().zip(of) {
                    *s += f64::from(*p);
                }
            }
            Sum::Margins if classes == 2 => sum[1] += f64::from(leaves[leaf]),
            Sum::Margins => sum[t % classes] += f64::from(leaves[leaf]),
        }
    }
}
