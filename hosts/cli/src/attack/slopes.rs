//! `fl attack slopes`: what the slopes with which clients answer give away of their examples.

use super::inversion::beside;
use super::search::{Common, drawable, searching, spec_of, watched, weight};
use crate::{Done, Failure, Overrides, print};
use anyhow::{Context, Result};
use clap::Args;
use fl_attack::{
    ANSWER, InputValues, Likeness, MaliciousServer, SLOPES, SearchResult, class_means, likeness,
    moved, ranges,
};
use fl_core::message::decode;
use fl_core::privacy::Observer;
use fl_core::{ClientId, Protocol, Samples, Stream, TaskKind};
use fl_data::{Assembled, DataSpec};
use fl_engine::{ProtocolOverride, Signals};
use fl_files::write;
use fl_registry::{Catalogue, Spec};
use fl_sim::picture;
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

#[derive(Args)]
pub struct SlopesArgs {
    /// A spec of `generate-and-distill`, or the folder of a run of one. It is run twice: as it is,
    /// and led by the attacker.
    #[arg(value_name = "SPEC")]
    spec: PathBuf,
    #[command(flatten)]
    set: Overrides,
    /// Steps of the search; each asks every client twice.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// The weight of an image's total variation per pixel against the loss: larger finds smoother
    /// images.
    #[arg(long, value_name = "WEIGHT", default_value_t = 1.0, value_parser = weight)]
    smooth: f64,
    /// Draw what asking has found of the first client, a column a class, below it the private image
    /// that is nearest, and the class's mean over test images: a PNG file.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// What an attack on a client came to.
#[derive(Serialize)]
struct ClientResult {
    attack: &'static str,
    client: ClientId,
    /// Mean cross-entropy of what asking has found, over all clients.
    loss: Option<f64>,
    #[serde(flatten)]
    like: Likeness,
    /// The same without slopes: the made inputs as they were, or the class means of test examples.
    known: Likeness,
}

/// A made batch, and the slopes by it.
type Batch = (Array2<f32>, Array2<f32>);

pub fn slopes(args: &SlopesArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    drawable(args.picture.as_deref())?;
    let spec = spec_of(&args.spec, &args.set, catalogue)?;
    if spec.protocol.name != PROTOCOL {
        let found = spec.protocol.name;
        return Err(Failure::usage(format!(
            "{}: the attack needs slopes, which clients send in `{PROTOCOL}` only; this spec has `{found}`",
            args.spec.display()
        )));
    }
    let data = fl_engine::data(&spec, &args.common.data.path())?;
    if !matches!(data.task.kind, TaskKind::Classes(_)) {
        return Err(Failure::usage(
            "the attack looks for an example of each class; these have several labels, or a value for every pixel",
        ));
    }
    let asked = Signals::listen().context("listening to signals")?;
    let mut found = Vec::new();
    for (client, batches) in watch(args, &spec, line, &asked)? {
        found.push(follow(client, &batches, &data)?);
    }
    found.extend(pry(args, &spec, line, &asked, &data)?);
    match args.common.json {
        true => print(serde_json::json!({
            "spec": args.spec, "seed": args.common.seed, "attacks": found,
        })),
        false => print(text(&found)),
    }
}

/// The last batches that were made, with the slopes by them that each client answered.
fn watch(
    args: &SlopesArgs,
    spec: &Spec<DataSpec>,
    line: &[String],
    asked: &Signals,
) -> Result<BTreeMap<ClientId, Vec<Batch>>, Failure> {
    let (mut question, mut made, mut length) = (String::new(), None, 0);
    let mut all = BTreeMap::<ClientId, Vec<Batch>>::new();
    watched(
        spec,
        &args.common.data,
        line,
        asked,
        None,
        |observer, what, bytes| {
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
                        while batches.len() > 1 && (batches.len() - 1) * made.values.nrows() >= LAST
                        {
                            batches.remove(0);
                        }
                    }
                }
                Observer::Server | Observer::Readers => {}
            }
            true
        },
    )?;
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
    args: &SlopesArgs,
    spec: &Spec<DataSpec>,
    line: &[String],
    asked: &Signals,
    data: &Assembled,
) -> Result<Vec<ClientResult>, Failure> {
    let place = Arc::new(Mutex::new(None));
    let stream = Stream::root(args.common.seed).child("inversion", 0);
    searching((args.steps, args.smooth), asked, |how, tell| {
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
        watched(
            spec,
            &args.common.data,
            line,
            asked,
            Some(prying),
            |_, _, _| true,
        )
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
        if let Some(path) = args.picture.as_ref().filter(|_| all.is_empty()) {
            let rows = concatenate(Axis(0), &[inputs.view(), nearest.view(), known.view()]);
            let rows = rows.context("images of one size")?;
            let rows = Samples::fresh(rows, data.task.input.clone())?;
            write(path, &picture(&rows, Some(classes.len()))?)?;
        }
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

fn text(found: &[ClientResult]) -> String {
    let mut out = String::from("attack  client    loss  PSNR, dB   SSIM  without: PSNR   SSIM\n");
    for ClientResult {
        attack,
        client,
        loss,
        like,
        known,
    } in found
    {
        let loss = loss.map_or("-".into(), |loss| format!("{loss:.4}"));
        out += &format!(
            "{attack:6}  {client:>6}  {loss:>6}  {:8.1}  {:>5}  {:13.1}  {:>5}\n",
            like.mean_psnr(),
            like.mean_ssim(),
            known.mean_psnr(),
            known.mean_ssim()
        );
    }
    out + "follow: an honest server's generated inputs, moved along a client's slopes; without the slopes: not moved
ask: a malicious server asks about inputs of its own, and keeps the one of each class that the teacher is surest of; without the slopes: the class mean
each is compared with the client's nearest example (for `ask`, of the class); the loss is the mean over clients"
}
