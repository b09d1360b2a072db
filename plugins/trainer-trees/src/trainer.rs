//! Trees as trainers.

use crate::bins::Binned;
use crate::model::{Model, Sum};
use crate::scored::SCORED;
use crate::settings::{Boosting, Forest, Purity, Tree};
use crate::targets::Goal;
use crate::{boosting, forest, numbers};
use anyhow::ensure;
use fl_core::{
    Abilities, BuildContext, FitOptions, FitReport, Length, Loss, Problem, Result, Samples, Stream,
    Target, Task, TaskKind, Trainer,
};
use ndarray::Array2;

/// A way to grow a model: [`Tree`], [`Forest`] and [`Boosting`] only.
pub trait Method: Send {
    /// How its trees are summed.
    #[doc(hidden)]
    const SUM: Sum;
    /// Returns the bins per feature.
    #[doc(hidden)]
    fn bins(&self) -> usize;
    #[doc(hidden)]
    fn fit(&self, x: &Binned, goal: &Goal, stream: &Stream) -> Result<(Model, FitReport)>;
    /// As `fit`, for a number.
    #[doc(hidden)]
    fn fit_numbers(&self, x: &Binned, y: &[f32], stream: &Stream) -> Result<(Model, FitReport)>;
    /// Returns a setting that is set and about classes.
    #[doc(hidden)]
    fn of_classes(&self) -> Option<&'static str>;
}

impl Method for Tree {
    const SUM: Sum = Sum::Votes;
    fn bins(&self) -> usize {
        self.bins
    }
    fn fit(&self, x: &Binned, goal: &Goal, stream: &Stream) -> Result<(Model, FitReport)> {
        Ok(forest::fit(&self.alone(), x, goal, stream))
    }
    fn fit_numbers(&self, x: &Binned, y: &[f32], stream: &Stream) -> Result<(Model, FitReport)> {
        Ok(numbers::forest(&self.alone(), x, y, stream))
    }
    fn of_classes(&self) -> Option<&'static str> {
        numbers::of_classes(&self.purity, &self.class_weights)
    }
}

impl Method for Forest {
    const SUM: Sum = Sum::Votes;
    fn bins(&self) -> usize {
        self.bins
    }
    fn fit(&self, x: &Binned, goal: &Goal, stream: &Stream) -> Result<(Model, FitReport)> {
        Ok(forest::fit(self, x, goal, stream))
    }
    fn fit_numbers(&self, x: &Binned, y: &[f32], stream: &Stream) -> Result<(Model, FitReport)> {
        Ok(numbers::forest(self, x, y, stream))
    }
    fn of_classes(&self) -> Option<&'static str> {
        numbers::of_classes(&self.purity, &self.class_weights)
    }
}

impl Method for Boosting {
    const SUM: Sum = Sum::Margins;
    fn bins(&self) -> usize {
        self.bins
    }
    fn fit(&self, x: &Binned, goal: &Goal, stream: &Stream) -> Result<(Model, FitReport)> {
        boosting::fit(self, x, goal, stream)
    }
    fn fit_numbers(&self, x: &Binned, y: &[f32], stream: &Stream) -> Result<(Model, FitReport)> {
        numbers::boosting(self, x, y, stream)
    }
    fn of_classes(&self) -> Option<&'static str> {
        numbers::of_classes(&Purity::Gini, &self.class_weights)
    }
}

/// The trainer of settings `S`: [`Tree`], [`Forest`] or [`Boosting`].
///
/// Scores of a tree or forest are logarithms of class probabilities, minus that of the likeliest
/// class. Those of boosting are margins; with two classes the first is 0. A class without a sample
/// in the last fit gets the logarithm of an even share of the probability. Before the first fit all
/// scores are 0.
///
/// The output for a number to predict is the mean of the leaves of tree or forest, or the sum of
/// those of boosting, on the label's scale; 0 before the first fit.
pub struct Trees<S> {
    settings: S,
    task: Task,
    model: Model,
}

impl<S: Method> Trees<S> {
    /// Returns a model before its first fit.
    ///
    /// # Errors
    /// If the task is neither about classes nor about one number by the squared error, or a
    /// setting is about classes and the task is not.
    pub fn new(settings: S, make: &BuildContext) -> Result<Self> {
        let lacks = |text: String| Err(Problem::Lacks(text).into());
        let (sum, classes) = match make.task.kind {
            TaskKind::Classes(n) if n > 0 => (S::SUM, n),
            TaskKind::Numbers { loss, .. } if loss != Loss::Mse => {
                return lacks(format!(
                    "trees learn a number by the loss mse, and that of the label is {loss}"
                ));
            }
            TaskKind::Numbers { outputs: 1, .. } => (Sum::Margins, 1),
            other => {
                return lacks(format!(
                    "trees learn tasks of classes, or of one number, not of {other}"
                ));
            }
        };
        if let (false, Some(setting)) = (make.task.kind.scores_classes(), settings.of_classes()) {
            return lacks(format!(
                "`{setting}` is about classes, and the task is {}; leave it out",
                make.task.kind
            ));
        }
        let task = make.task.clone();
        let model = Model::blank(sum, task.width(), classes);
        Ok(Self {
            settings,
            task,
            model,
        })
    }

    /// Returns the share of each feature in the total gain of the splits (impurity, or loss for
    /// boosting); all 0 without a split.
    pub fn importance(&self) -> Vec<f64> {
        self.model.importance()
    }

    #[cfg(test)]
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    fn check(&self, x: &Samples) -> Result<()> {
        let (found, wanted) = (x.width(), self.task.width());
        let text = || format!("samples of {found} values for trees on {wanted}");
        ensure!(found == wanted, Problem::Shape(text()));
        Ok(())
    }
}

/// What trees are fitted to.
enum Learnt {
    Classes(Goal),
    Numbers(Vec<f32>),
}

impl<S: Method> Trainer for Trees<S> {
    fn abilities(&self) -> Abilities {
        let loss = match self.task.kind {
            TaskKind::Numbers { .. } => Loss::Mse,
            _ => Loss::CrossEntropy,
        };
        Abilities {
            learns: vec![loss],
            ..Abilities::default()
        }
    }

    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        stream: &Stream,
    ) -> Result<FitReport> {
        self.check(x)?;
        ensure!(
            x.len() == target.len(),
            Problem::Shape(format!("{} targets for {} samples", target.len(), x.len()))
        );
        for (asked, what) in [
            (
                pass.proximal.is_some(),
                "be pulled towards an anchor (FedProx)",
            ),
            (
                pass.gradient_offset.is_some(),
                "add a gradient offset (SCAFFOLD)",
            ),
            (pass.clip.is_some(), "clip a gradient"),
            (
                pass.auxiliary.is_some() || pass.feature_loss.is_some(),
                "take an added loss",
            ),
        ] {
            let text = || {
                format!(
                    "trees have no parameters that follow a gradient and cannot {what}; use a neural or linear trainer"
                )
            };
            ensure!(!asked, Problem::Lacks(text()));
        }
        let goal = match self.task.kind {
            TaskKind::Numbers { .. } => Learnt::Numbers(numbers::numbers(target, pass.loss)?),
            _ => Learnt::Classes(Goal::new(target, pass.loss, self.model.classes)?),
        };
        if matches!(pass.length, Length::Steps(0) | Length::Epochs(0)) {
            return Ok(FitReport::default());
        }
        ensure!(!x.is_empty(), "there are no samples to fit trees to");
        ensure!(
            x.len() < 1 << 30,
            Problem::Shape(format!("{} samples; trees take fewer than 2^30", x.len()))
        );
        let binned = SCORED.binned(x, self.settings.bins());
        let (model, fitted) = match goal {
            Learnt::Classes(goal) => self.settings.fit(&binned, &goal, stream)?,
            Learnt::Numbers(y) => self.settings.fit_numbers(&binned, &y, stream)?,
        };
        self.model = model;
        Ok(fitted)
    }

    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        self.check(x)?;
        Ok(self.model.predict(x))
    }

    fn save(&self) -> Result<Vec<u8>> {
        self.model.save()
    }

    fn load(&mut self, model: &[u8]) -> Result<()> {
        self.model = Model::load(model, &self.model)?;
        Ok(())
    }
}
