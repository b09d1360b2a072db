//! What a protocol in a library asks of the program, and how data cross: the texts of
//! [`FL_ASK`](super::raw::FL_ASK), by both sides.

use super::marshal::OutgoingMessage;
use crate::message::{NamedTensors, TensorMap, View};
use crate::{
    ClientId, Cohort, Examples, Inputs, Labels, Length, Loss, OwnedTarget, Problem, Public, Result,
    Round, Samples, SamplingScheme, SharedExecutor, Stream, Target, Task, TaskKind,
};
use anyhow::{Context, bail, ensure};
use ndarray::{Array2, ArrayView1};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A round, as it crosses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RoundAsk {
    pub name: String,
    pub number: usize,
    pub last: bool,
    pub key: [u8; 32],
}

impl RoundAsk {
    pub fn of(round: &Round) -> Self {
        Self {
            name: round.name.clone(),
            number: round.number,
            last: round.last,
            key: round.stream.key(),
        }
    }

    pub fn round(self, exec: SharedExecutor) -> Round {
        let stream = Stream::from_key(self.key);
        Round::new(self.name, self.number, self.last, stream, exec)
    }
}

/// A cohort, as it crosses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CohortAsk {
    pub ids: Vec<ClientId>,
    pub of: usize,
    pub draw: SamplingScheme,
}

impl From<&Cohort> for CohortAsk {
    fn from(cohort: &Cohort) -> Self {
        Self {
            ids: cohort.ids.clone(),
            of: cohort.of,
            draw: cohort.draw,
        }
    }
}

impl From<CohortAsk> for Cohort {
    fn from(cohort: CohortAsk) -> Self {
        Self {
            ids: cohort.ids,
            of: cohort.of,
            draw: cohort.draw,
        }
    }
}

/// Whose part it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PartAsk {
    /// The one in this slot.
    Slot(String),
    /// One that was given, by its number.
    Held(u64),
}

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(super) enum Ask {
    // of a server
    Who {
        slot: String,
    },
    WithExamples {
        at_least: usize,
    },
    Select {
        slot: String,
        round: RoundAsk,
        pool: String,
        samples: Option<SamplesAsk>,
    },
    Cohort {
        slot: String,
        round: RoundAsk,
        loss: Option<String>,
    },
    Collect {
        round: RoundAsk,
        label: String,
        to: Vec<ClientId>,
        /// Which message each gets.
        which: Vec<usize>,
    },
    Run {
        round: RoundAsk,
        label: String,
        cohort: CohortAsk,
        which: Vec<usize>,
        /// The kind of the message that the round shows, which comes last.
        shown: Option<String>,
        forms: bool,
    },
    Aggregate {
        slot: String,
        round: RoundAsk,
        kind: String,
        shown: Option<String>,
    },
    Release {
        slot: String,
        round: RoundAsk,
        kind: String,
        cohort: CohortAsk,
        clip: bool,
    },
    Affords {
        slot: String,
        kind: String,
        cohort: CohortAsk,
    },
    WantsRange {
        slot: String,
        kind: String,
    },
    BeginStep {
        name: String,
        number: usize,
        of: usize,
    },
    JudgeStep {
        failed: Option<ErrorText>,
    },
    /// One message: the tensor `state`.
    FinishStep,
    Evaluate {
        slot: String,
        round: RoundAsk,
    },
    EvaluateClients {
        slot: String,
        round: RoundAsk,
    },
    EvaluateForClients {
        slot: String,
        round: RoundAsk,
        whose: Vec<usize>,
    },
    /// A number that JSON does not have is `null`.
    Record {
        round: RoundAsk,
        name: String,
        value: Option<f64>,
    },
    RecordEach {
        round: RoundAsk,
        name: String,
        each: Vec<Option<f64>>,
    },
    KeepModel {
        slot: String,
        name: String,
    },
    KeepGenerator {
        slot: String,
    },
    KeepImages {
        name: String,
        samples: SamplesAsk,
    },
    KeepClients {
        slot: String,
    },
    Warn {
        text: String,
    },
    Reader {
        slot: String,
    },
    /// One message: the tensor `model`.
    Read {
        reader: u64,
        client: ClientId,
    },
    // of a client
    Own,
    DrawPrivate {
        slot: String,
    },
    Note {
        text: String,
    },
    Measure {
        name: String,
        value: Option<f64>,
    },
    NewModel {
        slot: String,
        index: u64,
    },
    SetModel {
        slot: String,
        model: u64,
    },
    Fitted {
        loss: Option<f64>,
    },
    TakeSelector {
        slot: String,
    },
    PutSelector {
        slot: String,
        selector: u64,
    },
    /// One message: the tensor `kept`.
    Stash {
        name: String,
    },
    Stashed {
        name: String,
    },
    Unstash {
        name: String,
    },
    Cache {
        name: String,
        kind: String,
    },
    Cached {
        name: String,
    },
    Range {
        slot: String,
        kind: String,
    },
    Clip {
        slot: String,
        kind: String,
        agreed: Option<f64>,
    },
    ReleaseHere {
        slot: String,
        kind: String,
    },
    BeginSteps {
        slot: String,
        kind: String,
    },
    DrawLot {
        at: usize,
    },
    ReleaseStep {
        at: usize,
        mechanism: u64,
        kind: String,
    },
    EndSteps {
        slot: String,
        mechanism: u64,
    },
    // of both
    Public,
    Inputs {
        number: u64,
    },
    Labels {
        number: u64,
    },
    Drop {
        held: u64,
    },
    ClipHeld {
        mechanism: u64,
        kind: String,
    },
    // of a selector
    SelectorFit {
        selector: u64,
        own: ExamplesAsk,
        key: [u8; 32],
    },
    SelectorNeedsScores {
        selector: u64,
    },
    SelectorSelect {
        selector: u64,
        round: RoundAsk,
        pool: String,
        samples: Option<SamplesAsk>,
    },
    SelectorRank {
        selector: u64,
        pool: String,
        samples: Option<SamplesAsk>,
    },
    // of a generator
    Generator {
        slot: String,
    },
    Sample {
        slot: String,
        n: usize,
        key: [u8; 32],
    },
    /// The samples, and one message with `slope`.
    Learn {
        slot: String,
        made: SamplesAsk,
    },
    SaveGenerator {
        slot: String,
    },
    LoadGenerator {
        slot: String,
    },
    // of a model
    Model {
        of: PartAsk,
        what: ModelAsk,
    },
}

/// What is asked of a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case")]
pub(super) enum ModelAsk {
    Describe,
    Fit {
        x: SamplesAsk,
        target: String,
        pass: PassAsk,
        key: [u8; 32],
    },
    Predict {
        x: SamplesAsk,
    },
    Features {
        x: SamplesAsk,
    },
    Head,
    Save,
    Load,
    SaveState,
    LoadState,
    SaveMemory,
    LoadMemory,
    Learns {
        loss: Loss,
    },
    Params,
    SetParams,
    Gradient {
        x: SamplesAsk,
        target: String,
        loss: Loss,
    },
    Descend {
        at: usize,
        of: usize,
    },
    StepSize,
    Vjp {
        x: SamplesAsk,
    },
}

/// A stretch of training, as it crosses; the proximal anchor and the offset are messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PassAsk {
    pub length: Length,
    pub batch: usize,
    pub loss: Loss,
    pub fresh: bool,
    pub proximal: Option<f32>,
    pub offset: bool,
    pub clip: Option<f32>,
    pub auxiliary: bool,
}

/// What a model says of itself.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct AboutModel {
    pub parametric: bool,
    pub differentiable: bool,
}

/// What the program asks back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub(super) enum AskBack {
    /// One message with its envelope.
    Form,
    /// One message with `weight`, `bias`, `scores` and `target`.
    Auxiliary { target: String, key: [u8; 32] },
}

/// Where a step stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StepText {
    Skipped,
    /// The tensor `state` is the protocol's.
    Restored,
    Attempt {
        round: RoundAsk,
        undoable: bool,
    },
    Done,
    Undone,
}

/// An error, as it crosses: what hosts tell apart stays what it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ErrorText {
    text: String,
    problem: Option<Problem>,
}

impl ErrorText {
    pub fn of(error: &anyhow::Error) -> Self {
        Self {
            text: format!("{error:#}"),
            problem: error.downcast_ref().cloned(),
        }
    }

    pub fn error(self) -> anyhow::Error {
        let text = super::marshal::plain(&self.text);
        let Some(problem) = self.problem else {
            return anyhow::Error::msg(text);
        };
        let inner = problem.to_string();
        match text.strip_suffix(&inner).map(|t| t.strip_suffix(": ")) {
            Some(Some(context)) => anyhow::Error::new(problem).context(context.to_string()),
            _ if text == inner => anyhow::Error::new(problem),
            _ => anyhow::Error::new(problem).context(text),
        }
    }
}

/// The envelope of a message among several in an answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MailText {
    pub from: ClientId,
    pub weight: f64,
    pub class_counts: Option<Vec<u32>>,
    pub training_loss: Option<f64>,
}

/// Tensors of message `at` among several in an answer.
pub(super) fn numbered<'a>(at: usize, tensors: NamedTensors<'a>) -> NamedTensors<'a> {
    let named = |(name, view)| (format!("{at}/{name}").into(), view);
    tensors.into_iter().map(named).collect()
}

/// The inverse of [`numbered`] for `n` messages.
pub(super) fn apart(
    tensors: Vec<(String, crate::message::Tensor)>,
    n: usize,
) -> Result<Vec<TensorMap>> {
    let mut all: Vec<Vec<_>> = (0..n).map(|_| Vec::new()).collect();
    for (name, tensor) in tensors {
        let parts = name.split_once('/');
        let at = parts.and_then(|(at, name)| Some((at.parse::<usize>().ok()?, name)));
        let (at, name) = at.with_context(|| format!("tensor `{name}` belongs to no message"))?;
        let of = all.get_mut(at);
        let of = of.with_context(|| format!("a tensor of message {at} of {n}"))?;
        of.push((name.to_string(), tensor));
    }
    Ok(all.into_iter().map(TensorMap::new).collect())
}

// ---- data sets: each crosses once, and has a number

/// A set that has a number.
struct Numbered<T>(Vec<(u64, Weak<T>)>);

static INPUTS: Mutex<Numbered<Inputs>> = Mutex::new(Numbered(Vec::new()));
static LABELS: Mutex<Numbered<Labels>> = Mutex::new(Numbered(Vec::new()));

fn number_of<T>(all: &Mutex<Numbered<T>>, set: &Arc<T>) -> u64 {
    static NEXT: Mutex<u64> = Mutex::new(1);
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.0.retain(|(_, known)| known.strong_count() > 0);
    let same = |(_, known): &&(u64, Weak<T>)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(set));
    if let Some((number, _)) = all.0.iter().find(same) {
        return *number;
    }
    let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    let number = *next;
    *next += 1;
    all.0.push((number, Arc::downgrade(set)));
    number
}

fn numbered_set<T>(all: &Mutex<Numbered<T>>, number: u64) -> Result<Arc<T>> {
    let all = all.lock().unwrap_or_else(PoisonError::into_inner);
    let found = all.0.iter().find(|(of, _)| *of == number);
    let found = found.and_then(|(_, set)| set.upgrade());
    found.with_context(|| format!("there is no data set {number}"))
}

/// The inputs of this number, at the program.
pub(super) fn inputs_of(number: u64) -> Result<Arc<Inputs>> {
    numbered_set(&INPUTS, number)
}

/// The labels of this number, at the program.
pub(super) fn labels_of(number: u64) -> Result<Arc<Labels>> {
    numbered_set(&LABELS, number)
}

/// So many sets a library keeps.
const KEPT: usize = 8;

/// Sets that the program has shown, those used last at the end.
static SHOWN: Mutex<Shown> = Mutex::new(Shown {
    inputs: Vec::new(),
    labels: Vec::new(),
});

struct Shown {
    inputs: Vec<(u64, Arc<Inputs>)>,
    labels: Vec<(u64, Arc<Labels>)>,
}

fn shown<T>(
    pick: impl Fn(&mut Shown) -> &mut Vec<(u64, Arc<T>)>,
    number: u64,
    fetch: impl FnOnce() -> Result<T>,
) -> Result<Arc<T>> {
    {
        let mut all = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let all = pick(&mut all);
        if let Some(at) = all.iter().position(|(of, _)| *of == number) {
            let found = all.remove(at);
            all.push(found.clone());
            return Ok(found.1);
        }
    }
    let set = Arc::new(fetch()?);
    let mut all = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let all = pick(&mut all);
    if all.len() >= KEPT {
        all.remove(0);
    }
    all.push((number, set.clone()));
    Ok(set)
}

/// Samples, as they cross: rows of a set that has a number, or inputs of their own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SamplesAsk {
    /// The set; `None`: the inputs come along.
    set: Option<u64>,
    /// Rows of the set in order, so many; `None`: the tensor `ids` says which.
    first: Option<usize>,
    /// The shape of a row of the tensor `values`; `None`: the tensor `inputs` has them.
    shape: Option<Vec<usize>>,
}

/// Examples, as they cross: samples, and labels of a set that has a number or of their own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ExamplesAsk {
    pub samples: SamplesAsk,
    labels: Option<u64>,
}

/// How somebody knows sets by numbers: the program gives them, a library has been told.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    Program,
    Library,
}

impl Side {
    fn inputs(self, set: &Arc<Inputs>) -> Option<u64> {
        match self {
            Self::Program => Some(number_of(&INPUTS, set)),
            Self::Library => {
                let all = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
                let found = all.inputs.iter().find(|(_, of)| Arc::ptr_eq(of, set));
                found.map(|(number, _)| *number)
            }
        }
    }

    fn labels(self, set: &Arc<Labels>) -> Option<u64> {
        match self {
            Self::Program => Some(number_of(&LABELS, set)),
            Self::Library => {
                let all = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
                let found = all.labels.iter().find(|(_, of)| Arc::ptr_eq(of, set));
                found.map(|(number, _)| *number)
            }
        }
    }
}

/// Runs `f` with samples as they cross.
pub(super) fn with_samples<R>(
    side: Side,
    x: &Samples,
    f: impl FnOnce(SamplesAsk, NamedTensors<'_>) -> Result<R>,
) -> Result<R> {
    let ids = x.ids();
    let whole = ids.iter().copied().eq(0..ids.len() as u32);
    let mut tensors: NamedTensors<'_> = Vec::new();
    if !whole {
        tensors.push(("ids".into(), View::U32(ArrayView1::from(ids).into_dyn())));
    }
    let mut ask = SamplesAsk {
        set: side.inputs(x.inputs()),
        first: whole.then_some(ids.len()),
        shape: None,
    };
    if ask.set.is_some() {
        return f(ask, tensors);
    }
    if let Inputs::Dense { shape, data } = &**x.inputs() {
        ask.shape = Some(shape.clone());
        let values = ArrayView1::from(data).into_dyn();
        tensors.push(("values".into(), View::F32(values)));
        return f(ask, tensors);
    }
    let bytes = postcard::to_stdvec(&**x.inputs())?;
    tensors.push(("inputs".into(), View::U8(bytes.as_slice().into())));
    f(ask, tensors)
}

/// The samples of a text and its tensors; `inputs` finds a set by its number.
pub(super) fn samples_of(
    ask: &SamplesAsk,
    parcel: &mut TensorMap,
    inputs: impl FnOnce(u64) -> Result<Arc<Inputs>>,
) -> Result<Samples> {
    let set = match (ask.set, &ask.shape) {
        (Some(number), _) => inputs(number)?,
        (None, Some(shape)) => {
            let data = parcel.f32("values")?;
            let data = data.into_raw_vec_and_offset().0;
            let shape = shape.clone();
            Arc::new(Inputs::Dense { shape, data })
        }
        (None, None) => Arc::new(postcard::from_bytes(&parcel.bytes("inputs")?)?),
    };
    ensure!(
        ask.set.is_some() || set.is_sound(),
        Problem::Shape("inputs whose lists do not fit together".into())
    );
    match ask.first {
        Some(n) if n == set.len() => Ok(Samples::all(set)),
        Some(n) => Samples::of(set, (0..u32::try_from(n)?).collect()),
        None => Samples::of(set, parcel.list("ids")?),
    }
}

/// Runs `f` with examples as they cross; labels of their own stand in the tensor `labels`.
pub(super) fn with_examples<R>(
    side: Side,
    of: &Examples,
    f: impl FnOnce(ExamplesAsk, NamedTensors<'_>) -> Result<R>,
) -> Result<R> {
    let labels = side.labels(of.labels());
    let bytes = match labels {
        Some(_) => Vec::new(),
        None => postcard::to_stdvec(&**of.labels())?,
    };
    with_samples(side, &of.samples, |samples, tensors| {
        let own = labels.is_none();
        let own = own.then(|| ("labels", View::U8(bytes.as_slice().into())));
        f(ExamplesAsk { samples, labels }, with_more(&tensors, own))
    })
}

/// The inverse of [`with_examples`].
pub(super) fn examples_of(
    ask: &ExamplesAsk,
    parcel: &mut TensorMap,
    inputs: impl FnOnce(u64) -> Result<Arc<Inputs>>,
    labels: impl FnOnce(u64) -> Result<Arc<Labels>>,
) -> Result<Examples> {
    let samples = samples_of(&ask.samples, parcel, inputs)?;
    let labels = match ask.labels {
        Some(number) => labels(number)?,
        None => Arc::new(postcard::from_bytes(&parcel.bytes("labels")?)?),
    };
    Examples::of(samples, labels)
}

/// The public data, as they cross: the samples, and the numbers of labels with their samples.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PublicText {
    pub samples: SamplesAsk,
    pub labelled: Option<ExamplesAsk>,
    pub truth: Option<ExamplesAsk>,
}

/// Hands over public data: three messages in one answer.
pub(super) fn with_public<R>(
    public: &Public,
    f: impl FnOnce(PublicText, NamedTensors<'_>) -> Result<R>,
) -> Result<R> {
    let (samples, labelled, truth) = public.whole();
    let side = Side::Program;
    with_samples(side, samples, |samples, first| {
        let optional = |of: Option<&Examples>| -> Result<_> {
            let Some(of) = of else { return Ok(None) };
            with_examples(side, of, |ask, tensors| {
                let owned = tensors.into_iter();
                let owned = owned.map(|(n, v)| (n.into_owned(), v.to_tensor()));
                Ok(Some((ask, owned.collect::<Vec<_>>())))
            })
        };
        let (labelled, truth) = (optional(labelled)?, optional(truth)?);
        let first = with_more(&first, []);
        let mut tensors = numbered(0, first);
        for (at, of) in [(1, &labelled), (2, &truth)] {
            let of = of.iter().flat_map(|(_, tensors)| tensors);
            tensors.extend(of.map(|(n, t)| (format!("{at}/{n}").into(), t.view())));
        }
        let text = PublicText {
            samples,
            labelled: labelled.as_ref().map(|(ask, _)| ask.clone()),
            truth: truth.as_ref().map(|(ask, _)| ask.clone()),
        };
        f(text, tensors)
    })
}

/// The inverse of [`with_public`], at a library.
pub(super) fn public_of(
    text: &PublicText,
    tensors: Vec<(String, crate::message::Tensor)>,
    fetch: &dyn Fetch,
) -> Result<Public> {
    let mut parts = apart(tensors, 3)?.into_iter();
    let mut next = || parts.next().context("three parts");
    let samples = samples_of(&text.samples, &mut next()?, |n| fetched_inputs(fetch, n))?;
    let mut examples = |of: &Option<ExamplesAsk>| -> Result<Option<Examples>> {
        let mut parcel = next()?;
        let Some(of) = of else { return Ok(None) };
        let (inputs, labels) = (|n| fetched_inputs(fetch, n), |n| fetched_labels(fetch, n));
        examples_of(of, &mut parcel, inputs, labels).map(Some)
    };
    let labelled = examples(&text.labelled)?;
    let truth = examples(&text.truth)?;
    Ok(Public::of_whole(samples, labelled, truth))
}

/// Asks the program for a set.
pub(super) trait Fetch {
    fn inputs(&self, number: u64) -> Result<Inputs>;
    fn labels(&self, number: u64) -> Result<Labels>;
}

/// The inputs of this number, at a library: they cross once.
pub(super) fn fetched_inputs(fetch: &dyn Fetch, number: u64) -> Result<Arc<Inputs>> {
    shown(|all| &mut all.inputs, number, || fetch.inputs(number))
}

/// The labels of this number, at a library: they cross once.
pub(super) fn fetched_labels(fetch: &dyn Fetch, number: u64) -> Result<Arc<Labels>> {
    shown(|all| &mut all.labels, number, || fetch.labels(number))
}

/// Runs `f` with a target as a tensor, and what it is called.
pub(super) fn with_target<R>(
    target: &Target<'_>,
    f: impl FnOnce(&'static str, View<'_>) -> Result<R>,
) -> Result<R> {
    match target {
        Target::Classes(of) => f("classes", View::U32(ArrayView1::from(*of).into_dyn())),
        Target::MultiLabel(of) => {
            let of = of.mapv(i64::from);
            f("multi-label", View::I64(of.view().into_dyn()))
        }
        Target::Pixels(of) => {
            let of = of.mapv(u32::from);
            f("pixels", View::U32(of.view().into_dyn()))
        }
        Target::Soft(of) => f("soft", View::F32(of.view().into_dyn())),
        Target::Scores(of) => f("scores", View::F32(of.view().into_dyn())),
    }
}

/// The inverse of [`with_target`].
pub(super) fn target_of(kind: &str, parcel: &mut TensorMap) -> Result<OwnedTarget> {
    Ok(match kind {
        "classes" => OwnedTarget::Classes(parcel.list("target")?),
        "multi-label" => {
            let of = parcel.rest_of("target")?;
            let crate::message::Tensor::I64(of) = of else {
                bail!("a target of labels is i64");
            };
            let of: Array2<i64> = of.into_dimensionality()?;
            ensure!(
                of.iter().all(|x| (-1..=1).contains(x)),
                "a label is -1, 0 or 1"
            );
            OwnedTarget::MultiLabel(of.mapv(|x| x as i8))
        }
        "pixels" => {
            let of: Array2<u32> = parcel.u32("target")?.into_dimensionality()?;
            ensure!(
                of.iter().all(|x| *x < 256),
                "a class of pixels is below 256"
            );
            OwnedTarget::Pixels(of.mapv(|x| x as u8))
        }
        "soft" => OwnedTarget::Soft(parcel.table("target")?),
        "scores" => OwnedTarget::Scores(parcel.table("target")?),
        other => bail!("no target is called `{other}`"),
    })
}

/// These tensors, and more.
pub(super) fn with_more<'b>(
    tensors: &'b NamedTensors<'_>,
    more: impl IntoIterator<Item = (&'b str, View<'b>)>,
) -> NamedTensors<'b> {
    let these = tensors.iter();
    let these = these.map(|(name, view)| (name.as_ref().into(), super::marshal::shorter(view)));
    let more = more.into_iter().map(|(name, view)| (name.into(), view));
    these.chain(more).collect()
}

/// A message of bytes under this name.
pub(super) fn with_bytes<R>(
    name: &'static str,
    bytes: &[u8],
    f: impl FnOnce(&[OutgoingMessage<'_, '_>]) -> R,
) -> R {
    let tensors: NamedTensors<'_> = vec![(name.into(), View::U8(bytes.into()))];
    f(&[OutgoingMessage::new(&tensors)])
}

/// What the program says of a run to a protocol that leads it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeadText {
    pub task: Task,
    pub filled: Vec<String>,
    pub everyone: CohortAsk,
}

/// What the program says of a request to a protocol whose client answers it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AnswerText {
    pub label: String,
    pub client: ClientId,
    pub key: [u8; 32],
    pub task: Task,
    pub filled: Vec<String>,
}

/// See [`FL_CONFLICTS`](super::raw::FL_CONFLICTS).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ConflictsText {
    pub filled: Vec<String>,
}

/// See [`FL_SUITS`](super::raw::FL_SUITS).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SuitsText {
    pub kind: TaskKind,
    pub filled: Vec<String>,
}

/// See [`FL_TASK`](super::raw::FL_TASK).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TaskText {
    pub slot: String,
    pub task: Task,
}

/// One conflict.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ConflictText {
    pub setting: Option<String>,
    pub text: String,
}
