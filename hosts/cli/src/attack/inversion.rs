//! `fl attack inversion`: what the models of a run take each class to look like.

use super::search::{Common, drawable, searching, weight};
use crate::finished_run::{FinishedRun, Target};
use crate::{Done, Failure, print};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use fl_attack::{Likeness, Prior, class_means, likeness, ranges};
use fl_core::{Examples, Samples, Stream, TaskKind, Trainer};
use fl_data::Assembled;
use fl_engine::Signals;
use fl_files::write;
use fl_registry::Catalogue;
use fl_report::Run;
use fl_sim::picture;
use ndarray::{Array2, Axis, concatenate};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
pub struct InversionArgs {
    /// The folder of a run that is done.
    #[arg(value_name = "RUN")]
    dir: PathBuf,
    /// Of which kept model, such as `student`; otherwise of each.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    how: InversionOptions,
}

/// How models are inverted.
#[derive(Args)]
pub struct InversionOptions {
    /// Steps of the search.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// The weight of an image's total variation per pixel against the loss: larger finds smoother
    /// images.
    #[arg(long, value_name = "WEIGHT", default_value_t = 1.0, value_parser = weight)]
    smooth: f64,
    /// Search among a generator's images (GMI). It first trains for STEPS steps on images
    /// that the attacker has too: the run's public samples, or test examples if there are none.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    prior: Option<u32>,
    /// Draw what was found, a column a class, below it the private image that is nearest, and the
    /// class's mean over test images: a PNG file. Of the last model, if there are several.
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    #[command(flatten)]
    pub common: Common,
}

/// What an attack on a model came to, class by class.
#[derive(Serialize)]
pub struct InversionResult {
    pub model: String,
    /// Mean cross-entropy of what was found.
    loss: f64,
    /// How like the nearest private image of its class it is.
    #[serde(flatten)]
    like: Likeness,
    /// How like one the mean of the test images of the class is.
    known: Likeness,
    /// With a generator: how like one is what it makes by chance that the model takes for the
    /// class.
    unsearched: Option<Likeness>,
}

pub fn inversion(args: &InversionArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    Run::open(&args.dir).map_err(crate::report::unreadable)?;
    drawable(args.how.picture.as_deref())?;
    let FinishedRun {
        spec,
        data,
        mut targets,
    } = FinishedRun::open(&args.dir, &args.how.common.data, catalogue, line)?;
    classes(&data)?;
    if let Some(name) = &args.model {
        let all: Vec<String> = targets.iter().map(|t| t.name.clone()).collect();
        targets.retain(|target| target.name == *name);
        if targets.is_empty() {
            return Err(Failure::usage(format!(
                "--model: the run has kept {}, got `{name}`",
                all.join(", ")
            )));
        }
    }
    // before a generator learns for minutes
    for target in &targets {
        invertible(target.load(&args.dir, &spec, &data)?.as_mut(), &target.name)?;
    }
    let asked = Signals::listen().context("listening to signals")?;
    let mut found = Vec::new();
    let mut prior = args.how.learn(&data, &asked)?;
    for target in &targets {
        let mut model = target.load(&args.dir, &spec, &data)?;
        let whose = (target.name.as_str(), &private(&data, target)?[..]);
        found.push(
            args.how
                .invert(whose, model.as_mut(), &mut prior, &data, &asked)?,
        );
    }
    match args.how.common.json {
        true => print(
            serde_json::json!({ "run": args.dir, "seed": args.how.common.seed, "attacks": found }),
        ),
        false => print(text(&found)),
    }
}

/// The classes of which inputs are looked for.
pub fn classes(data: &Assembled) -> Result<Vec<u32>, Failure> {
    match data.task.kind {
        TaskKind::Classes(classes) => Ok((0..classes as u32).collect()),
        _ => Err(Failure::usage(
            "the attack looks for an input of each class; these inputs have several labels, or a value for every pixel",
        )),
    }
}

/// Can this model be inverted?
pub fn invertible(model: &mut dyn Trainer, name: &str) -> Result<(), Failure> {
    let why = "gives no slope of its scores by the input; `dfdx` and `linear` do, except for texts";
    match model.differentiable() {
        Some(_) => Ok(()),
        None => Err(Failure::usage(format!("model `{name}` {why}"))),
    }
}

impl InversionOptions {
    /// The generator of an attack that has one.
    pub fn learn(&self, data: &Assembled, asked: &Signals) -> Result<Option<Prior>, Failure> {
        let Some(steps) = self.prior else {
            return Ok(None);
        };
        let known = data.public.as_ref().map(|public| &public.samples);
        let known = known.unwrap_or(&data.test.samples);
        let stream = Stream::root(self.common.seed).child("prior", 0);
        searching((steps, 0.0), asked, |how, tell| {
            Prior::learn(known, &ranges(&data.test), how.steps, &stream, &tell)
        })
        .map(Some)
    }

    /// Inputs that a model of this name assigns to each class, beside the private examples that it
    /// learnt from; drawn, if that was asked for.
    pub fn invert(
        &self,
        (name, private): (&str, &[Examples]),
        model: &mut dyn Trainer,
        prior: &mut Option<Prior>,
        data: &Assembled,
        asked: &Signals,
    ) -> Result<InversionResult, Failure> {
        let classes = classes(data)?;
        let known = class_means(&data.test, &classes);
        let stream = Stream::root(self.common.seed).child("inversion", 0);
        let mut unsearched = None;
        if let Some(prior) = &prior {
            let made = prior.unsearched(model, &classes, &stream)?;
            unsearched = Some(beside(&made, private, &classes, data)?.0);
        }
        let (shape, range) = (&data.task.input, ranges(&data.test));
        let found = searching((self.steps, self.smooth), asked, |how, tell| match prior {
            Some(prior) => prior.search(model, &classes, how, &stream, &tell),
            None => fl_attack::inversion(model, &classes, shape, &range, how, &stream, &tell),
        })?;
        let (like, nearest) = beside(&found.inputs, private, &classes, data)?;
        if let Some(path) = &self.picture {
            let rows = [found.inputs.view(), nearest.view(), known.view()];
            let all = concatenate(Axis(0), &rows).context("images of one size")?;
            let all = Samples::fresh(all, shape.clone())?;
            write(path, &picture(&all, Some(classes.len()))?)?;
        }
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
pub fn beside(
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

pub fn text(found: &[InversionResult]) -> String {
    let width = found
        .iter()
        .map(|f| f.model.len())
        .max()
        .unwrap_or(0)
        .max(5);
    let prior = found.iter().any(|f| f.unsearched.is_some());
    let mut out = format!(
        "{:width$}    loss  PSNR, dB   SSIM  class mean: PSNR   SSIM{}\n",
        "model",
        if prior {
            "  by chance: PSNR   SSIM"
        } else {
            ""
        }
    );
    for one in found {
        out += &format!(
            "{:width$}  {:.4}  {:8.1}  {:>5}  {:16.1}  {:>5}",
            one.model,
            one.loss,
            one.like.mean_psnr(),
            one.like.mean_ssim(),
            one.known.mean_psnr(),
            one.known.mean_ssim()
        );
        if let Some(by_chance) = &one.unsearched {
            let (psnr, ssim) = (by_chance.mean_psnr(), by_chance.mean_ssim());
            out += &format!("  {psnr:15.1}  {ssim:>5}");
        }
        out.push('\n');
    }
    out += "the image found for each class, and the nearest private example; anyone with test images can compute the class mean";
    if prior {
        out +=
            "\nby chance: a generated input that the model assigns to the class, without a search";
    }
    out
}
