//! What each observer of a run has seen without a price.

use super::federation::Federation;
use crate::message::Message;
use crate::privacy::{Exposed, Flow, Guarantee, Observer, Protection, Protections};
use crate::{Accountant, Ask, Asked, Needs, Parts, Problem, Protocol, Result, Slot};
use anyhow::bail;

/// What the protocol says of its questions and slots, and what was seen so far.
pub(crate) struct Observed {
    flows: Vec<(&'static str, Flow)>,
    slots: Vec<Slot>,
    pub exposed: Exposed,
}

impl Observed {
    pub fn new(protocol: &dyn Protocol) -> Self {
        let asked = protocol.questions().into_iter();
        Self {
            flows: asked.map(|asked| (asked.label, asked.flow)).collect(),
            slots: protocol.slots(),
            exposed: Exposed::default(),
        }
    }

    /// Of a question that the protocol does not list nothing is known, unless its answers say nothing.
    fn flow<D: Message, U: Message>(&self, ask: &Ask<D, U>) -> Flow {
        let listed = self.flows.iter().find(|(label, _)| *label == ask.label());
        listed.map_or_else(|| ask.asked().flow, |(_, flow)| flow.clone())
    }

    /// Does the mechanism in `slot` release anything?
    fn releases(&self, parts: &Parts, slot: &str) -> bool {
        let only_clips = |s: &Slot| s.name == slot && s.only_clips;
        parts.has(slot) && !self.slots.iter().any(only_clips)
    }
}

/// What observers of a run of this protocol will see without a price, as far as it says so before anything runs; `has` says
/// which slots are filled, `asked` whether a question will be asked.
pub fn exposed(
    protocol: &dyn Protocol,
    has: &dyn Fn(&str) -> bool,
    asked: &dyn Fn(&Asked) -> bool,
) -> Exposed {
    let slots = protocol.slots();
    let clips = |slot: &str| slots.iter().any(|s| s.name == slot && s.only_clips);
    let releases = |slot: &str| has(slot) && !clips(slot);
    let mut all = Exposed::default();
    for question in protocol.questions().iter().filter(|q| asked(q)) {
        all.add(&question.flow.open(&releases, false), &told(question.label));
    }
    for slot in slots.iter().filter(|slot| slot.shown) {
        if !slot.through.iter().any(|through| releases(through)) {
            all.add(&[Observer::Readers], &shown(slot.name));
        }
    }
    all
}

fn told(label: &str) -> String {
    format!("clients answer `{label}` without noise")
}

fn shown(slot: &str) -> String {
    format!("results show the clients' own models (`{slot}`)")
}

impl Federation<'_> {
    /// Says that these observers see `what` of clients' own data, and that nothing has priced it: nothing is guaranteed
    /// against them any more.
    ///
    /// # Errors
    /// [`Problem::Budget`] if there is a budget against one of them.
    pub fn expose(&mut self, to: &[Observer], what: &str) -> Result<()> {
        self.observed.exposed.add(to, what);
        match &self.budget {
            Some(budget) if to.contains(&(&budget.against).into()) => {
                bail!(Problem::Budget(format!(
                    "no budget can be kept against {}: {what}",
                    Observer::from(&budget.against)
                )))
            }
            _ => Ok(()),
        }
    }

    /// A question is about to be asked.
    pub(super) fn expose_answers<D: Message, U: Message>(
        &mut self,
        ask: &Ask<D, U>,
        needs: Needs,
    ) -> Result<()> {
        let flow = self.observed.flow(ask);
        let releases = |slot: &str| self.observed.releases(self.store.parts(), slot);
        let body = flow.open(&releases, false);
        let envelope = match needs.samples || needs.class_counts {
            true => flow.open(&releases, true),
            false => Vec::new(),
        };
        self.expose(&body, &told(ask.label()))?;
        let counts = match needs.class_counts {
            true => "how many examples of each class it has",
            false => "how many examples it has",
        };
        let counts = format!("beside `{}` a client tells {counts}", ask.label());
        self.expose(&envelope, &counts)
    }

    /// Results show the clients' models in `slot`.
    pub(super) fn expose_models(&mut self, slot: &str) -> Result<()> {
        let own = self.observed.slots.iter().find(|s| s.name == slot);
        let through = own.map(|s| s.through.clone()).unwrap_or_default();
        let priced = |slot: &&str| self.observed.releases(self.store.parts(), slot);
        match through.iter().any(priced) {
            true => Ok(()),
            false => self.expose(&[Observer::Readers], &shown(slot)),
        }
    }

    /// What is guaranteed so far, by observer; `None` without an accountant.
    ///
    /// # Errors
    /// When the accountant cannot say.
    pub fn protections(&self) -> Result<Option<Protections>> {
        let (Some(all), Some(of_clients)) = (&self.accountant, &self.of_clients) else {
            return Ok(None);
        };
        let against = |observer| {
            let nothing = self.observed.exposed.to(observer);
            if !nothing.is_empty() {
                return Ok((observer, Protection::Nothing { nothing }));
            }
            let seen: &dyn Accountant = match observer {
                Observer::Server => of_clients.as_ref(),
                Observer::Clients | Observer::Readers => all.as_ref(),
            };
            let guarantee: Guarantee = seen.guarantee(None)?;
            Ok((observer, Protection::Holds(guarantee)))
        };
        let all: Result<Protections> = Observer::ALL.into_iter().map(against).collect();
        all.map(Some)
    }
}
