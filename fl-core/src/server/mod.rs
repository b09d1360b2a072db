//! The server's door: a protocol asks, aggregates, releases and evaluates through a [`Server`].

pub(crate) mod cohort;
mod collect;
mod collector;
mod evaluate;
mod release;
mod state;
mod steps;

pub use state::RunState;

use crate::exchange::faults::Faults;
use crate::host::{Budget, Host, Totals};
use crate::ledger::exposure::ExposureTracker;
use crate::message::Ids;
use crate::privacy::NoiseSource;
use crate::server::steps::{PendingEvaluation, ResumePoint, Step};
use crate::store::Store;
use crate::{
    Accountant, BoxedSelector, ClientId, Cohort, Examples, FitOptions, Generator, LogEvent,
    Parametric, Pool, PrivacyEvent, Public, Result, Round, Samples, SelectorSlot, Stream, Target,
    Task, Trainer, fit_examples, parametric,
};
use anyhow::{Context, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A protocol's view of the world, from the server.
pub struct Server<'h> {
    pub(crate) host: &'h mut dyn Host,
    pub(crate) store: Store,
    pub(crate) root: Stream,
    pub(crate) faults: Faults,
    pub(crate) budget: Option<Budget>,
    pub(crate) noise: NoiseSource,
    pub(crate) every: usize,
    pub(crate) after_split: bool,
    pub(crate) accountant: Option<Box<dyn Accountant>>,
    /// Of what clients released themselves only: that is what the server sees.
    pub(crate) of_clients: Option<Box<dyn Accountant>>,
    pub(crate) observed: ExposureTracker,
    pub(crate) own: Vec<PrivacyEvent>,
    pub(crate) clients: BTreeMap<ClientId, Vec<PrivacyEvent>>,
    pub(crate) chain: [u8; 32],
    pub(crate) totals: Totals,
    pub(crate) steps: usize,
    /// May there be more rounds later?
    pub(crate) grows: bool,
    pub(crate) step: Step,
    /// Has the budget ended the rounds?
    pub(crate) ended: bool,
    /// What the last round left without a measurement.
    pub(crate) unevaluated: Vec<PendingEvaluation>,
    pub(crate) resumed: Option<ResumePoint>,
    /// Whose answers the user knows to be left out, by what they are about.
    pub(crate) told: BTreeMap<String, BTreeSet<ClientId>>,
}

impl<'h> Server<'h> {
    /// What all that happens on purpose is drawn from.
    pub(crate) fn faults_stream(&self) -> Stream {
        self.root.child("faults", 0)
    }

    // ---- what there is

    /// Is there anything in this slot?
    pub fn has(&self, slot: &str) -> bool {
        self.store.has(slot)
    }

    /// For whom there is something in this slot, such as `sign-flip for clients 0-1`.
    pub fn who(&self, slot: &str) -> Vec<String> {
        self.store.parts().who(slot)
    }

    /// What models are to learn.
    pub fn task(&self) -> &Task {
        self.store.task()
    }

    /// Every client that takes part, ascending: those that have examples, or all if an accountant
    /// works.
    pub fn everyone(&self) -> Cohort {
        Cohort::everyone(self.host.roster().iter().map(|(id, _)| *id).collect())
    }

    /// Every client that has `at_least` examples, ascending. No protocol learns how many
    /// each has. If an accountant works these are all clients: who takes part is public, and must
    /// not follow from how many examples a client has.
    pub fn with_examples(&self, at_least: usize) -> Cohort {
        if self.accountant.is_some() {
            return self.everyone();
        }
        let few = self.host.roster().iter().filter(|(_, n)| *n < at_least);
        let few: BTreeSet<ClientId> = few.map(|(id, _)| *id).collect();
        self.everyone().retain(|id| !few.contains(&id))
    }

    /// The positions in `pool` that the selector in `slot` picks, ascending; `None` if the slot is empty.
    ///
    /// # Errors
    /// When it cannot judge the pool, or picks what is not there.
    pub fn select<P: Pool + ?Sized>(
        &mut self,
        slot: &SelectorSlot<P>,
        round: &Round,
        pool: &P,
    ) -> Result<Option<Vec<usize>>> {
        if !self.store.has(slot) {
            return Ok(None);
        }
        let round = self.round_of(slot, round);
        let selector = self.store.get::<BoxedSelector<P>>(slot)?;
        let picked = selector.select(&round, pool)?;
        self.forward_log(slot, &round)?;
        let sound = picked.is_sorted_by(|a, b| a < b);
        ensure!(
            sound,
            "parts.{} picked positions that are not ascending and different",
            slot.name()
        );
        Ok(Some(picked))
    }

    /// The round as the selector in `slot` sees it: no two choices share their randomness.
    pub(crate) fn round_of(&mut self, slot: &str, round: &Round) -> Round {
        let times = self.step.again(format!("choice {slot}"));
        round.with_stream(round.stream.child(slot, times))
    }

    /// Passes on what a part has said.
    pub(crate) fn forward_log(&mut self, slot: &str, round: &Round) -> Result<()> {
        // what parts say at the server may be of what no one else is to see
        let withheld = self.accountant.is_some();
        for said in round.said().into_iter().filter(|_| !withheld) {
            match said {
                LogEvent::Note(text) => self.warn(&format!("{}: parts.{slot}: {text}", round.name)),
                LogEvent::Number(name, value) => {
                    self.record(round, &format!("{slot}.{name}"), value)?;
                }
            }
        }
        Ok(())
    }

    /// The public data.
    ///
    /// # Errors
    /// When the spec has none.
    pub fn public(&self) -> Result<Arc<Public>> {
        self.host
            .public()
            .cloned()
            .context("this protocol needs public data; add `data.public` to the spec")
    }

    /// All public samples, by position.
    ///
    /// # Errors
    /// When the spec has none.
    pub fn public_ids(&self) -> Result<Ids> {
        Ok(Ids((0..self.public()?.samples().len() as u32).collect()))
    }

    /// The server's lasting model for this slot, made on first use.
    ///
    /// # Errors
    /// When the slot's part cannot be made.
    pub fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        Ok(self.store.get::<Box<dyn Trainer>>(slot)?.as_mut())
    }

    /// The server's generator in this slot, made on first use.
    ///
    /// # Errors
    /// When the slot's part cannot be made.
    pub fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        Ok(self.store.get::<Box<dyn Generator>>(slot)?.as_mut())
    }

    /// The server's model as one with parameters.
    ///
    /// # Errors
    /// When it has none.
    pub fn parametric(&mut self, slot: &str) -> Result<&mut dyn Parametric> {
        parametric(self.model(slot)?, slot)
    }

    /// Trains the server's model in `slot` on these samples.
    ///
    /// # Errors
    /// When training fails, see [`Trainer::fit`].
    pub fn fit(
        &mut self,
        slot: &str,
        stream: &Stream,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
    ) -> Result<()> {
        self.model(slot)?
            .fit(x, target, pass, &stream.child(slot, 0))
            .map(|_| ())
    }

    /// Trains the server's model in `slot` on labelled examples.
    ///
    /// # Errors
    /// As [`Server::fit`].
    pub fn fit_examples(
        &mut self,
        slot: &str,
        stream: &Stream,
        examples: &Examples,
        pass: &FitOptions<'_>,
    ) -> Result<()> {
        fit_examples(self.model(slot)?, examples, pass, &stream.child(slot, 0)).map(|_| ())
    }
}
