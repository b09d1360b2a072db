//! Decision trees, random forests and gradient boosting on one histogram learner.
//!
//! Every feature is cut into at most 256 bins once per fit (`bins`). A tree is then grown on bytes (`grow`): a node
//! adds up, for each bin of a feature, what its samples contribute, and a criterion (`criterion`) finds the best cut in
//! that histogram. What a sample contributes is always one `u64` of two whole numbers (samples of class 0 and 1; slope and
//! curvature of a loss; or a class and a count), so sums are exact, come in any order, and a sibling's histogram is the
//! parent's minus the other's, to the bit.
//!
//! A trainer of this crate fits in one go: how long a pass is does not matter, except that a pass of no steps or epochs
//! does nothing; batches do not exist; each fit replaces the model. It learns classes and soft labels (a sample with the
//! soft label `[0.2, 0.8]` counts as a fifth of a sample of class 0 and four fifths of one of class 1; a row that adds up to
//! more or less than 1 is a sample of that weight), and refuses scores, findings and whatever pushes a gradient.

mod bins;
mod boosting;
mod criterion;
mod forest;
mod goal;
mod grow;
mod model;
mod predict;
mod settings;
#[cfg(test)]
mod tests;
mod trainer;

pub use settings::{Boosting, ClassWeights, Features, Forest, Purity, Tree};
pub use trainer::Trees;

use fl_core::plugin;

plugin!(trainer "tree" => Tree as Trees<Tree>);
plugin!(trainer "forest" => Forest as Trees<Forest>);
plugin!(trainer "boosting" => Boosting as Trees<Boosting>);
