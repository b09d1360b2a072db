//! [`ExpectedShape`]: the shape that an answer must have. It comes from the message sent, from the
//! server's model, or from the task. The first answer only serves for comparison.

use crate::data::TaskKind;
use crate::message::{self, AnyMessage, Erased, Message};
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
            Problem::shape_unless(counts.len() == self.task.classes(), || {
                format!(
                    "examples of {} classes are counted, and the task has {}",
                    counts.len(),
                    self.task
                )
            })?;
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
            Problem::shape_unless(classes == outputs, || {
                format!("it is about {classes} classes or labels, and the task has {outputs}")
            })?;
        }
        if let Some(params) = sent.as_any().downcast_ref::<message::Params>() {
            return within(params, answer);
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

/// Returns whether a message in the answer holds parameters with the names and shapes of those
/// sent. Tensors of another form may have such names too, so only declared fields count.
fn within(sent: &message::Params, answer: &dyn AnyMessage) -> Result<bool> {
    let tensors = answer.content();
    let fields = answer.message_type().fields.iter();
    let params = fields.filter(|(_, kind)| *kind == message::Params::KIND);
    for (field, _) in params {
        let inside = |name: &str| {
            let tensor = tensors.iter().find(|(n, _)| {
                n.split_once('.')
                    .is_some_and(|(f, rest)| f == *field && rest == name)
            });
            tensor.map(|(_, view)| view.shape())
        };
        if !sent.0.keys().all(|name| inside(name).is_some()) {
            continue;
        }
        for (name, tensor) in &sent.0 {
            let found = inside(name).unwrap_or_default();
            Problem::shape_unless(found == tensor.shape(), || {
                format!(
                    "`{field}.{name}` is {found:?} here, {:?} in the message sent",
                    tensor.shape()
                )
            })?;
        }
        return Ok(true);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{NamedTensors, TensorMap, View};
    use ndarray::{Array1, ArrayD, IxDyn};

    crate::message! {
        /// Parameters and a number.
        struct Shown: "test-shown" { model: message::Params, loss: message::Scalar }
    }

    /// Some numbers of each tensor, under names that a message of messages could have too.
    #[derive(Clone, Debug)]
    struct Sparse(Array1<f32>);

    impl Message for Sparse {
        const KIND: &'static str = "test-sparse";

        fn tensors(&self) -> NamedTensors<'_> {
            vec![("values.w".into(), View::F32(self.0.view().into_dyn()))]
        }

        fn from_tensors(mut parcel: TensorMap) -> Result<Self> {
            Ok(Self(parcel.f32("values.w")?.into_dimensionality()?))
        }
    }

    fn params(shape: &[usize]) -> message::Params {
        message::Params([("w".to_string(), ArrayD::zeros(IxDyn(shape)))].into())
    }

    fn check(answers: Vec<Erased>) -> Result<()> {
        let mut shape = ExpectedShape {
            task: TaskKind::Classes(2),
            model: &mut || None,
            first: None,
        };
        let mail = (0..).zip(answers);
        let mut mail = mail.map(|(from, body)| ClientMessage::new(from, 1.0, body));
        mail.try_for_each(|mail| shape.check(&params(&[2, 2]), &mail))
    }

    fn shown(shape: &[usize]) -> Erased {
        let loss = message::Scalar::new(1.0);
        Box::new(Shown {
            model: params(shape),
            loss,
        })
    }

    fn sparse(n: usize) -> Erased {
        Box::new(Sparse(Array1::zeros(n)))
    }

    #[test]
    fn parameters_in_an_answer_have_the_shape_of_those_sent_and_other_tensors_any() {
        check(vec![shown(&[2, 2]), shown(&[2, 2])]).unwrap();
        let error = check(vec![shown(&[4])]).unwrap_err().to_string();
        assert_eq!(error, "`model.w` is [4] here, [2, 2] in the message sent");
        check(vec![sparse(3), sparse(3)]).unwrap();
        let error = check(vec![sparse(3), sparse(2)]).unwrap_err().to_string();
        assert!(error.contains("that of client 0"), "{error}");
    }
}
