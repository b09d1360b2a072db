//! What a protocol declares: its slots and its exchanges. The core executes what is declared.

use crate::exchange::spec::{AggregatorUse, Exchange, ExchangeSpec};
use crate::message::{Ids, Message, Params, Scalar, VoteSensitivity};
use crate::privacy::MinibatchSampling;
use crate::{
    ACCOUNTANT, AggregatorSlot, Answer, AttackSlot, COUNTS, Client, MechanismSlot, Request, Result,
    Role, Roster, SelectorSlot, Slot, SlotKind, SlotSpec, TrainerSlot,
};
use anyhow::bail;

/// Makes a client's answer to a request.
type AnswerFn<'p> =
    Box<dyn Fn(&ExchangeSpec, &mut Client, Request<'_>) -> Result<Answer> + Send + Sync + 'p>;

/// A client's own code for one exchange.
type Handler<'p, D, U> = Box<dyn Fn(&mut Client, &D) -> Result<U> + Send + Sync + 'p>;

/// One thing that happens to a client's answer before it leaves.
type Stage<'p, D, U> = Box<dyn Fn(&mut Client, &D, U) -> Result<U> + Send + Sync + 'p>;

/// Shows a client's answer to an attack on the run.
type Watch<'p> = Box<dyn Fn(&mut Client, &Answer) -> Result<()> + Send + Sync + 'p>;

/// The slots and exchanges of a protocol, set as it is.
#[derive(Default)]
pub struct Declaration<'p> {
    /// What a spec must fill.
    pub slots: Vec<SlotSpec>,
    exchanges: Vec<(ExchangeSpec, AnswerFn<'p>)>,
    watch: Option<Watch<'p>>,
    /// The setting that gives the number of rounds and nothing else, see [`Declaration::grows_by`].
    pub grows: Option<&'static str>,
    /// What the run begins with that has no price, see [`Declaration::begins_with`].
    pub begins_with: Option<String>,
    /// See [`Declaration::pools_data`].
    pub pooled: bool,
}

impl<'p> Declaration<'p> {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a loaded protocol declares; its clients answer by `answer`.
    pub(crate) fn of_specs(
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
    pub(crate) fn specs(&self) -> impl Iterator<Item = &ExchangeSpec> {
        self.exchanges.iter().map(|(spec, _)| spec)
    }

    /// Adds a slot. The slots that exchanges name are added with them, so this is for models, for
    /// parts that the server uses between exchanges, and for slots that differ from their default.
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

    /// Adds an exchange, and the slots that it names. One that releases something brings the slot
    /// of the accountant, and one with an aggregator that of the counts of a priced run.
    pub fn exchange<D: Message, U: Message>(mut self, exchange: Declared<'p, D, U>) -> Self {
        let Declared {
            spec,
            slots,
            draws,
            answer,
            stages,
        } = exchange;
        for slot in slots {
            self.also(slot);
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

    /// Adds an exchange if `there` is one.
    pub fn exchange_if<D: Message, U: Message>(
        self,
        there: bool,
        exchange: impl FnOnce() -> Declared<'p, D, U>,
    ) -> Self {
        match there {
            true => self.exchange(exchange()),
            false => self,
        }
    }

    /// The setting that gives the number of rounds and nothing else: a run of more of them begins
    /// as one of fewer does, bit for bit, so a finished run can be given more.
    pub fn grows_by(mut self, setting: &'static str) -> Self {
        self.grows = Some(setting);
        self
    }

    /// The run begins with something that may have been learnt from clients' data and that nothing
    /// in it prices.
    pub fn begins_with(mut self, what: Option<String>) -> Self {
        self.begins_with = what;
        self
    }

    /// The run takes place on one client that has everybody's data (the centralised baseline).
    pub fn pools_data(mut self) -> Self {
        self.pooled = true;
        self
    }

    /// Shows every answer of a client to `watch` before it leaves, for attacks on a run.
    pub fn watched(
        mut self,
        watch: impl Fn(&mut Client, &Answer) -> Result<()> + Send + Sync + 'p,
    ) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }

    /// The slots, with those of the accountant and of the counts where there must be some.
    pub fn into_slots(mut self) -> Vec<SlotSpec> {
        let releases = |slot: &SlotSpec| slot.role == Role::Privacy;
        if self.slots.iter().any(releases) {
            if self.exchanges.iter().any(|(e, _)| e.aggregator.is_some()) {
                self.also(COUNTS.spec());
            }
            self.also(ACCOUNTANT.spec());
        }
        self.slots
    }

    /// The exchanges.
    pub fn into_exchanges(self) -> Vec<ExchangeSpec> {
        self.exchanges.into_iter().map(|(spec, _)| spec).collect()
    }

    /// A client's answer to a request.
    ///
    /// # Errors
    /// When the exchange is not declared, or the client cannot answer.
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

/// An exchange with all that is true of it, see [`Exchange::answered_by`].
pub struct Declared<'p, D, U> {
    spec: ExchangeSpec,
    slots: Vec<SlotSpec>,
    draws: Option<MechanismSlot<Ids>>,
    answer: Handler<'p, D, U>,
    stages: Vec<Stage<'p, D, U>>,
}

impl<D: Message, U: Message> Exchange<D, U> {
    /// Declares the exchange: a client answers it with `answer`.
    ///
    /// A declaration says nothing of releases until it names a mechanism: all observers then see
    /// an answer without a price, unless it is empty.
    pub fn answered_by<'p>(
        &self,
        answer: impl Fn(&mut Client, &D) -> Result<U> + Send + Sync + 'p,
    ) -> Declared<'p, D, U> {
        Declared {
            spec: self.spec(),
            slots: Vec::new(),
            draws: None,
            answer: Box::new(answer),
            stages: Vec::new(),
        }
    }
}

impl Exchange<Params, Scalar> {
    /// Declares the mean loss of the model in `slot`, with the parameters that are sent, on a
    /// client's own examples. A selector of clients may request it.
    pub fn is_loss_of<'p>(&self, slot: &TrainerSlot) -> Declared<'p, Params, Scalar> {
        let slot = *slot;
        self.answered_by(move |client, params| {
            client.parametric(&slot)?.set_params(params)?;
            client.own_loss(&slot).map(|loss| Scalar::new(loss as f32))
        })
    }
}

// who takes part, how often, about what
impl<'p, D: Message, U: Message> Declared<'p, D, U> {
    fn names<K: SlotKind + ?Sized>(&mut self, slot: &Slot<K>) -> &'static str {
        self.slots.push(slot.spec());
        slot.name()
    }

    /// The selector in `cohort` picks the clients.
    pub fn to(mut self, cohort: &SelectorSlot<Roster>) -> Self {
        self.spec.cohort = Some(self.names(cohort));
        self
    }
    /// The client trains a model on its own examples for the answer ([`Client::fit_own`],
    /// [`Client::fit_examples`]). An aggregator of the answers may then request the mean loss of
    /// that training ([`crate::RequiredInputs::training_loss`]).
    pub fn trains(mut self) -> Self {
        self.spec.trains = true;
        self
    }
    /// It takes place `times` times.
    pub fn times(mut self, times: usize) -> Self {
        self.spec.times = times;
        self
    }
    /// It is about `rows` samples.
    pub fn rows(mut self, rows: usize) -> Self {
        self.spec.rows = rows;
        self
    }
    /// It is about all public samples.
    pub fn all_public(self) -> Self {
        self.rows(usize::MAX)
    }
    /// It is about `rows` samples that are made during the run, whatever the public data.
    pub fn made(mut self, rows: usize) -> Self {
        self.spec.made = true;
        self.rows(rows)
    }
    /// `voices` models or voters speak in one answer.
    pub fn voices(mut self, voices: usize) -> Self {
        self.spec.voices = voices;
        self
    }
    /// `copies` messages, such as models, travel to a client in one.
    pub fn copies(mut self, copies: usize) -> Self {
        self.spec.copies = copies;
        self
    }
    /// Parameters that travel are those of the model in `slot`.
    pub fn model<K: ?Sized>(mut self, slot: &Slot<K>) -> Self {
        self.spec.model = slot.name();
        self
    }
    /// It takes place only if the part in `slot` requests it, such as a selector that picks
    /// clients by their loss.
    pub fn if_requested_by<K: SlotKind + ?Sized>(mut self, slot: &Slot<K>) -> Self {
        self.spec.requested_by = Some(self.names(slot));
        self
    }
    /// It takes place only if `slot` is filled.
    pub fn if_filled<K: SlotKind + ?Sized>(mut self, slot: &Slot<K>) -> Self {
        self.spec.needs = Some(self.names(slot));
        self
    }
    /// It takes place only if `slot` is empty.
    pub fn unless_filled<K: SlotKind + ?Sized>(mut self, slot: &Slot<K>) -> Self {
        self.spec.unless = Some(self.names(slot));
        self
    }
    /// The aggregator in `slot` combines the answers, maybe in another form (`V`). It may request
    /// counts and training losses beside them.
    pub fn into<V: Message, O: Message>(mut self, slot: &AggregatorSlot<V, O>) -> Self {
        self.spec.aggregator = Some(AggregatorUse {
            slot: self.names(slot),
        });
        self
    }
    /// The protocol itself needs the number of examples of each class at the senders
    /// ([`crate::ClientMessage::class_counts`]), if `wanted`.
    pub fn with_class_counts_if(mut self, wanted: bool) -> Self {
        self.spec.class_counts = wanted;
        self
    }
}

// how the answer depends on a client's own data, and what hides it
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

    /// The answer leaves the client through the mechanism in `slot`, if there is one: clip, price,
    /// check the budget, perturb.
    pub fn releases(mut self, slot: &MechanismSlot<U>) -> Self {
        self.released(slot);
        let slot = *slot;
        self.stage(move |client, _, mut answer| {
            client.release(&slot, &mut answer)?;
            Ok(answer)
        })
    }

    /// As [`Declared::releases`], of what `take` takes from the answer, in place of which `put`
    /// puts what is released.
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

    /// The client's own code releases through the mechanism in `slot` ([`Client::release`]), such
    /// as counts that it learns from. An answer that did not is an error.
    pub fn releases_within<M: Message>(mut self, slot: &MechanismSlot<M>) -> Self {
        self.released(slot);
        self
    }

    /// The answer is made of these training steps. What each step sees of the client's examples is
    /// released through the mechanism in `slot` ([`Client::release_steps`]).
    pub fn releases_steps<M: Message>(
        mut self,
        slot: &MechanismSlot<M>,
        lots: MinibatchSampling,
    ) -> Self {
        self.spec.flow.steps = Some((self.released(slot), lots));
        self
    }

    /// The mechanism in `slot` bounds the answer and never adds noise. `agreed` is the bound that
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

    /// The client's private sample is drawn through the mechanism in `slot` before it answers.
    /// The answer depends on the client's data through that sample only.
    pub fn draws(mut self, slot: &MechanismSlot<Ids>) -> Self {
        self.draws = Some(*slot);
        self.through(slot)
    }

    /// The answer depends on the client's own data only through what the mechanism in `slot` let
    /// through before.
    pub fn through<M: Message>(mut self, slot: &MechanismSlot<M>) -> Self {
        let name = self.names(slot);
        self.spec.flow.through.push(name);
        self
    }

    /// The answer is post-processing of a model that was trained through the mechanism in `slot`.
    pub fn learnt_through<M: Message>(mut self, slot: &MechanismSlot<M>) -> Self {
        let name = self.names(slot);
        self.spec.flow.learnt_through.push(name);
        self
    }

    /// If `slot` is filled, part of the answer bypasses the release mechanism.
    pub fn beside<K: SlotKind + ?Sized>(mut self, slot: &Slot<K>) -> Self {
        let name = self.names(slot);
        self.spec.flow.beside.push(name);
        self
    }

    /// Part of the answer bypasses the release mechanism, if `partly`.
    pub fn partly_if(mut self, partly: bool) -> Self {
        self.spec.flow.partly = partly;
        self
    }

    /// The server releases what it makes of the answers through the mechanism in `slot`, before
    /// another observer sees it: [`crate::Server::run`] does, or [`crate::Server::release`].
    pub fn releases_at_server<M: Message>(mut self, slot: &MechanismSlot<M>) -> Self {
        let name = self.names(slot);
        self.spec.flow.at_server.push(name);
        self
    }

    /// One unit of data changes this many votes of the counts that are released. For a unit that
    /// `votes` leaves out there is no bound, and no price.
    pub fn changes_votes(mut self, votes: VoteSensitivity) -> Self {
        self.spec.votes = Some(votes);
        self
    }

    /// The server sends derived values back to clients before the server-side release.
    pub fn sent_back_unreleased(mut self) -> Self {
        self.spec.flow.sent_back_unreleased = true;
        self
    }

    /// The answer does not depend on the client's own data.
    pub fn public(mut self) -> Self {
        self.spec.flow.public = true;
        self
    }

    /// A client that has a part in `slot` is an attacker: it sends what `forge` makes of its honest
    /// answer, which was released before.
    pub fn forged_by<M: Message>(
        mut self,
        slot: &AttackSlot<M>,
        forge: impl Fn(&mut Client, &D, U) -> Result<U> + Send + Sync + 'p,
    ) -> Self {
        self.slots.push(slot.spec().for_some());
        let slot = slot.name();
        self.stage(move |client, sent, answer| match client.has(slot) {
            true => forge(client, sent, answer),
            false => Ok(answer),
        })
    }

    /// `make` changes the form of an answer without a look at the client's data.
    pub fn sent_as(self, make: impl Fn(U) -> U + Send + Sync + 'p) -> Self {
        self.stage(move |_, _, answer| Ok(make(answer)))
    }
}

impl<'p> Declared<'p, Params, Params> {
    /// As [`Declared::releases`], of the difference between the answer and the parameters that were
    /// sent.
    pub fn releases_difference(self, slot: &MechanismSlot<Params>) -> Self {
        self.releases_as(
            slot,
            |sent, answer| answer.zip(sent, |w, g| w - g),
            |sent, _, update| sent.zip(&update, |g, u| g + u),
        )
    }
}
