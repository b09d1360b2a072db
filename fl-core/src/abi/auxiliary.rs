//! Added losses across the interface: the trainer is on one side, the losses on the other.

use super::ask::AskBack;
use super::host::Answers;
use super::library::link::{ask_back, asked_back};
use super::library::{Host, Input};
use super::marshal::{OutgoingMessage, shorter};
use super::marshal_data::{target_of, with_target};
use crate::message::{NamedTensors, TensorMap, View};
use crate::{
    AuxiliaryLoss, AuxiliaryTerm, FeatureLoss, FeatureTerm, FitOptions, Head, Problem, Result,
    Stream, Target,
};
use anyhow::{Context, ensure};
use ndarray::{Array1, ArrayView2};
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
            let ask = AskBack::Auxiliary {
                target: kind.into(),
                key: stream.key(),
            };
            let answer = ask_back(self.0, &ask, OutgoingMessage::new(&tensors))?;
            let mut parcel = TensorMap::new(answer.tensors);
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
        stream: &Stream,
    ) -> Result<FeatureTerm> {
        with_target(&target, |kind, view| {
            let features = View::F32(features.view().into_dyn());
            let tensors = vec![
                ("features".into(), features),
                ("target".into(), shorter(&view)),
            ];
            let ask = AskBack::FeatureLoss {
                target: kind.into(),
                key: stream.key(),
            };
            let answer = ask_back(self.0, &ask, OutgoingMessage::new(&tensors))?;
            let mut parcel = TensorMap::new(answer.tensors);
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
        let ask = asked_back(operation, input)?;
        let mut parcel = input.parcel(0)?;
        match (ask, self.auxiliary, self.features) {
            (AskBack::Auxiliary { target, key }, Some(of), _) => {
                let head = head_of(&mut parcel)?;
                let target = target_of(&target, &mut parcel)?;
                let scores = parcel.table("scores")?;
                let stream = Stream::from_key(key);
                let term = of.of_batch(&head, target.view(), scores.view(), &stream)?;
                let loss = Array1::from_elem(1, term.loss);
                let by_scores = View::F32(term.by_scores.view().into_dyn());
                let mut tensors = head_tensors(&term.by_head);
                tensors.push(("loss".into(), View::F64(loss.view().into_dyn())));
                tensors.push(("by-scores".into(), by_scores));
                reply.tensors(&tensors)?;
            }
            (AskBack::FeatureLoss { target, key }, _, Some(of)) => {
                let target = target_of(&target, &mut parcel)?;
                let (features, stream) = (parcel.table("features")?, Stream::from_key(key));
                let term = FeatureTerm::of(of, features.view(), target.view(), &stream)?;
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
