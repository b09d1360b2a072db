//! What the models of a run take each class to look like.

use super::search::{draw, drawable, searching};
use super::{AttackRun, usage, weight};
use crate::{Likeness, Prior, class_means, likeness, ranges};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use fl_core::{Examples, Stream, TaskKind, Trainer};
use fl_data::Assembled;
use fl_engine::{FinishedRun, Signals, Target};
use ndarray::{Array2, Axis, concatenate};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What an attack on a model came to, class by class.
#[derive(Debug, Serialize)]
pub struct InversionResult {
    /// The model.
    pub model: String,
    /// Mean cross-entropy of what was found.
    pub loss: f64,
    /// How like the nearest private image of its class it is.
    #[serde(flatten)]
    pub like: Likeness,
    /// How like one the mean of the test images of the class is.
    pub known: Likeness,
    /// With a generator: how like one is what it makes by chance that the model takes for the
    /// class.
    pub unsearched: Option<Likeness>,
}

/// How models are inverted.
#[derive(Args, Clone, Debug)]
pub struct InversionOptions {
    /// Steps of the search.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub steps: u32,
    /// The weight of an image's total variation per pixel against the loss: larger finds smoother
    /// images.
    #[arg(long, value_name = "WEIGHT", default_value_t = 1.0, value_parser = weight)]
    pub smooth: f64,
    /// Search among a generator's images (GMI). It first trains for STEPS steps on images
    /// that the attacker has too: the run's public samples, or test examples if there are none.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub prior: Option<u32>,
    /// Draw what was found, a column a class, below it the private image that is nearest, and the
    /// class's mean over test images: a PNG file. Of the last model, if there are several.
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
}

/// Reconstructs an input of each class from the models that the run in `dir` has kept, or from the
/// one of this name.
///
/// # Errors
/// If the run cannot be read, its spec has no examples here, or a model cannot be inverted.
pub fn attack_models(
    dir: &Path,
    model: Option<&str>,
    how: &InversionOptions,
    run: &AttackRun<'_>,
) -> Result<Vec<InversionResult>> {
    drawable(how.picture.as_deref())?;
    let FinishedRun {
        spec,
        data,
        mut targets,
        ..
    } = FinishedRun::open(dir, &run.data_dir, run.catalogue, run.line)?;
    classes(&data)?;
    if let Some(name) = model {
        let all: Vec<String> = targets.iter().map(|t| t.name.clone()).collect();
        targets.retain(|target| target.name == name);
        if targets.is_empty() {
            return Err(usage(format!(
                "--model: the run has kept {}, got `{name}`",
                all.join(", ")
            )));
        }
    }
    // before a generator learns for minutes
    for target in &targets {
        invertible(target.load(dir, &spec, &data)?.as_mut(), &target.name)?;
    }
    let asked = Signals::listen().context("listening to signals")?;
    let mut found = Vec::new();
    let mut prior = how.learn(&data, run, &asked)?;
    for target in &targets {
        let mut model = target.load(dir, &spec, &data)?;
        let whose = (target.name.as_str(), &private(&data, target)?[..]);
        found.push(how.invert(whose, model.as_mut(), &mut prior, &data, (run, &asked))?);
    }
    Ok(found)
}

/// The classes of which inputs are looked for.
pub(super) fn classes(data: &Assembled) -> Result<Vec<u32>> {
    match data.task.kind {
        TaskKind::Classes(classes) => Ok((0..classes as u32).collect()),
        _ => Err(usage(
            "the attack looks for an input of each class; these inputs have several labels, a value for every pixel, or a number",
        )),
    }
}

/// Can this model be inverted?
pub(super) fn invertible(model: &mut dyn Trainer, name: &str) -> Result<()> {
    let why = "gives no slope of its scores by the input; `dfdx` and `linear` do, except for texts";
    match model.differentiable() {
        Some(_) => Ok(()),
        None => Err(usage(format!("model `{name}` {why}"))),
    }
}

impl InversionOptions {
    /// The generator of an attack that has one.
    pub(super) fn learn(
        &self,
        data: &Assembled,
        run: &AttackRun<'_>,
        asked: &Signals,
    ) -> Result<Option<Prior>> {
        let Some(steps) = self.prior else {
            return Ok(None);
        };
        let known = data.public.as_ref().map(|public| &public.samples);
        let known = known.unwrap_or(&data.test.samples);
        let stream = Stream::root(run.seed).child("prior", 0);
        searching((steps, 0.0), run, asked, |how, tell| {
            Prior::learn(known, &ranges(&data.test), how.steps, &stream, &tell)
        })
        .map(Some)
    }

    /// Inputs that a model of this name assigns to each class, beside the private examples that it
    /// learnt from; drawn, if that was asked for.
    pub(super) fn invert(
        &self,
        (name, private): (&str, &[Examples]),
        model: &mut dyn Trainer,
        prior: &mut Option<Prior>,
        data: &Assembled,
        (run, asked): (&AttackRun<'_>, &Signals),
    ) -> Result<InversionResult> {
        let classes = classes(data)?;
        let known = class_means(&data.test, &classes);
        let stream = Stream::root(run.seed).child("inversion", 0);
        let mut unsearched = None;
        if let Some(prior) = &prior {
            let made = prior.unsearched(model, &classes, &stream)?;
            unsearched = Some(beside(&made, private, &classes, data)?.0);
        }
        let (shape, range) = (&data.task.input, ranges(&data.test));
        let found = searching(
            (self.steps, self.smooth),
            run,
            asked,
            |how, tell| match prior {
                Some(prior) => prior.search(model, &classes, how, &stream, &tell),
                None => crate::inversion(model, &classes, shape, &range, how, &stream, &tell),
            },
        )?;
        let (like, nearest) = beside(&found.inputs, private, &classes, data)?;
        let rows = [found.inputs.view(), nearest.view(), known.view()];
        draw(self.picture.as_deref(), &rows, shape, classes.len())?;
        Ok(InversionResult {
            model: name.into(),
            loss: found.distance,
            like,
            known: beside(&known, private, &classes, data)?.0,
            unsearched,
        })
    }
}

/// What the model's owners own.
fn private(data: &Assembled, target: &Target) -> Result<Vec<Examples>> {
    let owners = target.owners(data).into_iter();
    let each = owners.map(|id| data.clients.get(id).cloned());
    let all: Option<Vec<Examples>> = each.collect();
    all.ok_or_else(|| anyhow!("model `{}` is of no client of the spec", target.name))
}

/// Compares each of `inputs` with the nearest private example of its class, which it returns too;
/// for a class without examples, with the nearest of all.
pub(super) fn beside(
    inputs: &Array2<f32>,
    private: &[Examples],
    classes: &[u32],
    data: &Assembled,
) -> Result<(Likeness, Array2<f32>)> {
    let range = ranges(&data.test);
    let mut all: Option<Likeness> = None;
    let mut nearest = Array2::zeros(inputs.dim());
    for (at, class) in classes.iter().enumerate() {
        let of = |class: Option<u32>| -> Result<Array2<f32>> {
            let rows = private.iter().map(|own| {
                let labels = own.classes().unwrap_or_default();
                let is = |at: &usize| class.is_none_or(|class| labels[*at] == class);
                let at: Vec<usize> = (0..own.len()).filter(is).collect();
                own.pick(&at).samples.values()
            });
            let rows: Vec<Array2<f32>> = rows.collect();
            let rows: Vec<_> = rows.iter().map(|rows| rows.view()).collect();
            Ok(concatenate(Axis(0), &rows)?)
        };
        let mut candidates = of(Some(*class))?;
        if candidates.nrows() == 0 {
            candidates = of(None)?;
        }
        let one = inputs.select(Axis(0), &[at]);
        let like = likeness(&one, &candidates, &data.task.input, &range)?;
        nearest.row_mut(at).assign(&candidates.row(like.nearest[0]));
        match &mut all {
            None => all = Some(like),
            Some(all) => all.join(like),
        }
    }
    Ok((all.context("a task has at least one class")?, nearest))
}
