//! Steps of a run: single ones, rounds, and the state that a stopped run resumes from.

use crate::exchange::faults::QuorumPolicy;
use crate::host::{StepCost, StepPosition, Totals};
use crate::message::Params;
use crate::privacy::{UnpricedDisclosures, epsilons};
use crate::server::Server;
use crate::store::States;
use crate::{ClientId, PrivacyEvent, Problem, Result, Round, Stream};
use anyhow::Context;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet};

/// State that lives for one step.
#[derive(Default)]
pub(crate) struct Step {
    /// How many earlier attempts of the step had too few answers.
    pub repeated: usize,
    /// The samples of the last request to clients.
    pub asked_about: Option<Vec<u32>>,
    /// Models that this round did not evaluate.
    pub unevaluated: Vec<PendingEvaluation>,
    /// How often each action was done: no two requests, selections or releases share their
    /// randomness.
    times: BTreeMap<String, u64>,
}

impl Step {
    /// Returns how many times `what` was done before in this step, and counts this time.
    pub fn again(&mut self, what: String) -> u64 {
        let times = self.times.entry(what).or_default();
        *times += 1;
        *times - 1
    }
}

/// A measurement that a round skipped because later rounds were due: models by their slot, and
/// numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum PendingEvaluation {
    Server(String),
    Clients(String),
    /// Models of the server, evaluated in turn in this slot, and each client's index among them.
    ForClients(String, Vec<Params>, Vec<usize>),
    Number(String, f64),
    Each(String, Vec<(ClientId, f64)>),
}

/// Where a resumed run continues.
pub(crate) struct ResumePoint {
    pub done: usize,
    pub protocol: Vec<u8>,
}

/// All state of the server that a stopped run resumes from.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedServer {
    pub done: usize,
    pub protocol: Vec<u8>,
    pub parts: States,
    pub own: Vec<PrivacyEvent>,
    pub clients: BTreeMap<ClientId, Vec<PrivacyEvent>>,
    pub told: BTreeMap<String, BTreeSet<ClientId>>,
    pub exposed: UnpricedDisclosures,
    pub chain: [u8; 32],
    pub totals: Totals,
    pub ended: bool,
    pub unevaluated: Vec<PendingEvaluation>,
}

impl Server<'_> {
    /// Runs `body` once. A resumed run that has done it before skips it and takes `state` from the
    /// checkpoint.
    ///
    /// # Errors
    /// Those of `body`, and of the checkpoint.
    pub fn once<S: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        state: &mut S,
        body: impl FnMut(&mut Self, &mut S, &Round) -> Result<()>,
    ) -> Result<()> {
        self.step(name.into(), 0, 0, self.root.child(name, 0), state, body)
    }

    /// Runs `body` `n` times, as rounds 1 to `n`. A resumed run skips the rounds that it has done
    /// before. The first round that exceeds the budget ends the rounds. The protocol's state and
    /// the server's parts then stay as after the last paid round. That round is evaluated now if it
    /// was not before.
    ///
    /// # Errors
    /// Those of `body`, and of the checkpoints; [`Problem::Budget`] if even the first round exceeds
    /// the budget.
    pub fn rounds<S: Serialize + DeserializeOwned>(
        &mut self,
        n: usize,
        state: &mut S,
        mut body: impl FnMut(&mut Self, &mut S, &Round) -> Result<()>,
    ) -> Result<()> {
        for number in 1..=n {
            let stream = self.root.child("round", number as u64);
            self.step(
                format!("round {number}"),
                number,
                n,
                stream,
                state,
                &mut body,
            )?;
        }
        Ok(())
    }

    fn step<S: Serialize + DeserializeOwned>(
        &mut self,
        name: String,
        number: usize,
        of: usize,
        stream: Stream,
        state: &mut S,
        mut body: impl FnMut(&mut Self, &mut S, &Round) -> Result<()>,
    ) -> Result<()> {
        self.steps += 1;
        if let Some(saved) = self.resumed.as_ref().filter(|s| self.steps <= s.done) {
            *state =
                postcard::from_bytes(&saved.protocol).context("the saved state of the protocol")?;
            return Ok(());
        }
        if self.ended && of > 0 {
            return Ok(());
        }
        self.host.progress(&name, number, of)?;
        let times = match self.faults.if_too_few {
            QuorumPolicy::Stop => 0,
            QuorumPolicy::Repeat(times) => times,
        };
        for attempt in 0..=times {
            let stream = match attempt {
                0 => stream.clone(),
                again => stream.child("again", again as u64),
            };
            let round = Round::new(&*name, number, number == of, stream, self.host.executor());
            self.step = Step {
                repeated: attempt,
                ..Step::default()
            };
            let may_end = self.may_end() && number > 1;
            let before = attempt < times || may_end;
            let before = before.then(|| self.before(state)).transpose()?;
            match body(self, state, &round) {
                Ok(()) => {
                    self.unevaluated = std::mem::take(&mut self.step.unevaluated);
                    break;
                }
                Err(error) => match (error.downcast_ref::<Problem>(), before) {
                    (Some(few @ Problem::TooFew { .. }), Some((protocol, parts)))
                        if attempt < times =>
                    {
                        self.warn(&format!("{name}: {few}; it is done once more"));
                        *state = postcard::from_bytes(&protocol)?;
                        self.store.load(parts);
                        self.ledger.exposure.forget_unreleased();
                    }
                    (Some(Problem::Budget(_)), Some((protocol, parts))) if may_end => {
                        self.warn(&format!(
                            "the budget ends the run before {name} is paid for: {error:#}"
                        ));
                        *state = postcard::from_bytes(&protocol)?;
                        self.store.load(parts);
                        self.ledger.exposure.forget_unreleased();
                        self.ended = true;
                        self.evaluate_paid(number - 1)?;
                        break;
                    }
                    _ => return Err(error.context(name)),
                },
            }
        }
        self.totals.steps = self.steps;
        // releases of the server at the end of a step belong to no line of the journal
        let cost = StepCost {
            step: name.clone(),
            round: number,
            bytes_up: self.totals.up,
            bytes_down: self.totals.down,
            privacy: self.protections()?.map(|all| epsilons(&all)),
        };
        self.host.cost(&cost)?;
        let Self {
            host,
            store,
            ledger,
            chain,
            totals,
            grows,
            told,
            ended,
            unevaluated,
            ..
        } = self;
        // serialised only if the host stores it
        let saved = || {
            let saved = SavedServer {
                done: totals.steps,
                protocol: postcard::to_stdvec(&*state)?,
                parts: store.save()?,
                own: ledger.server.clone(),
                clients: ledger.clients.clone(),
                told: told.clone(),
                exposed: ledger.exposure.exposed.clone(),
                chain: *chain,
                totals: totals.clone(),
                ended: *ended,
                unevaluated: unevaluated.clone(),
            };
            Ok(postcard::to_stdvec(&saved)?)
        };
        let place = match of {
            0 => StepPosition::Within,
            _ if !*grows => StepPosition::Within,
            _ if number == of => StepPosition::Last,
            _ if number + 1 == of => StepPosition::BeforeLast,
            _ => StepPosition::Within,
        };
        host.checkpoint(totals.steps, &name, place, &saved)
    }

    /// Runs the evaluations that the last paid round skipped because later rounds were due.
    fn evaluate_paid(&mut self, number: usize) -> Result<()> {
        let name = format!("round {number}");
        let stream = self.root.child("round", number as u64);
        let round = Round::new(&*name, number, true, stream, self.host.executor());
        for models in std::mem::take(&mut self.unevaluated) {
            match models {
                PendingEvaluation::Server(slot) => self.evaluate(&round, &slot)?,
                PendingEvaluation::Clients(slot) => self.evaluate_clients(&round, &slot)?,
                PendingEvaluation::ForClients(slot, models, whose) => {
                    let everyone = self.everyone();
                    let of = |id| everyone.binary_search(&id).map_or(0, |at| whose[at]);
                    self.evaluate_for_clients(&round, &slot, &models, of)?;
                }
                PendingEvaluation::Number(name, value) => self.record(&round, &name, value)?,
                PendingEvaluation::Each(name, each) => self.record_of(&round, &name, each)?,
            }
        }
        Ok(())
    }

    /// Returns whether a budget may end the rounds: the run's, or that of a client's own node.
    pub(crate) fn may_end(&self) -> bool {
        self.ledger.accounts()
    }

    /// Returns the serialised states of the protocol and of the server's parts.
    fn before<S: Serialize>(&self, state: &S) -> Result<(Vec<u8>, States)> {
        Ok((postcard::to_stdvec(state)?, self.store.save()?))
    }
}
