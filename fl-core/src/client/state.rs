//! A client as its host holds it.

use super::core::{ClientCore, SavedClient};
use super::{Client, ClientSide};
use crate::privacy::NoiseSource;
use crate::store::Store;
use crate::{
    Budget, ClientId, Evaluation, Examples, Parts, PrivacyEvent, Problem, Public, Result, Stream,
};
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A client as its host holds it: made, restored, saved and measured here. The author of a method
/// sees it as a [`Client`].
pub struct ClientState(pub(crate) Client);

impl Deref for ClientState {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.0
    }
}

impl DerefMut for ClientState {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.0
    }
}

impl ClientState {
    /// A client without models. `home` is its stream in the run.
    pub fn new(
        id: ClientId,
        data: Examples,
        public: Option<Arc<Public>>,
        parts: Arc<Parts>,
        home: Stream,
    ) -> Self {
        Self(Client(ClientSide::Here(Box::new(ClientCore {
            id,
            public,
            now: home.clone(),
            store: Store::new(parts, Some(id), data.task(), home.clone()),
            home,
            data,
            stash: BTreeMap::new(),
            cache: BTreeMap::new(),
            spent: Vec::new(),
            notes: Vec::new(),
            measures: Vec::new(),
            past: Vec::new(),
            ledger: Vec::new(),
            budget: None,
            noise: NoiseSource::Seeded,
            charged: 0,
            asked_again: false,
            before: None,
            declared: BTreeMap::new(),
            released_through: BTreeSet::new(),
            training_loss: None,
            steps: None,
        }))))
    }

    /// The same client, which may be asked a question again ([`crate::Fault::Retry`]): it then answers as if it had not been asked
    /// before. What it has learnt or kept of the first answer, which nobody used, is undone; what it has released stays released.
    pub fn with_retries(mut self, asked_again: bool) -> Self {
        self.core_mut().asked_again = asked_again;
        self
    }

    /// The same client, which releases nothing beyond this budget.
    pub fn with_budget(mut self, budget: Option<Budget>) -> Self {
        self.core_mut().budget = budget;
        self
    }

    /// The same client, whose releases get their noise from here.
    pub fn with_noise(mut self, noise: NoiseSource) -> Self {
        self.core_mut().noise = noise;
        self
    }

    /// The same client, of whose data other runs have released this: its budget pays for it too. Used by hosts before the
    /// client is asked anything or goes on from a saved state.
    pub fn with_past(mut self, past: Vec<PrivacyEvent>) -> Self {
        self.core_mut().past = past;
        self
    }

    /// What it has released in this run, in order; what a failed answer released is among it.
    pub fn released(&self) -> impl Iterator<Item = &PrivacyEvent> {
        self.core().ledger.iter().chain(&self.core().spent)
    }

    /// How good a model is on these examples, and the digest of what it predicts. Measured by a host, never sent.
    ///
    /// # Errors
    /// When the model cannot predict them, or its slot does not last.
    pub fn score(&mut self, slot: &str, test: &Examples) -> Result<Evaluation> {
        if !self.core().store.parts().lasts(slot) {
            let why = format!(
                "parts.{slot} does not last at clients, so there is nothing to evaluate; its slot must say `lasting()`"
            );
            return Err(Problem::Lacks(why).into());
        }
        Evaluation::of(self.model(slot)?, test)
    }

    /// The same client made anew from its data and its saved state, as in another process.
    ///
    /// # Errors
    /// As [`ClientState::save`] and [`ClientState::load`].
    pub fn rebuild(&self) -> Result<Self> {
        let mut rebuilt = self.fresh_copy();
        rebuilt.load(&self.save()?)?;
        Ok(rebuilt)
    }

    /// The same client without anything that lasts.
    pub fn fresh_copy(&self) -> Self {
        let core = self.core();
        Self::new(
            core.id,
            core.data.clone(),
            core.public.clone(),
            core.store.parts().clone(),
            core.home.clone(),
        )
        .with_budget(core.budget.clone())
        .with_noise(core.noise.clone())
        .with_past(core.past.clone())
        .with_retries(core.asked_again)
    }

    /// Is there nothing that lasts? Then there is no need to save it.
    pub fn is_blank(&self) -> bool {
        let core = self.core();
        core.store.is_empty()
            && core.stash.is_empty()
            && core.ledger.is_empty()
            && core.spent.is_empty()
    }

    /// Everything that lasts, bit for bit; what a failed answer released is among it.
    ///
    /// # Errors
    /// When a part cannot be written down.
    pub fn save(&self) -> Result<Vec<u8>> {
        let core = self.core();
        let what = || format!("client {}", core.id);
        Ok(postcard::to_stdvec(&SavedClient {
            parts: core.store.save().with_context(what)?,
            stash: core.stash.clone(),
            ledger: [&core.ledger[..], &core.spent].concat(),
            before: core.before.clone(),
        })?)
    }

    /// Takes back what [`ClientState::save`] gave.
    ///
    /// # Errors
    /// When `state` is not a state of a client. A part's state is looked at when the part is used.
    pub fn load(&mut self, state: &[u8]) -> Result<()> {
        let core = self.core_mut();
        let saved: SavedClient = postcard::from_bytes(state)
            .with_context(|| format!("the saved state of client {}", core.id))?;
        core.store.load(saved.parts);
        core.stash = saved.stash;
        core.ledger = saved.ledger;
        core.before = saved.before;
        core.spent.clear();
        core.charged = 0;
        Ok(())
    }
}
