//! A process of a library, as the program talks with it.

use super::shared_memory::{Mailbox, SharedMemory};
use super::{
    CallFacts, CallRequest, ENTRIES, Incoming, LAST_CALLS, LAST_STEP, LINES, Operation, Place,
    Process, ProcessMessage, Reply, STOPS, SharedMessage, TimedSocket, WAKE, copied, frame,
    longest_message, shared, with_owned,
};
use crate::caller::Means;
use crate::host::{Answers, process_mark};
use crate::library::asked::ask_other;
use crate::library::{Host, Input};
use crate::raw::{FlHost, FlMessage};
use anyhow::{anyhow, ensure};
use fl_roles::{Result, Stream};
use std::cell::RefCell;
use std::io::{ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// One of them, and the memory that the program shares with it.
pub(super) struct LibraryProcess {
    /// Which of all processes it is.
    pub number: u64,
    pub child: OwnedProcess,
    from: Incoming,
    to: TimedSocket,
    /// How long a call may take.
    longest: Duration,
    /// How much of it is left, while the program answers what the library has asked.
    left: Duration,
    area: SharedMemory,
    /// The number of the last question.
    asked: u64,
    /// May it ask in the middle of this call?
    may_ask: bool,
    /// Has it gone on asking for too long after the signal to stop?
    late: bool,
    /// How many lines of its log this call may still have passed on.
    lines: usize,
    /// The process that asks, see [`process_mark`].
    program: u32,
    /// Why the program ended the process, if it did.
    ended: Arc<OnceLock<String>>,
}

/// How long the last words of a process that has ended may take.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A process that ends with this value; its last words are passed on then.
pub(super) struct OwnedProcess(pub std::process::Child, Option<Receiver<()>>);

impl Drop for OwnedProcess {
    fn drop(&mut self) {
        // it ends by itself when its socket is closed, unless its library keeps it; what that has
        // begun in its group ends too
        // SAFETY: a call of the system on numbers. The child has not been waited for, so its number
        // is its own.
        unsafe { libc::kill(-(self.0.id() as i32), libc::SIGKILL) };
        let _ = self.0.kill();
        let _ = self.0.wait();
        // a process that it has begun outside of its group may go on printing
        let _ = self
            .1
            .as_ref()
            .map(|printed| printed.recv_timeout(LAST_WORDS));
    }
}

/// A part, as the program holds it.
pub(super) struct IsolatedPart {
    pub place: Place,
    /// The process that has it.
    pub number: u64,
    /// What it is called there.
    pub part: u64,
}

impl LibraryProcess {
    /// A process that has begun; each call of it takes at most so long.
    pub fn new(number: u64, process: Process, longest: Duration) -> Result<Self> {
        let child = OwnedProcess(process.child, process.printed);
        let mut to = TimedSocket::new(process.socket);
        to.until = Some(Instant::now() + longest);
        let area = SharedMemory::new(process.memory)?;
        // it waits until there are mailboxes; the first request says why one that has ended did
        let _ = to.write_all(&WAKE);
        let from = to.socket.try_clone()?;
        Ok(Self {
            number,
            child,
            from: Incoming::new(
                from,
                Mailbox::Answers,
                longest_message(process.memory_bytes),
                ENTRIES,
            ),
            to,
            longest,
            left: longest,
            area,
            asked: 0,
            may_ask: false,
            late: false,
            lines: LINES,
            program: process_mark(),
            ended: process.ended,
        })
    }

    /// The library has the floor for what is left of the call's time.
    fn go_on(&mut self) {
        let until = Some(Instant::now() + self.left);
        for end in self.ends() {
            end.until = until;
        }
    }

    /// Both ends of its socket.
    fn ends(&mut self) -> [&mut TimedSocket; 2] {
        [&mut self.to, self.from.socket.get_mut()]
    }

    /// The program has the floor: what it takes to answer is not the library's time.
    fn pause(&mut self) -> Result<()> {
        if STOPS.get().is_some_and(|since| since.elapsed() > LAST_STEP) {
            self.late = true;
            return Err(std::io::Error::from(ErrorKind::TimedOut).into());
        }
        for end in self.ends().map(TimedSocket::left) {
            self.left = end?.map_or(self.left, |left| left.min(self.left));
        }
        Ok(())
    }

    /// Has this process begun it? A fork of the program has a copy of what its parent uses.
    pub fn is_ours(&self) -> bool {
        self.program == process_mark()
    }

    /// Leaves it to the process that has begun it.
    pub fn leave(self) {
        // its socket is closed here, and it is not ended
        std::mem::forget(self.child);
    }

    /// Sends a question.
    pub fn tell(&mut self, what: Operation, call: CallFacts, messages: &[FlMessage]) -> Result<()> {
        (self.left, self.may_ask, self.lines) = (self.longest, call.answers, LINES);
        for end in self.ends() {
            end.hurries = false;
        }
        self.go_on();
        let messages = shared(&mut self.area, messages)?;
        self.send(what, call, messages)
    }

    /// Waits for the answer until the call's time is over; what is logged until then is passed on.
    /// A protocol may ask `host` in the middle.
    pub fn hear(&mut self, host: &FlHost, said: &mut dyn FnMut(u32, &str)) -> Result<Reply> {
        let number = self.asked;
        loop {
            let lines = &mut self.lines;
            let told = self.from.next(&self.area, |told| match told {
                Some(ProcessMessage::LogEvent(level, line)) => {
                    if *lines > 0 {
                        said(level, &line);
                    }
                    *lines = lines.saturating_sub(1);
                    Ok(None)
                }
                other => Ok(other),
            })?;
            match told {
                ProcessMessage::Asked {
                    part,
                    operation,
                    key,
                    text,
                    messages,
                    room,
                } => {
                    ensure!(self.may_ask, "it asks in a call that nobody answers");
                    self.area.see(room)?;
                    let messages = copied(&self.area, messages)?;
                    let stream = Stream::from_key(key.into_array());
                    self.pause()?;
                    let back = AskedBack {
                        process: RefCell::new(&mut *self),
                        host,
                        lost: RefCell::new(None),
                    };
                    let means = Means {
                        answers: Some(&back),
                        ..Means::stream(&stream)
                    };
                    let answer = with_owned(&messages, |letters| {
                        ask_other(host, part, operation, &text, letters, means)
                    });
                    // a process that is gone gets no answer
                    if let Some(lost) = back.lost.into_inner() {
                        return Err(lost);
                    }
                    self.go_on();
                    self.lines = LINES;
                    let reply = Reply::in_call(&mut self.area, answer)?;
                    self.send(Operation::Replied(reply), CallFacts::default(), Vec::new())?;
                }
                ProcessMessage::Answered(reply) => {
                    ensure!(reply.number == number, "it answered another question");
                    return Ok(reply);
                }
                ProcessMessage::LogEvent(..) => {}
            }
        }
    }

    fn send(
        &mut self,
        what: Operation,
        call: CallFacts,
        messages: Vec<SharedMessage>,
    ) -> Result<()> {
        self.asked += 1;
        let ask = CallRequest {
            number: self.asked,
            what,
            call,
            messages,
            room: self.area.len() as u64,
        };
        let (frame, to) = (frame(&ask)?, &mut self.to);
        Ok(self.area.post(Mailbox::Requests, &frame, 0, to)?)
    }

    /// Hands a reply to the host as a library would.
    pub fn hand_on(&mut self, place: &Place, reply: Reply, host: &Host<'_>) -> Result<i32> {
        for part in &reply.parts {
            host.give(IsolatedPart {
                place: place.clone(),
                number: self.number,
                part: *part,
            })?;
        }
        reply.hand_on(&mut self.area, host)
    }

    /// Was this call ended early because the program is to stop?
    pub fn was_cut(&mut self, error: &anyhow::Error) -> bool {
        let hurried = self.ends().iter().any(|end| end.hurries) && LAST_CALLS < self.longest;
        io_error(error) == Some(ErrorKind::TimedOut) && (hurried || self.late)
    }

    /// Why a process does not answer; it has ended afterwards.
    pub fn why(mut self, error: &anyhow::Error) -> String {
        let cut = self.was_cut(error);
        match io_error(error) {
            Some(ErrorKind::TimedOut) => {
                let (longest, after) = match (cut, self.late) {
                    (true, true) => (LAST_STEP, " after the signal to stop"),
                    (true, false) => (LAST_CALLS, " after the signal to stop"),
                    (false, _) => (self.longest, ""),
                };
                let seconds = longest.as_secs_f64();
                format!("its process was ended: a call took longer than {seconds} seconds{after}")
            }
            Some(ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                // its socket is closed, so it has ended or is about to
                let status = (0..1000).find_map(|_| {
                    let status = self.child.0.try_wait().ok().flatten();
                    if status.is_none() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    status
                });
                if let Some(why) = self.ended.get() {
                    return format!("its process was ended: {why}");
                }
                match status.map(|status| (status.signal(), status.code())) {
                    Some((Some(signal), _)) => format!("its process was ended by signal {signal}"),
                    Some((_, Some(code))) => format!("it ended its process with exit code {code}"),
                    _ => "its process closed its socket, and was ended".into(),
                }
            }
            _ => format!("its process was ended because a request to it failed ({error:#})"),
        }
    }
}

fn io_error(error: &anyhow::Error) -> Option<ErrorKind> {
    error.downcast_ref::<std::io::Error>().map(|e| e.kind())
}

/// The way back to a protocol, in the middle of what it asks.
struct AskedBack<'p> {
    process: RefCell<&'p mut LibraryProcess>,
    host: &'p FlHost,
    /// Why the process cannot be asked any more.
    lost: RefCell<Option<anyhow::Error>>,
}

impl Answers for AskedBack<'_> {
    fn answer(&self, _: u64, operation: u32, input: &Input<'_>, reply: &Host<'_>) -> Result<bool> {
        let mut process = self.process.borrow_mut();
        let text = input.text()?.to_string();
        let told = || -> Result<Reply> {
            process.go_on();
            let messages = shared(&mut process.area, input.messages())?;
            let what = Operation::Back { operation, text };
            process.send(what, CallFacts::default(), messages)?;
            let answer = process.hear(self.host, &mut |_, _| {})?;
            process.pause()?;
            Ok(answer)
        };
        let answer = match told() {
            Ok(answer) => answer,
            Err(error) => {
                let why = anyhow!("its process has ended ({error:#})");
                self.lost.borrow_mut().get_or_insert(error);
                return Err(why);
            }
        };
        answer.answer(&mut process.area, reply)
    }
}
