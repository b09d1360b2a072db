//! [`ClientState`]: a client as a host holds it.

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

/// A client that a host makes, restores, saves and measures. The author of a method sees it as a
/// [`Client`].
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
    /// Makes a client without models. `home` is its stream in the run.
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

    /// Lets the server repeat a request to this client ([`crate::Fault::Retry`]). It then answers
    /// as if for the first time: changes by the first, unused answer are undone, but its releases
    /// still count.
    pub fn with_retries(mut self, asked_again: bool) -> Self {
        self.asked_again = asked_again;
        self
    }

    /// Sets the budget that the client's releases must not exceed.
    pub fn with_budget(mut self, budget: Option<Budget>) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the source of the noise of its releases.
    pub fn with_noise(mut self, noise: NoiseSource) -> Self {
        self.noise = noise;
        self
    }

    /// Sets the releases of its data by other runs, which count against its budget. Hosts call this
    /// before the first request or the restore of a saved state.
    pub fn with_past(mut self, past: Vec<PrivacyEvent>) -> Self {
        self.past = past;
        self
    }

    /// Returns its releases in this run in order, with those of failed answers.
    pub fn released(&self) -> impl Iterator<Item = &PrivacyEvent> {
        self.ledger.iter().chain(&self.spent)
    }

    /// Returns a model's score on these examples and the digest of its predictions. A host measures
    /// them; they are never sent.
    ///
    /// # Errors
    /// If the model cannot predict them, or its slot does not last.
    pub fn score(&mut self, slot: &str, test: &Examples) -> Result<Evaluation> {
        if !self.store.parts().lasts(slot) {
            let why = format!(
                "parts.{slot} does not last at clients, so there is nothing to evaluate; its slot must say `lasting()`"
            );
            return Err(Problem::Lacks(why).into());
        }
        Evaluation::of(self.model(slot)?, test)
    }

    /// Rebuilds the client from its data and its saved state, as in another process.
    ///
    /// # Errors
    /// As [`ClientState::save`] and [`ClientState::load`].
    pub fn rebuild(&self) -> Result<Self> {
        let mut rebuilt = self.fresh_copy();
        rebuilt.load(&self.save()?)?;
        Ok(rebuilt)
    }

    /// Returns a copy without lasting state.
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

    /// Returns whether it has no lasting state, so that it need not be saved.
    pub fn is_blank(&self) -> bool {
        self.store.is_empty()
            && self.stash.is_empty()
            && self.ledger.is_empty()
            && self.spent.is_empty()
    }

    /// Returns its lasting state, bit for bit, with the releases of failed answers.
    ///
    /// # Errors
    /// If a part cannot be serialised.
    pub fn save(&self) -> Result<Vec<u8>> {
        let what = || format!("client {}", self.id);
        Ok(postcard::to_stdvec(&SavedClient {
            parts: self.store.save().with_context(what)?,
            stash: self.stash.clone(),
            ledger: [&self.ledger[..], &self.spent].concat(),
            before: self.before.clone(),
        })?)
    }

    /// Restores a state from [`ClientState::save`].
    ///
    /// # Errors
    /// If `state` is not a state of a client. A part's own state is read on the part's first use.
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
