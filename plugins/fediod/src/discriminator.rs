//! The discriminator at a client, which separates generated inputs from real ones.
use crate::image_translator::{channels, draw, with_channels};
use crate::messages::ImagesOfMaps;
use fl_core::loss::sigmoid;
use fl_core::prelude::*;
use fl_core::{Length, Problem};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, concatenate};

/// `ln sigmoid(x)`.
fn ln_sigmoid(x: f64) -> f64 {
    x.min(0.0) - libm::log1p(libm::exp(-x.abs()))
}

/// `ln(mean(exp(x)))`.
fn ln_mean_exp(of: impl Iterator<Item = f64> + Clone, n: usize) -> f64 {
    let top = of.clone().fold(f64::NEG_INFINITY, f64::max);
    top + libm::log(of.map(|x| libm::exp(x - top)).sum::<f64>() / n as f64)
}

/// Returns the log-odds of "generated" for one input, whose regions have these scores: those of the
/// mean of their probabilities. For one region: its score. Second, the slope by each score.
fn of_parts<T: Copy + Into<f64>>(scores: ArrayView1<'_, T>) -> (f64, Vec<f64>) {
    if scores.len() == 1 {
        return (scores[0].into(), vec![1.0]);
    }
    let (n, each) = (scores.len(), scores.iter().map(|s| (*s).into()));
    let (yes, no) = (
        ln_mean_exp(each.clone().map(ln_sigmoid), n),
        ln_mean_exp(each.clone().map(|s| ln_sigmoid(-s)), n),
    );
    let by = each.map(|s| libm::exp(ln_sigmoid(s) + ln_sigmoid(-s) - yes - no) / n as f64);
    (yes - no, by.collect())
}

/// Returns the log-odds of "generated" for inputs whose regions have these scores,
/// `inputs x parts`.
pub fn odds<T: Copy + Into<f64>>(scores: ArrayView2<'_, T>) -> Array1<f64> {
    scores
        .rows()
        .into_iter()
        .map(|row| of_parts(row).0)
        .collect()
}

/// Converts a slope by the log-odds to that by the scores of the regions.
pub fn by_patch(scores: ArrayView2<'_, f32>, slope: ArrayView1<'_, f32>) -> Array2<f32> {
    let mut by = Array2::zeros(scores.dim());
    for ((mut by, scores), slope) in by.rows_mut().into_iter().zip(scores.rows()).zip(slope) {
        let parts = of_parts(scores).1;
        by.iter_mut()
            .zip(parts)
            .for_each(|(b, p)| *b = (f64::from(*slope) * p) as f32);
    }
    by
}

/// Draws `n` of this client's own inputs, each as often as another as far as possible.
fn real(client: &Client, n: usize, stream: &Stream) -> Samples {
    let own = &client.own().samples;
    own.pick(&draw(own.len(), n, stream))
}

/// The inputs of one batch that a discriminator sees.
pub(crate) struct DiscriminatorBatch {
    /// Rows of the batch that it sees.
    pub rows: Vec<usize>,
    /// The same number of real inputs.
    pub real: Samples,
    /// The made inputs of the batch.
    pub made: Samples,
}

impl DiscriminatorBatch {
    /// Takes all made inputs, and draws real inputs from `stream`. A client without examples has
    /// nothing to compare with, so its discriminator sees no input.
    pub fn all(client: &Client, x: Samples, stream: &Stream) -> Self {
        let seen = if client.own().is_empty() { 0 } else { x.len() };
        let rows: Vec<usize> = (0..seen).collect();
        Self {
            real: real(client, seen, stream),
            made: x.pick(&rows),
            rows,
        }
    }

    /// Pairs images made from this client's label maps, and its own images, with their maps.
    pub fn pairs(client: &Client, sent: &ImagesOfMaps) -> Result<Self> {
        let (n, all) = (sent.values.nrows(), client.own().len());
        let text = || {
            format!(
                "{n} images of {} label maps, of the {all} here",
                sent.of.len()
            )
        };
        let known = |row: &u32| *row == ImagesOfMaps::ANOTHERS || (*row as usize) < all;
        let right = sent.of.len() == n && sent.of.iter().all(known);
        Problem::shape_unless(right, text)?;
        let own = sent
            .of
            .indexed_iter()
            .filter(|(_, of)| **of != ImagesOfMaps::ANOTHERS);
        let (rows, own): (Vec<usize>, Vec<usize>) =
            own.map(|(row, of)| (row, *of as usize)).unzip();
        let own = client.own().pick(&own);
        let classes = client.task().kind.classes();
        let maps = channels(
            own.masks().context("examples without label maps")?.of(),
            classes,
        );
        let shape = with_channels(client.task().input[0] + classes, client.task());
        let pair = |images: Array2<f32>| {
            let both = concatenate(Axis(1), &[images.view(), maps.view()])?;
            Samples::fresh(both, shape.clone())
        };
        Ok(Self {
            real: pair(own.samples.values())?,
            made: pair(sent.values.select(Axis(0), &rows))?,
            rows,
        })
    }

    /// Trains the discriminator for one step to separate made from real inputs, by cross-entropy.
    pub fn train(&self, model: &mut dyn Trainer, parts: usize, stream: &Stream) -> Result<()> {
        let n = self.made.len();
        let labels = Array2::from_shape_fn((2 * n, parts), |(i, _)| i8::from(i >= n));
        let pass = FitOptions::new(Length::Steps(1), 2 * n, Loss::CrossEntropy);
        let target = Target::MultiLabel(labels.view());
        model.fit(&self.both()?, target, &pass, stream)?;
        Ok(())
    }

    /// Trains for one step along the slope of Eq. 2, as a step of the mean squared distance to a
    /// target with that slope. `share` is the client's share of all examples.
    pub fn train_linearly(
        &self,
        model: &mut dyn Trainer,
        share: f64,
        stream: &Stream,
    ) -> Result<()> {
        let (n, both) = (self.made.len(), self.both()?);
        let mut target = model.predict(&both)?;
        for (i, mut row) in target.rows_mut().into_iter().enumerate() {
            let by = if i < n { share } else { -1.0 };
            row.mapv_inplace(|s| {
                let d = sigmoid(f64::from(s));
                (f64::from(s) - by * d * (1.0 - d)) as f32
            });
        }
        let pass = FitOptions::new(Length::Steps(1), 2 * n, Loss::Mse);
        model.fit(&both, Target::Scores(target.view()), &pass, stream)?;
        Ok(())
    }

    fn both(&self) -> Result<Samples> {
        let both = [self.real.values(), self.made.values()];
        let both = concatenate(Axis(0), &[both[0].view(), both[1].view()])?;
        Samples::fresh(both, self.made.shape())
    }
}

/// Returns inputs of the run's shape.
///
/// # Errors
/// If they are of another width.
pub(crate) fn inputs(values: &Array2<f32>, task: &Task) -> Result<Samples> {
    let text = || {
        format!(
            "inputs of {} numbers for a task of {:?}",
            values.ncols(),
            task.input
        )
    };
    Problem::shape_unless(values.ncols() == task.width(), text)?;
    Samples::fresh(values.clone(), task.input.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn parts_count_by_their_mean_probability_and_slopes_are_its() {
        let scores = array![[0.3f32, -2.0, 1.5, 0.0], [40.0, 40.0, 40.0, 40.0]];
        let found = odds(scores.view());
        let mean: f64 = scores
            .row(0)
            .iter()
            .map(|s| sigmoid(f64::from(*s)))
            .sum::<f64>()
            / 4.0;
        assert!((sigmoid(found[0]) - mean).abs() < 1e-12);
        assert!(
            (found[1] - 40.0).abs() < 1e-9,
            "no rounding to certainty: {}",
            found[1]
        );
        let by = by_patch(scores.view(), array![1.0f32, 2.0].view());
        for j in 0..4 {
            let at = |d: f32| {
                let mut moved = scores.clone();
                moved[[0, j]] += d;
                odds(moved.view())[0]
            };
            let n = (at(0.01) - at(-0.01)) / 0.02;
            assert!(
                (f64::from(by[[0, j]]) - n).abs() < 1e-4,
                "{} {n}",
                by[[0, j]]
            );
        }
        assert_eq!(
            odds(array![[3.5f32]].view()),
            array![3.5],
            "one part: its score"
        );
        assert_eq!(
            by_patch(array![[3.5f32]].view(), array![2.0f32].view()),
            array![[2.0]]
        );
    }
}
