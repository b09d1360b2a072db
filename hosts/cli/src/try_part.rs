//! `fl try`: one part's answer to numbers given in JSON.

use crate::{Done, Failure, print};
use anyhow::{Context, bail, ensure};
use clap::Args;
use fl_core::message::{
    self, AnyMessage, Ids, MessageType, Params, SoftLabels, from_json, to_json,
};
use fl_core::privacy::ReleaseNoise;
use fl_core::settings::{Reader, Value};
use fl_core::{
    Accountant, AnyAggregator, AnyInbox, AnyMechanism, AnyPool, BoxedPart, BoxedSelector,
    BuildContext, Candidate, CheckedSettings, ClientId, ClientMessage, Cohort, Examples, Labels,
    LogEvent, PartDecl, Parts, Pool, PrivacyEvent, RequiredInputs, Result, Role, Roster, Round,
    Samples, SlotAssignment, Stream, Task, TaskKind,
};
use fl_engine::NotRun;
use fl_registry::Catalogue;
use ndarray::Array2;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Args)]
pub struct TryArgs {
    /// aggregator, selector, privacy or accountant.
    role: String,
    /// The part's name in specs.
    name: String,
    /// Its settings, as YAML: `{trim: 0.2}`.
    #[arg(long, default_value = "{}")]
    settings: String,
    /// A JSON file; tensors are nested lists of numbers, with the names of fl-core/MESSAGES.md.
    /// Aggregator: `{"messages": [{"from": 0, "weight": 10, "class_counts": [4, 6],
    /// "training_loss": 0.5, "tensors": {"w": [1, 2]}}]}`, with `"sent": {"w": [0, 0]}` for one
    /// that needs the message sent to clients; privacy: `{"tensors": {..}, "clients": 10}`;
    /// selector of clients: `{"clients": [{"id": 0, "samples": 100, "loss": 0.5}]}`, of samples:
    /// `{"samples": [[..], ..]}`, of soft labels: `{"tensors": {..}}`, both also with a client's
    /// own examples: `"own": {"samples": [[..], ..], "classes": [0, 1, ..]}`; accountant:
    /// `{"events": [{"Laplace": {"sensitivity": 1, "scale": 2, "unit": "party"}}]}`.
    #[arg(long)]
    input: PathBuf,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseMessage {
    from: ClientId,
    #[serde(default = "one")]
    weight: f64,
    class_counts: Option<Vec<u32>>,
    training_loss: Option<f64>,
    tensors: Map<String, Json>,
}

fn one() -> f64 {
    1.0
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseMessages {
    messages: Vec<CaseMessage>,
    /// The message sent to clients, for parts that need it.
    sent: Option<Map<String, Json>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Clients {
    clients: Vec<Client>,
}

/// A client, and the numbers that it has sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Client {
    id: ClientId,
    samples: Option<u64>,
    loss: Option<f64>,
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
struct CheckedPart {
    samples: Option<Json>,
    tensors: Option<Map<String, Json>>,
    own: Option<OwnExamples>,
}

/// A client's own examples.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnExamples {
    samples: Json,
    classes: Json,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Events {
    events: Vec<PrivacyEvent>,
}

/// Labels of more classes are a mistake.
const CLASSES: u32 = 1 << 16;

/// What a part was given, and what it is made with.
struct Trial<'a> {
    parts: &'a Parts,
    make: &'a BuildContext,
    input: Json,
}

/// As they reach a part in a run: one that does not ask for weights sees none.
fn inbox(
    of: &'static MessageType,
    messages: Vec<CaseMessage>,
    needs: RequiredInputs,
) -> Result<Box<dyn AnyInbox>> {
    let mail = messages.into_iter().map(|l| {
        let body = of.from_json(&l.tensors);
        Ok(ClientMessage {
            from: l.from,
            weight: if needs.samples { l.weight } else { 1.0 },
            class_counts: l.class_counts,
            training_loss: l.training_loss,
            body: body.with_context(|| format!("client {}", l.from))?,
        })
    });
    of.inbox(mail.collect::<Result<_>>()?)
}

/// What a part gave, if it is what such a message may be.
fn shown(out: &dyn AnyMessage) -> Result<Json> {
    message::check(out).context("its output")?;
    Ok(json!({ "kind": out.kind(), "tensors": to_json(out) }))
}

impl Trial<'_> {
    fn part<B: BoxedPart>(&self, role: Role) -> Result<B> {
        self.parts.build(role, SLOT, None, self.make)
    }

    fn selector<P: Pool + ?Sized>(&self) -> Result<BoxedSelector<P>> {
        self.part(Role::Selector)
    }

    /// One that has seen the client's own examples, if there are any.
    fn fitted<P: Pool + ?Sized>(&self, own: Option<OwnExamples>) -> Result<BoxedSelector<P>> {
        let mut part = self.selector()?;
        if let Some(own) = own {
            part.fit(&examples(own).context("`own`")?, &self.make.stream)?;
        }
        Ok(part)
    }

    /// Lets a selector choose; `None`: no pool is called so.
    fn select(self, pool: &str) -> Option<Result<Json>> {
        let round = Round::first().with_stream(self.make.stream.clone());
        let choose = || match pool {
            Roster::NAME => {
                let clients: Clients = serde_json::from_value(self.input.clone())?;
                let known = |c: &Client| Candidate {
                    id: c.id,
                    samples: c.samples,
                    loss: c.loss,
                };
                let pool: Vec<Candidate> = clients.clients.iter().map(known).collect();
                self.selector::<Roster>()?.select(&round, &pool)
            }
            Samples::NAME => {
                let CheckedPart {
                    samples: x, own, ..
                } = serde_json::from_value(self.input.clone())?;
                let x = samples(x.context("`samples` are missing")?)?;
                self.fitted::<Samples>(own)?.select(&round, &x)
            }
            _ => {
                let CheckedPart { tensors, own, .. } = serde_json::from_value(self.input.clone())?;
                let labels: SoftLabels = from_json(&tensors.context("`tensors` are missing")?)?;
                self.fitted::<SoftLabels>(own)?.select(&round, &labels)
            }
        };
        AnyPool::NAMES
            .contains(&pool)
            .then(|| choose().map(|positions| json!({ "positions": positions })))
    }

    fn aggregate(self) -> Result<Json> {
        let mut part = self.part::<Box<dyn AnyAggregator>>(Role::Aggregator)?;
        let (of, needs) = (part.input(), part.needs());
        let round = Round::first().with_stream(self.make.stream.clone());
        let CaseMessages { messages, sent } = serde_json::from_value(self.input)?;
        let round = match sent {
            Some(sent) => round.showing_any(of.from_json(&sent).context("`sent`")?.into()),
            None if needs.sent => {
                bail!("the part needs the message sent to clients: add its tensors as `sent`")
            }
            None => round,
        };
        let inbox = inbox(of, messages, needs)?;
        let mut out = shown(&*part.aggregate(&round, &*inbox)?)?;
        for said in round.take_log() {
            match said {
                LogEvent::Note(text) => out["note"] = json!(text),
                LogEvent::Number(name, value) => out[name] = json!(value),
            }
        }
        Ok(out)
    }

    fn release(self) -> Result<Json> {
        let mut part = self.part::<Box<dyn AnyMechanism>>(Role::Privacy)?;
        let release: Release = serde_json::from_value(self.input)?;
        ensure!(release.clients > 0, "`clients` must be at least 1");
        ensure!(
            release.clients <= fl_data::MAX_CLIENTS,
            "`clients` must be in 1..={}, got {}",
            fl_data::MAX_CLIENTS,
            release.clients
        );
        let mut m = part.on().from_json(&release.tensors)?;
        if let Some(range) = part.range(&*m) {
            part.agree(range);
        }
        part.clip(&mut *m)?;
        message::check(&*m).context("the clipped message")?;
        let bounded = to_json(&*m);
        let cohort = Cohort::all(release.clients);
        let event = part.price(&*m, &cohort)?;
        part.perturb(&mut *m, &cohort, &ReleaseNoise::seeded(&self.make.stream))?;
        let event = part.actual_cost(event);
        let mut out = shown(&*m)?;
        out["bounded"] = bounded;
        out["event"] = serde_json::to_value(event)?;
        Ok(out)
    }

    fn account(self) -> Result<Json> {
        let mut accountant = self.part::<Box<dyn Accountant>>(Role::Accountant)?;
        let events: Events = serde_json::from_value(self.input)?;
        events
            .events
            .iter()
            .try_for_each(|e| accountant.charge(e))?;
        Ok(json!(accountant.guarantee(None)?))
    }
}

/// Rows of finite numbers.
fn samples(rows: Json) -> Result<Samples> {
    let rows: Params = from_json(&Map::from_iter([("samples".to_string(), rows)]))?;
    let rows = rows.0.into_values().next().context("no samples")?;
    let shape = rows.shape().to_vec();
    let (n, inner) = shape.split_first().context("`samples` is one number")?;
    ensure!(!inner.is_empty(), "a sample is a list of numbers");
    let width = inner.iter().product();
    let values = Array2::from_shape_vec((*n, width), rows.into_raw_vec_and_offset().0)?;
    Samples::fresh(values, inner.to_vec())
}

fn examples(own: OwnExamples) -> Result<Examples> {
    let x = samples(own.samples)?;
    let Ids(of) = from_json(&Map::from_iter([("ids".to_string(), own.classes)]))?;
    let highest = of.iter().copied().max().unwrap_or(0);
    ensure!(
        highest < CLASSES,
        "class {highest}; at most {CLASSES} can be read"
    );
    let labels = Labels::Classes {
        of,
        classes: highest as usize + 1,
    };
    Examples::all(x.inputs().clone(), Arc::new(labels))
}

/// What a part says to this input.
fn answer(decl: &'static PartDecl, trial: Trial<'_>) -> Result<Json> {
    let signature = (decl.describe)().signature;
    let answer = match decl.role {
        Role::Aggregator | Role::Attack => Some(trial.aggregate()),
        Role::Privacy => Some(trial.release()),
        Role::Selector => trial.select(&signature),
        Role::Accountant => Some(trial.account()),
        Role::Trainer | Role::Generator | Role::Protocol => None,
    };
    match answer {
        Some(answer) => answer,
        None if signature.is_empty() => {
            bail!("`fl try` has no numbers for {}", decl.role.with_article())
        }
        None => bail!(
            "`fl try` has no numbers for {} of {signature}",
            decl.role.with_article()
        ),
    }
}

/// Calls a part; that it panics is an error like any other, and no news for the screen.
pub fn guarded<T>(decl: &PartDecl, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let outcome = catch_unwind(AssertUnwindSafe(f));
    set_hook(hook);
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "without a text".into());
        bail!("{} `{}` panicked: {text}", decl.role, decl.name)
    })
}

/// Where the part stands, unless it is an accountant.
const SLOT: &str = "part";

/// The part's settings as it reads them, or every mistake in them.
pub fn settings(decl: &PartDecl, given: &Value) -> std::result::Result<CheckedSettings, Failure> {
    let mut reader = Reader::default();
    let read = (decl.check)(given, &mut reader);
    let all = reader.mistakes.iter().map(|m| format!("settings: {m}"));
    let all = all.collect::<Vec<_>>().join("\n");
    read.filter(|_| all.is_empty())
        .ok_or_else(|| Failure::usage(all))
}

/// What the part answers to `input`.
///
/// # Errors
/// Everything that is wrong: settings, or what it says against the input.
pub fn trial(
    decl: &'static PartDecl,
    given: &Value,
    input: Json,
    seed: u64,
) -> std::result::Result<Json, Failure> {
    let settings = settings(decl, given)?;
    let parts = Parts::new(vec![SlotAssignment {
        slot: SLOT.into(),
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
        stream: Stream::root(seed),
    };
    let trial = Trial {
        parts: &parts,
        make: &make,
        input,
    };
    Ok(guarded(decl, || answer(decl, trial))?)
}

pub fn try_part(args: &TryArgs, catalogue: &Catalogue) -> Done {
    let role = crate::show::role(&args.role)?;
    let decl = catalogue.find(role, &args.name).map_err(Failure::usage)?;
    let settings: Value = serde_yaml::from_str(&args.settings)
        .map_err(|e| Failure::usage(format!("--settings: {e}")))?;
    let file = args.input.display();
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("{file}: {error}"));
    let text = fl_engine::open(&args.input).and_then(std::io::read_to_string);
    let text = text.map_err(|e| wrong(&e))?;
    let input: Json = serde_json::from_str(&text).map_err(|e| wrong(&e))?;
    match trial(decl, &settings, input, args.seed) {
        Ok(answer) => print(serde_json::to_string(&answer)?),
        Err(Failure::Failed(error)) => Err(wrong(&format!("{error:#}"))),
        Err(Failure::NotRun(NotRun::Usage(text))) => {
            Err(Failure::usage(text.replace("settings: ", "--settings: ")))
        }
        Err(other) => Err(other),
    }
}
