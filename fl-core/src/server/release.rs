//! Releases at the server, and their privacy cost.

use crate::ledger::budget::{PaidRelease, cost};
use crate::ledger::exposure::shown;
use crate::message::{self, Message};
use crate::privacy::{Observer, Protections};
use crate::server::Server;
use crate::{BoxedMechanism, Cohort, MechanismSlot, Result, Round};
use anyhow::Context;

impl Server<'_> {
    /// Releases a message made from the data of `cohort` through the mechanism in `slot`, if it is
    /// filled: clip, price, check the budget, perturb, charge. If the budget pays only for the
    /// first queries of `m`, only those remain.
    ///
    /// # Errors
    /// [`crate::Problem::Budget`] before anything is spent. [`crate::Problem::Unpriced`] if the
    /// accountant has no price for it, or its price assumes another draw of clients.
    pub fn release<M: Message>(
        &mut self,
        slot: &MechanismSlot<M>,
        round: &Round,
        m: &mut M,
        cohort: &Cohort,
    ) -> Result<()> {
        self.release_as(slot, round, m, cohort, true)
    }

    /// Clips a summand of [`Server::release_sum`] to the bound of the mechanism in `slot`. An
    /// honest client has clipped it already ([`crate::Client::clip`]), so nothing changes. A larger
    /// summand must not exceed the noise that protects its client.
    ///
    /// # Errors
    /// If it cannot be clipped.
    pub fn clipped<M: Message>(&mut self, slot: &MechanismSlot<M>, mut m: M) -> Result<M> {
        if self.store.has(slot) {
            let mechanism = self.store.take::<BoxedMechanism<M>>(slot)?;
            let clipped = mechanism.clip(&mut m);
            self.store.put(slot, mechanism);
            clipped?;
        }
        Ok(m)
    }

    /// As [`Server::release`], for a sum of messages from [`Server::clipped`]. The sum itself is
    /// not clipped.
    ///
    /// # Errors
    /// As [`Server::release`].
    pub fn release_sum<M: Message>(
        &mut self,
        slot: &MechanismSlot<M>,
        round: &Round,
        sum: &mut M,
        cohort: &Cohort,
    ) -> Result<()> {
        self.release_as(slot, round, sum, cohort, false)
    }

    /// Returns whether the budget pays for any part of a release like `m`, of the data of `cohort`,
    /// through the mechanism in `slot`. Call it before the requests, so that clients send nothing
    /// that is then refused.
    ///
    /// # Errors
    /// As [`Server::release`].
    pub fn affords<M: Message>(
        &mut self,
        slot: &MechanismSlot<M>,
        mut m: M,
        cohort: &Cohort,
    ) -> Result<()> {
        if !self.store.has(slot) {
            return Ok(());
        }
        let mechanism = self.store.take::<BoxedMechanism<M>>(slot)?;
        let price = self.ledger.afford(&*mechanism, &mut m, cohort);
        self.store.put(slot, mechanism);
        price.map(drop)
    }

    pub(crate) fn release_as<M: Message>(
        &mut self,
        slot: &str,
        round: &Round,
        m: &mut M,
        cohort: &Cohort,
        clip: bool,
    ) -> Result<()> {
        if !self.store.has(slot) {
            return Ok(());
        }
        self.ledger.exposure.released_at_server(slot)?;
        let mut mechanism = self.store.take::<BoxedMechanism<M>>(slot)?;
        let clipped = if clip { mechanism.clip(m) } else { Ok(()) };
        let released =
            clipped.and_then(|()| self.release_through(slot, round, &mut mechanism, m, cohort));
        self.store.put(slot, mechanism);
        released
    }

    fn release_through<M: Message>(
        &mut self,
        slot: &str,
        round: &Round,
        mechanism: &mut BoxedMechanism<M>,
        m: &mut M,
        cohort: &Cohort,
    ) -> Result<()> {
        // two releases in one step must not share their noise
        let times = self.step.again(format!("release {slot}"));
        let PaidRelease { event, note } = self.ledger.afford(mechanism.as_ref(), m, cohort)?;
        let noise = self.noise.at(&round.stream.child(slot, times));
        mechanism.perturb(m, cohort, &noise)?;
        let event = cost(slot, mechanism.actual_cost(event), &noise);
        self.ledger.charge(vec![event])?;
        if let Some(note) = note {
            self.warn(&format!("parts.{slot}: {note}"));
        }
        message::check(m).with_context(|| format!("parts.{slot}: after the noise"))
    }

    /// Returns whether the mechanism in `slot` needs all clients to agree on a range
    /// ([`crate::PrivacyMechanism::range`]).
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn wants_range<M: Message>(&self, slot: &MechanismSlot<M>) -> Result<bool> {
        self.store
            .parts()
            .wants_range::<M>(slot, &self.store.context(slot, 0))
    }

    /// Records that these observers see `what` of clients' own data without a price: no guarantee
    /// against them is left.
    ///
    /// # Errors
    /// [`crate::Problem::Unpriced`] if there is a budget against one of them.
    pub fn expose(&mut self, to: &[Observer], what: &str) -> Result<()> {
        self.ledger.expose(to, what)
    }

    /// Records that results show the clients' models in `slot`.
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
        let cohorts = self.ledger.exposure.cohorts();
        let claimed_by = self.store.parts().claimed_by(&cohorts);
        self.ledger.protections(self.noise.kind(), claimed_by)
    }
}
