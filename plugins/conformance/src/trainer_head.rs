//! Checks of a trainer's last layer, and of the losses that a method adds.

use crate::broken::{Held, attempt, run};
use crate::compare::digits;
use crate::trainer::Bench;
use fl_core::{
    AuxiliaryLoss, AuxiliaryTerm, FeatureLoss, FeatureTerm, FitOptions, Head, Length, Loss,
    Problem, Result, Stream, Target, TaskKind, loss,
};
use ndarray::{Array2, ArrayView2};
use std::cell::RefCell;

const HEAD: &str = "its head makes its scores of its features";
const AUXILIARY: &str = "an auxiliary loss teaches its head";
const FEATURES: &str = "a loss on features teaches its features";
const REFUSES: &str = "it refuses an added loss that it does not take";

/// Ten times the cross-entropy of features, one row for each class.
#[derive(Debug)]
struct OfFeatures(Array2<f64>);

impl AuxiliaryLoss for OfFeatures {
    fn of_batch(
        &self,
        head: &Head,
        _: Target<'_>,
        scores: ArrayView2<'_, f32>,
        _: &Stream,
    ) -> Result<AuxiliaryTerm> {
        let made = head.scores(self.0.view()).mapv(|s| s as f32);
        let classes: Vec<u32> = (0..head.outputs() as u32).collect();
        let target = Target::Classes(&classes);
        let (loss, slope) = loss::of_batch(Loss::CrossEntropy, target, made.view())?;
        let slope = slope.mapv(|g| 10.0 * f64::from(g));
        Ok(AuxiliaryTerm {
            loss: 10.0 * loss,
            by_head: Head::by_weights(self.0.view(), slope.view()),
            ..AuxiliaryTerm::nothing(head, scores)
        })
    }
}

/// The mean over the batch of the squared distance of all features to this number, with what it has
/// seen: the rows of each mini-batch, and the classes in its target.
#[derive(Debug, Default)]
struct Distance(f32, RefCell<Vec<Seen>>);

type Seen = (Vec<usize>, Vec<u32>);

/// The classes of a target; 0 for each sample of another.
fn classes(target: Target<'_>) -> Vec<u32> {
    match target {
        Target::Classes(of) => of.to_vec(),
        _ => vec![0; target.len()],
    }
}

impl FeatureLoss for Distance {
    fn of_features(
        &self,
        features: ArrayView2<'_, f32>,
        target: Target<'_>,
        rows: &[usize],
        _: &Stream,
    ) -> Result<FeatureTerm> {
        let n = features.nrows();
        let text = || format!("{n} rows of features, {} targets", target.len());
        Problem::shape_unless(n == target.len() && n == rows.len(), text)?;
        self.1.borrow_mut().push((rows.to_vec(), classes(target)));
        let (apart, n) = (&features - self.0, n as f32);
        Ok(FeatureTerm {
            loss: apart.iter().map(|d| f64::from(d * d)).sum::<f64>() / f64::from(n),
            by_features: apart * (2.0 / n),
        })
    }
}

impl Bench<'_> {
    /// Checks [`FitOptions::feature_loss`]: features approach the number that the loss asks for, or
    /// the model refuses such a loss.
    pub(crate) fn feature_loss(&self) -> Held {
        let features = |model: &mut crate::trainer::Model| -> Held<Array2<f32>> {
            let found = run(FEATURES, &self.place, || model.features(&self.toy.x))?;
            let none = || "it takes such a loss and gives no features".into();
            self.must(FEATURES, found.is_some(), none)?;
            Ok(found.unwrap_or_default())
        };
        let taught = |loss: Option<&dyn FeatureLoss>| -> Held<Array2<f32>> {
            let mut model = self.model(0)?;
            // running statistics of a network that normalises batches must settle
            let pass = FitOptions {
                feature_loss: loss,
                length: Length::Epochs(5),
                ..self.short()
            };
            self.fit(FEATURES, &mut model, &pass, 9)?;
            features(&mut model)
        };
        let mut model = self.model(0)?;
        if !model.abilities().feature_loss {
            let loss = Distance::default();
            let pass = FitOptions {
                feature_loss: Some(&loss),
                ..self.short()
            };
            return self.refused(&mut model, &pass, "`feature_loss`");
        }
        // where the features are, and a little above
        let before = features(&mut model)?;
        let goal = before.mean().unwrap_or_default() + 0.1;
        let loss = Distance(goal, RefCell::default());
        let (with, without) = (taught(Some(&loss))?, taught(None)?);
        self.all_rows(&loss.1.into_inner())?;
        let apart = |of: &Array2<f32>| {
            of.iter()
                .map(|v| f64::from((v - goal).powi(2)))
                .sum::<f64>()
        };
        let (with, without) = (apart(&with), apart(&without));
        self.must(FEATURES, with < without, || {
            let (with, without) = (digits(with), digits(without));
            format!("the squared distances to where the loss draws the features add up to {with} with and {without} without it")
        })
    }

    /// Checks that a trainer asked for a loss on features once for each mini-batch, and named its
    /// samples. It may leave out those that are too small for a step.
    fn all_rows(&self, seen: &[Seen]) -> Held {
        let due = 5 * self.toy.x.len();
        let asked: usize = seen.iter().map(|(rows, _)| rows.len()).sum();
        let least = due - 5;
        self.must(FEATURES, (least..=due).contains(&asked), || {
            format!("it asked for the loss of {asked} samples; in its pass are {due}")
        })?;
        let own = classes(self.toy.target());
        let named = |(rows, classes): &Seen| {
            let known = rows.iter().map(|row| own.get(*row).copied());
            known.eq(classes.iter().copied().map(Some))
        };
        self.must(FEATURES, seen.iter().all(named), || {
            "it named other rows than those whose features and targets it gave".into()
        })?;
        let mut times = vec![0; own.len()];
        let rows = seen.iter().flat_map(|(rows, _)| rows);
        rows.for_each(|row| times[*row] += 1);
        let most = times.iter().max().copied().unwrap_or_default();
        self.must(FEATURES, most <= 5, || {
            format!("it named one row {most} times in 5 epochs")
        })
    }

    fn refused(
        &self,
        model: &mut crate::trainer::Model,
        pass: &FitOptions<'_>,
        option: &str,
    ) -> Held {
        let fitted = attempt(REFUSES, &self.place, || {
            model.fit(&self.toy.x, self.toy.target(), pass, &self.stream)
        })?;
        let text = || format!("it trained with {option} as if it were not there");
        self.must(REFUSES, fitted.is_err(), text)
    }

    /// Checks the contract of [`fl_core::Trainer::head`] for a model that has one; another refuses
    /// an auxiliary loss.
    pub(crate) fn head(&self) -> Held {
        let mut model = self.model(0)?;
        let Some(head) = model.head() else {
            let loss = OfFeatures(Array2::zeros((0, 0)));
            let pass = FitOptions {
                auxiliary: Some(&loss),
                ..self.short()
            };
            return self.refused(&mut model, &pass, "`auxiliary`");
        };
        let features = run(HEAD, &self.place, || model.features(&self.toy.x))?;
        let features = features.filter(|f| f.ncols() == head.features());
        let none = || format!("it gives no {} features for its head", head.features());
        self.must(HEAD, features.is_some(), none)?;
        let features = features.unwrap_or_default().mapv(f64::from);
        let found = head.scores(features.view()).mapv(|s| s as f32);
        let scores = self.predict(HEAD, &mut model)?;
        self.equal(HEAD, &scores, &found, 1e-3)?;
        if !matches!(self.task.kind, TaskKind::Classes(_)) {
            return Ok(());
        }
        // the longer it learns features of a class, the higher its score of that class
        let own = |(c, j): (usize, usize)| if j % head.outputs() == c { 1.0 } else { -1.0 };
        let made = Array2::from_shape_fn((head.outputs(), head.features()), own);
        let sure = |model: &crate::trainer::Model| -> f64 {
            let head = model.head();
            head.map_or(f64::NAN, |h| h.scores(made.view()).diag().sum())
        };
        let with = OfFeatures(made.clone());
        let taught = |auxiliary: Option<&dyn AuxiliaryLoss>| -> Held<f64> {
            let (mut model, plain) = (self.model(0)?, self.short());
            self.fit(AUXILIARY, &mut model, &FitOptions { auxiliary, ..plain }, 9)?;
            Ok(sure(&model))
        };
        let (with, without) = (taught(Some(&with))?, taught(None)?);
        self.must(AUXILIARY, with > without, || {
            let (with, without) = (digits(with), digits(without));
            format!("the scores that the features have for their classes add up to {with} with and {without} without")
        })
    }
}
