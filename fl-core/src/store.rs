//! The parts that fill one side's slots: made on first use, kept, written down and taken back.

use crate::{
    Accountant, AnyAggregator, AnyMechanism, AnySelector, BoxedPart, BuildContext, ClientId,
    Generator, Parts, Result, Role, Stream, Task, Trainer,
};
use anyhow::Context;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A part of any role, as it stands in a slot.
pub(crate) trait StorablePart: BoxedPart + Send {
    /// What it is.
    const ROLE: Role;

    /// What it keeps between two uses; empty: nothing.
    fn state(&self) -> Result<Vec<u8>>;

    /// Takes back what [`StorablePart::state`] gave.
    fn restore(&mut self, state: &[u8]) -> Result<()>;

    /// What outlasts the part in a slot that does not last; empty: nothing.
    fn memory(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Takes back what [`StorablePart::memory`] gave.
    fn recall(&mut self, memory: &[u8]) -> Result<()> {
        self.restore(memory)
    }
}

impl StorablePart for Box<dyn AnyAggregator> {
    const ROLE: Role = Role::Aggregator;
    fn state(&self) -> Result<Vec<u8>> {
        Ok(self.save())
    }
    fn restore(&mut self, state: &[u8]) -> Result<()> {
        self.load(state)
    }
}

impl StorablePart for Box<dyn AnySelector> {
    const ROLE: Role = Role::Selector;
    fn state(&self) -> Result<Vec<u8>> {
        Ok(self.save())
    }
    fn restore(&mut self, state: &[u8]) -> Result<()> {
        self.load(state)
    }
}

impl StorablePart for Box<dyn AnyMechanism> {
    const ROLE: Role = Role::Privacy;
    fn state(&self) -> Result<Vec<u8>> {
        Ok(self.save())
    }
    fn restore(&mut self, state: &[u8]) -> Result<()> {
        self.load(state)
    }
}

impl StorablePart for Box<dyn Trainer> {
    const ROLE: Role = Role::Trainer;
    fn state(&self) -> Result<Vec<u8>> {
        self.save_state()
    }
    fn restore(&mut self, state: &[u8]) -> Result<()> {
        self.load_state(state)
    }
    fn memory(&self) -> Result<Vec<u8>> {
        self.save_memory()
    }
    fn recall(&mut self, memory: &[u8]) -> Result<()> {
        self.load_memory(memory)
    }
}

impl StorablePart for Box<dyn Generator> {
    const ROLE: Role = Role::Generator;
    fn state(&self) -> Result<Vec<u8>> {
        self.save()
    }
    fn restore(&mut self, state: &[u8]) -> Result<()> {
        self.load(state)
    }
}

/// What an accountant knows is the ledger, which its side keeps: it is charged anew.
impl StorablePart for Box<dyn Accountant> {
    const ROLE: Role = Role::Accountant;
    fn state(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn restore(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// A part whose type only its slot knows.
struct StoredPart {
    part: Box<dyn Any + Send>,
    state: fn(&dyn Any) -> Result<Vec<u8>>,
    memory: fn(&dyn Any) -> Result<Vec<u8>>,
}

impl StoredPart {
    fn new<B: StorablePart>(part: B) -> Self {
        Self {
            part: Box::new(part),
            state: |part| match part.downcast_ref::<B>() {
                Some(part) => part.state(),
                None => Ok(Vec::new()),
            },
            memory: |part| match part.downcast_ref::<B>() {
                Some(part) => part.memory(),
                None => Ok(Vec::new()),
            },
        }
    }
}

/// What is written down of the parts of one side: a state for each slot that has one.
pub(crate) type States = BTreeMap<String, Vec<u8>>;

/// The parts of one side, the server's or a client's, by slot.
pub(crate) struct Store {
    parts: Arc<Parts>,
    /// Whose they are; `None` for the server.
    whose: Option<ClientId>,
    task: Task,
    home: Stream,
    held: BTreeMap<String, StoredPart>,
    /// States of parts that no call has used since they were taken back. A slot that does not
    /// last has its part's memory here.
    waiting: States,
}

impl Store {
    /// Without any part yet; `home` is the stream that each part's own comes from.
    pub fn new(parts: Arc<Parts>, whose: Option<ClientId>, task: Task, home: Stream) -> Self {
        Self {
            parts,
            whose,
            task,
            home,
            held: BTreeMap::new(),
            waiting: States::new(),
        }
    }

    /// What fills the slots of the run.
    pub fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }

    /// What models are to learn.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// Is there anything in this slot, for anybody?
    pub fn has(&self, slot: &str) -> bool {
        match self.whose {
            Some(client) => self.parts.has_for(slot, client),
            None => self.parts.has(slot),
        }
    }

    /// A new part for this slot, the `index`-th of its kind; it does not stay.
    pub fn make<B: StorablePart>(&self, slot: &str, index: u64) -> Result<B> {
        let context = self.context(slot, index);
        self.parts.build(B::ROLE, slot, self.whose, &context)
    }

    /// What the `index`-th part of this slot is made for.
    pub fn context(&self, slot: &str, index: u64) -> BuildContext {
        BuildContext {
            task: self.parts.task(slot, &self.task),
            stream: self.home.child(slot, index),
        }
    }

    /// The part in this slot, made on first use.
    pub fn get<B: StorablePart>(&mut self, slot: &str) -> Result<&mut B> {
        if !self.held.contains_key(slot) {
            let mut part: B = self.make(slot, 0)?;
            if let Some(state) = self.waiting.get(slot) {
                let taken = match self.lasts(slot) {
                    true => part.restore(state),
                    false => part.recall(state),
                };
                taken.with_context(|| format!("parts.{slot}: its saved state"))?;
                self.waiting.remove(slot);
            }
            self.held.insert(slot.into(), StoredPart::new(part));
        }
        let held = self.held.get_mut(slot).and_then(|h| h.part.downcast_mut());
        held.with_context(|| format!("parts.{slot} is used for messages of two kinds"))
    }

    /// Takes the part out of this slot, to use it beside the others; [`Store::put`] puts it back.
    pub fn take<B: StorablePart>(&mut self, slot: &str) -> Result<B> {
        self.get::<B>(slot)?;
        let held = self.held.remove(slot).map(|h| h.part.downcast());
        match held {
            Some(Ok(part)) => Ok(*part),
            _ => unreachable!("`get` has just looked at it"),
        }
    }

    /// Puts a part into this slot.
    pub fn put<B: StorablePart>(&mut self, slot: &str, part: B) {
        self.waiting.remove(slot);
        self.held.insert(slot.into(), StoredPart::new(part));
    }

    /// Does the part in this slot stay from one question to the next? At the server each does.
    fn lasts(&self, slot: &str) -> bool {
        self.whose.is_none() || self.parts.lasts(slot)
    }

    /// Forgets the parts of slots that do not last, but for their memories.
    pub fn forget(&mut self) -> Result<()> {
        let (stay, gone) = std::mem::take(&mut self.held)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(slot, _)| self.lasts(slot));
        self.held = stay;
        for (slot, held) in gone {
            let memory = (held.memory)(held.part.as_ref())
                .with_context(|| format!("parts.{slot}: what it remembers"))?;
            if !memory.is_empty() {
                self.waiting.insert(slot, memory);
            }
        }
        Ok(())
    }

    /// Has no part been used, and is no state waiting?
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// The states of all parts that have one.
    pub fn save(&self) -> Result<States> {
        let mut states = self.waiting.clone();
        for (slot, held) in &self.held {
            let state = (held.state)(held.part.as_ref())
                .with_context(|| format!("writing down parts.{slot}"))?;
            if !state.is_empty() {
                states.insert(slot.clone(), state);
            }
        }
        Ok(states)
    }

    /// Takes back what [`Store::save`] gave. Each part takes its state when it is used first.
    pub fn load(&mut self, states: States) {
        self.held.clear();
        self.waiting = states;
    }
}
