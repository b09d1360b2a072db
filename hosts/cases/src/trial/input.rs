//! A part's input in JSON: reading it, and every mistake in it.

use anyhow::{Context, ensure};
use fl_core::message::{
    self, Erased, Ids, MessageType, Params, SoftLabels, from_json, message_type,
};
use fl_core::settings::{Mistake, Step};
use fl_core::{
    AnyPool, Candidate, ClientId, ClientMessage, Examples, Labels, PartDecl, Pool, PrivacyEvent,
    Result, Role, Roster, Samples, Task, TaskKind,
};
use ndarray::Array2;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use std::sync::Arc;
/// A client's answer.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseMessage {
    pub from: ClientId,
    #[serde(default = "one")]
    pub weight: f64,
    pub class_counts: Option<Vec<u32>>,
    pub training_loss: Option<f64>,
    pub tensors: Map<String, Json>,
}

fn one() -> f64 {
    1.0
}

/// Of an aggregator, or of an attack.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    pub messages: Vec<CaseMessage>,
    /// What the clients were sent, for parts that want to see it.
    pub sent: Option<Map<String, Json>>,
}

/// Of a selector of clients.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    pub clients: Vec<Candidate>,
}

/// Of a privacy mechanism.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    pub tensors: Map<String, Json>,
    #[serde(default = "one_client")]
    pub clients: usize,
}

fn one_client() -> usize {
    1
}

/// Of a selector of samples or of soft labels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    pub samples: Option<Json>,
    pub tensors: Option<Map<String, Json>>,
    pub own: Option<OwnExamples>,
}

/// A client's own examples.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnExamples {
    pub samples: Json,
    pub classes: Json,
}

/// Of an accountant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    pub events: Vec<PrivacyEvent>,
}

/// Of a trainer: a pass over these samples, if there is a target, and then predictions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lesson {
    pub samples: Json,
    pub classes: Option<Vec<u32>>,
    pub labels: Option<Vec<Vec<i8>>>,
    pub scores: Option<Json>,
    pub epochs: Option<usize>,
    pub steps: Option<usize>,
    #[serde(default = "batch")]
    pub batch: usize,
    pub loss: Option<String>,
    /// Other samples to predict.
    pub predict: Option<Json>,
    /// The number of classes or labels, where it is not that of the target.
    pub outputs: Option<usize>,
    /// Are its parameters part of the answer?
    #[serde(default)]
    pub parameters: bool,
}

fn batch() -> usize {
    32
}

/// Of a generator: it makes inputs, and then learns from the slopes, if there are any.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    pub count: usize,
    /// The shape of one input.
    pub shape: Option<Vec<usize>>,
    /// The number of classes of the task.
    pub outputs: Option<usize>,
    pub slopes: Option<Json>,
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
pub const INPUTS: usize = 1 << 16;

impl Input {
    /// Reads the input of a part of this role and signature.
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
            self.read("messages", || mail(of, all).and_then(|mail| of.inbox(mail)));
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

pub fn one_each(samples: usize, targets: usize) -> Result<()> {
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

/// Messages of this kind.
pub fn mail(
    of: &'static MessageType,
    messages: Vec<CaseMessage>,
) -> Result<Vec<ClientMessage<Erased>>> {
    let mail = messages.into_iter().map(|l| {
        let body = of.from_json(&l.tensors);
        Ok(ClientMessage {
            from: l.from,
            weight: l.weight,
            class_counts: l.class_counts,
            training_loss: l.training_loss,
            body: body.with_context(|| format!("client {}", l.from))?,
        })
    });
    mail.collect()
}

/// Rows of finite numbers, and the shape of one.
pub fn samples(rows: Json) -> Result<Samples> {
    let rows: Params = from_json(&Map::from_iter([("samples".to_string(), rows)]))?;
    let rows = rows.0.into_values().next().context("no samples")?;
    let shape = rows.shape().to_vec();
    let (n, inner) = shape.split_first().context("`samples` is one number")?;
    ensure!(!inner.is_empty(), "a sample is a list of numbers");
    let width = inner.iter().product();
    let values = Array2::from_shape_vec((*n, width), rows.into_raw_vec_and_offset().0)?;
    Samples::fresh(values, inner.to_vec())
}

pub fn rows(of: Json) -> Result<Array2<f32>> {
    Ok(samples(of)?.values())
}

pub fn table<T: Clone>(rows: Vec<Vec<T>>) -> Result<Array2<T>> {
    let width = rows.first().map_or(0, Vec::len);
    ensure!(
        rows.iter().all(|row| row.len() == width),
        "rows must be of one length"
    );
    let height = rows.len();
    Ok(Array2::from_shape_vec((height, width), rows.concat())?)
}

pub fn examples(own: OwnExamples) -> Result<Examples> {
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
pub fn task(first: &Input) -> Result<Task> {
    let plain = fl_registry::any_make().task;
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
            Task::new(input, kind)
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
            Task::new(input, TaskKind::Classes(classes))
        }
        _ => plain,
    })
}
