//! Privacy mechanisms of a library as parts of this program.

use super::deferred_error::{DeferredError, load};
use super::part_handle::PartHandle;
use crate::abi::context_json::CohortText;
use crate::abi::marshal::content;
use crate::abi::raw::*;
use crate::message::{AnyMessage, MessageType};
use crate::privacy::ReleaseNoise;
use crate::sealed::Sealed;
use crate::{AnyMechanism, Cohort, PrivacyEvent, Result};
use anyhow::{Context, anyhow};
use serde_json::json;
use std::any::Any;

pub(super) struct LoadedMechanism {
    remote: PartHandle,
    late: DeferredError,
    on: &'static MessageType,
}

impl LoadedMechanism {
    pub fn new(remote: PartHandle, on: &'static MessageType) -> Self {
        Self {
            remote,
            late: DeferredError::default(),
            on,
        }
    }

    /// Asks about a message; `None`: there is no such operation.
    fn about<T: serde::de::DeserializeOwned>(
        &self,
        operation: u32,
        text: &str,
        message: &dyn AnyMessage,
    ) -> Result<Option<T>> {
        self.remote.value(operation, text, &[content(message)])
    }

    fn lacks(&self, operation: u32) -> anyhow::Error {
        anyhow!("{}: it has no operation {operation}", self.remote.who())
    }
}

impl Sealed for LoadedMechanism {}

impl AnyMechanism for LoadedMechanism {
    fn on(&self) -> &'static MessageType {
        self.on
    }

    fn clip(&self, message: &mut dyn AnyMessage) -> Result<()> {
        self.late.check().context(self.remote.who())?;
        let done = self.remote.change(FL_CLIP, "", message, None)?;
        done.ok_or_else(|| self.lacks(FL_CLIP))
    }

    fn norm_bound(&self) -> Option<f64> {
        let bound = self.late.keep(self.remote.value(FL_NORM_BOUND, "", &[]));
        bound.flatten().flatten()
    }

    fn range(&self, message: &dyn AnyMessage) -> Option<f32> {
        let range = self.late.keep(self.about(FL_RANGE, "", message));
        range.flatten().flatten().map(|range: f64| range as f32)
    }

    fn agree(&mut self, largest: f32) {
        // as f64, so that the same f32 comes out
        let text = f64::from(largest).to_string();
        let _ = self.late.keep(self.remote.ask(FL_AGREE, &text, &[]));
    }

    fn price(&self, message: &dyn AnyMessage, cohort: &Cohort) -> Result<PrivacyEvent> {
        self.late.check().context(self.remote.who())?;
        let text = CohortText::of(cohort)?;
        self.about(FL_PRICE, &text, message)?
            .ok_or_else(|| self.lacks(FL_PRICE))
    }

    fn perturb(
        &mut self,
        message: &mut dyn AnyMessage,
        cohort: &Cohort,
        noise: &ReleaseNoise,
    ) -> Result<()> {
        self.late.check().context(self.remote.who())?;
        let text = CohortText::of(cohort)?;
        let done = self
            .remote
            .change(FL_PERTURB, &text, message, Some(noise))?;
        done.ok_or_else(|| self.lacks(FL_PERTURB))
    }

    fn queries(&self, message: &dyn AnyMessage) -> usize {
        let queries = self.late.keep(self.about(FL_QUERIES, "", message));
        queries.flatten().unwrap_or(1)
    }

    fn truncate(&self, message: &mut dyn AnyMessage, n: usize) {
        // if it fails, more than was paid for is still there: `perturb` will refuse to release it
        let text = json!({ "queries": n }).to_string();
        let _ = self
            .late
            .keep(self.remote.change(FL_TRUNCATE, &text, message, None));
    }

    fn actual_cost(&self, price: PrivacyEvent) -> PrivacyEvent {
        let settled = || -> Result<Option<PrivacyEvent>> {
            let text = serde_json::to_string(&price)?;
            self.remote.value(FL_ACTUAL_COST, &text, &[])
        };
        // the price is never less than what it settles for
        self.late.keep(settled()).flatten().unwrap_or(price)
    }

    fn save(&self) -> Vec<u8> {
        self.late.save(&self.remote)
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        load(&self.remote, state)
    }

    fn typed(self: Box<Self>) -> std::result::Result<Box<dyn Any>, Box<dyn AnyMechanism>> {
        Err(self)
    }
}
