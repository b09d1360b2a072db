//! [`Inbox`]: the answers to one request, as parts see them.

use crate::message::{self, AnyMessage, Message, MessageType, Params};
use crate::sealed::Sealed;
use crate::{Problem, Result, kernels, order_statistics};
use anyhow::{Context, ensure};
use ndarray::ArrayD;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// A client's number.
pub type ClientId = u32;

/// One message, with data about its sender. Its serialised form is without the message, whose form
/// on the wire is its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientMessage<M> {
    /// The sender.
    pub from: ClientId,
    /// Its weight, usually the sender's number of examples. Finite, at least 0.
    pub weight: f64,
    /// Examples per class at the sender, if the aggregator requested them
    /// ([`crate::RequiredInputs`]).
    pub class_counts: Option<Vec<u32>>,
    /// Mean loss of the training that made the message, if the aggregator requested it
    /// ([`crate::RequiredInputs`]). Finite.
    pub training_loss: Option<f64>,
    /// The message.
    #[serde(skip)]
    pub body: M,
}

impl<M> ClientMessage<M> {
    /// Wraps a message without class counts and training loss.
    pub fn new(from: ClientId, weight: f64, body: M) -> Self {
        Self {
            from,
            weight,
            class_counts: None,
            training_loss: None,
            body,
        }
    }

    /// Returns another message in the same envelope.
    pub fn around<N>(&self, body: N) -> ClientMessage<N> {
        ClientMessage {
            from: self.from,
            weight: self.weight,
            class_counts: self.class_counts.clone(),
            training_loss: self.training_loss,
            body,
        }
    }

    /// Replaces the body by `f` of it.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn try_map<N>(self, f: impl FnOnce(M) -> Result<N>) -> Result<ClientMessage<N>> {
        Ok(ClientMessage {
            from: self.from,
            weight: self.weight,
            class_counts: self.class_counts,
            training_loss: self.training_loss,
            body: f(self.body)?,
        })
    }
}

/// Checks that one answer is usable by itself: a finite message with a usable weight and training
/// loss.
pub(crate) fn check_message<M>(mail: &ClientMessage<M>, body: &dyn AnyMessage) -> Result<()> {
    ensure!(
        mail.weight.is_finite() && mail.weight >= 0.0,
        Problem::Weight {
            weight: mail.weight,
            most: None,
        }
    );
    if let Some(loss) = mail.training_loss {
        ensure!(
            loss.is_finite(),
            Problem::NotFinite {
                tensor: "training loss".into(),
                at: 0,
                value: loss.to_string(),
            }
        );
    }
    message::check(body)
}

/// Returns the training loss of an answer, which must have one.
pub fn loss_of(from: ClientId, loss: Option<f64>) -> Result<f64> {
    loss.ok_or_else(|| {
        let text = format!("client {from}: its answer came without a training loss");
        Problem::Lacks(text).into()
    })
}

/// Checks that all class counts have the same number of classes, and that each class has the same
/// number of a message's scores. (Several scores if every pixel has a class; the check of expected
/// shapes compares their number with the task.)
fn same_classes<M: AnyMessage>(mail: &[ClientMessage<M>]) -> Result<()> {
    let scores = mail.iter().find_map(|m| m.body.classes());
    let mut first = None;
    for m in mail {
        let Some(n) = m.class_counts.as_ref().map(Vec::len) else {
            continue;
        };
        let fits = scores.is_none_or(|scores| n > 0 && scores.is_multiple_of(n));
        let wanted = *first.get_or_insert(n);
        Problem::shape_unless(fits && n == wanted, || {
            format!(
                "client {}: examples of {n} classes are counted, there are {}",
                m.from,
                if fits {
                    wanted
                } else {
                    scores.unwrap_or(wanted)
                }
            )
        })?;
    }
    Ok(())
}

/// Where the messages from these clients are, in the order of clients. A sort of the messages
/// themselves would be compiled for every kind.
fn by_client(from: &[ClientId]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..from.len()).collect();
    order.sort_by_key(|at| from[*at]);
    order
}

/// The answers to one request: at least one, all finite, all of one shape, sorted by client, with a
/// weight above 0.
///
/// These checks hold for every `Inbox`, so aggregators need none of their own.
#[derive(Clone, Debug)]
pub struct Inbox<M>(Vec<ClientMessage<M>>);

impl<M: AnyMessage> Inbox<M> {
    /// Checks and sorts messages.
    ///
    /// # Errors
    /// Names the client and the fault of its answer.
    pub fn new(mut mail: Vec<ClientMessage<M>>) -> Result<Self> {
        if !mail.is_sorted_by_key(|m| m.from) {
            let from: Vec<ClientId> = mail.iter().map(|m| m.from).collect();
            let mut all: Vec<_> = mail.into_iter().map(Some).collect();
            let order = by_client(&from).into_iter();
            mail = order.filter_map(|at| all[at].take()).collect();
        }
        for (i, m) in mail.iter().enumerate() {
            check_message(m, &m.body)
                .and_then(|()| message::alike(&mail[0].body, &m.body))
                .with_context(|| format!("client {}", m.from))?;
            Problem::shape_unless(i == 0 || mail[i - 1].from != m.from, || {
                format!("client {} answered twice", m.from)
            })?;
        }
        same_classes(&mail)?;
        ensure!(
            mail.iter().any(|m| m.weight > 0.0),
            Problem::NoAnswer(if mail.is_empty() {
                String::new()
            } else {
                ": every weight is 0".into()
            })
        );
        let weight = mail.iter().map(|m| m.weight).sum::<f64>();
        ensure!(
            weight.is_finite(),
            "the weights of all answers together are beyond 64-bit floats"
        );
        Ok(Self(mail))
    }

    /// Converts each message with `f`, and keeps weights, class counts and losses.
    ///
    /// ```
    /// use fl_core::prelude::*;
    /// # let params = |x: f32| Params([("w".to_string(), ndarray::arr1(&[x]).into_dyn())].into());
    /// # let inbox = Inbox::new(vec![ClientMessage::new(3, 2.0, params(-4.0))]).unwrap();
    /// let sizes = inbox.map(|mail| Ok(Scalar::new(mail.body.norm() as f32))).unwrap();
    /// let first = sizes.iter().next().unwrap();
    /// assert_eq!((first.from, first.weight, first.body.value()), (3, 2.0, 4.0));
    /// ```
    ///
    /// # Errors
    /// If `f` fails, or its results are no valid inbox (see [`Inbox::new`]); with the client's
    /// number.
    pub fn map<N: Message>(&self, f: impl Fn(&ClientMessage<M>) -> Result<N>) -> Result<Inbox<N>> {
        let one = |mail: &ClientMessage<M>| -> Result<ClientMessage<N>> {
            let body = f(mail).with_context(|| format!("client {}", mail.from))?;
            Ok(mail.around(body))
        };
        Inbox::new(self.0.iter().map(one).collect::<Result<_>>()?)
    }

    /// Wraps messages that the other side of the C interface has checked. It must be filled before
    /// use.
    #[doc(hidden)]
    pub fn trusted(mail: Vec<ClientMessage<M>>) -> Self {
        Self(mail)
    }

    /// Returns the messages of an [`Inbox::trusted`], to fill it.
    #[doc(hidden)]
    pub fn mail_mut(&mut self) -> &mut Vec<ClientMessage<M>> {
        &mut self.0
    }

    /// Returns the number of answers; at least 1.
    #[expect(clippy::len_without_is_empty, reason = "an inbox is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates in client order.
    pub fn iter(&self) -> std::slice::Iter<'_, ClientMessage<M>> {
        self.0.iter()
    }

    /// Returns the sum of the weights, always above 0.
    pub fn total_weight(&self) -> f64 {
        self.0.iter().map(|m| m.weight).sum()
    }

    /// Returns the mean loss of each client's training, in client order.
    ///
    /// # Errors
    /// If an answer has none: the aggregator must request them in
    /// [`Aggregator::needs`](crate::Aggregator::needs), and clients must have trained.
    pub fn training_losses(&self) -> Result<Vec<f64>> {
        let losses = self.0.iter();
        let losses = losses.map(|mail| loss_of(mail.from, mail.training_loss));
        losses.collect()
    }
}

/// One answer of an inbox, without its Rust type.
#[derive(Clone, Copy, Debug)]
pub struct AnyClientMessage<'a> {
    /// The sender.
    pub from: ClientId,
    /// Its weight.
    pub weight: f64,
    /// Examples per class at the sender, if the aggregator requested them.
    pub class_counts: Option<&'a [u32]>,
    /// Mean loss of the training that made the message, if the aggregator requested it.
    pub training_loss: Option<f64>,
    /// The message.
    pub body: &'a dyn AnyMessage,
}

/// An [`Inbox`] without the Rust type of its messages. Conversions of an inbox of parameters copy
/// no numbers.
#[expect(clippy::len_without_is_empty, reason = "an inbox is never empty")]
pub trait AnyInbox: Any + Debug + Send + Sync + Sealed {
    /// Returns the number of answers; at least 1.
    fn len(&self) -> usize;

    /// Returns the answer at this position, in client order.
    ///
    /// # Panics
    /// If `position` is not below the number of answers.
    fn at(&self, position: usize) -> AnyClientMessage<'_>;
}

impl<M: Message> Inbox<M> {
    /// Returns the same answers with the protocol's own weights: `weight` returns one for each,
    /// finite and at least 0. [`crate::Server::aggregate_with`] uses it.
    ///
    /// ```
    /// use fl_core::prelude::*;
    /// # let params = |x: f32| Params([("w".to_string(), ndarray::arr1(&[x]).into_dyn())].into());
    /// # let mail = [(0, 1.0), (1, 5.0)].map(|(id, x)| ClientMessage::new(id, 1.0, params(x)));
    /// # let inbox = Inbox::new(mail.to_vec()).unwrap();
    /// let by_size = inbox.weighted_by(|mail| 1.0 / mail.body.norm()).unwrap();
    /// let weights: Vec<f64> = by_size.iter().map(|mail| mail.weight).collect();
    /// assert_eq!(weights, [1.0, 0.2]);
    /// ```
    ///
    /// # Errors
    /// If a weight is negative or NaN, or every weight is 0.
    pub fn weighted_by(&self, weight: impl Fn(&ClientMessage<M>) -> f64) -> Result<Self> {
        let weigh = |mail: &ClientMessage<M>| ClientMessage {
            weight: weight(mail),
            ..mail.clone()
        };
        Self::new(self.iter().map(weigh).collect())
    }
}

impl<M: AnyMessage> Sealed for Inbox<M> {}

impl<M: AnyMessage> AnyInbox for Inbox<M> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn at(&self, position: usize) -> AnyClientMessage<'_> {
        let mail = &self.0[position];
        AnyClientMessage {
            from: mail.from,
            weight: mail.weight,
            class_counts: mail.class_counts.as_deref(),
            training_loss: mail.training_loss,
            body: &mail.body,
        }
    }
}

impl dyn AnyInbox {
    /// Iterates in client order.
    pub fn iter(&self) -> impl Iterator<Item = AnyClientMessage<'_>> {
        (0..self.len()).map(|position| self.at(position))
    }

    /// Returns the type of its messages.
    pub fn message_type(&self) -> &'static MessageType {
        self.at(0).body.message_type()
    }

    /// Returns it as an inbox of `M`; `None` if its messages have another Rust type.
    pub fn get<M: AnyMessage>(&self) -> Option<&Inbox<M>> {
        (self as &dyn Any).downcast_ref()
    }
}

impl Inbox<Params> {
    /// Calls `f` with the clients' tensors of this name, in client order.
    pub fn tensor<T>(&self, name: &str, f: impl FnOnce(&[&[f32]]) -> T) -> T {
        let sent: Vec<_> = self
            .0
            .iter()
            .map(|m| m.body.0[name].as_standard_layout())
            .collect();
        let sent: Vec<&[f32]> = sent
            .iter()
            .map(|t| t.as_slice().expect("standard layout"))
            .collect();
        f(&sent)
    }

    /// Builds parameters tensor by tensor: `f` gets the clients' values of one tensor, in client
    /// order.
    fn per_tensor(&self, mut f: impl FnMut(&[&[f32]]) -> Vec<f32>) -> Params {
        let tensors = self.0[0].body.0.iter().map(|(name, first)| {
            let out = self.tensor(name, &mut f);
            (
                name.clone(),
                ArrayD::from_shape_vec(first.raw_dim(), out).expect("one value for each place"),
            )
        });
        tensors.collect()
    }

    /// Returns the squared Euclidean distances between any two clients' parameters, `[i][j]`, to a
    /// millionth.
    pub fn squared_distances(&self, exec: &dyn Executor) -> Vec<Vec<f64>> {
        let mut all = vec![vec![0.0; self.len()]; self.len()];
        for name in self.0[0].body.0.keys() {
            let some = self.tensor(name, |sent| order_statistics::squared_distances(sent, exec));
            for (sum, x) in all.iter_mut().flatten().zip(some.iter().flatten()) {
                *sum += x;
            }
        }
        all
    }

    /// Builds parameters number by number: `f` gets the clients' values of one coordinate, in
    /// client order.
    pub fn per_coordinate(&self, f: impl Fn(&mut [f32]) -> f32) -> Params {
        let mut column = vec![0.0; self.len()];
        self.per_tensor(|sent| {
            let places = 0..sent.first().map_or(0, |s| s.len());
            let values = places.map(|i| {
                for (c, s) in column.iter_mut().zip(sent) {
                    *c = s[i];
                }
                f(&mut column)
            });
            values.collect()
        })
    }

    /// Builds parameters number by number: `f` gets the clients' values of one coordinate with
    /// these ranks, ascending. `0..len` gives all of them; fewer ranks are faster. `-0` counts as
    /// `0`, so that the order of the clients does not matter.
    pub fn per_rank(
        &self,
        ranks: Range<usize>,
        exec: &dyn Executor,
        f: impl Fn(&mut [f32]) -> f32 + Sync,
    ) -> Params {
        self.per_tensor(|sent| order_statistics::by_rank(sent, ranks.clone(), exec, &f))
    }

    /// Returns the median of each number; for an even number of clients, the mean of the two in the
    /// middle.
    pub fn median(&self, exec: &dyn Executor) -> Params {
        let n = self.len();
        self.per_rank((n - 1) / 2..n / 2 + 1, exec, |values| match values {
            [one] => *one,
            _ => ((f64::from(values[0]) + f64::from(values[1])) / 2.0) as f32,
        })
    }

    /// Returns the mean weighted by `weights` (one per message, in order): sums in f64 and in
    /// client order, then one division.
    pub fn weighted_mean(&self, weights: &[f64], exec: &dyn Executor) -> Params {
        self.per_tensor(|sent| kernels::weighted_mean(sent, weights, exec))
    }
}

/// Runs work with the same bits for any division of it. Hosts bring threads; parts never start any.
pub trait Executor: Send + Sync {
    /// Calls `work(i, chunk)` for every chunk of `size` numbers of `data` (the last may be
    /// shorter), in any order.
    fn chunks(&self, data: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync));
}

impl dyn Executor + '_ {
    /// As [`Executor::chunks`]. One chunk runs on the thread that calls: waking another takes longer
    /// than most of them.
    pub fn each_chunk(
        &self,
        data: &mut [f32],
        size: usize,
        work: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) {
        if data.len() <= size {
            Serial.chunks(data, size, work)
        } else {
            self.chunks(data, size, work)
        }
    }
}

/// Runs one chunk after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Executor for Serial {
    fn chunks(&self, data: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        for (i, chunk) in data.chunks_mut(size).enumerate() {
            work(i, chunk);
        }
    }
}

/// An executor that can be shared.
pub type SharedExecutor = Arc<dyn Executor>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Logits, Nothing};
    use ndarray::Array2;

    fn error(mail: Vec<ClientMessage<Logits>>) -> String {
        format!("{:#}", Inbox::new(mail).unwrap_err())
    }

    #[test]
    fn unusable_answers_are_named() {
        let ok = |from| ClientMessage::new(from, 1.0, Logits::new(vec![0], Array2::zeros((1, 2))));
        assert_eq!(error(vec![]), "no usable answer");
        assert_eq!(
            error(vec![ClientMessage {
                weight: 0.0,
                ..ok(1)
            }]),
            "no usable answer: every weight is 0"
        );
        assert_eq!(
            error(vec![
                ok(1),
                ClientMessage {
                    weight: -1.0,
                    ..ok(2)
                }
            ]),
            "client 2: weight -1; a weight must be finite and at least 0"
        );
        assert_eq!(error(vec![ok(3), ok(3)]), "client 3 answered twice");
        let nan = Logits::new(vec![0], Array2::from_elem((1, 2), f32::NAN));
        assert_eq!(
            error(vec![ok(1), ClientMessage::new(0, 1.0, nan)]),
            "client 0: `values` holds NaN at position 0; every number must be finite"
        );
        let wide = Logits::new(vec![0], Array2::zeros((1, 3)));
        assert_eq!(
            error(vec![ok(1), ClientMessage::new(2, 1.0, wide)]),
            "client 2: `values` is [1, 3] here, [1, 2] in the first answer"
        );
    }

    #[test]
    fn class_counts_are_about_the_classes_that_there_are() {
        let scores = |from, counts: &[u32]| ClientMessage {
            class_counts: Some(counts.to_vec()),
            ..ClientMessage::new(from, 1.0, Logits::new(vec![0], Array2::zeros((1, 2))))
        };
        assert!(Inbox::new(vec![scores(0, &[1, 2]), scores(1, &[0, 0])]).is_ok());
        assert_eq!(
            error(vec![scores(0, &[1, 2]), scores(1, &[0])]),
            "client 1: examples of 1 classes are counted, there are 2"
        );
        // one class with two scores means two pixels
        assert!(Inbox::new(vec![scores(0, &[1]), scores(1, &[0])]).is_ok());
        assert_eq!(
            error(vec![scores(0, &[1, 2, 3])]),
            "client 0: examples of 3 classes are counted, there are 2"
        );
        let nothing = |counts: &[u32]| ClientMessage {
            class_counts: Some(counts.to_vec()),
            ..ClientMessage::new(counts.len() as u32, 1.0, Nothing)
        };
        let error = Inbox::new(vec![nothing(&[1, 2]), nothing(&[1])]).unwrap_err();
        assert!(format!("{error:#}").contains("client 2"), "{error:#}");
    }

    #[test]
    fn weights_whose_sum_is_no_number_are_refused() {
        let heavy = |from| ClientMessage::new(from, 1e308, Nothing);
        assert!(Inbox::new(vec![heavy(0)]).is_ok());
        let error = Inbox::new(vec![heavy(0), heavy(1)]).unwrap_err();
        assert!(
            error.to_string().contains("beyond 64-bit floats"),
            "{error}"
        );
    }

    #[test]
    fn a_mapped_inbox_keeps_its_envelopes() {
        let mail = |from| ClientMessage {
            class_counts: Some(vec![3]),
            training_loss: Some(0.5),
            ..ClientMessage::new(from, f64::from(from), Nothing)
        };
        let inbox = Inbox::new(vec![mail(2), mail(1)]).unwrap();
        let mapped = inbox
            .map(|m| Ok(crate::message::Scalar::new(m.from as f32)))
            .unwrap();
        let all: Vec<_> = mapped
            .iter()
            .map(|m| (m.from, m.weight, m.body.value()))
            .collect();
        assert_eq!(all, [(1, 1.0, 1.0), (2, 2.0, 2.0)]);
        assert_eq!(mapped.iter().next().unwrap().class_counts, Some(vec![3]));
        assert_eq!(mapped.training_losses().unwrap(), [0.5, 0.5]);
        let failed = inbox.map(|m| {
            ensure!(m.from != 2, "no");
            Ok(Nothing)
        });
        assert_eq!(format!("{:#}", failed.unwrap_err()), "client 2: no");
    }

    #[test]
    fn a_training_loss_is_there_and_finite() {
        let mail = |training_loss| ClientMessage {
            training_loss,
            ..ClientMessage::new(4, 1.0, Nothing)
        };
        let without = Inbox::new(vec![mail(None)]).unwrap();
        let error = without.training_losses().unwrap_err();
        assert!(error.is::<Problem>(), "{error:#}");
        assert_eq!(
            format!("{error:#}"),
            "client 4: its answer came without a training loss"
        );
        let error = Inbox::new(vec![mail(Some(f64::INFINITY))]).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "client 4: `training loss` holds inf at position 0; every number must be finite"
        );
    }

    #[test]
    fn answers_are_sorted_by_client() {
        let inbox = Inbox::new(
            [5, 1, 3]
                .map(|id| ClientMessage::new(id, 1.0, Nothing))
                .to_vec(),
        )
        .unwrap();
        assert_eq!(inbox.iter().map(|m| m.from).collect::<Vec<_>>(), [1, 3, 5]);
    }
}
