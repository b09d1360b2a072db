//! The library's side: the parts that `plugin!` registered, as a table.

use super::cross::{copied, message, slice};
use super::kinds::obstacle;
use super::lend::{Lent, Shelf};
use super::objects::{Object, wrap};
use super::raw::*;
use crate::message::{Message, Named, Parcel, View};
use crate::settings::{Reader, Step, Value};
use crate::{BuildContext, Executor, Problem, Result, SharedExecutor, Stream, Task, linked_parts};
use anyhow::{Context, anyhow, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The one symbol of a library.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "C sees this name")]
pub static fl_plugin: FlLibrary = FlLibrary {
    magic: FL_MAGIC,
    version: FL_VERSION,
    size: size_of::<FlLibrary>() as u32,
    describe: Some(describe),
    create: Some(create),
    call: Some(call),
    drop: Some(drop_part),
    free: Some(free),
};

/// The table of this program's own parts: what a library shows of them.
pub fn library() -> &'static FlLibrary {
    &fl_plugin
}

/// What an operation was given.
pub(super) struct Input<'a>(&'a FlInput);

impl Input<'_> {
    pub fn text(&self) -> Result<&str> {
        // SAFETY: whoever made this said that the input is valid.
        unsafe { self.0.text.read("the text of a call") }
    }

    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.text()?;
        serde_json::from_str(text).with_context(|| format!("the text of a call: {text}"))
    }

    fn messages(&self) -> &[FlMessage] {
        // SAFETY: as `text`.
        unsafe { slice(self.0.messages, self.0.count) }
    }

    fn raw(&self, at: usize) -> Result<&FlMessage> {
        let all = self.messages();
        all.get(at)
            .with_context(|| format!("{} messages, where {} are due", all.len(), at + 1))
    }

    pub fn message<M: Message>(&self, at: usize) -> Result<M> {
        // SAFETY: as `text`.
        unsafe { message(self.raw(at)?) }
    }

    pub fn parcel(&self, at: usize) -> Result<Parcel> {
        // SAFETY: as `text`.
        unsafe { copied(self.raw(at)?) }
    }

    pub fn inbox<'s, M: Message>(&self, shelf: &'s mut Shelf<M>) -> Result<Lent<'s, M>> {
        ensure!(!self.messages().is_empty(), "an inbox without messages");
        // SAFETY: as `text`; what is lent borrows from this call and cannot outlive it, see `objects`.
        unsafe { Lent::new(shelf, self.messages()) }
    }

    pub fn mail<M: Message>(&self) -> Result<crate::Mail<M>> {
        let raw = self.raw(0)?;
        // SAFETY: as `text`.
        let counts = unsafe { slice(raw.class_counts, raw.classes as usize) };
        Ok(crate::Mail {
            from: raw.from,
            weight: raw.weight,
            class_counts: (!raw.class_counts.is_null()).then(|| counts.to_vec()),
            body: self.message(0)?,
        })
    }
}

/// What a library may ask of the host during a call.
pub(super) struct Host<'a>(&'a FlHost);

impl Host<'_> {
    pub fn stream(&self) -> Stream {
        Stream::from_key(self.0.key)
    }

    pub fn text(&self, text: &str) {
        if let Some(f) = self.0.text {
            // SAFETY: the host's own function, its context, and a text that lives through the call.
            unsafe { f(self.0.context, FlText::of(text)) }
        }
    }

    pub fn json(&self, value: &impl Serialize) -> Result<()> {
        self.text(&serde_json::to_string(value)?);
        Ok(())
    }

    fn fail(&self, text: &str) {
        if let Some(f) = self.0.fail {
            // SAFETY: as `text`.
            unsafe { f(self.0.context, FlText::EMPTY, FlText::of(text)) }
        }
    }

    pub fn part(&self, part: Box<dyn Object>) -> Result<()> {
        let f = self.0.part.context("the host takes no parts")?;
        let part = Box::into_raw(Box::new(part));
        // SAFETY: as `text`; the host gives the part back to `drop_part`.
        unsafe { f(self.0.context, part.cast()) };
        Ok(())
    }

    pub fn tensors(&self, all: &Named<'_>) -> Result<()> {
        for (name, view) in all {
            self.tensor(name, view)?;
        }
        Ok(())
    }

    fn tensor(&self, name: &str, view: &View<'_>) -> Result<()> {
        let f = self.0.tensor.context("the host takes no tensors")?;
        let (dtype, length) = match view {
            View::F32(_) => (FL_F32, [0]),
            View::F64(_) => (FL_F64, [0]),
            View::U32(_) => (FL_U32, [0]),
            View::U8(b) => (FL_U8, [b.len()]),
        };
        let shape = view.table().unwrap_or(&length);
        // SAFETY: as `text`; `shape` has as many numbers as it says.
        let room = unsafe {
            f(
                self.0.context,
                FlText::of(name),
                dtype,
                shape.len() as u32,
                shape.as_ptr(),
            )
        };
        ensure!(!room.is_null(), "the host refused tensor `{name}`");
        /// # Safety
        /// There is room for the view's numbers at `room`.
        unsafe fn put<T: Copy>(room: *mut c_void, view: &ndarray::ArrayViewD<'_, T>) {
            let room = room.cast::<T>();
            match view.as_slice() {
                // SAFETY: as the caller says; the host's memory is not ours.
                Some(s) => unsafe { room.copy_from_nonoverlapping(s.as_ptr(), s.len()) },
                None => {
                    for (i, x) in view.iter().enumerate() {
                        // SAFETY: as the caller says.
                        unsafe { room.add(i).write(*x) };
                    }
                }
            }
        }
        // SAFETY: the host made room for this type and shape.
        unsafe {
            match view {
                View::F32(a) => put(room, a),
                View::F64(a) => put(room, a),
                View::U32(a) => put(room, a),
                View::U8(b) => room
                    .cast::<u8>()
                    .copy_from_nonoverlapping(b.as_ptr(), b.len()),
            }
        }
        Ok(())
    }

    /// Runs `f` with the host's threads.
    pub fn with_executor<R>(&self, f: impl FnOnce(SharedExecutor) -> R) -> R {
        let threads = Arc::new(Threads(RwLock::new(Some(HostPointer(self.0)))));
        // whoever keeps the executor after the call, and be it in a panic, finds one that works alone
        struct Leave(Arc<Threads>);
        impl Drop for Leave {
            fn drop(&mut self) {
                *self.0.0.write().unwrap_or_else(PoisonError::into_inner) = None;
            }
        }
        let _leave = Leave(threads.clone());
        f(threads)
    }
}

struct HostPointer(*const FlHost);
// SAFETY: only `parallel_for` is called through it, which any thread may do during the call; `Threads` forgets it after.
unsafe impl Send for HostPointer {}
// SAFETY: as above.
unsafe impl Sync for HostPointer {}

/// The host's threads, while the call runs.
struct Threads(RwLock<Option<HostPointer>>);

type Panic = Box<dyn std::any::Any + Send>;

struct Job<'a> {
    work: &'a (dyn Fn(usize, &mut [f32]) + Sync),
    panic: Mutex<Option<Panic>>,
}

/// # Safety
/// `argument` is a `Job` that outlives the call; `chunk` has `length` numbers that nobody else looks at.
unsafe extern "C" fn one_chunk(argument: *mut c_void, i: usize, chunk: *mut f32, length: usize) {
    // SAFETY: as the caller says; a job is only ever shared.
    let job = unsafe { &*argument.cast::<Job<'_>>() };
    // SAFETY: as the caller says.
    let chunk = unsafe { std::slice::from_raw_parts_mut(chunk, length) };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (job.work)(i, chunk))) {
        let mut slot = job.panic.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(panic);
    }
}

impl Executor for Threads {
    fn chunks(&self, data: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let pointer = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(HostPointer(host)) = &*pointer else {
            return crate::Serial.chunks(data, size, work);
        };
        // SAFETY: the call that the pointer belongs to waits for this lock before it ends.
        let host = unsafe { &**host };
        let Some(parallel_for) = host.parallel_for else {
            return crate::Serial.chunks(data, size, work);
        };
        let job = Job {
            work,
            panic: Mutex::new(None),
        };
        let argument = std::ptr::from_ref(&job).cast_mut().cast();
        // SAFETY: `data` and `job` are ours until it returns, and it returns when all is done.
        unsafe {
            parallel_for(
                host.context,
                data.as_mut_ptr(),
                data.len(),
                size,
                Some(one_chunk),
                argument,
            );
        }
        let panic = job.panic.into_inner();
        if let Some(panic) = panic.unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }
}

/// Runs `f`; no panic and no error gets past here but as a code and a text.
///
/// # Safety
/// `host` is NULL or valid for the call.
unsafe fn guarded(host: *const FlHost, f: impl FnOnce(&Host<'_>) -> Result<bool>) -> i32 {
    // SAFETY: as the caller says.
    let Some(host) = (unsafe { host.as_ref() }) else {
        return FL_ERROR;
    };
    if host.size < size_of::<FlHost>() {
        return FL_ERROR;
    }
    let host = Host(host);
    match catch_unwind(AssertUnwindSafe(|| f(&host))) {
        Ok(Ok(true)) => FL_OK,
        Ok(Ok(false)) => FL_UNKNOWN,
        Ok(Err(error)) => {
            host.fail(&format!("{error:#}"));
            match error.downcast_ref::<Problem>() {
                Some(Problem::Unpriced(_)) => FL_UNPRICED,
                Some(Problem::Shape(_)) => FL_SHAPE,
                Some(Problem::Lacks(_)) => FL_LACKS,
                _ => FL_ERROR,
            }
        }
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned());
            host.fail(&text.unwrap_or_else(|| "without a text".into()));
            std::mem::forget(panic); // its own `drop` might panic again
            FL_PANIC
        }
    }
}

unsafe extern "C" fn describe(host: *const FlHost, out: *mut FlText) -> i32 {
    // SAFETY: the host's own pointers; `out` is where it wants the text, which `free` takes back.
    unsafe {
        guarded(host, |_| {
            let parts: Vec<_> = linked_parts().into_iter().map(described).collect();
            let text = serde_json::to_string(&json!({ "parts": parts }))?;
            let text = text.into_boxed_str();
            ensure!(!out.is_null(), "nowhere to put the description");
            out.write(FlText::of(&text));
            std::mem::forget(text);
            Ok(true)
        })
    }
}

fn described(part: &crate::PartDecl) -> serde_json::Value {
    let about = (part.describe)();
    let settings = about.fields.iter().map(|f| {
        let mut field = json!({
            "name": f.name, "doc": f.doc, "kind": f.kind, "range": f.range, "schema": f.schema,
        });
        if let Some(default) = &f.default {
            field["default"] = crate::settings::to_json(default);
        }
        field
    });
    json!({
        "role": part.role.name(), "name": part.name, "signature": about.signature, "doc": about.doc,
        "settings": settings.collect::<Vec<_>>(), "from": part.origin,
    })
}

unsafe extern "C" fn free(json: FlText) {
    if !json.data.is_null() {
        let text = std::ptr::slice_from_raw_parts_mut(json.data.cast_mut(), json.length);
        // SAFETY: `describe` made it as a boxed text, and the host gives it back once.
        drop(unsafe { Box::from_raw(text) });
    }
}

fn part(index: usize) -> Result<&'static crate::PartDecl> {
    let parts = linked_parts();
    let n = parts.len();
    parts
        .into_iter()
        .nth(index)
        .with_context(|| format!("part {index} of {n}"))
}

unsafe extern "C" fn create(
    index: u32,
    settings: FlText,
    task: FlText,
    host: *const FlHost,
) -> i32 {
    // SAFETY: the host's own pointers.
    unsafe {
        guarded(host, |host| {
            let decl = part(index as usize)?;
            let settings: Value = serde_json::from_str(settings.read("settings")?)?;
            let task: Task = serde_json::from_str(task.read("a task")?)?;
            let make = BuildContext {
                task,
                stream: host.stream(),
            };
            let signature = (decl.describe)().signature;
            if let Some(why) = obstacle(decl.role, &signature) {
                return Err(anyhow!("{} `{}`: {why}", decl.role, decl.name));
            }
            let made = (decl.build)(&settings, &make)?;
            host.part(wrap(decl.role, &signature, made)?)?;
            Ok(true)
        })
    }
}

#[derive(Deserialize)]
struct Check {
    part: usize,
    settings: Value,
}

#[derive(Serialize)]
struct Checked {
    settings: Value,
}

fn check(input: &Input<'_>, host: &Host<'_>) -> Result<()> {
    let Check { part: at, settings } = input.json()?;
    let mut reader = Reader::default();
    let read = (part(at)?.check)(&settings, &mut reader);
    match read {
        Some(settings) if reader.mistakes.is_empty() => host.json(&Checked { settings }),
        _ => {
            let mistakes = reader.mistakes.iter().map(|m| {
                let step = |s: &Step| match s {
                    Step::Key(key) => json!(key),
                    Step::Item(at) => json!(at),
                };
                let path: Vec<_> = m.path.iter().map(step).collect();
                json!({ "path": path, "text": m.text, "on_key": m.on_key })
            });
            host.json(&json!({ "mistakes": mistakes.collect::<Vec<_>>() }))
        }
    }
}

unsafe extern "C" fn call(
    part: *mut c_void,
    operation: u32,
    input: *const FlInput,
    host: *const FlHost,
) -> i32 {
    // SAFETY: the host's own pointers; a part that is not NULL came from `Host::part`, and nobody else uses it now.
    unsafe {
        guarded(host, |host| {
            let input = Input(input.as_ref().context("a call without input")?);
            ensure!(
                input.0.size >= size_of::<FlInput>(),
                "an input of {} bytes",
                input.0.size
            );
            match part.cast::<Box<dyn Object>>().as_mut() {
                Some(part) => part.call(operation, &input, host),
                None if operation == FL_CHECK => check(&input, host).map(|()| true),
                None => Ok(false),
            }
        })
    }
}

unsafe extern "C" fn drop_part(part: *mut c_void) {
    if !part.is_null() {
        // SAFETY: it came from `Host::part`, and the host gives it back once.
        let part = unsafe { Box::from_raw(part.cast::<Box<dyn Object>>()) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(part))) {
            std::mem::forget(panic);
        }
    }
}
