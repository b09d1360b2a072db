//! The host's side of a call: what a library may ask for, and what it answers.

use super::foreign_call_guard::{CallbackGuard, ForeignCallGuard, Rounding};
use super::rng_callbacks::{add_gaussian, add_laplace, fill_normal, fill_uniform};
use crate::abi::ask::ErrorText;
#[cfg(unix)]
use crate::abi::isolated::CallInput;
use crate::abi::library::{Host, Input, guarded};
use crate::abi::marshal::{plain, slice};
#[cfg(unix)]
use crate::abi::raw::FlMessage;
use crate::abi::raw::{
    FL_BITS, FL_ERROR, FL_F32, FL_F64, FL_I64, FL_SEEDED, FL_SYSTEM, FL_U8, FL_U32, FL_UNKNOWN,
    FlHost, FlInput, FlText,
};
use crate::message::{Bits, Tensor};
use crate::privacy::{Noise, NoiseDraws};
use crate::{Draws, Executor, Stream};
use ndarray::{ArrayD, Dimension, IxDyn};
use std::alloc::{Layout, alloc_zeroed};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The longest error or log line that is kept.
const LINE: usize = 2000;
/// The most tensors of one answer.
const TENSORS: usize = 100_000;
/// The most parts of one answer; more than one is a mistake already.
const PARTS: usize = 16;
/// The most bytes of one answer.
const BYTES: usize = 8 << 30;
/// The most dimensions of a tensor.
const DIMENSIONS: u32 = 16;

type Log = Box<dyn Fn(u32, &str, &str) + Send + Sync>;
static LOG: OnceLock<Log> = OnceLock::new();

/// Says where the log of loaded parts goes: level (1 error .. 4 for those who search), part, line.
/// The first call counts; before it nothing is shown.
pub fn on_log(log: impl Fn(u32, &str, &str) + Send + Sync + 'static) {
    let _ = LOG.set(Box::new(log));
}

/// The numbers of one tensor of an answer.
enum AnswerBuffer {
    F32(Vec<f32>),
    F64(Vec<f64>),
    U32(Vec<u32>),
    U8(Vec<u8>),
    I64(Vec<i64>),
    Bits(Vec<u8>),
}

/// What came back from one call.
#[derive(Default)]
pub(in crate::abi) struct Answer {
    pub text: Option<String>,
    pub tensors: Vec<(String, Tensor)>,
    pub parts: Vec<*mut c_void>,
    /// Setting and reason.
    pub failure: Option<(String, String)>,
    /// What the library did wrong, whatever it says itself.
    pub misuse: Option<String>,
    /// It drew something from the call's stream.
    pub drew: bool,
}

#[derive(Default)]
pub(super) struct CallState {
    answer: Answer,
    rooms: Vec<(String, Vec<usize>, AnswerBuffer)>,
    names: BTreeSet<String>,
    bytes: usize,
    pub draws: Option<Draws>,
    pub noise: Option<NoiseDraws>,
}

/// One call.
pub(in crate::abi) struct Call<'a> {
    who: &'a str,
    pub(super) key: Option<[u8; 32]>,
    exec: Option<&'a dyn Executor>,
    pub(super) noise: Noise,
    /// Who answers what is asked in the middle of it.
    answers: Option<&'a dyn Answers>,
    /// How the host rounds.
    rounding: Rounding,
    state: Mutex<CallState>,
}

impl<'a> Call<'a> {
    pub fn new(who: &'a str, stream: Option<&Stream>, exec: Option<&'a dyn Executor>) -> Self {
        Self {
            who,
            key: stream.map(Stream::key),
            exec,
            noise: Noise::Seeded,
            answers: None,
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

    /// A call back, in the middle of one of the other side's.
    pub fn back(answers: Option<&'a dyn Answers>) -> Self {
        Self {
            answers,
            ..Self::new("the program", None, None)
        }
    }

    /// What a process needs to know of this call.
    #[cfg(unix)]
    pub fn asked<'m>(&self, messages: &'m [FlMessage]) -> CallInput<'m> {
        CallInput {
            key: self.key,
            noise: self.noise,
            answers: self.answers.is_some(),
            messages,
        }
    }

    /// Runs `f` with what a library sees of this call.
    pub fn run(self, f: impl FnOnce(&FlHost) -> i32) -> (i32, Answer) {
        let who = self.who;
        self.run_back(|host| {
            let _away = ForeignCallGuard::with(who);
            f(host)
        })
    }

    /// As [`Call::run`], where it is the other side that began.
    pub fn run_back(self, f: impl FnOnce(&FlHost) -> i32) -> (i32, Answer) {
        let host = FlHost {
            size: size_of::<FlHost>(),
            context: std::ptr::from_ref(&self).cast_mut().cast(),
            key: self.key.unwrap_or_default(),
            log: Some(log),
            fail: Some(fail),
            text: Some(text),
            tensor: Some(tensor),
            part: Some(part),
            fill_uniform: Some(fill_uniform),
            fill_normal: Some(fill_normal),
            parallel_for: Some(parallel_for),
            noise: match self.noise {
                Noise::Seeded => FL_SEEDED,
                Noise::System => FL_SYSTEM,
            },
            add_laplace: Some(add_laplace),
            add_gaussian: Some(add_gaussian),
            call: self.answers.map(|_| ask as _),
        };
        let code = f(&host);
        let state = self.state.into_inner();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let mut answer = state.answer;
        answer.drew = state.draws.is_some() || state.noise.is_some();
        answer.tensors.reserve_exact(state.rooms.len());
        for (name, shape, room) in state.rooms {
            let shape = IxDyn(&shape);
            let made = match room {
                AnswerBuffer::F32(v) => ArrayD::from_shape_vec(shape, v).map(Tensor::F32),
                AnswerBuffer::F64(v) => ArrayD::from_shape_vec(shape, v).map(Tensor::F64),
                AnswerBuffer::U32(v) => ArrayD::from_shape_vec(shape, v).map(Tensor::U32),
                AnswerBuffer::U8(v) => Ok(Tensor::U8(v)),
                AnswerBuffer::I64(v) => ArrayD::from_shape_vec(shape, v).map(Tensor::I64),
                AnswerBuffer::Bits(v) => match Bits::new(shape.slice().to_vec(), v) {
                    Ok(bits) => Ok(Tensor::Bits(bits)),
                    Err(e) => {
                        answer.misuse = Some(format!("tensor `{name}`: {e:#}"));
                        continue;
                    }
                },
            };
            match made {
                Ok(tensor) => answer.tensors.push((name, tensor)),
                Err(e) => answer.misuse = Some(format!("tensor `{name}`: {e}")),
            }
        }
        (code, answer)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn misuse(&self, what: String) {
        self.state().answer.misuse.get_or_insert(what);
    }

    /// Room for a tensor, zeros; or why there is none.
    fn room(&self, name: &str, dtype: u32, shape: &[usize]) -> Result<*mut c_void, String> {
        let size = match dtype {
            FL_F32 | FL_U32 => 4,
            FL_F64 | FL_I64 => 8,
            FL_U8 | FL_BITS => 1,
            other => return Err(format!("the type {other} is unknown")),
        };
        if dtype == FL_U8 && shape.len() != 1 {
            return Err(format!("bytes have 1 dimension, not {}", shape.len()));
        }
        let mut state = self.state();
        if state.names.contains(name) {
            return Err("it was given twice".into());
        }
        let numbers = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        let numbers = match dtype {
            FL_BITS => numbers.map(|n| n.div_ceil(8)),
            _ => numbers,
        };
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
        let mut room = match dtype {
            FL_F32 => AnswerBuffer::F32(zeros(n)?),
            FL_F64 => AnswerBuffer::F64(zeros(n)?),
            FL_U32 => AnswerBuffer::U32(zeros(n)?),
            FL_I64 => AnswerBuffer::I64(zeros(n)?),
            FL_BITS => AnswerBuffer::Bits(zeros(n)?),
            _ => AnswerBuffer::U8(zeros(n)?),
        };
        let data = match &mut room {
            AnswerBuffer::F32(v) => v.as_mut_ptr().cast(),
            AnswerBuffer::F64(v) => v.as_mut_ptr().cast(),
            AnswerBuffer::U32(v) => v.as_mut_ptr().cast(),
            AnswerBuffer::U8(v) | AnswerBuffer::Bits(v) => v.as_mut_ptr().cast(),
            AnswerBuffer::I64(v) => v.as_mut_ptr().cast(),
        };
        state.bytes = all;
        state.names.insert(name.into());
        // a vector's numbers stay where they are when it is moved
        state.rooms.push((name.into(), shape.to_vec(), room));
        Ok(data)
    }
}

/// A number of which all bytes may be 0.
trait Zero: Copy {}
impl Zero for f32 {}
impl Zero for f64 {}
impl Zero for u32 {}
impl Zero for i64 {}
impl Zero for u8 {}

/// `n` zeros. The system gives such memory when it is first touched, so that what is asked for and
/// not used costs nothing.
fn zeros<T: Zero>(n: usize) -> Result<Vec<T>, String> {
    if n == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<T>(n).map_err(|e| e.to_string())?;
    // SAFETY: the layout is that of at least one number of at least one byte.
    let data = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if data.is_null() {
        return Err(format!("there is no memory for {n} numbers"));
    }
    // SAFETY: the allocator of every vector gave `n` numbers in the layout of a vector of capacity
    // `n`, and zeros are `T`.
    Ok(unsafe { Vec::from_raw_parts(data, n, n) })
}

/// Answers what the other side asks in the middle of a call. `false`: there is no such operation.
pub(in crate::abi) trait Answers {
    fn answer(&self, operation: u32, input: &Input<'_>, reply: &Host<'_>) -> crate::Result<bool>;
}

unsafe extern "C" fn ask(
    context: *mut c_void,
    operation: u32,
    input: *const FlInput,
    reply: *const FlHost,
) -> i32 {
    // SAFETY: as `log`; `input` and `reply` are valid for the call.
    unsafe {
        serve(context, FL_ERROR, |call| {
            let Some(answers) = call.answers else {
                return FL_UNKNOWN;
            };
            guarded(reply, |reply| {
                let input = FlInput::read(input)?;
                let outcome = answers.answer(operation, &Input(&input), reply);
                if let Err(error) = &outcome {
                    reply.json(&ErrorText::of(error))?;
                }
                outcome
            })
        })
    }
}

/// At most `LINE` bytes of a text; what is no UTF-8 or would steer a terminal is shown as such.
///
/// # Safety
/// `data` points to `length` bytes, or is NULL.
unsafe fn line(text: FlText) -> String {
    // SAFETY: no more than the caller's bytes.
    let bytes = unsafe { slice(text.data, text.length.min(LINE)) };
    let mut line = plain(&String::from_utf8_lossy(bytes));
    if text.length > LINE {
        line.push_str(&format!("... ({} bytes in all)", text.length));
    }
    line
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

unsafe extern "C" fn log(context: *mut c_void, level: u32, text: FlText) {
    // SAFETY: the library hands back the call's context and a text of its own.
    unsafe {
        serve(context, (), |call| {
            if let Some(log) = LOG.get() {
                log(level, call.who, &line(text).replace('\n', "\\n"));
            }
        });
    }
}

unsafe extern "C" fn fail(context: *mut c_void, setting: FlText, text: FlText) {
    // SAFETY: as `log`.
    unsafe {
        serve(context, (), |call| {
            let failure = (line(setting), line(text));
            call.state().answer.failure.get_or_insert(failure);
        });
    }
}

unsafe extern "C" fn text(context: *mut c_void, json: FlText) {
    // SAFETY: as `log`.
    unsafe {
        serve(context, (), |call| match json.read("its text") {
            Ok(text) => call.state().answer.text = Some(text.into()),
            Err(e) => call.misuse(e.to_string()),
        });
    }
}

unsafe extern "C" fn tensor(
    context: *mut c_void,
    name: FlText,
    dtype: u32,
    dimensions: u32,
    shape: *const usize,
) -> *mut c_void {
    // SAFETY: as `log`; `shape` has `dimensions` numbers.
    unsafe {
        serve(context, std::ptr::null_mut(), |call| {
            let refuse = |why: String| {
                call.misuse(why);
                std::ptr::null_mut()
            };
            let name = match name.read("a tensor's name") {
                Ok(name) if name.len() > 1000 => {
                    return refuse(format!("a tensor's name has {} bytes", name.len()));
                }
                Ok(name) if name.contains(char::is_control) => {
                    return refuse(format!("a tensor is called {name:?}"));
                }
                Ok(name) => name,
                Err(e) => return refuse(e.to_string()),
            };
            let room = match dimensions {
                n if n > DIMENSIONS => Err(format!(
                    "it has {n} dimensions; at most {DIMENSIONS} are possible"
                )),
                n if n > 0 && shape.is_null() => Err("it has no shape".into()),
                n => call.room(name, dtype, slice(shape, n as usize)),
            };
            room.unwrap_or_else(|why| refuse(format!("tensor `{name}`: {why}")))
        })
    }
}

unsafe extern "C" fn part(context: *mut c_void, part: *mut c_void) {
    // SAFETY: as `log`.
    unsafe {
        serve(context, (), |call| {
            if part.is_null() {
                return call.misuse("it gave a part that is NULL".into());
            }
            let mut state = call.state();
            let answer = &mut state.answer;
            // each is dropped once; what is beyond counting is not kept
            if answer.parts.contains(&part) || answer.parts.len() == PARTS {
                let what = "it gave the same part twice, or far too many";
                answer.misuse.get_or_insert_with(|| what.into());
            } else {
                answer.parts.push(part);
            }
        });
    }
}

type Work = unsafe extern "C" fn(*mut c_void, usize, *mut f32, usize);

unsafe extern "C" fn parallel_for(
    context: *mut c_void,
    data: *mut f32,
    n: usize,
    size: usize,
    work: Option<Work>,
    argument: *mut c_void,
) {
    struct Argument(*mut c_void);
    // SAFETY: the library hands it over for use on the host's threads, as `parallel_for` says.
    unsafe impl Sync for Argument {}
    // SAFETY: as `log`; `data` has `n` numbers that are not shared until this returns.
    unsafe {
        serve(context, (), |call| {
            let Some(work) = work.filter(|_| n > 0 && !data.is_null()) else {
                return;
            };
            let (data, size) = (std::slice::from_raw_parts_mut(data, n), size.max(1));
            let argument = Argument(argument);
            let argument = &argument;
            let one = |i: usize, chunk: &mut [f32]| {
                let _away = ForeignCallGuard::with(call.who);
                // SAFETY: `chunk` is this call's alone, and `argument` is shared as the library
                // asked.
                work(argument.0, i, chunk.as_mut_ptr(), chunk.len());
            };
            match call.exec {
                Some(exec) => exec.chunks(data, size, &one),
                None => crate::Serial.chunks(data, size, &one),
            }
        });
    }
}
