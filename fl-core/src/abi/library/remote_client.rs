//! [`RemoteClient`]: the client of a loaded protocol.

use super::link::{Link, LinkedPart, read};
use super::remote_parts::{RemoteSlots, held_model};
use crate::abi::ask::{AnswerText, Ask};
use crate::abi::marshal::content;
use crate::abi::marshal_data::{ExamplesAsk, bytes_named, examples_of};
use crate::abi::roles::mechanism::RemoteMechanism;
use crate::abi::roles::selector::RemoteSelector;
use crate::client::calls::ClientCalls;
use crate::message::{AnyMessage, Erased, TensorMap};
use crate::{
    AnyInbox, AnyMechanism, AnySelector, ClientId, Examples, Generator, Inputs, Labels, Public,
    Result, Round, Stream, Task, Trainer,
};
use anyhow::anyhow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError};

/// The client in the program, for a loaded protocol.
pub(super) struct RemoteClient {
    slots: RemoteSlots,
    id: ClientId,
    now: Stream,
    facts: Arc<AnswerText>,
    own: OnceLock<Examples>,
    /// The selectors that are out of their slots.
    selectors: BTreeMap<String, u64>,
    /// The mechanism that releases the steps of the current training.
    mechanism: u64,
}

impl RemoteClient {
    pub fn new(link: &Arc<Link>, id: ClientId, now: Stream, facts: &Arc<AnswerText>) -> Self {
        Self {
            slots: RemoteSlots::new(link),
            id,
            now,
            facts: facts.clone(),
            own: OnceLock::new(),
            selectors: BTreeMap::new(),
            mechanism: 0,
        }
    }

    fn done(&self, ask: &Ask) {
        self.slots.keep(self.slots.ask(ask, &[]));
    }

    fn fetch_own(&self) -> Result<Examples> {
        let answer = self.slots.ask(&Ask::Own, &[])?;
        let ask: ExamplesAsk = read(&answer)?;
        let mut parcel = TensorMap::new(answer.tensors);
        examples_of(&*self.slots.link, &ask, &mut parcel)
    }
}

impl ClientCalls for RemoteClient {
    fn id(&self) -> ClientId {
        self.id
    }
    fn own(&self) -> &Examples {
        self.own.get_or_init(|| {
            let own = self.slots.keep(self.fetch_own());
            // the error that is kept ends the answer
            let nothing = || {
                let (shape, data) = (self.facts.task.input.clone(), Vec::new());
                let (of, classes) = (Vec::new(), self.facts.task.kind.classes());
                let labels = Labels::Classes { of, classes };
                Examples::all(Arc::new(Inputs::Dense { shape, data }), Arc::new(labels))
            };
            own.unwrap_or_else(|| nothing().expect("no labels for no rows"))
        })
    }
    fn task(&self) -> &Task {
        &self.facts.task
    }
    fn now(&self) -> &Stream {
        &self.now
    }
    fn public(&self) -> Result<Option<Arc<Public>>> {
        self.slots.public().map(Some)
    }
    fn has(&self, slot: &str) -> bool {
        self.facts.filled.contains(slot)
    }
    fn draw_private(&mut self, slot: &str) -> Result<()> {
        let slot = slot.to_string();
        self.slots.ask(&Ask::DrawPrivate { slot }, &[]).map(drop)
    }
    fn note(&mut self, text: String) {
        self.done(&Ask::Note { text });
    }
    fn measure(&mut self, name: &str, value: f64) {
        let (name, value) = (name.into(), value.is_finite().then_some(value));
        self.done(&Ask::Measure { name, value });
    }
    fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        self.slots.model(slot)
    }
    fn new_model(&self, slot: &str, index: u64) -> Result<Box<dyn Trainer>> {
        let slot = slot.to_string();
        let held = self.slots.json(&Ask::NewModel { slot, index }, &[])?;
        held_model(&self.slots.link, held)
    }
    fn set_model(&mut self, slot: &str, model: Box<dyn Trainer>) {
        let place = std::ptr::from_ref(&*model).cast::<()>().addr();
        let models = self.slots.link.models.lock();
        let held = models
            .unwrap_or_else(PoisonError::into_inner)
            .get(&place)
            .copied();
        let slot = slot.to_string();
        match held {
            Some(model) => self.done(&Ask::SetModel { slot, model }),
            None => {
                let why = anyhow!("`set_model` was given another model than `new_model` gave");
                self.slots.keep::<()>(Err(why));
            }
        }
    }
    fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        self.slots.generator(slot)
    }
    fn fitted(&mut self, loss: Option<f64>) {
        self.done(&Ask::Fitted { loss });
    }
    fn aggregate(&mut self, slot: &str, round: Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        self.slots.aggregate(slot, &round, inbox)
    }
    fn take_selector(&mut self, slot: &str) -> Result<Box<dyn AnySelector>> {
        let ask = Ask::TakeSelector { slot: slot.into() };
        let (held, pool): (u64, String) = self.slots.json(&ask, &[])?;
        self.selectors.insert(slot.into(), held);
        let selector = LinkedPart::new(&self.slots.link, held);
        Ok(Box::new(RemoteSelector::new(selector, &pool)?))
    }
    fn put_selector(&mut self, slot: &str, _: Box<dyn AnySelector>) {
        let selector = self.selectors.remove(slot).unwrap_or_default();
        let slot = slot.into();
        self.done(&Ask::PutSelector { slot, selector });
    }
    fn stash(&mut self, name: &str, bytes: Vec<u8>) {
        let name = name.to_string();
        let kept = bytes_named("kept", &bytes);
        let kept = self.slots.ask(&Ask::Stash { name }, &[kept]);
        self.slots.keep(kept);
    }
    fn stashed(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let name = name.to_string();
        self.slots.bytes(&Ask::Stashed { name }, "kept")
    }
    fn unstash(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        let name = name.to_string();
        self.slots.bytes(&Ask::Unstash { name }, "kept")
    }
    fn cache(&mut self, name: &str, message: &dyn AnyMessage) {
        let (name, kind) = (name.into(), message.kind().into());
        let sent = [content(message)];
        let kept = self.slots.ask(&Ask::Cache { name, kind }, &sent);
        self.slots.keep(kept);
    }
    fn cached(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        let name = name.to_string();
        self.slots.bytes(&Ask::Cached { name }, "kept")
    }
    fn range(&mut self, slot: &str, message: &dyn AnyMessage) -> Result<Option<f32>> {
        let (slot, kind) = (slot.into(), message.kind().into());
        let sent = [content(message)];
        self.slots.json(&Ask::Range { slot, kind }, &sent)
    }
    fn clip(
        &mut self,
        slot: &str,
        message: &mut dyn AnyMessage,
        agreed: Option<f32>,
    ) -> Result<()> {
        let ask = Ask::Clip {
            slot: slot.into(),
            kind: message.kind().into(),
            agreed: agreed.map(f64::from),
        };
        self.slots.change(&ask, message)
    }
    fn release(&mut self, slot: &str, message: &mut dyn AnyMessage) -> Result<()> {
        let (slot, kind) = (slot.into(), message.kind().into());
        self.slots.change(&Ask::ReleaseHere { slot, kind }, message)
    }
    fn begin_steps(
        &mut self,
        slot: &str,
        like: &mut dyn AnyMessage,
    ) -> Result<(Box<dyn AnyMechanism>, usize)> {
        let (slot, kind) = (slot.into(), like.kind().into());
        let ask = Ask::BeginSteps { slot, kind };
        let (held, steps): (u64, usize) = self.slots.json(&ask, &[content(like)])?;
        self.mechanism = held;
        let mechanism = RemoteMechanism {
            remote: LinkedPart::new(&self.slots.link, held),
            on: like.message_type(),
        };
        Ok((Box::new(mechanism), steps))
    }
    fn draw_lot(&mut self, at: usize) -> Result<Vec<usize>> {
        self.slots.json(&Ask::DrawLot { at }, &[])
    }
    fn release_step(
        &mut self,
        at: usize,
        seen: &mut dyn AnyMessage,
        _: &mut dyn AnyMechanism,
    ) -> Result<()> {
        let (mechanism, kind) = (self.mechanism, seen.kind().into());
        let ask = Ask::ReleaseStep {
            at,
            mechanism,
            kind,
        };
        self.slots.change(&ask, seen)
    }
    fn end_steps(&mut self, slot: &str, _: Box<dyn AnyMechanism>) {
        let (slot, mechanism) = (slot.into(), self.mechanism);
        self.done(&Ask::EndSteps { slot, mechanism });
    }
}
