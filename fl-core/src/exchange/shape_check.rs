//! What shape an answer must have: that of what was sent, of the server's model, or of the task; never that of whoever answered
//! first, who is only compared with.

use crate::data::TaskKind;
use crate::message::{self, Message, NamedTensors};
use crate::{ClientId, ClientMessage, Problem, Result};
use anyhow::Context;

/// What the shape of an answer is held against.
pub(crate) struct ExpectedShape<'a, U> {
    /// What is to be predicted.
    pub task: TaskKind,
    /// The server's model, made when somebody sends parameters and was sent none.
    pub model: &'a mut dyn FnMut() -> Option<message::Params>,
    /// Whose answer came first, where nothing says what shape is right.
    pub first: Option<(ClientId, U)>,
}

impl<U: Message> ExpectedShape<'_, U> {
    /// Checks an answer to what was `sent`.
    ///
    /// # Errors
    /// [`Problem::Shape`] when it has not the shape that it must have, [`Problem::Disagree`] when nothing says what that is and
    /// another client's answer has another.
    pub fn check<D: Message>(&mut self, sent: &D, mail: &ClientMessage<U>) -> Result<()> {
        if let Some(counts) = &mail.class_counts {
            anyhow::ensure!(
                counts.len() == self.task.classes(),
                Problem::Shape(format!(
                    "examples of {} classes are counted, and the task has {}",
                    counts.len(),
                    self.task
                ))
            );
        }
        if self.fits(sent, &mail.body)? {
            return Ok(());
        }
        let from = mail.from;
        let (first, body) = self.first.get_or_insert_with(|| (from, mail.body.clone()));
        message::alike(body, &mail.body).map_err(|error| {
            anyhow::anyhow!(Problem::Disagree(format!(
                "{error}, that of client {first}, and nothing says which of them is right"
            )))
        })
    }

    /// Has `answer`, to what was `sent`, the shape that it must have, as far as anything says so? `Ok(false)`: nothing does.
    ///
    /// # Errors
    /// [`Problem::Shape`] when it has not.
    fn fits<D: Message>(&mut self, sent: &D, answer: &U) -> Result<bool> {
        let any = sent as &dyn std::any::Any;
        if let Some(sent) = any.downcast_ref::<U>() {
            message::alike_to(sent, answer, "what was sent")?;
            return Ok(true);
        }
        if let Some(classes) = answer.class_count() {
            // where pixels have classes, each class has several scores
            let outputs = self.task.outputs();
            anyhow::ensure!(
                classes == outputs,
                Problem::Shape(format!(
                    "it is about {classes} classes or labels, and the task has {outputs}"
                ))
            );
        }
        if let Some(params) = any.downcast_ref::<message::Params>() {
            return within(params, &answer.tensors());
        }
        let model = (U::KIND == message::Params::KIND).then(|| (self.model)());
        let Some(model) = model.flatten() else {
            return Ok(false);
        };
        let answer = answer as &dyn std::any::Any;
        let answer = answer.downcast_ref::<message::Params>();
        let answer = answer.context("parameters are of one type")?;
        message::alike_to(&model, answer, "the server's model")?;
        Ok(true)
    }
}

/// Are the parameters that a composite answer has under one field shaped as those that were sent?
fn within(sent: &message::Params, tensors: &NamedTensors<'_>) -> Result<bool> {
    let fields = tensors
        .iter()
        .filter_map(|(name, _)| Some(name.split_once('.')?.0));
    let mut fields: Vec<&str> = fields.collect();
    fields.dedup();
    for field in fields {
        let inside = |name: &str| {
            let tensor = tensors.iter().find(|(n, _)| {
                n.split_once('.')
                    .is_some_and(|(f, rest)| f == field && rest == name)
            });
            tensor.map(|(_, view)| view.shape())
        };
        if !sent.0.keys().all(|name| inside(name).is_some()) {
            continue;
        }
        for (name, tensor) in &sent.0 {
            let found = inside(name).unwrap_or_default();
            anyhow::ensure!(
                found == tensor.shape(),
                Problem::Shape(format!(
                    "`{field}.{name}` is {found:?} here, {:?} in the message sent",
                    tensor.shape()
                ))
            );
        }
        return Ok(true);
    }
    Ok(false)
}
