//! The process that has the library.

use super::shared_memory::{Doorbell, SharedMemory};
use super::{
    CallRequest, Operation, OwnedMessage, ProcessMessage, Reply, copied, receive, send, shared,
    shared_tensors, with_owned,
};
use crate::abi::ask::ErrorText;
use crate::abi::host::{
    Answer, Answers, Call, Functions, Refused, checked_table, on_log, own_process,
};
use crate::abi::library::link::ask_other;
use crate::abi::library::{Host, Input};
use crate::abi::marshal::{OutgoingMessage, with_messages};
use crate::abi::raw::{FL_ERROR, FL_OK, FlLibrary};
use crate::message::NamedTensors;
use crate::{Executor, Result, Stream};
use anyhow::ensure;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// The way to the program, and how many lines the library has logged since the last answer.
static TO: Mutex<(Option<UnixStream>, usize)> = Mutex::new((None, 0));
/// The most lines passed on for each answer.
const LINES: usize = 1000;

/// Sends the program a message, from any thread.
fn tell(told: &ProcessMessage) -> Result<()> {
    let mut to = TO.lock().unwrap_or_else(PoisonError::into_inner);
    let (Some(program), lines) = &mut *to else {
        return Ok(());
    };
    match told {
        ProcessMessage::LogEvent(..) if *lines == LINES => return Ok(()),
        ProcessMessage::LogEvent(..) => *lines += 1,
        ProcessMessage::Answered(_) | ProcessMessage::Asked { .. } => *lines = 0,
    }
    send(program, told)
}

/// Loads a library, and answers the program's questions with its parts, until the program has no
/// more. `memory` is what tensors are shared in.
///
/// # Errors
/// If the program's messages cannot be read, or its socket not written.
///
/// # Safety
/// What `load` gives fulfils the requirements of [`crate::abi::import`].
pub unsafe fn serve(
    load: impl FnOnce() -> Result<*const FlLibrary, String>,
    program: UnixStream,
    memory: File,
    exec: &dyn Executor,
) -> Result<()> {
    own_process();
    on_log(|level, _, line| {
        // the program has ended: there is no reader
        let _ = tell(&ProcessMessage::LogEvent(level, line.into()));
    });
    TO.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(program.try_clone()?);
    // SAFETY: as the caller says.
    let functions = load().and_then(|table| unsafe { checked_table(table) }.map_err(text_of));
    let mut child = Child {
        functions,
        parts: BTreeSet::new(),
        area: SharedMemory::new(memory),
        exec,
        from: BufReader::new(program),
        heard: 0,
    };
    loop {
        let ask = match child.next() {
            Ok(ask) => ask,
            // the program has ended, or needs this process no more
            Err(error) if closed(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let number = ask.number;
        if let Some(mut reply) = child.reply(ask) {
            reply.number = number;
            tell(&ProcessMessage::Answered(reply))?;
            child.area.ring(Doorbell::Answered);
        }
    }
}

fn text_of(refused: Refused) -> String {
    refused.to_string()
}

fn closed(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|e| [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset].contains(&e.kind()))
}

struct Child<'e> {
    functions: Result<Functions, String>,
    /// Those that the library has made and that were not dropped.
    parts: BTreeSet<u64>,
    area: SharedMemory,
    exec: &'e dyn Executor,
    from: BufReader<UnixStream>,
    /// How many questions there were.
    heard: u32,
}

/// The way to the program from a part in the middle of a call. What the program asks back may ask
/// for more, so the process is borrowed between two messages only.
struct ToProgram<'c, 'e>(RefCell<&'c mut Child<'e>>);

impl Answers for ToProgram<'_, '_> {
    fn answer(&self, operation: u32, input: &Input<'_>, reply: &Host<'_>) -> Result<bool> {
        self.0.borrow_mut().ask(operation, input)?;
        loop {
            let (request, messages) = self.0.borrow_mut().hear()?;
            match request.what {
                Operation::Replied { text, failed } => {
                    if let Some(failed) = failed {
                        return Err(failed.error());
                    }
                    let tensors = messages.iter().flat_map(|m| &m.tensors);
                    let tensors = tensors.map(|(n, t)| (n.as_str().into(), t.view()));
                    reply.tensors(&tensors.collect())?;
                    if let Some(text) = text {
                        reply.text(&text);
                    }
                    return Ok(true);
                }
                Operation::Back { operation, text } => {
                    let answer = with_owned(&messages, |letters| {
                        ask_other(reply.0, operation, &text, letters, Some(self))
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
        self.area.listen(Doorbell::CallInput, &mut self.heard);
        receive(&mut self.from)
    }

    /// Asks the program in the middle of a call.
    fn ask(&mut self, operation: u32, input: &Input<'_>) -> Result<()> {
        let messages = shared(&mut self.area, input.messages())?;
        tell(&ProcessMessage::Asked {
            operation,
            text: input.text()?.into(),
            messages,
            room: self.area.len() as u64,
        })?;
        self.area.ring(Doorbell::Answered);
        Ok(())
    }

    /// Waits for what the program says in the middle of a call.
    fn hear(&mut self) -> Result<(CallRequest, Vec<OwnedMessage>)> {
        let mut request = self.next()?;
        self.area.see(request.room)?;
        let messages = copied(&self.area, std::mem::take(&mut request.messages))?;
        Ok((request, messages))
    }

    /// Answers what the program asked back.
    fn answer_back(&mut self, number: u64, answer: Result<Answer>) -> Result<()> {
        let mut reply = match answer {
            Ok(answer) => Reply {
                text: answer.text,
                tensors: shared_tensors(&mut self.area, &answer.tensors)?,
                ..Reply::default()
            },
            Err(error) => Reply {
                code: FL_ERROR,
                text: Some(serde_json::to_string(&ErrorText::of(&error))?),
                ..Reply::default()
            },
        };
        reply.number = number;
        reply.room = self.area.len() as u64;
        tell(&ProcessMessage::Answered(reply))?;
        self.area.ring(Doorbell::Answered);
        Ok(())
    }

    fn reply(&mut self, ask: CallRequest) -> Option<Reply> {
        let answered = self.answered(ask).transpose()?;
        let mut reply = answered.unwrap_or_else(|error| Reply {
            code: FL_ERROR,
            failure: Some((String::new(), format!("{error:#}"))),
            ..Reply::default()
        });
        reply.room = self.area.len() as u64;
        Some(reply)
    }

    fn answered(&mut self, ask: CallRequest) -> Result<Option<Reply>> {
        let functions = match &self.functions {
            Ok(functions) => *functions,
            Err(why) => anyhow::bail!("{why}"),
        };
        self.area.see(ask.room)?;
        let call = || {
            let stream = ask.key.map(Stream::from_key);
            Call::new("a library", stream.as_ref(), Some(self.exec)).with_noise(ask.noise)
        };
        let (code, answer) = match &ask.what {
            Operation::Describe => {
                let text = functions.describe()?;
                return Ok(Some(Reply {
                    code: FL_OK,
                    text: Some(text),
                    ..Reply::default()
                }));
            }
            Operation::Create {
                index,
                settings,
                task,
            } => functions.create_raw(*index, settings, task, false, call()),
            Operation::Call {
                part,
                operation,
                text,
            } => {
                // 0 stands for the library itself
                ensure!(
                    *part == 0 || self.parts.contains(part),
                    "that part no longer exists"
                );
                if ask.answers {
                    let (part, operation) = (*part, *operation);
                    let (text, messages) = (text.clone(), copied(&self.area, ask.messages)?);
                    let (exec, stream) = (self.exec, ask.key.map(Stream::from_key));
                    let outcome = {
                        let to = ToProgram(RefCell::new(&mut *self));
                        with_owned(&messages, |letters| {
                            with_messages(letters, |messages| {
                                let call = Call::new("a library", stream.as_ref(), Some(exec));
                                let call = call.with_noise(ask.noise).with_answers(&to);
                                let part = part as *mut c_void;
                                functions.call_raw(part, operation, &text, messages, call)
                            })
                        })
                    };
                    return self.told(part, outcome.0, outcome.1).map(Some);
                }
                let mut bodies: Vec<NamedTensors<'_>> = Vec::new();
                for message in &ask.messages {
                    let body = message.tensors.iter().map(|tensor| {
                        // SAFETY: the program waits for the answer, and writes nothing meanwhile.
                        let view = unsafe { self.area.view(tensor) }?;
                        Ok((tensor.name.as_str().into(), view))
                    });
                    bodies.push(body.collect::<Result<_>>()?);
                }
                let letters =
                    ask.messages
                        .iter()
                        .zip(&bodies)
                        .map(|(m, tensors)| OutgoingMessage {
                            from: m.from,
                            weight: m.weight,
                            class_counts: m.class_counts.as_deref(),
                            training_loss: m.training_loss,
                            tensors,
                        });
                let letters: Vec<OutgoingMessage<'_, '_>> = letters.collect();
                with_messages(&letters, |messages| {
                    functions.call_raw(*part as *mut c_void, *operation, text, messages, call())
                })
            }
            Operation::Drop { part } => {
                if self.parts.remove(part) {
                    functions.drop_raw("a library", *part as *mut c_void);
                }
                return Ok(None);
            }
            Operation::Replied { .. } | Operation::Back { .. } => {
                anyhow::bail!("an answer without a request")
            }
        };
        let part = match ask.what {
            Operation::Call { part, .. } => part,
            _ => 0,
        };
        self.told(part, code, answer).map(Some)
    }

    /// What a call of `part` gave.
    fn told(&mut self, part: u64, code: i32, mut answer: Answer) -> Result<Reply> {
        // a part that is there already would be dropped twice
        let given: Vec<u64> = answer.parts.iter().map(|part| *part as u64).collect();
        let (known, parts): (Vec<u64>, Vec<u64>) = given
            .into_iter()
            .partition(|part| self.parts.contains(part));
        if !known.is_empty() {
            let what = match known.contains(&part) {
                true => "it gave itself as a new part",
                false => "it gave a part that already exists",
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
        reply.tensors = shared_tensors(&mut self.area, &answer.tensors)?;
        Ok(reply)
    }
}
