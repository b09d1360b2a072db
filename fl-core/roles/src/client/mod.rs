//! [`Client`]: one client as a protocol sees it, with its data, its models and its parts.

pub(crate) mod calls;
pub(crate) mod core;
mod learning;
mod releases;
mod state;

pub use state::ClientState;

use crate::client::calls::ClientCalls;
use crate::client::core::ClientCore;
use crate::message::{Ids, Message};
use crate::{
    AggregatorSlot, AnyMechanism, AnySelector, AttackSlot, BoxedMechanism, BoxedSelector, ClientId,
    Differentiable, Examples, Generator, Inbox, MechanismSlot, Parametric, Pool, Problem, Public,
    Result, Round, SelectorSlot, Serial, Stream, Task, Trainer, message, parametric,
};
use anyhow::Context;
use std::sync::Arc;

/// Key under which a client stashes the positions of its private sample.
const PRIVATE: &str = "private sample";

/// The released numbers of examples of that sample.
const SAMPLE_COUNTS: &str = "counts of the private sample";

/// One client. Nothing in here leaves it except as an answer. It is in this process, or in the
/// program that loaded the protocol's library.
pub struct Client(pub(crate) ClientSide);

/// Where a client is.
pub(crate) enum ClientSide {
    Here(Box<ClientCore>),
    Elsewhere(Box<dyn ClientCalls>),
}

impl Client {
    /// A client of the program that loaded the protocol's library.
    #[doc(hidden)]
    pub fn elsewhere(calls: Box<dyn ClientCalls>) -> Self {
        Self(ClientSide::Elsewhere(calls))
    }

    #[doc(hidden)]
    pub fn calls(&self) -> &dyn ClientCalls {
        match &self.0 {
            ClientSide::Here(core) => &**core,
            ClientSide::Elsewhere(host) => &**host,
        }
    }

    #[doc(hidden)]
    pub fn calls_mut(&mut self) -> &mut (dyn ClientCalls + 'static) {
        match &mut self.0 {
            ClientSide::Here(core) => &mut **core,
            ClientSide::Elsewhere(host) => &mut **host,
        }
    }

    /// The client itself, at its host.
    pub(crate) fn core(&self) -> &ClientCore {
        match &self.0 {
            ClientSide::Here(core) => core,
            ClientSide::Elsewhere(_) => unreachable!("a host has its clients here"),
        }
    }

    /// See [`Client::core`].
    pub(crate) fn core_mut(&mut self) -> &mut ClientCore {
        match &mut self.0 {
            ClientSide::Here(core) => core,
            ClientSide::Elsewhere(_) => unreachable!("a host has its clients here"),
        }
    }

    // ---- identity and data

    /// Returns the client's number.
    pub fn id(&self) -> ClientId {
        self.calls().id()
    }

    /// Returns its own examples.
    pub fn own(&self) -> &Examples {
        self.calls().own()
    }

    /// Returns the rows of its own that it has held back, to test on: no model learns from them.
    /// The exchange declares their use
    /// ([`Declared::uses_held_out`](crate::Declared::uses_held_out)).
    ///
    /// # Errors
    /// If the spec sets none aside (`data.test.own`), the exchange does not declare their use, or
    /// the run has an accountant, which cannot price it.
    pub fn held_out(&self) -> Result<Examples> {
        self.calls().held_out()
    }

    /// Returns the task that its models learn.
    pub fn task(&self) -> &Task {
        self.calls().task()
    }

    /// Returns its randomness for one purpose within this request.
    pub fn stream(&self, purpose: &str) -> Stream {
        self.calls().now().child(purpose, 0)
    }

    /// Returns the number of the round that asks ([`Round::number`]): from 1.
    pub fn round_number(&self) -> usize {
        self.calls().round_number()
    }

    /// Returns the public data.
    ///
    /// # Errors
    /// If the spec has none.
    pub fn public(&self) -> Result<Arc<Public>> {
        Public::required(self.calls().public()?)
    }

    /// Returns whether this slot is filled for this client.
    pub fn has(&self, slot: &str) -> bool {
        self.calls().has(slot)
    }

    /// Returns the examples that the run may use: all of its own, or the private sample that the
    /// mechanism in `slot` has drawn ([`crate::Declared::draws`]; FedMD-NFDP).
    ///
    /// # Errors
    /// If the slot is filled and no sample was drawn. A client whose draw was lost must not fall
    /// back on all its examples.
    pub fn private(&self, slot: &MechanismSlot<Ids>) -> Result<Examples> {
        calls::private(self.calls(), slot.name())
    }

    /// Draws a new private sample, if `slot` is filled. The counts in the envelopes of answers that
    /// go through `slot` then cover only that sample.
    pub(crate) fn draw_private(&mut self, slot: &MechanismSlot<Ids>) -> Result<()> {
        self.calls_mut().draw_private(slot)
    }

    // ---- answers

    /// Adds a note for the user to this answer. With an accountant the note stays with the client:
    /// it may depend on the client's own data, and nothing prices it.
    pub fn note(&mut self, text: impl Into<String>) {
        self.calls_mut().note(text.into());
    }

    /// Reports a number for the metrics, which record the mean and deviation over clients; no part
    /// of the method sees it. With an accountant it stays with the client, as a
    /// [note](Client::note) does.
    pub fn measure(&mut self, name: &str, value: f64) {
        self.calls_mut().measure(name, value);
    }

    // ---- parts

    /// Returns its model for this slot, made on first use. It lasts between requests if its slot
    /// does ([`crate::SlotSpec::lasting`]).
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        self.calls_mut().model(slot)
    }

    /// Returns a new model for this slot, the `index`-th of its kind, which need not last (such as
    /// a teacher).
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn new_model(&self, slot: &str, index: u64) -> Result<Box<dyn Trainer>> {
        self.calls().new_model(slot, index)
    }

    /// Lets `model`, which [`Client::new_model`] gave, be the one of this slot.
    pub fn set_model(&mut self, slot: &str, model: Box<dyn Trainer>) {
        self.calls_mut().set_model(slot, model);
    }

    /// Returns its model as one with parameters.
    ///
    /// # Errors
    /// If it has none.
    pub fn parametric(&mut self, slot: &str) -> Result<&mut dyn Parametric> {
        parametric(self.model(slot)?, slot)
    }

    /// Returns its model as one that is differentiable by its input.
    ///
    /// # Errors
    /// If it is not.
    pub fn differentiable(&mut self, slot: &str) -> Result<&mut dyn Differentiable> {
        let model = self.model(slot)?;
        model.differentiable().with_context(|| Problem::Lacks(format!("parts.{slot}: this trainer cannot be differentiated by its input; use a neural trainer, on inputs other than texts")))
    }

    /// Returns its generator in this slot, made on first use.
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        self.calls_mut().generator(slot)
    }

    /// Lets the aggregator in `slot` combine messages of this client, such as those of its
    /// teachers.
    ///
    /// # Errors
    /// If the part cannot be made, or cannot combine them.
    pub fn aggregate<I: Message, O: Message>(
        &mut self,
        slot: &AggregatorSlot<I, O>,
        inbox: &Inbox<I>,
    ) -> Result<O> {
        let round = self.round(slot);
        self.calls_mut().aggregate(slot, round, inbox)?.take()
    }

    /// Returns the answer that the attack in `slot` forges from this client's honest results. The
    /// attack sees `sent`, the message to the client.
    ///
    /// # Errors
    /// If the part cannot be made, or fails.
    pub fn attack<M: Message>(
        &mut self,
        slot: &AttackSlot<M>,
        sent: Option<&M>,
        honest: &Inbox<M>,
    ) -> Result<M> {
        let round = self.round(slot);
        let round = match sent {
            Some(sent) => round.showing(sent.clone()),
            None => round,
        };
        self.calls_mut().aggregate(slot, round, honest)?.take()
    }

    /// Uses the selector in `slot`; `None` if the slot is empty. The selector lasts between
    /// requests if its slot does.
    ///
    /// # Errors
    /// If the part cannot be made, and those of `f`.
    pub fn with_selector<P: Pool + ?Sized, T>(
        &mut self,
        slot: &SelectorSlot<P>,
        f: impl FnOnce(&mut Self, &mut BoxedSelector<P>) -> Result<T>,
    ) -> Result<Option<T>> {
        if !self.has(slot) {
            return Ok(None);
        }
        let selector = self.calls_mut().take_selector(slot)?.cast::<P>();
        let mut selector =
            selector.with_context(|| format!("parts.{}: it selects others", slot.name()))?;
        let out = f(self, &mut selector);
        let selector = <dyn AnySelector>::of_boxed(selector);
        self.calls_mut().put_selector(slot, selector);
        out.map(Some)
    }

    /// Returns the round for the part in `slot` during this request.
    pub fn round(&self, slot: &str) -> Round {
        Round::new(slot, 0, false, self.stream(slot), Arc::new(Serial))
    }

    /// Forwards the log events of a part.
    pub fn forward_log(&mut self, slot: &str, round: &Round) {
        self.calls_mut().forward_log(slot, round);
    }

    // ---- releases

    /// The range that the mechanism in `slot` requires all clients to share, see
    /// [`crate::PrivacyMechanism::range`].
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn range<M: Message>(&mut self, slot: &MechanismSlot<M>, m: &M) -> Result<Option<f32>> {
        self.calls_mut().range(slot, m)
    }

    /// Lets the mechanism in `slot` clip a message, if the slot is filled. `agreed` is what all
    /// clients agreed on.
    ///
    /// # Errors
    /// When the message cannot be clipped.
    pub fn clip<M: Message>(
        &mut self,
        slot: &MechanismSlot<M>,
        m: &mut M,
        agreed: Option<f32>,
    ) -> Result<()> {
        self.calls_mut().clip(slot, m, agreed)
    }

    /// Releases a message through the mechanism in `slot`, if it is filled: clip, price, afford,
    /// perturb. The cost travels in the answer's envelope, and the server charges it. A budget that
    /// pays for the first few queries of `m` only leaves those.
    ///
    /// # Errors
    /// When the exchange does not declare it, or the message cannot be clipped, priced or
    /// perturbed; [`crate::Problem::Budget`] before anything is spent.
    pub fn release<M: Message>(&mut self, slot: &MechanismSlot<M>, m: &mut M) -> Result<()> {
        self.calls_mut().release(slot, m)
    }

    /// Releases what the steps of a training see of the client's own examples through the mechanism
    /// in `slot` (DP-SGD): all of them are priced and afforded before the first. Each draws a lot
    /// and asks `step` for what it sees of these positions, each example's part bounded by the
    /// mechanism ([`crate::PrivacyMechanism::clip`]), and `then` gets that with noise. `like` is
    /// what a step releases in shape.
    ///
    /// # Errors
    /// When the slot is empty, as [`Client::release`], and those of `step` and `then`.
    pub fn release_steps<M: Message>(
        &mut self,
        slot: &MechanismSlot<M>,
        mut like: M,
        mut step: impl FnMut(&mut Self, &[usize], &BoxedMechanism<M>) -> Result<M>,
        mut then: impl FnMut(&mut Self, usize, M) -> Result<()>,
    ) -> Result<()> {
        let misfit = || {
            format!(
                "parts.{}: it is a mechanism for other messages",
                slot.name()
            )
        };
        let (mut mechanism, steps) = self.calls_mut().begin_steps(slot, &mut like)?;
        let mut at = 0;
        let (mechanism, released) = loop {
            if at == steps {
                break (mechanism, Ok(()));
            }
            let lot = match self.calls_mut().draw_lot(at) {
                Ok(lot) => lot,
                Err(error) => break (mechanism, Err(error)),
            };
            let typed: BoxedMechanism<M> = mechanism.cast().with_context(misfit)?;
            let seen = step(self, &lot, &typed);
            mechanism = <dyn AnyMechanism>::of_boxed(typed);
            let done = seen.and_then(|mut seen| {
                self.calls_mut()
                    .release_step(at, &mut seen, &mut *mechanism)?;
                then(self, at, seen)
            });
            if let Err(error) = done {
                break (mechanism, Err(error));
            }
            at += 1;
        };
        self.calls_mut().end_steps(slot, mechanism);
        released
    }

    // ---- lasting state

    /// Keeps a message between requests.
    pub fn stash<M: Message>(&mut self, name: &str, m: &M) {
        self.calls_mut().stash(name, message::encode(m));
    }

    /// Returns the message that [`Client::stash`] kept, if any; it stays kept.
    ///
    /// # Errors
    /// If it is of another kind.
    pub fn stashed<M: Message>(&self, name: &str) -> Result<Option<M>> {
        let kept = self.calls().stashed(name)?;
        kept.map(|bytes| message::decode(&bytes)).transpose()
    }

    /// Keeps a message that can be computed again for a later request, if there is room. All
    /// clients of a process share 256 MiB. The cache does not outlast the process and is not part
    /// of a checkpoint.
    pub fn cache<M: Message>(&mut self, name: &str, m: &M) {
        self.calls_mut().cache(name, m);
    }

    /// Removes and returns the message that [`Client::cache`] kept. `None`: compute it again.
    ///
    /// # Errors
    /// If it is another kind of message.
    pub fn cached<M: Message>(&mut self, name: &str) -> Result<Option<M>> {
        let kept = self.calls_mut().cached(name)?;
        kept.map(|kept| message::decode(&kept)).transpose()
    }

    /// Removes and returns the message that [`Client::stash`] kept, if any.
    ///
    /// # Errors
    /// If it is of another kind.
    pub fn unstash<M: Message>(&mut self, name: &str) -> Result<Option<M>> {
        let kept = self.calls_mut().unstash(name)?;
        kept.map(|bytes| message::decode(&bytes)).transpose()
    }
}
