//! A client as its host holds it.

use super::{Client, SavedClient};
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
        Self(Client {
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
        })
    }

    /// The same client, which may be asked a question again ([`crate::Fault::Retry`]): it then answers as if it had not been asked
    /// before. What it has learnt or kept of the first answer, which nobody used, is undone; what it has released stays released.
    pub fn with_retries(mut self, asked_again: bool) -> Self {
        self.asked_again = asked_again;
        self
    }

    /// The same client, which releases nothing beyond this budget.
    pub fn with_budget(mut self, budget: Option<Budget>) -> Self {
        self.budget = budget;
        self
    }

    /// The same client, whose releases get their noise from here.
    pub fn with_noise(mut self, noise: NoiseSource) -> Self {
        self.noise = noise;
        self
    }

    /// The same client, of whose data other runs have released this: its budget pays for it too. Used by hosts before the
    /// client is asked anything or goes on from a saved state.
    pub fn with_past(mut self, past: Vec<PrivacyEvent>) -> Self {
        self.past = past;
        self
    }

    /// What it has released in this run, in order; what a failed answer released is among it.
    pub fn released(&self) -> impl Iterator<Item = &PrivacyEvent> {
        self.ledger.iter().chain(&self.spent)
    }

    /// How good a model is on these examples, and the digest of what it predicts. Measured by a host, never sent.
    ///
    /// # Errors
    /// When the model cannot predict them, or its slot does not last.
    pub fn score(&mut self, slot: &str, test: &Examples) -> Result<Evaluation> {
        if !self.store.parts().lasts(slot) {
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
        Self::new(
            self.id,
            self.data.clone(),
            self.public.clone(),
            self.store.parts().clone(),
            self.home.clone(),
        )
        .with_budget(self.budget.clone())
        .with_noise(self.noise.clone())
        .with_past(self.past.clone())
        .with_retries(self.asked_again)
    }

    /// Is there nothing that lasts? Then there is no need to save it.
    pub fn is_blank(&self) -> bool {
        self.store.is_empty()
            && self.stash.is_empty()
            && self.ledger.is_empty()
            && self.spent.is_empty()
    }

    /// Everything that lasts, bit for bit; what a failed answer released is among it.
    ///
    /// # Errors
    /// When a part cannot be written down.
    pub fn save(&self) -> Result<Vec<u8>> {
        let what = || format!("client {}", self.id);
        Ok(postcard::to_stdvec(&SavedClient {
            parts: self.store.save().with_context(what)?,
            stash: self.stash.clone(),
            ledger: [&self.ledger[..], &self.spent].concat(),
            before: self.before.clone(),
        })?)
    }

    /// Takes back what [`ClientState::save`] gave.
    ///
    /// # Errors
    /// When `state` is not a state of a client. A part's state is looked at when the part is used.
    pub fn load(&mut self, state: &[u8]) -> Result<()> {
        let saved: SavedClient = postcard::from_bytes(state)
            .with_context(|| format!("the saved state of client {}", self.id))?;
        self.store.load(saved.parts);
        self.stash = saved.stash;
        self.ledger = saved.ledger;
        self.before = saved.before;
        self.spent.clear();
        self.charged = 0;
        Ok(())
    }
}
