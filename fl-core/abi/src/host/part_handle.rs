//! A library, and a part in it, as the host holds them.

use super::call::{Answer, Call};
use super::foreign_call_guard::ForeignCallGuard;
use crate::caller::{Caller, Calls, Means};
use crate::data_sets::{KnownSets, NoSets};
use crate::library::asked::told;
use crate::marshal::{OutgoingMessage, with_inbox, with_messages};
use crate::raw::{
    FL_DIVERGED, FL_LACKS, FL_OK, FL_PANIC, FL_SHAPE, FL_UNKNOWN, FL_UNPRICED, FlHost, FlInput,
    FlLibrary, FlMessage, FlText,
};
use anyhow::{Context, anyhow, bail};
use fl_roles::{AnyInbox, BuildContext, Problem, Result};
use serde::{Deserialize, Serialize};
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

type Create = unsafe extern "C" fn(u32, FlText, FlText, *const FlHost) -> i32;
type Operate = unsafe extern "C" fn(*mut c_void, u32, *const FlInput, *const FlHost) -> i32;
type Describe = unsafe extern "C" fn(*const FlHost, *mut FlText) -> i32;

/// The functions of a library's table, none of them missing.
pub(super) struct Table {
    describe: Describe,
    create: Create,
    call: Operate,
    drop: unsafe extern "C" fn(*mut c_void),
    free: unsafe extern "C" fn(FlText),
}

/// A part that is to be made.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct NewPart {
    pub index: u32,
    /// JSON, with every default filled in.
    pub settings: String,
    /// JSON.
    pub task: String,
}

/// A part of a library, which no other call uses, or NULL for the library itself; the operation,
/// and its text.
pub(crate) type Asked<'a> = (*mut c_void, u32, &'a str);

/// What a library does, wherever it is. It stays loaded for ever.
pub(crate) trait Library: Send + Sync {
    /// The description of its parts.
    fn describe(&self) -> Result<String>;

    /// Makes a part. One that is `alone` shares its process with no other.
    fn create(&self, part: &NewPart, alone: bool, call: Call<'_>) -> (i32, Answer);

    /// Does one operation.
    fn call(&self, asked: Asked<'_>, messages: &[FlMessage], call: Call<'_>) -> (i32, Answer);

    /// Ends a part of this library, which nothing uses any more.
    fn drop_part(&self, who: &str, part: *mut c_void);
}

/// A library, as its parts hold it.
pub(crate) type Functions = &'static dyn Library;

impl Table {
    /// The functions of a library in this process; says which one is missing.
    pub fn of(table: &FlLibrary) -> Result<Functions, &'static str> {
        Ok(Box::leak(Box::new(Self {
            describe: table.describe.ok_or("describe")?,
            create: table.create.ok_or("create")?,
            call: table.call.ok_or("call")?,
            drop: table.drop.ok_or("drop")?,
            free: table.free.ok_or("free")?,
        })))
    }
}

impl Library for Table {
    fn describe(&self) -> Result<String> {
        let mut json = FlText::EMPTY;
        let (code, answer) = Call::new("a library", Means::default()).run(|host| {
            // SAFETY: `host` and `json` live through the call.
            unsafe { (self.describe)(host, &mut json) }
        });
        checked(code, answer).context("it cannot describe its parts")?;
        // SAFETY: the text lives until `free`.
        let text = unsafe { json.read("its description") }.map(str::to_string);
        let _away = ForeignCallGuard::with("a library");
        // SAFETY: the text that `describe` gave, once.
        unsafe { (self.free)(json) };
        text
    }

    fn create(&self, part: &NewPart, _: bool, call: Call<'_>) -> (i32, Answer) {
        let (settings, task) = (FlText::of(&part.settings), FlText::of(&part.task));
        call.run(|host| {
            // SAFETY: everything handed over lives through the call.
            unsafe { (self.create)(part.index, settings, task, host) }
        })
    }

    fn call(&self, asked: Asked<'_>, messages: &[FlMessage], call: Call<'_>) -> (i32, Answer) {
        let (part, operation, text) = asked;
        let input = FlInput::of(text, messages);
        call.run(|host| {
            // SAFETY: the part is the library's own, no other call uses it, and everything handed
            // over lives through the call.
            unsafe { (self.call)(part, operation, &input, host) }
        })
    }

    fn drop_part(&self, who: &str, part: *mut c_void) {
        let _away = ForeignCallGuard::with(who);
        // SAFETY: the library made it, and it is dropped once.
        unsafe { (self.drop)(part) }
    }
}

/// What makes a part of a library.
#[derive(Clone)]
pub(super) struct PartMaker {
    pub functions: Functions,
    /// Names the part in errors.
    pub who: &'static str,
    pub index: u32,
    /// JSON, with every default filled in.
    pub settings: String,
}

impl PartMaker {
    /// Makes the part. One that is `alone` shares its process with no other.
    pub fn make(&self, context: &BuildContext, alone: bool) -> Result<PartHandle> {
        let task = serde_json::to_string(&context.task)?;
        let call = Call::new(self.who, Means::stream(&context.stream));
        let part = NewPart {
            index: self.index,
            settings: self.settings.clone(),
            task,
        };
        let (code, answer) = self.functions.create(&part, alone, call);
        PartHandle::library(self.functions, self.who).successor(code, answer)
    }
}

/// The code of a call that was ended because the program is to stop; no isolated library gives
/// it.
pub(crate) const INTERRUPTED: i32 = i32::MIN;

/// The outcome that a library reports, as an error if it is one; `None`: it has no such operation.
pub(crate) fn checked(code: i32, answer: Answer) -> Result<Option<Answer>> {
    if let Some(misuse) = answer.misuse {
        bail!("{misuse}");
    }
    if code == FL_OK {
        return Ok(Some(answer));
    }
    let failure = answer.failure.filter(|(_, text)| !text.is_empty());
    let text = match failure {
        Some((setting, text)) if setting.is_empty() => text,
        Some((setting, text)) => format!("{setting}: {text}"),
        None => format!("it failed with code {code} and gave no reason"),
    };
    match code {
        FL_UNKNOWN => Ok(None),
        FL_PANIC => bail!("it panicked: {text}"),
        FL_UNPRICED => bail!(Problem::Unpriced(text)),
        FL_SHAPE => bail!(Problem::Shape(text)),
        FL_LACKS => bail!(Problem::Lacks(text)),
        FL_DIVERGED => bail!(Problem::Diverged(text)),
        INTERRUPTED => bail!(Problem::Interrupted(text)),
        _ => bail!("{text}"),
    }
}

/// A part in a library.
pub(crate) struct PartHandle {
    functions: Functions,
    /// `aggregator `mine` from libmine.so`
    who: &'static str,
    part: *mut c_void,
    /// The first failure of an operation that cannot fail here, but can in a library: the next one
    /// that can, does, and says why.
    late: Mutex<Option<String>>,
}

// SAFETY: the interface says that a part may move between threads, and is used by one at a time; so
// there is no `Sync`.
unsafe impl Send for PartHandle {}

impl Drop for PartHandle {
    fn drop(&mut self) {
        if !self.part.is_null() {
            self.functions.drop_part(self.who, self.part);
        }
    }
}

impl PartHandle {
    fn new(functions: Functions, who: &'static str, part: *mut c_void) -> Self {
        Self {
            functions,
            who,
            part,
            late: Mutex::default(),
        }
    }

    /// The library itself; `who` names it in errors.
    pub fn library(functions: Functions, who: &'static str) -> Self {
        Self::new(functions, who, std::ptr::null_mut())
    }

    /// The parts that an answer holds; dropping one ends it.
    fn adopt(&self, answer: &mut Answer) -> Vec<Self> {
        let mut parts = std::mem::take(&mut answer.parts);
        if parts.contains(&self.part) {
            answer
                .misuse
                .get_or_insert_with(|| "it gave itself as a new part".into());
            parts.retain(|part| *part != self.part);
        }
        let own = |part| Self::new(self.functions, self.who, part);
        parts.into_iter().map(own).collect()
    }

    /// The one part that an answer holds.
    fn successor(&self, code: i32, mut answer: Answer) -> Result<Self> {
        let mut parts = self.adopt(&mut answer);
        let outcome = checked(code, answer).context(self.who)?;
        match (outcome, parts.len()) {
            (Some(_), 1) => parts.pop().context("there is one"),
            (Some(_), 0) => Err(anyhow!("it gave no part").context(self.who)),
            (Some(_), n) => Err(anyhow!("it gave {n} parts where one was due").context(self.who)),
            (None, _) => Err(anyhow!("it cannot make this part").context(self.who)),
        }
    }

    fn operate(
        &self,
        operation: u32,
        text: &str,
        messages: &[FlMessage],
        means: Means<'_>,
    ) -> (i32, Answer) {
        let call = Call::new(self.who, means);
        let asked = (self.part, operation, text);
        self.functions.call(asked, messages, call)
    }

    /// The answer to an operation that gives no part.
    fn outcome(&self, (code, mut answer): (i32, Answer)) -> Result<Option<Answer>> {
        if !self.adopt(&mut answer).is_empty() {
            let what = "it gave a part where none was due";
            answer.misuse.get_or_insert_with(|| what.into());
        }
        checked(code, answer).context(self.who)
    }

    /// As [`Calls::must`], with an inbox.
    pub fn on_inbox(
        &self,
        operation: u32,
        text: &str,
        inbox: &dyn AnyInbox,
        means: Means<'_>,
    ) -> Result<Answer> {
        let answer = self.outcome(with_inbox(inbox, |messages| {
            self.operate(operation, text, messages, means)
        }))?;
        self.due(operation, answer)
    }

    /// A new part that an operation gives.
    pub fn part(&self, operation: u32, text: &str, means: Means<'_>) -> Result<Self> {
        let (code, answer) = self.operate(operation, text, &[], means);
        self.successor(code, answer)
    }
}

impl Caller for PartHandle {
    fn call(
        &self,
        operation: u32,
        text: &str,
        letters: &[OutgoingMessage<'_, '_>],
        means: Means<'_>,
    ) -> Result<Option<Answer>> {
        let (code, mut answer) = with_messages(letters, |messages| {
            self.operate(operation, text, messages, means)
        });
        if means.answers.is_some() {
            // what was asked for in the middle is an error of the part as it was there
            answer = told(code, answer)?;
        }
        let answer = self.outcome((code, answer))?;
        let drew = answer.as_ref().is_some_and(|answer| answer.drew);
        if let Some(noise) = means.noise.filter(|_| drew) {
            noise.mark_drawn();
        }
        Ok(answer)
    }

    /// The part's role, name and origin.
    fn who(&self) -> Option<&'static str> {
        Some(self.who)
    }

    fn sets(&self) -> &dyn KnownSets {
        &NoSets
    }

    fn keep_error(&self, error: anyhow::Error) {
        let mut first = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| format!("{error:#}"));
    }

    fn check(&self) -> Result<()> {
        match &*self.late.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => Err(anyhow!("it failed before: {why}").context(self.who)),
            None => Ok(()),
        }
    }
}
