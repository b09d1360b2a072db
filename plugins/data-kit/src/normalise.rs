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
            Inputs::Dense { shape, data } => {
                for row in data.chunks_mut(shape.iter().product::<usize>().max(1)) {
                    self.channels(row, |v, mean, std| (v - mean) / std);
                }
            }
            Inputs::Sparse { .. } => {} // a shift would fill its zeros
        }
    }

    /// Gives the values of one row back what was taken from them. A row has its channels one after
    /// the other.
    pub fn undo(&self, row: &mut [f32]) {
        self.channels(row, |v, mean, std| v * std + mean);
    }

    /// Replaces every value of a row, with the mean and deviation of its channel.
    fn channels(&self, row: &mut [f32], value: impl Fn(f32, f32, f32) -> f32) {
        let each = (row.len() / self.mean.len().max(1)).max(1);
        let channels = row.chunks_mut(each).zip(self.mean.iter().zip(&self.std));
        for (values, (mean, std)) in channels {
            values.iter_mut().for_each(|v| *v = value(*v, *mean, *std));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_has_its_own_mean_and_deviation() {
        let how = Normalise {
            mean: vec![1.0, 10.0],
            std: vec![2.0, 4.0],
        };
        let data = vec![
            1.0, 3.0, 5.0, 10.0, 14.0, 18.0, -1.0, 1.0, 1.0, 6.0, 10.0, 10.0,
        ];
        let mut images = Inputs::Dense {
            shape: vec![2, 1, 3],
            data: data.clone(),
        };
        how.apply(&mut images);
        let Inputs::Dense {
            data: mut found, ..
        } = images
        else {
            panic!("the inputs are dense");
        };
        let wanted = [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, -1.0, 0.0, 0.0, -1.0, 0.0, 0.0];
        assert_eq!(found, wanted);
        found.chunks_mut(6).for_each(|row| how.undo(row));
        assert_eq!(found, data);
    }
}
