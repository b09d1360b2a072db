//! Predictions of a fitted model.

use crate::model::{Grown, Model, Next, Sum};
use fl_core::Samples;
use ndarray::Array2;

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
        let root = match tree.splits.is_empty() {
            true => Next::leaf(0),
            false => Next::split(0),
        };
        // level by level; `row <= infinity` always
        let (mut places, mut nodes, mut levels) = (vec![root], Vec::new(), 0);
        while nodes.len() < places.len() {
            levels += 1;
            for at in nodes.len()..places.len() {
                let place = places[at];
                nodes.push(match place.is_leaf() {
                    true => Node {
                        threshold: f32::INFINITY,
                        feature: 0,
                        next: at as u32,
                        leaf: place.at() as u32,
                    },
                    false => {
                        let split = &tree.splits[place.at()];
                        let next = places.len() as u32;
                        places.extend([split.left, split.right]);
                        Node {
                            threshold: split.threshold,
                            feature: split.feature,
                            next,
                            leaf: 0,
                        }
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
        let walks: Vec<Walk> = self.trees.iter().map(Walk::new).collect();
        // the scores of a single tree are those of its leaves: one logarithm for each of them
        let of_leaves = match &self.trees[..] {
            [tree] => self.scores_of_leaves(tree),
            _ => Vec::new(),
        };
        // a block's numbers stay in cache while all trees use them
        let width = self.width.max(1);
        let block = (16_384 / width).clamp(1, 256);
        let mut values = vec![0.0; block * self.width];
        let mut sums = vec![0.0; block * self.classes];
        let classes = self.classes;
        let table = scores.as_slice_mut().expect("a fresh array is contiguous");
        for (b, out) in table.chunks_mut(block * classes).enumerate() {
            let at: Vec<usize> = (b * block..).take(out.len() / classes).collect();
            x.write(&at, &mut values[..at.len() * self.width]);
            if let [walk] = &walks[..] {
                self.visit(walk, &values, at.len(), |row, leaf| {
                    let scores = &of_leaves[leaf * classes..(leaf + 1) * classes];
                    out[row * classes..(row + 1) * classes].copy_from_slice(scores);
                });
                continue;
            }
            let sums = &mut sums[..at.len() * classes];
            sums.fill(0.0);
            for (t, (walk, tree)) in walks.iter().zip(&self.trees).enumerate() {
                if self.sum == Sum::Votes && classes == 2 {
                    // without a slice for each row
                    let (sums, leaves) = (sums.as_chunks_mut().0, tree.leaves.as_chunks().0);
                    self.visit(walk, &values, at.len(), |row, leaf| {
                        let ([a, b], [p, q]): (&mut [f64; 2], &[f32; 2]) =
                            (&mut sums[row], &leaves[leaf]);
                        *a += f64::from(*p);
                        *b += f64::from(*q);
                    });
                    continue;
                }
                self.visit(walk, &values, at.len(), |row, leaf| {
                    let sum = &mut sums[row * classes..(row + 1) * classes];
                    self.add_leaf(t, leaf, &tree.leaves, sum);
                });
            }
            for (sum, row) in sums.chunks(classes).zip(out.chunks_mut(classes)) {
                self.score(sum, row);
            }
        }
        scores
    }

    /// Returns the scores of the rows of each leaf of a tree that is alone, leaf after leaf.
    fn scores_of_leaves(&self, tree: &Grown) -> Vec<f32> {
        let each = match self.sum {
            Sum::Votes => self.classes,
            Sum::Margins => 1,
        };
        let leaves = tree.leaves.len() / each.max(1);
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
    }

    /// Calls `f` with each of the first `rows` rows and its leaf.
    fn visit(&self, walk: &Walk, values: &[f32], rows: usize, mut f: impl FnMut(usize, usize)) {
        let from = |i: usize| &values[i * self.width..];
        let together = rows - rows % ABREAST;
        for i in (0..together).step_by(ABREAST) {
            let leaves: [usize; ABREAST] = walk.leaves(from(i), self.width);
            leaves
                .into_iter()
                .enumerate()
                .for_each(|(k, leaf)| f(i + k, leaf));
        }
        for i in together..rows {
            let [leaf] = walk.leaves(from(i), self.width);
            f(i, leaf);
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
