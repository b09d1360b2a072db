//! A call: a part, an operation, a text and messages; back come a text and tensors.
//!
//! [`Caller`] is a part that is elsewhere: a library's, in this process or in one of its own
//! (`PartHandle`), or one of the program's, which a library calls in the middle of a call
//! (`library/link.rs`). [`Callee`] is a part that is here. Each role has both in one file of
//! `roles/`.

use super::context_json::LogEventText;
use super::data_sets::KnownSets;
use super::host::{Answer, Answers, like};
use super::library::{Host, Input};
use super::marshal::{OutgoingMessage, content};
use super::marshal_data::bytes_named;
use super::raw::{FL_LOAD, FL_SAVE};
use anyhow::{Context, bail, ensure};
use fl_roles::message::{AnyMessage, Erased, Message, MessageType, NamedTensors, TensorMap};
use fl_roles::privacy::ReleaseNoise;
use fl_roles::{Executor, Result, Round, Stream};
use serde::de::DeserializeOwned;

/// What a part may use during a call, beside its text and messages.
#[derive(Clone, Copy, Default)]
pub(super) struct Means<'a> {
    /// What it draws from.
    pub stream: Option<&'a Stream>,
    pub exec: Option<&'a dyn Executor>,
    /// What it hides a message with, which has a stream of its own.
    pub noise: Option<&'a ReleaseNoise>,
    /// Who answers what it asks in the middle of the call.
    pub answers: Option<&'a dyn Answers>,
}

impl<'a> Means<'a> {
    pub fn stream(stream: &'a Stream) -> Self {
        Self {
            stream: Some(stream),
            ..Self::default()
        }
    }

    /// Those of a round.
    pub fn round(round: &'a Round) -> Self {
        Self {
            exec: Some(&*round.exec),
            ..Self::stream(&round.stream)
        }
    }
}

/// A part that is elsewhere.
pub(super) trait Caller: Send {
    /// Does one operation; `None`: the part has no such operation.
    fn call(
        &self,
        operation: u32,
        text: &str,
        letters: &[OutgoingMessage<'_, '_>],
        means: Means<'_>,
    ) -> Result<Option<Answer>>;

    /// Role, name and origin of a library's part, for errors. `None`: it is the program's, whose
    /// errors name it, and whose answers have been checked.
    fn who(&self) -> Option<&'static str>;

    /// The data sets that the other side knows.
    fn sets(&self) -> &dyn KnownSets;

    /// Keeps an error of an operation that returns none; what can fail later, does.
    fn keep_error(&self, error: anyhow::Error);

    /// Returns a kept error.
    fn check(&self) -> Result<()>;
}

/// A part that is here.
pub trait Callee: Send {
    /// Does an operation; `false`: it has no such operation.
    ///
    /// # Errors
    /// Says why the operation fails.
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool>;
}

/// Stands where a state should be that could not be saved.
const UNSAVED: &[u8] = b"\0fl: this state could not be saved";

/// What can be done with any [`Caller`].
pub(super) trait Calls: Caller {
    /// As [`Caller::call`], with messages of these tensors.
    fn ask(
        &self,
        operation: u32,
        text: &str,
        messages: &[NamedTensors<'_>],
        means: Means<'_>,
    ) -> Result<Option<Answer>> {
        let letters: Vec<_> = messages.iter().map(OutgoingMessage::new).collect();
        self.call(operation, text, &letters, means)
    }

    /// As [`Calls::ask`], of an operation that must be there.
    fn must(
        &self,
        operation: u32,
        text: &str,
        messages: &[NamedTensors<'_>],
        means: Means<'_>,
    ) -> Result<Answer> {
        self.due(operation, self.ask(operation, text, messages, means)?)
    }

    /// The answer to an operation that must be there.
    fn due<T>(&self, operation: u32, answer: Option<T>) -> Result<T> {
        answer.with_context(|| self.says(&format!("it has no operation {operation}")))
    }

    /// As [`Calls::ask`], for the value of the answer's text.
    fn value<T: DeserializeOwned>(
        &self,
        operation: u32,
        text: &str,
        messages: &[NamedTensors<'_>],
    ) -> Result<Option<T>> {
        let answer = self.ask(operation, text, messages, Means::default())?;
        answer.map(|answer| self.json(&answer)).transpose()
    }

    /// A sentence about the part.
    fn says(&self, text: &str) -> String {
        format!("{}: {text}", self.who().unwrap_or("a part of the program"))
    }

    /// Names the part in an error, unless that names it already.
    fn named<T>(&self, outcome: Result<T>) -> Result<T> {
        match self.who() {
            Some(who) => outcome.context(who),
            None => outcome,
        }
    }

    /// Keeps the error of an operation that returns none.
    fn keep<T>(&self, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|error| self.keep_error(error)).ok()
    }

    /// The JSON of an answer.
    fn json<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T> {
        self.named(answer.json())
    }

    /// An answer's tensors as a message.
    fn message<M: Message>(&self, answer: Answer) -> Result<M> {
        let made = M::from_tensors(TensorMap::new(answer.tensors));
        self.named(made.with_context(|| format!("its output is no {} message", M::KIND)))
    }

    /// As [`Calls::message`], of this type.
    fn message_of(&self, answer: Answer, of: &'static MessageType) -> Result<Erased> {
        let made = of.from_tensors(TensorMap::new(answer.tensors));
        self.named(made.with_context(|| format!("its output is no {} message", of.kind)))
    }

    /// One message to another, as mechanisms do it.
    fn change(
        &self,
        operation: u32,
        text: &str,
        message: &mut dyn AnyMessage,
        noise: Option<&ReleaseNoise>,
    ) -> Result<Option<()>> {
        let means = Means {
            noise,
            ..Means::default()
        };
        let Some(answer) = self.ask(operation, text, &[content(message)], means)? else {
            return Ok(None);
        };
        let changed = self.message_of(answer, message.message_type())?;
        let sound = || {
            // it may have fewer rows: what is not answered is left out
            like(message, &*changed)?;
            fl_roles::message::check(&*changed)
        };
        sound().with_context(|| self.says("its output"))?;
        message.become_other(changed)?;
        Ok(Some(()))
    }

    /// Passes on the log events that accompany a part's result.
    fn said(&self, answer: &Answer, round: &Round) -> Result<()> {
        if answer.text.as_deref().is_some_and(|t| !t.is_empty()) {
            self.json::<LogEventText>(answer)?.say(round);
        }
        Ok(())
    }

    /// The state that `operation` gives; empty if there is none.
    fn save(&self, operation: u32) -> Result<Option<Vec<u8>>> {
        let Some(answer) = self.ask(operation, "", &[], Means::default())? else {
            return Ok(None);
        };
        let mut parcel = TensorMap::new(answer.tensors);
        if parcel.has("state") {
            self.named(parcel.bytes("state")).map(Some)
        } else {
            Ok(Some(Vec::new()))
        }
    }

    /// Hands a state back.
    fn load(&self, operation: u32, state: &[u8]) -> Result<Option<()>> {
        let state = [bytes_named("state", state)];
        let done = self.ask(operation, "", &state, Means::default())?;
        Ok(done.map(drop))
    }

    /// The state of a part whose `save` cannot fail. If it does, a run that goes on from there must
    /// not do so silently.
    fn save_or_mark(&self) -> Vec<u8> {
        match self.keep(self.save(FL_SAVE)) {
            Some(state) => state.unwrap_or_default(),
            None => UNSAVED.to_vec(),
        }
    }

    /// Hands back what [`Calls::save_or_mark`] gave.
    fn load_unless_marked(&self, state: &[u8]) -> Result<()> {
        ensure!(state != UNSAVED, self.says("its state could not be saved"));
        match self.load(FL_LOAD, state)? {
            None if !state.is_empty() => bail!(self.says("it keeps no state")),
            _ => Ok(()),
        }
    }
}

impl<C: Caller + ?Sized> Calls for C {}
