//! What an operation was given, and what a library may ask of the host during it.

use super::borrowed_inbox::{BorrowedInbox, InboxBuffer};
use super::threads::Threads;
use crate::abi::caller::Callee;
use crate::abi::marshal::{copied, message, message_of, slice};
use crate::abi::marshal_data::bytes_named;
use crate::abi::raw::*;
use crate::message::{Erased, Message, MessageType, NamedTensors, TensorMap, View};
use crate::privacy::{Noise, ReleaseNoise};
use crate::{ClientId, Result, SharedExecutor, Stream};
use anyhow::{Context, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::c_void;

/// What an operation was given.
pub(in crate::abi) struct Input<'a>(pub &'a FlInput);

impl Input<'_> {
    pub fn text(&self) -> Result<&str> {
        // SAFETY: the maker of this promised that the input is valid.
        unsafe { self.0.text.read("the text of a call") }
    }

    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.text()?;
        serde_json::from_str(text).with_context(|| format!("the text of a call: {text}"))
    }

    pub fn messages(&self) -> &[FlMessage] {
        // SAFETY: as `text`.
        unsafe { slice(self.0.messages, self.0.count) }
    }

    fn raw(&self, at: usize) -> Result<&FlMessage> {
        let all = self.messages();
        all.get(at)
            .with_context(|| format!("{} messages, where {} are due", all.len(), at + 1))
    }

    /// The sender of a message.
    pub fn sender(&self, at: usize) -> Result<ClientId> {
        Ok(self.raw(at)?.from)
    }

    pub fn message<M: Message>(&self, at: usize) -> Result<M> {
        // SAFETY: as `text`.
        unsafe { message(self.raw(at)?) }
    }

    pub fn message_of(&self, at: usize, of: &'static MessageType) -> Result<Erased> {
        // SAFETY: as `text`.
        unsafe { message_of(self.raw(at)?, of) }
    }

    pub fn parcel(&self, at: usize) -> Result<TensorMap> {
        // SAFETY: as `text`.
        unsafe { copied(self.raw(at)?) }
    }

    pub fn inbox<'s>(&self, shelf: &'s mut InboxBuffer) -> Result<BorrowedInbox<'s>> {
        ensure!(!self.messages().is_empty(), "an inbox without messages");
        // SAFETY: as `text`; what is lent borrows from this call and cannot outlive it, see
        // `LocalAggregator`.
        unsafe { BorrowedInbox::new(shelf, self.messages()) }
    }

    pub fn mail(&self, of: &'static MessageType) -> Result<crate::ClientMessage<Erased>> {
        self.mail_at(0, of)
    }

    pub fn mail_at(
        &self,
        at: usize,
        of: &'static MessageType,
    ) -> Result<crate::ClientMessage<Erased>> {
        let raw = self.raw(at)?;
        // SAFETY: as `text`.
        let counts = unsafe { slice(raw.class_counts, raw.classes as usize) };
        Ok(crate::ClientMessage {
            from: raw.from,
            weight: raw.weight,
            class_counts: (!raw.class_counts.is_null()).then(|| counts.to_vec()),
            training_loss: raw.loss(),
            body: self.message_of(at, of)?,
        })
    }
}

/// What a library may ask of the host during a call.
pub(in crate::abi) struct Host<'a>(pub &'a FlHost);

impl Host<'_> {
    pub fn stream(&self) -> Stream {
        Stream::from_key(self.0.key)
    }

    /// The noise of `FL_PERTURB`.
    pub fn noise(&self) -> ReleaseNoise {
        let kind = match self.0.noise {
            FL_SYSTEM => Noise::System,
            _ => Noise::Seeded,
        };
        ReleaseNoise::of(self.stream(), kind)
    }

    /// Lets the host know that noise was drawn from the key of this call, which it does not see.
    pub fn drew(&self) {
        if let Some(f) = self.0.fill_uniform {
            let mut one = 0.0;
            // SAFETY: the host's own function, its context, and room for one number.
            unsafe { f(self.0.context, &raw mut one, 1) }
        }
    }

    pub fn text(&self, text: &str) {
        if let Some(f) = self.0.text {
            // SAFETY: the host's own function, its context, and a text that lives through the call.
            unsafe { f(self.0.context, FlText::of(text)) }
        }
    }

    pub fn json(&self, value: &impl Serialize) -> Result<()> {
        self.text(&serde_json::to_string(value)?);
        Ok(())
    }

    pub fn fail(&self, text: &str) {
        if let Some(f) = self.0.fail {
            // SAFETY: as `text`.
            unsafe { f(self.0.context, FlText::EMPTY, FlText::of(text)) }
        }
    }

    pub fn tensors(&self, all: &NamedTensors<'_>) -> Result<()> {
        for (name, view) in all {
            self.tensor(name, view)?;
        }
        Ok(())
    }

    fn tensor(&self, name: &str, view: &View<'_>) -> Result<()> {
        let f = self.0.tensor.context("the host takes no tensors")?;
        let (dtype, length) = match view {
            View::F32(_) => (FL_F32, [0]),
            View::F64(_) => (FL_F64, [0]),
            View::U32(_) => (FL_U32, [0]),
            View::U8(b) => (FL_U8, [b.len()]),
            View::I64(_) => (FL_I64, [0]),
            View::Bits(_) => (FL_BITS, [0]),
        };
        let shape = view.table().unwrap_or(&length);
        // SAFETY: as `text`; `shape` has as many numbers as it says.
        let room = unsafe {
            f(
                self.0.context,
                FlText::of(name),
                dtype,
                shape.len() as u32,
                shape.as_ptr(),
            )
        };
        ensure!(!room.is_null(), "the host refused tensor `{name}`");
        /// # Safety
        /// There is room for the view's numbers at `room`.
        unsafe fn put<T: Copy>(room: *mut c_void, view: &ndarray::ArrayViewD<'_, T>) {
            let room = room.cast::<T>();
            match view.as_slice() {
                // SAFETY: as the caller says; the host's memory is not ours.
                Some(s) => unsafe { room.copy_from_nonoverlapping(s.as_ptr(), s.len()) },
                None => {
                    for (i, x) in view.iter().enumerate() {
                        // SAFETY: as the caller says.
                        unsafe { room.add(i).write(*x) };
                    }
                }
            }
        }
        // SAFETY: the host made room for this type and shape.
        unsafe {
            match view {
                View::F32(a) => put(room, a),
                View::F64(a) => put(room, a),
                View::U32(a) => put(room, a),
                View::U8(b) => room
                    .cast::<u8>()
                    .copy_from_nonoverlapping(b.as_ptr(), b.len()),
                View::I64(a) => put(room, a),
                View::Bits(b) => room
                    .cast::<u8>()
                    .copy_from_nonoverlapping(b.packed().as_ptr(), b.packed().len()),
            }
        }
        Ok(())
    }

    /// Gives a state, unless it is empty.
    pub fn state(&self, state: &[u8]) -> Result<()> {
        match state.is_empty() {
            true => Ok(()),
            false => self.tensors(&bytes_named("state", state)),
        }
    }

    /// Gives the host a new part.
    pub fn part(&self, part: Box<dyn Callee>) -> Result<()> {
        let f = self.0.part.context("the host takes no parts")?;
        let part = Box::into_raw(Box::new(part));
        // SAFETY: the host's own function and its context; it gives the part back to `drop_part`.
        unsafe { f(self.0.context, part.cast()) };
        Ok(())
    }

    /// Runs `f` with the host's threads.
    pub fn with_executor(&self, f: &mut dyn FnMut(SharedExecutor) -> Result<()>) -> Result<()> {
        Threads::lend(self.0, f)
    }
}
