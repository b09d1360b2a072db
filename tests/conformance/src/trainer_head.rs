//! Checks of a trainer's last layer.

use crate::broken::{Held, run};
use crate::compare::digits;
use crate::trainer::Bench;
use fl_core::{
    AuxiliaryLoss, AuxiliaryTerm, FitOptions, Head, Loss, Result, Stream, Target, TaskKind, loss,
};
use ndarray::{Array2, ArrayView2};

const HEAD: &str = "its head makes its scores of its features";
const AUXILIARY: &str = "an auxiliary loss teaches its head";

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

impl Bench<'_> {
    /// Checks the contract of [`fl_core::Trainer::head`] for a model that has one.
    pub(crate) fn head(&self) -> Held {
        let mut model = self.model(0)?;
        let Some(head) = model.head() else {
            return Ok(());
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
