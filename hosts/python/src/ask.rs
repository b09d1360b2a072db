//! What a protocol or a trainer in Python asks of the program in the middle of its call: one text
//! and messages there, and one text and tensors back, as a loaded part does it.
#![allow(unsafe_code, reason = "a C interface")]

use crate::buffer::Buffer;
use crate::marshal::{deliver, explained, guarded, received, take_back, text};
use fl_core::abi::OPERATIONS;
use fl_core::abi::raw::*;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::any::Any;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// A message that Python sends: sender, weight, class counts, training loss, and arrays by name.
pub type SentMessage<'py> = (u32, f64, Option<Vec<u32>>, Option<f64>, Bound<'py, PyDict>);

/// What the program answers: an error as JSON or a text, the text, and arrays by name.
pub type Answer<'py> = (Option<String>, Option<String>, Bound<'py, PyDict>);

/// An array where Python has it: it stays there while this lives.
struct View {
    name: String,
    dtype: u32,
    data: *const c_void,
    shape: Vec<usize>,
    /// In numbers.
    strides: Vec<isize>,
    _held: Box<dyn Any>,
}

impl View {
    fn of(name: String, array: &Bound<'_, PyAny>) -> PyResult<Self> {
        // a single number has no shape, which pyo3 takes for a mistake
        let single = array.getattr("ndim")?.extract::<usize>()? == 0;
        let list = single.then(|| array.call_method1("reshape", (1,)));
        let array = &list.transpose()?.unwrap_or_else(|| array.clone());
        let found = Self::get::<f32>(array, FL_F32)
            .or_else(|| Self::get::<f64>(array, FL_F64))
            .or_else(|| Self::get::<u32>(array, FL_U32))
            .or_else(|| Self::get::<i64>(array, FL_I64))
            .or_else(|| Self::get::<u8>(array, FL_U8));
        let Some(found) = found else {
            return Err(PyTypeError::new_err(format!(
                "`{name}` must be an array of float32, float64, uint32, int64 or uint8"
            )));
        };
        Ok(match single {
            false => Self { name, ..found },
            true => Self {
                name,
                shape: Vec::new(),
                strides: Vec::new(),
                ..found
            },
        })
    }

    fn get<T: Element + 'static>(array: &Bound<'_, PyAny>, dtype: u32) -> Option<Self> {
        let buffer = PyBuffer::<T>::get(array).ok()?;
        let size = size_of::<T>() as isize;
        Some(Self {
            name: String::new(),
            dtype,
            data: buffer.buf_ptr().cast_const(),
            shape: buffer.shape().to_vec(),
            strides: buffer.strides().iter().map(|step| step / size).collect(),
            _held: Box::new(buffer),
        })
    }

    fn tensor(&self) -> FlTensor {
        FlTensor {
            name: FlText::of(&self.name),
            data: self.data,
            shape: self.shape.as_ptr(),
            strides: self.strides.as_ptr(),
            dimensions: self.shape.len() as u32,
            dtype: self.dtype,
        }
    }
}

/// A tensor of an answer: name, shape, type, and room for its numbers.
type Room = (String, Vec<usize>, u32, Vec<u64>);

/// What came back.
#[derive(Default)]
struct Got {
    text: Option<String>,
    failure: Option<String>,
    rooms: Vec<Room>,
}

/// Takes the program's answer, and answers what it asks back.
struct Reply {
    got: Mutex<Got>,
    back: Option<Py<PyAny>>,
}

impl Reply {
    fn got(&self) -> std::sync::MutexGuard<'_, Got> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Safety
/// `context` is the `Reply` of a call that is running.
unsafe fn reply<'a>(context: *mut c_void) -> &'a Reply {
    // SAFETY: as the caller says; a reply is only ever shared.
    unsafe { &*context.cast::<Reply>() }
}

unsafe extern "C" fn take_text(context: *mut c_void, json: FlText) {
    // SAFETY: the program hands back the context of this call, and a text of its own.
    unsafe { reply(context).got().text = Some(copied_text(json)) }
}

unsafe extern "C" fn take_failure(context: *mut c_void, _: FlText, why: FlText) {
    // SAFETY: as `take_text`.
    unsafe {
        let why = copied_text(why);
        reply(context).got().failure.get_or_insert(why);
    }
}

unsafe extern "C" fn room(
    context: *mut c_void,
    name: FlText,
    dtype: u32,
    dimensions: u32,
    shape: *const usize,
) -> *mut c_void {
    // SAFETY: as `take_text`; `shape` has `dimensions` numbers.
    let (reply, name, shape) = unsafe {
        let shape = match dimensions {
            0 => Vec::new(),
            n => std::slice::from_raw_parts(shape, n as usize).to_vec(),
        };
        (reply(context), copied_text(name), shape)
    };
    let numbers: usize = shape.iter().product();
    let bytes = match dtype {
        FL_F32 | FL_U32 => numbers * 4,
        FL_F64 | FL_I64 => numbers * 8,
        FL_BITS => numbers.div_ceil(8),
        _ => numbers,
    };
    let mut memory = vec![0_u64; bytes.div_ceil(8).max(1)];
    // a vector's numbers stay where they are when it is moved
    let data = memory.as_mut_ptr().cast();
    reply.got().rooms.push((name, shape, dtype, memory));
    data
}

unsafe extern "C" fn ask_back(
    context: *mut c_void,
    _: u64,
    operation: u32,
    input: *const FlInput,
    host: *const FlHost,
) -> i32 {
    // SAFETY: as `take_text`; `input` and `host` live through the call.
    unsafe {
        match &reply(context).back {
            Some(back) => answer_back(back, operation, input, host),
            None => FL_UNKNOWN,
        }
    }
}

/// What is asked of whom.
pub struct Asked {
    /// A number of a part of the program, or 0.
    pub part: u64,
    pub operation: u32,
    /// Of the operation's random stream.
    pub key: [u8; 32],
}

/// Sends a request to the maker of `host`. `back` answers what the program asks in the middle of it.
pub fn ask<'py>(
    py: Python<'py>,
    host: &FlHost,
    asked: Asked,
    json: &str,
    messages: &[SentMessage<'py>],
    back: Option<Py<PyAny>>,
) -> PyResult<Answer<'py>> {
    let Some(call) = host.call else {
        let text = "only a protocol that leads or answers, and a trainer that fits, may ask the program for something";
        return Err(PyRuntimeError::new_err(text));
    };
    let mut held = Vec::new();
    for (.., arrays) in messages {
        let all = arrays
            .iter()
            .map(|(name, array)| View::of(name.extract()?, &array));
        held.push(all.collect::<PyResult<Vec<View>>>()?);
    }
    let tensors = held.iter().map(|all| all.iter().map(View::tensor));
    let tensors: Vec<Vec<FlTensor>> = tensors.map(Iterator::collect).collect();
    let letters: Vec<FlMessage> = messages
        .iter()
        .zip(&tensors)
        .map(|((from, weight, counts, loss, _), tensors)| FlMessage {
            from: *from,
            classes: counts.as_ref().map_or(0, |all| all.len() as u32),
            weight: *weight,
            class_counts: counts.as_ref().map_or(std::ptr::null(), |all| all.as_ptr()),
            tensors: tensors.as_ptr(),
            count: tensors.len(),
            training_loss: loss.unwrap_or(f64::NAN),
        })
        .collect();
    let input = FlInput {
        size: size_of::<FlInput>(),
        text: FlText::of(json),
        messages: letters.as_ptr(),
        count: letters.len(),
    };
    let reply = Reply {
        got: Mutex::default(),
        back,
    };
    let sink = FlHost {
        size: size_of::<FlHost>(),
        context: std::ptr::from_ref(&reply).cast_mut().cast(),
        key: asked.key,
        log: None,
        fail: Some(take_failure),
        text: Some(take_text),
        tensor: Some(room),
        part: None,
        fill_uniform: None,
        fill_normal: None,
        parallel_for: None,
        noise: FL_SEEDED,
        add_laplace: None,
        add_gaussian: None,
        call: Some(ask_back),
    };
    let Asked {
        part, operation, ..
    } = asked;
    let pointers = Pointers(host.context, &raw const input, &raw const sink);
    let code = py.detach(move || {
        let Pointers(context, input, sink) = { pointers };
        // SAFETY: the program's own function and context, in the middle of its call and on its
        // thread; what is handed over lives through this one, and Python's arrays are held.
        unsafe { call(context, part, operation, input, sink) }
    });
    let got = reply.got.into_inner();
    let got = got.unwrap_or_else(PoisonError::into_inner);
    let out = PyDict::new(py);
    if code != FL_OK {
        let why = got.text.or(got.failure);
        let why = why.unwrap_or_else(|| match code {
            FL_UNKNOWN => "the program has no such operation".into(),
            code => format!("the program failed with code {code} and gave no reason"),
        });
        return Ok((Some(why), None, out));
    }
    for (name, shape, dtype, memory) in got.rooms {
        out.set_item(name, Buffer::words(&shape, dtype, memory))?;
    }
    Ok((None, got.text, out))
}

/// What a call of the program takes to where the interpreter's lock is not held.
struct Pointers(*mut c_void, *const FlInput, *const FlHost);
// SAFETY: they are used on the thread that made them, during the call that made them.
unsafe impl Send for Pointers {}

/// # Safety
/// The text is one of the host's, and lives as long as the call.
unsafe fn copied_text(of: FlText) -> String {
    // SAFETY: as the caller says.
    unsafe { text(of) }.to_string()
}

/// The name of an operation, as Python writes it.
fn operation_name(number: u32) -> String {
    let known = OPERATIONS.iter().find(|of| of.number == number);
    known.map_or_else(String::new, |of| of.name.to_lowercase())
}

/// Lets `back` answer what the program asks in the middle of a request: it gets the operation, the
/// text and the messages, and gives what `fl._parts.calls.call` gives.
///
/// # Safety
/// `input` and `host` live through the call.
unsafe fn answer_back(
    back: &Py<PyAny>,
    operation: u32,
    input: *const FlInput,
    host: *const FlHost,
) -> i32 {
    guarded(host, |py, host| {
        // SAFETY: as the caller says.
        let input = unsafe { &*input };
        let mut lent = Vec::new();
        let done = received(py, input, &mut lent).and_then(|messages| {
            // SAFETY: the program's, for the call.
            let text = unsafe { text(input.text) };
            deliver(
                py,
                host,
                &back
                    .bind(py)
                    .call1((operation_name(operation), text, messages))?,
            )
        });
        let done = done.map_err(|error| explained(py, &error));
        let kept = "it still uses arrays that were lent for a call: keep copies (`array.copy()`)";
        match take_back(py, &lent) {
            0 => done,
            _ => done.and(Err((FL_ERROR, kept.into(), None))),
        }
    })
}
