//! Releases at the server, and their privacy cost.

use crate::ledger::budget::{PaidRelease, cost};
use crate::ledger::exposure::{SHOWN_TO, shown};
use crate::message::{self, AnyMessage, MessageType};
use crate::privacy::{Noise, Observer, Protections};
use crate::server::RunState;
use crate::server::calls::{Releases, Results};
use crate::server::receipts::{ReleaseContext, ServerStep};
use crate::{AnyMechanism, Cohort, Receipt, Result, Round};
use anyhow::Context;

impl RunState<'_> {
    fn release_through(
        &mut self,
        slot: &str,
        round: &Round,
        mechanism: &mut dyn AnyMechanism,
        m: &mut dyn AnyMessage,
        (cohort, context): (&Cohort, &mut Option<ReleaseContext>),
    ) -> Result<()> {
        // two releases in one step must not share their noise
        let times = self.step.again(format!("release {slot}"));
        let all = mechanism.queries(m);
        let PaidRelease { event, note } = self.ledger.afford(mechanism, m, cohort)?;
        let address = round.stream.child(slot, times);
        if let Some(context) = context {
            let paid = mechanism.queries(m);
            context.queries = (paid < all).then_some(paid);
            context.stream = address.key();
        }
        let noise = self.noise.at(&address);
        mechanism.perturb(m, cohort, &noise)?;
        let event = cost(slot, mechanism.actual_cost(event), &noise);
        self.ledger.charge(vec![event])?;
        if let Some(note) = note {
            self.warn(&format!("parts.{slot}: {note}"));
        }
        message::check(m).with_context(|| format!("parts.{slot}: after the noise"))
    }

    /// Releases `m` through the mechanism in `slot`, if it is filled.
    fn release_by(
        &mut self,
        slot: &str,
        round: &Round,
        m: &mut dyn AnyMessage,
        (cohort, clip): (&Cohort, bool),
    ) -> Result<()> {
        if !self.store.has(slot) {
            return Ok(());
        }
        let mut mechanism = self.store.take::<Box<dyn AnyMechanism>>(slot)?;
        self.with_log(|run, log| {
            let before = log.digest(m);
            let repeatable = log.keeps() && run.noise.kind() == Noise::Seeded;
            let mut context =
                repeatable.then(|| run.release_context(slot, &*mechanism, m, (cohort, clip)));
            let clipped = if clip { mechanism.clip(m) } else { Ok(()) };
            let released = clipped.and_then(|()| {
                run.release_through(slot, round, &mut *mechanism, m, (cohort, &mut context))
            });
            run.store.put(slot, mechanism);
            released?;
            let output = log.digest(m);
            log.begin_release(context)?;
            log.end(|| Receipt {
                before,
                output,
                ..run.receipt(round, ServerStep::Release, slot)
            })
        })
    }

    /// Records that these observers see `what` of clients' own data without a price. No guarantee
    /// against them is left.
    ///
    /// # Errors
    /// [`crate::Problem::Unpriced`] if there is a budget against one of them.
    pub fn expose(&mut self, to: &[Observer], what: &str) -> Result<()> {
        self.ledger.expose(to, what)
    }

    /// Records that results show the clients' models in `slot`.
    pub(crate) fn expose_models(&mut self, slot: &str) -> Result<()> {
        let (parts, slot) = (self.store.parts(), &*self.store.slot(slot));
        let own = parts.slots().iter().find(|s| s.name == slot);
        if own.is_some_and(|s| s.through.iter().any(|t| parts.releases(t))) {
            Ok(())
        } else {
            self.expose(&SHOWN_TO, &shown(slot))
        }
    }

    /// Returns the guarantees so far, by observer; `None` without an accountant.
    ///
    /// # Errors
    /// If the accountant has no guarantee.
    pub fn protections(&self) -> Result<Option<Protections>> {
        let relied_on = self.ledger.exposure.relied_on();
        let claimed_by = self.store.parts().claimed_by(&relied_on);
        self.ledger.protections(self.noise.kind(), claimed_by)
    }
}

impl Releases for RunState<'_> {
    fn clip(&mut self, slot: &str, m: &mut dyn AnyMessage) -> Result<()> {
        if self.store.has(slot) {
            self.store.get::<Box<dyn AnyMechanism>>(slot)?.clip(m)
        } else {
            Ok(())
        }
    }

    fn affords(&mut self, slot: &str, m: &dyn AnyMessage, cohort: &Cohort) -> Result<()> {
        if !self.store.has(slot) {
            return Ok(());
        }
        let (mechanism, mut m) = (self.store.take::<Box<dyn AnyMechanism>>(slot)?, m.copy());
        let price = self.ledger.afford(&*mechanism, &mut *m, cohort);
        self.store.put(slot, mechanism);
        price.map(drop)
    }

    fn release(
        &mut self,
        label: &str,
        round: &Round,
        m: &mut dyn AnyMessage,
        cohort: &Cohort,
        clip: bool,
    ) -> Result<()> {
        for slot in self.ledger.exposure.released_at_server(label)? {
            self.release_by(slot, round, m, (cohort, clip))?;
        }
        Ok(())
    }

    fn wants_range(&self, slot: &str, of: &'static MessageType) -> Result<bool> {
        let context = self.store.context(slot, 0);
        self.store
            .parts()
            .range_of(of, &self.store.slot(slot), &context)
    }
}
