//! [`Goal`]: the target of a model: every sample has one class, or parts of several.

use crate::settings::ClassWeights;
use anyhow::{bail, ensure};
use fl_core::{Loss, Problem, Result, Target};

/// A sample, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    pub row: u32,
    pub class: u32,
    pub weight: f32,
}

/// The classes of all samples.
pub struct Goal {
    pub rows: usize,
    pub classes: usize,
    /// By row.
    pub entries: Vec<Entry>,
    /// Whether every sample has just one class, and weight 1.
    pub plain: bool,
}

impl Goal {
    /// Converts a target.
    ///
    /// # Errors
    /// If the target is neither classes nor soft labels, or the loss is not cross-entropy. Also if
    /// the model does not have a class, or soft labels are below 0 or have no weight.
    pub fn new(target: Target<'_>, loss: Loss, classes: usize) -> Result<Self> {
        let rows = target.len();
        let lacks = |what: String| {
            let can = "trees learn classes or soft labels with cross-entropy";
            Err(Problem::Lacks(format!("{can}, not {what}")).into())
        };
        if loss != Loss::CrossEntropy {
            return lacks(format!("with the loss {loss}"));
        }
        let entries = match target {
            Target::Classes(of) => {
                if let Some(bad) = of.iter().find(|class| **class as usize >= classes) {
                    bail!(Problem::Shape(format!(
                        "class {bad} for a model of {classes} classes"
                    )));
                }
                let entry = |(row, class): (usize, &u32)| Entry {
                    row: row as u32,
                    class: *class,
                    weight: 1.0,
                };
                of.iter().enumerate().map(entry).collect()
            }
            Target::Soft(of) => {
                Problem::shape_unless(of.ncols() == classes, || {
                    format!(
                        "soft labels of {} classes for a model of {classes}",
                        of.ncols()
                    )
                })?;
                let mut entries = Vec::new();
                for ((row, class), weight) in of.indexed_iter() {
                    ensure!(
                        *weight >= 0.0 && weight.is_finite(),
                        "the soft label of sample {row} for class {class} is {weight}; it must be at least 0"
                    );
                    if *weight > 0.0 {
                        entries.push(Entry {
                            row: row as u32,
                            class: class as u32,
                            weight: *weight,
                        });
                    }
                }
                ensure!(
                    rows == 0 || !entries.is_empty(),
                    "every soft label is 0: there is nothing to learn"
                );
                entries
            }
            Target::MultiLabel(_) => return lacks("findings (several yes or no at once)".into()),
            Target::Pixels(_) => return lacks("the classes of pixels".into()),
            Target::Scores(_) => return lacks("scores; give soft labels instead".into()),
        };
        Ok(Self {
            rows,
            classes,
            entries,
            plain: matches!(target, Target::Classes(_)),
        })
    }

    /// Returns the samples of each class, by weight.
    pub fn counts(&self) -> Vec<f64> {
        let mut counts = vec![0.0; self.classes];
        for e in &self.entries {
            counts[e.class as usize] += f64::from(e.weight);
        }
        counts
    }

    /// Returns the weight of a sample of each class; 1 for a class that does not occur.
    pub fn class_weights(&self, how: &ClassWeights) -> Vec<f64> {
        let counts = self.counts();
        let (all, present) = (
            counts.iter().sum::<f64>(),
            counts.iter().filter(|n| **n > 0.0).count(),
        );
        let weight = |n: &f64| match how {
            ClassWeights::Balanced if *n > 0.0 => all / (present as f64 * n),
            _ => 1.0,
        };
        counts.iter().map(weight).collect()
    }

    /// Returns whether only one class occurs. A model of it is a constant.
    pub fn one_class(&self) -> bool {
        self.entries
            .windows(2)
            .all(|pair| pair[0].class == pair[1].class)
    }
}
