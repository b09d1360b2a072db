//! [`Slot`] and [`SlotSpec`]: typed handles to the slots of a protocol, and their requirements.

use crate::kept_text::{self, Name};
use crate::message::{Counts, Message};
use crate::sealed::Sealed;
use crate::{
    Ability, Accountant, Aggregator, Generator, Length, Loss, Pool, PrivacyMechanism, Role,
    Selector, Task, Trainer, Training, aggregator_signature,
};
use serde::{Deserialize, Serialize};
use std::fmt::{Debug, Formatter};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// A slot of a protocol, by the type of the part that fills it. It dereferences to its name.
///
/// ```
/// use fl_core::{AggregatorSlot, TrainerSlot, message::Params};
/// const MODEL: TrainerSlot = TrainerSlot::new("model", "The model that all clients train.");
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

/// The number of examples of each class at a client, with noise, for aggregators that request it. A
/// protocol with an accountant and an aggregator has this slot. The mechanism releases the counts
/// once, as one row of [`Counts`]; later answers repeat them.
pub const COUNTS: MechanismSlot<Counts> = Slot::new(
    "counts-privacy",
    "Noise on a client's number of examples of each class, if an aggregator uses it.",
);

/// The accountant of every protocol with a release.
pub const ACCOUNTANT: Slot<dyn Accountant> = Slot::new(
    "accountant",
    "Prices every release; a run without one states no guarantee.",
);

impl<K: ?Sized> Slot<K> {
    /// Returns the slot `name`, a key under `parts:`; `doc` describes its purpose.
    pub const fn new(name: &'static str, doc: &'static str) -> Self {
        Self {
            name,
            doc,
            kind: PhantomData,
        }
    }

    /// Returns its key under `parts:`.
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
pub trait SlotKind: Sealed {
    /// The role of the part.
    const ROLE: Role;
    /// Whether a spec may leave such a slot empty, unless the protocol overrides it.
    const OPTIONAL: bool = false;
    /// Returns the messages or the pool of the part; empty if the role implies them.
    fn signature() -> String {
        String::new()
    }
}

impl Sealed for dyn Trainer {}

impl SlotKind for dyn Trainer {
    const ROLE: Role = Role::Trainer;
}

impl Sealed for dyn Generator {}

impl SlotKind for dyn Generator {
    const ROLE: Role = Role::Generator;
}

impl<I: Message, O: Message> Sealed for dyn Aggregator<In = I, Out = O> {}

impl<I: Message, O: Message> SlotKind for dyn Aggregator<In = I, Out = O> {
    const ROLE: Role = Role::Aggregator;
    fn signature() -> String {
        aggregator_signature::<I, O>()
    }
}

/// The kind of an [`AttackSlot`]'s part: an aggregator of `M` to `M`, declared as an attack.
#[derive(Debug)]
pub struct Attack<M>(PhantomData<fn() -> M>);

impl<M: Message> Sealed for Attack<M> {}

impl<M: Message> SlotKind for Attack<M> {
    const ROLE: Role = Role::Attack;
    const OPTIONAL: bool = true;
    fn signature() -> String {
        M::KIND.into()
    }
}

impl<P: Pool + ?Sized + 'static> Sealed for dyn Selector<Pool = P> {}

impl<P: Pool + ?Sized + 'static> SlotKind for dyn Selector<Pool = P> {
    const ROLE: Role = Role::Selector;
    const OPTIONAL: bool = true;
    fn signature() -> String {
        P::NAME.into()
    }
}

impl<M: Message> Sealed for dyn PrivacyMechanism<On = M> {}

impl<M: Message> SlotKind for dyn PrivacyMechanism<On = M> {
    const ROLE: Role = Role::Privacy;
    const OPTIONAL: bool = true;
    fn signature() -> String {
        M::KIND.into()
    }
}

impl Sealed for dyn Accountant {}

impl SlotKind for dyn Accountant {
    const ROLE: Role = Role::Accountant;
    const OPTIONAL: bool = true;
}

impl<K: SlotKind + ?Sized> Slot<K> {
    /// Returns the default requirements. Selectors, mechanisms and accountants are optional.
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
            alike_features: false,
            server: false,
            for_some: false,
            only_clips: false,
            shown: false,
            through: Vec::new(),
            scores: false,
            from_server: false,
            several: false,
            training: None,
            trainings: Vec::new(),
            steps_alone: false,
            named: Vec::new(),
            task: TaskMap::default(),
        }
    }
}

impl<K: SlotKind + ?Sized> From<&Slot<K>> for SlotSpec {
    fn from(slot: &Slot<K>) -> Self {
        slot.spec()
    }
}

/// A slot of a protocol with its requirements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlotSpec {
    /// Its key under `parts:`.
    #[serde(deserialize_with = "kept_text::name")]
    pub name: Name,
    /// The role of its part.
    pub role: Role,
    /// The input and output of its part; empty if the role implies them.
    #[serde(default)]
    pub signature: String,
    /// Whether it may be empty.
    pub optional: bool,
    /// Its purpose.
    #[serde(deserialize_with = "kept_text::name")]
    pub doc: Name,
    /// Whether clients keep this part between requests. Defaults to true for every role except
    /// trainer.
    pub lasts: bool,
    /// Abilities that its models must have.
    #[serde(default)]
    pub needs: Vec<Ability>,
    /// Whether all its models have the same parameters, by name and shape.
    #[serde(default)]
    pub alike: bool,
    /// Whether all its models have as many features.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alike_features: bool,
    /// Whether the server has a part of it. Then a part for all clients is required.
    #[serde(default)]
    pub server: bool,
    /// Whether its parts may be for some clients only, so that the others have none.
    #[serde(default)]
    pub for_some: bool,
    /// Whether its mechanism only clips, and another slot prices the release.
    #[serde(default)]
    pub only_clips: bool,
    /// Whether the results show the clients' models in it, or their scores.
    #[serde(default)]
    pub shown: bool,
    /// The slots of mechanisms that release everything that its models learn from a client's own
    /// data.
    #[serde(default, deserialize_with = "kept_text::names")]
    pub through: Vec<&'static str>,
    /// Whether its selector chooses samples by a model's scores.
    #[serde(default)]
    pub scores: bool,
    /// Whether the models of clients become the server's when the protocol begins.
    #[serde(default)]
    pub from_server: bool,
    /// Whether the protocol ends with several models, of which the slot holds one.
    #[serde(default)]
    pub several: bool,
    /// The training that clients give its models on their own examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<PlannedTraining>,
    /// The length and the mini-batch of each further training that its models get, at most once a
    /// round, on examples of a client or on public samples, or on both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trainings: Vec<(Length, usize)>,
    /// Whether the protocol takes all steps of its models itself, by their gradients.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steps_alone: bool,
    /// Beginnings of names: its models must have a parameter for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<String>,
    /// Maps the run's task to the task of its models or generators.
    #[serde(skip)]
    pub task: TaskMap,
}

/// A training that a protocol plans, for checks before a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedTraining {
    /// The protocol's setting, such as `local`.
    pub setting: String,
    /// The length of one training.
    pub length: Length,
    /// Examples per mini-batch.
    pub batch: usize,
    /// Whether the optimiser is reset before each training.
    pub fresh: bool,
    /// Number of trainings of a client that takes part in all of them.
    pub times: usize,
}

/// Maps the run's task to that of a part, see [`SlotSpec::with_task`].
#[derive(Clone, Default)]
pub struct TaskMap(Option<Arc<MapTask>>);

type MapTask = dyn Fn(&Task) -> Task + Send + Sync;

impl TaskMap {
    /// Returns the task of a part in a run with this task.
    pub fn of(&self, task: &Task) -> Task {
        self.0
            .as_ref()
            .map_or_else(|| task.clone(), |map| map(task))
    }

    #[doc(hidden)]
    pub fn new(task: impl Fn(&Task) -> Task + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(task)))
    }

    /// Whether it is the run's own task.
    #[doc(hidden)]
    pub fn is_same(&self) -> bool {
        self.0.is_none()
    }
}

impl Debug for TaskMap {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("TaskMap")
    }
}

impl SlotSpec {
    /// Allows the slot to be empty.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
    /// Requires the slot to be filled.
    pub fn required(mut self) -> Self {
        self.optional = false;
        self
    }
    /// Allows parts, of any role, for the clients that a spec names; the others have none
    /// ([`crate::Client::has`]).
    pub fn for_some(mut self) -> Self {
        self.for_some = true;
        self.optional()
    }
    /// Lets clients keep their model between requests, at the cost of memory or disk for every
    /// client that ever got a request. Without it, a trainer's slot is filled anew for every
    /// request, and only the trainer's memory lasts ([`crate::Trainer::save_memory`]).
    pub fn lasting(self) -> Self {
        self.lasting_if(true)
    }
    /// As [`SlotSpec::lasting`], if `lasts`.
    pub fn lasting_if(mut self, lasts: bool) -> Self {
        self.lasts = lasts;
        self
    }
    /// Declares, if `begins`, that the models of clients become the server's when the protocol
    /// begins: what they kept of an earlier stage is lost.
    pub fn from_server_if(mut self, begins: bool) -> Self {
        self.from_server = begins;
        self
    }
    /// Declares, if `ends`, that the protocol ends with several models: a later stage has no single
    /// one to go on with.
    pub fn several_if(mut self, ends: bool) -> Self {
        self.several = ends;
        self
    }
    /// Requires another ability of its models.
    pub fn needs(mut self, ability: Ability) -> Self {
        if !self.needs.contains(&ability) {
            self.needs.push(ability);
        }
        self
    }
    /// As [`SlotSpec::needs`], if `needed`.
    pub fn needs_if(self, needed: bool, ability: Ability) -> Self {
        if needed { self.needs(ability) } else { self }
    }
    /// Requires models with parameters, the same for all clients, because they are sent and
    /// combined.
    pub fn shared_parameters(mut self) -> Self {
        self.alike = true;
        self.needs(Ability::Parameters)
    }
    /// Requires models with as many features for all clients, because features are combined.
    pub fn alike_features(mut self) -> Self {
        self.alike_features = true;
        self
    }
    /// Gives the server a part of this slot, possibly in addition to the clients.
    pub fn at_server(mut self) -> Self {
        self.server = true;
        self
    }
    /// Declares that its mechanism only clips: it never releases anything, so it needs no price.
    pub fn only_clips(mut self) -> Self {
        self.only_clips = true;
        self
    }
    /// Declares that the run evaluates or keeps the clients' models in it, if `shown`.
    pub fn published_if(mut self, shown: bool) -> Self {
        self.shown = shown;
        self
    }
    /// Declares that its models learn from a client's own data only through the mechanism in
    /// `slot`.
    pub fn through<K: ?Sized>(mut self, slot: &Slot<K>) -> Self {
        self.through.push(slot.name);
        self
    }
    /// Declares that its selector chooses by a model's scores, if `scores`.
    pub fn selects_from_scores(mut self, scores: bool) -> Self {
        self.scores = scores;
        self
    }
    /// Declares that each client trains its model on its own examples, `times` times at most, by
    /// this training, which the protocol's `setting` describes, and by the loss of their labels.
    /// `fresh`: with the optimiser reset before each.
    pub fn trained_by(
        mut self,
        setting: &str,
        training: &Training,
        (fresh, times): (bool, usize),
    ) -> Self {
        let pass = training.pass(Loss::CrossEntropy);
        self.training = Some(PlannedTraining {
            setting: setting.into(),
            length: pass.length,
            batch: pass.batch,
            fresh,
            times,
        });
        training.clips(self.needs(Ability::TaskLoss))
    }
    /// Declares, if `alone`, that the protocol takes all steps of its models itself, by their
    /// gradients: the optimiser of a model has no effect.
    pub fn steps_alone_if(mut self, alone: bool) -> Self {
        self.steps_alone = alone;
        self
    }
    /// Requires models that have, for each of these, a parameter whose name begins with it.
    pub fn named(mut self, beginnings: &[String]) -> Self {
        self.named = beginnings.to_vec();
        self
    }
    /// Sets the task of its models to `task` of the run's task. For example, a discriminator learns
    /// one score, and a generator images.
    pub fn with_task(mut self, task: impl Fn(&Task) -> Task + Send + Sync + 'static) -> Self {
        self.task = TaskMap::new(task);
        self
    }
}
