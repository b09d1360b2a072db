//! [`Parts`]: the parts that fill the slots of a run.

use crate::message::{Counts, Message, MessageType, Params, SampleShape, Votes, message_type};
use crate::plugin_decl::{
    BuildContext, CheckedSettings, PartDecl, Role, Roster, aggregator_signature, linked_parts,
};
use crate::roles::before_aggregator::put_before;
use crate::{
    Aggregator, AnyAggregator, AnyMechanism, BEFORE_AGGREGATOR, BoxedPart, Candidate, ClientId,
    ExchangeSpec, PrivacyMechanism, RequiredInputs, Result, Round, Selector, SlotSpec, Task,
};
use anyhow::{Context, anyhow};
use std::any::Any;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// One part of a spec, which fills a slot for all clients or for some.
#[derive(Clone)]
pub struct SlotAssignment {
    /// The slot.
    pub slot: String,
    /// The clients that it is for; `None` for all.
    pub clients: Option<Vec<RangeInclusive<ClientId>>>,
    /// The part.
    pub decl: &'static PartDecl,
    /// What it is made from.
    pub settings: CheckedSettings,
}

/// The parts that fill the slots of a run.
#[derive(Clone, Default)]
pub struct Parts {
    filled: Vec<SlotAssignment>,
    slots: Vec<SlotSpec>,
    protocols: Vec<&'static PartDecl>,
}

/// An aggregator of `I` to `O`.
pub type BoxedAggregator<I, O> = Box<dyn Aggregator<In = I, Out = O>>;
/// A selector of `P`.
pub type BoxedSelector<P> = Box<dyn Selector<Pool = P>>;
/// A privacy mechanism on `M`.
pub type BoxedMechanism<M> = Box<dyn PrivacyMechanism<On = M>>;

fn counts_votes(aggregator: &PartDecl) -> bool {
    (aggregator.describe)().signature == aggregator_signature::<Votes, Counts>()
}

impl Parts {
    /// Collects parts whose settings and signatures have been checked.
    pub fn new(filled: Vec<SlotAssignment>) -> Self {
        Self {
            filled,
            slots: Vec::new(),
            protocols: Vec::new(),
        }
    }

    /// Names the protocols whose declarations the guarantee relies on.
    pub fn led_by(mut self, protocols: Vec<&'static PartDecl>) -> Self {
        self.protocols = protocols;
        self
    }

    /// Returns the parts in the slots of a protocol, which define lifetimes and tasks. Used by
    /// hosts.
    pub fn in_slots(&self, slots: Vec<SlotSpec>) -> Self {
        Self {
            filled: self.filled.clone(),
            slots,
            protocols: self.protocols.clone(),
        }
    }

    /// Returns every part, in the order of the spec.
    pub fn iter(&self) -> std::slice::Iter<'_, SlotAssignment> {
        self.filled.iter()
    }

    /// Returns whether this slot is filled.
    pub fn has(&self, slot: &str) -> bool {
        self.filled.iter().any(|f| f.slot == slot)
    }

    /// Returns whether this slot is filled for this client.
    pub fn has_for(&self, slot: &str, client: ClientId) -> bool {
        self.of(slot, Some(client)).is_some()
    }

    /// Returns the clients that have a part in this slot, such as `sign-flip for clients 0-1`.
    pub fn who(&self, slot: &str) -> Vec<String> {
        let of_slot = self.filled.iter().filter(|f| f.slot == slot);
        let named = of_slot.map(|f| {
            let group = |r: &RangeInclusive<ClientId>| {
                if r.start() == r.end() {
                    r.start().to_string()
                } else {
                    format!("{}-{}", r.start(), r.end())
                }
            };
            match &f.clients {
                Some(groups) => {
                    let groups: Vec<String> = groups.iter().map(group).collect();
                    format!("`{}` for clients {}", f.decl.name, groups.join(", "))
                }
                None => format!("`{}` for all clients", f.decl.name),
            }
        });
        named.collect()
    }

    /// Returns the libraries that a guarantee rests on: those of the protocol and of all loaded
    /// parts. A part may keep a row in memory that its library shares among clients, or between
    /// clients and server. Only an aggregator sees nothing but released messages, if it is in
    /// processes of its own ([`PartDecl::confined`]), its library has no other part of the run, it
    /// counts no votes, and it is in no slot of `relied_on` ([`ExchangeSpec::relied_on`]).
    pub fn claimed_by(&self, relied_on: &[&str]) -> Vec<String> {
        let linked = linked_parts();
        let loaded = |of: &PartDecl| !linked.iter().any(|part| std::ptr::eq(*part, of));
        // how many counts a vote changes is the word of the part that counts it
        let sees_releases_only = |f: &&SlotAssignment| {
            let combines = f.decl.role == Role::Aggregator && !counts_votes(f.decl);
            combines && f.decl.confined && !relied_on.contains(&&f.slot[..])
        };
        let rests_on = self.filled.iter().filter(|f| !sees_releases_only(f));
        let all = rests_on.map(|f| f.decl);
        let all = all.chain(self.protocols.iter().copied());
        let all: BTreeSet<&str> = all
            .filter(|of| loaded(of))
            .map(|decl| decl.origin)
            .collect();
        all.into_iter().map(String::from).collect()
    }

    /// Returns the name of the server's part in this slot, and the crate, library or module that it
    /// is from.
    pub(crate) fn named(&self, slot: &str) -> Option<(&'static str, &'static str)> {
        let filled = self.find(slot, None).ok()?;
        Some((filled.decl.name, filled.decl.origin))
    }

    /// Returns what the protocol declares of this slot.
    pub(crate) fn slot(&self, name: &str) -> Option<&SlotSpec> {
        self.slots.iter().find(|s| s.name == name)
    }

    /// Returns whether clients keep the part in this slot between requests, see
    /// [`SlotSpec::lasting`].
    pub fn lasts(&self, slot: &str) -> bool {
        self.slot(slot).is_none_or(|s| s.lasts)
    }

    /// Returns whether the mechanism in this slot, if any, releases something, see
    /// [`SlotSpec::only_clips`].
    pub fn releases(&self, slot: &str) -> bool {
        self.has(slot) && self.slot(slot).is_none_or(|s| !s.only_clips)
    }

    /// Returns the slots of the protocol ([`Parts::in_slots`]).
    pub(crate) fn slots(&self) -> &[SlotSpec] {
        &self.slots
    }

    /// Returns the task of a part in this slot in a run with this task.
    pub fn task(&self, slot: &str, task: &Task) -> Task {
        self.slot(slot)
            .map_or_else(|| task.clone(), |s| s.task.of(task))
    }

    /// Does a mechanism in `slot`, of any client, require all clients to share a range
    /// ([`crate::PrivacyMechanism::range`])? The question is put for a made-up message of this
    /// type.
    ///
    /// # Errors
    /// If a part cannot be made.
    pub(crate) fn range_of(
        &self,
        of: &'static MessageType,
        slot: &str,
        context: &BuildContext,
    ) -> Result<bool> {
        let mut draws = context.stream.child("range", 0).draws();
        let number = |draws: &mut crate::Draws| draws.normal() as f32;
        let classes = context.task.kind.outputs();
        let mut outline = SampleShape::new(1, &number, &mut draws).fixed(&[0, 1], classes, 1);
        let Some(message) = of.sample(&mut outline) else {
            return Ok(self.has(slot));
        };
        for filled in self.filled.iter().filter(|f| f.slot == slot) {
            let client = filled.clients.iter().flatten().next();
            let client = client.map(|range| *range.start());
            let part: Box<dyn AnyMechanism> = self.build(Role::Privacy, slot, client, context)?;
            if part.range(&*message).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the exchange takes place. An exchange that depends on a part's request takes
    /// place if the part in its slot makes such requests. The slots must be known
    /// ([`Parts::in_slots`]).
    pub fn asks(&self, asked: &ExchangeSpec, context: &BuildContext) -> bool {
        let filled = |slot: Option<&str>| slot.is_none_or(|slot| self.has(slot));
        let empty = asked.unless.is_none_or(|slot| !self.has(slot));
        empty
            && filled(asked.needs)
            && asked
                .requested_by
                .is_none_or(|slot| self.wants(slot, context))
    }

    /// Returns how many clients the selector in `slot` picks, at least and at most, in up to 32 of
    /// `times` rounds: its cohorts are drawn as in a run. `None` if it must see more than there is
    /// before a run.
    pub fn cohort_sizes(
        &self,
        slot: &str,
        times: usize,
        roster: &Roster,
        context: &BuildContext,
    ) -> Option<RangeInclusive<usize>> {
        const DRAWS: usize = 32;
        let mut selector: BoxedSelector<Roster> =
            self.build(Role::Selector, slot, None, context).ok()?;
        let (mut least, mut most) = (usize::MAX, 0);
        for round in 0..times.clamp(1, DRAWS) {
            let stream = context.stream.child(slot, round as u64);
            let round = Round::first().with_stream(stream);
            // one that asks clients first decides by what they say
            if selector.poll(&round, roster).ok()?.is_some() {
                return None;
            }
            let picked = selector.select(&round, roster).ok()?.len();
            (least, most) = (least.min(picked), most.max(picked));
        }
        Some(least..=most)
    }

    /// Returns the inputs that the aggregator in this slot requires besides the messages; none if
    /// that is unknown before a run.
    pub fn needs(&self, slot: &str, context: &BuildContext) -> RequiredInputs {
        let part = self.build::<Box<dyn AnyAggregator>>(Role::Aggregator, slot, None, context);
        part.map(|part| part.needs()).unwrap_or_default()
    }

    /// Returns the numbers that clients send with the answers of this exchange: those that the
    /// aggregator or the protocol requires, as far as that is known before a run.
    pub fn envelope_needs(&self, asked: &ExchangeSpec, context: &BuildContext) -> RequiredInputs {
        let needs = asked.aggregator.map(|slot| self.needs(slot, context));
        let needs = needs.unwrap_or_default();
        RequiredInputs {
            class_counts: needs.class_counts || asked.class_counts,
            ..needs
        }
    }

    /// Returns whether clients send their number of examples with the answers of this exchange, as
    /// far as that is known before a run.
    pub fn sends_class_counts(&self, asked: &ExchangeSpec, context: &BuildContext) -> bool {
        let needs = self.envelope_needs(asked, context);
        needs.samples || needs.class_counts
    }

    fn wants(&self, name: &str, context: &BuildContext) -> bool {
        let Some(slot) = self.slot(name).filter(|_| self.has(name)) else {
            return false;
        };
        match slot.role {
            Role::Privacy => {
                // without a known message type, assume that it does
                let of = message_type(&slot.signature);
                of.is_none_or(|of| self.range_of(of, name, context).unwrap_or(true))
            }
            Role::Selector => {
                let pool = [Candidate::new(0), Candidate::new(1)];
                let selector = self.build::<BoxedSelector<Roster>>(slot.role, name, None, context);
                selector
                    .is_ok_and(|mut s| s.poll(&Round::first(), &pool).is_ok_and(|p| p.is_some()))
            }
            _ => true,
        }
    }

    fn of(&self, slot: &str, client: Option<ClientId>) -> Option<&SlotAssignment> {
        let mut of_slot = self.filled.iter().filter(|f| f.slot == slot);
        of_slot.find(|f| match (&f.clients, client) {
            (Some(groups), Some(id)) => groups.iter().any(|g| g.contains(&id)),
            (Some(_), None) => false,
            (None, _) => true,
        })
    }

    /// Puts the step in [`BEFORE_AGGREGATOR`], if any, before an aggregator of parameters.
    fn behind_step(
        &self,
        made: Box<dyn Any + Send>,
        context: &BuildContext,
    ) -> Result<Box<dyn Any + Send>> {
        let Some(step) = self.of(&BEFORE_AGGREGATOR, None) else {
            return Ok(made);
        };
        let rule = match made.downcast::<Box<dyn AnyAggregator>>() {
            Ok(rule) => *rule,
            Err(other) => return Ok(other),
        };
        if (rule.input().kind, rule.output().kind) != (Params::KIND, Params::KIND) {
            return Ok(Box::new(rule));
        }
        let own = BuildContext {
            stream: context.stream.child(&BEFORE_AGGREGATOR, 0),
            ..context.clone()
        };
        let (before, rule) = (BoxedPart::cast(step.make(&own)?), rule.cast());
        let before = before.ok_or_else(|| step.misfit(Role::Aggregator))?;
        let rule = rule.context("an aggregator of other messages than it says")?;
        let both = put_before(before, rule).with_context(|| step.who())?;
        Ok(Box::new(both))
    }

    fn find(&self, slot: &str, client: Option<ClientId>) -> Result<&SlotAssignment> {
        self.of(slot, client).with_context(|| match client {
            Some(id) => format!("parts.{slot} has nothing for client {id}"),
            None => format!(
                "parts.{slot} has nothing for the server; leave out `clients` in one of its parts"
            ),
        })
    }

    /// Makes the part in `slot`, for the server or for a client, as a boxed trait object of `role`
    /// such as [`BoxedSelector`].
    ///
    /// # Errors
    /// If the slot is empty, or its part is of another kind or cannot be made.
    pub fn build<B: BoxedPart>(
        &self,
        role: Role,
        slot: &str,
        client: Option<ClientId>,
        context: &BuildContext,
    ) -> Result<B> {
        let filled = self.find(slot, client)?;
        let mut made = filled.make(context)?;
        if role == Role::Aggregator && slot != BEFORE_AGGREGATOR.name() {
            made = self.behind_step(made, context)?;
        }
        B::cast(made).ok_or_else(|| filled.misfit(role))
    }
}

// not generic, so it is compiled once for parts of every type
impl SlotAssignment {
    fn who(&self) -> String {
        format!(
            "parts.{} ({} `{}`)",
            self.slot, self.decl.role, self.decl.name
        )
    }

    fn make(&self, context: &BuildContext) -> Result<Box<dyn Any + Send>> {
        self.settings.build(context).with_context(|| self.who())
    }

    fn misfit(&self, wanted: Role) -> anyhow::Error {
        let why = if self.decl.role == wanted {
            format!(": it is {}", (self.decl.describe)().signature)
        } else {
            format!(", which takes {}", wanted.with_article())
        };
        anyhow!("does not fit this slot{why}").context(self.who())
    }
}
