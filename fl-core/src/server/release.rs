//! Releases at the server, and their privacy cost.

use crate::ledger::budget::{CohortOrigin, PaidRelease, cost, ensure_budget};
use crate::message::{self, AnyMessage};
use crate::privacy::{Composition, Ledger, Observer};
use crate::server::RunState;
use crate::{AnyMechanism, ClientId, Cohort, PrivacyEvent, Result, Round};
use anyhow::Context;

impl RunState<'_> {
    /// See [`crate::Server::clipped`].
    pub(crate) fn clip_any(&mut self, slot: &str, m: &mut dyn AnyMessage) -> Result<()> {
        match self.store.has(slot) {
            true => self.store.get::<Box<dyn AnyMechanism>>(slot)?.clip(m),
            false => Ok(()),
        }
    }

    /// See [`crate::Server::affords`].
    pub(crate) fn affords_any(
        &mut self,
        slot: &str,
        m: &dyn AnyMessage,
        cohort: &Cohort,
    ) -> Result<()> {
        if !self.store.has(slot) {
            return Ok(());
        }
        let (mechanism, mut m) = (self.store.take::<Box<dyn AnyMechanism>>(slot)?, m.copy());
        let (accountant, budget) = (self.accountant.as_deref(), self.budget.as_ref());
        let released = self.own.len();
        let drawn = (cohort, CohortOrigin::Clients);
        let price = ensure_budget(&*mechanism, &mut *m, drawn, 1, accountant, budget, released);
        self.store.put(slot, mechanism);
        price.map(drop)
    }

    /// See [`crate::Server::release`].
    pub(crate) fn release_as(
        &mut self,
        slot: &str,
        round: &Round,
        m: &mut dyn AnyMessage,
        cohort: &Cohort,
        clip: bool,
    ) -> Result<()> {
        if !self.store.has(slot) {
            return Ok(());
        }
        self.observed.released_at_server(slot)?;
        let mut mechanism = self.store.take::<Box<dyn AnyMechanism>>(slot)?;
        let clipped = if clip { mechanism.clip(m) } else { Ok(()) };
        let released =
            clipped.and_then(|()| self.release_through(slot, round, &mut *mechanism, m, cohort));
        self.store.put(slot, mechanism);
        released
    }

    fn release_through(
        &mut self,
        slot: &str,
        round: &Round,
        mechanism: &mut dyn AnyMechanism,
        m: &mut dyn AnyMessage,
        cohort: &Cohort,
    ) -> Result<()> {
        // two releases in one step must not share their noise
        let times = self.step.again(format!("release {slot}"));
        let PaidRelease { event, note } = ensure_budget(
            mechanism,
            m,
            (cohort, CohortOrigin::Clients),
            1,
            self.accountant.as_deref(),
            self.budget.as_ref(),
            self.own.len(),
        )?;
        let noise = self.noise.at(&round.stream.child(slot, times));
        mechanism.perturb(m, cohort, &noise)?;
        let event = cost(slot, mechanism.actual_cost(event), &noise);
        self.charge(vec![event])?;
        if let Some(note) = note {
            self.warn(&format!("parts.{slot}: {note}"));
        }
        message::check(m).with_context(|| format!("parts.{slot}: after the noise"))
    }

    pub(crate) fn charge(&mut self, events: Vec<PrivacyEvent>) -> Result<()> {
        let priced = self.priced(&events, &[Observer::Clients, Observer::Readers])?;
        if let Some(accountant) = &mut self.accountant {
            priced.iter().try_for_each(|e| accountant.charge(e))?;
        }
        self.own.extend(events);
        Ok(())
    }

    /// Returns the events for an accountant to price. A release without noise has already happened:
    /// these observers saw it, so no guarantee against them is left.
    fn priced(&mut self, events: &[PrivacyEvent], seen: &[Observer]) -> Result<Vec<PrivacyEvent>> {
        let mut priced = Vec::new();
        for event in events {
            match event {
                PrivacyEvent::Undrawn { why } if self.accountant.is_some() => {
                    self.expose(seen, why)?;
                }
                event => priced.push(event.clone()),
            }
        }
        Ok(priced)
    }

    pub(crate) fn charge_client(&mut self, id: ClientId, events: Vec<PrivacyEvent>) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let ledger = [Ledger {
            client: Some(id),
            events: self.priced(&events, &Observer::ALL)?,
        }];
        for accountant in self.accountant.iter_mut().chain(&mut self.of_clients) {
            accountant.merge(&ledger, Composition::Parallel)?;
        }
        self.clients.entry(id).or_default().extend(events);
        Ok(())
    }
}
