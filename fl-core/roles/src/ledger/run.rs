//! [`RunLedger`]: the releases and disclosures of a run, and the guarantees that are left.

use super::budget::{CohortOrigin, PaidRelease, ensure_budget};
use super::exposure::{ExposureTracker, FOLLOWS_DATA, exposed};
use crate::host::RunOptions;
use crate::message::AnyMessage;
use crate::privacy::{
    Composition, Guarantee, Ledger, Noise, Observer, Protection, Protections, Unit,
};
use crate::store::Store;
use crate::{
    Accountant, AnyMechanism, Budget, ClientId, Cohort, ExchangeSpec, PrivacyEvent, Problem,
    Protocol, RequiredInputs, Result,
};
use anyhow::bail;
use std::collections::BTreeMap;

/// The releases and disclosures of a run so far, priced by the part in the slot `accountant`.
pub(crate) struct RunLedger {
    budgets: Vec<Budget>,
    after_split: bool,
    /// Prices the releases that each observer sees: the server sees those of clients only.
    accountants: BTreeMap<Observer, Box<dyn Accountant>>,
    pub exposure: ExposureTracker,
    pub server: Vec<PrivacyEvent>,
    pub clients: BTreeMap<ClientId, Vec<PrivacyEvent>>,
}

impl RunLedger {
    /// Makes an empty ledger.
    ///
    /// # Errors
    /// If the accountant cannot be made, or there is a budget without one.
    pub fn new(store: &Store, protocol: &dyn Protocol, options: &RunOptions) -> Result<Self> {
        let accounts = store.has("accountant");
        let accountant = |observer| Ok((observer, store.make("accountant", 0)?));
        let accountants: Result<_> = if accounts {
            Observer::ALL.into_iter().map(accountant).collect()
        } else {
            Ok(BTreeMap::new())
        };
        let mut ledger = Self {
            budgets: options.budgets.clone(),
            after_split: options.after_split,
            accountants: accountants?,
            exposure: ExposureTracker::new(protocol),
            server: Vec::new(),
            clients: BTreeMap::new(),
        };
        if !ledger.budgets.is_empty() && !accounts {
            bail!("a privacy budget needs an accountant: fill parts.accountant");
        }
        if accounts {
            // the declared disclosures count whether or not a random draw selects a client
            let context = store.context("accountant", 0);
            ledger.exposure.exposed = exposed(protocol, store.parts(), &context, &options.faults);
        }
        Ok(ledger)
    }

    /// Returns whether the run has an accountant.
    pub fn accounts(&self) -> bool {
        !self.accountants.is_empty()
    }

    /// Returns whether anything was released.
    pub fn has_releases(&self) -> bool {
        !self.server.is_empty() || !self.clients.is_empty()
    }

    /// Returns the price of a release by the server of `m`, made from the data of `cohort`. `m` may
    /// be truncated to the queries that the budget pays for.
    ///
    /// # Errors
    /// As [`ensure_budget`].
    pub fn afford(
        &self,
        mechanism: &dyn AnyMechanism,
        m: &mut dyn AnyMessage,
        cohort: &Cohort,
    ) -> Result<PaidRelease> {
        let limits = self.budgets.iter().filter_map(|budget| {
            let observer = match budget.against {
                Observer::Clients => Observer::Clients,
                _ => Observer::Readers,
            };
            let accountant = self.accountants.get(&observer)?;
            Some((budget, &**accountant, observer))
        });
        let limits: Vec<_> = limits.collect();
        ensure_budget(
            mechanism,
            m,
            (cohort, CohortOrigin::Clients),
            1,
            &limits,
            self.server.len(),
        )
    }

    /// Adds releases of the server.
    ///
    /// # Errors
    /// If the accountant cannot price one.
    pub fn charge(&mut self, events: Vec<PrivacyEvent>) -> Result<()> {
        let priced = self.priced(&events, &[Observer::Clients, Observer::Readers])?;
        for (observer, accountant) in &mut self.accountants {
            if *observer != Observer::Server {
                let mut seen = priced.iter().map(|event| event.seen_by(*observer));
                seen.try_for_each(|event| accountant.charge(&event))?;
            }
        }
        self.server.extend(events);
        Ok(())
    }

    /// Adds releases of a client.
    ///
    /// # Errors
    /// If the accountant cannot price one.
    pub fn charge_client(&mut self, id: ClientId, events: Vec<PrivacyEvent>) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let ledger = [Ledger {
            client: Some(id),
            events: self.priced(&events, &Observer::ALL)?,
        }];
        for accountant in self.accountants.values_mut() {
            accountant.merge(&ledger, Composition::Parallel)?;
        }
        self.clients.entry(id).or_default().extend(events);
        Ok(())
    }

    /// Returns the events for an accountant to price. A release without noise has already happened:
    /// these observers saw it, so no guarantee against them is left.
    fn priced(&mut self, events: &[PrivacyEvent], seen: &[Observer]) -> Result<Vec<PrivacyEvent>> {
        let mut priced = Vec::new();
        for event in events {
            match event {
                PrivacyEvent::Undrawn { why } if self.accounts() => self.expose(seen, why)?,
                event => priced.push(event.clone()),
            }
        }
        Ok(priced)
    }

    /// Records that these observers see `what` of clients' own data without a price. No guarantee
    /// against them is left.
    ///
    /// # Errors
    /// [`Problem::Unpriced`] if there is a budget against one of them.
    pub fn expose(&mut self, to: &[Observer], what: &str) -> Result<()> {
        self.exposure.exposed.add(to, what);
        let mut limited = self.budgets.iter().map(|budget| budget.against);
        match limited.find(|observer| to.contains(observer)) {
            Some(observer) => bail!(Problem::Unpriced(format!(
                "no budget can be kept against {observer}: {what}"
            ))),
            None => Ok(()),
        }
    }

    /// Records the disclosures of an exchange whose requests are about to be sent. `releases` says
    /// whether a mechanism fills a slot.
    ///
    /// # Errors
    /// As [`RunLedger::expose`].
    pub fn expose_answers(
        &mut self,
        spec: &ExchangeSpec,
        needs: RequiredInputs,
        releases: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        for (to, what) in self.exposure.of_answers(spec, needs, releases) {
            self.expose(&to, &what)?;
        }
        Ok(())
    }

    /// Returns the releases that no accountant covers.
    pub fn unaccounted(&self) -> Vec<PrivacyEvent> {
        let all = self.server.iter().chain(self.clients.values().flatten());
        let open = |e: &&PrivacyEvent| {
            let priced = !matches!(
                e,
                PrivacyEvent::Unaccounted { .. } | PrivacyEvent::Undrawn { .. }
            );
            !self.accounts() || !priced
        };
        all.filter(open).cloned().collect()
    }

    /// Returns the guarantees so far, by observer; `None` without an accountant. `noise` is the
    /// source of the releases' noise; `claimed_by` names the loaded parts whose prices count.
    ///
    /// # Errors
    /// If the accountant has no guarantee.
    pub fn protections(
        &self,
        noise: Noise,
        claimed_by: Vec<String>,
    ) -> Result<Option<Protections>> {
        if !self.accounts() {
            return Ok(None);
        }
        let of = |accountant: &dyn Accountant| -> Result<_> {
            let guarantee = Guarantee {
                noise,
                after_split: self.after_split,
                claimed_by: claimed_by.clone(),
                ..accountant.guarantee(None)?
            };
            if let (Some(twice), Unit::Example) = (&self.exposure.twice, guarantee.unit) {
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
        // without a draw of clients, they and readers see the same, and one answer serves both
        let alike = (self.server.iter()).all(|e| *e == e.seen_by(Observer::Clients));
        let mut shown = None;
        let mut against = |observer| {
            let nothing = self.exposure.exposed.to(observer);
            if !nothing.is_empty() {
                return Ok((observer, Protection::nothing(nothing)));
            }
            let holds = match &shown {
                Some(holds) if observer == Observer::Readers && alike => Protection::clone(holds),
                _ => of(self.accountants[&observer].as_ref())?,
            };
            if observer == Observer::Clients {
                shown = Some(holds.clone());
            }
            Ok((observer, holds))
        };
        let all: Result<Protections> = Observer::ALL.into_iter().map(&mut against).collect();
        all.map(Some)
    }
}
