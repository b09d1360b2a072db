//! Releases of a client, and their privacy cost.

use super::SAMPLE_COUNTS;
use super::core::{ClientCore, ReleasedSteps};
use crate::ledger::budget::{CohortOrigin, PaidRelease, cost, ensure_budget};
use crate::message::{self, AnyMessage, Counts, VoteSensitivity};
use crate::privacy::{MinibatchSampling, Observer};
use crate::{
    Accountant, AnyMechanism, COUNTS, Cohort, ExchangeSpec, Problem, RequiredInputs, Result,
    TaskKind,
};
use anyhow::{Context, bail};
use ndarray::Array2;

impl ClientCore {
    pub(super) fn mechanism(&mut self, slot: &str) -> Result<Option<&mut Box<dyn AnyMechanism>>> {
        if self.store.has(slot) {
            self.store.get(slot).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Records that the client releases something through `slot`, which its exchange must declare.
    pub(super) fn declares(
        &mut self,
        slot: &str,
    ) -> Result<(&'static str, Option<MinibatchSampling>)> {
        let declared = self.declared.get_key_value(slot);
        let (slot, steps) = declared
            .with_context(|| format!("this exchange declares no release through parts.{slot}"))?;
        let (slot, steps) = (*slot, *steps);
        self.released_through.insert(slot);
        Ok((slot, steps))
    }

    /// Checks that the answer was released through every mechanism that its exchange declares.
    pub(crate) fn check_releases(&self, exchange: &ExchangeSpec) -> Result<()> {
        let parts = self.store.parts();
        let due = |slot: &&&str| self.store.has(slot) && parts.releases(&self.store.slot(slot));
        let mut due = exchange.flow.releases.iter().filter(due);
        match due.find(|slot| !self.released_through.contains(**slot)) {
            None => Ok(()),
            Some(slot) => bail!(
                "`{}` declares a release through parts.{slot}, and the answer was made without one",
                exchange.label
            ),
        }
    }

    pub(super) fn release_now(&mut self, slot: &str, m: &mut dyn AnyMessage) -> Result<()> {
        if !self.store.has(slot) {
            return Ok(());
        }
        self.account()?;
        let mut mechanism = self.store.take::<Box<dyn AnyMechanism>>(slot)?;
        let released = self.release_through(slot, &mut *mechanism, m);
        self.store.put(slot, mechanism);
        released
    }

    fn release_through(
        &mut self,
        slot: &str,
        mechanism: &mut dyn AnyMechanism,
        m: &mut dyn AnyMessage,
    ) -> Result<()> {
        // two releases in one answer must not share their noise
        let stream = self.now.child(slot, 0);
        let stream = stream.child("noise", self.spent.len() as u64);
        let cohort = Cohort::everyone(vec![self.id]);
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

    /// See [`crate::Client::release_steps`]: prices and affords all steps.
    pub(super) fn begin_released_steps(
        &mut self,
        slot: &str,
        like: &mut dyn AnyMessage,
    ) -> Result<(Box<dyn AnyMechanism>, usize)> {
        let (slot, lots) = self.declares(slot)?;
        let lots = lots.with_context(|| {
            format!("this exchange declares no training steps through parts.{slot}")
        })?;
        self.account()?;
        let mechanism = self.store.take::<Box<dyn AnyMechanism>>(slot)?;
        let stream = self.now.child(slot, 0);
        let stream = stream.child("noise", self.spent.len() as u64);
        let noise = self.noise.at(&stream);
        let afforded = self.affordable(&*mechanism, like, &lots.cohort(), lots.steps);
        let afforded = afforded.and_then(|PaidRelease { event, note }| match note {
            // a budget cannot pay for a part of a step
            Some(note) => bail!(Problem::Budget(note)),
            None => Ok(event),
        });
        let event = match afforded {
            Ok(event) => event,
            Err(error) => {
                self.store.put(slot, mechanism);
                return Err(error);
            }
        };
        // the whole cost is spent with the first step, even if later ones fail
        self.spent.push(event.clone());
        self.steps = Some(ReleasedSteps {
            slot,
            lots,
            noise,
            event,
        });
        Ok((mechanism, lots.steps))
    }

    pub(super) fn going(&self) -> Result<&ReleasedSteps> {
        let going = self.steps.as_ref();
        going.context("no training whose steps are released is going on")
    }

    pub(super) fn release_seen(
        &mut self,
        at: usize,
        seen: &mut dyn AnyMessage,
        mechanism: &mut dyn AnyMechanism,
    ) -> Result<()> {
        let going = self.going()?;
        // the draw of the lot does not count as the mechanism's noise
        let hiding = going.noise.child("step", at as u64).undrawn();
        let (slot, event) = (going.slot, going.event.clone());
        mechanism.perturb(seen, &going.lots.cohort(), &hiding)?;
        let paid = cost(slot, event, &hiding);
        if !self.spent.contains(&paid) {
            self.spent.push(paid);
        }
        message::check(seen).with_context(|| format!("parts.{slot}: step {at}, after the noise"))
    }

    fn affordable(
        &mut self,
        mechanism: &dyn AnyMechanism,
        m: &mut dyn AnyMessage,
        cohort: &Cohort,
        times: usize,
    ) -> Result<PaidRelease> {
        let released = self.past.len() + self.ledger.len() + self.spent.len();
        let accountant = if !self.budgets.is_empty() && self.store.has("accountant") {
            Some(self.store.get::<Box<dyn Accountant>>("accountant")?)
        } else {
            None
        };
        let accountant = accountant.map(|a| &**a);
        // a client's own draw of examples is as secret to other clients as to everyone
        let limit = |budget| Some((budget, accountant?, Observer::Readers));
        let limits: Vec<_> = self.budgets.iter().filter_map(limit).collect();
        let drawn = (cohort, CohortOrigin::Examples);
        ensure_budget(mechanism, m, drawn, times, &limits, released)
    }

    /// Returns the numbers of examples, in all and of each class, that the server needs. They count
    /// the examples that the answer may use; if [`COUNTS`] is filled, its mechanism releases them
    /// once, and those of each private sample.
    pub(crate) fn told(
        &mut self,
        needs: RequiredInputs,
    ) -> Result<(Option<u64>, Option<Vec<u32>>)> {
        if !needs.samples && !needs.class_counts {
            return Ok((None, None));
        }
        let (samples, classes) = if self.store.has(&COUNTS) {
            self.noisy_counts()?
        } else {
            let counted = self.private_sample()?;
            let counted = counted.as_ref().unwrap_or(&self.data);
            let classes = needs.class_counts.then(|| counted.class_counts());
            (counted.len() as u64, classes.unwrap_or_default())
        };
        let samples = needs.samples.then_some(samples);
        Ok((samples, needs.class_counts.then_some(classes)))
    }

    fn noisy_counts(&mut self) -> Result<(u64, Vec<u32>)> {
        let name = if self.sampled {
            SAMPLE_COUNTS
        } else {
            COUNTS.name()
        };
        let told = match self.stash.get(name) {
            Some(told) => message::decode::<Counts>(told)?,
            None => {
                let counted = self.private_sample()?;
                let counted = counted.as_ref().unwrap_or(&self.data);
                let (mut row, mut moved) = (counted.class_counts(), 1);
                if !matches!(self.store.task().kind, TaskKind::Classes(_)) {
                    // an example may have all labels (an image all classes) or none, so they do not
                    // give the number of examples
                    row.push(u32::try_from(counted.len())?);
                    // one example more moves all of these counts; a vote moves two, so of an odd
                    // number the price covers one more
                    moved = row.len().div_ceil(2) as u32;
                }
                let row: Vec<f64> = row.into_iter().map(f64::from).collect();
                let mut counts = Counts::new(vec![0], Array2::from_shape_vec((1, row.len()), row)?);
                counts.set_sensitivity(VoteSensitivity::of_own_examples(moved));
                self.release_now(&COUNTS, &mut counts)?;
                let kept = message::encode(&counts);
                self.stash.insert(name.into(), kept.into());
                counts
            }
        };
        // a client that answers has at least one example, so noise must not give 0
        let whole = |n: &f64| n.round().clamp(0.0, f64::from(u32::MAX)) as u32;
        let mut classes: Vec<u32> = told.values.iter().map(whole).collect();
        let samples = match self.store.task().kind {
            TaskKind::Classes(_) => Some(classes.iter().map(|n| u64::from(*n)).sum()),
            _ => classes.pop().map(u64::from),
        };
        Ok((samples.unwrap_or_default().max(1), classes))
    }

    /// Charges the client's own accountant, if a budget needs one, with everything spent so far.
    fn account(&mut self) -> Result<()> {
        if self.budgets.is_empty() || !self.store.has("accountant") {
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
