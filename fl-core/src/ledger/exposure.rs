//! [`ExposureTracker`]: the unpriced disclosures to each observer of a run.

use crate::privacy::{Guarantee, Observer, Protection, Protections, Unit, UnpricedDisclosures};
use crate::server::Server;
use crate::{
    Accountant, BuildContext, COUNTS, ExchangeSpec, Parts, Problem, Protocol, RequiredInputs,
    Result,
};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeSet;

/// Why a data-dependent price of an accountant does not count.
pub(crate) const FOLLOWS_DATA: &str =
    "its price follows the data, and so tells something about them";

/// The declared exchanges of a protocol, and the disclosures so far.
pub(crate) struct ExposureTracker {
    exchanges: Vec<ExchangeSpec>,
    pub exposed: UnpricedDisclosures,
    /// Why a row may belong to two clients, if so.
    twice: Option<String>,
    /// Mechanisms of the server that must still release collected answers.
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

    /// Returns the declaration of an exchange.
    ///
    /// # Errors
    /// If the protocol declares no exchange with this label.
    pub fn exchange(&self, label: &str) -> Result<&ExchangeSpec> {
        let found = self.exchanges.iter().find(|spec| spec.label == label);
        found.with_context(|| format!("the protocol declares no exchange `{label}`"))
    }

    /// Records that the server releases something through `slot`.
    ///
    /// # Errors
    /// If no exchange declares it.
    pub fn released_at_server(&mut self, slot: &str) -> Result<()> {
        let mut exchanges = self.exchanges.iter();
        ensure!(
            exchanges.any(|spec| spec.flow.at_server.contains(&slot)),
            "the protocol declares no release through parts.{slot} at the server"
        );
        self.unreleased.remove(slot);
        Ok(())
    }

    /// Drops the pending releases of a step that is undone.
    pub fn forget_unreleased(&mut self) {
        self.unreleased.clear();
    }

    /// Returns the slots of the selectors that pick clients.
    fn cohorts(&self) -> Vec<&'static str> {
        self.exchanges
            .iter()
            .filter_map(|spec| spec.cohort)
            .collect()
    }
}

/// Returns the unpriced disclosures of a run of this protocol to each observer, as far as its
/// declaration shows them before the run. `parts` are in the protocol's slots
/// ([`Parts::in_slots`]).
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

/// Returns the unpriced disclosures in the envelopes of the answers to a request.
fn beside(label: &str, needs: RequiredInputs, releases: &dyn Fn(&str) -> bool) -> Vec<String> {
    let counts = match (needs.samples, needs.class_counts) {
        _ if releases(&COUNTS) => None,
        (_, true) => Some("how many examples of each class it has"),
        (true, false) => Some("how many examples it has"),
        (false, false) => None,
    };
    // no mechanism protects it
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
    /// Records that these observers see `what` of clients' own data without a price. No guarantee
    /// against them is left.
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

    /// Records that a row may belong to two clients, so that no guarantee for one example is
    /// possible.
    pub fn owned_twice(&mut self, why: &str) {
        self.observed.twice = Some(why.into());
    }

    /// Records the disclosures of this exchange before its requests are sent.
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

    /// Checks that the server has released every answer that it was to release.
    ///
    /// # Errors
    /// If the protocol left a release out.
    pub(crate) fn check_released(&self) -> Result<()> {
        match self.observed.unreleased.first() {
            None => Ok(()),
            Some(slot) => bail!(
                "the protocol declares a release through parts.{slot} at the server, and made none"
            ),
        }
    }

    /// Records that results disclose the clients' models in `slot`.
    pub(crate) fn expose_models(&mut self, slot: &str) -> Result<()> {
        let parts = self.store.parts();
        let own = parts.slots().iter().find(|s| s.name == slot);
        match own.is_some_and(|s| s.through.iter().any(|t| parts.releases(t))) {
            true => Ok(()),
            false => self.expose(&[Observer::Readers], &shown(slot)),
        }
    }

    /// Returns the guarantees so far, by observer; `None` without an accountant.
    ///
    /// # Errors
    /// If the accountant has no guarantee.
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
                    let infinite = "what was released has an infinite price";
                    Protection::nothing(vec![infinite.into()])
                }
                false => Protection::Holds(guarantee),
                true => Protection::Nothing {
                    nothing: vec![FOLLOWS_DATA.into()],
                    of_these_data: Some(Box::new(guarantee)),
                },
            })
        };
        // clients and readers both see what the server releases, so they share one guarantee
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
