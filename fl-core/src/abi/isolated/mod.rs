//! Libraries in processes of their own: the same table of functions, asked over a socket, with tensors in shared memory.
//!
//! The program keeps a few processes for each library ([`IsolatedLibrary`]); each loads it and answers one question at a time
//! ([`serve()`]). A part lives in the process that made it. What the program is told by a process it takes as it takes what a
//! library tells it: every text, tensor and part goes through [`FlHost`](super::raw::FlHost), which checks them.
//!
//! A process that crashes, that calls `exit`, that has no memory left or that takes longer than it may is ended, and only its
//! parts with it: whoever asks one of them gets an error, and new parts come from a new process.

mod child;
mod parent;
mod process;
mod shared_memory;

pub use child::serve;
pub(in crate::abi) use parent::CallInput;
pub use parent::{IsolatedLibrary, Process};

use crate::Result;
use crate::privacy::Noise;
use anyhow::ensure;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
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
    /// It logs, with this level. Not a part of the answer: the last words of one that crashes matter most.
    LogEvent(u32, String),
    Answered(Reply),
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
