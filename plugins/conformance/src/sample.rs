//! Legal sample input of the kit.

use fl_core::message::{
    AnyMessage, Erased, Message, MessageType, SampleShape, SoftLabels, Tensor, TensorMap,
};
use fl_core::{
    AnyInbox, Candidate, ClientId, ClientMessage, ClientStat, ClientStatQuery, Draws, Pool, Roster,
    Samples, Stream,
};
use ndarray::{Array2, ArrayD};
use std::borrow::Borrow;

/// Number of cases for every property.
pub(crate) const CASES: u64 = 20;

/// The kind of numbers in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Standard normal.
    Plain,
    /// Every client sends the same message.
    Equal,
    /// Ordinary numbers or 2^57 of either sign: sums cancel, so that another order changes their
    /// bits even in `f64`.
    Wild,
    /// Around 1e30: a client that diverged, but is still finite.
    Huge,
    /// All 0.
    Zero,
}

impl Values {
    /// Draws one number.
    pub fn draw(self, draws: &mut Draws) -> f32 {
        let normal = draws.normal();
        (match self {
            Self::Plain | Self::Equal => normal,
            Self::Wild if draws.below(2) == 0 => normal.signum() * libm::exp2(57f64),
            Self::Wild => normal,
            Self::Huge => normal * 1e30,
            Self::Zero => 0.0,
        }) as f32
    }
}

/// One seeded case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its number.
    pub number: u64,
    /// Number of clients that answer.
    pub clients: usize,
    /// The kind of numbers.
    pub values: Values,
}

impl Case {
    pub(crate) fn new(number: u64) -> Self {
        let clients = match number {
            0 => 1,
            1 => 2,
            n => 1 + Self::root(n).child("clients", 0).draws().below(9),
        };
        let values = match number % 10 {
            3 => Values::Equal,
            5 | 9 => Values::Wild,
            6 => Values::Huge,
            7 => Values::Zero,
            _ => Values::Plain,
        };
        Self {
            number,
            clients,
            values,
        }
    }

    fn root(number: u64) -> Stream {
        Stream::root(0).child("conformance", number)
    }

    pub(crate) fn stream(&self, what: &str) -> Stream {
        Self::root(self.number).child(what, 0)
    }

    pub(crate) fn place(&self) -> String {
        let s = if self.clients == 1 { "" } else { "s" };
        format!("case {}, {} client{s}", self.number, self.clients)
    }

    /// Returns the clients of an inbox: not from 0 and with gaps, as in a round of a cohort.
    pub(crate) fn sender(k: usize) -> ClientId {
        3 + 7 * k as ClientId
    }
}

impl Case {
    /// Returns one message for each client, legal and alike: with tensors of odd shapes, and for
    /// row-keyed messages about different samples. For any `draws`, the tensors of one case are
    /// alike, as in the rounds of a run. Made by [`Message::sample`].
    ///
    /// # Panics
    /// If the message has no sample.
    pub fn messages<M: Message>(&self, draws: &mut Draws) -> Vec<M> {
        let all = self.messages_of(MessageType::of::<M>(), draws);
        let one = |message: Erased| message.take().expect("it is of its own type");
        all.into_iter().map(one).collect()
    }

    /// As [`Case::messages`], of this type.
    ///
    /// # Panics
    /// If the message has no sample.
    pub fn messages_of(&self, of: &'static MessageType, draws: &mut Draws) -> Vec<Erased> {
        let values = self.values;
        let number = move |draws: &mut Draws| values.draw(draws);
        let mut shape = self.stream("shape").draws();
        let mut outline = SampleShape::new(self.clients, &number, draws).shaped(&mut shape);
        let mut one = |k| {
            outline.client(k);
            of.sample(&mut outline).unwrap_or_else(|| {
                panic!(
                    "`{}` must say in `Message::sample` how to make one up",
                    of.kind
                )
            })
        };
        if values == Values::Equal {
            return vec![one(0); self.clients];
        }
        (0..self.clients).map(one).collect()
    }
}

/// Returns the number of classes that a sender of this message can count examples of.
pub fn classes(message: &dyn AnyMessage) -> usize {
    message.classes().unwrap_or(3)
}

/// The ingredients of an inbox, so that it can be made again with a change.
#[derive(Clone, Debug)]
pub(crate) struct SampleMessages {
    of: &'static MessageType,
    pub(crate) bodies: Vec<Erased>,
    pub(crate) weights: Vec<f64>,
    pub(crate) counts: Option<Vec<Vec<u32>>>,
    pub(crate) losses: Option<Vec<f64>>,
}

impl SampleMessages {
    /// Draws weights that are whole, fractional or 0; in every fourth case all are 1. Draws class
    /// counts if they are needed; some classes occur nowhere, and some clients have no examples.
    /// Likewise draws training losses; some are 0, in some cases all.
    pub(crate) fn new(
        of: &'static MessageType,
        case: &Case,
        round: u64,
        needs: fl_core::RequiredInputs,
    ) -> Self {
        let mut draws = case.stream("letters").child("round", round).draws();
        let bodies = case.messages_of(of, &mut draws);
        let classes = classes(&*bodies[0]);
        let plain = case.number % 4 == 1;
        let mut weights: Vec<f64> = (0..case.clients)
            .map(|_| match draws.below(5) {
                _ if plain => 1.0,
                0 => 0.0,
                1 => 0.1 + draws.uniform(),
                _ => 1.0 + draws.below(50) as f64,
            })
            .collect();
        if weights.iter().all(|w| *w == 0.0) {
            weights[0] = 3.0;
        }
        let counts = needs.class_counts.then(|| {
            let unseen = draws.below(2 * classes);
            let mut count = |c: usize| draws.below(4) * usize::from(c != unseen) * draws.below(30);
            (0..case.clients)
                .map(|_| (0..classes).map(|c| count(c) as u32).collect())
                .collect()
        });
        let losses = needs.training_loss.then(|| {
            let nothing = draws.below(5) == 0;
            let mut loss = || match draws.below(4) {
                _ if nothing => 0.0,
                0 => 0.0,
                _ => 3.0 * draws.uniform(),
            };
            (0..case.clients).map(|_| loss()).collect()
        });
        Self {
            of,
            bodies,
            weights,
            counts,
            losses,
        }
    }

    /// Permutes the messages: sender `k` sends the message of sender `order[k]`.
    pub(crate) fn permuted(&self, order: &[usize]) -> Self {
        fn dealt<T: Clone>(all: &[T], order: &[usize]) -> Vec<T> {
            order.iter().map(|k| all[*k].clone()).collect()
        }
        Self {
            of: self.of,
            bodies: dealt(&self.bodies, order),
            weights: dealt(&self.weights, order),
            counts: self.counts.as_ref().map(|all| dealt(all, order)),
            losses: self.losses.as_ref().map(|all| dealt(all, order)),
        }
    }

    pub(crate) fn weighed(&self, weights: impl Fn(f64) -> f64) -> Self {
        Self {
            weights: self.weights.iter().map(|w| weights(*w)).collect(),
            ..self.clone()
        }
    }

    /// Returns one message, the mean of all by their weights, or with equal weights.
    ///
    /// # Errors
    /// If the messages are not of the same shape.
    pub(crate) fn mean(&self, weighted: bool) -> fl_core::Result<Self> {
        let weight = |k: usize| if weighted { self.weights[k] } else { 1.0 };
        let total: f64 = (0..self.bodies.len()).map(weight).sum();
        let mut mean: Vec<(String, ArrayD<f64>)> = Vec::new();
        for (k, body) in self.bodies.iter().enumerate() {
            for (at, (name, view)) in body.content().into_iter().enumerate() {
                let numbers = match view.to_tensor() {
                    Tensor::F32(a) => a.mapv(f64::from),
                    Tensor::F64(a) => a,
                    _ => anyhow::bail!("`{name}` has whole numbers, and they have no mean"),
                };
                let part = numbers * (weight(k) / total);
                match mean.get_mut(at) {
                    None => mean.push((name.into_owned(), part)),
                    Some((_, sum)) if sum.shape() == part.shape() => *sum += &part,
                    Some(_) => anyhow::bail!("`{name}` has other shapes, and they have no mean"),
                }
            }
        }
        let of_f32 = |(name, a): (String, ArrayD<f64>)| (name, Tensor::F32(a.mapv(|x| x as f32)));
        let tensors = TensorMap::new(mean.into_iter().map(of_f32).collect());
        Ok(Self {
            of: self.of,
            bodies: vec![self.of.from_tensors(tensors)?],
            weights: vec![1.0],
            counts: None,
            losses: None,
        })
    }

    pub(crate) fn mail(&self) -> Vec<ClientMessage<Erased>> {
        let mail = self.bodies.iter().zip(&self.weights).enumerate();
        mail.map(|(k, (body, weight))| ClientMessage {
            class_counts: self.counts.as_ref().map(|c| c[k].clone()),
            training_loss: self.losses.as_ref().map(|losses| losses[k]),
            ..ClientMessage::new(Case::sender(k), *weight, body.clone())
        })
        .collect()
    }

    pub(crate) fn inbox(&self) -> Box<dyn AnyInbox> {
        let inbox = self.of.inbox(self.mail());
        inbox.expect("the kit makes legal inboxes")
    }
}

/// A pool that the kit can make samples of.
pub trait PoolSample: Pool {
    /// The pool, owned.
    type Owned: Borrow<Self>;

    /// Draws a pool of size `n`.
    fn invent(n: usize, draws: &mut Draws) -> Self::Owned;

    /// The size of the smallest legal pool.
    const SMALLEST: usize;

    /// Returns the same pool before any request.
    fn unknown(pool: &Self::Owned) -> Self::Owned;

    /// Returns the size of the pool.
    fn size(pool: &Self::Owned) -> usize;

    /// Copies the statistic that `poll` requests from `pool` to `known`.
    fn tell(_known: &mut Self::Owned, _pool: &Self::Owned, _poll: &ClientStatQuery) {}
}

impl PoolSample for Roster {
    type Owned = Vec<Candidate>;
    /// A run has clients.
    const SMALLEST: usize = 1;

    fn invent(n: usize, draws: &mut Draws) -> Self::Owned {
        (0..n)
            .map(|k| Candidate {
                id: Case::sender(k),
                samples: Some(draws.below(200) as u64),
                loss: Some(draws.uniform()),
            })
            .collect()
    }

    fn unknown(pool: &Self::Owned) -> Self::Owned {
        pool.iter().map(|c| Candidate::new(c.id)).collect()
    }

    fn size(pool: &Self::Owned) -> usize {
        pool.len()
    }

    fn tell(known: &mut Self::Owned, pool: &Self::Owned, poll: &ClientStatQuery) {
        for at in &poll.of {
            match poll.wanted {
                ClientStat::Samples => known[*at].samples = pool[*at].samples,
                ClientStat::Loss => known[*at].loss = pool[*at].loss,
            }
        }
    }
}

impl PoolSample for Samples {
    type Owned = Samples;
    /// Filters may have removed everything before.
    const SMALLEST: usize = 0;

    fn invent(n: usize, draws: &mut Draws) -> Self::Owned {
        let values = Array2::from_shape_simple_fn((n, 4), || draws.normal() as f32);
        Samples::fresh(values, vec![4]).expect("four values a row")
    }

    fn unknown(pool: &Samples) -> Samples {
        pool.clone()
    }

    fn size(pool: &Samples) -> usize {
        pool.len()
    }
}

impl PoolSample for SoftLabels {
    type Owned = SoftLabels;
    /// No client may have answered.
    const SMALLEST: usize = 0;

    fn invent(n: usize, draws: &mut Draws) -> Self::Owned {
        let sharpness = 4.0 * draws.uniform();
        let shape = (n, 1 + draws.below(5));
        let scores = Array2::from_shape_simple_fn(shape, || (sharpness * draws.normal()) as f32);
        SoftLabels::of_scores((0..n as u32).map(|i| 2 * i).collect(), scores.view())
    }

    fn unknown(pool: &SoftLabels) -> SoftLabels {
        pool.clone()
    }

    fn size(pool: &SoftLabels) -> usize {
        pool.rows.len()
    }
}
