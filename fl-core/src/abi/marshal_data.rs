//! How data sets, samples, examples and targets cross between a protocol's library and the program.
//!
//! A data set crosses once, and has a number from then on.

use super::marshal::{OutgoingMessage, shorter};
use crate::message::{NamedTensors, Tensor, TensorMap, View};
use crate::{Examples, Inputs, Labels, OwnedTarget, Problem, Public, Result, Samples, Target};
use anyhow::{Context, bail, ensure};
use ndarray::{Array2, ArrayView1};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Returns the tensors of message `at` among several in one answer.
pub(super) fn numbered<'a>(at: usize, tensors: NamedTensors<'a>) -> NamedTensors<'a> {
    let named = |(name, view)| (format!("{at}/{name}").into(), view);
    tensors.into_iter().map(named).collect()
}

/// Returns the `n` messages whose tensors [`numbered`] named.
pub(super) fn apart(tensors: Vec<(String, Tensor)>, n: usize) -> Result<Vec<TensorMap>> {
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

/// The sets of the program that have a number.
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

/// Returns the inputs with this number, at the program.
pub(super) fn inputs_of(number: u64) -> Result<Arc<Inputs>> {
    numbered_set(&INPUTS, number)
}

/// Returns the labels with this number, at the program.
pub(super) fn labels_of(number: u64) -> Result<Arc<Labels>> {
    numbered_set(&LABELS, number)
}

/// The number of sets that a library keeps.
const KEPT: usize = 8;

/// The sets that this library has fetched, the last used at the end.
static FETCHED: Mutex<FetchedSets> = Mutex::new(FetchedSets {
    inputs: Vec::new(),
    labels: Vec::new(),
});

struct FetchedSets {
    inputs: Vec<(u64, Arc<Inputs>)>,
    labels: Vec<(u64, Arc<Labels>)>,
}

fn fetched<T>(
    pick: impl Fn(&mut FetchedSets) -> &mut Vec<(u64, Arc<T>)>,
    number: u64,
    fetch: impl FnOnce() -> Result<T>,
) -> Result<Arc<T>> {
    {
        let mut all = FETCHED.lock().unwrap_or_else(PoisonError::into_inner);
        let all = pick(&mut all);
        if let Some(at) = all.iter().position(|(of, _)| *of == number) {
            let found = all.remove(at);
            all.push(found.clone());
            return Ok(found.1);
        }
    }
    let set = Arc::new(fetch()?);
    let mut all = FETCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let all = pick(&mut all);
    if all.len() >= KEPT {
        all.remove(0);
    }
    all.push((number, set.clone()));
    Ok(set)
}

/// Samples: rows of a set with a number, or inputs that cross with them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SamplesAsk {
    /// The number of the set; `None`: the inputs cross with the samples.
    set: Option<u64>,
    /// The first rows of the set, by their number; `None`: the tensor `ids` lists the rows.
    first: Option<usize>,
    /// The shape of a row of the tensor `values`; `None`: the tensor `inputs` has the inputs.
    shape: Option<Vec<usize>>,
}

/// Examples: samples, and the number of their labels, or labels that cross with them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ExamplesAsk {
    pub samples: SamplesAsk,
    labels: Option<u64>,
}

/// The side that sends: the program numbers sets, and a library knows the numbers it was sent.
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
                let all = FETCHED.lock().unwrap_or_else(PoisonError::into_inner);
                let found = all.inputs.iter().find(|(_, of)| Arc::ptr_eq(of, set));
                found.map(|(number, _)| *number)
            }
        }
    }

    fn labels(self, set: &Arc<Labels>) -> Option<u64> {
        match self {
            Self::Program => Some(number_of(&LABELS, set)),
            Self::Library => {
                let all = FETCHED.lock().unwrap_or_else(PoisonError::into_inner);
                let found = all.labels.iter().find(|(_, of)| Arc::ptr_eq(of, set));
                found.map(|(number, _)| *number)
            }
        }
    }
}

/// Runs `f` with the text and tensors of samples.
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

/// Returns the samples of a text and its tensors; `inputs` finds a set by its number.
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
        Problem::Shape("inputs with lists of unequal lengths".into())
    );
    match ask.first {
        Some(n) if n == set.len() => Ok(Samples::all(set)),
        Some(n) => Samples::of(set, (0..u32::try_from(n)?).collect()),
        None => Samples::of(set, parcel.list("ids")?),
    }
}

/// Runs `f` with the text and tensors of examples; labels without a number are in `labels`.
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

/// Returns the examples that [`with_examples`] sent.
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

/// The public data: all samples, the labelled ones, and the truth.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PublicText {
    pub samples: SamplesAsk,
    pub labelled: Option<ExamplesAsk>,
    pub truth: Option<ExamplesAsk>,
}

/// Runs `f` with the text and tensors of public data: three messages in one answer.
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

/// Returns the public data that [`with_public`] sent, at a library.
pub(super) fn public_of(
    text: &PublicText,
    tensors: Vec<(String, Tensor)>,
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

/// The way from a library to the program's data sets.
pub(super) trait Fetch {
    fn inputs(&self, number: u64) -> Result<Inputs>;
    fn labels(&self, number: u64) -> Result<Labels>;
}

/// Returns the inputs with this number, at a library, and fetches them at most once.
pub(super) fn fetched_inputs(fetch: &dyn Fetch, number: u64) -> Result<Arc<Inputs>> {
    fetched(|all| &mut all.inputs, number, || fetch.inputs(number))
}

/// Returns the labels with this number, at a library, and fetches them at most once.
pub(super) fn fetched_labels(fetch: &dyn Fetch, number: u64) -> Result<Arc<Labels>> {
    fetched(|all| &mut all.labels, number, || fetch.labels(number))
}

/// Runs `f` with the name of a target's kind, and its tensor.
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

/// Returns the target that [`with_target`] sent.
pub(super) fn target_of(kind: &str, parcel: &mut TensorMap) -> Result<OwnedTarget> {
    Ok(match kind {
        "classes" => OwnedTarget::Classes(parcel.list("target")?),
        "multi-label" => {
            let of = parcel.rest_of("target")?;
            let Tensor::I64(of) = of else {
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

/// Returns these tensors, and more.
pub(super) fn with_more<'b>(
    tensors: &'b NamedTensors<'_>,
    more: impl IntoIterator<Item = (&'b str, View<'b>)>,
) -> NamedTensors<'b> {
    let these = tensors.iter();
    let these = these.map(|(name, view)| (name.as_ref().into(), shorter(view)));
    let more = more.into_iter().map(|(name, view)| (name.into(), view));
    these.chain(more).collect()
}

/// Runs `f` with a message of bytes under this name.
pub(super) fn with_bytes<R>(
    name: &'static str,
    bytes: &[u8],
    f: impl FnOnce(&[OutgoingMessage<'_, '_>]) -> R,
) -> R {
    let tensors: NamedTensors<'_> = vec![(name.into(), View::U8(bytes.into()))];
    f(&[OutgoingMessage::new(&tensors)])
}
