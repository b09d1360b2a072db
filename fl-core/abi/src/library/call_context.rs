//! The input of an operation, and what a library may ask of the host during it.

use super::asked::ask_other;
use super::borrowed_inbox::{BorrowedInbox, InboxBuffer};
use super::threads::Threads;
use crate::caller::{Callee, Means};
use crate::host::{Answer, Answers};
use crate::marshal::{OutgoingMessage, copied, message, message_of, slice, view, write};
use crate::marshal_data::bytes_named;
use crate::raw::*;
use anyhow::{Context, ensure};
use fl_roles::message::{Erased, Message, MessageType, NamedTensors, Tensor, TensorMap, View};
use fl_roles::privacy::{Noise, ReleaseNoise};
use fl_roles::{ClientId, Result, SharedExecutor, Stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::c_void;

/// The input of an operation.
pub struct Input<'a>(pub(crate) &'a FlInput);

/// A message in the input of an operation.
pub struct IncomingMessage<'a> {
    /// The sender's number.
    pub from: ClientId,
    /// How much it counts: finite, at least 0.
    pub weight: f64,
    /// The sender's examples of each class, if the part requested them.
    pub class_counts: Option<&'a [u32]>,
    /// The mean loss of the training that made the message, if the part requested it.
    pub training_loss: Option<f64>,
    /// Its tensors, where the other side has them.
    pub tensors: NamedTensors<'a>,
}

impl Input<'_> {
    /// The text, which is JSON or empty.
    ///
    /// # Errors
    /// If it is no UTF-8.
    pub fn text(&self) -> Result<&str> {
        // SAFETY: the maker of this promised that the input is valid.
        unsafe { self.0.text.read("the text of a call") }
    }

    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.text()?;
        serde_json::from_str(text).with_context(|| format!("the text of a call: {text}"))
    }

    pub(crate) fn messages(&self) -> &[FlMessage] {
        // SAFETY: as `text`.
        unsafe { slice(self.0.messages, self.0.count) }
    }

    /// The messages, whose tensors stay where they are.
    ///
    /// # Errors
    /// If a tensor's name, type or shape is wrong.
    pub fn incoming(&self) -> Result<Vec<IncomingMessage<'_>>> {
        let one = |raw: &FlMessage| {
            // SAFETY: as `text`.
            let tensors = unsafe { slice(raw.tensors, raw.count) }.iter();
            let named = tensors.map(|tensor| {
                // SAFETY: as `text`.
                let (name, view) = unsafe { view(tensor) }?;
                Ok((name.into(), view))
            });
            Ok(IncomingMessage {
                from: raw.from,
                weight: raw.weight,
                // SAFETY: as `text`.
                class_counts: unsafe { raw.counts() },
                training_loss: raw.loss(),
                tensors: named.collect::<Result<_>>()?,
            })
        };
        self.messages().iter().map(one).collect()
    }

    fn raw(&self, at: usize) -> Result<&FlMessage> {
        let all = self.messages();
        all.get(at)
            .with_context(|| format!("{} messages, where {} are due", all.len(), at + 1))
    }

    /// The sender of a message.
    pub(crate) fn sender(&self, at: usize) -> Result<ClientId> {
        Ok(self.raw(at)?.from)
    }

    pub(crate) fn message<M: Message>(&self, at: usize) -> Result<M> {
        // SAFETY: as `text`.
        unsafe { message(self.raw(at)?) }
    }

    pub(crate) fn message_of(&self, at: usize, of: &'static MessageType) -> Result<Erased> {
        // SAFETY: as `text`.
        unsafe { message_of(self.raw(at)?, of) }
    }

    pub(crate) fn parcel(&self, at: usize) -> Result<TensorMap> {
        // SAFETY: as `text`.
        unsafe { copied(self.raw(at)?) }
    }

    pub(crate) fn inbox<'s>(&self, shelf: &'s mut InboxBuffer) -> Result<BorrowedInbox<'s>> {
        ensure!(!self.messages().is_empty(), "an inbox without messages");
        // SAFETY: as `text`; what is lent borrows from this call and cannot outlive it, see
        // `LocalAggregator`.
        unsafe { BorrowedInbox::new(shelf, self.messages()) }
    }

    pub(crate) fn mail(
        &self,
        at: usize,
        of: &'static MessageType,
    ) -> Result<fl_roles::ClientMessage<Erased>> {
        let body = self.message_of(at, of)?;
        // SAFETY: as `text`.
        Ok(unsafe { self.raw(at)?.mail(body) })
    }
}

/// What a library may ask of the host during a call.
pub struct Host<'a>(pub(crate) &'a FlHost);

/// A text and tensors by name.
pub type TextAndTensors = (Option<String>, Vec<(String, Tensor)>);

/// Adds noise of a scale to numbers.
type AddNoise = unsafe extern "C" fn(*mut c_void, *mut f64, usize, f64);

impl Host<'_> {
    /// The random stream of the call.
    pub fn stream(&self) -> Stream {
        Stream::from_key(self.0.key)
    }

    /// The noise of `FL_PERTURB`.
    pub(crate) fn noise(&self) -> ReleaseNoise {
        let kind = match self.0.noise {
            FL_SYSTEM => Noise::System,
            _ => Noise::Seeded,
        };
        ReleaseNoise::of(self.stream(), kind)
    }

    /// Lets the host know that noise was drawn from the key of this call, which it does not see.
    pub(crate) fn drew(&self) {
        self.fill_uniform(&mut [0.0]);
    }

    /// Fills numbers with the next of the call's stream, uniform in `[0, 1)`.
    pub fn fill_uniform(&self, out: &mut [f64]) {
        if let Some(f) = self.0.fill_uniform {
            // SAFETY: the host's own function and its context, and numbers of ours.
            unsafe { f(self.0.context, out.as_mut_ptr(), out.len()) }
        }
    }

    /// Adds Laplace noise of this scale, which is above 0, to each number.
    pub fn add_laplace(&self, values: &mut [f64], scale: f64) {
        self.add(self.0.add_laplace, values, scale);
    }

    /// Adds normal noise of this standard deviation, which is above 0, to each number.
    pub fn add_gaussian(&self, values: &mut [f64], sigma: f64) {
        self.add(self.0.add_gaussian, values, sigma);
    }

    fn add(&self, f: Option<AddNoise>, values: &mut [f64], scale: f64) {
        if let Some(f) = f {
            // SAFETY: as `fill_uniform`.
            unsafe { f(self.0.context, values.as_mut_ptr(), values.len(), scale) }
        }
    }

    /// Gives the answer's text, which is JSON.
    pub fn text(&self, text: &str) {
        if let Some(f) = self.0.text {
            // SAFETY: the host's own function, its context, and a text that lives through the call.
            unsafe { f(self.0.context, FlText::of(text)) }
        }
    }

    pub(crate) fn json(&self, value: &impl Serialize) -> Result<()> {
        self.text(&serde_json::to_string(value)?);
        Ok(())
    }

    pub(crate) fn fail(&self, setting: &str, text: &str) {
        if let Some(f) = self.0.fail {
            // SAFETY: as `text`.
            unsafe { f(self.0.context, FlText::of(setting), FlText::of(text)) }
        }
    }

    #[cfg(unix)]
    pub(crate) fn log(&self, level: u32, line: &str) {
        if let Some(f) = self.0.log {
            // SAFETY: as `text`.
            unsafe { f(self.0.context, level, FlText::of(line)) }
        }
    }

    /// Gives tensors of the answer.
    ///
    /// # Errors
    /// If the host refuses one.
    pub fn tensors(&self, all: &NamedTensors<'_>) -> Result<()> {
        for (name, view) in all {
            self.tensor(name, view)?;
        }
        Ok(())
    }

    fn tensor(&self, name: &str, view: &View<'_>) -> Result<()> {
        let bytes = [view.bytes()];
        let room = self.room(name, view.dtype() as u32, view.table().unwrap_or(&bytes));
        ensure!(!room.is_null(), "the host refused tensor `{name}`");
        // SAFETY: the host made room for this type and shape.
        unsafe { write(view, room) };
        Ok(())
    }

    /// Room for a tensor of the answer; NULL: the host refuses it.
    pub(crate) fn room(&self, name: &str, dtype: u32, shape: &[usize]) -> *mut u8 {
        self.0.tensor.map_or(std::ptr::null_mut(), |room| {
            let (name, n) = (FlText::of(name), shape.len() as u32);
            // SAFETY: as `text`; `shape` has as many numbers as it says.
            unsafe { room(self.0.context, name, dtype, n, shape.as_ptr()) }.cast()
        })
    }

    /// Gives a state, unless it is empty.
    pub(crate) fn state(&self, state: &[u8]) -> Result<()> {
        if state.is_empty() {
            Ok(())
        } else {
            self.tensors(&bytes_named("state", state))
        }
    }

    /// Gives the host a new part.
    ///
    /// # Errors
    /// If the host takes none.
    pub fn part(&self, part: Box<dyn Callee>) -> Result<()> {
        self.give(part)
    }

    /// As [`Host::part`], of what stands for a part.
    pub(crate) fn give<T>(&self, part: T) -> Result<()> {
        let f = self.0.part.context("the host takes no parts")?;
        let part = Box::into_raw(Box::new(part));
        // SAFETY: the host's own function and its context; it gives the part back once.
        unsafe { f(self.0.context, part.cast()) };
        Ok(())
    }

    /// Runs `f` with the host's threads.
    ///
    /// # Errors
    /// If `f` fails.
    pub fn with_executor(&self, f: &mut dyn FnMut(SharedExecutor) -> Result<()>) -> Result<()> {
        Threads::lend(self.0, f)
    }

    /// Asks the program, in the middle of this call, for an operation of the part with this number
    /// there, or of itself (0). The operation draws from `stream`, and `answers` takes what the
    /// program asks back. `None`: there is no such operation.
    ///
    /// # Errors
    /// If the program answers no operation in this call, or says why it fails.
    pub fn ask(
        &self,
        part: u64,
        operation: u32,
        text: &str,
        messages: &[OutgoingMessage<'_, '_>],
        stream: &Stream,
        answers: Option<&dyn Answers>,
    ) -> Result<Option<TextAndTensors>> {
        let means = Means {
            answers,
            ..Means::stream(stream)
        };
        let answer = ask_other(self.0, part, operation, text, messages, means)?;
        Ok(answer.map(|answer| (answer.text, answer.tensors)))
    }

    /// Asks the other side back, in the middle of its call, with one message.
    pub(crate) fn ask_back(
        &self,
        operation: u32,
        text: &str,
        letter: OutgoingMessage<'_, '_>,
    ) -> Result<Answer> {
        let answer = ask_other(self.0, 0, operation, text, &[letter], Means::default())?;
        answer.context("the other side has no such operation")
    }
}
