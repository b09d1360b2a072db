//! [`Store`]: the parts in one side's slots, made on first use, saved and restored.

use crate::exchange::of_stage;
use crate::{
    Accountant, AnyAggregator, AnyMechanism, AnySelector, BoxedPart, BuildContext, ClientId,
    Generator, Parts, Result, Role, Stream, Task, Trainer,
};
use anyhow::Context;
use serde_bytes::ByteBuf;
use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A part of any role that a store can hold.
pub(crate) trait StorablePart: BoxedPart + Send {
    /// The role.
    const ROLE: Role;

    /// Returns the state between two uses; empty if there is none.
    fn state(&self) -> Result<Vec<u8>>;

    /// Restores a state from [`StorablePart::state`].
    fn restore(&mut self, state: &[u8]) -> Result<()>;

    /// Returns the state that outlasts the part in a slot that does not last; empty if there is
    /// none.
    fn memory(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Restores a state from [`StorablePart::memory`].
    fn recall(&mut self, memory: &[u8]) -> Result<()> {
        self.restore(memory)
    }
}

macro_rules! storable {
    ($($part:ident: $role:ident,)*) => {
        $(impl StorablePart for Box<dyn $part> {
            const ROLE: Role = Role::$role;
            fn state(&self) -> Result<Vec<u8>> {
                Ok(self.save())
            }
            fn restore(&mut self, state: &[u8]) -> Result<()> {
                self.load(state)
            }
        })*
    };
}

storable! {
    AnyAggregator: Aggregator,
    AnySelector: Selector,
    AnyMechanism: Privacy,
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

/// An accountant's state is the ledger, which its side keeps and charges again after a restore.
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

/// Saved states of one side's parts by slot, or messages by name. A `Vec<u8>` would be written
/// byte by byte.
pub(crate) type States = BTreeMap<String, ByteBuf>;

/// The parts of one side, the server's or a client's, by slot.
pub(crate) struct Store {
    parts: Arc<Parts>,
    /// The client; `None` for the server.
    whose: Option<ClientId>,
    task: Task,
    home: Stream,
    /// The stage of the run, counted from 1; 0 if the run has no stages.
    stage: usize,
    held: BTreeMap<String, StoredPart>,
    /// Restored states of parts that have not been used since. For a slot that does not last it is
    /// the part's memory.
    waiting: States,
}

impl Store {
    /// Returns a store without parts. `home` is the parent of each part's stream.
    pub fn new(parts: Arc<Parts>, whose: Option<ClientId>, task: Task, home: Stream) -> Self {
        Self {
            parts,
            whose,
            task,
            home,
            stage: 0,
            held: BTreeMap::new(),
            waiting: States::new(),
        }
    }

    /// Returns the parts that fill the slots of the run.
    pub fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }

    /// Returns the task that models learn.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// From now on a slot is that of this stage, if the stage has it for itself.
    pub fn enter(&mut self, stage: usize) {
        self.stage = stage;
    }

    /// Returns the slot by its name in the whole run.
    pub fn slot<'s>(&self, slot: &'s str) -> Cow<'s, str> {
        let own = (self.stage > 0).then(|| of_stage(slot, self.stage));
        let own = own.filter(|own| self.parts.slot(own).is_some());
        own.map_or(slot.into(), Cow::Owned)
    }

    /// Returns the stage of the run, counted from 1; 0 if the run has no stages.
    pub fn stage(&self) -> usize {
        self.stage
    }

    /// Returns whether this slot is filled for this side.
    pub fn has(&self, slot: &str) -> bool {
        let slot = &*self.slot(slot);
        match self.whose {
            Some(client) => self.parts.has_for(slot, client),
            None => self.parts.has(slot),
        }
    }

    /// Makes a new part for this slot, the `index`-th of its kind; the store does not keep it.
    pub fn make<B: StorablePart>(&self, slot: &str, index: u64) -> Result<B> {
        let context = self.context(slot, index);
        let slot = &*self.slot(slot);
        self.parts.build(B::ROLE, slot, self.whose, &context)
    }

    /// Makes a part as the server has it in this slot; the store does not keep it.
    pub fn make_for_server<B: StorablePart>(&self, slot: &str) -> Result<B> {
        let context = self.context(slot, 0);
        self.parts.build(B::ROLE, &self.slot(slot), None, &context)
    }

    /// Returns the context that the `index`-th part of this slot is made in.
    pub fn context(&self, slot: &str, index: u64) -> BuildContext {
        let slot = &*self.slot(slot);
        BuildContext::new(
            self.parts.task(slot, &self.task),
            self.home.child(slot, index),
        )
    }

    /// Returns the part in this slot, made on first use.
    pub fn get<B: StorablePart>(&mut self, slot: &str) -> Result<&mut B> {
        let slot = &*self.slot(slot);
        if !self.held.contains_key(slot) {
            let mut part: B = self.make(slot, 0)?;
            if let Some(state) = self.waiting.get(slot) {
                let taken = if self.lasts(slot) {
                    part.restore(state)
                } else {
                    part.recall(state)
                };
                taken.with_context(|| format!("parts.{slot}: its saved state"))?;
                self.waiting.remove(slot);
            }
            self.held.insert(slot.into(), StoredPart::new(part));
        }
        let held = self.held.get_mut(slot).and_then(|h| h.part.downcast_mut());
        held.with_context(|| format!("parts.{slot} is used for messages of two kinds"))
    }

    /// Takes the part out of this slot, to use it together with others; [`Store::put`] puts it
    /// back.
    pub fn take<B: StorablePart>(&mut self, slot: &str) -> Result<B> {
        self.get::<B>(slot)?;
        let slot = &*self.slot(slot);
        let held = self.held.remove(slot).map(|h| h.part.downcast());
        match held {
            Some(Ok(part)) => Ok(*part),
            _ => unreachable!("`get` has just looked at it"),
        }
    }

    /// Puts a part into this slot.
    pub fn put<B: StorablePart>(&mut self, slot: &str, part: B) {
        let slot = &*self.slot(slot);
        self.waiting.remove(slot);
        self.held.insert(slot.into(), StoredPart::new(part));
    }

    /// Exchanges the part in this slot, or the state that waits for it, with what is kept as
    /// `name`, which is no slot; either may be nothing.
    pub fn exchange(&mut self, slot: &str, name: &str) {
        fn swap<T>(all: &mut BTreeMap<String, T>, one: &str, other: &str) {
            let both = (all.remove(one), all.remove(other));
            all.extend(both.0.map(|held| (other.to_string(), held)));
            all.extend(both.1.map(|held| (one.to_string(), held)));
        }
        let slot = &*self.slot(slot);
        swap(&mut self.held, slot, name);
        swap(&mut self.waiting, slot, name);
    }

    /// Returns whether the part in this slot lasts between requests. At the server every part does.
    fn lasts(&self, slot: &str) -> bool {
        self.whose.is_none() || self.parts.lasts(slot)
    }

    /// Drops the parts of slots that do not last, except for their memories.
    pub fn forget(&mut self) -> Result<()> {
        let (stay, gone) = std::mem::take(&mut self.held)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(slot, _)| self.lasts(slot));
        self.held = stay;
        for (slot, held) in gone {
            let memory = (held.memory)(held.part.as_ref())
                .with_context(|| format!("parts.{slot}: its memory"))?;
            if !memory.is_empty() {
                self.waiting.insert(slot, memory.into());
            }
        }
        Ok(())
    }

    /// Returns whether no part is held and no state is waiting.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// Returns the states of all parts that have one.
    pub fn save(&self) -> Result<States> {
        let mut states = self.waiting.clone();
        for (slot, held) in &self.held {
            let state =
                (held.state)(held.part.as_ref()).with_context(|| format!("saving parts.{slot}"))?;
            if !state.is_empty() {
                states.insert(slot.clone(), state.into());
            }
        }
        Ok(states)
    }

    /// Restores the states from [`Store::save`]. Each part restores its own on first use.
    pub fn load(&mut self, states: States) {
        self.held.clear();
        self.waiting = states;
    }
}
