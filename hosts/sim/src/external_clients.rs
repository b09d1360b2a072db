//! Clients that live in other places than this process, and what a client is made from in either.

use anyhow::{Context, ensure};
use fl_core::privacy::NoiseSource;
use fl_core::{
    Answer, Budget, ClientId, ClientState, Evaluation, Examples, Parts, Public, Request, Result,
    Stream,
};
use std::sync::Arc;

/// The clients of a run that live elsewhere. What they keep between two questions is kept there.
pub trait ExternalClients {
    /// Finds the clients, before anything is asked; gives those that take part, ascending, and how
    /// many examples each has (0 where that is not told, see [`owners`]). `known` is what this
    /// process knows of them, which may be nothing, and `state` what [`ExternalClients::save`] gave to
    /// the checkpoint that the run goes on from.
    ///
    /// # Errors
    /// When somebody who must be there is not, or has something else than is known.
    fn begin(
        &mut self,
        known: &[(ClientId, usize)],
        state: Option<&[u8]>,
    ) -> Result<Vec<(ClientId, usize)>>;

    /// As [`fl_core::Host::ask`].
    ///
    /// # Errors
    /// The first error of `each`, or when nobody can be asked any more.
    fn ask<'q>(
        &mut self,
        to: &[ClientId],
        question: &(dyn Fn(ClientId) -> Request<'q> + Sync),
        each: &mut dyn FnMut(ClientId, Result<Answer>) -> Result<()>,
    ) -> Result<()>;

    /// Evaluates these clients' own models where they are; hands over the scores in this order.
    ///
    /// # Errors
    /// As [`ExternalClients::ask`].
    fn score(
        &mut self,
        to: &[ClientId],
        slot: &str,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()>;

    /// Fetches these clients' own models, written down, in this order.
    ///
    /// # Errors
    /// As [`ExternalClients::ask`].
    fn models(
        &mut self,
        to: &[ClientId],
        slot: &str,
        each: &mut dyn FnMut(ClientId, Result<Vec<u8>>) -> Result<()>,
    ) -> Result<()>;

    /// What a checkpoint must know of them; never empty.
    ///
    /// # Errors
    /// When it cannot be written down.
    fn save(&self) -> Result<Vec<u8>>;

    /// The checkpoint with what [`ExternalClients::save`] gave last stands: the run never goes on from an earlier one.
    fn saved(&mut self);

    /// The run is over; nobody goes on with it, unless it is to be kept for more rounds.
    ///
    /// # Errors
    /// When something that is left cannot be removed.
    fn end(&mut self, keep: bool) -> Result<()>;
}

/// What all clients of a run are made from, wherever they are.
#[derive(Clone)]
pub struct ClientFactory {
    /// What everybody has.
    pub public: Option<Arc<Public>>,
    /// The parts, in the protocol's slots ([`Parts::in_slots`]).
    pub parts: Arc<Parts>,
    /// The run's seed.
    pub seed: u64,
    /// What may be spent.
    pub budget: Option<Budget>,
    /// Where the noise of releases comes from.
    pub noise: NoiseSource,
    /// May a client be asked a question again?
    pub retries: bool,
}

impl ClientFactory {
    /// A client that has learnt nothing yet.
    pub fn client(&self, id: ClientId, data: Examples) -> ClientState {
        let home = Stream::root(self.seed).child("client", u64::from(id));
        ClientState::new(id, data, self.public.clone(), self.parts.clone(), home)
            .with_budget(self.budget.clone())
            .with_noise(self.noise.clone())
            .with_retries(self.retries)
    }
}

/// The clients that take part, ascending. If an accountant works for the run (`accounts`), these
/// are all clients: who takes part is public, and must not follow from who has examples. Otherwise
/// they are those that have examples. With `pooled` it is one client that has everyone's.
///
/// # Errors
/// When no client takes part.
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
