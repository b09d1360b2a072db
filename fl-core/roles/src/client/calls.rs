//! What a [`Client`](crate::Client) asks of its host: the one way from a protocol's answer to the
//! client's data and parts.
#![expect(missing_docs, reason = "`Client` says what each does")]

use crate::message::{self, AnyMessage, Erased, Ids};
use crate::slot_calls::SlotCalls;
use crate::{
    AnyInbox, AnyMechanism, AnySelector, ClientId, Examples, LogEvent, Result, Round, Stream,
    Trainer,
};
use anyhow::Context;

/// See [`Client`](crate::Client) for what each does.
pub trait ClientCalls: SlotCalls + Send {
    fn id(&self) -> ClientId;
    fn own(&self) -> &Examples;
    fn held_out(&self) -> Result<Examples>;
    /// The stream of the request.
    fn now(&self) -> &Stream;
    /// The number of the step that asks.
    fn round_number(&self) -> usize;
    fn draw_private(&mut self, slot: &str) -> Result<()>;
    fn note(&mut self, text: String);
    fn measure(&mut self, name: &str, value: f64);
    fn forward_log(&mut self, slot: &str, round: &Round) {
        for said in round.take_log() {
            match said {
                LogEvent::Note(text) => self.note(format!("parts.{slot}: {text}")),
                LogEvent::Number(name, value) => self.measure(&format!("{slot}.{name}"), value),
            }
        }
    }
    fn new_model(&self, slot: &str, index: u64) -> Result<Box<dyn Trainer>>;
    fn set_model(&mut self, slot: &str, model: Box<dyn Trainer>);
    /// Does the exchange that it answers take place only once?
    fn answers_once(&self) -> bool {
        false
    }
    /// It has trained for its answer, with this mean loss.
    fn fitted(&mut self, loss: Option<f64>);
    fn aggregate(&mut self, slot: &str, round: Round, inbox: &dyn AnyInbox) -> Result<Erased>;
    fn take_selector(&mut self, slot: &str) -> Result<Box<dyn AnySelector>>;
    fn put_selector(&mut self, slot: &str, selector: Box<dyn AnySelector>);
    fn stash(&mut self, name: &str, bytes: Vec<u8>);
    fn stashed(&self, name: &str) -> Result<Option<Vec<u8>>>;
    fn unstash(&mut self, name: &str) -> Result<Option<Vec<u8>>>;
    fn cache(&mut self, name: &str, message: &dyn AnyMessage);
    fn cached(&mut self, name: &str) -> Result<Option<Vec<u8>>>;
    fn range(&mut self, slot: &str, message: &dyn AnyMessage) -> Result<Option<f32>>;
    fn clip(&mut self, slot: &str, message: &mut dyn AnyMessage, agreed: Option<f32>)
    -> Result<()>;
    fn release(&mut self, slot: &str, message: &mut dyn AnyMessage) -> Result<()>;
    /// The mechanism of a training whose steps are released, and how many there are.
    fn begin_steps(
        &mut self,
        slot: &str,
        like: &mut dyn AnyMessage,
    ) -> Result<(Box<dyn AnyMechanism>, usize)>;
    /// The positions of the examples of step `at`.
    fn draw_lot(&mut self, at: usize) -> Result<Vec<usize>>;
    fn release_step(
        &mut self,
        at: usize,
        seen: &mut dyn AnyMessage,
        mechanism: &mut dyn AnyMechanism,
    ) -> Result<()>;
    fn end_steps(&mut self, slot: &str, mechanism: Box<dyn AnyMechanism>);
}

/// See [`Client::private`](crate::Client::private).
pub fn private(client: &dyn ClientCalls, slot: &str) -> Result<Examples> {
    if !client.has(slot) {
        return Ok(client.own().clone());
    }
    let drawn = client.stashed(super::PRIVATE)?;
    let drawn =
        drawn.with_context(|| format!("it has drawn no private sample through parts.{slot}"))?;
    let Ids(drawn) = message::decode(&drawn)?;
    let drawn: Vec<usize> = drawn.into_iter().map(|at| at as usize).collect();
    Ok(client.own().pick(&drawn))
}
