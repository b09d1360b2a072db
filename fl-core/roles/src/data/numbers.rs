//! [`Numbers`]: labels that are numbers, for regression.

use super::TaskKind;
use crate::{Loss, Problem, Result, metrics};
use anyhow::ensure;
use ndarray::{Array2, ArrayView2, Axis};

/// The public scale of a label: an output of a model is `(number - centre) / spread`.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LabelScale {
    /// The number that an output of 0 stands for.
    pub centre: f64,
    /// The difference of numbers that a difference of 1 between outputs stands for; above 0.
    pub spread: f64,
}

impl LabelScale {
    /// Returns mean and standard deviation of these numbers; a spread of 1 if they do not vary.
    pub fn of(numbers: &[f64]) -> Self {
        let (mean, deviation) = metrics::mean_std(numbers);
        Self {
            centre: if numbers.is_empty() { 0.0 } else { mean },
            spread: if deviation > 0.0 { deviation } else { 1.0 },
        }
    }
}

/// Numbers to predict: one row for each sample, and one column for each number.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Numbers {
    of: Array2<f32>,
    scales: Vec<LabelScale>,
    loss: Loss,
}

/// Errors of predictions, averaged over the predicted numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberErrors {
    /// Root of the mean squared error, in the label's unit.
    pub rmse: f64,
    /// Mean absolute error, in the label's unit.
    pub mae: f64,
    /// Coefficient of determination, `1 - sum (y - p)^2 / sum (y - mean y)^2`: at most 1, and 0 for
    /// the mean of these labels. `None` if they are all equal.
    pub r2: Option<f64>,
}

impl Numbers {
    /// Scales `numbers`, which are in the label's unit, `samples x numbers`. `loss` is the loss of
    /// models that learn them.
    ///
    /// # Errors
    /// If there is no column or not one scale for each, a scale is not finite or a spread not above
    /// 0, a scaled number is no finite 32-bit number, or `loss` is none for numbers.
    pub fn new(numbers: ArrayView2<'_, f64>, scales: Vec<LabelScale>, loss: Loss) -> Result<Self> {
        let of = Array2::from_shape_fn(numbers.dim(), |(row, at)| {
            let scale = scales.get(at);
            scale.map_or(f32::NAN, |scale| {
                ((numbers[[row, at]] - scale.centre) / scale.spread) as f32
            })
        });
        Self::scaled(of, scales, loss)
    }

    /// As [`Numbers::new`], with one number for each row.
    ///
    /// # Errors
    /// As [`Numbers::new`].
    pub fn one(numbers: &[f64], scale: LabelScale, loss: Loss) -> Result<Self> {
        let column = ArrayView2::from_shape((numbers.len(), 1), numbers)?;
        Self::new(column, vec![scale], loss)
    }

    /// As [`Numbers::new`], with numbers that are scaled already.
    ///
    /// # Errors
    /// As [`Numbers::new`].
    pub fn scaled(of: Array2<f32>, scales: Vec<LabelScale>, loss: Loss) -> Result<Self> {
        Problem::shape_unless(of.ncols() == scales.len() && !scales.is_empty(), || {
            format!(
                "{} numbers a row with {} scales; each number needs one",
                of.ncols(),
                scales.len()
            )
        })?;
        let usable =
            |s: &LabelScale| s.centre.is_finite() && s.spread.is_finite() && s.spread > 0.0;
        if let Some(scale) = scales.iter().find(|scale| !usable(scale)) {
            let LabelScale { centre, spread } = scale;
            let text = format!(
                "a label with centre {centre} and spread {spread}: both must be finite, and the spread above 0"
            );
            return Err(Problem::Shape(text).into());
        }
        Problem::shape_unless(of.iter().all(|number| number.is_finite()), || {
            "a label is no finite 32-bit number on its scale".into()
        })?;
        let numbers = Self { of, scales, loss };
        ensure!(
            numbers.task().has(loss),
            Problem::Lacks(format!("numbers are not learnt by the loss {loss}"))
        );
        Ok(numbers)
    }

    /// Returns the scaled numbers, which a model learns: `samples x numbers`.
    pub fn of(&self) -> ArrayView2<'_, f32> {
        self.of.view()
    }

    /// Returns the scale of each column.
    pub fn scales(&self) -> &[LabelScale] {
        &self.scales
    }

    /// Returns the loss of models that learn them.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Returns the task of a model that predicts them.
    pub fn task(&self) -> TaskKind {
        TaskKind::Numbers {
            outputs: self.of.ncols(),
            loss: self.loss,
        }
    }

    /// Returns the rows at these positions.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            of: self.of.select(Axis(0), rows),
            ..self.clone_scale()
        }
    }

    /// Returns these rows followed by those of `more`.
    ///
    /// # Errors
    /// If their scales or losses differ.
    pub fn join(&self, more: &Self) -> Result<Self> {
        self.fits(more)?;
        Ok(Self {
            of: ndarray::concatenate(Axis(0), &[self.of(), more.of()])?,
            ..self.clone_scale()
        })
    }

    /// Checks that a model can learn both.
    ///
    /// # Errors
    /// If their scales or losses differ.
    pub fn fits(&self, more: &Self) -> Result<()> {
        Problem::shape_unless(self.scales == more.scales && self.loss == more.loss, || {
            "labels on two scales, or with two losses, do not go together; state one `centre`, `spread` and `loss` for both".into()
        })
    }

    fn clone_scale(&self) -> Self {
        Self {
            of: Array2::zeros((0, self.of.ncols())),
            scales: self.scales.clone(),
            loss: self.loss,
        }
    }

    /// Returns the errors of a model's outputs. They are NaN if an output is.
    ///
    /// # Errors
    /// If there is not one output for each number.
    pub fn errors(&self, outputs: ArrayView2<'_, f32>) -> Result<NumberErrors> {
        Problem::shape_unless(outputs.dim() == self.of.dim(), || {
            format!(
                "outputs of {:?} values for numbers of {:?}",
                outputs.dim(),
                self.of.dim()
            )
        })?;
        let rows = self.of.nrows() as f64;
        let (mut rmse, mut mae, mut r2) = (0.0, 0.0, Some(0.0));
        for (at, scale) in self.scales.iter().enumerate() {
            let truth = self.of.column(at).mapv(f64::from);
            let off = outputs.column(at).mapv(f64::from) - &truth;
            let squares = off.iter().map(|d| d * d).sum::<f64>();
            let mean = truth.sum() / rows;
            let varied = truth.iter().map(|t| (t - mean).powi(2)).sum::<f64>();
            rmse += scale.spread * (squares / rows).sqrt();
            mae += scale.spread * off.iter().map(|d| d.abs()).sum::<f64>() / rows;
            r2 = r2
                .filter(|_| varied > 0.0)
                .map(|sum| sum + 1.0 - squares / varied);
        }
        let count = self.scales.len() as f64;
        Ok(NumberErrors {
            rmse: rmse / count,
            mae: mae / count,
            r2: r2.map(|sum| sum / count),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn numbers(values: &[f64]) -> Result<Numbers> {
        let (centre, spread) = (10.0, 2.0);
        Numbers::one(values, LabelScale { centre, spread }, Loss::Mse)
    }

    #[test]
    fn exact_errors_are_in_the_unit_of_the_label() {
        let truth = numbers(&[8.0, 10.0, 12.0, 14.0]).unwrap();
        assert_eq!(truth.of(), array![[-1.0], [0.0], [1.0], [2.0]]);
        // predicted 8, 12, 12, 10: off by 0, 2, 0, -4
        let errors = truth
            .errors(array![[-1.0], [1.0], [1.0], [0.0]].view())
            .unwrap();
        assert_eq!(errors.rmse, 5.0f64.sqrt());
        assert_eq!(errors.mae, 1.5);
        // the labels' own squares about their mean 11: 9 + 1 + 1 + 9
        assert_eq!(errors.r2, Some(1.0 - 20.0 / 20.0));
        let equal = numbers(&[8.0, 8.0]).unwrap();
        assert_eq!(equal.errors(array![[0.0], [0.0]].view()).unwrap().r2, None);
        let lost = truth
            .errors(Array2::from_elem((4, 1), f32::NAN).view())
            .unwrap();
        assert!(lost.rmse.is_nan() && lost.mae.is_nan() && lost.r2.unwrap().is_nan());
        assert!(truth.errors(array![[0.0]].view()).is_err());
    }

    #[test]
    fn exact_a_scale_is_mean_and_deviation() {
        let [scale, flat, none] = [&[1.0, 3.0][..], &[2.0, 2.0], &[]].map(LabelScale::of);
        assert_eq!((scale.centre, scale.spread), (2.0, 1.0));
        assert_eq!((flat.centre, flat.spread), (2.0, 1.0));
        assert_eq!((none.centre, none.spread), (0.0, 1.0));
    }

    #[test]
    fn numbers_and_scales_that_cannot_be_learnt_are_refused() {
        let refused = |found: Result<Numbers>| found.unwrap_err().to_string();
        assert!(refused(numbers(&[1e300])).contains("no finite 32-bit number"));
        let made = |spread, loss| {
            let centre = 0.0;
            Numbers::scaled(array![[0.0]], vec![LabelScale { centre, spread }], loss)
        };
        assert!(refused(made(0.0, Loss::Mse)).contains("the spread above 0"));
        assert_eq!(
            refused(made(1.0, Loss::CrossEntropy)),
            "numbers are not learnt by the loss cross-entropy"
        );
        assert!(made(1.0, Loss::Huber { delta: 1.0 }).is_ok());
        assert!(Numbers::scaled(array![[0.0]], Vec::new(), Loss::Mse).is_err());
        let (one, other) = (made(1.0, Loss::Mse).unwrap(), made(2.0, Loss::Mse).unwrap());
        assert_eq!(one.join(&one).unwrap().of(), array![[0.0], [0.0]]);
        assert!(refused(one.join(&other)).starts_with("labels on two scales"));
    }
}
