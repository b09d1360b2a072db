//! What each observer of a run has seen without a price.

use super::federation::Federation;
use crate::message::Message;
use crate::privacy::{Exposed, Flow, Guarantee, Observer, Protection, Protections, Unit};
use crate::{Accountant, Ask, Asked, BuildContext, Needs, Parts, Problem, Protocol, Result, Slot};
use anyhow::bail;

/// What the protocol says of its questions, and what was seen so far.
pub(crate) struct Observed {
    asked: Vec<Asked>,
    pub exposed: Exposed,
}

impl Observed {
    pub fn new(protocol: &dyn Protocol) -> Self {
        Self {
            asked: protocol.questions(),
            exposed: Exposed::default(),
        }
    }

    fn asked(&self, label: &str) -> Option<&Asked> {
        self.asked.iter().find(|asked| asked.label == label)
    }

    /// Of a question that the protocol does not list nothing is known, unless its answers say nothing.
    fn flow<D: Message, U: Message>(&self, ask: &Ask<D, U>) -> Flow {
        let listed = self.asked(ask.label());
        listed.map_or_else(|| ask.asked().flow, |asked| asked.flow.clone())
    }

    /// The slot of the model whose parameters travel with this question, if parameters do.
    pub fn model(&self, label: &str) -> &'static str {
        self.asked(label).map_or("model", |asked| asked.model)
    }

    /// Does the protocol itself want to know how many examples of each class the senders have?
    pub fn counts(&self, label: &str) -> bool {
        self.asked(label).is_some_and(|asked| asked.class_counts)
    }
}

/// What observers of a run of this protocol will see without a price, as far as it says so before anything runs. `parts` are
/// in its slots ([`Parts::in_slots`]).
pub fn exposed(protocol: &dyn Protocol, parts: &Parts, context: &BuildContext) -> Exposed {
    let releases = |slot: &str| parts.releases(slot);
    let mut all = Exposed::default();
    if let Some(what) = protocol.begins_with() {
        all.add(&Observer::ALL, &what);
    }
    let questions = protocol.questions().into_iter();
    for question in questions.filter(|asked| parts.asks(asked, context)) {
        all.add(&question.flow.open(&releases, false), &told(question.label));
        let needs = parts.told_beside(&question, context);
        if let Some(beside) = beside(question.label, needs, &releases) {
            all.add(&question.flow.open(&releases, true), &beside);
        }
    }
    for slot in parts.slots().iter().filter(|slot| slot.shown) {
        if !slot.through.iter().any(|through| releases(through)) {
            all.add(&[Observer::Readers], &shown(slot.name));
        }
    }
    all
}

/// What the envelopes of the answers to a question tell without a price.
fn beside(label: &str, needs: Needs, releases: &dyn Fn(&str) -> bool) -> Option<String> {
    let counts = match (needs.samples, needs.class_counts) {
        _ if releases(Slot::COUNTS) => return None,
        (_, true) => "how many examples of each class it has",
        (true, false) => "how many examples it has",
        (false, false) => return None,
    };
    Some(format!("beside `{label}` a client tells {counts}"))
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
    /// [`Problem::Unpriced`] if there is a budget against one of them.
    pub fn expose(&mut self, to: &[Observer], what: &str) -> Result<()> {
        self.observed.exposed.add(to, what);
        match &self.budget {
            Some(budget) if to.contains(&(&budget.against).into()) => {
                bail!(Problem::Unpriced(format!(
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
        let releases = |slot: &str| self.store.parts().releases(slot);
        let body = flow.open(&releases, false);
        let envelope = flow.open(&releases, true);
        let beside = beside(ask.label(), needs, &releases);
        self.expose(&body, &told(ask.label()))?;
        match beside {
            Some(beside) => self.expose(&envelope, &beside),
            None => Ok(()),
        }
    }

    /// Results show the clients' models in `slot`.
    pub(super) fn expose_models(&mut self, slot: &str) -> Result<()> {
        let parts = self.store.parts();
        let own = parts.slots().iter().find(|s| s.name == slot);
        match own.is_some_and(|s| s.through.iter().any(|t| parts.releases(t))) {
            true => Ok(()),
            false => self.expose(&[Observer::Readers], &shown(slot)),
        }
    }

    /// Whose presence is hidden by what was released so far; `None` if nobody accounts.
    ///
    /// # Errors
    /// When the accountant cannot say.
    pub fn hides(&self) -> Result<Option<Unit>> {
        let accountant = self.accountant.as_ref();
        let guarantee = accountant.map(|a| a.guarantee(None)).transpose()?;
        Ok(guarantee.map(|g| g.unit))
    }

    /// What is guaranteed so far, by observer; `None` without an accountant.
    ///
    /// # Errors
    /// When the accountant cannot say.
    pub fn protections(&self) -> Result<Option<Protections>> {
        let (Some(all), Some(of_clients)) = (&self.accountant, &self.of_clients) else {
            return Ok(None);
        };
        let noise = self.noise.kind();
        let of = |accountant: &dyn Accountant| -> Result<_> {
            let guarantee = accountant.guarantee(None)?;
            Ok(match guarantee.epsilon.is_finite() {
                true => Protection::Holds(Guarantee { noise, ..guarantee }),
                false => Protection::Nothing {
                    nothing: vec!["what was released has an infinite price".into()],
                },
            })
        };
        // clients and readers are shown what the server lets go, so one answer serves both
        let mut shown = None;
        let mut against = |observer| {
            let nothing = self.observed.exposed.to(observer);
            if !nothing.is_empty() {
                return Ok((observer, Protection::Nothing { nothing }));
            }
            let holds = match (observer, &shown) {
                (Observer::Server, _) => of(of_clients.as_ref())?,
                (_, Some(holds)) => Protection::clone(holds),
                _ => shown.insert(of(all.as_ref())?).clone(),
            };
            Ok((observer, holds))
        };
        let all: Result<Protections> = Observer::ALL.into_iter().map(&mut against).collect();
        all.map(Some)
    }
}
