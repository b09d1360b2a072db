//! What a client's update gives away of the examples that it was made of.

use super::search::{draw, drawable, searching, spec_of, watched};
use super::{AttackRun, Overrides, usage, weight};
use crate::{Likeness, ObservedUpdate, class_means, labels, likeness, ranges, read_off, search};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use fl_core::message::{Params, decode};
use fl_core::privacy::Observer;
use fl_core::{BuildContext, ClientId, Role, Stream, Trainer};
use fl_data::{Assembled, DataSpec};
use fl_engine::Signals;
use fl_registry::Spec;
use ndarray::{Array2, Axis};
use serde::Serialize;
use std::path::PathBuf;

/// The most examples of one update.
const MOST: usize = 64;

/// The slot of the model whose parameters cross.
const SLOT: &str = "model";

/// What an attack came to.
#[derive(Debug, Serialize)]
pub struct RecoveredImages {
    /// How: `search`, `first layer`, or `class mean` for comparison.
    pub attack: &'static str,
    /// 1 minus the cosine between the gradient of what was found and what the client sent.
    pub distance: Option<f64>,
    /// How like the private images it is.
    #[serde(flatten)]
    pub like: Likeness,
    #[serde(skip)]
    inputs: Array2<f32>,
}

/// Parameters that crossed.
struct SentParameters {
    sent: Params,
    answered: Params,
}

/// What an attack on an update takes.
#[derive(Args, Clone, Debug)]
pub struct GradientOptions {
    /// The spec, or the folder of a run. As much of it is run as the attacker needs to see.
    #[arg(value_name = "SPEC")]
    pub spec: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub set: Overrides,
    /// The client whose update is attacked.
    #[arg(long, value_name = "ID", default_value_t = 0)]
    pub client: ClientId,
    /// Which of the client's updates, from 1.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub update: u32,
    /// Steps of the search.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub steps: u32,
    /// The weight of an image's total variation per pixel against the distance: larger finds
    /// smoother images.
    #[arg(long, value_name = "WEIGHT", default_value_t = 0.1, value_parser = weight)]
    pub smooth: f64,
    /// How the attacker comes by the classes of the images: found in the slopes by the last layer,
    /// or given.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Labels::Found)]
    pub labels: Labels,
    /// Draw the private images, below them the images of each attack, and below those the class
    /// means: a PNG file.
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
}

/// How an attacker comes by the classes of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // `--help` would list their docs
pub enum Labels {
    Given,
    Found,
}

/// What an attack on an update came to.
#[derive(Debug)]
pub struct GradientFound {
    /// Private examples of the update.
    pub examples: usize,
    /// How many of their classes were right.
    pub labels_right: usize,
    /// What each attack has found.
    pub attacks: Vec<RecoveredImages>,
}

/// Finds, from parameters that a client sends, the examples that it trained on.
///
/// # Errors
/// If the spec cannot be run here, or the client sends no such update.
pub fn attack_gradient(options: &GradientOptions, run: &AttackRun<'_>) -> Result<GradientFound> {
    drawable(options.picture.as_deref())?;
    let spec = spec_of(&options.spec, &options.set, run.catalogue)?;
    let data = fl_engine::data(&spec, &run.data_dir)?;
    let (private, classes) = private(options.client, &data)?;
    let asked = Signals::listen().context("listening to signals")?;
    let make = spec.part_context(&data.task);
    let crossed = watch(options, run, &spec, &make, &asked)?;
    let client = Some(options.client);
    let mut model: Box<dyn Trainer> = spec.parts.build(Role::Trainer, SLOT, client, &make)?;
    let gradient = crossed
        .sent
        .zip(&crossed.answered, |before, after| before - after)?;
    let known = class_means(&data.test, &classes);
    let taken = match options.labels {
        Labels::Given => classes.clone(),
        Labels::Found => labels(model.as_mut(), &crossed.sent, &gradient, &data.test, classes.len())?
            .ok_or_else(|| usage("the update has no bias of a last layer (one number per class), from which the attack finds the classes: give it the classes with `--labels given`"))?,
    };
    let right = in_both(&taken, &classes);
    let seen = ObservedUpdate {
        gradient,
        sent: crossed.sent,
        shape: data.task.input.clone(),
        classes: taken,
        range: ranges(&data.test),
    };
    let found = attack(
        (options, run),
        model.as_mut(),
        &seen,
        (&private, known),
        &asked,
    )?;
    let rows: Vec<Array2<f32>> = found
        .iter()
        .map(|f| f.inputs.select(Axis(0), &f.like.nearest))
        .collect();
    let rows = std::iter::once(private.view()).chain(rows.iter().map(|rows| rows.view()));
    let rows: Vec<_> = rows.collect();
    let picture = options.picture.as_deref();
    draw(picture, &rows, &seen.shape, private.nrows())?;
    Ok(GradientFound {
        examples: private.nrows(),
        labels_right: right,
        attacks: found,
    })
}

/// The examples that are looked for, and their classes.
fn private(id: ClientId, data: &Assembled) -> Result<(Array2<f32>, Vec<u32>)> {
    let own = data.clients.get(id as usize).ok_or_else(|| {
        let last = data.clients.len().saturating_sub(1);
        usage(format!("--client: the clients are 0 to {last}, got {id}"))
    })?;
    if own.is_empty() {
        return Err(usage(format!(
            "client {id} has no examples to find: name another with --client"
        )));
    }
    if own.len() > MOST {
        return Err(usage(format!(
            "client {id} has {} examples, and the attack handles updates of 1 to {MOST}; give clients fewer, for example with --set data.limit.train={}",
            own.len(),
            data.clients.len() * 4
        )));
    }
    let classes = own.classes().ok_or_else(|| {
        usage(
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
    options: &GradientOptions,
    run: &AttackRun<'_>,
    spec: &Spec<DataSpec>,
    make: &BuildContext,
    asked: &Signals,
) -> Result<SentParameters> {
    let answer = format!("answer of client {}", options.client);
    let (mut sent, mut differ, mut seen) = (Vec::new(), false, 0);
    let (mut question, mut answered) = (String::new(), false);
    let protocol = spec.make_protocol(make)?;
    let changes = protocol.exchanges().into_iter().filter(|one| one.change);
    let changes: Vec<&str> = changes.map(|one| one.label).collect();
    let mut crossed = None;
    watched(spec, run, asked, None, |observer, what, bytes| {
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
                if seen == options.update {
                    let after = if changes.iter().any(|label| *label == question) {
                        before.zip(&after, |before, change| before + change)
                    } else {
                        Ok(after)
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
        seen < options.update
    })?;
    crossed.ok_or_else(|| {
        usage(format!(
            "client {} has no update {} in this run: the attack needs rounds, such as those of `fedavg`, in which a client receives parameters, and answers with parameters and nothing more (FedNova and adaptive clipping add to them)",
            options.client, options.update
        ))
    })
}

fn attack(
    (options, run): (&GradientOptions, &AttackRun<'_>),
    model: &mut dyn Trainer,
    seen: &ObservedUpdate,
    (private, known): (&Array2<f32>, Array2<f32>),
    asked: &Signals,
) -> Result<Vec<RecoveredImages>> {
    let stream = Stream::root(run.seed).child("inversion", 0);
    let searched = searching((options.steps, options.smooth), run, asked, |how, tell| {
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
    all.into_iter().map(compare).collect()
}
