//! Settings of users. Names and defaults follow scikit-learn (trees, forests) and XGBoost
//! (boosting); depth, number of trees and rate are those of FedKT (Li, He, Song 2021).

use fl_core::prelude::*;

choices! {
    /// The features that a node searches, drawn anew for every node.
    pub enum Features {
        /// Every feature.
        All = "all",
        /// The square root of their number (Breiman 2001; scikit-learn's default for forests).
        Sqrt = "sqrt",
        /// This share of them, at least one.
        Share(f64, in above_to(0.0, 1.0)) = "share",
        /// This number of them.
        Count(usize, in 1..) = "count",
    }
}

impl Features {
    /// Returns their number, of `width` features.
    pub(crate) fn of(&self, width: usize) -> usize {
        let share = |f: f64| floor_share(f, width).max(1);
        match self {
            Self::All => width,
            Self::Sqrt => ((width as f64).sqrt() as usize).max(1),
            Self::Share(part) => share(*part),
            Self::Count(count) => (*count).min(width),
        }
    }
}

choices! {
    /// The impurity that a split reduces.
    pub enum Purity {
        /// Gini impurity: the probability that two samples of a node differ in class.
        Gini = "gini",
        /// Entropy of the classes, in bits.
        Entropy = "entropy",
    }
}

choices! {
    /// The weight of a sample of each class.
    pub enum ClassWeights {
        /// Equal weights.
        Even = "none",
        /// `samples / (classes * samples of its class)`: all classes present have equal total
        /// weights.
        Balanced = "balanced",
    }
}

choices! {
    /// The prediction before the first tree.
    pub enum Start {
        /// The shares of the classes, or the mean of the numbers (XGBoost from version 2.0).
        Shares = "shares",
        /// Equal shares, or the label's `centre` (earlier XGBoost, `base_score = 0.5`, as for FedKT's numbers): a few small
        /// steps then need not first undo an unbalanced client's shares.
        Even = "even",
    }
}

/// Declares settings that contain those of every tree.
macro_rules! tree_settings {
    ($(#[doc = $about:literal])* struct $name:ident { $($own:tt)* }) => {
        settings! {
            $(#[doc = $about])*
            pub struct $name {
                $($own)*
                /// Longest path from the root to a leaf; 0 is a constant. 6 as in FedKT.
                depth: usize = 6, in 0..=64;
                /// Bins per feature. A feature with no more distinct values than this can be cut
                /// between any two of them.
                bins: usize = 256, in 2..=256;
                /// Weight of each class.
                class_weights: ClassWeights = ClassWeights::Even;
            }
        }
    };
}

tree_settings! {
    /// A decision tree for classes or a number (CART, Breiman et al. 1984, on binned features).
    struct Tree {
        /// Features searched per node.
        features: Features = Features::All;
        /// The impurity that a split reduces.
        purity: Purity = Purity::Gini;
        /// Least number of samples in a leaf; a sample of weight 2 counts twice.
        min_leaf: usize = 1, in 1..;
        /// Least reduction of impurity by a split, weighted by the node's share of all samples; 0
        /// splits until nodes are pure (scikit-learn's `min_impurity_decrease`).
        min_gain: f64 = 0.0, in 0.0..;
    }
}

tree_settings! {
    /// A random forest (Breiman 2001): trees on bootstrap samples, where each node searches a few
    /// features; class probabilities, or predicted numbers, are averaged.
    struct Forest {
        /// Number of trees. 100 as in FedKT.
        trees: usize = 100, in 1..=100_000;
        /// Draw as many samples as there are, with replacement, for every tree; otherwise every
        /// tree sees each sample once.
        bootstrap: bool = true;
        /// Features searched per node.
        features: Features = Features::Sqrt;
        /// The impurity that a split reduces.
        purity: Purity = Purity::Gini;
        /// Least number of samples in a leaf; a sample of weight 2 counts twice.
        min_leaf: usize = 1, in 1..;
        /// Least reduction of impurity by a split, weighted by the node's share of all samples.
        min_gain: f64 = 0.0, in 0.0..;
    }
}

tree_settings! {
    /// Gradient boosting with second-order steps (Chen, Guestrin 2016): logistic for two classes,
    /// softmax for more, and the squared error for a number.
    struct Boosting {
        /// Number of rounds; a round is one tree, or one per class if there are more than two. 100
        /// as in FedKT.
        trees: usize = 100, in 1..=100_000;
        /// Learning rate: factor of a tree's prediction. 0.05 as in FedKT.
        rate: f64 = 0.05, in above(0.0);
        /// The prediction before the first tree.
        start: Start = Start::Shares;
        /// L2 penalty on leaf values (XGBoost's `lambda`).
        l2: f64 = 1.0, in 0.0..;
        /// Least curvature in a leaf (about a quarter of a sample at first; XGBoost's
        /// `min_child_weight`).
        min_weight: f64 = 1.0, in 0.0..;
        /// Least gain of a split: the reduction of the squared error, or twice that of the
        /// approximated loss of classes. XGBoost's `gamma` is in the same unit, but prunes a grown
        /// tree: it keeps a split that gains less if one below it gains enough.
        min_gain: f64 = 0.0, in 0.0..;
        /// Features searched per node.
        features: Features = Features::All;
        /// Share of the samples for each tree, drawn without replacement.
        subsample: f64 = 1.0, in above_to(0.0, 1.0);
    }
}
