//! A trainer that names other rows than those of its mini-batches to a loss on features.

use super::Mutant;
use fl_conformance::{check, tasks};
use fl_core::prelude::*;
use fl_core::settings::read_yaml;
use fl_core::{Differentiable, FitReport, Head, Parametric, TaskKind};
use fl_plugin_trainer_dfdx::Dfdx;
use ndarray::Array2;

struct Backwards(Dfdx);

impl Trainer for Backwards {
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        stream: &Stream,
    ) -> Result<FitReport> {
        if pass.feature_loss.is_none() || x.len() != target.len() {
            return self.0.fit(x, target, pass, stream);
        }
        let rows: Vec<usize> = (0..x.len()).rev().collect();
        let target = target.pick(&rows);
        self.0.fit(&x.pick(&rows), target.view(), pass, stream)
    }
    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        self.0.predict(x)
    }
    fn features(&mut self, x: &Samples) -> Result<Option<Array2<f32>>> {
        self.0.features(x)
    }
    fn head(&self) -> Option<Head> {
        self.0.head()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn save(&self) -> Result<Vec<u8>> {
        self.0.save()
    }
    fn load(&mut self, model: &[u8]) -> Result<()> {
        self.0.load(model)
    }
    fn save_state(&self) -> Result<Vec<u8>> {
        self.0.save_state()
    }
    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        self.0.load_state(state)
    }
    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        self.0.parametric()
    }
    fn differentiable(&mut self) -> Option<&mut dyn Differentiable> {
        self.0.differentiable()
    }
}

pub fn all() -> Vec<Mutant> {
    let net = "{net: [flatten, {linear: 3}, outputs], optimiser: {sgd: {lr: 0.1}}}";
    let classes = |task: &Task| matches!(task.kind, TaskKind::Classes(_));
    let all: Vec<Task> = tasks().into_iter().filter(classes).collect();
    let made = |make: &BuildContext| -> Result<Box<dyn Trainer>> {
        let net = Dfdx::new(read_yaml(net)?, make)?;
        Ok(Box::new(Backwards(net)))
    };
    vec![(
        "names other rows to a loss on features",
        Some("a loss on features teaches its features"),
        check::trainer(&all, &made),
    )]
}
