//! The places of a protocol that parts fill, and what is needed there.

use crate::message::Message;
use crate::{Ability, Pool, Role, Task, aggregator_signature};
use std::fmt::{Debug, Formatter};
use std::sync::Arc;

/// A place in a protocol that a spec fills with a part.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Its key under `parts:`.
    pub name: &'static str,
    /// What must stand there.
    pub role: Role,
    /// What goes in and out of it; empty if the role says it all.
    pub signature: String,
    /// May it be left empty?
    pub optional: bool,
    /// What it is for.
    pub doc: &'static str,
    /// Does a client keep its part from one question to the next? Anything but a trainer does, if it has a state at all.
    pub lasts: bool,
    /// What its models must be able to do.
    pub needs: Vec<Ability>,
    /// Have all of its models the same parameters, by name and shape?
    pub alike: bool,
    /// Has the server a part of it? Then not all may be for some clients only.
    pub server: bool,
    /// May its parts be for some clients only, so that the others have none?
    pub for_some: bool,
    /// Is its mechanism asked to clip only, and what it leaves is priced elsewhere?
    pub only_clips: bool,
    /// Do the results show what the clients' models in it have learnt: their scores, or themselves?
    pub shown: bool,
    /// The slots of mechanisms that let through all that its models learn of a client's own data.
    pub through: Vec<&'static str>,
    /// Are the samples that its selector chooses from a model's scores?
    pub scores: bool,
    /// What a model or generator in it is to learn or make, given what the run's models are to learn.
    pub task: OwnTask,
}

/// What a part is to learn, given what the run's models are to learn; see [`Slot::with_task`].
#[derive(Clone)]
pub struct OwnTask(Arc<dyn Fn(&Task) -> Task + Send + Sync>);

impl OwnTask {
    /// In a run with this task.
    pub fn of(&self, task: &Task) -> Task {
        (self.0)(task)
    }
}

impl Debug for OwnTask {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnTask")
    }
}

impl Slot {
    /// The slot of [`Slot::counts`].
    pub const COUNTS: &'static str = "counts-privacy";

    fn new(name: &'static str, role: Role, signature: String, doc: &'static str) -> Self {
        Self {
            name,
            role,
            signature,
            optional: false,
            doc,
            lasts: role != Role::Trainer,
            needs: Vec::new(),
            alike: false,
            server: false,
            for_some: false,
            only_clips: false,
            shown: false,
            through: Vec::new(),
            scores: false,
            task: OwnTask(Arc::new(Task::clone)),
        }
    }
    /// For an aggregator of these messages.
    pub fn aggregator<I: Message, O: Message>(name: &'static str, doc: &'static str) -> Self {
        Self::new(name, Role::Aggregator, aggregator_signature::<I, O>(), doc)
    }
    /// For a selector of this pool.
    pub fn selector<P: Pool + ?Sized>(name: &'static str, doc: &'static str) -> Self {
        Self::new(name, Role::Selector, P::NAME.into(), doc)
    }
    /// For a privacy mechanism on this message.
    pub fn privacy<M: Message>(name: &'static str, doc: &'static str) -> Self {
        Self::new(name, Role::Privacy, M::KIND.into(), doc)
    }
    /// For a mechanism on what clients tell of their data beside an answer, when an aggregator or a selector wants to know it:
    /// how many examples of each class. It is released once, as one row of [`crate::message::Counts`], and told again after that.
    pub fn counts() -> Self {
        Self::privacy::<crate::message::Counts>(
            Self::COUNTS,
            "Noise on how many examples of each class a client says that it has, where an aggregator wants to know.",
        )
        .optional()
    }
    /// For a trainer.
    pub fn trainer(name: &'static str, doc: &'static str) -> Self {
        Self::new(name, Role::Trainer, String::new(), doc)
    }
    /// For a generator.
    pub fn generator(name: &'static str, doc: &'static str) -> Self {
        Self::new(name, Role::Generator, String::new(), doc)
    }
    /// For an accountant.
    pub fn accountant() -> Self {
        Self::new(
            "accountant",
            Role::Accountant,
            String::new(),
            "Prices every release; a run without one states no guarantee.",
        )
        .optional()
    }
    /// May be left empty.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
    /// Clients have parts of it, of whatever role, and a spec may name who: the others have none ([`crate::Client::has`]).
    pub fn for_some(mut self) -> Self {
        self.for_some = true;
        self.optional()
    }
    /// A client keeps its model from one question to the next; a trainer's slot that does not say so is filled anew for
    /// every question. What lasts takes memory, or disk, for every client that was ever asked.
    pub fn lasting(self) -> Self {
        self.lasting_if(true)
    }
    /// As [`Slot::lasting`], if `lasts`.
    pub fn lasting_if(mut self, lasts: bool) -> Self {
        self.lasts = lasts;
        self
    }
    /// Its models must be able to do this too.
    pub fn needs(mut self, ability: Ability) -> Self {
        self.needs.push(ability);
        self
    }
    /// The parameters of its models are sent around and combined: they need some, the same for everybody.
    pub fn averaged(mut self) -> Self {
        self.alike = true;
        self.needs(Ability::Parameters)
    }
    /// The server has a part of it, maybe besides the clients.
    pub fn at_server(mut self) -> Self {
        self.server = true;
        self
    }
    /// Its mechanism only clips: it never releases anything, so it needs no price.
    pub fn only_clips(mut self) -> Self {
        self.only_clips = true;
        self
    }
    /// The clients' models in it are evaluated or kept, if `shown`.
    pub fn shown_if(mut self, shown: bool) -> Self {
        self.shown = shown;
        self
    }
    /// What its models learn of a client's own data comes only through the mechanism in `slot`.
    pub fn through(mut self, slot: &'static str) -> Self {
        self.through.push(slot);
        self
    }
    /// What its selector chooses from are a model's scores, if `scores`.
    pub fn hands_scores(mut self, scores: bool) -> Self {
        self.scores = scores;
        self
    }
    /// Its models do not learn the run's task but what `task` makes of it: a discriminator one score, a generator images.
    pub fn with_task(mut self, task: impl Fn(&Task) -> Task + Send + Sync + 'static) -> Self {
        self.task = OwnTask(Arc::new(task));
        self
    }
}
