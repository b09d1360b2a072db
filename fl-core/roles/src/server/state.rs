//! [`RunState`]: the server's side of a run, as a host holds it.

use super::receipts::StepRecorder;
use super::steps::{CurrentStage, CurrentStep, PendingEvaluation, ResumePoint, SavedServer, Step};
use crate::exchange::faults::Faults;
use crate::host::{Host, RunOptions, Totals};
use crate::ledger::RunLedger;
use crate::message::hex;
use crate::privacy::NoiseSource;
use crate::store::Store;
use crate::{ClientId, Measurement, Parts, PrivacyEvent, Problem, Protocol, Result, Stream};
use anyhow::Context;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The server's side of a run as its host holds it: made, restored and read here. The author of a
/// method sees it as a [`Server`](crate::Server).
pub struct RunState<'h> {
    pub(crate) host: &'h mut dyn Host,
    pub(crate) store: Store,
    pub(crate) root: Stream,
    pub(crate) faults: Faults,
    pub(crate) noise: NoiseSource,
    pub(crate) ledger: RunLedger,
    pub(crate) every: usize,
    pub(crate) chain: [u8; 32],
    pub(crate) totals: Totals,
    pub(crate) steps: usize,
    pub(crate) stage: CurrentStage,
    /// Whether the run may get more rounds later.
    pub(crate) grows: bool,
    pub(crate) step: Step,
    pub(crate) current: Option<CurrentStep>,
    /// Whether a budget or a measure has ended the rounds.
    pub(crate) ended: bool,
    /// Measurements that the last round skipped.
    pub(crate) unevaluated: Vec<PendingEvaluation>,
    pub(crate) resumed: Option<ResumePoint>,
    /// Takes a receipt of each step at the server.
    pub(crate) recorder: Option<Box<dyn StepRecorder>>,
    /// The clients of whom the user was told: by kind of unusable answer, and by note.
    pub(crate) told: BTreeMap<String, BTreeSet<ClientId>>,
    /// The measurements that the protocol declares, if it declares them.
    pub(crate) declared: Option<Vec<Measurement>>,
    /// The number of rounds, if the protocol declares it.
    pub(crate) rounds: Option<usize>,
    /// Names of the buffers of the run's models, once an aggregator has needed them.
    pub(crate) buffers: OnceCell<Arc<BTreeSet<String>>>,
    /// How often each client was asked, by label of the exchange, since the run began or resumed.
    pub(crate) asked: BTreeMap<&'static str, BTreeMap<ClientId, usize>>,
}

impl<'h> RunState<'h> {
    /// Makes the state of a run. `state`, from a checkpoint of the same run, resumes it.
    ///
    /// # Errors
    /// If the protocol does not work for such a task, the accountant cannot be made, or `state` is
    /// not a server's state.
    pub fn new(
        host: &'h mut dyn Host,
        parts: Arc<Parts>,
        protocol: &dyn Protocol,
        options: &RunOptions,
        state: Option<&[u8]>,
    ) -> Result<Self> {
        // the spec's checks may not have known the kind of the data
        let kind = options.task.kind;
        let has = |name: &str| name.starts_with("data.") || parts.has(name);
        let suits = protocol.suits(kind, &has);
        suits.map_err(|why| {
            Problem::Lacks(format!("protocol: it does not work for {kind}: {why}"))
        })?;
        let declared = protocol.declare();
        let root = Stream::root(options.seed);
        let store = Store::new(parts, None, options.task.clone(), root.child("server", 0));
        let ledger = RunLedger::new(&store, protocol, options)?;
        let mut fed = Self {
            host,
            store,
            root,
            faults: options.faults.clone(),
            noise: options.noise.clone(),
            every: options.evaluate_every.max(1),
            ledger,
            chain: [0; 32],
            totals: Totals::default(),
            steps: 0,
            stage: CurrentStage::default(),
            grows: declared.grows.is_some(),
            rounds: declared.rounds,
            step: Step::default(),
            current: None,
            ended: false,
            unevaluated: Vec::new(),
            resumed: None,
            recorder: None,
            told: BTreeMap::new(),
            declared: declared.measures,
            buffers: OnceCell::new(),
            asked: BTreeMap::new(),
        };
        if state.is_none() && fed.ledger.accounts() {
            for (id, _) in fed.host.roster() {
                let charged = fed.ledger.charge_client(*id, options.inherited.clone());
                charged.context("the releases of the runs that this run's data come from")?;
            }
        }
        if let Some(state) = state {
            let saved: SavedServer =
                postcard::from_bytes(state).context("the saved state of the server")?;
            (fed.chain, fed.totals) = (saved.chain, saved.totals);
            fed.ledger.charge(saved.own)?;
            for (id, events) in saved.clients {
                fed.ledger.charge_client(id, events)?;
            }
            fed.ledger.exposure.exposed = saved.exposed;
            fed.told = saved.told;
            (fed.ended, fed.unevaluated) = (saved.ended, saved.unevaluated);
            fed.store.load(saved.parts);
            fed.resumed = Some(ResumePoint {
                done: saved.done,
                protocol: saved.protocol,
                stage: saved.stage,
            });
        }
        Ok(fed)
    }

    /// Returns the digest of all messages, answers, measurements and results so far. With
    /// [`Noise::System`](crate::privacy::Noise::System) it covers only their order, not their
    /// content.
    pub fn digest(&self) -> String {
        hex(&self.chain)
    }

    /// Returns the bytes and steps so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns all releases so far, at the server and at clients, that no accountant covers.
    pub fn unaccounted(&self) -> Vec<PrivacyEvent> {
        self.ledger.unaccounted()
    }

    /// Returns all releases so far: those of the server, and those of each client.
    pub fn releases(&self) -> (&[PrivacyEvent], &BTreeMap<ClientId, Vec<PrivacyEvent>>) {
        (&self.ledger.server, &self.ledger.clients)
    }

    /// Records that a row may belong to two clients: a guarantee for one example is impossible.
    pub fn owned_twice(&mut self, why: &str) {
        self.ledger.exposure.twice = Some(why.into());
    }
}
