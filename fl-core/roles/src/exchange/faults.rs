//! [`Faults`]: faults injected into clients, and the policy for unusable answers.

use crate::message::{
    Column, Dtype, Erased, Message as _, MessageType, Nothing, Tensor, TensorMap, message_type,
};
use crate::settings::{Range, Reader, Setting, Value, ValueType, above};
use crate::{ClientId, Problem, Result, Stream};
use ndarray::{ArrayD, Axis, Slice};
use std::ops::RangeInclusive;

crate::choices! {
    /// The policy for an unusable answer.
    pub enum Fault {
        /// The run fails with the client and the reason.
        Fail = "fail",
        /// The answer is dropped; the journal and the report record it.
        Drop = "drop",
        /// The server repeats the request up to this many times, then drops the answer. The client
        /// answers each time as if for the first time.
        Retry(usize, in 1..=100) = "retry",
    }
}

crate::choices! {
    /// The policy for too few usable answers.
    pub enum QuorumPolicy {
        /// The run stops.
        Stop = "stop",
        /// The round is repeated with new random draws up to this many times, then the run stops.
        /// Clients' training and releases in the failed attempts stay in effect.
        Repeat(usize, in 1..=100) = "repeat",
    }
}

impl QuorumPolicy {
    /// Returns how many times a round may be repeated.
    pub fn repeats(&self) -> usize {
        match self {
            Self::Stop => 0,
            Self::Repeat(times) => *times,
        }
    }
}

crate::choices! {
    /// A fault injected into a client.
    pub enum FaultKind {
        /// The client is absent for this round: it does nothing and answers no request.
        Crash = "crash",
        /// The client does its work, but its answers arrive too late in this round.
        Straggle = "straggle",
        /// The client answers no request in the whole run.
        NeverAnswers = "never-answers",
        /// The first number of each tensor of floats that it sends is NaN.
        Nan = "nan",
        /// Every float that it sends is multiplied by 1e30.
        Huge = "huge",
        /// Each tensor of numbers that it sends lacks one column, or one number. Whole models and
        /// packed bits stay as they are.
        Shape = "shape",
        /// It reports -1 examples.
        Weight = "weight",
    }
}

impl FaultKind {
    /// Returns whether it can change an answer of this type. An answer without declared tensors is
    /// taken to have some.
    pub fn changes(&self, answer: &MessageType) -> bool {
        let spoils = |dtype: Dtype| match self {
            Self::Nan | Self::Huge => matches!(dtype, Dtype::F32 | Dtype::F64),
            Self::Shape => !matches!(dtype, Dtype::U8 | Dtype::Bits),
            Self::Crash | Self::Straggle | Self::NeverAnswers | Self::Weight => true,
        };
        let spoils_one = |column: &Column| !is_about(column.name) && spoils(column.dtype);
        let mut fields = (answer.fields.iter()).filter_map(|(_, kind)| message_type(kind));
        match answer.columns {
            // only a fault that takes the answer away does something to an empty one
            [] if answer.kind == Nothing::KIND => spoils(Dtype::U8),
            [] => answer.fields.is_empty() || fields.any(|of| self.changes(of)),
            columns => columns.iter().any(spoils_one),
        }
    }
}

/// Whether a tensor says what the others are about, so that a fault leaves it as it is.
fn is_about(name: &str) -> bool {
    name == "rows" || name.starts_with('.')
}

crate::settings! {
    /// A fault injected into clients, drawn from the run's seed.
    pub struct InjectedFault {
        /// The kind of fault.
        what: FaultKind;
        /// The affected clients: `5`, `0-3`, `[0, 2-4]`. All clients if not given.
        clients: Option<IdRanges> = None;
        /// Probability of the fault for each client, drawn in every round, except for
        /// `never-answers`.
        share: f64 = 1.0, in 0.0..=1.0;
        /// The affected rounds, in the same notation; every step if not given.
        rounds: Option<IdRanges> = None;
    }
}

crate::settings! {
    /// The policy for unusable answers, and the faults injected into clients.
    pub struct Faults {
        /// Policy if a client cannot answer, such as when its training fails, or its model cannot
        /// be evaluated.
        on_error: Fault = Fault::Fail;
        /// Policy if numbers are not finite, those of a client's training too.
        on_nan: Fault = Fault::Fail;
        /// Policy if an answer does not have the shape of the message sent, of the server's model
        /// or of the task.
        on_shape: Fault = Fault::Fail;
        /// Policy if a weight is negative, not finite, or above `max-weight`.
        on_weight: Fault = Fault::Fail;
        /// The largest accepted weight.
        max_weight: f64 = 1e9, in above(0.0);
        /// Minimum number of usable answers; capped at the number of clients asked.
        min_answers: usize = 1, in 1..;
        /// Policy if there are fewer usable answers.
        if_too_few: QuorumPolicy = QuorumPolicy::Stop;
        /// Faults to inject into clients, to test how the run handles them.
        inject: Vec<InjectedFault> = Vec::new();
    }
}

impl Faults {
    /// Returns the policies for unusable answers, by the names of their settings.
    pub fn policies(&self) -> [(&'static str, &Fault); 4] {
        [
            ("on-error", &self.on_error),
            ("on-nan", &self.on_nan),
            ("on-shape", &self.on_shape),
            ("on-weight", &self.on_weight),
        ]
    }

    /// Returns whether the server may repeat a request to a client.
    pub fn ask_again(&self) -> bool {
        let retries = |(_, fault): &(_, &Fault)| matches!(fault, Fault::Retry(_));
        self.policies().iter().any(retries)
    }

    /// Returns what everyone learns from a policy that leaves answers out, if there is one: whether
    /// a client can answer, and whether its numbers are finite, may depend on its data.
    pub(crate) fn leaves_out(&self) -> Option<String> {
        let named: Vec<String> = (self.policies().into_iter())
            .filter_map(|(name, fault)| match fault {
                Fault::Fail => None,
                Fault::Drop => Some(format!("`faults.{name}: drop`")),
                Fault::Retry(times) => Some(format!("`faults.{name}: {{ retry: {times} }}`")),
            })
            .collect();
        let named = (!named.is_empty()).then(|| named.join(", "))?;
        Some(format!(
            "{named} may leave out a client's answer, and that may depend on its data"
        ))
    }

    /// Returns the policy for an error; `answered`: of an answer that came, and not of a client
    /// that has none.
    pub(crate) fn policy(&self, error: &anyhow::Error, answered: bool) -> &Fault {
        match error.downcast_ref::<Problem>() {
            Some(Problem::NotFinite { .. } | Problem::Diverged(_)) => &self.on_nan,
            Some(Problem::Shape(_)) if answered => &self.on_shape,
            Some(Problem::Weight { .. }) if answered => &self.on_weight,
            // a refusal for privacy concerns the whole run, not one client
            Some(Problem::Budget(_) | Problem::Unpriced(_)) => &Fault::Fail,
            // if nothing shows which of two answers is right, no client is to blame
            Some(Problem::Disagree(_)) => &Fault::Fail,
            // the step is done again when the run goes on
            Some(Problem::Interrupted(_)) => &Fault::Fail,
            _ => &self.on_error,
        }
    }

    /// Returns the fault of this client, with its line in the spec. `round` is that of the whole
    /// run. `repeated` counts the attempts of the step before this one, `asked` the client's
    /// requests before this one. `draws` is the stream of all faults.
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

/// The fault that a client has in one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultOutcome<'a> {
    pub what: &'a FaultKind,
    line: usize,
}

impl FaultOutcome<'_> {
    /// Returns whether the client does nothing at all.
    pub fn absent(&self) -> bool {
        matches!(self.what, FaultKind::Crash | FaultKind::NeverAnswers)
    }

    /// Returns why there is no answer, if there is none.
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

    /// Applies the fault to a message.
    pub fn spoil(&self, message: Erased) -> Result<Erased> {
        let change: fn(Tensor) -> Tensor = match self.what {
            FaultKind::Nan => |t| numbers(t, |all, nan| all.iter().take(1).map(|_| nan).collect()),
            FaultKind::Huge => |t| numbers(t, |all, _| all.iter().map(|x| x * 1e30).collect()),
            FaultKind::Shape => narrower,
            _ => return Ok(message),
        };
        let of = message.message_type();
        let owned = message.content().into_iter().map(|(name, view)| {
            let known = is_about(&name);
            let tensor = view.to_tensor();
            (
                name.into_owned(),
                if known { tensor } else { change(tensor) },
            )
        });
        of.from_tensors(TensorMap::new(owned.collect()))
            .map_err(|error| anyhow::anyhow!(Problem::Shape(format!("{error:#}"))))
    }
}

/// Replaces the first numbers of a tensor of floats: `change` gets all of them and a NaN.
fn numbers(tensor: Tensor, change: fn(&[f64], f64) -> Vec<f64>) -> Tensor {
    let mut tensor = tensor;
    let changed = change(&tensor.view().to_f64(), f64::NAN);
    match &mut tensor {
        Tensor::F32(a) => (a.iter_mut().zip(changed)).for_each(|(x, y)| *x = y as f32),
        Tensor::F64(a) => a.iter_mut().zip(changed).for_each(|(x, y)| *x = y),
        Tensor::U32(_) | Tensor::U8(_) | Tensor::I64(_) | Tensor::Bits(_) => {}
    }
    tensor
}

/// Removes the last column of a tensor, or its last number; an empty tensor stays.
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

/// A set of whole numbers: `5`, `0-3`, `[0, 2-4]`.
#[derive(Clone, Debug, PartialEq)]
pub struct IdRanges(pub Vec<RangeInclusive<u32>>);

impl IdRanges {
    /// Returns whether `n` is in the set.
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
        let text = value.as_str()?;
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = number(first)?..=number(last)?;
        (!range.is_empty()).then_some(range)
    }

    /// Reads a setting; `None` if it is no such set.
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
        let one = |r: &RangeInclusive<u32>| {
            if r.start() == r.end() {
                Value::from(*r.start())
            } else {
                format!("{}-{}", r.start(), r.end()).into()
            }
        };
        match self.0.as_slice() {
            [range] => one(range),
            ranges => ranges.iter().map(one).collect::<Vec<_>>().into(),
        }
    }
    fn value_type() -> ValueType {
        let id = ValueType::Whole(Range::of(&(0..=u32::MAX)));
        let range = ValueType::Text(Some("^[0-9]+(-[0-9]+)?$".into()));
        let one = [id, range];
        let list = ValueType::list_of_some(ValueType::one_of(one.clone()));
        ValueType::one_of([&one[..], &[list]].concat())
            .described("a whole number, a range or a list of them, such as 5, 0-3 or [0, 2-4]")
    }
}
