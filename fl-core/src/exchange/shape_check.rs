//! [`ExpectedShape`]: the shape that an answer must have. It comes from the message sent, from the
//! server's model, or from the task. The first answer only serves for comparison.

use crate::data::TaskKind;
use crate::message::{self, AnyMessage, Erased, Message, NamedTensors};
use crate::{ClientId, ClientMessage, Problem, Result};

/// The sources of the expected shape of an answer.
pub(crate) struct ExpectedShape<'a> {
    /// What the model predicts.
    pub task: TaskKind,
    /// Returns the server's model. Called only if clients send parameters and were sent none.
    pub model: &'a mut dyn FnMut() -> Option<message::Params>,
    /// The first answer, if no other source gives the shape.
    pub first: Option<(ClientId, Erased)>,
}

impl ExpectedShape<'_> {
    /// Checks an answer to the message `sent`.
    ///
    /// # Errors
    /// [`Problem::Shape`] if the answer does not have the expected shape. [`Problem::Disagree`] if
    /// no source gives a shape and another client's answer has a different one.
    pub fn check(&mut self, sent: &dyn AnyMessage, mail: &ClientMessage<Erased>) -> Result<()> {
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
        if self.fits(sent, &*mail.body)? {
            return Ok(());
        }
        let from = mail.from;
        let (first, body) = self.first.get_or_insert_with(|| (from, mail.body.clone()));
        message::alike(&**body, &*mail.body).map_err(|error| {
            anyhow::anyhow!(Problem::Disagree(format!(
                "{error}, that of client {first}, and nothing says which of them is right"
            )))
        })
    }

    /// Compares the shape of `answer` with the known sources. `Ok(false)`: no source gives a shape.
    ///
    /// # Errors
    /// [`Problem::Shape`] if the shapes differ.
    fn fits(&mut self, sent: &dyn AnyMessage, answer: &dyn AnyMessage) -> Result<bool> {
        if sent.kind() == answer.kind() {
            message::alike_to(sent, answer, "the message sent")?;
            return Ok(true);
        }
        if let Some(classes) = answer.classes() {
            // if pixels have classes, each class has several scores
            let outputs = self.task.outputs();
            anyhow::ensure!(
                classes == outputs,
                Problem::Shape(format!(
                    "it is about {classes} classes or labels, and the task has {outputs}"
                ))
            );
        }
        if let Some(params) = sent.as_any().downcast_ref::<message::Params>() {
            return within(params, &answer.content());
        }
        let of_params = answer.kind() == message::Params::KIND;
        let model = of_params.then(|| (self.model)());
        let Some(model) = model.flatten() else {
            return Ok(false);
        };
        message::alike_to(&model, answer, "the server's model")?;
        Ok(true)
    }
}

/// Returns whether a field of a composite answer holds parameters with the shapes of those sent.
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
