//! The process that has the library.

use super::shared_memory::{AnswerRooms, Mailbox, SharedMemory};
use super::{
    CallFacts, CallRequest, Incoming, LINES, LONGEST, Operation, OwnedMessage, ProcessMessage,
    Reply, SharedMessage, copied, frame, shared, shared_tensors, with_owned,
};
use crate::caller::Means;
use crate::host::{
    Answer, Answers, Asked, Call, Functions, checked_table, on_log, own_process, process_mark,
};
use crate::library::asked::ask_other;
use crate::library::{Host, Input};
use crate::marshal::{OutgoingMessage, with_messages};
use crate::raw::{FL_ERROR, FL_OK, FlLibrary};
use anyhow::{Context, ensure};
use fl_roles::message::NamedTensors;
use fl_roles::{Executor, Result, Stream};
use serde_bytes::ByteArray;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// The way to the program.
static TO: Mutex<Option<ToSocket>> = Mutex::new(None);

/// The socket to the program, which any thread may log to.
struct ToSocket {
    socket: UnixStream,
    /// How many lines the library has logged.
    lines: u32,
    /// How many of them since the last answer.
    since: usize,
}

/// Sends the program a line of the log, from any thread.
fn log(level: u32, line: &str) -> Result<()> {
    let mut to = TO.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(to) = to.as_mut().filter(|to| to.since < LINES) else {
        return Ok(());
    };
    to.since += 1;
    to.lines = to.lines.wrapping_add(1);
    let line = ProcessMessage::LogEvent(level, line.into());
    Ok(to.socket.write_all(&frame(&line)?)?)
}

/// Loads a library, and answers the program's questions with its parts, until the program has no
/// more. `memory` is what tensors are shared in.
///
/// # Errors
/// If the program's messages cannot be read, or its socket not written.
///
/// # Safety
/// What `load` gives fulfils the requirements of [`crate::import`].
pub unsafe fn serve(
    load: impl FnOnce() -> Result<*const FlLibrary, String>,
    program: UnixStream,
    memory: File,
    exec: &dyn Executor,
) -> Result<()> {
    own_process();
    on_log(|level, _, line| {
        // the program has ended: there is no reader
        let _ = log(level, line);
    });
    *TO.lock().unwrap_or_else(PoisonError::into_inner) = Some(ToSocket {
        socket: program.try_clone()?,
        lines: 0,
        since: 0,
    });
    let functions = load().and_then(|table| {
        // SAFETY: as the caller says.
        unsafe { checked_table(table) }.map_err(|refused| refused.to_string())
    });
    let mut from = Incoming::new(program, Mailbox::Requests, LONGEST, usize::MAX);
    // the program wakes this process when there is memory
    match from.receive::<CallRequest>() {
        Ok(_) => {}
        Err(error) if closed(&error) => return Ok(()),
        Err(error) => return Err(error),
    }
    let mut child = Child {
        functions,
        parts: BTreeSet::new(),
        area: SharedMemory::made(memory)?,
        exec,
        from,
        process: process_mark(),
    };
    loop {
        let ask = match child.next() {
            Ok(ask) => ask,
            // the program has ended, or needs this process no more
            Err(error) if closed(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let reply = child.reply(ask);
        child.tell(&ProcessMessage::Answered(reply))?;
    }
}

fn closed(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|e| [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset].contains(&e.kind()))
}

fn run(
    functions: Functions,
    asked: Asked<'_>,
    letters: &[OutgoingMessage<'_, '_>],
    call: Call<'_>,
) -> (i32, Answer) {
    with_messages(letters, |messages| functions.call(asked, messages, call))
}

struct Child<'e> {
    functions: Result<Functions, String>,
    /// Those that the library has made and that were not dropped.
    parts: BTreeSet<u64>,
    area: SharedMemory,
    exec: &'e dyn Executor,
    from: Incoming,
    /// This process, see [`process_mark`]: a library may make a copy of it, which is to answer
    /// nothing.
    process: u32,
}

/// The way to the program from a part in the middle of a call. What the program asks back may ask
/// for more, so the process is borrowed between two messages only.
struct ToProgram<'c, 'e>(RefCell<&'c mut Child<'e>>);

impl Answers for ToProgram<'_, '_> {
    fn answer(
        &self,
        part: u64,
        operation: u32,
        input: &Input<'_>,
        reply: &Host<'_>,
    ) -> Result<bool> {
        let key = reply.0.key;
        self.0.borrow_mut().ask(part, operation, key, input)?;
        loop {
            let (request, messages) = self.0.borrow_mut().hear()?;
            match request.what {
                Operation::Replied(answer) => {
                    return answer.answer(&mut self.0.borrow_mut().area, reply);
                }
                Operation::Back { operation, text } => {
                    let means = Means {
                        answers: Some(self),
                        ..Means::default()
                    };
                    let answer = with_owned(&messages, |letters| {
                        ask_other(reply.0, 0, operation, &text, letters, means)
                    });
                    self.0.borrow_mut().answer_back(request.number, answer)?;
                }
                _ => anyhow::bail!("the program asked for something else in the middle of a call"),
            }
        }
    }
}

impl Child<'_> {
    fn next(&mut self) -> Result<CallRequest> {
        self.from.next(&self.area, Ok)
    }

    fn tell(&self, told: &ProcessMessage) -> Result<()> {
        if process_mark() != self.process {
            crate::leave();
        }
        let mut to = TO.lock().unwrap_or_else(PoisonError::into_inner);
        let to = to.as_mut().context("there is a program")?;
        to.since = 0;
        let (frame, lines) = (frame(told)?, to.lines);
        Ok(self
            .area
            .post(Mailbox::Answers, &frame, lines, &mut to.socket)?)
    }

    /// Asks the program in the middle of a call.
    fn ask(&mut self, part: u64, operation: u32, key: [u8; 32], input: &Input<'_>) -> Result<()> {
        let messages = shared(&mut self.area, input.messages())?;
        self.tell(&ProcessMessage::Asked {
            part,
            operation,
            key: ByteArray::new(key),
            text: input.text()?.into(),
            messages,
            room: self.area.len() as u64,
        })
    }

    /// Waits for what the program says in the middle of a call.
    fn hear(&mut self) -> Result<(CallRequest, Vec<OwnedMessage>)> {
        let mut request = self.next()?;
        self.area.see(request.room)?;
        let messages = copied(&self.area, std::mem::take(&mut request.messages))?;
        Ok((request, messages))
    }

    /// Answers what the program asked back.
    fn answer_back(&mut self, number: u64, answer: Result<Option<Answer>>) -> Result<()> {
        let mut reply = Reply::in_call(&mut self.area, answer)?;
        reply.number = number;
        self.tell(&ProcessMessage::Answered(reply))
    }

    fn reply(&mut self, ask: CallRequest) -> Reply {
        let number = ask.number;
        let mut reply = self.answered(ask).unwrap_or_else(|error| Reply {
            code: FL_ERROR,
            failure: Some((String::new(), format!("{error:#}"))),
            ..Reply::default()
        });
        (reply.number, reply.room) = (number, self.area.len() as u64);
        reply
    }

    fn answered(&mut self, ask: CallRequest) -> Result<Reply> {
        let functions = match &self.functions {
            Ok(found) => *found,
            Err(why) => anyhow::bail!("{why}"),
        };
        self.area.see(ask.room)?;
        let CallFacts {
            key,
            noise,
            answers,
        } = ask.call;
        let stream = key.map(|key| Stream::from_key(key.into_array()));
        let means = Means {
            stream: stream.as_ref(),
            exec: Some(self.exec),
            ..Means::default()
        };
        let call = Call::new("a library", means).with_noise(noise);
        let mut called = 0;
        let (code, answer) = match ask.what {
            Operation::Describe => {
                return Ok(Reply {
                    code: FL_OK,
                    text: Some(functions.describe()?),
                    ..Reply::default()
                });
            }
            Operation::Create(part) => functions.create(&part, false, call),
            Operation::Call {
                part,
                operation,
                text,
            } => {
                // 0 stands for the library itself
                ensure!(
                    part == 0 || self.parts.contains(&part),
                    "that part no longer exists"
                );
                called = part;
                let asked = (part as *mut c_void, operation, &*text);
                if answers {
                    let messages = copied(&self.area, ask.messages)?;
                    let to = ToProgram(RefCell::new(&mut *self));
                    let call = call.with_answers(&to);
                    with_owned(&messages, |letters| run(functions, asked, letters, call))
                } else {
                    self.call(functions, asked, &ask.messages, call)?
                }
            }
            Operation::Drop { part } => {
                if self.parts.remove(&part) {
                    functions.drop_part("a library", part as *mut c_void);
                }
                return Ok(Reply::default());
            }
            Operation::Replied(_) | Operation::Back { .. } => {
                anyhow::bail!("an answer without a request")
            }
        };
        self.told(called, code, answer)
    }

    /// Does an operation that asks the program nothing, so that its messages stay where they are.
    fn call(
        &mut self,
        functions: Functions,
        asked: Asked<'_>,
        messages: &[SharedMessage],
        call: Call<'_>,
    ) -> Result<(i32, Answer)> {
        let mut bodies: Vec<NamedTensors<'_>> = Vec::with_capacity(messages.len());
        for message in messages {
            let body = message.tensors.iter().map(|tensor| {
                // SAFETY: the program waits for the answer, and writes nothing meanwhile.
                let view = unsafe { self.area.view(tensor) }?;
                Ok((tensor.name.as_str().into(), view))
            });
            bodies.push(body.collect::<Result<_>>()?);
        }
        let letters = messages.iter().zip(&bodies);
        let letters: Vec<_> = letters
            .map(|(of, body)| OutgoingMessage::of(&of.mail, body))
            .collect();
        let given = messages.iter().flat_map(|message| &message.tensors);
        let rooms = AnswerRooms::behind(&self.area, given)?;
        let outcome = run(functions, asked, &letters, call.with_rooms(&rooms));
        let length = rooms.length();
        self.area.see(length)?;
        Ok(outcome)
    }

    /// What a call of `part` gave.
    fn told(&mut self, part: u64, code: i32, mut answer: Answer) -> Result<Reply> {
        // a part that is there already would be dropped twice
        let given: Vec<u64> = answer.parts.iter().map(|part| *part as u64).collect();
        let (known, parts): (Vec<u64>, Vec<u64>) = given
            .into_iter()
            .partition(|part| self.parts.contains(part));
        if !known.is_empty() {
            let what = if known.contains(&part) {
                "it gave itself as a new part"
            } else {
                "it gave a part that already exists"
            };
            answer.misuse.get_or_insert_with(|| what.into());
        }
        self.parts.extend(&parts);
        let mut reply = Reply {
            code,
            text: answer.text,
            failure: answer.failure,
            misuse: answer.misuse,
            drew: answer.drew,
            parts,
            ..Reply::default()
        };
        reply.tensors = if answer.tensors.is_empty() {
            answer.shared
        } else {
            shared_tensors(&mut self.area, &answer.tensors)?
        };
        Ok(reply)
    }
}
