//! Trees as trainers.

use crate::model::{Model, Sum};
use crate::scored::SCORED;
use crate::settings::{Boosting, ClassWeights, Forest, Purity, Tree};
use crate::targets::Goal;
use crate::{boosting, forest, numbers};
use anyhow::ensure;
use fl_core::{
    Abilities, BuildContext, FitOptions, FitReport, Length, Loss, Problem, Result, Samples, Stream,
    Target, Task, TaskKind, Trainer,
};
use ndarray::Array2;

/// A way to grow a model.
pub enum Method {
    Forest(Forest),
    Boosting(Boosting),
}

impl From<Tree> for Method {
    fn from(tree: Tree) -> Self {
        Self::Forest(tree.alone())
    }
}

impl From<Forest> for Method {
    fn from(forest: Forest) -> Self {
        Self::Forest(forest)
    }
}

impl From<Boosting> for Method {
    fn from(boosting: Boosting) -> Self {
        Self::Boosting(boosting)
    }
}

impl Method {
    /// Returns a setting that is set and about classes.
    fn of_classes(&self) -> Option<&'static str> {
        let (purity, weights) = match self {
            Self::Forest(of) => (&of.purity, &of.class_weights),
            Self::Boosting(of) => (&Purity::Gini, &of.class_weights),
        };
        match (purity, weights) {
            (_, ClassWeights::Balanced) => Some("class-weights"),
            (Purity::Entropy, _) => Some("purity"),
            _ => None,
        }
    }

    fn fit(&self, x: &Samples, of: &Learnt, stream: &Stream) -> Result<(Model, FitReport)> {
        match self {
            Self::Forest(settings) => {
                let x = SCORED.binned(x, settings.bins);
                Ok(match of {
                    Learnt::Classes(goal) => forest::fit(settings, &x, goal, stream),
                    Learnt::Numbers(y) => numbers::forest(settings, &x, y, stream),
                })
            }
            Self::Boosting(settings) => {
                let x = SCORED.binned(x, settings.bins);
                match of {
                    Learnt::Classes(goal) => boosting::fit(settings, &x, goal, stream),
                    Learnt::Numbers(y) => numbers::boosting(settings, &x, y, stream),
                }
            }
        }
    }
}

/// The trainer of [`Tree`], [`Forest`] and [`Boosting`].
///
/// Scores of a tree or forest are logarithms of class probabilities, minus that of the likeliest
/// class. Those of boosting are margins; with two classes the first is 0. A class without a sample
/// in the last fit gets the logarithm of an even share of the probability. Before the first fit all
/// scores are 0.
///
/// The output for a number to predict is the mean of the leaves of tree or forest, or the sum of
/// those of boosting, on the label's scale; 0 before the first fit.
pub struct Trees {
    method: Method,
    task: Task,
    model: Model,
}

impl Trees {
    /// Returns a model before its first fit.
    ///
    /// # Errors
    /// If the task is neither about classes nor about one number by the squared error, or a
    /// setting is about classes and the task is not.
    pub fn new(settings: impl Into<Method>, make: &BuildContext) -> Result<Self> {
        let method = settings.into();
        let lacks = |text: String| Err(Problem::Lacks(text).into());
        let (sum, classes) = match make.task.kind {
            TaskKind::Classes(n) if n > 0 => match method {
                Method::Forest(_) => (Sum::Votes, n),
                Method::Boosting(_) => (Sum::Margins, n),
            },
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
        if let (false, Some(setting)) = (make.task.kind.scores_classes(), method.of_classes()) {
            return lacks(format!(
                "`{setting}` is about classes, and the task is {}; leave it out",
                make.task.kind
            ));
        }
        let task = make.task.clone();
        let model = Model::blank(sum, task.width(), classes);
        Ok(Self {
            method,
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
        Problem::shape_unless(found == wanted, text)
    }
}

/// What trees are fitted to.
enum Learnt {
    Classes(Goal),
    Numbers(Vec<f32>),
}

impl Trainer for Trees {
    fn abilities(&self) -> Abilities {
        let loss = match self.task.kind {
            TaskKind::Numbers { .. } => Loss::Mse,
            _ => Loss::CrossEntropy,
        };
        Abilities {
            learns: vec![loss],
            starts_again: true,
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
        Problem::shape_unless(x.len() == target.len(), || {
            format!("{} targets for {} samples", target.len(), x.len())
        })?;
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
        let learnt = match self.task.kind {
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
        let (model, fitted) = self.method.fit(x, &learnt, stream)?;
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
