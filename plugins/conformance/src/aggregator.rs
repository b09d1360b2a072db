//! Checks of an aggregator and of its claims.

use crate::broken::{Broken, Held, must, none, run};
use crate::compare::{difference, digits};
use crate::sample::{CASES, Case, SampleMessages};
use fl_core::message::{self, Erased, MessageType, NamedTensors, View};
use fl_core::{AnyAggregator, ClientMessage, Executor, Round, Serial, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

const LEGAL: &str = "never fails on a legal inbox";
const SANE: &str = "gives a sane message";
const SAME: &str = "same inbox, same bits";
const EXECUTOR: &str = "same bits on any executor";
const OUTLINE: &str = "keeps the names and shapes of its messages";
const FOLD: &str = "folds to the same bits, round after round";
const STATE: &str = "state survives save and load";
const ORDER: &str = "claims order_free";
const SCALE: &str = "claims weight_scale_free";
const WEIGHT: &str = "claims weight_free";
const HULL: &str = "claims within_hull";
const OF_MEAN: &str = "claims of_mean";

/// The most attempts to draw a message with the names and shapes of another.
const ATTEMPTS: u64 = 64;

/// See [`crate::aggregator`].
///
/// # Errors
/// The first property that does not hold.
pub fn check(make: Make<'_>) -> Result<(), Broken> {
    (0..CASES).try_for_each(|number| {
        let case = Case::new(number);
        let part = make();
        let (of, needs) = (part.input(), part.needs());
        Bench {
            case,
            make,
            of,
            first: SampleMessages::new(of, &case, 1, needs),
            later: [2, 3].map(|round| SampleMessages::new(of, &case, round, needs)),
            sees: needs.sent,
        }
        .all()
    })
}

type Make<'a> = &'a dyn Fn() -> Box<dyn AnyAggregator>;

/// Returns the result of folding; `None` if the aggregator does not fold.
fn folded(
    part: &mut dyn AnyAggregator,
    round: &Round,
    mail: Vec<ClientMessage<Erased>>,
) -> fl_core::Result<Option<Erased>> {
    let Some(mut fold) = part.fold(round) else {
        return Ok(None);
    };
    mail.into_iter().try_for_each(|mail| fold.add(mail))?;
    part.update(round, fold.finish()?).map(Some)
}

struct Bench<'a> {
    case: Case,
    make: Make<'a>,
    /// The type of the clients' messages.
    of: &'static MessageType,
    first: SampleMessages,
    /// The messages of the rounds after the first.
    later: [SampleMessages; 2],
    /// Whether it requests the message sent to clients.
    sees: bool,
}

/// An executor that runs the last chunk first.
struct Backwards;

impl Executor for Backwards {
    fn chunks(&self, data: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let chunks: Vec<_> = data.chunks_mut(size).enumerate().collect();
        chunks
            .into_iter()
            .rev()
            .for_each(|(i, chunk)| work(i, chunk));
    }
}

impl Bench<'_> {
    fn all(&self) -> Held {
        let out = self.answer(LEGAL, &self.first)?;
        let place = self.case.place();
        message::check(&*out).map_err(|e| Broken::new(SANE, format!("{place}: {e:#}")))?;
        self.equal(SAME, &out, &self.answer(SAME, &self.first)?, 0.0)?;
        let mut backwards = self.round(1);
        backwards.exec = Arc::new(Backwards);
        let (mut part, inbox) = ((self.make)(), self.first.inbox());
        let other = run(EXECUTOR, &self.case.place(), || {
            part.aggregate(&backwards, &*inbox)
        })?;
        self.equal(EXECUTOR, &out, &other, 0.0)?;
        if out.kind() == self.of.kind {
            message::alike(&*self.first.bodies[0], &*out)
                .map_err(|e| Broken::new(OUTLINE, format!("{place}: {e:#}")))?;
        }
        self.rounds()?;
        self.claims(&out)
    }

    /// Returns a round of this number. The message sent to clients has the names and shapes of
    /// their answers, like a model and its trained version.
    fn round(&self, number: usize) -> Round {
        let stream = Stream::root(0).child("round", number as u64);
        let round = Round::new(
            format!("round {number}"),
            number,
            false,
            stream,
            Arc::new(Serial),
        );
        let answer = match number {
            1 => &self.first.bodies[0],
            n => &self.later[n - 2].bodies[0],
        };
        let stream = self.case.stream("sent").child("round", number as u64);
        let sent = |attempt: u64| {
            let mut draws = stream.child("attempt", attempt).draws();
            self.case.messages_of(self.of, &mut draws).swap_remove(0)
        };
        let alike = |sent: &Erased| message::alike(&**answer, &**sent).is_ok();
        if self.sees {
            let sent = (0..ATTEMPTS).map(sent).find(alike);
            round.showing_any(sent.unwrap_or_else(|| answer.clone()).into())
        } else {
            round
        }
    }

    /// Returns a new instance's result for these messages.
    fn answer(&self, property: &'static str, letters: &SampleMessages) -> Held<Erased> {
        let inbox = letters.inbox();
        run(property, &self.case.place(), || {
            (self.make)().aggregate(&self.round(1), &*inbox)
        })
    }

    fn equal(&self, property: &'static str, one: &Erased, other: &Erased, tolerance: f64) -> Held {
        let found = difference(&**one, &**other, tolerance);
        none(property, &self.case.place(), found)
    }

    /// Checks three rounds with one instance, with one that is saved and rebuilt after each round,
    /// and with one that folds.
    fn rounds(&self) -> Held {
        let place = self.case.place();
        let (mut kept, mut remade, mut folding) = ((self.make)(), (self.make)(), (self.make)());
        let rounds = [&self.first, &self.later[0], &self.later[1]];
        for (number, letters) in (1..).zip(rounds) {
            let (round, inbox) = (self.round(number), letters.inbox());
            let out = run(LEGAL, &place, || kept.aggregate(&round, &*inbox))?;
            let other = run(STATE, &place, || {
                let out = remade.aggregate(&round, &*inbox)?;
                let state = remade.save();
                remade = (self.make)();
                remade.load(&state)?;
                Ok(out)
            })?;
            self.equal(STATE, &out, &other, 0.0)?;
            let out_of_fold = run(FOLD, &place, || {
                let mut mail = letters.mail();
                mail.sort_by_key(|m| m.from);
                folded(&mut *folding, &round, mail)
            })?;
            if let Some(folded) = out_of_fold {
                self.equal(FOLD, &out, &folded, 0.0)?;
            }
        }
        Ok(())
    }

    fn claims(&self, out: &Erased) -> Held {
        let claims = (self.make)().claims();
        let all = self.first.bodies.iter().flat_map(|b| {
            b.content()
                .iter()
                .flat_map(|(_, v)| v.to_f64())
                .collect::<Vec<_>>()
        });
        let tolerance = 1e-5 * all.fold(1.0, |most: f64, x| most.max(x.abs()));
        if claims.order_free {
            let order = self
                .case
                .stream("order")
                .draws()
                .permutation(self.case.clients);
            self.equal(
                ORDER,
                out,
                &self.answer(ORDER, &self.first.permuted(&order))?,
                tolerance,
            )?;
        }
        if claims.weight_scale_free {
            for factor in [7.0, 1.0 / 3.0] {
                let scaled = self.first.weighed(|w| factor * w);
                self.equal(SCALE, out, &self.answer(SCALE, &scaled)?, tolerance)?;
            }
        }
        if claims.weight_free {
            let others = self.first.weighed(|w| if w > 2.0 { 0.5 } else { 9.0 });
            self.equal(WEIGHT, out, &self.answer(WEIGHT, &others)?, 0.0)?;
        }
        if claims.of_mean {
            let mean = self.first.mean(!claims.weight_free);
            let mean = run(OF_MEAN, &self.case.place(), || mean)?;
            self.equal(OF_MEAN, out, &self.answer(OF_MEAN, &mean)?, tolerance)?;
        }
        if claims.within_hull {
            self.hull(out)
        } else {
            Ok(())
        }
    }

    /// Checks that every number lies between the smallest and the largest sent for its coordinate;
    /// a row-keyed message's coordinate is its row's id.
    fn hull(&self, out: &Erased) -> Held {
        let mut sent: BTreeMap<(String, u32, usize), (f64, f64)> = BTreeMap::new();
        for body in &self.first.bodies {
            for (place, x) in places(&body.content()) {
                let (low, high) = sent.entry(place).or_insert((x, x));
                *low = low.min(x);
                *high = high.max(x);
            }
        }
        for (place, x) in places(&out.content()) {
            let (name, row, at) = &place;
            let spot = || format!("number {at} of row {row} of `{name}`");
            let Some((low, high)) = sent.get(&place) else {
                let found = format!(
                    "{} is {}, and no client sent anything there ({})",
                    spot(),
                    digits(x),
                    self.case.place()
                );
                return Err(Broken::new(HULL, found));
            };
            let slack = 1e-5 * low.abs().max(high.abs());
            must(HULL, low - slack <= x && x <= high + slack, || {
                format!(
                    "{} is {}, sent were {}..{} ({})",
                    spot(),
                    digits(x),
                    digits(*low),
                    digits(*high),
                    self.case.place()
                )
            })?;
        }
        Ok(())
    }
}

/// Returns floats by tensor, row id (0 without ids) and position in the row.
fn places(tensors: &NamedTensors<'_>) -> Vec<((String, u32, usize), f64)> {
    let rows = tensors
        .iter()
        .find(|(name, _)| name == "rows")
        .map(|(_, view)| view.to_f64());
    let floats = tensors
        .iter()
        .filter(|(_, v)| matches!(v, View::F32(_) | View::F64(_)));
    let mut out = Vec::new();
    for (name, view) in floats {
        let values = view.to_f64();
        let width = rows
            .as_ref()
            .map_or(values.len(), |rows| values.len() / rows.len().max(1))
            .max(1);
        for (i, x) in values.into_iter().enumerate() {
            let row = rows.as_ref().map_or(0, |rows| rows[i / width] as u32);
            out.push(((name.to_string(), row, i % width), x));
        }
    }
    out
}
