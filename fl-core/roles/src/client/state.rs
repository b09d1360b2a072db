//! [`ClientState`]: a client as a host holds it.

use super::core::{ClientCore, SavedClient};
use super::{Client, ClientSide};
use crate::message::Params;
use crate::privacy::NoiseSource;
use crate::store::Store;
use crate::{
    Budget, ClientId, Evaluation, Examples, Parts, PrivacyEvent, Problem, Public, Result, Stream,
    Trainer, parametric,
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
        Self(Client(ClientSide::Here(Box::new(ClientCore {
            id,
            public,
            now: home.clone(),
            round: 0,
            store: Store::new(parts, Some(id), data.task(), home.clone()),
            home,
            data,
            held_out: None,
            uses_held_out: false,
            sampled: false,
            stash: BTreeMap::new(),
            cache: BTreeMap::new(),
            spent: Vec::new(),
            notes: Vec::new(),
            measures: Vec::new(),
            past: Vec::new(),
            ledger: Vec::new(),
            budgets: Vec::new(),
            noise: NoiseSource::Seeded,
            charged: 0,
            asked_again: false,
            before: None,
            declared: BTreeMap::new(),
            released_through: BTreeSet::new(),
            once: false,
            training_loss: None,
            steps: None,
        }))))
    }

    /// Lets the server repeat a request to this client ([`crate::Fault::Retry`]). It then answers
    /// as if for the first time: changes by the first, unused answer are undone, but its releases
    /// still count.
    pub fn with_retries(mut self, asked_again: bool) -> Self {
        self.core_mut().asked_again = asked_again;
        self
    }

    /// Gives the client the rows that it tests on and does not learn from.
    pub fn with_held_out(mut self, held_out: Option<Examples>) -> Self {
        self.core_mut().held_out = held_out;
        self
    }

    /// Sets the budgets that the client's releases must not exceed.
    pub fn with_budgets(mut self, budgets: Vec<Budget>) -> Self {
        self.core_mut().budgets = budgets;
        self
    }

    /// Sets the source of the noise of its releases.
    pub fn with_noise(mut self, noise: NoiseSource) -> Self {
        self.core_mut().noise = noise;
        self
    }

    /// Sets the releases of its data by other runs, which count against its budget. Hosts call this
    /// before the first request or the restore of a saved state.
    pub fn with_past(mut self, past: Vec<PrivacyEvent>) -> Self {
        self.core_mut().past = past;
        self
    }

    /// Returns its releases in this run in order, with those of failed answers.
    pub fn released(&self) -> impl Iterator<Item = &PrivacyEvent> {
        self.core().ledger.iter().chain(&self.core().spent)
    }

    /// Returns a model's score on these examples and the digest of its predictions. A host measures
    /// them; they are never sent. With `shared`, the model is its own with these parameters, and is
    /// as before afterwards.
    ///
    /// # Errors
    /// If the model cannot predict them, lacks one of the parameters, or its slot does not last.
    pub fn score(
        &mut self,
        slot: &str,
        test: &Examples,
        shared: Option<&Params>,
    ) -> Result<Evaluation> {
        let store = &self.core().store;
        if !store.parts().lasts(&store.slot(slot)) {
            let why = format!(
                "parts.{slot} does not last at clients, so there is nothing to evaluate; its slot must say `lasting()`"
            );
            return Err(Problem::Lacks(why).into());
        }
        let Some(shared) = shared else {
            return Evaluation::of(self.model(slot)?, test);
        };
        self.with_params(slot, shared, |client| {
            Evaluation::of(client.model(slot)?, test)
        })
    }

    /// Returns the score of the server's model, which has these parameters, on the client's own
    /// test rows. The client's own models stay as they are.
    ///
    /// # Errors
    /// If the client has no test rows of its own, or the model lacks one of the parameters or
    /// cannot predict the rows.
    pub fn score_for_server(&mut self, slot: &str, params: &Params) -> Result<Evaluation> {
        let core = self.core();
        let test = core.held_out.clone();
        let test = test.context("the client has no test rows of its own")?;
        let mut model: Box<dyn Trainer> = core.store.make_for_server(slot)?;
        parametric(model.as_mut(), slot)?.set_params(params)?;
        Evaluation::of(model.as_mut(), &test)
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
        let core = self.core();
        Self::new(
            core.id,
            core.data.clone(),
            core.public.clone(),
            core.store.parts().clone(),
            core.home.clone(),
        )
        .with_held_out(core.held_out.clone())
        .with_budgets(core.budgets.clone())
        .with_noise(core.noise.clone())
        .with_past(core.past.clone())
        .with_retries(core.asked_again)
    }

    /// Returns whether it has no lasting state, so that it need not be saved.
    pub fn is_blank(&self) -> bool {
        let core = self.core();
        core.store.is_empty()
            && core.stash.is_empty()
            && core.ledger.is_empty()
            && core.spent.is_empty()
    }

    /// Returns its lasting state, bit for bit, with the releases of failed answers.
    ///
    /// # Errors
    /// If a part cannot be serialised.
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

    /// Restores a state from [`ClientState::save`].
    ///
    /// # Errors
    /// If `state` is not a state of a client. A part's own state is read on the part's first use.
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
