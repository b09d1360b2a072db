//! What the slopes with which clients answer give away of their examples.

use super::inversion::beside;
use super::search::{draw, drawable, searching, spec_of, watched};
use super::{AttackRun, Overrides, usage, weight};
use crate::{
    ANSWER, InputValues, Likeness, MaliciousServer, SLOPES, SearchResult, class_means, likeness,
    moved, ranges,
};
use anyhow::{Context, Result};
use clap::Args;
use fl_core::message::decode;
use fl_core::privacy::Observer;
use fl_core::{ClientId, Protocol, Stream, TaskKind};
use fl_data::{Assembled, DataSpec};
use fl_engine::{ProtocolOverride, Signals};
use fl_registry::Spec;
use ndarray::{Array2, Axis, concatenate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The protocol whose clients answer with slopes.
const PROTOCOL: &str = "generate-and-distill";
/// Made inputs that are moved, at most: the last ones of the run.
const LAST: usize = 1000;
/// How far they are moved, as shares of the range of a number; what does best counts.
const FAR: [f64; 4] = [0.02, 0.05, 0.1, 0.2];

/// What an attack on a client came to.
#[derive(Debug, Serialize)]
pub struct ClientResult {
    /// How: `follow` the protocol, or `ask` about inputs of one's own.
    pub attack: &'static str,
    /// The client.
    pub client: ClientId,
    /// Mean cross-entropy of what asking has found, over all clients.
    pub loss: Option<f64>,
    /// How like the client's examples it is.
    #[serde(flatten)]
    pub like: Likeness,
    /// The same without slopes: the made inputs as they were, or the class means of test examples.
    pub known: Likeness,
}

/// A made batch, and the slopes by it.
type Batch = (Array2<f32>, Array2<f32>);

/// What an attack on slopes takes.
#[derive(Args, Clone, Debug)]
pub struct SlopesOptions {
    /// A spec of `generate-and-distill`, or the folder of a run of one. It is run twice: as it is,
    /// and led by the attacker.
    #[arg(value_name = "SPEC")]
    pub spec: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub set: Overrides,
    /// Steps of the search; each asks every client twice.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub steps: u32,
    /// The weight of an image's total variation per pixel against the loss: larger finds smoother
    /// images.
    #[arg(long, value_name = "WEIGHT", default_value_t = 1.0, value_parser = weight)]
    pub smooth: f64,
    /// Draw what asking has found of the first client, a column a class, below it the private image
    /// that is nearest, and the class's mean over test images: a PNG file.
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
}

/// Reconstructs an input of each class from the slopes that clients send: for a server that follows
/// the protocol, and for one that asks about inputs of its own.
///
/// # Errors
/// If the spec cannot be run here, or is of another protocol or task.
pub fn attack_slopes(options: &SlopesOptions, run: &AttackRun<'_>) -> Result<Vec<ClientResult>> {
    drawable(options.picture.as_deref())?;
    let spec = spec_of(&options.spec, &options.set, run.catalogue)?;
    if spec.protocol_name != PROTOCOL {
        let found = &spec.protocol_name;
        return Err(usage(format!(
            "{}: the attack needs slopes, which clients send in `{PROTOCOL}` only; this spec has `{found}`",
            options.spec.display()
        )));
    }
    let data = fl_engine::data(&spec, &run.data_dir)?;
    if !matches!(data.task.kind, TaskKind::Classes(_)) {
        return Err(usage(
            "the attack looks for an example of each class; these have several labels, or a value for every pixel",
        ));
    }
    let asked = Signals::listen().context("listening to signals")?;
    let mut found = Vec::new();
    for (client, batches) in watch(&spec, run, &asked)? {
        found.push(follow(client, &batches, &data)?);
    }
    found.extend(pry((options, run), &spec, &asked, &data)?);
    Ok(found)
}

/// The last batches that were made, with the slopes by them that each client answered.
fn watch(
    spec: &Spec<DataSpec>,
    run: &AttackRun<'_>,
    asked: &Signals,
) -> Result<BTreeMap<ClientId, Vec<Batch>>> {
    let (mut question, mut made, mut length) = (String::new(), None, 0);
    let mut all = BTreeMap::<ClientId, Vec<Batch>>::new();
    watched(spec, run, asked, None, |observer, what, bytes| {
        match observer {
            Observer::Clients => {
                question = what.to_string();
                if question == ANSWER.label() {
                    made = decode::<InputValues>(bytes).ok();
                    length = bytes.len();
                }
            }
            Observer::Server if question == SLOPES.label() => {
                let client = what.rsplit(' ').next().and_then(|id| id.parse().ok());
                // as many numbers as were made, and behind them what else crosses
                let slopes = bytes.get(..length).map(decode::<InputValues>);
                if let (Some(client), Some(made), Some(Ok(slopes))) = (client, &made, slopes) {
                    let batches = all.entry(client).or_default();
                    batches.push((made.values.clone(), slopes.values));
                    while batches.len() > 1 && (batches.len() - 1) * made.values.nrows() >= LAST {
                        batches.remove(0);
                    }
                }
            }
            Observer::Server | Observer::Readers => {}
        }
        true
    })?;
    Ok(all)
}

/// Compares the generator's inputs, moved along a client's slopes, with the client's examples.
fn follow(client: ClientId, batches: &[Batch], data: &Assembled) -> Result<ClientResult> {
    let all = |of: fn(&Batch) -> &Array2<f32>| {
        let rows: Vec<_> = batches.iter().map(|batch| of(batch).view()).collect();
        concatenate(Axis(0), &rows)
    };
    let (made, slopes) = (all(|b| &b.0)?, all(|b| &b.1)?);
    let range = ranges(&data.test);
    let private = data.clients[client as usize].samples.values();
    let beside = |inputs: &Array2<f32>| likeness(inputs, &private, &data.task.input, &range);
    let far = FAR.map(|by| beside(&moved(&made, &slopes, &range, by)));
    let mut like: Option<Likeness> = None;
    for one in far {
        let one = one?;
        if like
            .as_ref()
            .is_none_or(|best| best.mean_psnr() < one.mean_psnr())
        {
            like = Some(one);
        }
    }
    Ok(ClientResult {
        attack: "follow",
        client,
        loss: None,
        like: like.context("there is a length to move by")?,
        known: beside(&made)?,
    })
}

/// What asking about inputs of one's own finds of each client.
fn pry(
    (options, run): (&SlopesOptions, &AttackRun<'_>),
    spec: &Spec<DataSpec>,
    asked: &Signals,
    data: &Assembled,
) -> Result<Vec<ClientResult>> {
    let place = Arc::new(Mutex::new(None));
    let stream = Stream::root(run.seed).child("inversion", 0);
    searching((options.steps, options.smooth), run, asked, |how, tell| {
        let (how, found) = (*how, place.clone());
        let range = ranges(&data.test);
        let prying = |honest| -> Box<dyn Protocol> {
            Box::new(MaliciousServer {
                honest,
                how,
                stream,
                range,
                tell,
                found,
            })
        };
        let prying: ProtocolOverride<'_> = Box::new(prying);
        watched(spec, run, asked, Some(prying), |_, _, _| true)
    })?;
    let found = place.lock().unwrap_or_else(PoisonError::into_inner).take();
    let SearchResult { inputs, distance } =
        found.context("the run came to its end without a search")?;
    let classes: Vec<u32> = (0..data.task.kind.outputs() as u32).collect();
    let known = class_means(&data.test, &classes);
    let accounts = spec.parts.has("accountant");
    let all = data.clients.iter().enumerate();
    let asked = all.filter(|(_, own)| accounts || !own.is_empty());
    let clients: Vec<usize> = asked.map(|(id, _)| id).collect();
    let mut all = Vec::new();
    for (inputs, client) in inputs.axis_chunks_iter(Axis(0), classes.len()).zip(clients) {
        let private = std::slice::from_ref(&data.clients[client]);
        if private[0].is_empty() {
            continue;
        }
        let (like, nearest) = beside(&inputs.to_owned(), private, &classes, data)?;
        let (known_like, _) = beside(&known, private, &classes, data)?;
        let rows = [inputs.view(), nearest.view(), known.view()];
        let picture = options.picture.as_deref().filter(|_| all.is_empty());
        draw(picture, &rows, &data.task.input, classes.len())?;
        all.push(ClientResult {
            attack: "ask",
            client: client as ClientId,
            loss: Some(distance),
            like,
            known: known_like,
        });
    }
    Ok(all)
}
