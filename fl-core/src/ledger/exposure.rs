//! What each observer of a run has seen without a price.

use crate::privacy::{Guarantee, Observer, Protection, Protections, Unit, UnpricedDisclosures};
use crate::server::Server;
use crate::{
    Accountant, BuildContext, COUNTS, ExchangeSpec, Parts, Problem, Protocol, RequiredInputs,
    Result,
};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeSet;

/// Why a price that an accountant works out from the data is none.
pub(crate) const FOLLOWS_DATA: &str =
    "its price follows the data, and so tells something about them";

/// What the protocol declares of its exchanges, and what was seen so far.
pub(crate) struct ExposureTracker {
    exchanges: Vec<ExchangeSpec>,
    pub exposed: UnpricedDisclosures,
    /// Why an example is not one client's alone, if it is not.
    twice: Option<String>,
    /// Mechanisms of the server through which answers that it has must still be released.
    unreleased: BTreeSet<&'static str>,
}

impl ExposureTracker {
    pub fn new(protocol: &dyn Protocol) -> Self {
        Self {
            exchanges: protocol.exchanges(),
            exposed: UnpricedDisclosures::default(),
            twice: None,
            unreleased: BTreeSet::new(),
        }
    }

    /// What the protocol declares of an exchange.
    ///
    /// # Errors
    /// When it declares none of this label.
    pub fn exchange(&self, label: &str) -> Result<&ExchangeSpec> {
        let found = self.exchanges.iter().find(|spec| spec.label == label);
        found.with_context(|| format!("the protocol declares no exchange `{label}`"))
    }

    /// Takes note that the server releases something through `slot`.
    ///
    /// # Errors
    /// When no exchange declares it.
    pub fn released_at_server(&mut self, slot: &str) -> Result<()> {
        let mut exchanges = self.exchanges.iter();
        ensure!(
            exchanges.any(|spec| spec.flow.at_server.contains(&slot)),
            "the protocol declares no release through parts.{slot} at the server"
        );
        self.unreleased.remove(slot);
        Ok(())
    }

    /// The step in which they were collected is undone.
    pub fn forget_unreleased(&mut self) {
        self.unreleased.clear();
    }

    /// The slots of the selectors that pick clients.
    fn cohorts(&self) -> Vec<&'static str> {
        self.exchanges
            .iter()
            .filter_map(|spec| spec.cohort)
            .collect()
    }
}

/// What observers of a run of this protocol will see without a price, as far as it says so before anything runs. `parts` are
/// in its slots ([`Parts::in_slots`]).
pub fn exposed(
    protocol: &dyn Protocol,
    parts: &Parts,
    context: &BuildContext,
) -> UnpricedDisclosures {
    let releases = |slot: &str| parts.releases(slot);
    let mut all = UnpricedDisclosures::default();
    let declared = protocol.declare();
    if let Some(what) = &declared.begins_with {
        all.add(&Observer::ALL, what);
    }
    let questions = declared.into_exchanges().into_iter();
    for question in questions.filter(|asked| parts.asks(asked, context)) {
        all.add(&question.flow.open(&releases, false), &told(question.label));
        let needs = parts.told_beside(&question, context);
        for beside in beside(question.label, needs, &releases) {
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
fn beside(label: &str, needs: RequiredInputs, releases: &dyn Fn(&str) -> bool) -> Vec<String> {
    let counts = match (needs.samples, needs.class_counts) {
        _ if releases(&COUNTS) => None,
        (_, true) => Some("how many examples of each class it has"),
        (true, false) => Some("how many examples it has"),
        (false, false) => None,
    };
    // no mechanism hides it
    let loss = needs.training_loss.then_some("its training loss");
    let told = counts.into_iter().chain(loss);
    told.map(|what| format!("beside `{label}` a client tells {what}"))
        .collect()
}

fn told(label: &str) -> String {
    format!("clients answer `{label}` without noise")
}

fn shown(slot: &str) -> String {
    format!("results show the clients' own models (`{slot}`)")
}

impl Server<'_> {
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

    /// Says that a row is not one client's alone: no guarantee for one example can be given.
    pub fn owned_twice(&mut self, why: &str) {
        self.observed.twice = Some(why.into());
    }

    /// Requests of this exchange are about to be sent.
    pub(crate) fn expose_answers(
        &mut self,
        spec: &ExchangeSpec,
        needs: RequiredInputs,
    ) -> Result<()> {
        let (flow, label) = (&spec.flow, spec.label);
        let releases = |slot: &str| self.store.parts().releases(slot);
        let body = flow.open(&releases, false);
        let envelope = flow.open(&releases, true);
        let beside = beside(label, needs, &releases);
        let due = flow.at_server.iter().filter(|slot| releases(slot));
        self.observed.unreleased.extend(due);
        self.expose(&body, &told(label))?;
        beside
            .iter()
            .try_for_each(|beside| self.expose(&envelope, beside))
    }

    /// Every answer that was to be released at the server has been.
    ///
    /// # Errors
    /// When the protocol left one out.
    pub(crate) fn check_released(&self) -> Result<()> {
        match self.observed.unreleased.first() {
            None => Ok(()),
            Some(slot) => bail!(
                "the protocol declares a release through parts.{slot} at the server, and made none"
            ),
        }
    }

    /// Results show the clients' models in `slot`.
    pub(crate) fn expose_models(&mut self, slot: &str) -> Result<()> {
        let parts = self.store.parts();
        let own = parts.slots().iter().find(|s| s.name == slot);
        match own.is_some_and(|s| s.through.iter().any(|t| parts.releases(t))) {
            true => Ok(()),
            false => self.expose(&[Observer::Readers], &shown(slot)),
        }
    }

    /// What is guaranteed so far, by observer; `None` without an accountant.
    ///
    /// # Errors
    /// When the accountant cannot say.
    pub(crate) fn protections(&self) -> Result<Option<Protections>> {
        let (Some(all), Some(of_clients)) = (&self.accountant, &self.of_clients) else {
            return Ok(None);
        };
        let noise = self.noise.kind();
        let claimed_by = self.store.parts().claimed_by(&self.observed.cohorts());
        let of = |accountant: &dyn Accountant| -> Result<_> {
            let guarantee = Guarantee {
                noise,
                after_split: self.after_split,
                claimed_by: claimed_by.clone(),
                ..accountant.guarantee(None)?
            };
            if let (Some(twice), Unit::Example) = (&self.observed.twice, guarantee.unit) {
                return Ok(Protection::nothing(vec![twice.clone()]));
            }
            Ok(match guarantee.data_dependent {
                _ if !guarantee.epsilon.is_finite() => {
                    let infinite = "a release has an infinite price";
                    Protection::nothing(vec![infinite.into()])
                }
                false => Protection::Holds(guarantee),
                true => Protection::Nothing {
                    nothing: vec![FOLLOWS_DATA.into()],
                    of_these_data: Some(Box::new(guarantee)),
                },
            })
        };
        // clients and readers are shown what the server lets go, so one answer serves both
        let mut shown = None;
        let mut against = |observer| {
            let nothing = self.observed.exposed.to(observer);
            if !nothing.is_empty() {
                return Ok((observer, Protection::nothing(nothing)));
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
