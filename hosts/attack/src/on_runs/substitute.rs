//! What a client's answers about public samples give away of its examples.

use super::inversion::{InversionOptions, InversionResult, classes, invertible};
use super::search::{drawable, searching, spec_of, watched};
use super::{AttackRun, Overrides, usage};
use crate::{
    EavesdroppingServer, ObservedAnswers, agreement, ideal, imitate, ranges, teaches, turns,
};
use anyhow::{Context, Result};
use clap::Args;
use fl_core::message::{Message, Votes, softmax};
use fl_core::{BuildContext, ClientId, Protocol, Role, Samples, Stream, Trainer, metrics};
use fl_data::{Assembled, DataSpec};
use fl_engine::{ProtocolOverride, Signals};
use fl_registry::Spec;
use ndarray::{Array2, Axis};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What a model came to: the client's own, or a substitute of it.
#[derive(Debug, Serialize)]
pub struct ModelResult {
    /// Which: `client`, `substitute` or `asked`.
    pub model: &'static str,
    /// Of how many answers it was made; the client's own of none.
    pub answers: Option<usize>,
    /// The share of test examples that it is right about.
    pub accuracy: f64,
    /// The share of them about which it says what the client's model says.
    pub agreement: f64,
    /// `None`: it gives no slopes by its input, which its substitutes do.
    pub inversion: Option<InversionResult>,
}

/// What an attack on answers takes.
#[derive(Args, Clone, Debug)]
pub struct SubstituteOptions {
    /// The spec of a distillation, or the folder of a run of one. It is run to its end.
    #[arg(value_name = "SPEC")]
    pub spec: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub set: Overrides,
    /// Whose answers are learnt.
    #[arg(long, value_name = "ID", default_value_t = 0)]
    pub client: ClientId,
    /// The part whose kind of network the substitute is, such as `student`; otherwise the client's
    /// own.
    #[arg(long, value_name = "SLOT")]
    pub network: Option<String>,
    /// How often the substitute sees each answer.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub epochs: u32,
    /// Make another substitute from answers about N inputs of the attacker's own, without any
    /// data (IDEAL).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=250_000))]
    pub ask: Option<u32>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub how: InversionOptions,
}

/// What an attack on answers came to.
#[derive(Debug)]
pub struct SubstituteFound {
    /// The kind of message that the client answered.
    pub observed: &'static str,
    /// The client's model, and its substitutes.
    pub models: Vec<ModelResult>,
}

/// Reconstructs an input of each class from a client's answers about public samples: a substitute
/// network learns the answers, and is inverted.
///
/// # Errors
/// If the spec cannot be run here, or the client has no such answers.
pub fn attack_answers(options: &SubstituteOptions, run: &AttackRun<'_>) -> Result<SubstituteFound> {
    drawable(options.how.picture.as_deref())?;
    let spec = spec_of(&options.spec, &options.set, run.catalogue)?;
    let data = fl_engine::data(&spec, &run.data_dir)?;
    classes(&data)?;
    let id = options.client;
    if data
        .clients
        .get(id as usize)
        .is_none_or(|own| own.is_empty())
    {
        let with = (0..data.clients.len()).filter(|id| !data.clients[*id].is_empty());
        let with: Vec<String> = with.map(|id| id.to_string()).collect();
        let with = with.join(", ");
        return Err(usage(format!(
            "--client: the clients with examples are {with}, got {id}"
        )));
    }
    let slot = answering(options, &spec, &data)?;
    let network = options.network.as_deref().unwrap_or(&slot);
    // weights of the attacker's own: it does not know the client's initial ones
    let own = Stream::root(run.seed).child("substitute", 0);
    let make = || blank(options, &spec, &data, network, &own);
    let mut listened = make()?;
    invertible(listened.as_mut(), network)?;
    let asked = Signals::listen().context("listening to signals")?;
    let heard = hear(options.client, run, &spec, &asked, &slot)?;
    let mut client = blank(options, &spec, &data, &slot, &Stream::root(spec.seed))?;
    client.load(&heard.model)?;
    let (samples, said) = learnt(&heard, &data)?;
    searching((options.epochs, 0.0), run, &asked, |how, tell| {
        let of = (&samples, said.view());
        imitate(
            listened.as_mut(),
            of,
            how.steps,
            &own.child("listen", 0),
            &tell,
        )
    })?;
    let mut models = vec![
        ("client", None, None),
        ("substitute", Some(samples.len()), Some(listened)),
    ];
    if let Some(queries) = options.ask.map(|n| n as usize) {
        let mut made = make()?;
        let range = ranges(&data.test);
        let mut ask = |x: &Samples| {
            let scores = client.predict(x)?;
            Ok(if heard.kind == Votes::KIND {
                one_hot(&scores)
            } else {
                softmax(scores.view(), 1.0)
            })
        };
        searching((turns(queries) as u32, 0.0), run, &asked, |_, tell| {
            let about = (&data.task.input[..], &range[..], queries);
            ideal(made.as_mut(), about, &mut ask, &own.child("ask", 0), &tell)
        })?;
        models.push(("asked", Some(queries), Some(made)));
    }
    let mut prior = options.how.learn(&data, run, &asked)?;
    let theirs = client.predict(&data.test.samples)?;
    let private = std::slice::from_ref(&data.clients[id as usize]);
    let mut found = Vec::new();
    for (name, answers, mut model) in models {
        let model = model.as_mut().unwrap_or(&mut client).as_mut();
        let ours = model.predict(&data.test.samples)?;
        let inversion = if model.differentiable().is_some() {
            let whose = (name, private);
            Some(
                options
                    .how
                    .invert(whose, model, &mut prior, &data, (run, &asked))?,
            )
        } else {
            None
        };
        found.push(ModelResult {
            model: name,
            answers,
            accuracy: metrics::score(ours.view(), &data.test)?
                .context("the test rows define no score")?,
            agreement: agreement(ours.view(), theirs.view()),
            inversion,
        });
    }
    Ok(SubstituteFound {
        observed: heard.kind,
        models: found,
    })
}

/// The slot of the model that answers about public samples.
fn answering(
    options: &SubstituteOptions,
    spec: &Spec<DataSpec>,
    data: &Assembled,
) -> Result<String> {
    let make = BuildContext::new(
        data.task.clone(),
        Stream::root(spec.seed).child("protocol", 0),
    );
    let protocol = spec.make_protocol(&make)?;
    let at = options.spec.display();
    if data.public.is_none() || !protocol.exchanges().iter().any(teaches) {
        let found = &spec.protocol_name;
        return Err(usage(format!(
            "{at}: the attack needs clients that answer about public samples with scores, probabilities or votes, and `{found}` has none with these settings; use `one-shot-distill`, `co-distill`, or `two-tier-vote` with `send: votes`"
        )));
    }
    let between = spec.parts.iter().find(|part| {
        let role = part.decl.role;
        matches!(role, Role::Privacy | Role::Selector)
    });
    if let (Some(part), Some(_)) = (between, options.ask) {
        return Err(usage(format!(
            "--ask: answers about the attacker's own inputs would bypass parts.{}: leave that part out of the spec, or leave out --ask",
            part.slot
        )));
    }
    let slots = protocol.slots().into_iter();
    let mut lasting = slots.filter(|s| s.role == Role::Trainer && s.lasts && !s.server);
    let slot = lasting.next().map(|slot| slot.name.to_string());
    slot.ok_or_else(|| {
        usage(format!(
            "{at}: no client keeps its model after its answer, so there is no model to compare a substitute with; set `evaluate-clients: true`, if the protocol has that"
        ))
    })
}

/// A network as of this slot of the client's.
fn blank(
    options: &SubstituteOptions,
    spec: &Spec<DataSpec>,
    data: &Assembled,
    slot: &str,
    stream: &Stream,
) -> Result<Box<dyn Trainer>> {
    let mut trainers = spec.parts.iter().filter(|p| p.decl.role == Role::Trainer);
    if !trainers.clone().any(|part| part.slot == slot) {
        let all: Vec<&str> = trainers.by_ref().map(|part| part.slot.as_str()).collect();
        let all = all.join(", ");
        return Err(usage(format!(
            "--network: the spec has networks for {all}, got `{slot}`"
        )));
    }
    let make = BuildContext::new(data.task.clone(), stream.clone());
    spec.parts
        .build(Role::Trainer, slot, Some(options.client), &make)
}

/// Runs the spec, and returns the client's answers.
fn hear(
    client: ClientId,
    run: &AttackRun<'_>,
    spec: &Spec<DataSpec>,
    asked: &Signals,
    slot: &str,
) -> Result<ObservedAnswers> {
    let heard = Arc::new(Mutex::new(ObservedAnswers::default()));
    let (slot, place) = (slot.to_string(), heard.clone());
    let overhearing = move |honest| -> Box<dyn Protocol> {
        Box::new(EavesdroppingServer {
            honest,
            client,
            slot,
            heard: place,
        })
    };
    let instead: ProtocolOverride<'_> = Box::new(overhearing);
    watched(spec, run, asked, Some(instead), |_, _, _| true)?;
    let heard = std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner));
    if !heard.said.is_empty() {
        Ok(heard)
    } else {
        Err(usage(format!(
            "client {client} answered nothing about public samples in this run: name another with --client"
        )))
    }
}

/// The public samples that the client has answered about, and the answers: `samples x classes`.
fn learnt(heard: &ObservedAnswers, data: &Assembled) -> Result<(Samples, Array2<f32>)> {
    let public = data.public.as_ref().context("the spec has public data")?;
    let rows: Vec<usize> = heard.said.keys().map(|id| *id as usize).collect();
    let said: Vec<_> = heard.said.values().map(|row| row.view()).collect();
    Ok((
        public.samples.pick(&rows),
        ndarray::stack(Axis(0), &said).context("a number for each class")?,
    ))
}

/// 1 for the highest score of each row.
fn one_hot(scores: &Array2<f32>) -> Array2<f32> {
    let mut out = Array2::zeros(scores.dim());
    for (mut row, class) in out
        .rows_mut()
        .into_iter()
        .zip(metrics::classes(scores.view()))
    {
        row[class as usize] = 1.0;
    }
    out
}
