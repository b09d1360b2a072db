//! Libraries in processes of their own: the same table of functions, asked over a socket, with
//! tensors in shared memory.
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
mod parent;
mod process;
mod shared_memory;

pub use child::serve;
pub(in crate::abi) use parent::CallInput;
pub use parent::{IsolatedLibrary, Process};

use super::ask::ErrorText;
use super::marshal::{OutgoingMessage, slice, view};
use super::raw::FlMessage;
use crate::Result;
use crate::message::{NamedTensors, Tensor};
use crate::privacy::Noise;
use anyhow::ensure;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shared_memory::{SharedMemory, dtype};
use std::io::{Read, Write};

/// The longest message; tensors are not in it.
const LONGEST: usize = 64 << 20;

/// A question to a process.
#[derive(Serialize, Deserialize)]
struct CallRequest {
    /// Its number, which the answer repeats: a process that a library has doubled may answer twice.
    number: u64,
    what: Operation,
    /// Of the call's random stream.
    key: Option<[u8; 32]>,
    noise: Noise,
    /// Whether the program answers in the middle of it.
    answers: bool,
    messages: Vec<SharedMessage>,
    /// How long the shared memory is by now.
    room: u64,
}

#[derive(Serialize, Deserialize)]
enum Operation {
    Describe,
    Create {
        index: u32,
        settings: String,
        task: String,
    },
    Call {
        part: u64,
        operation: u32,
        text: String,
    },
    /// Nothing is answered.
    Drop {
        part: u64,
    },
    /// What the program answers to a question of a protocol; its tensors are the one message.
    Replied {
        text: Option<String>,
        failed: Option<ErrorText>,
    },
    /// The program asks back in the middle of a question of a protocol.
    Back {
        operation: u32,
        text: String,
    },
}

/// A message whose tensors lie in the shared memory.
#[derive(Serialize, Deserialize)]
struct SharedMessage {
    from: u32,
    weight: f64,
    class_counts: Option<Vec<u32>>,
    training_loss: Option<f64>,
    tensors: Vec<SharedTensor>,
}

/// A tensor in the shared memory, in row order.
#[derive(Serialize, Deserialize)]
struct SharedTensor {
    name: String,
    dtype: u32,
    shape: Vec<usize>,
    /// Where its first number is; a multiple of 64.
    at: usize,
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
    parts: Vec<u64>,
    tensors: Vec<SharedTensor>,
    room: u64,
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
        operation: u32,
        text: String,
        messages: Vec<SharedMessage>,
        room: u64,
    },
}

/// A message that was copied out of the shared memory.
struct OwnedMessage {
    facts: SharedMessage,
    tensors: Vec<(String, Tensor)>,
}

/// Copies messages out of the shared memory, which is then free for others.
fn copied(area: &SharedMemory, messages: Vec<SharedMessage>) -> Result<Vec<OwnedMessage>> {
    let one = |facts: SharedMessage| {
        let tensors = facts.tensors.iter().map(|tensor| {
            // SAFETY: the writer waits for an answer, and writes nothing meanwhile.
            #[allow(unsafe_code, reason = "shared memory")]
            let view = unsafe { area.view(tensor) }?;
            Ok((tensor.name.clone(), view.to_tensor()))
        });
        let tensors = tensors.collect::<Result<_>>()?;
        Ok(OwnedMessage { facts, tensors })
    };
    messages.into_iter().map(one).collect()
}

/// Runs `f` with such messages.
fn with_owned<R>(messages: &[OwnedMessage], f: impl FnOnce(&[OutgoingMessage<'_, '_>]) -> R) -> R {
    let bodies = messages.iter().map(|message| {
        let tensors = message.tensors.iter();
        let views = tensors.map(|(name, tensor)| (name.as_str().into(), tensor.view()));
        views.collect::<NamedTensors<'_>>()
    });
    let bodies: Vec<_> = bodies.collect();
    let letters = messages.iter().zip(&bodies);
    let letters = letters.map(|(message, tensors)| OutgoingMessage {
        from: message.facts.from,
        weight: message.facts.weight,
        class_counts: message.facts.class_counts.as_deref(),
        training_loss: message.facts.training_loss,
        tensors,
    });
    f(&letters.collect::<Vec<_>>())
}

/// Writes messages into the shared memory.
fn shared(area: &mut SharedMemory, messages: &[FlMessage]) -> Result<Vec<SharedMessage>> {
    let mut bodies = Vec::new();
    for raw in messages {
        // SAFETY: the caller lends messages that are valid for the call.
        #[allow(unsafe_code, reason = "messages of the other side")]
        let views = unsafe {
            let tensors = slice(raw.tensors, raw.count);
            tensors
                .iter()
                .map(|raw| view(raw))
                .collect::<Result<Vec<_>>>()
        }?;
        bodies.push(views);
    }
    let bytes = bodies.iter().flatten().map(|(_, view)| view.bytes());
    let (places, end) = SharedMemory::places(bytes)?;
    area.reserve(end)?;
    let mut places = places.into_iter();
    let mut all = Vec::new();
    for (raw, body) in messages.iter().zip(bodies) {
        let mut tensors = Vec::with_capacity(body.len());
        for ((name, view), at) in body.into_iter().zip(&mut places) {
            area.write(at, &view)?;
            tensors.push(SharedTensor {
                name: name.into(),
                dtype: dtype(&view),
                shape: view.shape(),
                at,
            });
        }
        let counts = (!raw.class_counts.is_null()).then(|| {
            // SAFETY: as above.
            #[allow(unsafe_code, reason = "messages of the other side")]
            unsafe { slice(raw.class_counts, raw.classes as usize) }.to_vec()
        });
        all.push(SharedMessage {
            from: raw.from,
            weight: raw.weight,
            class_counts: counts,
            training_loss: raw.loss(),
            tensors,
        });
    }
    Ok(all)
}

/// Writes tensors into the shared memory.
fn shared_tensors(
    area: &mut SharedMemory,
    tensors: &[(String, Tensor)],
) -> Result<Vec<SharedTensor>> {
    let views: Vec<_> = tensors.iter().map(|(n, t)| (n, t.view())).collect();
    let (places, end) = SharedMemory::places(views.iter().map(|(_, view)| view.bytes()))?;
    area.reserve(end)?;
    let mut all = Vec::with_capacity(views.len());
    for ((name, view), at) in views.into_iter().zip(places) {
        area.write(at, &view)?;
        all.push(SharedTensor {
            name: name.clone(),
            dtype: dtype(&view),
            shape: view.shape(),
            at,
        });
    }
    Ok(all)
}

/// Writes a message, its length first.
fn send(to: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut bytes = postcard::to_extend(message, vec![0; 4])?;
    let length = bytes.len() - 4;
    ensure!(length <= LONGEST, "a message of {length} bytes is too long");
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(to.write_all(&bytes)?)
}

/// Reads a message.
fn receive<M: DeserializeOwned>(from: &mut impl Read) -> Result<M> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    ensure!(length <= LONGEST, "a message of {length} bytes is too long");
    let mut bytes = Vec::new();
    from.take(length as u64).read_to_end(&mut bytes)?;
    ensure!(bytes.len() == length, "a message was cut short");
    Ok(postcard::from_bytes(&bytes)?)
}
