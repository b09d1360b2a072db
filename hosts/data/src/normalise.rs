//! What is taken from values before a model sees them.

use fl_core::Inputs;
use fl_core::settings::above;

fl_core::settings! {
    /// What is taken from each value before a model sees it: `(value - mean) / std`, per channel of
    /// an image (on the scale 0 to 1) or per column of a table.
    pub struct Normalise {
        /// One per channel or column.
        mean: Vec<f32>;
        /// One per channel or column.
        std: Vec<f32>, in above(0.0);
    }
}

impl Normalise {
    /// Scales `inputs`, each channel or column of which has a mean and a deviation here.
    pub fn apply(&self, inputs: &mut Inputs) {
        let Self {
            mean: means,
            std: stds,
        } = self;
        match inputs {
            Inputs::Bytes { mean, std, .. } => (*mean, *std) = (means.clone(), stds.clone()),
            Inputs::Dense { data, .. } => {
                for row in data.chunks_mut(means.len().max(1)) {
                    row.iter_mut()
                        .zip(means.iter().zip(stds))
                        .for_each(|(v, (mean, std))| *v = (*v - mean) / std);
                }
            }
            Inputs::Sparse { .. } => {} // a shift would fill its zeros
        }
    }
}
