//! [`Model`]: a fitted model: trees on plain numbers, the sum of their leaves, and their bytes. See
//! `predict`.

use anyhow::{Context, ensure};
use fl_core::{Problem, Result};
use serde::{Deserialize, Serialize};

/// Marks the bytes of a model; the digit is the version.
const MAGIC: &[u8] = b"fltrees1";

/// The base score of a class that the model has not seen.
pub const UNSEEN: f32 = f32::MIN;

/// The child of a split: an even number is twice the index of a split, an odd one twice that of a
/// leaf plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next(u32);

impl Next {
    pub fn split(at: usize) -> Self {
        Self((at * 2) as u32)
    }
    pub fn leaf(at: usize) -> Self {
        Self((at * 2 + 1) as u32)
    }
    pub fn at(self) -> usize {
        (self.0 / 2) as usize
    }
    pub fn is_leaf(self) -> bool {
        self.0 % 2 == 1
    }
}

/// Samples whose `feature` is at most `threshold` go left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    pub feature: u32,
    pub threshold: f32,
    pub left: Next,
    pub right: Next,
}

/// One tree. A split leads only to later splits, and each split has one parent. Without splits
/// there is one leaf.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grown {
    pub splits: Vec<Split>,
    /// The values of all leaves, one leaf after the other.
    pub leaves: Vec<f32>,
}

impl Grown {
    fn check(&self, width: usize, values: usize) -> Result<()> {
        let leaves = self.leaves.len() / values;
        ensure!(
            leaves > 0 && leaves * values == self.leaves.len(),
            "a tree with {} leaf values",
            self.leaves.len()
        );
        ensure!(
            self.leaves.iter().all(|v| v.is_finite()),
            "a leaf value is not finite"
        );
        let mut met = vec![false; self.splits.len()];
        for (i, split) in self.splits.iter().enumerate() {
            ensure!(
                (split.feature as usize) < width,
                "feature {} of {width}",
                split.feature
            );
            for next in [split.left, split.right] {
                let at = next.at();
                let known = if next.is_leaf() {
                    at < leaves
                } else {
                    // only forwards, so that no sample loops, and from one parent only: paths that
                    // meet again would make a tree of exponential size
                    at > i && at < met.len() && !std::mem::replace(&mut met[at], true)
                };
                ensure!(known, "split {i} leads nowhere");
            }
        }
        Ok(())
    }
}

/// How the trees' leaves become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sum {
    /// A leaf has the probability of each class; the score is the mean over trees.
    Votes,
    /// A leaf has one value, which is added to the score of a class: tree by tree class 0, 1, ..
    /// and again; to that of class 1 if there are two.
    Margins,
}

/// A fitted model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub sum: Sum,
    pub width: usize,
    pub classes: usize,
    /// The score of each class before any tree; [`UNSEEN`] for a class without a sample.
    pub base: Vec<f32>,
    pub trees: Vec<Grown>,
    /// Features of splits, ascending, with the total gain of their splits.
    pub gains: Vec<(u32, f32)>,
}

impl Model {
    /// Returns a model without trees, for which all classes are equally likely.
    pub fn blank(sum: Sum, width: usize, classes: usize) -> Self {
        Self {
            sum,
            width,
            classes,
            base: vec![0.0; classes],
            trees: Vec::new(),
            gains: Vec::new(),
        }
    }

    /// Marks the classes without a sample.
    pub fn without(mut self, unseen: impl Fn(usize) -> bool) -> Self {
        let classes = self.base.iter_mut().enumerate();
        let marked = classes.filter(|(class, _)| unseen(*class));
        marked.for_each(|(_, base)| *base = UNSEEN);
        self
    }

    /// Adds the total gains of the splits on each feature.
    pub fn with_gains(mut self, gains: &[f64]) -> Self {
        let named = gains
            .iter()
            .enumerate()
            .map(|(f, gain)| (f as u32, *gain as f32));
        self.gains = named.filter(|(_, gain)| *gain > 0.0).collect();
        self
    }

    /// Returns the share of each feature in the total gain; all 0 if there is no split.
    pub fn importance(&self) -> Vec<f64> {
        let all: f64 = self.gains.iter().map(|(_, gain)| f64::from(*gain)).sum();
        let mut shares = vec![0.0; self.width];
        for (feature, gain) in &self.gains {
            shares[*feature as usize] = f64::from(*gain) / all;
        }
        shares
    }

    /// Serialises the model.
    pub fn save(&self) -> Result<Vec<u8>> {
        Ok(postcard::to_extend(self, MAGIC.to_vec())?)
    }

    /// Reads a model from arbitrary bytes: everything is checked before use.
    pub fn load(bytes: &[u8], like: &Self) -> Result<Self> {
        let body = bytes
            .strip_prefix(MAGIC)
            .context("these bytes are not a model of trees of this version")?;
        let (model, rest): (Self, _) =
            postcard::take_from_bytes(body).context("the model of trees is damaged")?;
        ensure!(
            rest.is_empty(),
            "the model of trees is followed by {} bytes",
            rest.len()
        );
        Problem::shape_unless(
            (model.sum, model.width, model.classes) == (like.sum, like.width, like.classes),
            || {
                format!(
                    "a model of {} features and {} classes by {:?} where one of {} and {} by {:?} is needed",
                    model.width, model.classes, model.sum, like.width, like.classes, like.sum
                )
            },
        )?;
        model.check().context("the model of trees is damaged")?;
        Ok(model)
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.base.len() == self.classes,
            "{} base scores",
            self.base.len()
        );
        let (each, values) = match self.sum {
            Sum::Votes => (1, self.classes),
            Sum::Margins if self.classes == 2 => (1, 1),
            Sum::Margins => (self.classes, 1),
        };
        ensure!(
            self.trees.len().is_multiple_of(each),
            "{} trees",
            self.trees.len()
        );
        let votes = self.sum == Sum::Votes;
        for (t, tree) in self.trees.iter().enumerate() {
            tree.check(self.width, values)
                .with_context(|| format!("tree {t}"))?;
            ensure!(
                !votes || tree.leaves.iter().all(|p| *p >= 0.0),
                "tree {t}: a probability below 0"
            );
        }
        let finite = |v: &f32| v.is_finite();
        ensure!(self.base.iter().all(finite), "a base score is not finite");
        ensure!(
            self.base.iter().any(|base| *base != UNSEEN),
            "it has seen no class"
        );
        let known =
            |(f, gain): &(u32, f32)| (*f as usize) < self.width && gain.is_finite() && *gain > 0.0;
        ensure!(self.gains.iter().all(known), "a gain that cannot be");
        Ok(())
    }
}
