//! [`Declaration`]: the slots and exchanges that a protocol declares and the core executes.

use crate::exchange::measurement::Measurement;
use crate::exchange::spec::{Exchange, ExchangeSpec};
use crate::message::{Ids, Message, Params, Scalar, VoteSensitivity};
use crate::privacy::MinibatchSampling;
use crate::{
    ACCOUNTANT, AggregatorSlot, Answer, AttackSlot, BEFORE_AGGREGATOR, COUNTS, Client, Conflict,
    MechanismSlot, Request, Result, Role, Roster, SelectorSlot, Server, Slot, SlotKind, SlotSpec,
    TrainerSlot, aggregator_signature,
};
use anyhow::{Context, bail};

/// Makes a client's answer to a request.
type AnswerFn<'p> =
    Box<dyn Fn(&ExchangeSpec, &mut Client, Request<'_>) -> Result<Answer> + Send + Sync + 'p>;

/// A client's own code for one exchange.
type Handler<'p, D, U> = Box<dyn Fn(&mut Client, &D) -> Result<U> + Send + Sync + 'p>;

/// One transformation of a client's answer before it leaves.
type Stage<'p, D, U> = Box<dyn Fn(&mut Client, &D, U) -> Result<U> + Send + Sync + 'p>;

/// Shows a client's answer to an attack on the run.
type Watch<'p> = Box<dyn Fn(&mut Client, &Answer) -> Result<()> + Send + Sync + 'p>;

/// The server's model starts from a file that another run kept; see [`Declaration::loads`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialModel {
    /// The model's slot.
    pub slot: &'static str,
    /// The protocol's setting that names the file.
    pub setting: &'static str,
    /// The file, as a path from the working directory.
    pub file: String,
}

impl InitialModel {
    /// Describes it, if the setting names a file.
    pub fn of(slot: &'static str, setting: &'static str, file: &Option<String>) -> Option<Self> {
        let file = file.clone()?;
        Some(Self {
            slot,
            setting,
            file,
        })
    }

    /// Loads the model at the server.
    ///
    /// # Errors
    /// If the file cannot be read, or does not fit the part in the slot.
    pub fn load(&self, server: &mut Server<'_>) -> Result<()> {
        let who = || format!("protocol.{}: {}", self.setting, self.file);
        let bytes = std::fs::read(&self.file).with_context(who)?;
        let loaded = server.model(self.slot)?.load(&bytes);
        loaded.with_context(|| format!("{} does not fit parts.{}", who(), self.slot))
    }

    /// Returns why the file cannot be read, if so; without one, why the setting that says that it
    /// is `public` has no effect.
    pub fn conflict(initial: Option<&Self>, public: bool) -> Option<Conflict> {
        let Some(initial) = initial else {
            return Conflict::no_effect("initial-is-public", "without `initial`").when(public);
        };
        let why = match std::fs::metadata(&initial.file) {
            Ok(found) if found.is_file() => return None,
            Ok(_) => "it is no file".into(),
            Err(error) => error.to_string(),
        };
        let text = format!(
            "names a model that another run kept, a path from the working directory, and {} cannot be read: {why}",
            initial.file
        );
        Some(Conflict::at(initial.setting, text))
    }
}

/// The slots and exchanges of a protocol with its current settings.
#[derive(Default)]
pub struct Declaration<'p> {
    /// The slots that a spec can or must fill.
    pub slots: Vec<SlotSpec>,
    exchanges: Vec<(ExchangeSpec, AnswerFn<'p>)>,
    watch: Option<Watch<'p>>,
    /// The number of rounds, see [`Declaration::rounds`]; `None` if the protocol declares none.
    pub rounds: Option<usize>,
    /// The setting that gives the number of rounds and nothing else, see [`Declaration::grows_by`].
    pub grows: Option<&'static str>,
    /// An unpriced starting point of the run, see [`Declaration::begins_with`].
    pub begins_with: Option<String>,
    /// The file that a model starts from, see [`Declaration::loads`].
    pub loads: Option<InitialModel>,
    /// See [`Declaration::pools_data`].
    pub pooled: bool,
    /// See [`Declaration::measures`]; `None` if the protocol declares none.
    pub measures: Option<Vec<Measurement>>,
}

impl<'p> Declaration<'p> {
    /// Returns an empty declaration.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a loaded protocol declares; its clients answer by `answer`.
    #[doc(hidden)]
    pub fn of_specs(
        slots: Vec<SlotSpec>,
        exchanges: Vec<ExchangeSpec>,
        answer: impl Fn(&ExchangeSpec, &mut Client, Request<'_>) -> Result<Answer>
        + Clone
        + Send
        + Sync
        + 'p,
    ) -> Self {
        let answered = |spec| -> (ExchangeSpec, AnswerFn<'p>) { (spec, Box::new(answer.clone())) };
        Self {
            slots,
            exchanges: exchanges.into_iter().map(answered).collect(),
            ..Self::default()
        }
    }

    /// The exchanges, with the declaration as it is.
    #[doc(hidden)]
    pub fn specs(&self) -> impl Iterator<Item = &ExchangeSpec> {
        self.exchanges.iter().map(|(spec, _)| spec)
    }

    /// Adds a slot. [`Declaration::exchange`] adds the slots that an exchange names. Call this for
    /// models, for parts that the server uses between exchanges, and to change a slot's defaults.
    pub fn slot(mut self, slot: impl Into<SlotSpec>) -> Self {
        let slot = slot.into();
        match self.slots.iter_mut().find(|known| known.name == slot.name) {
            Some(known) => *known = slot,
            None => self.slots.push(slot),
        }
        self
    }

    fn also(&mut self, slot: SlotSpec) {
        match self.slots.iter_mut().find(|known| known.name == slot.name) {
            Some(known) => {
                known.only_clips |= slot.only_clips;
                known.for_some |= slot.for_some;
            }
            None => self.slots.push(slot),
        }
    }

    /// Adds an exchange and the slots that it names. An exchange with a release also adds the
    /// accountant's slot; in a run with releases, one with an aggregator adds the slot of the
    /// counts.
    pub fn exchange<D: Message, U: Message>(mut self, exchange: Declared<'p, D, U>) -> Self {
        let Declared {
            mut spec,
            each_round,
            slots,
            draws,
            answer,
            stages,
        } = exchange;
        for slot in slots {
            self.also(slot);
        }
        if each_round {
            spec.times = self.rounds.unwrap_or(0);
        }
        let answers = move |spec: &ExchangeSpec, client: &mut Client, question: Request<'_>| {
            question.answer(spec, client, |client, sent: &D| {
                if let Some(slot) = draws {
                    client.draw_private(&slot)?;
                }
                let first = answer(client, sent)?;
                let mut stages = stages.iter();
                stages.try_fold(first, |made, stage| stage(client, sent, made))
            })
        };
        self.exchanges.push((spec, Box::new(answers)));
        self
    }

    /// Adds an exchange if `there`.
    pub fn exchange_if<D: Message, U: Message>(
        self,
        there: bool,
        exchange: impl FnOnce() -> Declared<'p, D, U>,
    ) -> Self {
        if there {
            self.exchange(exchange())
        } else {
            self
        }
    }

    /// Declares the number of rounds, before the exchanges of each round
    /// ([`Declared::each_round`]).
    pub fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = Some(rounds);
        self
    }

    /// Names the setting that gives the number of rounds and nothing else. A run with more rounds
    /// begins bit for bit like one with fewer, so a finished run can be extended.
    pub fn grows_by(mut self, setting: &'static str) -> Self {
        self.grows = Some(setting);
        self
    }

    /// Declares that the run begins with something that may have been learnt from clients' data and
    /// that no release in the run prices.
    pub fn begins_with(mut self, what: Option<String>) -> Self {
        self.begins_with = what;
        self
    }

    /// Declares that the server's model starts from a file that another run kept. A check compares
    /// the classes and columns of both runs. One that is not `public`, that is trained without
    /// private data, has no price here ([`Declaration::begins_with`]).
    pub fn loads(mut self, initial: Option<InitialModel>, public: bool) -> Self {
        if let Some(InitialModel { setting, .. }) = initial.as_ref().filter(|_| !public) {
            self.begins_with = Some(format!(
                "the run starts from a model that another run kept (`{setting}`), whose training data have no price here"
            ));
        }
        self.loads = initial;
        self
    }

    /// Declares that the run takes place on one client that holds all clients' data (the
    /// centralised baseline).
    pub fn pools_data(mut self) -> Self {
        self.pooled = true;
        self
    }

    /// Adds measurements that the protocol records. A protocol that declares any must declare all:
    /// recording another is an error. Then checks know before a run which measurements there are.
    pub fn measures(mut self, all: impl IntoIterator<Item = Measurement>) -> Self {
        self.measures.get_or_insert_default().extend(all);
        self
    }

    /// Passes every answer of a client to `watch` before it leaves, for attacks on a run.
    pub fn watched(
        mut self,
        watch: impl Fn(&mut Client, &Answer) -> Result<()> + Send + Sync + 'p,
    ) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }

    /// Returns the slots, with that of a step before an aggregator of parameters, and those of the
    /// accountant and of the counts if the protocol releases something.
    pub fn into_slots(mut self) -> Vec<SlotSpec> {
        let combined = aggregator_signature::<Params, Params>();
        let combines =
            |slot: &SlotSpec| slot.role == Role::Aggregator && slot.signature == combined;
        if self.slots.iter().any(combines) {
            self.also(BEFORE_AGGREGATOR.spec().optional());
        }
        let releases = |slot: &SlotSpec| slot.role == Role::Privacy;
        if self.slots.iter().any(releases) {
            if self.exchanges.iter().any(|(e, _)| e.aggregator.is_some()) {
                self.also(COUNTS.spec());
            }
            self.also(ACCOUNTANT.spec());
        }
        self.slots
    }

    /// Returns the exchanges.
    pub fn into_exchanges(self) -> Vec<ExchangeSpec> {
        self.exchanges.into_iter().map(|(spec, _)| spec).collect()
    }

    /// Returns a client's answer to a request.
    ///
    /// # Errors
    /// If the exchange is not declared, or the client cannot answer.
    pub fn answer(&self, client: &mut Client, question: Request<'_>) -> Result<Answer> {
        let found = self.exchanges.iter().find(|e| e.0.label == question.label);
        let Some((spec, answers)) = found else {
            bail!(
                "this protocol declares no exchange `{}`, so its clients have no answer",
                question.label
            );
        };
        let answer = answers(spec, client, question)?;
        if let Some(watch) = &self.watch {
            watch(client, &answer)?;
        }
        Ok(answer)
    }
}

/// An exchange with all its declared properties, see [`Exchange::answered_by`].
pub struct Declared<'p, D, U> {
    spec: ExchangeSpec,
    each_round: bool,
    slots: Vec<SlotSpec>,
    draws: Option<MechanismSlot<Ids>>,
    answer: Handler<'p, D, U>,
    stages: Vec<Stage<'p, D, U>>,
}

impl<D: Message, U: Message> Exchange<D, U> {
    /// Declares the exchange: a client answers it with `answer`.
    ///
    /// Until the declaration names a mechanism, all observers see the answer without a price,
    /// unless the answer is empty.
    pub fn answered_by<'p>(
        &self,
        answer: impl Fn(&mut Client, &D) -> Result<U> + Send + Sync + 'p,
    ) -> Declared<'p, D, U> {
        Declared {
            spec: self.spec(),
            each_round: false,
            slots: Vec::new(),
            draws: None,
            answer: Box::new(answer),
            stages: Vec::new(),
        }
    }
}

impl Exchange<Params, Scalar> {
    /// Declares that a client answers with the mean loss of the model in `slot` on its own
    /// examples. The model gets the parameters that the server sent. A selector of clients may
    /// request it.
    pub fn is_loss_of<'p>(&self, slot: &TrainerSlot) -> Declared<'p, Params, Scalar> {
        let slot = *slot;
        self.answered_by(move |client, params| {
            client.parametric(&slot)?.set_params(params)?;
            client.own_loss(&slot).map(|loss| Scalar::new(loss as f32))
        })
    }
}

// who takes part, how often, with which samples
impl<'p, D: Message, U: Message> Declared<'p, D, U> {
    fn names<K: SlotKind + ?Sized>(&mut self, slot: &Slot<K>) -> &'static str {
        self.slots.push(slot.spec());
        slot.name()
    }

    /// Lets the selector in `cohort` pick the clients.
    pub fn to(mut self, cohort: &SelectorSlot<Roster>) -> Self {
        self.spec.cohort = Some(self.names(cohort));
        self
    }
    /// Declares that the client trains a model on its own examples for the answer
    /// ([`Client::fit_own`], [`Client::fit_examples`]). An aggregator of the answers may then
    /// request the mean loss of that training ([`crate::RequiredInputs::training_loss`]).
    pub fn trains(mut self) -> Self {
        self.spec.trains = true;
        self
    }
    /// Declares that the client uses rows of its own that it does not learn from, for a measure or
    /// a choice ([`Client::held_out`]). A spec sets them aside by `data.test.own`. They are as
    /// private as its examples, and no accountant prices what follows from them.
    pub fn uses_held_out(mut self) -> Self {
        self.spec.held_out = true;
        self
    }
    /// Declares that the answer is a change, which the server adds to the parameters that it sent.
    /// An observer of both then knows the client's model.
    pub fn answers_change(mut self) -> Self {
        self.spec.change = true;
        self
    }
    /// Declares that the exchange takes place once in each round.
    pub fn each_round(mut self) -> Self {
        self.each_round = true;
        self
    }
    /// Declares that the exchange takes place `times` times, rather than once.
    pub fn times(mut self, times: usize) -> Self {
        self.spec.times = times;
        self
    }
    /// Declares that the exchange concerns `rows` samples.
    pub fn rows(mut self, rows: usize) -> Self {
        self.spec.rows = rows;
        self
    }
    /// Declares that the exchange concerns all public samples.
    pub fn all_public(self) -> Self {
        self.rows(usize::MAX)
    }
    /// Declares that the exchange concerns `rows` samples that the run generates, independent of
    /// the public data.
    pub fn made(mut self, rows: usize) -> Self {
        self.spec.made = true;
        self.rows(rows)
    }
    /// Declares that one answer holds the results of `voices` models or voters.
    pub fn voices(mut self, voices: usize) -> Self {
        self.spec.voices = voices;
        self
    }
    /// Declares that one message to a client holds `copies` messages, such as models.
    pub fn copies(mut self, copies: usize) -> Self {
        self.spec.copies = copies;
        self
    }
    /// Declares that the parameters in the messages are those of the model in `slot`.
    pub fn model<K: ?Sized>(mut self, slot: &Slot<K>) -> Self {
        self.spec.model = slot.name();
        self
    }
    /// Declares that the messages hold only these groups of the model's parameters
    /// ([`crate::parameters_in`]); all of them if there is no group.
    pub fn shares(mut self, groups: &[String]) -> Self {
        self.spec.shares = groups.to_vec();
        self
    }
    /// Limits the exchange to runs in which the part in `slot` requests it, such as a selector that
    /// picks clients by their loss.
    pub fn if_requested_by<K: SlotKind + ?Sized>(mut self, slot: &Slot<K>) -> Self {
        self.spec.requested_by = Some(self.names(slot));
        self
    }
    /// Limits the exchange to runs in which `slot` is filled.
    pub fn if_filled<K: SlotKind + ?Sized>(mut self, slot: &Slot<K>) -> Self {
        self.spec.needs = Some(self.names(slot));
        self
    }
    /// Limits the exchange to runs in which `slot` is empty.
    pub fn unless_filled<K: SlotKind + ?Sized>(mut self, slot: &Slot<K>) -> Self {
        self.spec.unless = Some(self.names(slot));
        self
    }
    /// Lets the aggregator in `slot` combine the answers, which the protocol may first convert to
    /// `V`. The aggregator may request counts and training losses with them.
    pub fn into<V: Message, O: Message>(mut self, slot: &AggregatorSlot<V, O>) -> Self {
        self.spec.aggregator = Some(self.names(slot));
        self
    }
    /// Declares that the server adds up the answers and passes their sum to the aggregator in
    /// `slot` as one message. That must then be one of the mean
    /// ([`crate::Properties::of_mean`]): any other would see no single answer.
    pub fn sums_into<V: Message, O: Message>(mut self, slot: &AggregatorSlot<V, O>) -> Self {
        self.spec.sums_into = Some(self.names(slot));
        self
    }
    /// Declares that the protocol itself needs each sender's number of examples per class
    /// ([`crate::ClientMessage::class_counts`]), if `wanted`.
    pub fn with_class_counts_if(mut self, wanted: bool) -> Self {
        self.spec.class_counts = wanted;
        self
    }
}

// how the answer depends on a client's own data, and which mechanism protects it
impl<'p, D: Message, U: Message> Declared<'p, D, U> {
    fn released<M: Message>(&mut self, slot: &MechanismSlot<M>) -> &'static str {
        let name = self.names(slot);
        self.spec.flow.releases.push(name);
        name
    }

    fn stage(mut self, stage: impl Fn(&mut Client, &D, U) -> Result<U> + Send + Sync + 'p) -> Self {
        self.stages.push(Box::new(stage));
        self
    }

    /// Releases the answer through the mechanism in `slot`, if it is filled: clip, price, check the
    /// budget, perturb.
    pub fn releases(mut self, slot: &MechanismSlot<U>) -> Self {
        self.released(slot);
        let slot = *slot;
        self.stage(move |client, _, mut answer| {
            client.release(&slot, &mut answer)?;
            Ok(answer)
        })
    }

    /// Releases part of the answer as [`Declared::releases`] does: `take` extracts the part, and
    /// `put` inserts the released part.
    pub fn releases_as<M: Message>(
        mut self,
        slot: &MechanismSlot<M>,
        take: impl Fn(&D, &U) -> Result<M> + Send + Sync + 'p,
        put: impl Fn(&D, U, M) -> Result<U> + Send + Sync + 'p,
    ) -> Self {
        self.released(slot);
        let slot = *slot;
        self.stage(move |client, sent, answer| {
            if !client.has(&slot) {
                return Ok(answer);
            }
            let mut released = take(sent, &answer)?;
            client.release(&slot, &mut released)?;
            put(sent, answer, released)
        })
    }

    /// Declares that the client's own code releases something through the mechanism in `slot`
    /// ([`Client::release`]), such as counts that it learns from. An answer without that release is
    /// an error.
    pub fn releases_within<M: Message>(mut self, slot: &MechanismSlot<M>) -> Self {
        let name = self.released(slot);
        self.spec.flow.within.push(name);
        self
    }

    /// Declares that these training steps make the answer. The mechanism in `slot` releases the
    /// result that each step computes from the client's examples ([`Client::release_steps`]).
    pub fn releases_steps<M: Message>(
        mut self,
        slot: &MechanismSlot<M>,
        lots: MinibatchSampling,
    ) -> Self {
        self.spec.flow.steps = Some((self.released(slot), lots));
        self
    }

    /// Lets the mechanism in `slot` bound the answer without noise. `agreed` returns the bound that
    /// all clients agreed on, if the message to them carries one.
    pub fn bounds(
        mut self,
        slot: &MechanismSlot<U>,
        agreed: impl Fn(&D) -> Option<f32> + Send + Sync + 'p,
    ) -> Self {
        self.slots.push(slot.spec().only_clips());
        self.spec.flow.releases.push(slot.name());
        let slot = *slot;
        self.stage(move |client, sent, mut answer| {
            client.clip(&slot, &mut answer, agreed(sent))?;
            Ok(answer)
        })
    }

    /// Draws the client's private sample through the mechanism in `slot` before it answers. The
    /// answer depends on the client's data through that sample only.
    pub fn draws(mut self, slot: &MechanismSlot<Ids>) -> Self {
        self.draws = Some(*slot);
        self.through(slot)
    }

    /// Declares that the answer depends on the client's own data only through earlier results of
    /// the mechanism in `slot`.
    pub fn through<M: Message>(mut self, slot: &MechanismSlot<M>) -> Self {
        let name = self.names(slot);
        self.spec.flow.through.push(name);
        self
    }

    /// Declares that the answer is post-processing of a model that was trained through the
    /// mechanism in `slot`.
    pub fn learnt_through<M: Message>(mut self, slot: &MechanismSlot<M>) -> Self {
        let name = self.names(slot);
        self.spec.flow.learnt_through.push(name);
        self
    }

    /// Declares that part of the answer bypasses the release mechanism if `slot` is filled.
    pub fn leaks_besides<K: SlotKind + ?Sized>(mut self, slot: &Slot<K>) -> Self {
        let name = self.names(slot);
        self.spec.flow.beside.push(name);
        self
    }

    /// Declares that part of the answer bypasses the release mechanism, if `partly`.
    pub fn partly_if(mut self, partly: bool) -> Self {
        self.spec.flow.partly = partly;
        self
    }

    /// Declares that the server releases its result from the answers through the mechanism in
    /// `slot` before another observer sees it. [`crate::Server::run`] or [`crate::Server::release`]
    /// does so.
    pub fn releases_at_server<M: Message>(mut self, slot: &MechanismSlot<M>) -> Self {
        let name = self.names(slot);
        self.spec.flow.at_server.push(name);
        self
    }

    /// As [`Declared::releases_at_server`]; the release of `other`, which is made in any case,
    /// covers what the server learns from these answers too.
    pub fn released_with<D2: Message, U2: Message, M: Message>(
        mut self,
        other: &Exchange<D2, U2>,
        slot: &MechanismSlot<M>,
    ) -> Self {
        self.spec.flow.released_with = Some(other.label());
        self.releases_at_server(slot)
    }

    /// Declares how many of the released votes one unit of data changes. A unit that `votes` leaves
    /// out has no bound, and therefore no price.
    pub fn changes_votes(mut self, votes: VoteSensitivity) -> Self {
        self.spec.votes = Some(votes);
        self
    }

    /// Declares that the server sends derived values back to clients before the server-side
    /// release.
    pub fn sent_back_unreleased(mut self) -> Self {
        self.spec.flow.sent_back_unreleased = true;
        self
    }

    /// Declares that the answer does not depend on the client's own data.
    pub fn public(mut self) -> Self {
        self.spec.flow.public = true;
        self
    }

    /// Makes each client with a part in `slot` an attacker: it sends the result of `forge` in place
    /// of its honest answer. The honest answer has already been released.
    pub fn forged_by<M: Message>(
        mut self,
        slot: &AttackSlot<M>,
        forge: impl Fn(&mut Client, &D, U) -> Result<U> + Send + Sync + 'p,
    ) -> Self {
        self.slots.push(slot.spec().for_some());
        let slot = slot.name();
        self.stage(move |client, sent, answer| {
            if client.has(slot) {
                forge(client, sent, answer)
            } else {
                Ok(answer)
            }
        })
    }

    /// Converts the answer with `make`, which does not see the client's data.
    pub fn sent_as(self, make: impl Fn(U) -> U + Send + Sync + 'p) -> Self {
        self.stage(move |_, _, answer| Ok(make(answer)))
    }
}

impl<'p> Declared<'p, Params, Params> {
    /// Releases the difference between the answer and the parameters that were sent, as
    /// [`Declared::releases`] does.
    pub fn releases_difference(self, slot: &MechanismSlot<Params>) -> Self {
        self.releases_as(
            slot,
            |sent, answer| answer.zip(sent, |w, g| w - g),
            |sent, _, update| sent.zip(&update, |g, u| g + u),
        )
    }
}
