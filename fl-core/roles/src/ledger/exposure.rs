//! [`ExposureTracker`]: the unpriced disclosures to each observer of a run.

use crate::exchange::faults::Faults;
use crate::exchange::label_in;
use crate::privacy::{Observer, UnpricedDisclosures};
use crate::{BuildContext, COUNTS, ExchangeSpec, Parts, Protocol, RequiredInputs, Result};
use anyhow::{bail, ensure};
use std::collections::BTreeSet;

/// Why a data-dependent price of an accountant does not count.
pub(crate) const FOLLOWS_DATA: &str =
    "its price depends on the data, and so discloses something about them";

/// The declared exchanges of a protocol, and the disclosures so far.
pub(crate) struct ExposureTracker {
    exchanges: Vec<ExchangeSpec>,
    /// The stage whose labels these are, see [`crate::Stages`]; 0 if the run has no stages.
    pub stage: usize,
    pub exposed: UnpricedDisclosures,
    /// Why a row may belong to two clients, if so.
    pub twice: Option<String>,
    /// Exchanges whose answers were collected and that the server must still release, each with the
    /// mechanism.
    unreleased: BTreeSet<(&'static str, &'static str)>,
}

impl ExposureTracker {
    pub fn new(protocol: &dyn Protocol) -> Self {
        Self {
            exchanges: protocol.exchanges(),
            stage: 0,
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
        ExchangeSpec::find(&self.exchanges, &label_in(label, self.stage))
    }

    /// Records that the server releases its result from this exchange, and returns the slots of
    /// the mechanisms.
    ///
    /// # Errors
    /// If the exchange declares no such release.
    pub fn released_at_server(&mut self, label: &str) -> Result<Vec<&'static str>> {
        let exchange = self.exchange(label)?;
        let (label, flow) = (exchange.label, &exchange.flow);
        ensure!(
            !flow.at_server.is_empty() && flow.released_with.is_none(),
            "the protocol declares no release of `{label}` at the server"
        );
        let slots = flow.at_server.clone();
        self.unreleased.retain(|(of, _)| *of != label);
        Ok(slots)
    }

    /// Drops the pending releases of a step that is undone.
    pub fn forget_unreleased(&mut self) {
        self.unreleased.clear();
    }

    /// Fails if an answer that the server was to release is left unreleased.
    ///
    /// # Errors
    /// If the protocol left one out.
    pub fn check_released(&self) -> Result<()> {
        match self.unreleased.first() {
            None => Ok(()),
            Some((label, slot)) => bail!(
                "the protocol declares a release of `{label}` through parts.{slot} at the server, and made none"
            ),
        }
    }

    /// Returns what observers see without a price of the answers to an exchange, and remembers the
    /// releases that the server owes.
    pub fn of_answers(
        &mut self,
        spec: &ExchangeSpec,
        needs: RequiredInputs,
        releases: &dyn Fn(&str) -> bool,
    ) -> Vec<(Vec<Observer>, String)> {
        let due = spec.flow.at_server.iter().filter(|slot| releases(slot));
        let by = spec.flow.released_with.unwrap_or(spec.label);
        self.unreleased.extend(due.map(|slot| (by, *slot)));
        disclosed(spec, needs, releases)
    }

    /// Returns the slots of parts that a guarantee relies on ([`ExchangeSpec::relied_on`]).
    pub fn relied_on(&self) -> Vec<&'static str> {
        let all = self.exchanges.iter();
        all.flat_map(ExchangeSpec::relied_on).collect()
    }
}

/// Returns the unpriced disclosures of a run of this protocol to each observer, as far as its
/// declaration shows them before the run. `parts` are in the protocol's slots
/// ([`Parts::in_slots`]).
pub fn exposed(
    protocol: &dyn Protocol,
    parts: &Parts,
    context: &BuildContext,
    faults: &Faults,
) -> UnpricedDisclosures {
    let releases = |slot: &str| parts.releases(slot);
    let mut all = UnpricedDisclosures::default();
    if let Some(leaves_out) = faults.leaves_out() {
        all.add(&Observer::ALL, &leaves_out);
    }
    let declared = protocol.declare();
    if let Some(what) = &declared.begins_with {
        all.add(&Observer::ALL, what);
    }
    let questions = declared.into_exchanges().into_iter();
    for question in questions.filter(|asked| parts.asks(asked, context)) {
        let needs = parts.envelope_needs(&question, context);
        for (to, what) in disclosed(&question, needs, &releases) {
            all.add(&to, &what);
        }
    }
    for slot in parts.slots().iter().filter(|slot| slot.shown) {
        if !slot.through.iter().any(|through| releases(through)) {
            all.add(&SHOWN_TO, &shown(slot.name));
        }
    }
    all
}

/// Returns the unpriced disclosures of an exchange's answers, each with its observers.
fn disclosed(
    spec: &ExchangeSpec,
    needs: RequiredInputs,
    releases: &dyn Fn(&str) -> bool,
) -> Vec<(Vec<Observer>, String)> {
    let body = if spec.flow.open_by_before(releases) {
        format!(
            "clients answer `{}` by models that an earlier stage taught without noise",
            spec.label
        )
    } else {
        format!("clients answer `{}` without noise", spec.label)
    };
    let envelope = spec.flow.open(releases, true);
    let beside = beside(spec.label, needs, releases).into_iter();
    let beside = beside.map(|what| (envelope.clone(), what));
    std::iter::once((spec.flow.open(releases, false), body))
        .chain(beside)
        .collect()
}

/// Returns the unpriced disclosures in the envelopes of the answers to a request.
fn beside(label: &str, needs: RequiredInputs, releases: &dyn Fn(&str) -> bool) -> Vec<String> {
    let counts = match (needs.samples, needs.class_counts) {
        _ if releases(&COUNTS) => None,
        (_, true) => Some("its number of examples of each class"),
        (true, false) => Some("its number of examples"),
        (false, false) => None,
    };
    // no mechanism protects it
    let loss = needs.training_loss.then_some("its training loss");
    let told = counts.into_iter().chain(loss);
    told.map(|what| format!("with its answer to `{label}` a client sends {what}"))
        .collect()
}

/// Who sees what results show of clients' models. Clients send it to the server.
pub(crate) const SHOWN_TO: [Observer; 2] = [Observer::Server, Observer::Readers];

/// Returns the disclosure of results that show the clients' models in `slot`.
pub(crate) fn shown(slot: &str) -> String {
    format!("results show the clients' own models (`{slot}`)")
}
