//! A trainer's last layer by itself.

use crate::broken::{Held, run};
use crate::compare::digits;
use crate::trainer::Bench;
use fl_core::{Beside, Pass, Stream, TaskKind};
use ndarray::Array2;

const HEAD: &str = "its head makes its scores of its features";
const BESIDE: &str = "`beside` teaches its head";

impl Bench<'_> {
    /// What [`fl_core::Trainer::head`] promises, of a model that shows one.
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
        // the more of its features are made for a class, the more it must be sure of it
        let make = |classes: &[u32], _: &Stream| {
            Ok(Array2::from_shape_fn(
                (classes.len(), head.features()),
                |(i, j)| {
                    let own = j % head.outputs() == classes[i] as usize;
                    if own { 1.0 } else { -1.0 }
                },
            ))
        };
        let classes: Vec<u32> = (0..head.outputs() as u32).collect();
        let made = make(&classes, &self.stream);
        let made = run(BESIDE, &self.place, || made)?.mapv(f64::from);
        let sure = |model: &crate::trainer::Model| -> f64 {
            let head = model.head();
            head.map_or(f64::NAN, |h| h.scores(made.view()).diag().sum())
        };
        let with = Beside {
            make: &make,
            cross_entropy: 10.0,
            kl: 0.0,
        };
        let taught = |beside| -> Held<f64> {
            let (mut model, plain) = (self.model(0)?, self.short());
            self.fit(BESIDE, &mut model, &Pass { beside, ..plain }, 9)?;
            Ok(sure(&model))
        };
        let (with, without) = (taught(Some(with))?, taught(None)?);
        self.must(BESIDE, with > without, || {
            let (with, without) = (digits(with), digits(without));
            format!("the scores of the classes that features were made for add up to {with} with and {without} without")
        })
    }
}
