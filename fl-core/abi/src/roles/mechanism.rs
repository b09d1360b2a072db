//! Privacy mechanisms.

use crate::caller::{Callee, Caller, Calls};
use crate::context_json::CohortText;
use crate::library::{Host, Input};
use crate::marshal::content;
use crate::raw::*;
use fl_roles::__private::Sealed;
use fl_roles::message::{AnyMessage, MessageType};
use fl_roles::privacy::ReleaseNoise;
use fl_roles::{AnyMechanism, Cohort, PrivacyEvent, Result};
use serde::{Deserialize, Serialize};

/// The text of [`FL_TRUNCATE`].
#[derive(Serialize, Deserialize)]
struct TruncateText {
    queries: usize,
}

/// A mechanism that is elsewhere.
pub(crate) struct RemoteMechanism {
    pub remote: Box<dyn Caller>,
    pub on: &'static MessageType,
}

impl Sealed for RemoteMechanism {}

impl AnyMechanism for RemoteMechanism {
    fn on(&self) -> &'static MessageType {
        self.on
    }

    fn clip(&self, message: &mut dyn AnyMessage) -> Result<()> {
        self.remote.check()?;
        let done = self.remote.change(FL_CLIP, "", message, None)?;
        self.remote.due(FL_CLIP, done)
    }

    fn norm_bound(&self) -> Option<f64> {
        let bound = self.remote.value(FL_NORM_BOUND, "", &[]);
        self.remote.keep(bound).flatten().flatten()
    }

    fn range(&self, message: &dyn AnyMessage) -> Option<f32> {
        let range = self.remote.value(FL_RANGE, "", &[content(message)]);
        let range = self.remote.keep(range).flatten().flatten();
        range.map(|range: f64| range as f32)
    }

    fn agree(&mut self, largest: f32) {
        // as f64, so that the same f32 comes out
        let text = f64::from(largest).to_string();
        let done = self.remote.ask(FL_AGREE, &text, &[], Default::default());
        self.remote.keep(done);
    }

    fn price(&self, message: &dyn AnyMessage, cohort: &Cohort) -> Result<PrivacyEvent> {
        self.remote.check()?;
        let (text, sent) = (CohortText::of(cohort)?, [content(message)]);
        let price = self.remote.value(FL_PRICE, &text, &sent)?;
        self.remote.due(FL_PRICE, price)
    }

    fn perturb(
        &mut self,
        message: &mut dyn AnyMessage,
        cohort: &Cohort,
        noise: &ReleaseNoise,
    ) -> Result<()> {
        self.remote.check()?;
        let text = CohortText::of(cohort)?;
        let done = self
            .remote
            .change(FL_PERTURB, &text, message, Some(noise))?;
        self.remote.due(FL_PERTURB, done)
    }

    fn queries(&self, message: &dyn AnyMessage) -> usize {
        let queries = self.remote.value(FL_QUERIES, "", &[content(message)]);
        self.remote.keep(queries).flatten().unwrap_or(1)
    }

    fn truncate(&self, message: &mut dyn AnyMessage, queries: usize) {
        // if it fails, more than was paid for is still there: `perturb` will refuse to release it
        let mut done = || -> Result<Option<()>> {
            let text = serde_json::to_string(&TruncateText { queries })?;
            self.remote.change(FL_TRUNCATE, &text, message, None)
        };
        self.remote.keep(done());
    }

    fn actual_cost(&self, price: PrivacyEvent) -> PrivacyEvent {
        let settled = || -> Result<Option<PrivacyEvent>> {
            let text = serde_json::to_string(&price)?;
            self.remote.value(FL_ACTUAL_COST, &text, &[])
        };
        // the price is never less than what it settles for
        self.remote.keep(settled()).flatten().unwrap_or(price)
    }

    fn save(&self) -> Vec<u8> {
        self.remote.save_or_mark()
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.remote.load_unless_marked(state)
    }
}

impl Callee for Box<dyn AnyMechanism> {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        serve(&mut **self, operation, input, host)
    }
}

/// Does an operation with a mechanism that is here.
pub(crate) fn serve(
    mechanism: &mut dyn AnyMechanism,
    operation: u32,
    input: &Input<'_>,
    host: &Host<'_>,
) -> Result<bool> {
    let on = mechanism.on();
    let message = || input.message_of(0, on);
    match operation {
        FL_CLIP => {
            let mut m = message()?;
            mechanism.clip(&mut *m)?;
            host.tensors(&content(&*m))?;
        }
        FL_NORM_BOUND => host.json(&mechanism.norm_bound())?,
        FL_RANGE => {
            let range = mechanism.range(&*message()?);
            host.json(&range.map(f64::from))?;
        }
        FL_AGREE => mechanism.agree(input.json::<f64>()? as f32),
        FL_PRICE => {
            let cohort = input.json::<CohortText>()?.cohort();
            host.json(&mechanism.price(&*message()?, &cohort)?)?;
        }
        FL_PERTURB => {
            let cohort = input.json::<CohortText>()?.cohort();
            let mut m = message()?;
            let noise = host.noise();
            mechanism.perturb(&mut *m, &cohort, &noise)?;
            if noise.is_drawn() {
                host.drew();
            }
            host.tensors(&content(&*m))?;
        }
        FL_QUERIES => host.json(&mechanism.queries(&*message()?))?,
        FL_TRUNCATE => {
            let TruncateText { queries } = input.json()?;
            let mut m = message()?;
            mechanism.truncate(&mut *m, queries);
            host.tensors(&content(&*m))?;
        }
        FL_ACTUAL_COST => host.json(&mechanism.actual_cost(input.json::<PrivacyEvent>()?))?,
        FL_SAVE => host.state(&mechanism.save())?,
        FL_LOAD => mechanism.load(&input.parcel(0)?.bytes("state")?)?,
        _ => return Ok(false),
    }
    Ok(true)
}
