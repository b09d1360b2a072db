//! The slots of a protocol: typed handles for its code, and what a spec must put into each.

use crate::message::{Counts, Message};
use crate::{
    Ability, Accountant, Aggregator, Generator, Pool, PrivacyMechanism, Role, Selector, Task,
    Trainer, aggregator_signature,
};
use std::fmt::{Debug, Formatter};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// A slot of a protocol, by the type of the part that fills it. It dereferences to its name.
///
/// ```
/// use fl_core::{AggregatorSlot, TrainerSlot, message::Params};
/// const MODEL: TrainerSlot = TrainerSlot::new("model", "The model that everybody trains.");
/// const MEAN: AggregatorSlot<Params, Params> =
///     AggregatorSlot::new("aggregator", "Combines the clients' parameters.");
/// assert_eq!((&*MODEL, &*MEAN), ("model", "aggregator"));
/// ```
pub struct Slot<K: ?Sized> {
    name: &'static str,
    doc: &'static str,
    kind: PhantomData<fn() -> Box<K>>,
}

/// A slot for a trainer.
pub type TrainerSlot = Slot<dyn Trainer>;
/// A slot for a generator.
pub type GeneratorSlot = Slot<dyn Generator>;
/// A slot for an aggregator of `I` to `O`.
pub type AggregatorSlot<I, O> = Slot<dyn Aggregator<In = I, Out = O>>;
/// A slot for an attack on `M`, for the clients that a spec names.
pub type AttackSlot<M> = Slot<Attack<M>>;
/// A slot for a selector of `P`.
pub type SelectorSlot<P> = Slot<dyn Selector<Pool = P>>;
/// A slot for a privacy mechanism on `M`.
pub type MechanismSlot<M> = Slot<dyn PrivacyMechanism<On = M>>;

/// How many examples of each class a client has, with noise, for aggregators that request it. A
/// protocol with an accountant and an aggregator has this slot. The counts are released once, as
/// one row of [`Counts`]; later answers repeat them.
pub const COUNTS: MechanismSlot<Counts> = Slot::new(
    "counts-privacy",
    "Noise on how many examples of each class a client says that it has, where an aggregator wants to know.",
);

/// The accountant of every protocol that releases something.
pub const ACCOUNTANT: Slot<dyn Accountant> = Slot::new(
    "accountant",
    "Prices every release; a run without one states no guarantee.",
);

impl<K: ?Sized> Slot<K> {
    /// The slot `name`, a key under `parts:`; `doc` says what it is for.
    pub const fn new(name: &'static str, doc: &'static str) -> Self {
        Self {
            name,
            doc,
            kind: PhantomData,
        }
    }

    /// Its key under `parts:`.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<K: ?Sized> Clone for Slot<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized> Copy for Slot<K> {}

impl<K: ?Sized> Deref for Slot<K> {
    type Target = str;
    fn deref(&self) -> &str {
        self.name
    }
}

/// A kind of part that can fill a slot.
pub trait SlotKind {
    /// The role of the part.
    const ROLE: Role;
    /// Whether a spec may leave such a slot empty, unless the protocol says otherwise.
    const OPTIONAL: bool = false;
    /// The messages or the pool of the part; empty if the role says it all.
    fn signature() -> String {
        String::new()
    }
}

impl SlotKind for dyn Trainer {
    const ROLE: Role = Role::Trainer;
}

impl SlotKind for dyn Generator {
    const ROLE: Role = Role::Generator;
}

impl<I: Message, O: Message> SlotKind for dyn Aggregator<In = I, Out = O> {
    const ROLE: Role = Role::Aggregator;
    fn signature() -> String {
        aggregator_signature::<I, O>()
    }
}

/// The kind of an [`AttackSlot`]'s part: an aggregator of `M` to `M`, declared as an attack.
#[derive(Debug)]
pub struct Attack<M>(PhantomData<fn() -> M>);

impl<M: Message> SlotKind for Attack<M> {
    const ROLE: Role = Role::Attack;
    const OPTIONAL: bool = true;
    fn signature() -> String {
        M::KIND.into()
    }
}

impl<P: Pool + ?Sized + 'static> SlotKind for dyn Selector<Pool = P> {
    const ROLE: Role = Role::Selector;
    const OPTIONAL: bool = true;
    fn signature() -> String {
        P::NAME.into()
    }
}

impl<M: Message> SlotKind for dyn PrivacyMechanism<On = M> {
    const ROLE: Role = Role::Privacy;
    const OPTIONAL: bool = true;
    fn signature() -> String {
        M::KIND.into()
    }
}

impl SlotKind for dyn Accountant {
    const ROLE: Role = Role::Accountant;
    const OPTIONAL: bool = true;
}

impl<K: SlotKind + ?Sized> Slot<K> {
    /// What a spec must put here. Selectors, mechanisms and accountants may be left out.
    pub fn spec(&self) -> SlotSpec {
        SlotSpec {
            name: self.name,
            role: K::ROLE,
            signature: K::signature(),
            optional: K::OPTIONAL,
            doc: self.doc,
            lasts: K::ROLE != Role::Trainer,
            needs: Vec::new(),
            alike: false,
            server: false,
            for_some: false,
            only_clips: false,
            shown: false,
            through: Vec::new(),
            scores: false,
            task: TaskMap::default(),
        }
    }
}

impl<K: SlotKind + ?Sized> From<&Slot<K>> for SlotSpec {
    fn from(slot: &Slot<K>) -> Self {
        slot.spec()
    }
}

/// A place in a protocol that a spec fills with a part.
#[derive(Clone, Debug)]
pub struct SlotSpec {
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
    pub task: TaskMap,
}

/// What a part is to learn, given what the run's models are to learn; see [`SlotSpec::with_task`].
#[derive(Clone, Default)]
pub struct TaskMap(Option<Arc<OwnTask>>);

type OwnTask = dyn Fn(&Task) -> Task + Send + Sync;

impl TaskMap {
    /// In a run with this task.
    pub fn of(&self, task: &Task) -> Task {
        self.0
            .as_ref()
            .map_or_else(|| task.clone(), |map| map(task))
    }

    pub(crate) fn new(task: impl Fn(&Task) -> Task + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(task)))
    }

    /// Whether it is the run's own task.
    pub(crate) fn is_same(&self) -> bool {
        self.0.is_none()
    }
}

impl Debug for TaskMap {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnTask")
    }
}

impl SlotSpec {
    /// May be left empty.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
    /// Must be filled.
    pub fn required(mut self) -> Self {
        self.optional = false;
        self
    }
    /// Clients have parts of it, of whatever role, and a spec may name who: the others have none ([`crate::Client::has`]).
    pub fn for_some(mut self) -> Self {
        self.for_some = true;
        self.optional()
    }
    /// A client keeps its model from one question to the next; a trainer's slot that does not say so is filled anew for
    /// every question, with what the trainer remembers ([`crate::Trainer::save_memory`]). What lasts takes memory, or disk, for every client that was ever asked.
    pub fn lasting(self) -> Self {
        self.lasting_if(true)
    }
    /// As [`SlotSpec::lasting`], if `lasts`.
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
    pub fn shared_parameters(mut self) -> Self {
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
    pub fn published_if(mut self, shown: bool) -> Self {
        self.shown = shown;
        self
    }
    /// What its models learn of a client's own data comes only through the mechanism in `slot`.
    pub fn through<K: ?Sized>(mut self, slot: &Slot<K>) -> Self {
        self.through.push(slot.name);
        self
    }
    /// What its selector chooses from are a model's scores, if `scores`.
    pub fn selects_from_scores(mut self, scores: bool) -> Self {
        self.scores = scores;
        self
    }
    /// Its models do not learn the run's task but what `task` makes of it: a discriminator one score, a generator images.
    pub fn with_task(mut self, task: impl Fn(&Task) -> Task + Send + Sync + 'static) -> Self {
        self.task = TaskMap::new(task);
        self
    }
}
