//! `blobs`: one cloud of points per class.

use crate::synthetic::{bell, check_rows};
use anyhow::{Context, Result};
use fl_core::{Inputs, Labels, Stream, Task};
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, check_ranges, class_task};

fl_core::settings! {
    /// Made here: a cloud of points per class.
    #[check(Blobs::fits)]
    pub struct Blobs {
        /// Number of classes.
        classes: usize = 4, in 1..=10_000;
        /// Values in a row.
        features: usize = 8, in 1..=100_000;
        /// Training rows; row `i` is of class `i % classes`.
        train: usize = 1000, in 1..=10_000_000;
        /// Test rows.
        test: usize = 500, in 1..=10_000_000;
        /// Standard deviation of a cloud; the centres of the clouds have standard deviation 1 in
        /// each direction.
        spread: f64 = 1.0, in 0.0..;
        /// The set with another seed is another set.
        seed: u64 = 0;
    }
}

fl_data_kit::data_set!("blobs" => Blobs);

impl DataSet for Blobs {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts::made(self.train, self.test)
    }

    fn task(&self) -> Option<Task> {
        class_task(&[self.features], self.classes)
    }

    fn vocabulary(&self) -> Option<usize> {
        Some(0)
    }

    fn load(&self, _: &Folder<'_>) -> Result<Rows> {
        check_ranges(self).context("blobs")?;
        let stream = Stream::root(self.seed).child("blobs", 0);
        let centre = |class: usize| {
            let mut draws = stream.child("centre", class as u64).draws();
            (0..self.features).map(|_| bell(&mut draws, 12)).collect()
        };
        let centres: Vec<Vec<f64>> = (0..self.classes).map(centre).collect();
        let part = |name: &str, rows: usize| {
            let mut data = Vec::with_capacity(rows * self.features);
            for row in 0..rows {
                let mut draws = stream.child(name, row as u64).draws();
                let centre = &centres[row % self.classes];
                data.extend(
                    centre
                        .iter()
                        .map(|c| (c + self.spread * bell(&mut draws, 12)) as f32),
                );
            }
            let of = (0..rows).map(|row| (row % self.classes) as u32).collect();
            (
                Inputs::Dense {
                    shape: vec![self.features],
                    data,
                },
                Labels::Classes {
                    of,
                    classes: self.classes,
                },
            )
        };
        Ok(Rows::new(
            part("train", self.train),
            part("test", self.test),
        ))
    }
}

impl Blobs {
    fn fits(&self) -> Result<(), String> {
        check_rows(&[self.classes, self.train, self.test], self.features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Make;
    use fl_core::settings::defaults;

    #[test]
    fn rows_lie_around_their_class() {
        let set = Blobs {
            spread: 0.01,
            ..defaults()
        };
        let [(inputs, labels), (test, _)] = set.make().unwrap();
        assert_eq!(
            (inputs.len(), test.len(), labels.classes(), inputs.width()),
            (1000, 500, 4, 8)
        );
        let row = |of: &Inputs, at| {
            let mut out = vec![0.0; 8];
            of.write_row(at, &mut out);
            out
        };
        let distance = |a: &[f32], b: &[f32]| {
            a.iter()
                .zip(b)
                .map(|(a, b)| (a - b).powi(2))
                .sum::<f32>()
                .sqrt()
        };
        assert!(distance(&row(&inputs, 0), &row(&inputs, 4)) < 0.2);
        assert!(distance(&row(&inputs, 1), &row(&test, 5)) < 0.2);
        assert!(distance(&row(&inputs, 0), &row(&inputs, 1)) > 1.0);
    }

    #[test]
    fn exact_the_set_never_changes() {
        let [(inputs, _), _] = Blobs {
            train: 20,
            ..defaults()
        }
        .make()
        .unwrap();
        let Inputs::Dense { data, .. } = inputs else {
            panic!("blobs are dense")
        };
        assert_eq!(
            crate::synthetic::hash(data.iter().flat_map(|v| v.to_le_bytes())),
            "da9102a1a0ffdb61"
        );
    }

    #[test]
    fn settings_are_checked() {
        assert!(
            Blobs {
                classes: 0,
                ..defaults()
            }
            .make()
            .is_err()
        );
        assert!(
            Blobs {
                spread: f64::NAN,
                ..defaults()
            }
            .make()
            .is_err()
        );
        let none = Blobs {
            train: 0,
            ..defaults()
        };
        assert_eq!(
            format!("{:#}", none.make().unwrap_err()),
            "blobs: train: must be in 1..=10000000, got 0"
        );
    }
}
