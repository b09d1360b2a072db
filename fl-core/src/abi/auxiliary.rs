//! An auxiliary loss across the interface: the trainer is on one side, the loss on the other.

use super::ask::AskBack;
use super::host::Answers;
use super::library::link::{ask_other, asked_back};
use super::library::{Host, Input};
use super::marshal::{OutgoingMessage, shorter};
use super::marshal_data::{target_of, with_target};
use super::raw::FL_BACK;
use crate::message::{NamedTensors, TensorMap, View};
use crate::{AuxiliaryLoss, AuxiliaryTerm, Head, Problem, Result, Stream, Target};
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

/// An auxiliary loss that the other side computes, in the middle of its call.
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
            let ask = serde_json::to_string(&AskBack::Auxiliary {
                target: kind.into(),
                key: stream.key(),
            })?;
            let letter = [OutgoingMessage::new(&tensors)];
            let answer = ask_other(self.0.0, FL_BACK, &ask, &letter, None)?;
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

/// The auxiliary loss of this side, for the other.
pub(super) struct AuxiliaryBack<'a>(pub &'a dyn AuxiliaryLoss);

impl Answers for AuxiliaryBack<'_> {
    fn answer(&self, operation: u32, input: &Input<'_>, reply: &Host<'_>) -> Result<bool> {
        let AskBack::Auxiliary { target, key } = asked_back(operation, input)? else {
            return Ok(false);
        };
        let mut parcel = input.parcel(0)?;
        let head = head_of(&mut parcel)?;
        let target = target_of(&target, &mut parcel)?;
        let scores = parcel.table("scores")?;
        let stream = Stream::from_key(key);
        let term = self
            .0
            .of_batch(&head, target.view(), scores.view(), &stream)?;
        let loss = Array1::from_elem(1, term.loss);
        let by_scores = View::F32(term.by_scores.view().into_dyn());
        let mut tensors = head_tensors(&term.by_head);
        tensors.push(("loss".into(), View::F64(loss.view().into_dyn())));
        tensors.push(("by-scores".into(), by_scores));
        reply.tensors(&tensors)?;
        Ok(true)
    }
}
