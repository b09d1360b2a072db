//! `fl attack made`: how like private examples is what a run's generator makes?

use super::search::{Common, drawable};
use crate::finished_run::{BATCH, FinishedRun, kept_generator, samples};
use crate::{Done, print};
use anyhow::{Context, Result};
use clap::Args;
use fl_attack::{Likeness, frechet, likeness, ranges};
use fl_core::{Examples, Samples, Stream, Trainer};
use fl_files::write;
use fl_registry::Catalogue;
use fl_report::Run;
use fl_sim::picture;
use ndarray::{Array2, Axis, concatenate};
use serde::Serialize;
use std::path::PathBuf;

/// Columns of a picture.
const SHOWN: usize = 16;

#[derive(Args)]
pub struct GeneratorArgs {
    /// The folder of a run that is done and has kept a generator.
    #[arg(value_name = "RUN")]
    dir: PathBuf,
    /// Inputs that are made, and private and test examples that they are compared with, at most.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    inputs: u32,
    /// Draw what was made and is nearest to a private example, and below it that example: a PNG
    /// file.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Made inputs compared with private examples.
#[derive(Serialize)]
struct NearestPrivate {
    inputs: &'static str,
    /// How like the nearest private example each is.
    #[serde(flatten)]
    like: Likeness,
    /// The Frechet distance of their features to those of the private examples.
    frechet: f64,
}

pub fn made(args: &GeneratorArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    Run::open(&args.dir).map_err(crate::report::unreadable)?;
    drawable(args.picture.as_deref())?;
    let FinishedRun {
        spec,
        data,
        targets,
    } = FinishedRun::open(&args.dir, &args.common.data, catalogue, line)?;
    let mut generator = kept_generator(&args.dir, &spec, &data)?;
    let stream = Stream::root(args.common.seed).child("made", 0);
    let made = samples(generator.as_mut(), args.inputs as usize, &stream)?;
    let some = |what: &str, of: Array2<f32>| {
        let mut draws = stream.child(what, 0).draws();
        let n = of.nrows().min(args.inputs as usize);
        of.select(Axis(0), &draws.choose(of.nrows(), n))
    };
    let all: Vec<Array2<f32>> = data.clients.iter().map(values).collect();
    let all: Vec<_> = all.iter().map(|rows| rows.view()).collect();
    let private = some("private", concatenate(Axis(0), &all)?);
    let test = some("test", values(&data.test));
    let target = targets.first().context("a run keeps a model")?;
    let mut model = target.load(&args.dir, &spec, &data)?;
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
    if let Some(path) = &args.picture {
        let like = &found[0].like;
        let mut order: Vec<usize> = (0..like.psnr.len()).collect();
        order.sort_by(|a, b| like.psnr[*b].total_cmp(&like.psnr[*a]));
        order.truncate(SHOWN);
        let nearest: Vec<usize> = order.iter().map(|at| like.nearest[*at]).collect();
        let rows = [
            made.select(Axis(0), &order),
            private.select(Axis(0), &nearest),
        ];
        let all = concatenate(Axis(0), &[rows[0].view(), rows[1].view()])?;
        write(
            path,
            &picture(&Samples::fresh(all, shape.clone())?, Some(order.len()))?,
        )?;
    }
    match args.common.json {
        true => print(serde_json::json!({
            "run": args.dir, "seed": args.common.seed, "private": private.nrows(), "features": about, "found": found,
        })),
        false => print(text(&found, private.nrows(), &about)),
    }
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

fn text(found: &[NearestPrivate], private: usize, about: &str) -> String {
    let mut out = String::from("inputs     n  PSNR, dB    most   SSIM  Frechet\n");
    for NearestPrivate {
        inputs,
        like,
        frechet,
    } in found
    {
        let (most, ssim) = (like.most_psnr(), like.mean_ssim());
        out += &format!(
            "{inputs:6} {:5}  {:8.1}  {most:6.1}  {ssim:>5}  {frechet:7.2}\n",
            like.psnr.len(),
            like.mean_psnr()
        );
    }
    out + &format!(
        "each is compared with the nearest of {private} private examples; the Frechet distance is that of {about}. Inputs that are nearer than test examples may be memorised"
    )
}
