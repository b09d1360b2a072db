//! The program, which asks.

use super::process::{IsolatedPart, LibraryProcess};
use super::{CallFacts, Operation, Reply};
use crate::caller::Means;
use crate::host::{Answer, Asked, Call, INTERRUPTED, Library, NewPart, checked};
use crate::library::Host;
use crate::raw::{FL_ERROR, FL_OK, FlHost, FlMessage};
use anyhow::{Context, anyhow, bail};
use fl_roles::{Problem, Result};
use std::ffi::c_void;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A process that has loaded a library, or is about to.
pub struct Process {
    /// The process.
    pub child: std::process::Child,
    /// The way to it.
    pub socket: UnixStream,
    /// Holds the shared tensors: it must not become shorter.
    pub memory: File,
    /// The memory that the process may have, in bytes.
    pub memory_bytes: u64,
    /// Why the program ended the process, if it did.
    pub ended: Arc<OnceLock<String>>,
    /// Disconnected once all that it has printed is passed on, if the program does that.
    pub printed: Option<Receiver<()>>,
}

/// Begins a process.
type Begin = Box<dyn Fn() -> Result<Process> + Send + Sync>;

/// The most processes of a library, on every machine: which parts share one does not depend
/// on how many processors there are.
const PROCESSES: usize = 16;

/// A library in processes of its own. A part's random stream says in which it is made, and there it
/// stays.
pub struct IsolatedLibrary {
    begin: Begin,
    /// A call that takes longer ends its process; what the program takes to answer does not count.
    longest: Duration,
    workers: [Place; PROCESSES],
}

/// The place of a process, which its parts share with the library. That of a part which is alone
/// ends with it.
pub(super) type Place = Arc<Mutex<Worker>>;

/// What is in such a place.
#[derive(Default)]
pub(super) struct Worker {
    running: Option<LibraryProcess>,
    /// The last one that ended, and why.
    ended: Option<(u64, String)>,
}

impl IsolatedLibrary {
    /// Processes that `begin` begins when they are needed; a call that takes longer than `longest`
    /// ends its process.
    pub fn new(begin: Begin, longest: Duration) -> Self {
        Self {
            begin,
            longest,
            workers: Default::default(),
        }
    }

    /// Asks the process at this place, and hands on what it answers. A question about a part is for
    /// process `number` alone. No code of the library runs in this process.
    fn ask(
        &self,
        place: &Place,
        number: Option<u64>,
        what: Operation,
        messages: &[FlMessage],
        call: Call<'_>,
    ) -> (i32, Answer) {
        let facts = call.facts();
        call.run_back(|host| {
            let mut worker = locked(place);
            let answered = self.answered(&mut worker, number, (what, facts, messages), host);
            let told =
                answered.and_then(|(running, reply)| running.hand_on(place, reply, &Host(host)));
            told.unwrap_or_else(|error| {
                Host(host).fail("", &format!("{error:#}"));
                match error.downcast_ref() {
                    Some(Problem::Interrupted(_)) => INTERRUPTED,
                    _ => FL_ERROR,
                }
            })
        })
    }

    fn answered<'w>(
        &self,
        worker: &'w mut Worker,
        number: Option<u64>,
        (what, facts, messages): (Operation, CallFacts, &[FlMessage]),
        host: &FlHost,
    ) -> Result<(&'w mut LibraryProcess, Reply)> {
        let here = worker.running.as_ref().map(|running| running.number);
        match number {
            Some(number) if here != Some(number) => {
                let ended = worker.ended.as_ref().filter(|(of, _)| *of == number);
                let why = ended.map_or("nothing of it is left", |(_, why)| why);
                return Err(anyhow!("its process has ended: {why}"));
            }
            Some(_) => {}
            // what is new does not suffer for what has ended meanwhile
            None => {
                let gone = |r: &mut LibraryProcess| !matches!(r.child.0.try_wait(), Ok(None));
                if worker.running.as_mut().is_none_or(gone) {
                    worker.running = None;
                    worker.running = Some(self.begun()?);
                }
            }
        }
        let running = worker.running.as_mut().context("it has a process")?;
        let reply = match running.tell(what, facts, messages) {
            Ok(()) => running.hear(host, &mut log_to(host)),
            Err(error) => Err(error),
        };
        match reply {
            // the borrow checker requires a second lookup
            Ok(reply) => Ok((worker.running.as_mut().context("it has a process")?, reply)),
            Err(error) => {
                let cut = worker.running.as_mut().is_some_and(|r| r.was_cut(&error));
                let text = format!("{}, in the middle of a call", self.end(worker, &error));
                if cut {
                    super::CUT.store(true, Ordering::Relaxed);
                    bail!(Problem::Interrupted(text));
                }
                Err(anyhow!(text))
            }
        }
    }

    /// Ends a process that cannot be asked any more, and says why.
    fn end(&self, worker: &mut Worker, error: &anyhow::Error) -> String {
        let Some(running) = worker.running.take() else {
            return "its process has ended".into();
        };
        let number = running.number;
        let why = running.why(error);
        worker.ended = Some((number, why.clone()));
        why
    }

    fn begun(&self) -> Result<LibraryProcess> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let process = (self.begin)().context("cannot start a process for it")?;
        LibraryProcess::new(
            NUMBER.fetch_add(1, Ordering::Relaxed),
            process,
            self.longest,
        )
    }
}

impl Library for IsolatedLibrary {
    fn describe(&self) -> Result<String> {
        let call = Call::new("a library", Means::default());
        let (code, answer) = self.ask(&self.workers[0], None, Operation::Describe, &[], call);
        let answer = checked(code, answer)?;
        let text = answer.and_then(|answer| answer.text);
        text.context("it cannot describe its parts")
    }

    fn create(&self, part: &NewPart, alone: bool, call: Call<'_>) -> (i32, Answer) {
        let at = call.facts().key.map_or(0, |key| usize::from(key[0])) % PROCESSES;
        // a protocol leads for long, and asks parts of the library while it does
        let place = if alone {
            &Place::default()
        } else {
            &self.workers[at]
        };
        self.ask(place, None, Operation::Create(part.clone()), &[], call)
    }

    fn call(&self, asked: Asked<'_>, messages: &[FlMessage], call: Call<'_>) -> (i32, Answer) {
        let (part, operation, text) = asked;
        // SAFETY: a call of this library gave it, and it is not dropped; the handle is a box of
        // ours.
        let handle = unsafe { part.cast::<IsolatedPart>().as_ref() };
        let what = Operation::Call {
            part: handle.map_or(0, |handle| handle.part),
            operation,
            text: text.into(),
        };
        let place = handle.map_or(&self.workers[0], |handle| &handle.place);
        self.ask(place, handle.map(|h| h.number), what, messages, call)
    }

    fn drop_part(&self, who: &str, part: *mut c_void) {
        // SAFETY: a call of this library gave it; the handle is a box of ours, and this is its last
        // use.
        let handle = unsafe { Box::from_raw(part.cast::<IsolatedPart>()) };
        let mut worker = locked(&handle.place);
        // a program whose step is lost ends the processes anyway: the place is leaked, since the
        // last part of one would wait here for its process to end
        if super::calls_were_cut() {
            std::mem::forget(handle.place.clone());
            return;
        }
        if !self.workers.iter().any(|of| Arc::ptr_eq(of, &handle.place)) {
            // its process was for it alone
            *worker = Worker::default();
            return;
        }
        Call::new(who, Means::default()).run_back(|host| {
            let running = worker.running.as_mut();
            if let Some(running) = running.filter(|running| running.number == handle.number) {
                let what = Operation::Drop { part: handle.part };
                let told = running.tell(what, CallFacts::default(), &[]);
                let told = told.and_then(|()| running.hear(host, &mut log_to(host)));
                // a failure is no error of this part: the next call of another part in the process
                // reports it
                if let Err(error) = told {
                    self.end(&mut worker, &error);
                }
            }
            FL_OK
        });
    }
}

fn locked(place: &Place) -> MutexGuard<'_, Worker> {
    let mut worker = place.lock().unwrap_or_else(PoisonError::into_inner);
    // a fork of the program begins processes of its own
    if let Some(other) = worker.running.take_if(|running| !running.is_ours()) {
        other.leave();
    }
    worker
}

/// Passes lines of the log on to the host.
fn log_to(host: &FlHost) -> impl FnMut(u32, &str) {
    |level, line| Host(host).log(level, line)
}
