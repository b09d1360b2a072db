//! [`ExternalClients`]: clients outside this process. [`ClientFactory`]: makes clients in either
//! place.

use anyhow::{Context, ensure};
use fl_core::message::Params;
use fl_core::privacy::NoiseSource;
use fl_core::{
    Answer, Budget, ClientId, ClientState, Evaluation, Examples, Parts, Protocol, Public, Request,
    Result, Stream,
};
use fl_files::ChainHash;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The clients of a run that live in other processes, with their state between requests.
pub trait ExternalClients {
    /// Finds the clients, before any request. Returns those that take part, ascending, with their
    /// numbers of examples (0 if unknown, see [`owners`]). `known` is this process's knowledge of
    /// them, which may be empty. `state` is the result of [`ExternalClients::save`] in the
    /// checkpoint to resume from.
    ///
    /// # Errors
    /// If a required client is missing, or has other data than known.
    fn begin(
        &mut self,
        known: &[(ClientId, usize)],
        state: Option<&[u8]>,
    ) -> Result<Vec<(ClientId, usize)>>;

    /// Returns the clients that it has found without examples, which take no part.
    fn idle(&self) -> &[ClientId] {
        &[]
    }

    /// As [`fl_core::Host::ask`].
    ///
    /// # Errors
    /// The first error of `each`, or if no client can get requests any more.
    fn ask<'q>(
        &mut self,
        to: &[ClientId],
        question: &(dyn Fn(ClientId) -> Request<'q> + Sync),
        each: &mut dyn FnMut(ClientId, Result<Answer>) -> Result<()>,
    ) -> Result<()>;

    /// Evaluates these clients' own models at the clients, with these `shared` parameters if there
    /// are any; passes the scores to `each` in this order.
    ///
    /// # Errors
    /// As [`ExternalClients::ask`].
    fn score(
        &mut self,
        to: &[ClientId],
        slot: &str,
        shared: Option<&Params>,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()>;

    /// Evaluates the server's models at these clients, each on the client's own test rows; see
    /// [`fl_core::Host::score_at_clients`].
    ///
    /// # Errors
    /// As [`ExternalClients::ask`].
    fn score_for_server(
        &mut self,
        to: &[ClientId],
        slot: &str,
        params: &dyn Fn(ClientId) -> Arc<Params>,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()>;

    /// Fetches these clients' own models, serialised, in this order.
    ///
    /// # Errors
    /// As [`ExternalClients::ask`].
    fn models(
        &mut self,
        to: &[ClientId],
        slot: &str,
        each: &mut dyn FnMut(ClientId, Result<Vec<u8>>) -> Result<()>,
    ) -> Result<()>;

    /// Asks clients whose data are their own to countersign the receipts of the run up to the
    /// record with this hash, which say that these are digests of their answers. Passes public keys
    /// and signatures to `each`.
    ///
    /// # Errors
    /// As [`ExternalClients::ask`].
    fn countersign(
        &mut self,
        _hash: &ChainHash,
        _answers: &BTreeMap<ClientId, Vec<String>>,
        _each: &mut dyn FnMut(ClientId, Result<(String, String)>) -> Result<()>,
    ) -> Result<()> {
        Ok(())
    }

    /// Returns their state for a checkpoint; never empty.
    ///
    /// # Errors
    /// If it cannot be serialised.
    fn save(&self) -> Result<Vec<u8>>;

    /// Reports that the checkpoint with the last [`ExternalClients::save`] is written: the run
    /// never resumes from an earlier one.
    fn saved(&mut self);

    /// Ends the run, which is not resumed; with `keep` it may get more rounds.
    ///
    /// # Errors
    /// If leftovers cannot be removed.
    fn end(&mut self, keep: bool) -> Result<()>;
}

/// The common ingredients of all clients of a run, in any process.
#[derive(Clone)]
pub struct ClientFactory {
    /// The public data.
    pub public: Option<Arc<Public>>,
    /// The rows that each client tests on and does not learn from, by its number
    /// ([`ClientFactory::with_held_out`]).
    pub held_out: Vec<Examples>,
    /// The parts, in the protocol's slots ([`Parts::in_slots`]).
    pub parts: Arc<Parts>,
    /// The run's seed.
    pub seed: u64,
    /// The budgets.
    pub budgets: Vec<Budget>,
    /// The source of the noise of releases.
    pub noise: NoiseSource,
    /// Whether the server may repeat a request.
    pub retries: bool,
}

impl ClientFactory {
    /// Gives each client its `rows`, if there are any, which it tests on and does not learn from.
    /// If one client has the data of all, as `protocol` says, it has no such rows.
    pub fn with_held_out(mut self, rows: Option<&[Examples]>, protocol: &dyn Protocol) -> Self {
        let rows = rows.filter(|_| !protocol.pools_data());
        self.held_out = rows.unwrap_or_default().to_vec();
        self
    }

    /// Makes a client that has learnt nothing yet.
    pub fn client(&self, id: ClientId, data: Examples) -> ClientState {
        let home = Stream::root(self.seed).child("client", u64::from(id));
        ClientState::new(id, data, self.public.clone(), self.parts.clone(), home)
            .with_held_out(self.held_out.get(id as usize).cloned())
            .with_budgets(self.budgets.clone())
            .with_noise(self.noise.clone())
            .with_retries(self.retries)
    }
}

/// Returns the clients that take part, ascending: those with examples. If the run has an accountant
/// (`accounts`), returns all clients: the list of participants is public, and must not depend on
/// who has examples. With `pooled` it is one client with all clients' examples.
///
/// # Errors
/// If no client takes part.
pub fn owners(
    all: Vec<Examples>,
    pooled: bool,
    accounts: bool,
) -> Result<Vec<(ClientId, Examples)>> {
    let all = (0..).zip(all);
    let all = all.filter(|(_, data)| accounts || !data.is_empty());
    let mut owners: Vec<(ClientId, Examples)> = all.collect();
    if pooled {
        let mut all = owners.into_iter().map(|(_, data)| data);
        let first = all.next().context("no client has any examples")?;
        owners = vec![(0, all.try_fold(first, |sum, data| sum.join(&data))?)];
    }
    ensure!(!owners.is_empty(), "no client has any examples");
    Ok(owners)
}
