//! A run answers the calls of a protocol in this process.

use crate::message::{AnyMessage, Erased, MessageType, Params};
use crate::server::RunState;
use crate::server::calls::{Down, Form, ModelReader, ServerCalls, StepStart, StepVerdict};
use crate::{
    AnyAggregator, AnyInbox, AnyPool, AnySelector, ClientId, ClientMessage, Cohort, Generator,
    LogEvent, Public, Result, Round, Samples, SharedExecutor, Stream, Task, Trainer,
};
use anyhow::{Context, ensure};
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

    /// Passes on a part's log events.
    pub(crate) fn forward_log(&mut self, slot: &str, round: &Round) -> Result<()> {
        // what parts say at the server may be of what no one else is to see
        let withheld = self.ledger.accounts();
        for said in round.take_log().into_iter().filter(|_| !withheld) {
            match said {
                LogEvent::Note(text) => self.warn(&format!("{}: parts.{slot}: {text}", round.name)),
                LogEvent::Number(name, value) => {
                    self.record(round, &format!("{slot}.{name}"), value)?;
                }
            }
        }
        Ok(())
    }
}

impl ServerCalls for RunState<'_> {
    fn has(&self, slot: &str) -> bool {
        self.store.has(slot)
    }
    fn who(&self, slot: &str) -> Vec<String> {
        self.store.parts().who(slot)
    }
    fn task(&self) -> &Task {
        self.store.task()
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
    fn aggregated(&mut self, label: &str) -> Result<&'static MessageType> {
        let spec = self.ledger.exposure.exchange(label)?;
        let used = spec.aggregator;
        let used = used.with_context(|| format!("exchange `{label}` declares no aggregator"))?;
        Ok(self.store.get::<Box<dyn AnyAggregator>>(used.slot)?.input())
    }
    fn public(&self) -> Result<Arc<Public>> {
        self.host
            .public()
            .cloned()
            .context("this protocol needs public data; add `data.public` to the spec")
    }
    fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        Ok(self.store.get::<Box<dyn Trainer>>(slot)?.as_mut())
    }
    fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        Ok(self.store.get::<Box<dyn Generator>>(slot)?.as_mut())
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
        slot: &str,
        round: &Round,
        loss: Option<(&str, &(dyn AnyMessage + 'static))>,
    ) -> Result<Cohort> {
        self.choose(slot, round, loss)
    }
    fn collect(
        &mut self,
        round: &Round,
        label: &str,
        to: &[ClientId],
        down: Down<'_, '_>,
        each: Form<'_, ()>,
    ) -> Result<()> {
        let spec = self.ledger.exposure.exchange(label)?.clone();
        let needs = self.needs(&spec)?;
        self.ask(round, &spec, to, down, needs, each)
    }
    fn run(
        &mut self,
        round: &Round,
        label: &str,
        cohort: &Cohort,
        down: Down<'_, '_>,
        form: Option<Form<'_, ClientMessage<Erased>>>,
    ) -> Result<Erased> {
        self.run_exchange(round, label, cohort, down, form)
    }
    fn aggregate(&mut self, slot: &str, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        self.aggregate_any(slot, round, inbox)
    }
    fn release(
        &mut self,
        slot: &str,
        round: &Round,
        message: &mut dyn AnyMessage,
        cohort: &Cohort,
        clip: bool,
    ) -> Result<()> {
        self.release_as(slot, round, message, cohort, clip)
    }
    fn clip(&mut self, slot: &str, message: &mut dyn AnyMessage) -> Result<()> {
        self.clip_any(slot, message)
    }
    fn affords(&mut self, slot: &str, message: &dyn AnyMessage, cohort: &Cohort) -> Result<()> {
        self.affords_any(slot, message, cohort)
    }
    fn wants_range(&self, slot: &str, of: &'static MessageType) -> Result<bool> {
        let context = self.store.context(slot, 0);
        self.store.parts().range_of(of, slot, &context)
    }
    fn begin_step(&mut self, name: &str, number: usize, of: usize) -> Result<StepStart> {
        Self::begin_step(self, name, number, of)
    }
    fn judge_step(&mut self, outcome: Result<()>) -> Result<StepVerdict> {
        Self::judge_step(self, outcome)
    }
    fn finish_step(&mut self, state: &dyn Fn() -> Result<Vec<u8>>) -> Result<()> {
        Self::finish_step(self, state)
    }
    fn evaluate(&mut self, round: &Round, slot: &str) -> Result<()> {
        Self::evaluate(self, round, slot)
    }
    fn evaluate_clients(&mut self, round: &Round, slot: &str) -> Result<()> {
        Self::evaluate_clients(self, round, slot)
    }
    fn evaluate_for_clients(
        &mut self,
        round: &Round,
        slot: &str,
        models: &[Params],
        whose: &[usize],
    ) -> Result<Vec<f64>> {
        Self::evaluate_for_clients(self, round, slot, models, whose)
    }
    fn record(&mut self, round: &Round, name: &str, value: f64) -> Result<()> {
        Self::record(self, round, name, value)
    }
    fn record_each(&mut self, round: &Round, name: &str, each: Vec<f64>) -> Result<()> {
        Self::record_each(self, round, name, each)
    }
    fn keep_model(&mut self, slot: &str, name: &str) -> Result<()> {
        self.keep_model_as(slot, name)
    }
    fn keep_generator(&mut self, slot: &str) -> Result<()> {
        Self::keep_generator(self, slot)
    }
    fn keep_images(&mut self, name: &str, images: &Samples) -> Result<()> {
        Self::keep_images(self, name, images)
    }
    fn keep_clients(&mut self, slot: &str) -> Result<()> {
        Self::keep_clients(self, slot)
    }
    fn warn(&mut self, text: &str) {
        Self::warn(self, text);
    }
}
