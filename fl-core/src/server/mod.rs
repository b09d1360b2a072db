//! [`Server`]: the interface through which a protocol sends requests, aggregates, releases and
//! evaluates.

pub(crate) mod cohort;
mod collect;
mod collector;
mod evaluate;
mod release;
mod state;
mod steps;

pub use state::RunState;

use crate::exchange::faults::Faults;
use crate::host::{Host, Totals};
use crate::ledger::RunLedger;
use crate::privacy::NoiseSource;
use crate::server::steps::{PendingEvaluation, ResumePoint, Step};
use crate::store::Store;
use crate::{
    BoxedSelector, ClientId, Cohort, Examples, FitOptions, Generator, LogEvent, Parametric, Pool,
    Public, Result, Round, Samples, SelectorSlot, Stream, Target, Task, Trainer, fit_examples,
    parametric,
};
use anyhow::{Context, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A protocol's interface to a run, at the server.
pub struct Server<'h> {
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
    /// Whether the run may get more rounds later.
    pub(crate) grows: bool,
    pub(crate) step: Step,
    /// Whether the budget has ended the rounds.
    pub(crate) ended: bool,
    /// Measurements that the last round skipped.
    pub(crate) unevaluated: Vec<PendingEvaluation>,
    pub(crate) resumed: Option<ResumePoint>,
    /// The clients whose unusable answers the user was warned of, by kind of answer.
    pub(crate) told: BTreeMap<String, BTreeSet<ClientId>>,
}

impl<'h> Server<'h> {
    /// Returns the stream that all injected faults are drawn from.
    pub(crate) fn faults_stream(&self) -> Stream {
        self.root.child("faults", 0)
    }

    // ---- slots, clients and data

    /// Returns whether this slot is filled.
    pub fn has(&self, slot: &str) -> bool {
        self.store.has(slot)
    }

    /// Returns the clients that have a part in this slot, such as `sign-flip for clients 0-1`.
    pub fn who(&self, slot: &str) -> Vec<String> {
        self.store.parts().who(slot)
    }

    /// Returns the task that models learn.
    pub fn task(&self) -> &Task {
        self.store.task()
    }

    /// Returns every client that takes part, ascending: those with examples, or all clients if the
    /// run has an accountant.
    pub fn everyone(&self) -> Cohort {
        Cohort::everyone(self.host.roster().iter().map(|(id, _)| *id).collect())
    }

    /// Returns every client with `at_least` examples, ascending. No protocol learns how many each
    /// client has. With an accountant it returns all clients: the list of participants is public,
    /// so it must not depend on the number of a client's examples.
    pub fn with_examples(&self, at_least: usize) -> Cohort {
        if self.ledger.accounts() {
            return self.everyone();
        }
        let few = self.host.roster().iter().filter(|(_, n)| *n < at_least);
        let few: BTreeSet<ClientId> = few.map(|(id, _)| *id).collect();
        self.everyone().retain(|id| !few.contains(&id))
    }

    /// Returns the positions in `pool` that the selector in `slot` picks, ascending; `None` if the
    /// slot is empty.
    ///
    /// # Errors
    /// If the selector cannot judge the pool, or picks a position outside it.
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

    /// Returns the round for the selector in `slot`, with a stream that no other selection shares.
    pub(crate) fn round_of(&mut self, slot: &str, round: &Round) -> Round {
        let times = self.step.again(format!("choice {slot}"));
        round.with_stream(round.stream.child(slot, times))
    }

    /// Forwards the log events of a part.
    pub(crate) fn forward_log(&mut self, slot: &str, round: &Round) -> Result<()> {
        // notes of parts at the server may depend on data that no other observer may see
        let withheld = self.ledger.accounts();
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

    /// Returns the public data.
    ///
    /// # Errors
    /// If the spec has none.
    pub fn public(&self) -> Result<Arc<Public>> {
        self.host
            .public()
            .cloned()
            .context("this protocol needs public data; add `data.public` to the spec")
    }

    /// Returns the server's lasting model in this slot, made on first use.
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        Ok(self.store.get::<Box<dyn Trainer>>(slot)?.as_mut())
    }

    /// Returns the server's generator in this slot, made on first use.
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        Ok(self.store.get::<Box<dyn Generator>>(slot)?.as_mut())
    }

    /// Returns the server's model as one with parameters.
    ///
    /// # Errors
    /// If it has none.
    pub fn parametric(&mut self, slot: &str) -> Result<&mut dyn Parametric> {
        parametric(self.model(slot)?, slot)
    }

    /// Trains the server's model in `slot` on these samples.
    ///
    /// # Errors
    /// If training fails, see [`Trainer::fit`].
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
