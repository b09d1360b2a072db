//! The library's side: the parts that `plugin!` registered, as a table.

use super::call_context::{Host, Input};
use super::protocol::LocalProtocol;
use crate::ExportedPackage;
use crate::ask::{BytesText, CheckText, CheckedText};
use crate::caller::Callee;
use crate::raw::*;
use crate::roles::aggregator::LocalAggregator;
use anyhow::{Context, ensure};
use fl_roles::message::{MessageDecl, MessageType, message_type, message_types};
use fl_roles::settings::{Reader, Value};
use fl_roles::{
    Accountant, AnyMechanism, AnySelector, BoxedPart, BuildContext, Generator, Problem, Result,
    Role, Task, Trainer, linked_parts,
};
use serde_json::json;
use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A library of parts, as its table does what the program asks.
pub trait PartLibrary {
    /// The description of the parts, see [`FlLibrary::describe`].
    ///
    /// # Errors
    /// Says why there is none.
    fn describe() -> Result<String>;

    /// Makes the part at this position of the description, see [`FlLibrary::create`].
    ///
    /// # Errors
    /// Says why there is no part.
    fn create(index: u32, settings: &str, task: &str, host: &Host<'_>) -> Result<Box<dyn Callee>>;

    /// Does an operation of the library itself; `false`: it has no such operation.
    ///
    /// # Errors
    /// Says why the operation fails.
    fn call(operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool>;
}

/// The table of a library.
pub(crate) const fn table<L: PartLibrary>() -> FlLibrary {
    FlLibrary {
        describe: Some(describe::<L>),
        create: Some(create::<L>),
        call: Some(call::<L>),
        drop: Some(drop_part),
        free: Some(free),
        ..FlLibrary::OF_THIS_VERSION
    }
}

/// The parts that `plugin!` registered.
struct RegisteredParts;

/// The one symbol of a library.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "C sees this name")]
pub static fl_plugin: FlLibrary = table::<RegisteredParts>();

/// The table of this program's own parts: what a library shows of them.
pub fn library() -> &'static FlLibrary {
    &fl_plugin
}

/// Runs `f`; no panic and no error gets past here but as a code and a text.
///
/// # Safety
/// `host` is NULL or valid for the call.
pub(crate) unsafe fn guarded(
    host: *const FlHost,
    f: impl FnOnce(&Host<'_>) -> Result<bool>,
) -> i32 {
    // SAFETY: as the caller says.
    let Some(host) = (unsafe { FlHost::read(host) }) else {
        return FL_ERROR;
    };
    let host = Host(&host);
    match catch_unwind(AssertUnwindSafe(|| f(&host))) {
        Ok(Ok(true)) => FL_OK,
        Ok(Ok(false)) => FL_UNKNOWN,
        Ok(Err(error)) => {
            host.fail("", &format!("{error:#}"));
            match error.downcast_ref::<Problem>() {
                Some(Problem::Unpriced(_)) => FL_UNPRICED,
                Some(Problem::Shape(_)) => FL_SHAPE,
                Some(Problem::Lacks(_)) => FL_LACKS,
                Some(Problem::Diverged(_) | Problem::NotFinite { .. }) => FL_DIVERGED,
                _ => FL_ERROR,
            }
        }
        Err(panic) => {
            let text = fl_roles::panic_text(&*panic);
            host.fail("", &text.unwrap_or_else(|| "without a text".into()));
            std::mem::forget(panic); // its own `drop` might panic again
            FL_PANIC
        }
    }
}

unsafe extern "C" fn describe<L: PartLibrary>(host: *const FlHost, out: *mut FlText) -> i32 {
    // SAFETY: the host's own pointers; `out` is the place for the text, which `free` takes back.
    unsafe {
        guarded(host, |_| {
            let text = L::describe()?.into_boxed_str();
            ensure!(!out.is_null(), "nowhere to put the description");
            out.write(FlText::of(&text));
            std::mem::forget(text);
            Ok(true)
        })
    }
}

/// All parts, and the messages in their signatures that are not of the core.
fn description() -> serde_json::Value {
    let parts = linked_parts();
    let signatures: Vec<_> = parts.iter().map(|p| (p.describe)().signature).collect();
    let mut kinds: Vec<&str> = signatures.iter().flat_map(|s| s.split(" -> ")).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let speaks = parts.iter().any(|p| p.role == Role::Protocol);
    let own: Vec<&MessageType> = if speaks {
        // what its exchanges carry depends on its settings
        message_types()
    } else {
        kinds.into_iter().filter_map(message_type).collect()
    };
    let own = own.into_iter();
    let own = own.filter(|of| !of.is_of_core() && (speaks || !of.columns.is_empty()));
    let messages: Vec<_> = own.map(MessageDecl::from).collect();
    let parts: Vec<_> = parts.into_iter().map(described).collect();
    if messages.is_empty() {
        json!({ "parts": parts })
    } else {
        json!({ "messages": messages, "parts": parts })
    }
}

fn described(part: &fl_roles::PartDecl) -> serde_json::Value {
    let about = (part.describe)();
    let aliases = part.aliases.iter();
    let aliases = aliases.map(|a| json!({ "name": a.name, "preset": a.preset, "parts": a.parts }));
    let mut described = json!({
        "role": part.role.name(), "name": part.name, "signature": about.signature, "doc": about.doc,
        "settings": about.fields, "from": part.package,
    });
    let mut exported = inventory::iter::<ExportedPackage>.into_iter();
    if !exported.any(|of| of.0 == part.package) {
        described["brought"] = true.into();
    }
    if !part.aliases.is_empty() {
        described["aliases"] = aliases.collect();
    }
    if !part.papers.is_empty() {
        described["papers"] = json!(part.papers);
    }
    described
}

unsafe extern "C" fn free(json: FlText) {
    if !json.data.is_null() {
        let text = std::ptr::slice_from_raw_parts_mut(json.data.cast_mut(), json.length);
        // SAFETY: `describe` made it as a boxed text, and the host gives it back once.
        drop(unsafe { Box::from_raw(text) });
    }
}

fn part(index: usize) -> Result<&'static fl_roles::PartDecl> {
    let parts = linked_parts();
    let n = parts.len();
    parts
        .into_iter()
        .nth(index)
        .with_context(|| format!("part {index} of {n}"))
}

/// The part that `plugin!` made, behind `call`.
fn wrap(role: Role, made: Box<dyn Any + Send>) -> Result<Box<dyn Callee>> {
    Ok(match role {
        Role::Aggregator | Role::Attack => Box::new(LocalAggregator::new(unboxed(made)?)),
        Role::Privacy => Box::new(unboxed::<Box<dyn AnyMechanism>>(made)?),
        Role::Selector => Box::new(unboxed::<Box<dyn AnySelector>>(made)?),
        Role::Accountant => Box::new(unboxed::<Box<dyn Accountant>>(made)?),
        Role::Generator => Box::new(unboxed::<Box<dyn Generator>>(made)?),
        Role::Trainer => Box::new(unboxed::<Box<dyn Trainer>>(made)?),
        Role::Protocol => Box::new(LocalProtocol::new(unboxed(made)?)),
    })
}

fn unboxed<B: BoxedPart>(made: Box<dyn Any + Send>) -> Result<B> {
    B::cast(made).context("the part is not of its own role")
}

unsafe extern "C" fn create<L: PartLibrary>(
    index: u32,
    settings: FlText,
    task: FlText,
    host: *const FlHost,
) -> i32 {
    // SAFETY: the host's own pointers.
    unsafe {
        guarded(host, |host| {
            let (settings, task) = (settings.read("settings")?, task.read("a task")?);
            host.part(L::create(index, settings, task, host)?)?;
            Ok(true)
        })
    }
}

impl PartLibrary for RegisteredParts {
    fn describe() -> Result<String> {
        Ok(serde_json::to_string(&description())?)
    }

    fn create(index: u32, settings: &str, task: &str, host: &Host<'_>) -> Result<Box<dyn Callee>> {
        let decl = part(index as usize)?;
        let settings: Value = serde_json::from_str(settings)?;
        let task: Task = serde_json::from_str(task)?;
        let make = BuildContext::new(task, host.stream());
        wrap(decl.role, decl.read(&settings)?.build(&make)?)
    }

    fn call(operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_CHECK => check(input, host)?,
            FL_BYTES => {
                let BytesText { kind, shape } = input.json()?;
                host.json(&message_type(&kind).and_then(|of| of.expected(&shape)))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn check(input: &Input<'_>, host: &Host<'_>) -> Result<()> {
    let CheckText { part: at, settings } = input.json()?;
    let mut reader = Reader::default();
    let read = (part(at as usize)?.check)(&settings, &mut reader);
    let mistakes = reader.mistakes;
    let read = read.filter(|_| mistakes.is_empty());
    let settings = read.map(|read| read.value);
    host.json(&CheckedText { settings, mistakes })
}

unsafe extern "C" fn call<L: PartLibrary>(
    part: *mut c_void,
    operation: u32,
    input: *const FlInput,
    host: *const FlHost,
) -> i32 {
    // SAFETY: the host's own pointers; a part that is not NULL came from `Host::part`, and no other
    // call uses it.
    unsafe {
        guarded(host, |host| {
            let input = FlInput::read(input)?;
            let input = Input(&input);
            match part.cast::<Box<dyn Callee>>().as_mut() {
                Some(part) => part.call(operation, &input, host),
                None => L::call(operation, &input, host),
            }
        })
    }
}

unsafe extern "C" fn drop_part(part: *mut c_void) {
    if !part.is_null() {
        // SAFETY: it came from `Host::part`, and the host gives it back once.
        let part = unsafe { Box::from_raw(part.cast::<Box<dyn Callee>>()) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(part))) {
            std::mem::forget(panic);
        }
    }
}
