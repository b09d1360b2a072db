//! `friedman`: a number that follows from five of the columns.

use crate::synthetic::{bell, check_rows};
use anyhow::{Context, Result};
use fl_core::{Inputs, LabelScale, Labels, Numbers, Stream, Task, TaskKind};
use fl_data_kit::{DataSet, DataSetFacts, Folder, NumberLoss, Rows, check_ranges};
use std::f64::consts::PI;

/// The scale of the labels, which does not depend on the rows: about their mean and deviation.
const SCALE: LabelScale = LabelScale {
    centre: 14.4,
    spread: 4.9,
};

fl_core::settings! {
    /// Made here: rows of uniform numbers from 0 to 1, and the number
    /// `10 sin(pi x1 x2) + 20 (x3 - 0.5)^2 + 10 x4 + 5 x5` plus noise (Friedman 1991, Eq. 57;
    /// scikit-learn's `make_friedman1`). Other columns do not matter. Labels are scaled by
    /// `(number - 14.4) / 4.9`.
    #[check(Friedman::fits)]
    pub struct Friedman {
        /// Values in a row.
        features: usize = 10, in 5..=100_000;
        /// Training rows.
        train: usize = 1000, in 1..=10_000_000;
        /// Test rows.
        test: usize = 500, in 1..=10_000_000;
        /// Standard deviation of the noise, a sum of 12 uniform draws.
        noise: f64 = 1.0, in 0.0..;
        /// The loss of models that learn the number.
        loss: NumberLoss = NumberLoss::Mse;
        /// The set with another seed is another set.
        seed: u64 = 0;
    }
}

fl_data_kit::data_set!("friedman" => Friedman);

impl DataSet for Friedman {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts::made(self.train, self.test)
    }

    fn task(&self) -> Option<Task> {
        Some(Task::new(
            vec![self.features],
            TaskKind::Numbers {
                outputs: 1,
                loss: self.loss.loss(),
            },
        ))
    }

    fn vocabulary(&self) -> Option<usize> {
        Some(0)
    }

    fn load(&self, _: &Folder<'_>) -> Result<Rows> {
        check_ranges(self).context("friedman")?;
        let stream = Stream::root(self.seed).child("friedman", 0);
        let part = |name: &str, rows: usize| -> Result<(Inputs, Labels)> {
            let mut data = Vec::with_capacity(rows * self.features);
            let mut numbers = Vec::with_capacity(rows);
            for row in 0..rows {
                let mut draws = stream.child(name, row as u64).draws();
                let x: Vec<f64> = (0..self.features).map(|_| draws.uniform()).collect();
                numbers.push(
                    friedman([x[0], x[1], x[2], x[3], x[4]]) + self.noise * bell(&mut draws, 12),
                );
                data.extend(x.into_iter().map(|x| x as f32));
            }
            let shape = vec![self.features];
            let numbers = Numbers::one(&numbers, SCALE, self.loss.loss())?;
            Ok((Inputs::Dense { shape, data }, Labels::Numbers(numbers)))
        };
        Ok(Rows::new(
            part("train", self.train)?,
            part("test", self.test)?,
        ))
    }
}

impl Friedman {
    fn fits(&self) -> Result<(), String> {
        check_rows(&[1, self.train, self.test], self.features)
    }
}

/// Returns the number of five values from 0 to 1, without noise.
fn friedman([a, b, c, d, e]: [f64; 5]) -> f64 {
    10.0 * libm::sin(PI * a * b) + 20.0 * (c - 0.5) * (c - 0.5) + 10.0 * d + 5.0 * e
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Make;
    use fl_core::settings::defaults;

    #[test]
    fn close_labels_are_the_formula_of_their_row_on_the_stated_scale() {
        let set = Friedman {
            noise: 0.0,
            ..defaults()
        };
        let [(inputs, labels), _] = set.make().unwrap();
        let Labels::Numbers(numbers) = labels else {
            panic!("the labels are numbers")
        };
        let mut row = vec![0.0; 10];
        for at in [0, 7, 999] {
            inputs.write_row(at, &mut row);
            let x = [row[0], row[1], row[2], row[3], row[4]].map(f64::from);
            let found = 14.4 + 4.9 * f64::from(numbers.of()[[at, 0]]);
            assert!((found - friedman(x)).abs() < 1e-4, "row {at}: {found}");
        }
        // as scikit-learn's: sin(pi / 2) = 1 with x1 x2 = 0.5
        assert!((friedman([0.5, 1.0, 0.5, 1.0, 1.0]) - 25.0).abs() < 1e-12);
        // the stated scale is near that of the rows
        let scaled: Vec<f64> = numbers.of().iter().map(|y| f64::from(*y)).collect();
        let (mean, std) = fl_core::metrics::mean_std(&scaled);
        assert!(mean.abs() < 0.1 && (std - 1.0).abs() < 0.1, "{mean} {std}");
    }

    #[test]
    fn settings_are_checked() {
        let narrow = Friedman {
            features: 4,
            ..defaults()
        };
        assert_eq!(
            format!("{:#}", narrow.make().unwrap_err()),
            "friedman: features: must be in 5..=100000, got 4"
        );
    }
}
