//! How samples, examples and targets cross between a protocol's library and the program.

use super::data_sets::{KnownSets, Rows};
use super::marshal::shorter;
use super::marshal_samples::{number, samples, with_values};
use anyhow::{Context, bail, ensure};
use fl_roles::message::{NamedTensors, Tensor, TensorMap, View};
use fl_roles::{Examples, Inputs, Labels, OwnedTarget, Public, Result, Samples, Target};
use ndarray::{Array2, ArrayView1};
use serde::{Deserialize, Serialize};
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

/// Samples: rows of a set that the other side knows, or their values in the tensor `values`,
/// `samples x ..`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SamplesText {
    /// Those that cross with their values, see [`number`]; `None`: rows of a set.
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<u64>,
    /// The number of the set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<u64>,
    /// The number of rows, if they are the first of the set; `None`: the tensor `ids` lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<usize>,
}

/// Examples: samples and their labels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ExamplesAsk {
    pub samples: SamplesText,
    /// Which of the set's labels they are; `None`: those of the samples, in the tensor `labels`.
    labels: Option<usize>,
}

/// Runs `f` with the text and tensors of samples.
pub(super) fn with_samples<R>(
    sets: &dyn KnownSets,
    x: &Samples,
    f: impl FnOnce(SamplesText, NamedTensors<'_>) -> Result<R>,
) -> Result<R> {
    let mut text = SamplesText::default();
    let Some((set, rows)) = sets.place(x) else {
        text.samples = Some(number(x));
        return with_values(x, |values| {
            f(text, vec![("values".into(), View::F32(values))])
        });
    };
    text.set = Some(set);
    match rows {
        Rows::First(n) => {
            text.first = Some(n);
            f(text, Vec::new())
        }
        Rows::List(rows) => {
            let rows = View::U32(ArrayView1::from(&*rows).into_dyn());
            f(text, vec![("ids".into(), rows)])
        }
    }
}

fn positions(x: &Samples) -> Vec<usize> {
    x.ids().iter().map(|id| *id as usize).collect()
}

/// The inputs of these samples and of no others.
pub(super) fn own_inputs(x: &Samples) -> Arc<Inputs> {
    if x.ids().iter().copied().eq(0..x.inputs().len() as u32) {
        x.inputs().clone()
    } else {
        Arc::new(x.inputs().select(&positions(x)))
    }
}

/// Returns the samples of a text and its tensors.
pub(super) fn samples_of(
    sets: &dyn KnownSets,
    text: &SamplesText,
    parcel: &mut TensorMap,
) -> Result<Samples> {
    let Some(set) = text.set else {
        return samples(parcel);
    };
    let rows = match text.first {
        Some(n) => Rows::First(n),
        None => Rows::List(parcel.list("ids")?.into()),
    };
    sets.samples(set, rows)
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
    Examples::all(own_inputs(&samples), Arc::new(labels))
}

/// The public data: all samples, the labelled ones, and the truth.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PublicText {
    pub samples: SamplesText,
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
