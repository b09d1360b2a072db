//! What an aggregator must do, and what it may claim.

use crate::broken::{Broken, Held, must, run};
use crate::compare::{apart_tensors, digits, numbers};
use crate::sample::{CASES, Case, Letters};
use fl_core::message::{self, Message, Named, Parcel, Tensor, View};
use fl_core::{BoxedAggregator, Claims, Executor, Inbox, Mail, Needs, Round, Serial, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

const LEGAL: &str = "never fails on a legal inbox";
const SANE: &str = "gives a sane message";
const SAME: &str = "same inbox, same bits";
const EXECUTOR: &str = "same bits on any executor";
const OUTLINE: &str = "gives what it was sent, in names and shapes";
const FOLD: &str = "folds to the same bits, round after round";
const STATE: &str = "state survives save and load";
const ORDER: &str = "claims order_free";
const SCALE: &str = "claims weight_scale_free";
const WEIGHT: &str = "claims weight_free";
const HULL: &str = "claims within_hull";

/// Messages that are made up before one must have the names and shapes of another.
const ATTEMPTS: u64 = 64;

/// See [`crate::aggregator`].
///
/// # Errors
/// The first property that does not hold.
pub fn check<I: Message, O: Message>(
    make: &dyn Fn() -> BoxedAggregator<I, O>,
) -> Result<(), Broken> {
    all(&|| Box::new(make()) as Box<dyn Tried<I>>)
}

/// An aggregator of which nobody needs to know what comes out: with that, everything here would be compiled for every pair of
/// messages instead of for every message.
trait Tried<I> {
    fn needs(&self) -> Needs;
    fn claims(&self) -> Claims;
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<I>) -> fl_core::Result<Answer>;
    /// What folding gives; `None` if it does not fold.
    fn fold(&mut self, round: &Round, mail: Vec<Mail<I>>) -> fl_core::Result<Option<Answer>>;
    fn save(&self) -> Vec<u8>;
    fn load(&mut self, state: &[u8]) -> fl_core::Result<()>;
}

impl<I: Message, O: Message> Tried<I> for BoxedAggregator<I, O> {
    fn needs(&self) -> Needs {
        (**self).needs()
    }
    fn claims(&self) -> Claims {
        (**self).claims()
    }
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<I>) -> fl_core::Result<Answer> {
        Ok(Answer::new(&(**self).aggregate(round, inbox)?))
    }
    fn fold(&mut self, round: &Round, mail: Vec<Mail<I>>) -> fl_core::Result<Option<Answer>> {
        let Some(mut fold) = (**self).fold(round) else {
            return Ok(None);
        };
        mail.into_iter().try_for_each(|mail| fold.add(mail))?;
        let folded = self.update(round, fold.finish()?)?;
        Ok(Some(Answer::new(&folded)))
    }
    fn save(&self) -> Vec<u8> {
        (**self).save()
    }
    fn load(&mut self, state: &[u8]) -> fl_core::Result<()> {
        (**self).load(state)
    }
}

/// What came out.
struct Answer {
    kind: &'static str,
    tensors: Vec<(String, Tensor)>,
    /// Is it what such a message may be?
    sane: fl_core::Result<()>,
}

impl Answer {
    fn new<O: Message>(out: &O) -> Self {
        let tensors = out.tensors().into_iter();
        Self {
            kind: O::KIND,
            tensors: tensors
                .map(|(n, view)| (n.into(), view.to_tensor()))
                .collect(),
            sane: message::check(out),
        }
    }

    fn named(&self) -> Named<'_> {
        let each = self.tensors.iter();
        each.map(|(name, tensor)| (name.as_str().into(), tensor.view()))
            .collect()
    }
}

fn all<I: Message>(make: Make<'_, I>) -> Result<(), Broken> {
    (0..CASES).try_for_each(|number| {
        let case = Case::new(number);
        let needs = make().needs();
        Bench {
            case,
            make,
            first: Letters::new(&case, 1, needs),
            later: [2, 3].map(|round| Letters::new(&case, round, needs)),
            sees: needs.sent,
        }
        .all()
    })
}

type Make<'a, I> = &'a dyn Fn() -> Box<dyn Tried<I>>;

struct Bench<'a, I> {
    case: Case,
    make: Make<'a, I>,
    first: Letters<I>,
    /// What is sent in the rounds after the first.
    later: [Letters<I>; 2],
    /// Does it want to see what the clients were sent?
    sees: bool,
}

/// The last chunk first.
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

impl<I: Message> Bench<'_, I> {
    fn all(&self) -> Held {
        let out = self.answer(LEGAL, &self.first)?;
        let place = self.case.place();
        must(SANE, out.sane.is_ok(), || {
            let why = out.sane.as_ref().err();
            format!("{place}: {:#}", why.expect("it is not sane"))
        })?;
        self.equal(SAME, &out, &self.answer(SAME, &self.first)?, 0.0)?;
        let mut backwards = self.round(1);
        backwards.exec = Arc::new(Backwards);
        let (mut part, inbox) = ((self.make)(), self.first.inbox());
        let other = run(EXECUTOR, &self.case.place(), || {
            part.aggregate(&backwards, &inbox)
        })?;
        self.equal(EXECUTOR, &out, &other, 0.0)?;
        if out.kind == I::KIND {
            let alike = |out| message::alike(&self.first.bodies[0], &out);
            let out = I::from_tensors(Parcel::new(out.tensors.clone()));
            out.and_then(alike)
                .map_err(|e| Broken::new(OUTLINE, format!("{place}: {e:#}")))?;
        }
        self.rounds()?;
        self.claims(&out)
    }

    /// A round of this number, in which clients were sent what has the names and shapes of their answers, as a model and
    /// what training makes of it have.
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
            self.case.messages::<I>(&mut draws).swap_remove(0)
        };
        let alike = |sent: &I| message::alike(answer, sent).is_ok();
        match self.sees {
            true => round.showing(
                (0..ATTEMPTS)
                    .map(sent)
                    .find(alike)
                    .unwrap_or(answer.clone()),
            ),
            false => round,
        }
    }

    /// What a new instance makes of these letters.
    fn answer(&self, property: &'static str, letters: &Letters<I>) -> Held<Answer> {
        let inbox = letters.inbox();
        run(property, &self.case.place(), || {
            (self.make)().aggregate(&self.round(1), &inbox)
        })
    }

    fn equal(&self, property: &'static str, one: &Answer, other: &Answer, tolerance: f64) -> Held {
        match apart_tensors(&one.named(), &other.named(), tolerance) {
            Some(found) => Err(Broken::new(
                property,
                format!("{found} ({})", self.case.place()),
            )),
            None => Ok(()),
        }
    }

    /// Three rounds with one instance, with one that is saved and made anew after each round, and with one that folds.
    fn rounds(&self) -> Held {
        let place = self.case.place();
        let (mut kept, mut remade, mut folding) = ((self.make)(), (self.make)(), (self.make)());
        let rounds = [&self.first, &self.later[0], &self.later[1]];
        for (number, letters) in (1..).zip(rounds) {
            let (round, inbox) = (self.round(number), letters.inbox());
            let out = run(LEGAL, &place, || kept.aggregate(&round, &inbox))?;
            let other = run(STATE, &place, || {
                let out = remade.aggregate(&round, &inbox)?;
                let state = remade.save();
                remade = (self.make)();
                remade.load(&state)?;
                Ok(out)
            })?;
            self.equal(STATE, &out, &other, 0.0)?;
            let folded = run(FOLD, &place, || {
                let mut mail = letters.mail();
                mail.sort_by_key(|m| m.from);
                folding.fold(&round, mail)
            })?;
            if let Some(folded) = folded {
                self.equal(FOLD, &out, &folded, 0.0)?;
            }
        }
        Ok(())
    }

    fn claims(&self, out: &Answer) -> Held {
        let claims = (self.make)().claims();
        let all = self.first.bodies.iter().flat_map(|b| {
            b.tensors()
                .iter()
                .flat_map(|(_, v)| numbers(v))
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
        if claims.within_hull {
            self.hull(out)
        } else {
            Ok(())
        }
    }

    /// Every number between the smallest and the largest sent for its place; the place of a keyed message is its row's id.
    fn hull(&self, out: &Answer) -> Held {
        let mut sent: BTreeMap<(String, u32, usize), (f64, f64)> = BTreeMap::new();
        for body in &self.first.bodies {
            for (place, x) in places(&body.tensors()) {
                let (low, high) = sent.entry(place).or_insert((x, x));
                *low = low.min(x);
                *high = high.max(x);
            }
        }
        for (place, x) in places(&out.named()) {
            let (name, row, at) = &place;
            let spot = || format!("number {at} of row {row} of `{name}`");
            let Some((low, high)) = sent.get(&place) else {
                let found = format!(
                    "{} is {}, and nobody sent anything there ({})",
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

/// Floats by tensor, row id (0 without ids) and position in the row.
fn places(tensors: &Named<'_>) -> Vec<((String, u32, usize), f64)> {
    let rows = tensors
        .iter()
        .find(|(name, _)| name == "rows")
        .map(|(_, view)| numbers(view));
    let floats = tensors
        .iter()
        .filter(|(_, v)| matches!(v, View::F32(_) | View::F64(_)));
    let mut out = Vec::new();
    for (name, view) in floats {
        let values = numbers(view);
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
