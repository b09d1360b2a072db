//! One part alone, of any role, and its answers to inputs in JSON, round by round.

use crate::Failure;
use anyhow::{Context, bail, ensure};
use fl_core::message::{
    self, AnyMessage, Ids, MessageType, Params, SoftLabels, from_json, message_type, to_json,
};
use fl_core::privacy::ReleaseNoise;
use fl_core::settings::{Mistake, Reader, Step, Value};
use fl_core::{
    Accountant, AnyAggregator, AnyInbox, AnyMechanism, AnyPool, AnySelector, BoxedPart,
    BuildContext, Candidate, CheckedSettings, ClientId, ClientMessage, Cohort, Examples,
    FitOptions, Generator, Labels, Length, LogEvent, Loss, PartDecl, Parts, Pool, PrivacyEvent,
    RequiredInputs, Result, Role, Roster, Round, Samples, Serial, SlotAssignment, Stream, Target,
    Task, TaskKind, Trainer,
};
use ndarray::Array2;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json, json};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Arc;

/// A client's answer.
#[derive(Clone, Deserialize)]
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

/// Of an aggregator, or of an attack.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    messages: Vec<CaseMessage>,
    /// What the clients were sent, for parts that want to see it.
    sent: Option<Map<String, Json>>,
}

/// Of a selector of clients.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    clients: Vec<Client>,
}

/// A client, and what it has told of itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Client {
    id: ClientId,
    samples: Option<u64>,
    loss: Option<f64>,
}

/// Of a privacy mechanism.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    tensors: Map<String, Json>,
    #[serde(default = "one_client")]
    clients: usize,
}

fn one_client() -> usize {
    1
}

/// Of a selector of samples or of soft labels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    samples: Option<Json>,
    tensors: Option<Map<String, Json>>,
    own: Option<OwnExamples>,
}

/// A client's own examples.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnExamples {
    samples: Json,
    classes: Json,
}

/// Of an accountant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    events: Vec<PrivacyEvent>,
}

/// Of a trainer: a pass over these samples, if there is a target, and then predictions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lesson {
    samples: Json,
    classes: Option<Vec<u32>>,
    labels: Option<Vec<Vec<i8>>>,
    scores: Option<Json>,
    epochs: Option<usize>,
    steps: Option<usize>,
    #[serde(default = "batch")]
    batch: usize,
    loss: Option<String>,
    /// Other samples to predict.
    predict: Option<Json>,
    /// The number of classes or labels, where it is not that of the target.
    outputs: Option<usize>,
    /// Are its parameters part of the answer?
    #[serde(default)]
    parameters: bool,
}

fn batch() -> usize {
    32
}

/// Of a generator: it makes inputs, and then learns from the slopes, if there are any.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    count: usize,
    /// The shape of one input.
    shape: Option<Vec<usize>>,
    /// The number of classes of the task.
    outputs: Option<usize>,
    slopes: Option<Json>,
}

/// The input of one round, by the role of the part.
pub enum Input {
    Messages(Messages),
    Clients(Clients),
    Release(Release),
    Rows(Rows),
    Events(Events),
    Lesson(Box<Lesson>),
    Wish(Wish),
}

/// Labels of more classes are a mistake.
const CLASSES: u32 = 1 << 16;

/// More inputs than that are not asked of a generator.
const INPUTS: usize = 1 << 16;

impl Input {
    /// Reads what a part of this role and signature is given.
    ///
    /// # Errors
    /// What is wrong, and where in the input.
    pub fn read(decl: &PartDecl, input: &Json) -> std::result::Result<Self, Mistake> {
        let signature = (decl.describe)().signature;
        match decl.role {
            Role::Aggregator | Role::Attack => match typed::<Messages>(input)? {
                // a run fails before an aggregator would get no answer
                given if given.messages.is_empty() => Err(Mistake {
                    path: vec![Step::Key("messages".into())],
                    text: "must have an answer of at least one client".into(),
                    on_key: false,
                }),
                given => Ok(Self::Messages(given)),
            },
            Role::Privacy => typed(input).map(Self::Release),
            Role::Selector if signature == Roster::NAME => typed(input).map(Self::Clients),
            Role::Selector if AnyPool::NAMES.contains(&&*signature) => typed(input).map(Self::Rows),
            Role::Accountant => typed(input).map(Self::Events),
            Role::Trainer => typed(input).map(|lesson| Self::Lesson(Box::new(lesson))),
            Role::Generator => typed(input).map(Self::Wish),
            Role::Selector | Role::Protocol => {
                let of = if signature.is_empty() { "" } else { " of " };
                let role = decl.role.with_article();
                Err(Mistake {
                    path: Vec::new(),
                    text: format!("`fl try` has no input for {role}{of}{signature}"),
                    on_key: false,
                })
            }
        }
    }

    /// What no part of this signature could take: numbers that make no message, or shapes that do
    /// not fit each other.
    pub fn faults(&self, decl: &PartDecl) -> Vec<Mistake> {
        let signature = (decl.describe)().signature;
        let kind = signature.split(" -> ").next().and_then(message_type);
        let mut faults = Faults::default();
        match (self, kind) {
            (Self::Messages(input), Some(of)) => faults.in_messages(input, of),
            (Self::Release(input), Some(of)) => {
                faults.read("tensors", || of.from_json(&input.tensors));
            }
            (Self::Rows(input), _) => {
                faults.optional("samples", &input.samples, samples);
                faults.optional("tensors", &input.tensors, |of| from_json::<SoftLabels>(&of));
                faults.optional("own", &input.own, examples);
            }
            (Self::Lesson(input), _) => faults.in_lesson(input),
            (Self::Wish(input), _) => {
                faults.optional("slopes", &input.slopes, samples);
            }
            _ => {}
        }
        faults.0
    }
}

/// The mistakes found in an input.
#[derive(Default)]
struct Faults(Vec<Mistake>);

impl Faults {
    fn at(&mut self, path: Vec<Step>, error: &anyhow::Error) {
        self.0.push(Mistake {
            path,
            text: format!("{error:#}"),
            on_key: false,
        });
    }

    /// Notes why the field cannot be read.
    fn read<T>(&mut self, field: &str, read: impl FnOnce() -> Result<T>) -> Option<T> {
        read()
            .map_err(|error| self.at(vec![Step::Key(field.into())], &error))
            .ok()
    }

    fn optional<V: Clone, T>(
        &mut self,
        field: &str,
        value: &Option<V>,
        read: impl FnOnce(V) -> Result<T>,
    ) -> Option<T> {
        let value = value.clone()?;
        self.read(field, || read(value))
    }

    fn in_messages(&mut self, input: &Messages, of: &'static MessageType) {
        self.optional("sent", &input.sent, |sent| of.from_json(&sent));
        let mut first = None;
        for (at, message) in input.messages.iter().enumerate() {
            let read = of.from_json(&message.tensors).and_then(|read| {
                let first = first.get_or_insert_with(|| read.clone());
                message::alike_to(&**first, &*read, "the first message")
            });
            if let Err(error) = read {
                let steps = ["messages", "tensors"].map(|key| Step::Key(key.into()));
                let [messages, tensors] = steps;
                self.at(vec![messages, Step::Item(at), tensors], &error);
            }
        }
        if self.0.is_empty() {
            let all = input.messages.clone();
            self.read("messages", || inbox(of, all, RequiredInputs::default()));
        }
    }

    fn in_lesson(&mut self, input: &Lesson) {
        let height = |of: Json| Ok(samples(of)?.len());
        let given = self.read("samples", || height(input.samples.clone()));
        self.optional("predict", &input.predict, height);
        let targets = [
            ("classes", input.classes.as_ref().map(Vec::len)),
            (
                "labels",
                self.optional("labels", &input.labels, |of| Ok(table(of)?.nrows())),
            ),
            ("scores", self.optional("scores", &input.scores, height)),
        ];
        for (field, found) in targets {
            if let (Some(given), Some(found)) = (given, found) {
                self.read(field, || one_each(given, found));
            }
        }
    }
}

fn one_each(samples: usize, targets: usize) -> Result<()> {
    ensure!(
        samples == targets,
        "{samples} samples and {targets} targets"
    );
    Ok(())
}

fn typed<T: DeserializeOwned>(input: &Json) -> std::result::Result<T, Mistake> {
    use serde_path_to_error::Segment;
    serde_path_to_error::deserialize(input).map_err(|error| {
        let steps = error.path().iter().filter_map(|segment| match segment {
            Segment::Seq { index } => Some(Step::Item(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Enum { variant } => Some(Step::Key(variant.clone())),
            Segment::Unknown => None,
        });
        let text = error.inner().to_string();
        Mistake {
            path: steps.collect(),
            on_key: text.starts_with("unknown field"),
            text,
        }
    })
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

/// A part that was made, with its state.
enum Part {
    Aggregator(Box<dyn AnyAggregator>),
    Mechanism(Box<dyn AnyMechanism>),
    Selector(Box<dyn AnySelector>),
    Accountant(Box<dyn Accountant>),
    Trainer(Box<dyn Trainer>),
    Generator(Box<dyn Generator>),
}

impl Part {
    fn make(parts: &Parts, role: Role, context: &BuildContext) -> Result<Self> {
        fn of<B: BoxedPart>(parts: &Parts, role: Role, context: &BuildContext) -> Result<B> {
            parts.build(role, SLOT, None, context)
        }
        Ok(match role {
            Role::Aggregator | Role::Attack => Self::Aggregator(of(parts, role, context)?),
            Role::Privacy => Self::Mechanism(of(parts, role, context)?),
            Role::Selector => Self::Selector(of(parts, role, context)?),
            Role::Accountant => Self::Accountant(of(parts, role, context)?),
            Role::Trainer => Self::Trainer(of(parts, role, context)?),
            Role::Generator => Self::Generator(of(parts, role, context)?),
            Role::Protocol => bail!("a protocol has no input of its own"),
        })
    }

    /// Its state, as a checkpoint has it; `None`: the role has none.
    fn save(&self) -> Result<Option<Vec<u8>>> {
        Ok(match self {
            Self::Aggregator(part) => Some(part.save()),
            Self::Mechanism(part) => Some(part.save()),
            Self::Selector(part) => Some(part.save()),
            Self::Trainer(part) => Some(part.save_state()?),
            Self::Generator(part) => Some(part.save()?),
            Self::Accountant(_) => None,
        })
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        match self {
            Self::Trainer(part) => part.load_state(state),
            Self::Generator(part) => part.load(state),
            // an empty state is that of a new part
            _ if state.is_empty() => Ok(()),
            Self::Aggregator(part) => part.load(state),
            Self::Mechanism(part) => part.load(state),
            Self::Selector(part) => part.load(state),
            Self::Accountant(_) => Ok(()),
        }
    }

    fn answer(&mut self, round: &Round, input: Input) -> Result<Json> {
        let mut out = match (self, input) {
            (Self::Aggregator(part), Input::Messages(input)) => {
                aggregate(&mut **part, round, input)
            }
            (Self::Mechanism(part), Input::Release(input)) => release(&mut **part, round, input),
            (Self::Selector(part), Input::Clients(input)) => {
                let known = |c: &Client| Candidate {
                    id: c.id,
                    samples: c.samples,
                    loss: c.loss,
                };
                let pool: Vec<Candidate> = input.clients.iter().map(known).collect();
                positions(part.select(round, pool[..].any()))
            }
            (Self::Selector(part), Input::Rows(input)) => select(&mut **part, round, input),
            (Self::Accountant(part), Input::Events(input)) => {
                input.events.iter().try_for_each(|e| part.charge(e))?;
                Ok(json!(part.guarantee(None)?))
            }
            (Self::Trainer(part), Input::Lesson(input)) => teach(&mut **part, round, *input),
            (Self::Generator(part), Input::Wish(input)) => generate(&mut **part, round, input),
            _ => bail!("the input is for a part of another role"),
        }?;
        for said in round.take_log() {
            match said {
                LogEvent::Note(text) => out["note"] = json!(text),
                LogEvent::Number(name, value) => out[name] = json!(value),
            }
        }
        Ok(out)
    }
}

fn positions(chosen: Result<Vec<usize>>) -> Result<Json> {
    Ok(json!({ "positions": chosen? }))
}

fn aggregate(part: &mut dyn AnyAggregator, round: &Round, input: Messages) -> Result<Json> {
    let (of, needs) = (part.input(), part.needs());
    let inbox_of = |messages| inbox(of, messages, needs);
    let out = match input.sent {
        Some(sent) => {
            let sent = of.from_json(&sent).context("`sent`")?;
            let round = round.showing_any(sent.into());
            part.aggregate(&round, &*inbox_of(input.messages)?)?
        }
        None if needs.sent => {
            bail!("the part needs the message sent to clients: add its tensors as `sent`")
        }
        None => part.aggregate(round, &*inbox_of(input.messages)?)?,
    };
    shown(&*out)
}

fn release(part: &mut dyn AnyMechanism, round: &Round, input: Release) -> Result<Json> {
    ensure!(input.clients > 0, "`clients` must be at least 1");
    ensure!(
        input.clients <= fl_data::MAX_CLIENTS,
        "`clients` must be in 1..={}, got {}",
        fl_data::MAX_CLIENTS,
        input.clients
    );
    let mut m = part.on().from_json(&input.tensors)?;
    if let Some(range) = part.range(&*m) {
        part.agree(range);
    }
    part.clip(&mut *m)?;
    message::check(&*m).context("the clipped message")?;
    let bounded = to_json(&*m);
    let cohort = Cohort::all(input.clients);
    let event = part.price(&*m, &cohort)?;
    part.perturb(&mut *m, &cohort, &ReleaseNoise::seeded(&round.stream))?;
    let event = part.actual_cost(event);
    let mut out = shown(&*m)?;
    out["bounded"] = bounded;
    out["event"] = serde_json::to_value(event)?;
    Ok(out)
}

fn select(part: &mut dyn AnySelector, round: &Round, input: Rows) -> Result<Json> {
    if let Some(own) = input.own {
        part.fit(&examples(own).context("`own`")?, &round.stream)?;
    }
    if part.pool() == Samples::NAME {
        let x = samples(input.samples.context("`samples` are missing")?)?;
        return positions(part.select(round, x.any()));
    }
    let tensors = input.tensors.context("`tensors` are missing")?;
    let labels: SoftLabels = from_json(&tensors)?;
    positions(part.select(round, labels.any()))
}

fn teach(part: &mut dyn Trainer, round: &Round, input: Lesson) -> Result<Json> {
    let x = samples(input.samples)?;
    let labels = input.labels.map(table::<i8>).transpose();
    let labels = labels.context("`labels`")?;
    let scores = input.scores.map(rows).transpose().context("`scores`")?;
    let target = match (&input.classes, &labels, &scores) {
        (Some(of), None, None) => Some((Target::Classes(of), Loss::CrossEntropy)),
        (None, Some(of), None) => Some((Target::MultiLabel(of.view()), Loss::CrossEntropy)),
        (None, None, Some(of)) => Some((Target::Scores(of.view()), Loss::Mse)),
        (None, None, None) => None,
        _ => bail!("a pass has one target: `classes`, `labels` or `scores`"),
    };
    let mut out = json!({});
    if let Some((target, usual)) = target {
        one_each(x.len(), target.len())?;
        ensure!(input.batch > 0, "`batch` must be at least 1");
        let length = match (input.epochs, input.steps) {
            (Some(_), Some(_)) => bail!("a pass has `epochs` or `steps`, not both"),
            (_, Some(steps)) => Length::Steps(steps),
            (epochs, None) => Length::Epochs(epochs.unwrap_or(1)),
        };
        let loss = input.loss.as_deref().map_or(Ok(usual), loss)?;
        let options = FitOptions::new(length, input.batch, loss);
        let fitted = part.fit(&x, target, &options, &round.stream)?;
        out = json!({ "steps": fitted.steps, "loss": fitted.loss });
    }
    let asked = input
        .predict
        .map(samples)
        .transpose()
        .context("`predict`")?;
    let scores = part.predict(asked.as_ref().unwrap_or(&x))?;
    out["scores"] = numbers("scores", scores)?;
    if input.parameters {
        let parametric = part.parametric();
        let parametric = parametric.context("the trainer has no `parameters`")?;
        out["parameters"] = to_json(&parametric.params());
    }
    Ok(out)
}

fn loss(name: &str) -> Result<Loss> {
    let named = |loss: &Loss| loss.to_string().split(' ').next() == Some(name);
    Loss::KINDS.into_iter().find(named).with_context(|| {
        format!("`loss` must be cross-entropy, mae, mse, norm or kl, got `{name}`")
    })
}

fn generate(part: &mut dyn Generator, round: &Round, input: Wish) -> Result<Json> {
    ensure!(
        (1..=INPUTS).contains(&input.count),
        "`count` must be in 1..={INPUTS}, got {}",
        input.count
    );
    let made = part.sample(input.count, &round.stream)?;
    let (values, mut shape) = (made.values(), made.shape());
    ensure!(
        values.nrows() == input.count,
        "it made {} inputs, not {}",
        values.nrows(),
        input.count
    );
    if let Some(slopes) = input.slopes {
        let slopes = samples(slopes).context("`slopes`")?.values();
        ensure!(
            slopes.dim() == values.dim(),
            "`slopes` must have a number for each number of the inputs, {:?}, got {:?}",
            values.dim(),
            slopes.dim()
        );
        part.learn(&made, slopes.view())?;
    }
    shape.insert(0, input.count);
    let values = values.into_shape_with_order(shape)?;
    Ok(json!({ "samples": numbers("samples", values)? }))
}

/// Floats in their shortest form, as those of a message; none of them may be infinite or NaN.
fn numbers<D: ndarray::Dimension>(name: &str, of: ndarray::Array<f32, D>) -> Result<Json> {
    let of = Params([(name.to_string(), of.into_dyn())].into_iter().collect());
    message::check(&of).context("its output")?;
    Ok(to_json(&of)[name].take())
}

/// Rows of finite numbers, and the shape of one.
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

fn rows(of: Json) -> Result<Array2<f32>> {
    Ok(samples(of)?.values())
}

fn table<T: Clone>(rows: Vec<Vec<T>>) -> Result<Array2<T>> {
    let width = rows.first().map_or(0, Vec::len);
    ensure!(
        rows.iter().all(|row| row.len() == width),
        "rows must be of one length"
    );
    let height = rows.len();
    Ok(Array2::from_shape_vec((height, width), rows.concat())?)
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

/// The task of a part whose first input is this.
fn task(first: &Input) -> Result<Task> {
    let plain = Task {
        input: vec![1],
        kind: TaskKind::Classes(2),
    };
    let outputs = |n: usize| {
        ensure!(
            (1..=CLASSES as usize).contains(&n),
            "`outputs` must be in 1..={CLASSES}, got {n}"
        );
        Ok(n)
    };
    Ok(match first {
        Input::Lesson(lesson) => {
            let input = samples(lesson.samples.clone())?.shape();
            let shown = lesson.classes.iter().flatten().max();
            let shown = shown.map_or(2, |class| (*class as usize + 1).max(2));
            let kind = match (&lesson.labels, &lesson.scores) {
                (Some(rows), _) => {
                    let width = rows.first().map_or(1, Vec::len);
                    TaskKind::MultiLabel(outputs(lesson.outputs.unwrap_or(width))?)
                }
                (None, Some(scores)) => {
                    let width = rows(scores.clone())?.ncols();
                    TaskKind::Classes(outputs(lesson.outputs.unwrap_or(width))?)
                }
                (None, None) => TaskKind::Classes(outputs(lesson.outputs.unwrap_or(shown))?),
            };
            Task { input, kind }
        }
        Input::Wish(wish) => {
            let input = wish.shape.clone().unwrap_or(plain.input);
            let width = input
                .iter()
                .try_fold(1, |all: usize, n| all.checked_mul(*n));
            ensure!(
                width.is_some_and(|width| (1..=1 << 24).contains(&width)),
                "`shape` must be the sizes of one input, got {input:?}"
            );
            let classes = outputs(wish.outputs.unwrap_or(2))?;
            Task {
                input,
                kind: TaskKind::Classes(classes),
            }
        }
        _ => plain,
    })
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

/// The part's settings as it reads them, or every mistake in them, below `at`.
pub fn read_settings(
    decl: &PartDecl,
    given: &Value,
    at: Vec<Step>,
) -> std::result::Result<CheckedSettings, Vec<Mistake>> {
    let mut reader = Reader::at(at);
    let read = (decl.check)(given, &mut reader);
    match read {
        Some(read) if reader.mistakes.is_empty() => Ok(read),
        _ => Err(reader.mistakes),
    }
}

/// As [`read_settings`]; the mistakes are one error.
pub fn settings(decl: &PartDecl, given: &Value) -> std::result::Result<CheckedSettings, Failure> {
    read_settings(decl, given, Vec::new()).map_err(|mistakes| {
        let all = mistakes.iter().map(|m| format!("settings: {m}"));
        Failure::usage(all.collect::<Vec<_>>().join("\n"))
    })
}

/// Is the part saved between two rounds, and another one loaded with its state?
#[derive(Clone, Copy, PartialEq)]
pub enum Between {
    Nothing,
    Stops,
}

/// What the part answers to the input of each round.
///
/// # Errors
/// Everything that is wrong: settings, or what it says against an input.
pub fn rounds(
    decl: &'static PartDecl,
    given: &Value,
    inputs: &[Json],
    seed: u64,
    between: Between,
) -> std::result::Result<Vec<Json>, Failure> {
    let parts = Parts::new(vec![SlotAssignment {
        slot: SLOT.into(),
        clients: None,
        decl,
        settings: settings(decl, given)?,
    }]);
    let read = |(at, input): (usize, &Json)| {
        Input::read(decl, input)
            .map_err(|mistake| anyhow::anyhow!("{}{mistake}", numbered(at, inputs.len())))
    };
    let inputs = inputs.iter().enumerate().map(read);
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let answers = || {
        let first = inputs.first().context("there is no round")?;
        let context = BuildContext {
            task: task(first)?,
            stream: Stream::root(seed),
        };
        let mut part = Part::make(&parts, decl.role, &context)?;
        let last = inputs.len();
        let mut answers = Vec::with_capacity(last);
        for (at, input) in inputs.into_iter().enumerate() {
            if at > 0
                && between == Between::Stops
                && let Some(state) = part.save()?
            {
                part = Part::make(&parts, decl.role, &context)?;
                part.load(&state)
                    .with_context(|| format!("round {}: loading its state", at + 1))?;
            }
            let stream = match at {
                0 => context.stream.clone(),
                _ => context.stream.child("round", at as u64 + 1),
            };
            let number = at + 1;
            let name = format!("round {number}");
            let round = Round::new(name, number, number == last, stream, Arc::new(Serial));
            let answer = part.answer(&round, input);
            answers.push(match last {
                1 => answer?,
                _ => answer.with_context(|| format!("round {number}"))?,
            });
        }
        Ok(answers)
    };
    Ok(guarded(decl, answers)?)
}

/// `round 2: `, where there is more than one.
fn numbered(at: usize, of: usize) -> String {
    match of {
        1 => String::new(),
        _ => format!("round {}: ", at + 1),
    }
}

/// What the part answers to `input`, or to each input in its `rounds`.
///
/// # Errors
/// As [`rounds`].
pub fn trial(
    decl: &'static PartDecl,
    given: &Value,
    input: Json,
    seed: u64,
) -> std::result::Result<Json, Failure> {
    match input {
        Json::Object(mut map)
            if map.len() == 1 && map.get("rounds").is_some_and(Json::is_array) =>
        {
            let inputs = map.remove("rounds");
            let inputs = inputs
                .as_ref()
                .and_then(Json::as_array)
                .into_iter()
                .flatten();
            let inputs: Vec<Json> = inputs.cloned().collect();
            let answers = rounds(decl, given, &inputs, seed, Between::Nothing)?;
            Ok(json!({ "rounds": answers }))
        }
        input => {
            let mut answers = rounds(decl, given, &[input], seed, Between::Nothing)?;
            Ok(answers.pop().unwrap_or_default())
        }
    }
}
