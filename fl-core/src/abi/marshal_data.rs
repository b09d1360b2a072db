//! How samples, examples and targets cross between a protocol's library and the program.

use super::data_sets::{KnownSets, Rows};
use super::marshal::shorter;
use crate::message::{NamedTensors, Tensor, TensorMap, View};
use crate::{Examples, Inputs, Labels, OwnedTarget, Problem, Public, Result, Samples, Target};
use anyhow::{Context, bail, ensure};
use ndarray::{Array2, ArrayView1};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;

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

/// Samples: rows of a set with a number, or inputs that cross with them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SamplesAsk {
    /// The number of the set; `None`: the inputs cross with the samples.
    set: Option<u64>,
    /// The number of rows, if they are the first of the set; `None`: the tensor `ids` lists them.
    first: Option<usize>,
    /// The shape of a row of the tensor `values`; `None`: the tensor `inputs` has the inputs.
    shape: Option<Vec<usize>>,
}

/// Examples: samples and their labels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ExamplesAsk {
    pub samples: SamplesAsk,
    /// Which of the set's labels they are; `None`: those of the samples, in the tensor `labels`.
    labels: Option<usize>,
}

/// Runs `f` with the text and tensors of samples.
pub(super) fn with_samples<R>(
    sets: &dyn KnownSets,
    x: &Samples,
    f: impl FnOnce(SamplesAsk, NamedTensors<'_>) -> Result<R>,
) -> Result<R> {
    if let Some((set, rows)) = sets.place(x) {
        let mut ask = SamplesAsk {
            set: Some(set),
            first: None,
            shape: None,
        };
        return match rows {
            Rows::First(n) => {
                ask.first = Some(n);
                f(ask, Vec::new())
            }
            Rows::List(rows) => {
                let rows = View::U32(ArrayView1::from(&*rows).into_dyn());
                f(ask, vec![("ids".into(), rows)])
            }
        };
    }
    // the rows alone cross, and are all of their set at the other side
    let whole = x.ids().iter().copied().eq(0..x.inputs().len() as u32);
    let inputs = match whole {
        true => Cow::Borrowed(&**x.inputs()),
        false => Cow::Owned(x.inputs().select(&positions(x))),
    };
    let mut ask = SamplesAsk {
        set: None,
        first: Some(x.len()),
        shape: None,
    };
    if let Inputs::Dense { shape, data } = &*inputs {
        ask.shape = Some(shape.clone());
        let values = ArrayView1::from(data).into_dyn();
        return f(ask, vec![("values".into(), View::F32(values))]);
    }
    let bytes = postcard::to_stdvec(&*inputs)?;
    f(
        ask,
        vec![("inputs".into(), View::U8(bytes.as_slice().into()))],
    )
}

fn positions(x: &Samples) -> Vec<usize> {
    x.ids().iter().map(|id| *id as usize).collect()
}

/// Returns the samples of a text and its tensors.
pub(super) fn samples_of(
    sets: &dyn KnownSets,
    ask: &SamplesAsk,
    parcel: &mut TensorMap,
) -> Result<Samples> {
    if let Some(set) = ask.set {
        let rows = match ask.first {
            Some(n) => Rows::First(n),
            None => Rows::List(parcel.list("ids")?.into()),
        };
        return sets.samples(set, rows);
    }
    let inputs = match &ask.shape {
        Some(shape) => {
            let data = parcel.f32("values")?;
            let data = data.into_raw_vec_and_offset().0;
            let shape = shape.clone();
            Inputs::Dense { shape, data }
        }
        None => postcard::from_bytes(&parcel.bytes("inputs")?)?,
    };
    ensure!(
        inputs.is_sound(),
        Problem::Shape("inputs with lists of unequal lengths".into())
    );
    Ok(Samples::all(Arc::new(inputs)))
}

/// Runs `f` with the text and tensors of examples; labels without a number are in `labels`.
pub(super) fn with_examples<R>(
    sets: &dyn KnownSets,
    of: &Examples,
    f: impl FnOnce(ExamplesAsk, NamedTensors<'_>) -> Result<R>,
) -> Result<R> {
    with_samples(sets, &of.samples, |samples, tensors| {
        let labels = samples.set.and_then(|set| sets.label(set, of.labels()));
        let bytes = match labels {
            Some(_) => Vec::new(),
            None => postcard::to_stdvec(&of.labels().select(&positions(&of.samples)))?,
        };
        let own = labels.is_none();
        let own = own.then(|| ("labels", View::U8(bytes.as_slice().into())));
        f(ExamplesAsk { samples, labels }, with_more(&tensors, own))
    })
}

/// Returns the examples that [`with_examples`] sent.
pub(super) fn examples_of(
    sets: &dyn KnownSets,
    ask: &ExamplesAsk,
    parcel: &mut TensorMap,
) -> Result<Examples> {
    let samples = samples_of(sets, &ask.samples, parcel)?;
    if let (Some(set), Some(at)) = (ask.samples.set, ask.labels) {
        return Examples::of(samples, sets.labels(set, at)?);
    }
    let labels: Labels = postcard::from_bytes(&parcel.bytes("labels")?)?;
    let inputs = samples.inputs();
    let inputs = match samples.len() == inputs.len() && ask.samples.first.is_some() {
        true => inputs.clone(),
        false => Arc::new(inputs.select(&positions(&samples))),
    };
    Examples::all(inputs, Arc::new(labels))
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
    sets: &dyn KnownSets,
    public: &Public,
    f: impl FnOnce(PublicText, NamedTensors<'_>) -> Result<R>,
) -> Result<R> {
    let (samples, labelled, truth) = public.whole();
    with_samples(sets, samples, |samples, first| {
        let optional = |of: Option<&Examples>| -> Result<_> {
            let Some(of) = of else { return Ok(None) };
            with_examples(sets, of, |ask, tensors| {
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
    sets: &dyn KnownSets,
    text: &PublicText,
    tensors: Vec<(String, Tensor)>,
) -> Result<Public> {
    let mut parts = apart(tensors, 3)?.into_iter();
    let mut next = || parts.next().context("three parts");
    let samples = samples_of(sets, &text.samples, &mut next()?)?;
    let mut examples = |of: &Option<ExamplesAsk>| -> Result<Option<Examples>> {
        let mut parcel = next()?;
        let Some(of) = of else { return Ok(None) };
        examples_of(sets, of, &mut parcel).map(Some)
    };
    let labelled = examples(&text.labelled)?;
    let truth = examples(&text.truth)?;
    Ok(Public::of_whole(samples, labelled, truth))
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

/// Returns the target that [`with_target`] sent, or a program to a trainer: labels and classes of
/// pixels are floats there.
pub(super) fn target_of(kind: &str, parcel: &mut TensorMap) -> Result<OwnedTarget> {
    let mut whole = |low: f64, high: f64| -> Result<Array2<f64>> {
        let of = match parcel.rest_of("target")? {
            Tensor::I64(of) => of.mapv(|x| x as f64),
            Tensor::U32(of) => of.mapv(f64::from),
            Tensor::F32(of) => of.mapv(f64::from),
            _ => bail!("a target of {kind} has whole numbers"),
        };
        let fits = |x: &f64| (low..=high).contains(x) && x.fract() == 0.0;
        ensure!(
            of.iter().all(fits),
            "a target of {kind} has whole numbers from {low} to {high}"
        );
        Ok(of.into_dimensionality()?)
    };
    Ok(match kind {
        "classes" => OwnedTarget::Classes(parcel.list("target")?),
        "multi-label" => OwnedTarget::MultiLabel(whole(-1.0, 1.0)?.mapv(|x| x as i8)),
        "pixels" => OwnedTarget::Pixels(whole(0.0, 255.0)?.mapv(|x| x as u8)),
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

/// Returns the tensors of a message of bytes.
pub(super) fn bytes_named<'b>(name: &'static str, bytes: &'b [u8]) -> NamedTensors<'b> {
    vec![(name.into(), View::U8(bytes.into()))]
}
