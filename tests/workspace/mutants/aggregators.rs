//! Flawed aggregators.

use super::Mutant;
use fl_conformance::check;
use fl_core::AnyAggregator;
use fl_core::prelude::*;
use ndarray::ArrayD;
use std::sync::atomic::{AtomicU32, Ordering};

type BoxedFold = Box<dyn Fold<Params, Params>>;

/// An aggregator made of functions.
#[derive(Clone)]
struct Made {
    combine: fn(&Inbox<Params>) -> Params,
    fold: Option<fn() -> BoxedFold>,
    claims: Properties,
}

impl Aggregator for Made {
    type In = Params;
    type Out = Params;
    fn aggregate(&mut self, _: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        Ok((self.combine)(inbox))
    }
    fn fold(&self, _: &Round) -> Option<BoxedFold> {
        self.fold.map(|fold| fold())
    }
    fn claims(&self) -> Properties {
        self.claims
    }
}

/// Adds up; what it holds of the earlier rounds is in no state.
#[derive(Default)]
struct Counts(f32);

impl Aggregator for Counts {
    type In = Params;
    type Out = Params;
    fn aggregate(&mut self, _: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        self.0 += 1.0;
        Ok(sum(inbox, |_| f64::from(self.0)))
    }
}

/// The mean times the number of the round; whether what is folded counts too is its flaw.
struct Grows {
    rounds: u32,
    updates: bool,
}

impl Grows {
    fn next(&mut self, mut mean: Params) -> Params {
        self.rounds += 1;
        mean.scale(f64::from(self.rounds));
        mean
    }
}

impl Aggregator for Grows {
    type In = Params;
    type Out = Params;
    fn aggregate(&mut self, _: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        Ok(self.next(mean(inbox)))
    }
    fn fold(&self, _: &Round) -> Option<BoxedFold> {
        Some(collects(|mail| Ok(mean(&Inbox::new(mail)?))))
    }
    fn update(&mut self, _: &Round, mean: Params) -> Result<Params> {
        Ok(if self.updates { self.next(mean) } else { mean })
    }
    fn save(&self) -> Vec<u8> {
        self.rounds.to_le_bytes().to_vec()
    }
    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.rounds = u32::from_le_bytes(state.try_into().context("four bytes")?);
        Ok(())
    }
}

fn sum(inbox: &Inbox<Params>, weight: impl Fn(&ClientMessage<Params>) -> f64) -> Params {
    let first = &inbox.iter().next().expect("an inbox is never empty").body;
    let tensors = first.0.iter().map(|(name, tensor)| {
        let mut out = ArrayD::<f64>::zeros(tensor.raw_dim());
        for mail in inbox.iter() {
            out.scaled_add(weight(mail), &mail.body.0[name].mapv(f64::from));
        }
        (name.clone(), out.mapv(|v| v as f32))
    });
    Params(tensors.collect())
}

fn mean(inbox: &Inbox<Params>) -> Params {
    let total = inbox.total_weight();
    sum(inbox, |mail| mail.weight / total)
}

/// Collects all mail, and combines it in the end.
struct Collects {
    mail: Vec<ClientMessage<Params>>,
    combine: fn(Vec<ClientMessage<Params>>) -> Result<Params>,
}

impl Fold<Params, Params> for Collects {
    fn add(&mut self, mail: ClientMessage<Params>) -> Result<()> {
        self.mail.push(mail);
        Ok(())
    }
    fn finish(self: Box<Self>) -> Result<Params> {
        (self.combine)(self.mail)
    }
}

fn collects(combine: fn(Vec<ClientMessage<Params>>) -> Result<Params>) -> BoxedFold {
    Box::new(Collects {
        mail: Vec::new(),
        combine,
    })
}

static CALLS: AtomicU32 = AtomicU32::new(0);

pub fn all() -> Vec<Mutant> {
    let none = Properties::default();
    let honest = Properties {
        order_free: true,
        weight_scale_free: true,
        within_hull: true,
        of_mean: true,
        ..none
    };
    let made = |combine, claims| Made {
        combine,
        fold: None,
        claims,
    };
    let folds = |fold| Made {
        fold: Some(fold),
        ..made(mean, none)
    };
    let kit = |part: Made| check::aggregator(&|| <dyn AnyAggregator>::of(part.clone()));
    vec![
        (
            "without a flaw",
            None,
            kit(Made {
                fold: Some(|| collects(|mail| Ok(mean(&Inbox::new(mail)?)))),
                ..made(mean, honest)
            }),
        ),
        (
            "a sum that claims the hull",
            Some("claims within_hull"),
            kit(made(
                |inbox| sum(inbox, |_| 1.0),
                Properties {
                    within_hull: true,
                    ..none
                },
            )),
        ),
        (
            "the first wins, order-free",
            Some("claims order_free"),
            kit(made(
                |inbox| inbox.iter().next().expect("never empty").body.clone(),
                Properties {
                    order_free: true,
                    ..none
                },
            )),
        ),
        (
            "weights that do not add up to 1",
            Some("claims weight_scale_free"),
            kit(made(
                |inbox| sum(inbox, |mail| mail.weight),
                Properties {
                    weight_scale_free: true,
                    ..none
                },
            )),
        ),
        (
            "weights count, weight-free",
            Some("claims weight_free"),
            kit(made(
                mean,
                Properties {
                    weight_free: true,
                    ..none
                },
            )),
        ),
        (
            "the first wins, of the mean",
            Some("claims of_mean"),
            kit(made(
                |inbox| inbox.iter().next().expect("never empty").body.clone(),
                Properties {
                    of_mean: true,
                    ..none
                },
            )),
        ),
        (
            "a counter in no state",
            Some("state survives save and load"),
            check::aggregator(&|| <dyn AnyAggregator>::of(Counts::default())),
        ),
        (
            "a counter of the process",
            Some("same inbox, same bits"),
            kit(made(
                |inbox| sum(inbox, |_| f64::from(CALLS.fetch_add(1, Ordering::Relaxed))),
                none,
            )),
        ),
        (
            "a trim that leaves nothing of one client",
            Some("never fails on a legal inbox"),
            kit(made(
                |inbox| {
                    inbox.per_coordinate(|values| {
                        values.sort_by(f32::total_cmp);
                        let kept = &values[1..values.len() - 1];
                        kept.iter().sum::<f32>() / kept.len() as f32
                    })
                },
                none,
            )),
        ),
        (
            "clients taken for positions",
            Some("never fails on a legal inbox"),
            kit(made(
                |inbox| {
                    let all: Vec<_> = inbox.iter().collect();
                    all[all[0].from as usize].body.clone()
                },
                none,
            )),
        ),
        (
            "nothing divided by nothing",
            Some("gives a sane message"),
            kit(made(
                |inbox| {
                    sum(inbox, |mail| {
                        mail.weight / (mail.weight - mail.weight.floor())
                    })
                },
                none,
            )),
        ),
        (
            "a fold in f32",
            Some("folds to the same bits, round after round"),
            kit(folds(|| {
                collects(|mail| {
                    let total: f64 = mail.iter().map(|m| m.weight).sum();
                    let scaled = mail.iter().map(|m| {
                        Params(
                            m.body
                                .0
                                .iter()
                                .map(|(k, v)| (k.clone(), v * (m.weight / total) as f32))
                                .collect(),
                        )
                    });
                    let sum = scaled.map(Ok).reduce(|a, b| a?.zip(&b?, |x, y| x + y));
                    sum.context("no mail")?
                })
            })),
        ),
        (
            "a fold that counts",
            None,
            check::aggregator(&|| {
                <dyn AnyAggregator>::of(Grows {
                    rounds: 0,
                    updates: true,
                })
            }),
        ),
        (
            "a fold that counts no rounds",
            Some("folds to the same bits, round after round"),
            check::aggregator(&|| {
                <dyn AnyAggregator>::of(Grows {
                    rounds: 0,
                    updates: false,
                })
            }),
        ),
        (
            "another name for what it was sent",
            Some("keeps the names and shapes of its messages"),
            kit(made(
                |inbox| {
                    let named = |(name, tensor)| (format!("mean.{name}"), tensor);
                    Params(mean(inbox).0.into_iter().map(named).collect())
                },
                none,
            )),
        ),
        (
            "a fold in the wrong order",
            Some("folds to the same bits, round after round"),
            kit(folds(|| {
                collects(|mut mail| {
                    let ids: Vec<u32> = mail.iter().rev().map(|m| m.from).collect();
                    mail.iter_mut().zip(ids).for_each(|(m, id)| m.from = id);
                    Ok(mean(&Inbox::new(mail)?))
                })
            })),
        ),
    ]
}
