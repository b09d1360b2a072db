//! [`Call`]: the host's side of a call, which gathers what a library answers.

use super::foreign_call_guard::{CallbackGuard, Rounding};
use crate::caller::Means;
#[cfg(unix)]
use crate::isolated::{AnswerRooms, CallFacts, SharedTensor};
use crate::library::{Host, Input};
use crate::marshal::plain;
use anyhow::Context;
use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_vec;
use fl_roles::message::{Bits, Dtype, Tensor};
use fl_roles::privacy::{Noise, NoiseDraws, ReleaseNoise};
use fl_roles::{Draws, Executor, Stream};
use ndarray::{ArrayD, IxDyn};
use serde::de::DeserializeOwned;
#[cfg(unix)]
use serde_bytes::ByteArray;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most tensors of one answer.
const TENSORS: usize = 100_000;
/// The most bytes of one answer.
const BYTES: usize = 8 << 30;

/// The numbers of one tensor of an answer.
enum AnswerBuffer {
    /// Bits as bytes, until the library has written them.
    Own(Tensor),
    /// In memory that the process shares with the program, at this place.
    #[cfg(unix)]
    Shared(usize),
}

/// What came back from one call.
#[derive(Default)]
pub(crate) struct Answer {
    pub text: Option<String>,
    pub tensors: Vec<(String, Tensor)>,
    /// The tensors, where the call had [`AnswerRooms`].
    #[cfg(unix)]
    pub shared: Vec<SharedTensor>,
    pub parts: Vec<*mut c_void>,
    /// Setting and reason.
    pub failure: Option<(String, String)>,
    /// What the library did wrong, whatever it says itself.
    pub misuse: Option<String>,
    /// It drew something from the call's stream.
    pub drew: bool,
}

impl Answer {
    /// Reads its text, which is JSON.
    pub fn json<T: DeserializeOwned>(&self) -> fl_roles::Result<T> {
        let text = self.text.as_deref().context("it gave no text")?;
        serde_json::from_str(text).with_context(|| {
            let shown: String = text.chars().take(80).collect();
            format!("its answer cannot be read: {}", plain(&shown))
        })
    }
}

#[derive(Default)]
pub(super) struct CallState {
    pub answer: Answer,
    rooms: Vec<(String, Dtype, Vec<usize>, AnswerBuffer)>,
    bytes: usize,
    // boxed, for few calls draw, and every call moves its state
    pub draws: Option<Box<Draws>>,
    pub noise: Option<Box<NoiseDraws>>,
}

/// One call.
pub(crate) struct Call<'a> {
    pub(super) who: &'a str,
    pub(super) key: Option<[u8; 32]>,
    pub(super) exec: Option<&'a dyn Executor>,
    pub(super) noise: Noise,
    /// Who answers what is asked in the middle of it.
    pub(super) answers: Option<&'a dyn Answers>,
    /// Where the library writes tensors of the answer, if not into memory of their own.
    #[cfg(unix)]
    rooms: Option<&'a AnswerRooms<'a>>,
    /// How the host rounds.
    rounding: Rounding,
    state: Mutex<CallState>,
}

impl<'a> Call<'a> {
    /// A call of `who`.
    pub fn new(who: &'a str, means: Means<'a>) -> Self {
        let stream = means.noise.map(ReleaseNoise::source).or(means.stream);
        Self {
            who,
            key: stream.map(Stream::key),
            exec: means.exec,
            noise: means.noise.map(ReleaseNoise::kind).unwrap_or_default(),
            answers: means.answers,
            #[cfg(unix)]
            rooms: None,
            rounding: Rounding::now(),
            state: Mutex::default(),
        }
    }

    /// The same call, with noise of this kind.
    pub fn with_noise(self, noise: Noise) -> Self {
        Self { noise, ..self }
    }

    /// The same call, in the middle of which these answer.
    pub fn with_answers(self, answers: &'a dyn Answers) -> Self {
        let answers = Some(answers);
        Self { answers, ..self }
    }

    /// The same call, whose library writes the tensors of its answer there.
    #[cfg(unix)]
    pub fn with_rooms(self, rooms: &'a AnswerRooms<'a>) -> Self {
        let rooms = Some(rooms);
        Self { rooms, ..self }
    }

    /// What a process needs to know of this call.
    #[cfg(unix)]
    pub fn facts(&self) -> CallFacts {
        CallFacts {
            key: self.key.map(ByteArray::new),
            noise: self.noise,
            answers: self.answers.is_some(),
        }
    }

    /// What came back.
    pub(super) fn into_answer(self) -> Answer {
        let state = self.state.into_inner();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let mut answer = state.answer;
        answer.drew = state.draws.is_some() || state.noise.is_some();
        if state.rooms.len() > 1 {
            let mut names: Vec<&str> = state.rooms.iter().map(|(name, ..)| &**name).collect();
            names.sort_unstable();
            if let Some(twin) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                let what = format!("tensor `{}`: it was given twice", twin[0]);
                answer.misuse.get_or_insert(what);
            }
        }
        answer.tensors.reserve_exact(state.rooms.len());
        for (name, dtype, shape, room) in state.rooms {
            match (dtype, room) {
                #[cfg(unix)]
                (_, AnswerBuffer::Shared(at)) => answer.shared.push(SharedTensor {
                    name,
                    dtype: dtype as u32,
                    shape,
                    at,
                }),
                (Dtype::Bits, AnswerBuffer::Own(Tensor::U8(packed))) => {
                    match Bits::new(shape, packed) {
                        Ok(bits) => answer.tensors.push((name, Tensor::Bits(bits))),
                        Err(e) => answer.misuse = Some(format!("tensor `{name}`: {e:#}")),
                    }
                }
                (_, AnswerBuffer::Own(tensor)) => answer.tensors.push((name, tensor)),
            }
        }
        answer
    }

    pub(super) fn state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn misuse(&self, what: String) {
        self.state().answer.misuse.get_or_insert(what);
    }

    /// Room for a tensor, zeros; or why there is none.
    pub(super) fn room(
        &self,
        name: &str,
        dtype: u32,
        shape: &[usize],
    ) -> Result<*mut c_void, String> {
        let of = Dtype::numbered(dtype);
        let dtype = of.ok_or_else(|| format!("the type {dtype} is unknown"))?;
        if dtype == Dtype::U8 && shape.len() != 1 {
            return Err(format!("bytes have 1 dimension, not {}", shape.len()));
        }
        let mut state = self.state();
        let numbers = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        let numbers = match dtype {
            Dtype::Bits => numbers.map(|n| n.div_ceil(8)),
            _ => numbers,
        };
        let size = dtype.bytes(1);
        let bytes = numbers.and_then(|n| n.checked_mul(size));
        let all = bytes.and_then(|b| b.checked_add(state.bytes));
        let (Some(n), Some(all)) = (numbers, all.filter(|b| *b <= BYTES)) else {
            return Err(format!(
                "its shape {shape:?} is too large; an answer may have {} GiB",
                BYTES >> 30
            ));
        };
        if state.rooms.len() >= TENSORS {
            return Err(format!("an answer may have {TENSORS} tensors"));
        }
        #[cfg(unix)]
        if let Some(rooms) = self.rooms {
            let (at, data) = rooms.room(n * size).map_err(|e| format!("{e:#}"))?;
            state.bytes = all;
            let room = AnswerBuffer::Shared(at);
            state.rooms.push((name.into(), dtype, shape.to_vec(), room));
            return Ok(data.cast());
        }
        let bytes = |numbers: ArrayD<u8>| Tensor::U8(numbers.into_raw_vec_and_offset().0);
        let (tensor, data) = match dtype {
            Dtype::F32 => zero_tensor(shape, n, Tensor::F32)?,
            Dtype::F64 => zero_tensor(shape, n, Tensor::F64)?,
            Dtype::U32 => zero_tensor(shape, n, Tensor::U32)?,
            Dtype::I64 => zero_tensor(shape, n, Tensor::I64)?,
            Dtype::U8 | Dtype::Bits => zero_tensor(&[n], n, bytes)?,
        };
        state.bytes = all;
        let room = AnswerBuffer::Own(tensor);
        state.rooms.push((name.into(), dtype, shape.to_vec(), room));
        Ok(data)
    }
}

/// A tensor of `n` zeros, and where they are: they stay there when it is moved. The system gives
/// such memory when it is first touched, so that what is asked for and not used costs nothing.
fn zero_tensor<T: Zeroable>(
    shape: &[usize],
    n: usize,
    of: impl FnOnce(ArrayD<T>) -> Tensor,
) -> Result<(Tensor, *mut c_void), String> {
    let zeros =
        try_zeroed_vec::<T>(n).map_err(|()| format!("there is no memory for {n} numbers"))?;
    let numbers = ArrayD::from_shape_vec(IxDyn(shape), zeros);
    let mut numbers = numbers.map_err(|e| e.to_string())?;
    let data = numbers.as_mut_ptr().cast();
    Ok((of(numbers), data))
}

/// Answers what the other side asks in the middle of a call.
pub trait Answers {
    /// Does an operation of the part that has this number here, or of this side itself if it is 0.
    /// `false`: there is no such operation.
    ///
    /// # Errors
    /// Says why the operation fails.
    fn answer(
        &self,
        part: u64,
        operation: u32,
        input: &Input<'_>,
        reply: &Host<'_>,
    ) -> fl_roles::Result<bool>;
}

/// Runs a service; nothing may unwind into the library.
///
/// # Safety
/// `context` is that of an `FlHost` whose call is still running.
pub(super) unsafe fn serve<R>(
    context: *mut c_void,
    otherwise: R,
    f: impl FnOnce(&Call<'_>) -> R,
) -> R {
    if context.is_null() {
        return otherwise;
    }
    // SAFETY: the caller says that the call is still running, and a call is only ever shared.
    let call = unsafe { &*context.cast::<Call<'_>>() };
    let _home = CallbackGuard::with(call.rounding);
    catch_unwind(AssertUnwindSafe(|| f(call))).unwrap_or(otherwise)
}
