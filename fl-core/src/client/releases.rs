//! Releases of a client, and their privacy cost.

use crate::client::Client;
use crate::ledger::budget::{CohortOrigin, PaidRelease, cost, ensure_budget};
use crate::message::{self, Counts, Message, VoteSensitivity};
use crate::privacy::MinibatchSampling;
use crate::{
    Accountant, BoxedMechanism, COUNTS, Cohort, ExchangeSpec, MechanismSlot, Problem,
    RequiredInputs, Result, TaskKind,
};
use anyhow::{Context, bail};
use ndarray::Array2;

impl Client {
    fn mechanism<M: Message>(&mut self, slot: &str) -> Result<Option<&mut BoxedMechanism<M>>> {
        match self.has(slot) {
            true => self.store.get(slot).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the number of this client that the mechanism in `slot` needs for a common range, see
    /// [`crate::PrivacyMechanism::range`].
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn range<M: Message>(&mut self, slot: &MechanismSlot<M>, m: &M) -> Result<Option<f32>> {
        Ok(self
            .mechanism::<M>(slot)?
            .and_then(|mechanism| mechanism.range(m)))
    }

    /// Clips a message by the mechanism in `slot`, if the slot is filled. `agreed` is the range
    /// that all clients agreed on.
    ///
    /// # Errors
    /// If the message cannot be clipped.
    pub fn clip<M: Message>(
        &mut self,
        slot: &MechanismSlot<M>,
        m: &mut M,
        agreed: Option<f32>,
    ) -> Result<()> {
        if let Some(mechanism) = self.mechanism::<M>(slot)? {
            if let Some(agreed) = agreed {
                mechanism.agree(agreed);
            }
            mechanism.clip(m)?;
        }
        Ok(())
    }

    /// Releases a message through the mechanism in `slot`, if it is filled: clip, price, check the
    /// budget, perturb. The answer's envelope holds the cost, and the server charges it. If the
    /// budget pays only for the first queries of `m`, only those remain.
    ///
    /// # Errors
    /// If the exchange does not declare it, or the message cannot be clipped, priced or perturbed;
    /// [`crate::Problem::Budget`] before anything is spent.
    pub fn release<M: Message>(&mut self, slot: &MechanismSlot<M>, m: &mut M) -> Result<()> {
        self.declares(slot.name())?;
        self.release_now(slot, m)
    }

    /// Records that the client releases something through `slot`, which its exchange must declare.
    fn declares(&mut self, slot: &'static str) -> Result<Option<MinibatchSampling>> {
        let steps = self.declared.get(slot).copied();
        self.released_through.insert(slot);
        steps.with_context(|| format!("this exchange declares no release through parts.{slot}"))
    }

    /// Checks that the answer was released through every mechanism that its exchange declares.
    pub(crate) fn check_releases(&self, exchange: &ExchangeSpec) -> Result<()> {
        let parts = self.store.parts();
        let due = |slot: &&&str| self.has(slot) && parts.releases(slot);
        let mut due = exchange.flow.releases.iter().filter(due);
        match due.find(|slot| !self.released_through.contains(**slot)) {
            None => Ok(()),
            Some(slot) => bail!(
                "`{}` declares a release through parts.{slot}, and the answer was made without one",
                exchange.label
            ),
        }
    }

    pub(crate) fn release_now<M: Message>(&mut self, slot: &str, m: &mut M) -> Result<()> {
        if !self.has(slot) {
            return Ok(());
        }
        self.account()?;
        let mut mechanism = self.store.take::<BoxedMechanism<M>>(slot)?;
        let released = self.release_through(slot, &mut mechanism, m);
        self.store.put(slot, mechanism);
        released
    }

    fn release_through<M: Message>(
        &mut self,
        slot: &str,
        mechanism: &mut BoxedMechanism<M>,
        m: &mut M,
    ) -> Result<()> {
        // two releases in one answer must not share their noise
        let stream = self.stream(slot).child("noise", self.spent.len() as u64);
        let cohort = Cohort::everyone(vec![self.id()]);
        mechanism.clip(m)?;
        let PaidRelease { event, note } = self.affordable(mechanism, m, &cohort, 1)?;
        let noise = self.noise.at(&stream);
        mechanism.perturb(m, &cohort, &noise)?;
        self.spent
            .push(cost(slot, mechanism.actual_cost(event), &noise));
        self.notes
            .extend(note.map(|note| format!("parts.{slot}: {note}")));
        message::check(m).with_context(|| format!("parts.{slot}: after the noise"))
    }

    /// Releases the results of a training's steps on the client's own examples through the
    /// mechanism in `slot` (DP-SGD). All steps are priced and checked against the budget before the
    /// first. Each step draws a lot and calls `step` with its positions. `step` bounds each
    /// example's part by the mechanism ([`crate::PrivacyMechanism::clip`]). `then` gets the result
    /// with noise. `like` has the shape of a step's result.
    ///
    /// # Errors
    /// If the slot is empty, as [`Client::release`], and those of `step` and `then`.
    pub fn release_steps<M: Message>(
        &mut self,
        slot: &MechanismSlot<M>,
        mut like: M,
        mut step: impl FnMut(&mut Self, &[usize], &BoxedMechanism<M>) -> Result<M>,
        mut then: impl FnMut(&mut Self, usize, M) -> Result<()>,
    ) -> Result<()> {
        let lots = self.declares(slot.name())?.with_context(|| {
            format!(
                "this exchange declares no training steps through parts.{}",
                slot.name()
            )
        })?;
        self.account()?;
        let mut mechanism = self.store.take::<BoxedMechanism<M>>(slot)?;
        let mut all = || -> Result<()> {
            let stream = self.stream(slot).child("noise", self.spent.len() as u64);
            let noise = self.noise.at(&stream);
            let cohort = lots.cohort();
            let PaidRelease { event, note } =
                self.affordable(&mechanism, &mut like, &cohort, lots.steps)?;
            // a budget cannot pay for a part of a step
            if let Some(note) = note {
                bail!(Problem::Budget(note));
            }
            // the whole cost is spent with the first step, even if later ones fail
            self.spent.push(event.clone());
            for at in 0..lots.steps {
                let noise = noise.child("step", at as u64);
                let lot = lots.draw(self.data.len(), noise.child("lot", 0).stream());
                let mut seen = step(self, &lot, &mechanism)?;
                // the draw of the lot does not count as the mechanism's noise
                let hiding = noise.undrawn();
                mechanism.perturb(&mut seen, &cohort, &hiding)?;
                let paid = cost(slot.name(), event.clone(), &hiding);
                if !self.spent.contains(&paid) {
                    self.spent.push(paid);
                }
                message::check(&seen).with_context(|| {
                    format!("parts.{}: step {at}, after the noise", slot.name())
                })?;
                then(self, at, seen)?;
            }
            Ok(())
        };
        let released = all();
        self.store.put(slot, mechanism);
        released
    }

    fn affordable<M: Message>(
        &mut self,
        mechanism: &BoxedMechanism<M>,
        m: &mut M,
        cohort: &Cohort,
        times: usize,
    ) -> Result<PaidRelease> {
        let released = self.past.len() + self.ledger.len() + self.spent.len();
        let accountant = match self.budget.is_some() && self.store.has("accountant") {
            true => Some(self.store.get::<Box<dyn Accountant>>("accountant")?),
            false => None,
        };
        let (accountant, budget) = (accountant.map(|a| &**a), self.budget.as_ref());
        let part = mechanism.as_ref();
        let drawn = (cohort, CohortOrigin::Examples);
        ensure_budget(part, m, drawn, times, accountant, budget, released)
    }

    /// Returns the numbers of examples, in all and of each class, that the server needs. They count
    /// the examples that the run may use; if [`COUNTS`] is filled, its mechanism releases them
    /// once.
    pub(crate) fn told(
        &mut self,
        needs: RequiredInputs,
    ) -> Result<(Option<u64>, Option<Vec<u32>>)> {
        if !needs.samples && !needs.class_counts {
            return Ok((None, None));
        }
        let (samples, classes) = match self.has(&COUNTS) {
            true => self.noisy_counts()?,
            false => {
                let counted = self.private_sample()?;
                let counted = counted.as_ref().unwrap_or(&self.data);
                let classes = needs.class_counts.then(|| counted.class_counts());
                (counted.len() as u64, classes.unwrap_or_default())
            }
        };
        let samples = needs.samples.then_some(samples);
        Ok((samples, needs.class_counts.then_some(classes)))
    }

    fn noisy_counts(&mut self) -> Result<(u64, Vec<u32>)> {
        let told = match self.stashed::<Counts>(&COUNTS)? {
            Some(told) => told,
            None => {
                let counted = self.private_sample()?;
                let counted = counted.as_ref().unwrap_or(&self.data);
                let (mut row, mut moved) = (counted.class_counts(), 1);
                if !matches!(self.task().kind, TaskKind::Classes(_)) {
                    // an example may have all labels (an image all classes) or none, so they do not
                    // give the number of examples
                    moved = row.len().div_ceil(2) as u32;
                    row.push(u32::try_from(counted.len())?);
                }
                let row: Vec<f64> = row.into_iter().map(f64::from).collect();
                let mut counts = Counts::new(vec![0], Array2::from_shape_vec((1, row.len()), row)?);
                counts.set_sensitivity(VoteSensitivity {
                    example: Some(moved),
                    ..VoteSensitivity::default()
                });
                self.release_now(&COUNTS, &mut counts)?;
                self.stash(&COUNTS, &counts);
                counts
            }
        };
        // a client that answers has at least one example, so noise must not give 0
        let whole = |n: &f64| n.round().clamp(0.0, f64::from(u32::MAX)) as u32;
        let mut classes: Vec<u32> = told.values.iter().map(whole).collect();
        let samples = match self.task().kind {
            TaskKind::Classes(_) => Some(classes.iter().map(|n| u64::from(*n)).sum()),
            _ => classes.pop().map(u64::from),
        };
        Ok((samples.unwrap_or_default().max(1), classes))
    }

    /// Charges the client's own accountant, if a budget needs one, with everything spent so far.
    fn account(&mut self) -> Result<()> {
        if self.budget.is_none() || !self.has("accountant") {
            return Ok(());
        }
        let accountant = self.store.get::<Box<dyn Accountant>>("accountant")?;
        let all = self.past.iter().chain(&self.ledger).chain(&self.spent);
        for event in all.skip(self.charged) {
            accountant.charge(event)?;
            self.charged += 1;
        }
        Ok(())
    }
}
