//! What a [`Server`](crate::Server) asks of the run: the one way from a protocol to its host.
//!
//! A run in this process answers itself ([`RunState`](crate::RunState)). In a library the calls go
//! to the program. Messages have no Rust types here, so both ways are the same.
#![expect(missing_docs, reason = "`Server` says what each does")]

use crate::message::{AnyMessage, Erased, MessageType, Params};
use crate::slot_calls::SlotCalls;
use crate::{
    AnyInbox, AnyPool, ClientId, ClientMessage, Cohort, ExchangeSpec, FitReport, Protocol, Result,
    Round, Samples, SharedExecutor, Trainer,
};
use anyhow::bail;

/// The message to each client.
pub type Down<'a, 'd> = &'a (dyn Fn(ClientId) -> &'d (dyn AnyMessage + 'static) + Sync);

/// Takes one answer and its digest.
pub type Sink<'a> = &'a mut dyn FnMut(ClientMessage<Erased>, [u8; 32]) -> Result<()>;

/// Takes one answer, or makes another of it.
pub type Form<'a, T> = &'a mut dyn FnMut(ClientMessage<Erased>) -> Result<T>;

/// Reads models that clients sent.
pub type ModelReader = Box<dyn Fn(ClientId, &[u8]) -> Result<Box<dyn Trainer>>>;

/// How a step begins.
pub enum StepStart {
    /// It is not done.
    Skipped,
    /// It was done before the run stopped: the protocol's state after it.
    Restored(Vec<u8>),
    /// To be run. `undoable`: its state may have to be restored.
    Attempt { round: Round, undoable: bool },
}

/// What follows from the end of an attempt.
pub enum StepVerdict {
    /// The step is complete.
    Done,
    /// The protocol's state is to be that of before, and the step is complete.
    Undone,
    /// The protocol's state is to be that of before, and there is another attempt.
    Again { round: Round, undoable: bool },
}

/// See [`Server`](crate::Server) for what each does, here and in the traits below.
pub trait ServerCalls: SlotCalls + Exchanges + Releases + Steps + Results {
    fn who(&self, slot: &str) -> Vec<String>;
    fn everyone(&self) -> Cohort;
    fn with_examples(&self, at_least: usize) -> Cohort;
    fn executor(&self) -> SharedExecutor;
    /// What the protocol declares of this exchange.
    fn exchange(&self, label: &str) -> Result<&ExchangeSpec>;
    /// What the aggregator of this exchange combines.
    fn aggregated(&mut self, label: &str) -> Result<&'static MessageType>;
    /// The model in this slot has trained.
    fn trained(&mut self, _slot: &str, _fitted: &FitReport) {}
    fn reader(&self, slot: &str) -> ModelReader;
    fn select(
        &mut self,
        slot: &str,
        round: &Round,
        pool: AnyPool<'_>,
    ) -> Result<Option<Vec<usize>>>;
    /// With `model` the exchange is the one in which a selector may ask for its loss.
    fn cohort(
        &mut self,
        round: &Round,
        label: &str,
        model: Option<&(dyn AnyMessage + 'static)>,
    ) -> Result<Cohort>;
    /// The number of rounds, if the protocol declares it.
    fn declared_rounds(&self) -> Option<usize>;
}

/// Sends requests, and combines the answers.
pub trait Exchanges {
    fn collect(
        &mut self,
        round: &Round,
        label: &str,
        to: &[ClientId],
        down: Down<'_, '_>,
        each: Form<'_, ()>,
    ) -> Result<()>;
    fn run(
        &mut self,
        round: &Round,
        label: &str,
        cohort: &Cohort,
        down: Down<'_, '_>,
        form: Option<Form<'_, ClientMessage<Erased>>>,
    ) -> Result<Erased>;
    fn aggregate(&mut self, slot: &str, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased>;
}

/// Releases, and their price.
pub trait Releases {
    /// Of the result of the exchange with this label.
    fn release(
        &mut self,
        label: &str,
        round: &Round,
        message: &mut dyn AnyMessage,
        cohort: &Cohort,
        clip: bool,
    ) -> Result<()>;
    fn clip(&mut self, slot: &str, message: &mut dyn AnyMessage) -> Result<()>;
    fn affords(&mut self, slot: &str, message: &dyn AnyMessage, cohort: &Cohort) -> Result<()>;
    fn wants_range(&self, slot: &str, of: &'static MessageType) -> Result<bool>;
}

/// Begins and ends steps.
pub trait Steps {
    /// The step `name` is to begin; number 0 is one that is done once, with this stream's name.
    fn begin_step(&mut self, name: &str, number: usize, of: usize) -> Result<StepStart>;
    fn judge_step(&mut self, outcome: Result<()>) -> Result<StepVerdict>;
    fn finish_step(&mut self, state: &dyn Fn() -> Result<Vec<u8>>) -> Result<()>;
    /// A stage of the run is to begin ([`crate::Stages`]). Returns whether it takes place.
    fn begin_stage(&mut self, _stage: usize, _protocol: &dyn Protocol) -> Result<bool> {
        bail!("only the program itself leads a run of stages")
    }
}

/// Measures and keeps results.
pub trait Results {
    fn evaluate(&mut self, round: &Round, slot: &str) -> Result<()>;
    /// With the parameters that the server shares, if any; `of` these clients, if not of all.
    fn evaluate_clients(
        &mut self,
        round: &Round,
        slot: &str,
        shared: Option<&Params>,
        of: Option<&[ClientId]>,
    ) -> Result<()>;
    fn evaluate_for_clients(
        &mut self,
        round: &Round,
        slot: &str,
        models: &[Params],
        whose: &[usize],
    ) -> Result<Vec<f64>>;
    fn record(&mut self, round: &Round, name: &str, value: f64) -> Result<()>;
    fn record_each(&mut self, round: &Round, name: &str, each: Vec<f64>) -> Result<()>;
    fn keep_model(&mut self, slot: &str, name: &str) -> Result<()>;
    fn keep_generator(&mut self, slot: &str) -> Result<()>;
    fn keep_images(&mut self, name: &str, images: &Samples) -> Result<()>;
    fn keep_clients(&mut self, slot: &str, of: Option<&[ClientId]>) -> Result<()>;
    fn warn(&mut self, text: &str);
}
