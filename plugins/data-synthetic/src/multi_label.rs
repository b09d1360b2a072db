//! `multi-label`: grey images in which several marks may be present at once, some labels unknown
//! (multi-label).

use crate::glyphs::{CLASSES, Canvas, SIDE, Style, images};
use crate::synthetic::{between, check_rows};
use anyhow::{Context, Result};
use fl_core::{Labels, Stream, Task, TaskKind};
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, check_ranges};
use ndarray::Array2;

/// Mean and standard deviation of the training pixels, on the scale 0 to 1.
pub const STATISTICS: (f32, f32) = (0.076, 0.152);

fl_core::settings! {
    /// Made here: several glyphs may be present in an image at once, 28 x 28 grey, some labels
    /// unknown.
    #[check(MultiLabel::fits)]
    pub struct MultiLabel {
        /// Number of findings; finding `f` is a small glyph of class `f`.
        findings: usize = 5, in 1..=CLASSES;
        /// Training images.
        train: usize = 4000, in 1..;
        /// Test images; their labels are all known.
        test: usize = 1000, in 1..;
        /// Share of the training labels that are unknown (-1).
        unknown: f64 = 0.1, in 0.0..=1.0;
        /// Standard deviation of the noise on each pixel, on the scale 0 to 1.
        noise: f64 = 0.1, in 0.0..;
        /// The set with another seed is another set.
        seed: u64 = 0;
    }
}

fl_data_kit::data_set!("multi-label" => MultiLabel);

impl DataSet for MultiLabel {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            statistics: Some((&[STATISTICS.0], &[STATISTICS.1])),
            ..DataSetFacts::made(self.train, self.test)
        }
    }

    fn task(&self) -> Option<Task> {
        Some(Task::new(
            vec![1, SIDE, SIDE],
            TaskKind::MultiLabel(self.findings),
        ))
    }

    fn vocabulary(&self) -> Option<usize> {
        Some(0)
    }

    fn load(&self, _: &Folder<'_>) -> Result<Rows> {
        check_ranges(self).context("multi-label")?;
        // the set was once called so; another name here would make another set
        let stream = Stream::root(self.seed).child("findings", 0);
        let part = |name: &str, rows: usize, unknown: f64| {
            let (mut data, mut labels) = (Vec::new(), Array2::zeros((rows, self.findings)));
            for (row, mut labels) in labels.rows_mut().into_iter().enumerate() {
                let mut draws = stream.child(name, row as u64).draws();
                let mut canvas = Canvas::default();
                for (f, label) in labels.iter_mut().enumerate() {
                    if draws.uniform() < prevalence(f) {
                        let room = SIDE as f64 / 2.0 - 6.0;
                        let shift = [
                            between(&mut draws, -room, room),
                            between(&mut draws, -room, room),
                        ];
                        let style = Style::draw(&mut draws, 5.0, 0.15, shift);
                        canvas.write(f, &style, &mut draws);
                        *label = 1;
                    }
                }
                canvas.scan(self.noise, &mut draws, &mut data);
                // what is in the image does not depend on what is known about it
                for label in &mut labels {
                    if draws.uniform() < unknown {
                        *label = -1i8;
                    }
                }
            }
            (images(data, STATISTICS), Labels::Multi(labels))
        };
        Ok(Rows::new(
            part("train", self.train, self.unknown),
            part("test", self.test, 0.0),
        ))
    }
}

/// Share of the images that have finding `f`: later findings are rarer, as in a clinic.
fn prevalence(f: usize) -> f64 {
    0.4 / (1.0 + 0.25 * f as f64)
}

impl MultiLabel {
    fn fits(&self) -> Result<(), String> {
        check_rows(&[self.train, self.test], SIDE * SIDE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Make;
    use fl_core::Inputs;
    use fl_core::settings::defaults;

    #[test]
    fn labels_are_yes_no_or_unknown() {
        let [(inputs, labels), (test, known)] = defaults::<MultiLabel>().make().unwrap();
        assert_eq!(
            (inputs.len(), test.len(), inputs.shape()),
            (4000, 1000, vec![1, 28, 28])
        );
        let share = |labels: &Labels, f: usize, value: i8| {
            let Labels::Multi(labels) = labels else {
                panic!("findings are multi-label")
            };
            labels.column(f).iter().filter(|l| **l == value).count() as f64 / labels.nrows() as f64
        };
        for f in 0..5 {
            assert!((share(&labels, f, -1) - 0.1).abs() < 0.02);
            assert!((share(&labels, f, 1) - 0.9 * prevalence(f)).abs() < 0.03);
            assert!(
                share(&known, f, -1) == 0.0 && (share(&known, f, 1) - prevalence(f)).abs() < 0.05
            );
        }
        let Labels::Multi(all) = &known else {
            panic!("findings are multi-label")
        };
        assert!(
            all.rows()
                .into_iter()
                .any(|row| row.iter().filter(|l| **l == 1).count() > 2)
        );
        assert!(
            all.rows()
                .into_iter()
                .any(|row| row.iter().all(|l| *l == 0))
        );
    }

    #[test]
    fn exact_the_set_never_changes() {
        let [(inputs, labels), _] = MultiLabel {
            train: 20,
            ..defaults()
        }
        .make()
        .unwrap();
        let Inputs::Bytes {
            data, mean, std, ..
        } = inputs
        else {
            panic!("findings are images")
        };
        let Labels::Multi(labels) = labels else {
            panic!("findings are multi-label")
        };
        assert_eq!((mean[0], std[0]), STATISTICS);
        assert_eq!(
            crate::synthetic::hash(data.into_iter().chain(labels.iter().map(|l| *l as u8))),
            "31f36ec9eb9573aa"
        );
    }

    #[test]
    fn the_statistics_are_those_of_the_set() {
        let [(Inputs::Bytes { data, .. }, _), _] = defaults::<MultiLabel>().make().unwrap() else {
            panic!("findings are images")
        };
        let (n, value) = (data.len() as f64, |b: &u8| f64::from(*b) / 255.0);
        let mean = data.iter().map(value).sum::<f64>() / n;
        let var = data.iter().map(|b| (value(b) - mean).powi(2)).sum::<f64>() / n;
        assert!(
            (mean - f64::from(STATISTICS.0)).abs() < 0.005,
            "mean {mean}"
        );
        assert!(
            (var.sqrt() - f64::from(STATISTICS.1)).abs() < 0.005,
            "std {}",
            var.sqrt()
        );
    }

    #[test]
    fn an_image_does_not_depend_on_what_is_known() {
        let make = |unknown| {
            MultiLabel {
                train: 20,
                test: 1,
                unknown,
                ..defaults()
            }
            .make()
            .unwrap()
        };
        let ([(a, la), _], [(b, lb), _]) = (make(0.0), make(1.0));
        assert_eq!(a, b);
        assert_ne!(la, lb);
        assert_eq!(lb, Labels::Multi(Array2::from_elem((20, 5), -1)));
    }

    #[test]
    fn settings_are_checked() {
        for bad in [
            MultiLabel {
                findings: 0,
                ..defaults()
            },
            MultiLabel {
                findings: 11,
                ..defaults()
            },
            MultiLabel {
                unknown: 1.5,
                ..defaults()
            },
            MultiLabel {
                noise: f64::NAN,
                ..defaults()
            },
        ] {
            assert!(bad.make().is_err());
        }
    }
}
