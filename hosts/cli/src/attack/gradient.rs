//! `fl attack gradient`: what a client's update gives away of the examples that it was made of.

use super::search::{Common, drawable, searching, spec_of, watched, weight};
use crate::{Done, Failure, Overrides, print};
use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use fl_attack::{
    Likeness, ObservedUpdate, class_means, labels, likeness, ranges, read_off, search,
};
use fl_core::message::{Params, decode};
use fl_core::privacy::Observer;
use fl_core::{BuildContext, ClientId, Role, Samples, Stream, Trainer};
use fl_data::{Assembled, DataSpec};
use fl_engine::Signals;
use fl_files::write;
use fl_registry::{Catalogue, Spec};
use fl_sim::picture;
use ndarray::{Array2, Axis, concatenate};
use serde::Serialize;
use std::path::PathBuf;

/// The most examples of one update.
const MOST: usize = 64;

/// The slot of the model whose parameters cross.
const SLOT: &str = "model";

#[derive(Args)]
pub struct GradientArgs {
    /// The spec, or the folder of a run. As much of it is run as the attacker needs to see.
    #[arg(value_name = "SPEC")]
    spec: PathBuf,
    #[command(flatten)]
    set: Overrides,
    /// The client whose update is attacked.
    #[arg(long, value_name = "ID", default_value_t = 0)]
    client: ClientId,
    /// Which of the client's updates, from 1.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    update: u32,
    /// Steps of the search.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// The weight of an image's total variation per pixel against the distance: larger finds
    /// smoother images.
    #[arg(long, value_name = "WEIGHT", default_value_t = 0.1, value_parser = weight)]
    smooth: f64,
    /// How the attacker comes by the classes of the images: found in the slopes by the last layer,
    /// or given.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Labels::Found)]
    labels: Labels,
    /// Draw the private images, below them the images of each attack, and below those the class
    /// means: a PNG file.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Labels {
    Given,
    Found,
}

/// What an attack came to.
#[derive(Serialize)]
struct RecoveredImages {
    attack: &'static str,
    /// 1 minus the cosine between the gradient of what was found and what the client sent.
    distance: Option<f64>,
    #[serde(flatten)]
    like: Likeness,
    #[serde(skip)]
    inputs: Array2<f32>,
}

/// Parameters that crossed.
struct SentParameters {
    sent: Params,
    answered: Params,
}

pub fn gradient(args: &GradientArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    drawable(args.picture.as_deref())?;
    let spec = spec_of(&args.spec, &args.set, catalogue)?;
    let data = fl_engine::data(&spec, &args.common.data.path())?;
    let (private, classes) = private(args, &data)?;
    let asked = Signals::listen().context("listening to signals")?;
    let make = BuildContext {
        task: data.task.clone(),
        stream: Stream::root(spec.seed),
    };
    let crossed = watch(args, &spec, &make, line, &asked)?;
    let client = Some(args.client);
    let mut model: Box<dyn Trainer> = spec.parts.build(Role::Trainer, SLOT, client, &make)?;
    let gradient = crossed
        .sent
        .zip(&crossed.answered, |before, after| before - after)?;
    let known = class_means(&data.test, &classes);
    let taken = match args.labels {
        Labels::Given => classes.clone(),
        Labels::Found => labels(model.as_mut(), &crossed.sent, &gradient, &data.test, classes.len())?
            .ok_or_else(|| Failure::usage("the update has no bias of a last layer (one number per class), from which the attack finds the classes: give it the classes with `--labels given`"))?,
    };
    let right = in_both(&taken, &classes);
    let seen = ObservedUpdate {
        gradient,
        sent: crossed.sent,
        shape: data.task.input.clone(),
        classes: taken,
        range: ranges(&data.test),
    };
    let found = attack(args, model.as_mut(), &seen, (&private, known), &asked)?;
    if let Some(path) = &args.picture {
        let rows: Vec<Array2<f32>> = found
            .iter()
            .map(|f| f.inputs.select(Axis(0), &f.like.nearest))
            .collect();
        let rows = std::iter::once(private.view()).chain(rows.iter().map(|rows| rows.view()));
        let rows: Vec<_> = rows.collect();
        let all = Samples::fresh(concatenate(Axis(0), &rows)?, seen.shape.clone())?;
        write(path, &picture(&all, Some(private.nrows()))?)?;
    }
    match args.common.json {
        true => print(serde_json::json!({
            "spec": args.spec, "client": args.client, "update": args.update, "seed": args.common.seed,
            "examples": private.nrows(), "labels": args.labels, "labels_right": right, "attacks": found,
        })),
        false => print(text(args, private.nrows(), right, &found)),
    }
}

/// The examples that are looked for, and their classes.
fn private(args: &GradientArgs, data: &Assembled) -> Result<(Array2<f32>, Vec<u32>), Failure> {
    let id = args.client;
    let own = data.clients.get(id as usize).ok_or_else(|| {
        let last = data.clients.len().saturating_sub(1);
        Failure::usage(format!("--client: the clients are 0 to {last}, got {id}"))
    })?;
    if own.is_empty() {
        return Err(Failure::usage(format!(
            "client {id} has no examples to find: name another with --client"
        )));
    }
    if own.len() > MOST {
        return Err(Failure::usage(format!(
            "client {id} has {} examples, and the attack handles updates of 1 to {MOST}; give clients fewer, for example with --set data.limit.train={}",
            own.len(),
            data.clients.len() * 4
        )));
    }
    let classes = own.classes().ok_or_else(|| {
        Failure::usage(
            "the attack needs examples of one class each; these have several labels, or a value for every pixel",
        )
    })?;
    Ok((own.samples.values(), classes))
}

/// How many of these classes are among those, each as often as it is there.
fn in_both(these: &[u32], those: &[u32]) -> usize {
    let mut left = those.to_vec();
    let taken = these.iter().filter_map(|class| {
        let at = left.iter().position(|other| other == class)?;
        Some(left.swap_remove(at))
    });
    taken.count()
}

/// Runs the spec until the client has sent the update, and returns what the network sees of it.
fn watch(
    args: &GradientArgs,
    spec: &Spec<DataSpec>,
    make: &BuildContext,
    line: &[String],
    asked: &Signals,
) -> Result<SentParameters, Failure> {
    let answer = format!("answer of client {}", args.client);
    let (mut sent, mut differ, mut seen) = (Vec::new(), false, 0);
    let (mut question, mut answered) = (String::new(), false);
    let protocol = spec.make_protocol(make)?;
    let changes = protocol.exchanges().into_iter().filter(|one| one.change);
    let changes: Vec<&str> = changes.map(|one| one.label).collect();
    let mut crossed = None;
    watched(
        spec,
        &args.common.data,
        line,
        asked,
        None,
        |observer, what, bytes| {
            match observer {
                Observer::Clients => {
                    // those of one question come one after the other, and its answers after them
                    differ = !answered && what == question && (differ || sent != bytes);
                    answered = false;
                    (question, sent) = (what.to_string(), bytes.to_vec());
                }
                Observer::Server if what == answer && crossed.is_none() => {
                    answered = true;
                    let Ok(before) = decode::<Params>(&sent) else {
                        return true;
                    };
                    let after = bytes.get(..sent.len()).map(decode::<Params>);
                    let Some(Ok(after)) = after.filter(|_| !differ) else {
                        return true;
                    };
                    seen += 1;
                    if seen == args.update {
                        let after = match changes.iter().any(|label| *label == question) {
                            true => before.zip(&after, |before, change| before + change),
                            false => Ok(after),
                        };
                        crossed = after.ok().map(|answered| SentParameters {
                            sent: before,
                            answered,
                        });
                    }
                }
                Observer::Server => answered = true,
                Observer::Readers => {}
            }
            seen < args.update
        },
    )?;
    crossed.ok_or_else(|| {
        Failure::usage(format!(
            "client {} has no update {} in this run: the attack needs rounds of `param-rounds` in which a client receives parameters, and answers with parameters and nothing more (FedNova and adaptive clipping add to them)",
            args.client, args.update
        ))
    })
}

fn attack(
    args: &GradientArgs,
    model: &mut dyn Trainer,
    seen: &ObservedUpdate,
    (private, known): (&Array2<f32>, Array2<f32>),
    asked: &Signals,
) -> Result<Vec<RecoveredImages>, Failure> {
    let stream = Stream::root(args.common.seed).child("inversion", 0);
    let searched = searching((args.steps, args.smooth), asked, |how, tell| {
        search(model, seen, how, &stream, &tell)
    })?;
    let mut all = vec![("search", Some(searched.distance), searched.inputs)];
    if let Some(rows) = read_off(&seen.gradient, &seen.range) {
        all.push(("first layer", None, rows));
    }
    all.push(("class mean", None, known));
    let compare = |(attack, distance, inputs): (&'static str, Option<f64>, Array2<f32>)| {
        Ok(RecoveredImages {
            attack,
            distance,
            like: likeness(private, &inputs, &seen.shape, &seen.range)?,
            inputs,
        })
    };
    let found: Result<Vec<RecoveredImages>> = all.into_iter().map(compare).collect();
    found.map_err(|error| anyhow!(error).into())
}

fn text(args: &GradientArgs, examples: usize, right: usize, found: &[RecoveredImages]) -> String {
    let labels = match args.labels {
        Labels::Given => "given".into(),
        Labels::Found => format!("{right} of {examples} right"),
    };
    let mut out = format!(
        "update {} of client {}, made of {examples} examples\nlabels       {labels}\n\nattack       distance  PSNR, dB   least    most   SSIM\n",
        args.update, args.client
    );
    for RecoveredImages {
        attack,
        distance,
        like,
        ..
    } in found
    {
        let distance = distance.map_or("-".into(), |d| format!("{d:.4}"));
        let least = like.psnr.iter().copied().fold(f64::INFINITY, f64::min);
        let (most, ssim) = (like.most_psnr(), like.mean_ssim());
        out += &format!(
            "{attack:11}  {distance:>8}  {:8.1}  {least:6.1}  {most:6.1}  {ssim:>5}\n",
            like.mean_psnr()
        );
    }
    out + "anyone with test images can compute the class mean: an attack that is no better has found nothing"
}
