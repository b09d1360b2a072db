//! A run answers the calls of a protocol in this process.

use crate::message::{AnyMessage, MessageType};
use crate::server::RunState;
use crate::server::calls::{ModelReader, Results, ServerCalls};
use crate::slot_calls::SlotCalls;
use crate::{
    AnyAggregator, AnyPool, AnySelector, ClientId, Cohort, ExchangeSpec, FitReport, Generator,
    LogEvent, Public, Result, Robustness, Round, SharedExecutor, Stream, Task, Trainer,
};
use anyhow::ensure;
use std::collections::BTreeSet;
use std::sync::Arc;

impl RunState<'_> {
    /// What all that happens on purpose is drawn from.
    pub(crate) fn faults_stream(&self) -> Stream {
        self.root.child("faults", 0)
    }

    /// The round as the selector in `slot` sees it: no two choices share their randomness.
    pub(crate) fn round_of(&mut self, slot: &str, round: &Round) -> Round {
        let times = self.step.again(format!("choice {slot}"));
        round.with_stream(round.stream.child(slot, times))
    }

    /// Passes on a part's log events. It says a note once in a run, for the first step.
    pub(crate) fn forward_log(&mut self, slot: &str, round: &Round) -> Result<()> {
        // what parts say at the server may be of what no one else is to see
        let withheld = self.ledger.accounts();
        for said in round.take_log().into_iter().filter(|_| !withheld) {
            match said {
                LogEvent::Note(text) => self.warn_once(slot, round, &text),
                LogEvent::Number(name, value) => {
                    self.record_number(round, &format!("{slot}.{name}"), value)?;
                }
            }
        }
        Ok(())
    }
    /// Warns of something about the part in `slot`, once in a run.
    pub(crate) fn warn_once(&mut self, slot: &str, round: &Round, text: &str) {
        let note = format!("parts.{slot}: {text}");
        self.warn_first(note.clone(), &format!("{}: {note}", round.name));
    }

    /// Warns for the first `reason` of this name in a run.
    pub(crate) fn warn_first(&mut self, reason: String, text: &str) {
        if self.told.entry(reason).or_default().insert(0) {
            self.warn(text);
        }
    }

    /// Warns once in a run that the aggregator in `slot` got too few answers for its promise. With
    /// an accountant the number of answers is not for all to see.
    pub(crate) fn warn_of_few(
        &mut self,
        slot: &str,
        round: &Round,
        (robust, answers): (Option<Robustness>, usize),
    ) {
        let few = robust.and_then(|robust| robust.shortfall(answers));
        if let Some(few) = few.filter(|_| !self.ledger.accounts()) {
            let text = format!("{}: parts.{slot}: {few}", round.name);
            self.warn_first(format!("parts.{slot}: too few answers"), &text);
        }
    }
}

impl SlotCalls for RunState<'_> {
    fn has(&self, slot: &str) -> bool {
        self.store.has(slot)
    }
    fn task(&self) -> &Task {
        self.store.task()
    }
    fn public(&self) -> Result<Option<Arc<Public>>> {
        Ok(self.host.public().cloned())
    }
    fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        Ok(self.store.get::<Box<dyn Trainer>>(slot)?.as_mut())
    }
    fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        Ok(self.store.get::<Box<dyn Generator>>(slot)?.as_mut())
    }
}

impl ServerCalls for RunState<'_> {
    fn trained(&mut self, slot: &str, fitted: &FitReport) {
        let all = self.step.trained.entry(slot.into()).or_default();
        all.add(fitted);
    }
    fn who(&self, slot: &str) -> Vec<String> {
        self.store.parts().who(&self.store.slot(slot))
    }
    fn everyone(&self) -> Cohort {
        Cohort::everyone(self.host.roster().iter().map(|(id, _)| *id).collect())
    }
    fn with_examples(&self, at_least: usize) -> Cohort {
        if self.ledger.accounts() {
            return self.everyone();
        }
        let few = self.host.roster().iter().filter(|(_, n)| *n < at_least);
        let few: BTreeSet<ClientId> = few.map(|(id, _)| *id).collect();
        self.everyone().retain(|id| !few.contains(&id))
    }
    fn executor(&self) -> SharedExecutor {
        self.host.executor()
    }
    fn exchange(&self, label: &str) -> Result<&ExchangeSpec> {
        self.ledger.exposure.exchange(label)
    }
    fn aggregated(&mut self, label: &str) -> Result<&'static MessageType> {
        let slot = self.exchange(label)?.aggregated_in()?;
        Ok(self.store.get::<Box<dyn AnyAggregator>>(slot)?.input())
    }
    fn reader(&self, slot: &str) -> ModelReader {
        self.model_reader(slot)
    }
    fn select(
        &mut self,
        slot: &str,
        round: &Round,
        pool: AnyPool<'_>,
    ) -> Result<Option<Vec<usize>>> {
        if !self.store.has(slot) {
            return Ok(None);
        }
        let round = self.round_of(slot, round);
        let selector = self.store.get::<Box<dyn AnySelector>>(slot)?;
        let picked = selector.select(&round, pool)?;
        self.forward_log(slot, &round)?;
        ensure!(
            picked.is_sorted_by(|a, b| a < b),
            "parts.{slot} picked positions that are not ascending and different"
        );
        Ok(Some(picked))
    }
    fn cohort(
        &mut self,
        round: &Round,
        label: &str,
        model: Option<&(dyn AnyMessage + 'static)>,
    ) -> Result<Cohort> {
        let spec = self.ledger.exposure.exchange(label)?;
        let slot = if model.is_some() {
            spec.requested_by
        } else {
            spec.cohort
        };
        let Some(slot) = slot.filter(|slot| self.has(slot)) else {
            return Ok(self.everyone());
        };
        if let Some(drawn) = self.step.cohorts.get(slot) {
            return Ok(drawn.clone());
        }
        let drawn = self.choose(slot, round, model.map(|model| (label, model)))?;
        self.step.cohorts.insert(slot, drawn.clone());
        Ok(drawn)
    }
    fn declared_rounds(&self) -> Option<usize> {
        self.rounds
    }
}
