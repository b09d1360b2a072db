//! How like private examples is what a run's generator makes?

use super::AttackRun;
use super::search::{draw, drawable};
use crate::{Likeness, frechet, likeness, ranges};
use anyhow::{Context, Result};
use clap::Args;
use fl_core::{Examples, Samples, Stream, Trainer};
use fl_engine::{BATCH, FinishedRun, kept_generator, samples};
use ndarray::{Array2, Axis, concatenate};
use serde::Serialize;
use std::path::PathBuf;

/// Columns of a picture.
const SHOWN: usize = 16;

/// Made inputs compared with private examples.
#[derive(Debug, Serialize)]
pub struct NearestPrivate {
    /// Which: `made`, or `test` for comparison.
    pub inputs: &'static str,
    /// How like the nearest private example each is.
    #[serde(flatten)]
    pub like: Likeness,
    /// The Frechet distance of their features to those of the private examples.
    pub frechet: f64,
}

/// What an attack on a generator takes.
#[derive(Args, Clone, Debug)]
pub struct GeneratorOptions {
    /// The folder of a run that is done and has kept a generator.
    #[arg(value_name = "RUN")]
    pub dir: PathBuf,
    /// Inputs that are made, and private and test examples that they are compared with, at most.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub inputs: u32,
    /// Draw what was made and is nearest to a private example, and below it that example: a PNG
    /// file.
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
}

/// What an attack on a generator came to.
#[derive(Debug)]
pub struct GeneratorFound {
    /// Private examples.
    pub private: usize,
    /// Which features the Frechet distance compares.
    pub features: String,
    /// The made inputs, and test examples for comparison.
    pub found: Vec<NearestPrivate>,
}

/// Compares a generator's inputs with private examples.
///
/// # Errors
/// If the run cannot be read, has kept no generator, or its spec has no examples here.
pub fn attack_generator(options: &GeneratorOptions, run: &AttackRun<'_>) -> Result<GeneratorFound> {
    drawable(options.picture.as_deref())?;
    let FinishedRun {
        spec,
        data,
        targets,
        ..
    } = FinishedRun::open(&options.dir, &run.data_dir, run.catalogue, run.line)?;
    let most = options.inputs as usize;
    let mut generator = kept_generator(&options.dir, &spec, &data)?;
    let stream = Stream::root(run.seed).child("made", 0);
    let made = samples(generator.as_mut(), most, &stream)?;
    let some = |what: &str, of: Array2<f32>| {
        let mut draws = stream.child(what, 0).draws();
        let n = of.nrows().min(most);
        of.select(Axis(0), &draws.choose(of.nrows(), n))
    };
    let all: Vec<Array2<f32>> = data.clients.iter().map(values).collect();
    let all: Vec<_> = all.iter().map(|rows| rows.view()).collect();
    let private = some("private", concatenate(Axis(0), &all)?);
    let test = some("test", values(&data.test));
    let target = targets.first().context("a run keeps a model")?;
    let mut model = target.load(&options.dir, &spec, &data)?;
    let shape = &data.task.input;
    let mut features = |rows: &Array2<f32>| features(model.as_mut(), rows, shape);
    let (own, space) = features(&private)?;
    let range = ranges(&data.test);
    let mut found = Vec::new();
    for (inputs, rows) in [("made", &made), ("test", &test)] {
        found.push(NearestPrivate {
            inputs,
            like: likeness(rows, &private, shape, &range)?,
            frechet: frechet(features(rows)?.0.view(), own.view()),
        });
    }
    let about = format!("{space} of model `{}`", target.name);
    let like = &found[0].like;
    let mut order: Vec<usize> = (0..like.psnr.len()).collect();
    order.sort_by(|a, b| like.psnr[*b].total_cmp(&like.psnr[*a]));
    order.truncate(SHOWN);
    let nearest: Vec<usize> = order.iter().map(|at| like.nearest[*at]).collect();
    let rows = [
        made.select(Axis(0), &order),
        private.select(Axis(0), &nearest),
    ];
    let rows = rows.each_ref().map(|rows| rows.view());
    draw(options.picture.as_deref(), &rows, shape, order.len())?;
    Ok(GeneratorFound {
        private: private.nrows(),
        features: about,
        found,
    })
}

fn values(of: &Examples) -> Array2<f32> {
    of.samples.values()
}

/// The layer before the last of a model, or its scores if it has none, and which of them it is.
fn features(
    model: &mut dyn Trainer,
    rows: &Array2<f32>,
    shape: &[usize],
) -> Result<(Array2<f64>, &'static str)> {
    let mut all = Vec::new();
    let mut space = "the layer before the last";
    for rows in rows.axis_chunks_iter(Axis(0), BATCH) {
        let samples = Samples::fresh(rows.to_owned(), shape.to_vec())?;
        all.push(match model.features(&samples)? {
            Some(features) => features,
            None => {
                space = "the scores";
                model.predict(&samples)?
            }
        });
    }
    let all: Vec<_> = all.iter().map(|rows| rows.view()).collect();
    Ok((concatenate(Axis(0), &all)?.mapv(f64::from), space))
}
