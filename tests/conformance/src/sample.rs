//! Legal input that the kit makes up.

use fl_core::message::{
    ClassMeans, Counts, Ids, Logits, Message, Params, Scalar, SoftLabels, VoteSensitivity, Votes,
};
use fl_core::{
    Candidate, ClientId, Draws, Inbox, Mail, Poll, Pool, Roster, Samples, Stream, Wanted,
};
use ndarray::{Array2, ArrayD};
use std::borrow::Borrow;

/// How many cases every property is tried on.
pub(crate) const CASES: u64 = 20;

/// What the numbers of a case are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Standard normal.
    Plain,
    /// Every client sends the same.
    Equal,
    /// Ordinary or 2^57 of either sign: sums cancel, so that another order shows in their bits even in `f64`.
    Wild,
    /// Around 1e30: a client that diverged, but not to infinity.
    Huge,
    /// All 0.
    Zero,
}

impl Values {
    /// One number.
    pub fn draw(self, draws: &mut Draws) -> f32 {
        let normal = draws.normal();
        (match self {
            Self::Plain | Self::Equal => normal,
            Self::Wild if draws.below(2) == 0 => normal.signum() * 57f64.exp2(),
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
    /// How many clients answer.
    pub clients: usize,
    /// What the numbers are like.
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

    /// The clients of an inbox: neither from 0 nor without gaps, as in a round that only a cohort answers.
    pub(crate) fn sender(k: usize) -> ClientId {
        3 + 7 * k as ClientId
    }
}

/// A message that the kit can make up.
pub trait Sample: Message {
    /// One message for each of `case.clients`, legal and alike: of tensors of odd shapes, and, for messages that are
    /// keyed by rows, about different samples.
    fn samples(case: &Case, draws: &mut Draws) -> Vec<Self>;

    /// Can one unit of data turn any such message into any other? Then the kit searches for the two that are furthest
    /// apart. Counts of votes say themselves how far they reach.
    const ANY: bool = true;

    /// How many classes a sender of this message can count examples of.
    fn classes(&self) -> usize {
        3
    }
}

impl Sample for Params {
    fn samples(case: &Case, draws: &mut Draws) -> Vec<Self> {
        let outlines: [&[(&str, &[usize])]; 5] = [
            &[("w", &[1])],
            &[("bias", &[3]), ("weight", &[2, 3])],
            &[
                ("conv.weight", &[2, 1, 3, 3]),
                ("norm.running_mean", &[2]),
                ("scale", &[]),
            ],
            &[("none", &[0]), ("w", &[4, 0, 2]), ("x", &[5, 1])],
            &[("a", &[7]), ("b", &[1, 1, 1]), ("c", &[13])],
        ];
        let outline = outlines[draws.below(outlines.len())];
        each(case, |_| {
            let tensors = outline.iter().map(|(name, shape)| {
                let tensor = ArrayD::from_shape_simple_fn(*shape, || case.values.draw(draws));
                (name.to_string(), tensor)
            });
            Self(tensors.collect())
        })
    }
}

/// The samples that a question is about, and which of them each client speaks about: all, or, in most cases, some.
fn spoken(case: &Case, draws: &mut Draws) -> Vec<Vec<u32>> {
    let (n, ragged) = (1 + draws.below(12), draws.below(3) > 0);
    let asked: Vec<u32> = draws
        .choose(40, n)
        .into_iter()
        .map(|id| id as u32)
        .collect();
    let mut some = || {
        let spoken = asked.iter().filter(|_| !ragged || draws.below(5) < 3);
        spoken.copied().collect()
    };
    (0..case.clients).map(|_| some()).collect()
}

impl Sample for Logits {
    fn samples(case: &Case, draws: &mut Draws) -> Vec<Self> {
        let (spoken, classes) = (spoken(case, draws), 1 + draws.below(5));
        each(case, |k| {
            let shape = (spoken[k].len(), classes);
            let values = Array2::from_shape_simple_fn(shape, || case.values.draw(draws));
            Self::new(spoken[k].clone(), values)
        })
    }
    fn classes(&self) -> usize {
        self.values.ncols()
    }
}

/// Not always probabilities: noise may have been there before.
impl Sample for SoftLabels {
    fn samples(case: &Case, draws: &mut Draws) -> Vec<Self> {
        let alike = Logits::samples(case, draws).into_iter();
        alike.map(|z| Self::new(z.rows, z.values)).collect()
    }
    fn classes(&self) -> usize {
        self.values.ncols()
    }
}

impl Sample for ClassMeans {
    fn samples(case: &Case, draws: &mut Draws) -> Vec<Self> {
        let classes = 1 + draws.below(5);
        each(case, |_| {
            let rows: Vec<u32> = (0..classes as u32).filter(|_| draws.below(3) > 0).collect();
            let shape = (rows.len(), classes);
            let values = Array2::from_shape_simple_fn(shape, || case.values.draw(draws));
            Self::new(rows, values)
        })
    }
    fn classes(&self) -> usize {
        self.values.ncols()
    }
}

impl Sample for Votes {
    fn samples(case: &Case, draws: &mut Draws) -> Vec<Self> {
        let (spoken, classes, voters) =
            (spoken(case, draws), 1 + draws.below(5), 1 + draws.below(3));
        each(case, |k| {
            let shape = (spoken[k].len(), voters);
            let labels = Array2::from_shape_simple_fn(shape, || draws.below(classes) as u32);
            Self::new(spoken[k].clone(), labels, classes)
        })
    }
    fn classes(&self) -> usize {
        Votes::classes(self)
    }
}

impl Sample for Counts {
    fn samples(case: &Case, draws: &mut Draws) -> Vec<Self> {
        let (spoken, classes) = (spoken(case, draws), 1 + draws.below(5));
        each(case, |k| {
            let shape = (spoken[k].len(), classes);
            let values = Array2::from_shape_simple_fn(shape, || draws.below(30) as f64);
            let mut counts = Self::new(spoken[k].clone(), values);
            counts.set_sensitivity(VoteSensitivity {
                example: Some(1),
                party: Some(1),
                from_data: false,
            });
            counts
        })
    }
    const ANY: bool = false;
    fn classes(&self) -> usize {
        self.values.ncols()
    }
}

/// The positions of a client's examples.
impl Sample for Ids {
    fn samples(case: &Case, draws: &mut Draws) -> Vec<Self> {
        each(case, |_| Self((0..1 + draws.below(40) as u32).collect()))
    }
}

impl Sample for Scalar {
    fn samples(case: &Case, draws: &mut Draws) -> Vec<Self> {
        each(case, |_| Self::new(case.values.draw(draws)))
    }
}

fn each<M: Clone>(case: &Case, mut make: impl FnMut(usize) -> M) -> Vec<M> {
    if case.values == Values::Equal {
        return vec![make(0); case.clients];
    }
    (0..case.clients).map(make).collect()
}

/// Everything that an inbox is made of, so that it can be made anew with something changed.
#[derive(Clone, Debug)]
pub(crate) struct Letters<M> {
    pub(crate) bodies: Vec<M>,
    pub(crate) weights: Vec<f64>,
    pub(crate) counts: Option<Vec<Vec<u32>>>,
}

impl<M: Sample> Letters<M> {
    /// Weights are whole, broken or 0; in every fourth case all are 1. Class counts come if they are needed; some
    /// classes nobody has, some clients have nothing.
    pub(crate) fn new(case: &Case, round: u64, needs: fl_core::Needs) -> Self {
        let mut draws = case.stream("letters").child("round", round).draws();
        let bodies = M::samples(case, &mut draws);
        let classes = bodies[0].classes();
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
        Self {
            bodies,
            weights,
            counts,
        }
    }

    /// Deals the letters out anew: sender `k` sends what sender `order[k]` sent.
    pub(crate) fn permuted(&self, order: &[usize]) -> Self {
        Self {
            bodies: order.iter().map(|k| self.bodies[*k].clone()).collect(),
            weights: order.iter().map(|k| self.weights[*k]).collect(),
            counts: self
                .counts
                .as_ref()
                .map(|c| order.iter().map(|k| c[*k].clone()).collect()),
        }
    }

    pub(crate) fn weighed(&self, weights: impl Fn(f64) -> f64) -> Self {
        Self {
            weights: self.weights.iter().map(|w| weights(*w)).collect(),
            ..self.clone()
        }
    }

    pub(crate) fn mail(&self) -> Vec<Mail<M>> {
        let mail = self.bodies.iter().zip(&self.weights).enumerate();
        mail.map(|(k, (body, weight))| Mail {
            class_counts: self.counts.as_ref().map(|c| c[k].clone()),
            ..Mail::new(Case::sender(k), *weight, body.clone())
        })
        .collect()
    }

    pub(crate) fn inbox(&self) -> Inbox<M> {
        Inbox::new(self.mail()).expect("the kit makes legal inboxes")
    }
}

/// A pool that the kit can make up.
pub trait PoolSample: Pool {
    /// The pool, owned.
    type Owned: Borrow<Self>;

    /// `n` to choose from.
    fn invent(n: usize, draws: &mut Draws) -> Self::Owned;

    /// The smallest pool that is legal.
    const SMALLEST: usize;

    /// The same pool before anything was asked.
    fn unknown(pool: &Self::Owned) -> Self::Owned;

    /// How many there are to choose from.
    fn size(pool: &Self::Owned) -> usize;

    /// Tells in `known` what `poll` wants to know of `pool`.
    fn tell(_known: &mut Self::Owned, _pool: &Self::Owned, _poll: &Poll) {}
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

    fn tell(known: &mut Self::Owned, pool: &Self::Owned, poll: &Poll) {
        for at in &poll.of {
            match poll.wanted {
                Wanted::Samples => known[*at].samples = pool[*at].samples,
                Wanted::Loss => known[*at].loss = pool[*at].loss,
            }
        }
    }
}

impl PoolSample for Samples {
    type Owned = Samples;
    /// Everything may have been filtered out before.
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
    /// Nobody may have spoken.
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
