//! Added losses across the interface: the trainer is on one side, the losses on the other.

use super::host::Answers;
use super::library::{Host, Input};
use super::marshal::{OutgoingMessage, shorter};
use super::marshal_data::{target_of, with_target};
use super::raw::{FL_AUXILIARY_LOSS, FL_FEATURE_LOSS};
use anyhow::{Context, ensure};
use fl_roles::message::{NamedTensors, TensorMap, View};
use fl_roles::{
    AuxiliaryLoss, AuxiliaryTerm, FeatureLoss, FeatureTerm, FitOptions, Head, Problem, Result,
    Stream, Target,
};
use ndarray::{Array1, ArrayView2};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::{Debug, Formatter};

/// The tensors of a last layer.
pub(super) fn head_tensors(head: &Head) -> NamedTensors<'_> {
    vec![
        ("weight".into(), View::F64(head.weight.view().into_dyn())),
        ("bias".into(), View::F64(head.bias.view().into_dyn())),
    ]
}

/// The last layer of [`head_tensors`].
pub(super) fn head_of(parcel: &mut TensorMap) -> Result<Head> {
    let head = Head {
        weight: parcel.f64("weight")?.into_dimensionality()?,
        bias: parcel.f64("bias")?.into_dimensionality()?,
    };
    let (outputs, biases) = (head.outputs(), head.bias.len());
    let text = || format!("{biases} biases for {outputs} outputs");
    ensure!(outputs == biases, Problem::Shape(text()));
    Ok(head)
}

/// An added loss that the other side computes, in the middle of its call.
pub(super) struct RemoteLoss<'a>(pub &'a Host<'a>);

impl Debug for RemoteLoss<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("RemoteLoss")
    }
}

/// The text of a request for a loss.
#[derive(Serialize, Deserialize)]
struct LossText<'a> {
    target: Cow<'a, str>,
    key: [u8; 32],
}

impl RemoteLoss<'_> {
    fn ask(
        &self,
        operation: u32,
        target: &str,
        stream: &Stream,
        tensors: &NamedTensors<'_>,
    ) -> Result<TensorMap> {
        let (target, key) = (target.into(), stream.key());
        let text = serde_json::to_string(&LossText { target, key })?;
        let answer = (self.0).ask_back(operation, &text, OutgoingMessage::new(tensors))?;
        Ok(TensorMap::new(answer.tensors))
    }
}

impl AuxiliaryLoss for RemoteLoss<'_> {
    fn of_batch(
        &self,
        head: &Head,
        target: Target<'_>,
        scores: ArrayView2<'_, f32>,
        stream: &Stream,
    ) -> Result<AuxiliaryTerm> {
        with_target(&target, |kind, view| {
            let mut tensors = head_tensors(head);
            tensors.push(("scores".into(), View::F32(scores.view().into_dyn())));
            tensors.push(("target".into(), shorter(&view)));
            let mut parcel = self.ask(FL_AUXILIARY_LOSS, kind, stream, &tensors)?;
            let term = AuxiliaryTerm {
                loss: parcel.f64("loss")?.first().copied().context("no loss")?,
                by_scores: parcel.table("by-scores")?,
                by_head: head_of(&mut parcel)?,
            };
            let same = term.by_scores.dim() == scores.dim()
                && term.by_head.weight.dim() == head.weight.dim()
                && term.by_head.bias.dim() == head.bias.dim();
            let text = "an auxiliary loss gave slopes of other shapes";
            ensure!(same, Problem::Shape(text.into()));
            Ok(term)
        })
    }
}

impl FeatureLoss for RemoteLoss<'_> {
    fn of_features(
        &self,
        features: ArrayView2<'_, f32>,
        target: Target<'_>,
        rows: &[usize],
        stream: &Stream,
    ) -> Result<FeatureTerm> {
        let rows: Array1<u32> = rows.iter().map(|row| *row as u32).collect();
        with_target(&target, |kind, view| {
            let features = View::F32(features.view().into_dyn());
            let tensors = vec![
                ("features".into(), features),
                ("target".into(), shorter(&view)),
                ("rows".into(), View::U32(rows.view().into_dyn())),
            ];
            let mut parcel = self.ask(FL_FEATURE_LOSS, kind, stream, &tensors)?;
            Ok(FeatureTerm {
                loss: parcel.f64("loss")?.first().copied().context("no loss")?,
                by_features: parcel.table("by-features")?,
            })
        })
    }
}

/// The added losses of this side, for the other.
pub(super) struct LossesBack<'a> {
    auxiliary: Option<&'a dyn AuxiliaryLoss>,
    features: Option<&'a dyn FeatureLoss>,
}

impl<'a> LossesBack<'a> {
    /// The losses of a pass; `None` if it has none.
    pub fn of(pass: &FitOptions<'a>) -> Option<Self> {
        let (auxiliary, features) = (pass.auxiliary, pass.feature_loss);
        let back = Self {
            auxiliary,
            features,
        };
        (auxiliary.is_some() || features.is_some()).then_some(back)
    }
}

impl Answers for LossesBack<'_> {
    fn answer(&self, _: u64, operation: u32, input: &Input<'_>, reply: &Host<'_>) -> Result<bool> {
        let asked = || -> Result<_> {
            let LossText { target, key } = input.json()?;
            let mut parcel = input.parcel(0)?;
            let target = target_of(&target, &mut parcel)?;
            Ok((target, Stream::from_key(key), parcel))
        };
        match (operation, self.auxiliary, self.features) {
            (FL_AUXILIARY_LOSS, Some(of), _) => {
                let (target, stream, mut parcel) = asked()?;
                let (head, scores) = (head_of(&mut parcel)?, parcel.table("scores")?);
                let term = of.of_batch(&head, target.view(), scores.view(), &stream)?;
                let loss = Array1::from_elem(1, term.loss);
                let by_scores = View::F32(term.by_scores.view().into_dyn());
                let mut tensors = head_tensors(&term.by_head);
                tensors.push(("loss".into(), View::F64(loss.view().into_dyn())));
                tensors.push(("by-scores".into(), by_scores));
                reply.tensors(&tensors)?;
            }
            (FL_FEATURE_LOSS, _, Some(of)) => {
                let (target, stream, mut parcel) = asked()?;
                let (features, rows) = (parcel.table("features")?, parcel.list("rows")?);
                let rows: Vec<usize> = rows.iter().map(|row| *row as usize).collect();
                let (view, target) = (features.view(), target.view());
                let term = FeatureTerm::of(of, view, target, &rows, &stream)?;
                let loss = Array1::from_elem(1, term.loss);
                let by_features = View::F32(term.by_features.view().into_dyn());
                reply.tensors(&vec![
                    ("loss".into(), View::F64(loss.view().into_dyn())),
                    ("by-features".into(), by_features),
                ])?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
