//! A library, and a part in it, as the host holds them.

use super::call::{Answer, Call};
use super::deferred_error::DeferredError;
use super::foreign_call_guard::ForeignCallGuard;
use crate::caller::{Caller, Calls, Means};
use crate::data_sets::{KnownSets, NoSets};
#[cfg(unix)]
use crate::isolated::IsolatedLibrary;
use crate::library::asked::told;
use crate::marshal::{OutgoingMessage, with_inbox, with_messages};
use crate::raw::{
    FL_DIVERGED, FL_LACKS, FL_OK, FL_PANIC, FL_SHAPE, FL_UNKNOWN, FL_UNPRICED, FlHost, FlInput,
    FlLibrary, FlMessage, FlText,
};
use anyhow::{Context, anyhow, bail};
use fl_roles::privacy::ReleaseNoise;
use fl_roles::{AnyInbox, Problem, Result, Stream};
use std::ffi::c_void;

type Create = unsafe extern "C" fn(u32, FlText, FlText, *const FlHost) -> i32;
type Operate = unsafe extern "C" fn(*mut c_void, u32, *const FlInput, *const FlHost) -> i32;
type Describe = unsafe extern "C" fn(*const FlHost, *mut FlText) -> i32;

/// The functions of a library's table, none of them missing. The library stays loaded for ever.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    describe: Describe,
    create: Create,
    call: Operate,
    drop: unsafe extern "C" fn(*mut c_void),
    free: unsafe extern "C" fn(FlText),
}

/// What a library does, wherever it is.
#[derive(Clone, Copy)]
pub(crate) enum Functions {
    /// In this process.
    Here(Table),
    /// In processes of its own.
    #[cfg(unix)]
    IsolatedLibrary(&'static IsolatedLibrary),
}

impl Functions {
    /// Says which function is missing.
    pub fn of(table: &FlLibrary) -> Result<Self, &'static str> {
        Ok(Self::Here(Table {
            describe: table.describe.ok_or("describe")?,
            create: table.create.ok_or("create")?,
            call: table.call.ok_or("call")?,
            drop: table.drop.ok_or("drop")?,
            free: table.free.ok_or("free")?,
        }))
    }

    /// The description.
    pub fn describe(&self) -> Result<String> {
        let call = Call::new("a library", None, None);
        let cannot = "it cannot describe its parts";
        let table = match self {
            Self::Here(table) => table,
            #[cfg(unix)]
            Self::IsolatedLibrary(apart) => {
                let (code, answer) = call.run(|host| apart.describe(host));
                // its process has said already what it could not do
                let answer = checked(code, answer)?;
                return answer.and_then(|a| a.text).context(cannot);
            }
        };
        let mut json = FlText::EMPTY;
        let (code, answer) = call.run(|host| {
            // SAFETY: `host` and `json` live through the call.
            unsafe { (table.describe)(host, &mut json) }
        });
        checked(code, answer).context(cannot)?;
        // SAFETY: the text lives until `free`.
        let text = unsafe { json.read("its description") }.map(str::to_string);
        let _away = ForeignCallGuard::with("a library");
        // SAFETY: the text that `describe` gave, once.
        unsafe { (table.free)(json) };
        text
    }

    /// Makes a part.
    pub fn create_raw(
        self,
        index: u32,
        settings: &str,
        task: &str,
        alone: bool,
        call: Call<'_>,
    ) -> (i32, Answer) {
        match self {
            Self::Here(table) => call.run(|host| {
                let _ = alone;
                // SAFETY: everything handed over lives through the call.
                unsafe { (table.create)(index, FlText::of(settings), FlText::of(task), host) }
            }),
            #[cfg(unix)]
            Self::IsolatedLibrary(apart) => {
                let asked = call.asked(&[]);
                // no code of the library runs here
                call.run_back(|host| apart.create(index, settings, task, alone, asked, host))
            }
        }
    }

    /// Does one operation with a part of this library; no other call uses the part.
    pub fn call_raw(
        self,
        part: *mut c_void,
        operation: u32,
        text: &str,
        messages: &[FlMessage],
        call: Call<'_>,
    ) -> (i32, Answer) {
        match self {
            Self::Here(table) => {
                let input = FlInput::of(text, messages);
                call.run(|host| {
                    // SAFETY: the part is the library's own, no other call uses it, and
                    // everything handed over lives through the call.
                    unsafe { (table.call)(part, operation, &input, host) }
                })
            }
            #[cfg(unix)]
            Self::IsolatedLibrary(apart) => {
                let asked = call.asked(messages);
                call.run_back(|host| {
                    // SAFETY: the part is one that a call gave, and `messages` are valid through
                    // the call.
                    unsafe { apart.call(part, operation, text, asked, host) }
                })
            }
        }
    }

    /// Ends a part of this library, which nothing uses any more.
    pub fn drop_raw(self, who: &str, part: *mut c_void) {
        match self {
            Self::Here(table) => {
                let _away = ForeignCallGuard::with(who);
                // SAFETY: the library made it, and it is dropped once.
                unsafe { (table.drop)(part) }
            }
            #[cfg(unix)]
            Self::IsolatedLibrary(apart) => {
                // a failure is no error of this part: the next call of another part in the process
                // reports it
                _ = Call::new(who, None, None).run(|host| {
                    // SAFETY: a call gave it, and it is dropped once.
                    unsafe { apart.drop(part, host) };
                    FL_OK
                });
            }
        }
    }

    /// Makes a part; `who` names it in errors. One that is `alone` shares its process with no
    /// other.
    pub fn create(
        self,
        who: &'static str,
        index: u32,
        settings: &str,
        task: &str,
        stream: &Stream,
        alone: bool,
    ) -> Result<PartHandle> {
        let call = Call::new(who, Some(stream), None);
        let (code, answer) = self.create_raw(index, settings, task, alone, call);
        PartHandle::new(self, who, std::ptr::null_mut()).successor(code, answer)
    }

    /// Asks the library itself.
    pub fn ask(self, who: &'static str, operation: u32, text: &str) -> Result<Option<Answer>> {
        let library = PartHandle::new(self, who, std::ptr::null_mut());
        library.call(operation, text, &[], Means::default())
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
    late: DeferredError,
}

// SAFETY: the interface says that a part may move between threads, and is used by one at a time; so
// there is no `Sync`.
unsafe impl Send for PartHandle {}

impl Drop for PartHandle {
    fn drop(&mut self) {
        if !self.part.is_null() {
            self.functions.drop_raw(self.who, self.part);
        }
    }
}

impl PartHandle {
    fn new(functions: Functions, who: &'static str, part: *mut c_void) -> Self {
        Self {
            functions,
            who,
            part,
            late: DeferredError::default(),
        }
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
        let stream = means.noise.map(ReleaseNoise::source).or(means.stream);
        let call = Call::new(self.who, stream, means.exec);
        let call = call.with_noise(means.noise.map(ReleaseNoise::kind).unwrap_or_default());
        let call = match means.answers {
            Some(answers) => call.with_answers(answers),
            None => call,
        };
        self.functions
            .call_raw(self.part, operation, text, messages, call)
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
        self.late.keep(&error);
    }

    fn check(&self) -> Result<()> {
        self.late.check().context(self.who)
    }
}
