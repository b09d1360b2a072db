//! `fl try`: one part's answer to numbers given in JSON.

use crate::{Done, Failure, print};
use anyhow::{Context, bail, ensure};
use clap::Args;
use fl_core::message::{Counts, Logits, Message, Named, Params, Parcel, Tensor, View, Votes};
use fl_core::settings::{Reader, Value};
use fl_core::{
    Accountant, BoxedAggregator, BoxedMechanism, BoxedSelector, BuildContext, Candidate, ClientId,
    Cohort, Filled, Inbox, Mail, PartDecl, Parts, PrivacyEvent, Result, Role, Roster, Round,
    Stream, Task, TaskKind,
};
use fl_registry::Catalogue;
use ndarray::{ArrayD, IxDyn};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::path::PathBuf;

#[derive(Args)]
pub struct TryArgs {
    /// aggregator, selector, privacy or accountant.
    role: String,
    /// The part's name in specs.
    name: String,
    /// Its settings, as YAML: `{trim: 0.2}`.
    #[arg(long, default_value = "{}")]
    settings: String,
    /// A JSON file. Aggregator: `{"messages": [{"from": 0, "weight": 10, "tensors": {"w": [1, 2]}}]}`; selector of
    /// clients: `{"clients": [[0, 100], [1, 50]]}`; privacy: `{"tensors": {..}, "clients": 10}`; accountant:
    /// `{"events": [{"Laplace": {"sensitivity": 1, "scale": 2, "unit": "party"}}]}`.
    #[arg(long)]
    input: PathBuf,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Letter {
    from: ClientId,
    #[serde(default = "one")]
    weight: f64,
    class_counts: Option<Vec<u32>>,
    tensors: Map<String, Json>,
}

fn one() -> f64 {
    1.0
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Letters {
    messages: Vec<Letter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Clients {
    clients: Vec<(ClientId, u64)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    tensors: Map<String, Json>,
    #[serde(default = "one_client")]
    clients: usize,
}

fn one_client() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Events {
    events: Vec<PrivacyEvent>,
}

/// Tensors of whole numbers.
const WHOLE: [&str; 4] = ["rows", "labels", ".classes", ".about"];

/// Nested lists of numbers as a tensor; `rows` holds ids.
fn tensor(name: &str, value: &Json) -> Result<Tensor> {
    fn flatten(
        value: &Json,
        depth: usize,
        shape: &mut Vec<usize>,
        out: &mut Vec<f64>,
    ) -> Result<()> {
        match value {
            Json::Array(items) => {
                if shape.len() == depth {
                    shape.push(items.len());
                }
                ensure!(
                    shape[depth] == items.len(),
                    "its lists differ in length: {} and {}",
                    shape[depth],
                    items.len()
                );
                items
                    .iter()
                    .try_for_each(|v| flatten(v, depth + 1, shape, out))
            }
            Json::Number(n) => {
                ensure!(shape.len() == depth, "numbers and lists stand side by side");
                out.push(n.as_f64().context("a number beyond 64-bit floats")?);
                Ok(())
            }
            // JSON has no word for these
            Json::String(s) if matches!(s.as_str(), "nan" | "inf" | "-inf") => {
                out.push(s.parse()?);
                Ok(())
            }
            other => bail!("numbers or lists of them are due, found {other}"),
        }
    }
    let (mut shape, mut numbers) = (Vec::new(), Vec::new());
    flatten(value, 0, &mut shape, &mut numbers).with_context(|| format!("tensor `{name}`"))?;
    let shape = IxDyn(&shape);
    if WHOLE.contains(&name) {
        let ids = numbers.iter().map(|n| *n as u32).collect();
        return Ok(Tensor::U32(ArrayD::from_shape_vec(shape, ids)?));
    }
    Ok(Tensor::F32(ArrayD::from_shape_vec(
        shape,
        numbers.iter().map(|n| *n as f32).collect(),
    )?))
}

fn message<M: Message>(tensors: &Map<String, Json>) -> Result<M> {
    let all = tensors
        .iter()
        .map(|(name, value)| Ok((name.clone(), tensor(name, value)?)))
        .collect::<Result<_>>()?;
    M::from_tensors(Parcel::new(all)).with_context(|| format!("a {} message", M::KIND))
}

fn nested<T: Copy>(
    shape: &[usize],
    values: &mut impl Iterator<Item = T>,
    number: &impl Fn(T) -> Json,
) -> Json {
    match shape {
        [] => values.next().map_or(Json::Null, number),
        [n, rest @ ..] => (0..*n).map(|_| nested(rest, values, number)).collect(),
    }
}

fn tensors(all: &Named<'_>) -> Json {
    let one = |(name, view): &(std::borrow::Cow<'_, str>, View<'_>)| {
        let shape = view.shape();
        let value = match view {
            // by its shortest text: 0.1, not 0.10000000149011612
            View::F32(a) => nested(&shape, &mut a.iter().copied(), &|x: f32| {
                x.to_string()
                    .parse()
                    .map_or(json!(x.to_string()), Json::Number)
            }),
            View::F64(a) => nested(&shape, &mut a.iter().copied(), &|x: f64| json!(x)),
            View::U32(a) => nested(&shape, &mut a.iter().copied(), &|x: u32| json!(x)),
            View::U8(b) => json!(b.len()),
        };
        (name.to_string(), value)
    };
    Json::Object(all.iter().map(one).collect())
}

fn aggregate<I: Message, O: Message>(
    parts: &Parts,
    make: &BuildContext,
    input: Json,
) -> Result<Json> {
    let letters: Letters = serde_json::from_value(input)?;
    let mail = letters.messages.into_iter().map(|l| {
        let body =
            message::<I>(&l.tensors).with_context(|| format!("the message from {}", l.from))?;
        Ok(Mail {
            from: l.from,
            weight: l.weight,
            class_counts: l.class_counts,
            body,
        })
    });
    let inbox = Inbox::new(mail.collect::<Result<_>>()?)?;
    let round = Round::first().with_stream(make.stream.clone());
    let out = parts
        .build::<BoxedAggregator<I, O>>(Role::Aggregator, "part", None, make)?
        .aggregate(&round, &inbox)?;
    Ok(json!({ "kind": O::KIND, "tensors": tensors(&out.tensors()) }))
}

fn release<M: Message>(parts: &Parts, make: &BuildContext, input: Json) -> Result<Json> {
    let release: Release = serde_json::from_value(input)?;
    let mut m: M = message(&release.tensors)?;
    let mut mechanism = parts.build::<BoxedMechanism<M>>(Role::Privacy, "part", None, make)?;
    mechanism.clip(&mut m)?;
    let bounded = tensors(&m.tensors());
    let cohort = Cohort::all(release.clients);
    let event = mechanism.price(&m, &cohort)?;
    mechanism.perturb(&mut m, &cohort, &make.stream)?;
    let event = mechanism.actual_cost(event);
    Ok(
        json!({ "kind": M::KIND, "bounded": bounded, "event": event, "tensors": tensors(&m.tensors()) }),
    )
}

fn answer(
    decl: &'static PartDecl,
    parts: &Parts,
    make: &BuildContext,
    input: Json,
) -> Result<Json> {
    let signature = (decl.describe)().signature;
    match (decl.role, signature.as_str()) {
        (Role::Aggregator, "params -> params") => aggregate::<Params, Params>(parts, make, input),
        (Role::Aggregator, "logits -> logits") => aggregate::<Logits, Logits>(parts, make, input),
        (Role::Aggregator, "votes -> counts") => aggregate::<Votes, Counts>(parts, make, input),
        (Role::Privacy, "counts") => release::<Counts>(parts, make, input),
        (Role::Privacy, "params") => release::<Params>(parts, make, input),
        (Role::Privacy, "logits") => release::<Logits>(parts, make, input),
        (Role::Selector, "clients") => {
            let clients: Clients = serde_json::from_value(input)?;
            let known = |(id, n): &(ClientId, u64)| Candidate {
                samples: Some(*n),
                ..Candidate::new(*id)
            };
            let pool: Vec<Candidate> = clients.clients.iter().map(known).collect();
            let picked = parts
                .build::<BoxedSelector<Roster>>(Role::Selector, "part", None, make)?
                .select(&Round::first().with_stream(make.stream.clone()), &pool)?;
            Ok(json!({ "positions": picked }))
        }
        (Role::Accountant, _) => {
            let events: Events = serde_json::from_value(input)?;
            let mut accountant =
                parts.build::<Box<dyn Accountant>>(Role::Accountant, "accountant", None, make)?;
            events
                .events
                .iter()
                .try_for_each(|e| accountant.charge(e))?;
            Ok(json!(accountant.guarantee(None)?))
        }
        (role, signature) => bail!(
            "`fl try` has no numbers for {} of {signature}",
            role.with_article()
        ),
    }
}

pub fn try_part(args: &TryArgs, catalogue: &Catalogue) -> Done {
    let role = crate::show::role(&args.role)?;
    let decl = catalogue.find(role, &args.name).map_err(Failure::usage)?;
    let settings: Value = serde_yaml::from_str(&args.settings)
        .map_err(|e| Failure::usage(format!("--settings: {e}")))?;
    let mut reader = Reader::default();
    (decl.check)(&settings, &mut reader);
    if !reader.mistakes.is_empty() {
        let all: Vec<String> = reader
            .mistakes
            .iter()
            .map(|m| format!("--settings: {m}"))
            .collect();
        return Err(Failure::usage(all.join("\n")));
    }
    let text = std::fs::read_to_string(&args.input)
        .map_err(|e| Failure::usage(format!("{}: {e}", args.input.display())))?;
    let input: Json = serde_json::from_str(&text)
        .map_err(|e| Failure::usage(format!("{}: {e}", args.input.display())))?;
    let slot = if role == Role::Accountant {
        "accountant"
    } else {
        "part"
    };
    let parts = Parts::new(vec![Filled {
        slot: slot.into(),
        clients: None,
        decl,
        settings,
    }]);
    let task = Task {
        input: vec![1],
        kind: TaskKind::Classes(2),
    };
    let make = BuildContext {
        task,
        stream: Stream::root(args.seed),
    };
    let answer = answer(decl, &parts, &make, input)
        .with_context(|| args.input.display().to_string())
        .map_err(|e| Failure::usage(format!("{e:#}")))?;
    print(serde_json::to_string(&answer)?)
}
