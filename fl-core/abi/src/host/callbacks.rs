//! The functions that a library may use during a call.

use super::call::{Answer, Call, serve};
use super::foreign_call_guard::ForeignCallGuard;
use super::rng_callbacks::{add_gaussian, add_laplace, fill_normal, fill_uniform};
use crate::ask::ErrorText;
use crate::library::{Input, guarded};
use crate::marshal::{plain, slice};
use crate::raw::{FL_ERROR, FL_SEEDED, FL_SYSTEM, FL_UNKNOWN, FlHost, FlInput, FlText};
use fl_roles::Executor;
use fl_roles::privacy::Noise;
use std::ffi::c_void;
use std::sync::OnceLock;

/// The longest error or log line that the host keeps.
const LINE: usize = 2000;
/// The most parts of one answer; more than one is a mistake already.
const PARTS: usize = 16;
/// The most dimensions of a tensor.
const DIMENSIONS: u32 = 16;

type Log = Box<dyn Fn(u32, &str, &str) + Send + Sync>;
static LOG: OnceLock<Log> = OnceLock::new();

/// Says where the log of loaded parts goes: level (1 error .. 4 for those who search), part, line.
/// The first call counts; before it the program shows nothing.
pub fn on_log(log: impl Fn(u32, &str, &str) + Send + Sync + 'static) {
    let _ = LOG.set(Box::new(log));
}

impl Call<'_> {
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
        (code, self.into_answer())
    }
}

unsafe extern "C" fn ask(
    context: *mut c_void,
    asked: u64,
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
                let outcome = answers.answer(asked, operation, &Input(&input), reply);
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
                Some(exec) => exec.each_chunk(data, size, &one),
                None => fl_roles::Serial.chunks(data, size, &one),
            }
        });
    }
}
