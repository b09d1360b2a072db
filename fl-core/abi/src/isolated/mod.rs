//! Libraries in processes of their own: the same table of functions, asked through shared memory,
//! which holds messages and tensors.
//!
//! A side that waits listens for some microseconds, then sleeps until something comes over a
//! socket: a word that wakes it, a line of the log, a message that is too long for its place in
//! shared memory, or the end of the other side. On one core, and while answers come late, it sleeps
//! at once.
//!
//! The program keeps a few processes for each library ([`IsolatedLibrary`]); each loads it and
//! answers one question at a time ([`serve()`]). A part lives in the process that made it. What the
//! program treats the messages of a process like those of a library: every text, tensor
//! and part goes through [`FlHost`](super::raw::FlHost), which checks them.
//!
//! A process that crashes, that calls `exit`, that has no memory left or that takes longer than it
//! may is ended, and only its parts with it: calls of these parts get an error, and new parts
//! come from a new process.

mod child;
mod counted;
mod parent;
mod process;
mod shared_memory;

pub use child::serve;
use parent::Place;
pub use parent::{IsolatedLibrary, Process};
pub(crate) use shared_memory::AnswerRooms;

use super::ask::ErrorText;
use super::host::{Answer, INTERRUPTED, NewPart};
use super::library::Host;
use super::marshal::{OutgoingMessage, slice, view};
use super::raw::{FL_ERROR, FL_OK, FL_UNKNOWN, FlMessage};
use anyhow::{Context, anyhow, ensure};
use counted::{counted, unpacked};
#[cfg(doc)]
use fl_roles::Problem;
use fl_roles::message::{NamedTensors, Tensor, View};
use fl_roles::privacy::Noise;
use fl_roles::{ClientMessage, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteArray;
use shared_memory::{Listener, Mail, Mailbox, SharedMemory};
use std::io::{BufReader, Error, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The most bytes of a message; tensors are not in it.
const LONGEST: usize = 64 << 20;
/// A message takes at most this many times its bytes once it is read: an entry of a tensor is
/// written in four bytes and held in ninety, in a list that is copied as it grows.
const UNPACKED: u64 = 64;

/// The most entries of all lists of a message from a process, but for class counts, which take
/// little more than their bytes: a list of tensors without names takes sixteen times its bytes.
const ENTRIES: usize = 1 << 21;

/// The most lines of a library's log that are passed on for each answer or question of it.
const LINES: usize = 1000;

/// How long the calls of a library may still take once the program is to stop.
const LAST_CALLS: Duration = Duration::from_secs(2);
/// How long a loaded protocol's step may still take then, with what the program does for it.
const LAST_STEP: Duration = Duration::from_secs(30);

/// Since when the program is to stop.
static STOPS: OnceLock<Instant> = OnceLock::new();

/// From now on a call of an isolated library that goes on for two more seconds ends its process,
/// and so does a step of a loaded protocol after thirty: a library that loops does not hold up a
/// program that is to stop. What is not done then is [`Problem::Interrupted`].
pub fn hurry_calls() {
    STOPS.get_or_init(Instant::now);
}

/// Does the program hurry its calls?
pub fn hurries() -> bool {
    STOPS.get().is_some()
}

/// Was a call cut off?
static CUT: AtomicBool = AtomicBool::new(false);

/// Was a call cut off because the program is to stop? Then nothing of its step may be saved: where
/// an operation cannot fail, what came of it is no answer.
pub fn calls_were_cut() -> bool {
    CUT.load(Ordering::Relaxed)
}

/// The most bytes of a message from a process that may have so much memory: the program takes no
/// more to read it.
fn longest_message(memory: u64) -> usize {
    usize::try_from(memory / UNPACKED).map_or(LONGEST, |bytes| bytes.min(LONGEST))
}

/// A question to a process.
#[derive(Serialize, Deserialize)]
struct CallRequest {
    /// Its number, which the answer repeats: a process that a library has doubled may answer twice.
    number: u64,
    what: Operation,
    call: CallFacts,
    messages: Vec<SharedMessage>,
    /// How long the shared memory is by now.
    room: u64,
}

/// What a process needs to know of a call, beside its operation.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct CallFacts {
    /// Of the call's random stream. Written as a whole, not byte by byte.
    pub key: Option<ByteArray<32>>,
    pub noise: Noise,
    /// Whether the program answers in the middle of it.
    pub answers: bool,
}

#[derive(Serialize, Deserialize)]
enum Operation {
    Describe,
    Create(NewPart),
    Call {
        part: u64,
        operation: u32,
        text: String,
    },
    Drop {
        part: u64,
    },
    /// What the program answers to a question of a protocol.
    Replied(Reply),
    /// The program asks back in the middle of a question of a protocol.
    Back {
        operation: u32,
        text: String,
    },
}

/// A message whose tensors lie in the shared memory.
#[derive(Serialize, Deserialize)]
struct SharedMessage {
    mail: ClientMessage<()>,
    #[serde(deserialize_with = "counted")]
    tensors: Vec<SharedTensor>,
}

/// A tensor in the shared memory, in row order.
#[derive(Serialize, Deserialize)]
pub(crate) struct SharedTensor {
    pub name: String,
    pub dtype: u32,
    #[serde(deserialize_with = "counted")]
    pub shape: Vec<usize>,
    /// Where its first number is; a multiple of 64.
    pub at: usize,
}

/// What a process answers.
#[derive(Default, Serialize, Deserialize)]
struct Reply {
    /// The number of the question.
    number: u64,
    code: i32,
    text: Option<String>,
    /// Setting and reason.
    failure: Option<(String, String)>,
    misuse: Option<String>,
    /// The library drew something from the call's stream.
    drew: bool,
    #[serde(deserialize_with = "counted")]
    parts: Vec<u64>,
    #[serde(deserialize_with = "counted")]
    tensors: Vec<SharedTensor>,
    room: u64,
}

impl Reply {
    /// What one side answers to the other in the middle of a call.
    fn in_call(area: &mut SharedMemory, answer: Result<Option<Answer>>) -> Result<Self> {
        let (code, text, tensors) = match answer {
            Ok(Some(answer)) => (FL_OK, answer.text, answer.tensors),
            Ok(None) => (FL_UNKNOWN, None, Vec::new()),
            Err(error) => {
                let text = serde_json::to_string(&ErrorText::of(&error))?;
                (FL_ERROR, Some(text), Vec::new())
            }
        };
        Ok(Self {
            code,
            text,
            tensors: shared_tensors(area, &tensors)?,
            room: area.len() as u64,
            ..Self::default()
        })
    }

    /// Hands on what [`Reply::in_call`] made; `false`: there is no such operation.
    fn answer(self, area: &mut SharedMemory, host: &Host<'_>) -> Result<bool> {
        match self.code {
            FL_OK => self.hand_on(area, host).map(|_| true),
            FL_UNKNOWN => Ok(false),
            _ => {
                let error = serde_json::from_str(&self.text.unwrap_or_default());
                Err(error.map_or_else(|_| anyhow!("a protocol failed"), ErrorText::error))
            }
        }
    }

    /// Hands all but the parts to the host, as a library would.
    fn hand_on(self, area: &mut SharedMemory, host: &Host<'_>) -> Result<i32> {
        area.see(self.room)?;
        disjoint(area, self.tensors.iter())?;
        for tensor in &self.tensors {
            let bytes = tensor.bytes()?;
            let from = area.address(tensor.at, bytes)?;
            let room = host.room(&tensor.name, tensor.dtype, &tensor.shape);
            if !room.is_null() && bytes > 0 {
                // SAFETY: the host gave room for a tensor of this type and shape, and its bytes
                // are shared.
                unsafe { from.copy_to_nonoverlapping(room, bytes) };
            }
        }
        if self.drew {
            host.drew();
        }
        if let Some(json) = &self.text {
            host.text(json);
        }
        if let Some(misuse) = &self.misuse {
            return Err(anyhow!("{misuse}"));
        }
        if let Some((setting, text)) = &self.failure {
            host.fail(setting, text);
        }
        // that a call was interrupted is for the program to say
        Ok(if self.code == INTERRUPTED {
            FL_ERROR
        } else {
            self.code
        })
    }
}

/// What comes from a process.
#[derive(Serialize, Deserialize)]
enum ProcessMessage {
    /// It logs, with this level. Not a part of the answer: the last words of one that crashes
    /// matter most.
    LogEvent(u32, String),
    Answered(Reply),
    /// A protocol asks the program in the middle of a call.
    Asked {
        part: u64,
        operation: u32,
        key: ByteArray<32>,
        text: String,
        #[serde(deserialize_with = "counted")]
        messages: Vec<SharedMessage>,
        room: u64,
    },
}

/// A copy of a message in the shared memory.
type OwnedMessage = ClientMessage<Vec<(String, Tensor)>>;

/// Fails unless the tensors are together no larger than the shared memory, so that copies of them
/// take no more.
fn disjoint<'t>(
    area: &SharedMemory,
    tensors: impl Iterator<Item = &'t SharedTensor>,
) -> Result<()> {
    let mut left = area.len();
    for tensor in tensors {
        let rest = left.checked_sub(tensor.bytes()?);
        left = rest.context("its tensors overlap in the memory that it shares")?;
    }
    Ok(())
}

/// Copies messages out of the shared memory, which is then free for others.
fn copied(area: &SharedMemory, messages: Vec<SharedMessage>) -> Result<Vec<OwnedMessage>> {
    disjoint(area, messages.iter().flat_map(|message| &message.tensors))?;
    let one = |SharedMessage { mail, tensors }: SharedMessage| {
        let tensors = tensors.into_iter().map(|tensor| {
            // SAFETY: the writer waits for an answer, and writes nothing meanwhile.
            let numbers = unsafe { area.view(&tensor) }?.to_tensor();
            Ok((tensor.name, numbers))
        });
        mail.try_map(|()| tensors.collect())
    };
    messages.into_iter().map(one).collect()
}

/// Runs `f` with such messages.
fn with_owned<R>(messages: &[OwnedMessage], f: impl FnOnce(&[OutgoingMessage<'_, '_>]) -> R) -> R {
    let bodies = messages.iter().map(|message| {
        let tensors = message.body.iter();
        let views = tensors.map(|(name, tensor)| (name.as_str().into(), tensor.view()));
        views.collect::<NamedTensors<'_>>()
    });
    let bodies: Vec<_> = bodies.collect();
    let letters = messages.iter().zip(&bodies);
    let letters = letters.map(|(message, tensors)| OutgoingMessage::of(message, tensors));
    f(&letters.collect::<Vec<_>>())
}

/// Writes messages into the shared memory.
fn shared(area: &mut SharedMemory, messages: &[FlMessage]) -> Result<Vec<SharedMessage>> {
    let views = |raw: &FlMessage| {
        // SAFETY: the caller lends messages that are valid for the call.
        let views = unsafe { slice(raw.tensors, raw.count) }
            .iter()
            .map(|raw| unsafe { view(raw) });
        views.collect::<Result<Vec<_>>>()
    };
    let bodies = messages.iter().map(views).collect::<Result<Vec<_>>>()?;
    let all = messages.iter().zip(written(area, &bodies)?);
    let message = |(raw, tensors): (&FlMessage, _)| {
        // SAFETY: as above.
        let mail = unsafe { raw.mail(()) };
        SharedMessage { mail, tensors }
    };
    Ok(all.map(message).collect())
}

/// Writes tensors into the shared memory.
fn shared_tensors(
    area: &mut SharedMemory,
    tensors: &[(String, Tensor)],
) -> Result<Vec<SharedTensor>> {
    let views = tensors.iter().map(|(n, t)| (n.as_str(), t.view()));
    Ok(written(area, &[views.collect()])?.remove(0))
}

/// Writes the tensors of each message into the shared memory.
fn written(
    area: &mut SharedMemory,
    bodies: &[Vec<(&str, View<'_>)>],
) -> Result<Vec<Vec<SharedTensor>>> {
    let bytes = bodies.iter().flatten().map(|(_, view)| view.bytes());
    let (places, end) = SharedMemory::places(bytes)?;
    area.reserve(end)?;
    let mut places = places.into_iter();
    let mut all = Vec::with_capacity(bodies.len());
    for body in bodies {
        let mut tensors = Vec::with_capacity(body.len());
        for ((name, view), at) in body.iter().zip(&mut places) {
            area.write(at, view)?;
            tensors.push(SharedTensor {
                name: (*name).into(),
                dtype: view.dtype() as u32,
                shape: view.shape(),
                at,
            });
        }
        all.push(tensors);
    }
    Ok(all)
}

/// How many bytes a message's length has on the socket, before the message.
const FRAME: usize = 4;
/// A message without bytes wakes the other side.
const WAKE: [u8; FRAME] = [0; FRAME];

/// A message as the socket takes it: its length first.
fn frame(message: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(512);
    bytes.extend(WAKE);
    let mut bytes = postcard::to_extend(message, bytes)?;
    let length = bytes.len() - FRAME;
    ensure!(length <= LONGEST, "a message of {length} bytes is too long");
    bytes[..FRAME].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}

/// A socket that is waited for until the call's time is over, however many bytes come at a time.
struct TimedSocket {
    socket: UnixStream,
    /// `None`: there is no limit.
    until: Option<Instant>,
    /// The call has the last seconds of a program that is to stop.
    hurries: bool,
}

impl TimedSocket {
    /// It looks this often whether the program is to stop.
    const LOOK: Duration = Duration::from_millis(100);

    fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            until: None,
            hurries: false,
        }
    }

    fn left(&mut self) -> Result<Option<Duration>, Error> {
        let now = Instant::now();
        if STOPS.get().is_some() && !self.hurries {
            self.hurries = true;
            self.until = self.until.map(|until| until.min(now + LAST_CALLS));
        }
        match self.until.map(|t| t.saturating_duration_since(now)) {
            Some(Duration::ZERO) => Err(ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }

    /// Reads or writes in the time that is left. A library in its sandbox may not change its
    /// socket.
    fn in_time<T>(
        &mut self,
        limit: impl Fn(&UnixStream, Option<Duration>) -> Result<(), Error>,
        mut f: impl FnMut(&mut UnixStream) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            if let Some(left) = self.left()? {
                limit(&self.socket, Some(left.min(Self::LOOK)))?;
            }
            match f(&mut self.socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.until.is_some() => {}
                done => return done,
            }
        }
    }
}

impl Read for TimedSocket {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Error> {
        self.in_time(UnixStream::set_read_timeout, |socket| socket.read(bytes))
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.in_time(UnixStream::set_write_timeout, |socket| socket.write(bytes))
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.socket.flush()
    }
}

/// What comes from the other side.
struct Incoming {
    socket: BufReader<TimedSocket>,
    listener: Listener,
    /// How many lines of its log have come.
    lines: u32,
    /// The most bytes of a message.
    longest: usize,
    /// The most entries of all its lists.
    entries: usize,
}

impl Incoming {
    fn new(socket: UnixStream, mailbox: Mailbox, longest: usize, entries: usize) -> Self {
        Self {
            socket: BufReader::new(TimedSocket::new(socket)),
            listener: Listener::new(mailbox),
            lines: 0,
            longest,
            entries,
        }
    }

    /// Waits for a message. `beside` gets what comes over the socket, or `None` if that only wakes,
    /// and gives it back unless it is a line of the log.
    fn next<M: DeserializeOwned>(
        &mut self,
        area: &SharedMemory,
        mut beside: impl FnMut(Option<M>) -> Result<Option<M>>,
    ) -> Result<M> {
        let mut mail = area.listen(&mut self.listener);
        loop {
            if mail.is_none() {
                mail = area.last_look(&mut self.listener);
            }
            if let Some(Mail {
                message: Some(message),
                lines,
            }) = &mail
                && *lines == self.lines
            {
                return unpacked(message, self.entries);
            }
            let received = self.receive()?;
            let line = received.is_some();
            match beside(received)? {
                Some(message) => {
                    area.taken(&mut self.listener);
                    return Ok(message);
                }
                None => self.lines = self.lines.wrapping_add(line.into()),
            }
        }
    }

    /// Reads a message from the socket; `None`: it has no bytes.
    fn receive<M: DeserializeOwned>(&mut self) -> Result<Option<M>> {
        let mut length = WAKE;
        self.socket.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 {
            return Ok(None);
        }
        let longest = self.longest;
        ensure!(
            length <= longest,
            "a message of {length} bytes is longer than the {longest} that its memory allows"
        );
        let mut bytes = Vec::new();
        let mut from = (&mut self.socket).take(length as u64);
        from.read_to_end(&mut bytes)?;
        // the other side has ended in the middle of it
        if bytes.len() < length {
            return Err(Error::from(ErrorKind::UnexpectedEof).into());
        }
        unpacked(&bytes, self.entries).map(Some)
    }
}
