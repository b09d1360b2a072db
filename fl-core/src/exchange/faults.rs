//! What happens to clients on purpose, and what is done about answers that cannot be used.

use crate::message::{Message, Tensor, TensorMap};
use crate::settings::{Reader, Setting, Value, above};
use crate::{ClientId, Problem, Result, Stream};
use ndarray::{ArrayD, Axis, Slice};
use serde_json::json;
use std::ops::RangeInclusive;

crate::choices! {
    /// What to do with an answer that cannot be used.
    pub enum Fault {
        /// The run fails, naming client and reason.
        Fail = "fail",
        /// The answer is left out, and journal and report say so.
        Drop = "drop",
        /// The client is asked again, up to so many times, and answers as if for the first time; then its answer is left out.
        Retry(usize, in 1..=100) = "retry",
    }
}

crate::choices! {
    /// What is done when too few answers can be used.
    pub enum QuorumPolicy {
        /// The run stops.
        Stop = "stop",
        /// The round is done once more, with draws of its own, up to so many times; then the run stops. What clients have done
        /// and released in it stays done and released.
        Repeat(usize, in 1..=100) = "repeat",
    }
}

crate::choices! {
    /// What happens to a client.
    pub enum FaultKind {
        /// It is gone for this round: it does nothing, and answers no question.
        Crash = "crash",
        /// It does its work, but its answers come too late in this round.
        Straggle = "straggle",
        /// It never answers anything, in the whole run.
        NeverAnswers = "never-answers",
        /// The first number that it sends is none.
        Nan = "nan",
        /// Every number that it sends is 1e30 times as large.
        Huge = "huge",
        /// What it sends has one column, or one number, too few.
        Shape = "shape",
        /// It says that it has -1 examples.
        Weight = "weight",
    }
}

crate::settings! {
    /// Something that happens to clients, drawn from the run's seed.
    pub struct InjectedFault {
        /// What happens.
        what: FaultKind;
        /// To these clients: `5`, `0-3`, `[0, 2-4]`. All, if not given.
        clients: Option<IdRanges> = None;
        /// To each of them with this probability, drawn anew in every round, but for `never-answers`.
        share: f64 = 1.0, in 0.0..=1.0;
        /// In these rounds, written alike; in every step, if not given.
        rounds: Option<IdRanges> = None;
    }
}

crate::settings! {
    /// What to do with answers that cannot be used, and what happens to clients on purpose.
    pub struct Faults {
        /// When a client could not answer, or its model cannot be evaluated.
        on_error: Fault = Fault::Fail;
        /// When numbers are not finite.
        on_nan: Fault = Fault::Fail;
        /// When a message does not have the shape of what was sent, of the server's model or of the task.
        on_shape: Fault = Fault::Fail;
        /// When a weight is negative, not finite, or above `max-weight`.
        on_weight: Fault = Fault::Fail;
        /// The largest weight to believe.
        max_weight: f64 = 1e9, in above(0.0);
        /// The least number of usable answers to an exchange; if fewer clients are asked, all of
        /// theirs.
        min_answers: usize = 1, in 1.., was "at-least";
        /// What follows when there are fewer usable answers.
        if_too_few: QuorumPolicy = QuorumPolicy::Stop, was "below";
        /// Faults to inject, drawn from the run's seed, to see how the run copes.
        inject: Vec<InjectedFault> = Vec::new(), was "happen";
    }
}

impl Faults {
    /// May a client be asked the same question again?
    pub fn ask_again(&self) -> bool {
        let all = [
            &self.on_error,
            &self.on_nan,
            &self.on_shape,
            &self.on_weight,
        ];
        all.iter().any(|fault| matches!(fault, Fault::Retry(_)))
    }

    pub(crate) fn policy(&self, error: &anyhow::Error) -> &Fault {
        match error.downcast_ref::<Problem>() {
            Some(Problem::NotFinite { .. }) => &self.on_nan,
            Some(Problem::Shape(_)) => &self.on_shape,
            Some(Problem::Weight { .. }) => &self.on_weight,
            // a privacy refusal is the run's business, not one client's bad luck
            Some(Problem::Budget(_) | Problem::Unpriced(_)) => &Fault::Fail,
            // nor can one client be blamed where nothing says which of two is right
            Some(Problem::Disagree(_)) => &Fault::Fail,
            _ => &self.on_error,
        }
    }

    /// What happens to this client in a step that was `repeated` so often, when it has been asked so often before: what, and in
    /// which line of the spec. `draws` is the stream of all that happens.
    pub(crate) fn fate(
        &self,
        draws: &Stream,
        (step, round): (&str, usize),
        client: ClientId,
        (repeated, asked): (usize, usize),
    ) -> Option<FaultOutcome<'_>> {
        let among = |some: &Option<IdRanges>, n: u32| some.as_ref().is_none_or(|s| s.has(n));
        for (line, h) in self.inject.iter().enumerate() {
            if !among(&h.clients, client) || !among(&h.rounds, round as u32) {
                continue;
            }
            let of = draws.child("line", line as u64);
            let mut of = of.child("client", client.into());
            if h.what != FaultKind::NeverAnswers {
                of = of.child(step, repeated as u64).child("asked", asked as u64);
            }
            if of.draws().uniform() < h.share {
                let what = &h.what;
                return Some(FaultOutcome { what, line });
            }
        }
        None
    }
}

/// What happens to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultOutcome<'a> {
    pub what: &'a FaultKind,
    line: usize,
}

impl FaultOutcome<'_> {
    /// Does the client do nothing at all?
    pub fn absent(&self) -> bool {
        matches!(self.what, FaultKind::Crash | FaultKind::NeverAnswers)
    }

    /// Why there is no answer, if there is none.
    pub fn silence(&self) -> Option<Problem> {
        let what = match self.what {
            FaultKind::Crash => "it crashed",
            FaultKind::NeverAnswers => "it never answers",
            FaultKind::Straggle => "its answer came too late",
            _ => return None,
        };
        Some(Problem::Absent(format!(
            "{what} (faults.inject[{}])",
            self.line
        )))
    }

    /// What becomes of what it says.
    pub fn spoil<M: Message>(&self, message: M) -> Result<M> {
        let change: fn(Tensor) -> Tensor = match self.what {
            FaultKind::Nan => |t| numbers(t, |all, nan| all.iter().take(1).map(|_| nan).collect()),
            FaultKind::Huge => |t| numbers(t, |all, _| all.iter().map(|x| x * 1e30).collect()),
            FaultKind::Shape => narrower,
            _ => return Ok(message),
        };
        let owned = message.tensors().into_iter().map(|(name, view)| {
            let known = name == "rows" || name.starts_with('.');
            let tensor = view.to_tensor();
            (
                name.into_owned(),
                if known { tensor } else { change(tensor) },
            )
        });
        M::from_tensors(TensorMap::new(owned.collect()))
            .map_err(|error| anyhow::anyhow!(Problem::Shape(format!("{error:#}"))))
    }
}

/// Other numbers at the beginning of a tensor of floats: `change` is shown all of them, and a NaN.
fn numbers(tensor: Tensor, change: fn(&[f64], f64) -> Vec<f64>) -> Tensor {
    let mut tensor = tensor;
    match &mut tensor {
        Tensor::F32(a) => {
            let all: Vec<f64> = a.iter().map(|x| f64::from(*x)).collect();
            a.iter_mut()
                .zip(change(&all, f64::NAN))
                .for_each(|(x, y)| *x = y as f32);
        }
        Tensor::F64(a) => {
            let all: Vec<f64> = a.iter().copied().collect();
            a.iter_mut()
                .zip(change(&all, f64::NAN))
                .for_each(|(x, y)| *x = y);
        }
        Tensor::U32(_) | Tensor::U8(_) | Tensor::I64(_) | Tensor::Bits(_) => {}
    }
    tensor
}

/// One column less, or one number; what has none stays.
fn narrower(tensor: Tensor) -> Tensor {
    fn cut<T: Clone>(a: ArrayD<T>) -> ArrayD<T> {
        match a.ndim().checked_sub(1) {
            Some(last) if a.shape()[last] > 0 => {
                a.slice_axis(Axis(last), Slice::from(..-1)).to_owned()
            }
            _ => a,
        }
    }
    match tensor {
        Tensor::F32(a) => Tensor::F32(cut(a)),
        Tensor::F64(a) => Tensor::F64(cut(a)),
        Tensor::U32(a) => Tensor::U32(cut(a)),
        Tensor::I64(a) => Tensor::I64(cut(a)),
        bytes => bytes,
    }
}

/// Some of the whole numbers: `5`, `0-3`, `[0, 2-4]`.
#[derive(Clone, Debug, PartialEq)]
pub struct IdRanges(pub Vec<RangeInclusive<u32>>);

impl IdRanges {
    /// Is `n` among them?
    pub fn has(&self, n: u32) -> bool {
        self.0.iter().any(|range| range.contains(&n))
    }

    fn one(value: &Value) -> Option<RangeInclusive<u32>> {
        if let Some(n) = value.as_u64() {
            let n = n.try_into().ok()?;
            return Some(n..=n);
        }
        // digits only: no sign, no space
        let number = |text: &str| -> Option<u32> {
            let digits = text.chars().all(|c| c.is_ascii_digit());
            digits.then(|| text.parse().ok())?
        };
        let (first, last) = value.as_str()?.split_once('-')?;
        let range = number(first)?..=number(last)?;
        (!range.is_empty()).then_some(range)
    }

    /// As a setting has them; `None`: they are none.
    pub fn parse(value: &Value) -> Option<Self> {
        let ranges: Option<Vec<_>> = match value {
            Value::Sequence(items) => items.iter().map(Self::one).collect(),
            other => Self::one(other).map(|range| vec![range]),
        };
        ranges.filter(|ranges| !ranges.is_empty()).map(Self)
    }
}

impl Setting for IdRanges {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match Self::parse(value) {
            Some(numbers) => Some(numbers),
            None => reader.unlike(&Self::kind(), value),
        }
    }
    fn write(&self) -> Value {
        let one = |r: &RangeInclusive<u32>| match r.start() == r.end() {
            true => Value::from(*r.start()),
            false => format!("{}-{}", r.start(), r.end()).into(),
        };
        match self.0.as_slice() {
            [range] => one(range),
            ranges => ranges.iter().map(one).collect::<Vec<_>>().into(),
        }
    }
    fn schema() -> serde_json::Value {
        let one = json!([
            { "type": "integer", "minimum": 0, "maximum": u32::MAX },
            { "type": "string", "pattern": "^[0-9]+-[0-9]+$" },
        ]);
        json!({ "anyOf": [one[0], one[1], { "type": "array", "items": { "anyOf": one }, "minItems": 1 }] })
    }
    fn kind() -> String {
        "a whole number, a range or a list of them, such as 5, 0-3 or [0, 2-4]".into()
    }
}
