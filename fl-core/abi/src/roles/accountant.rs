//! Accountants, which the program alone asks.

use crate::caller::{Callee, Calls, Means};
use crate::host::PartHandle;
use crate::library::{Host, Input};
use crate::raw::*;
use anyhow::{bail, ensure};
use fl_roles::privacy::{Composition, Guarantee, Ledger, Neighbours, Noise, Unit};
use fl_roles::{Accountant, PrivacyEvent, Problem, Result};
use serde::Deserialize;
use serde_json::json;

/// An accountant that is elsewhere.
pub(crate) struct RemoteAccountant(pub PartHandle);

#[derive(Deserialize)]
struct GuaranteeText {
    epsilon: Option<f64>,
    delta: f64,
    unit: Unit,
    #[serde(default = "replaced")]
    neighbours: Neighbours,
    data_dependent: bool,
    noise: Noise,
}

fn replaced() -> Neighbours {
    Neighbours::Replaced
}

/// Events as JSON, which knows no NaN and no infinity: what has such a number has no price.
fn priceable<'e>(events: impl IntoIterator<Item = &'e PrivacyEvent>) -> Result<()> {
    for event in events {
        let text = serde_json::to_string(event)?;
        if serde_json::from_str::<PrivacyEvent>(&text).is_err() {
            let why = format!("an event that is not finite has no price: {event}");
            bail!(Problem::Unpriced(why));
        }
    }
    Ok(())
}

impl Accountant for RemoteAccountant {
    fn charge(&mut self, event: &PrivacyEvent) -> Result<()> {
        priceable([event])?;
        let text = serde_json::to_string(event)?;
        let done = self.0.must(FL_CHARGE, &text, &[], Means::default());
        done.map(drop)
    }

    fn guarantee(&self, next: Option<&PrivacyEvent>) -> Result<Guarantee> {
        priceable(next)?;
        let text = serde_json::to_string(&next)?;
        let answer = self.0.must(FL_GUARANTEE, &text, &[], Means::default())?;
        let g: GuaranteeText = self.0.json(&answer)?;
        let epsilon = g.epsilon.unwrap_or(f64::INFINITY);
        ensure!(
            epsilon >= 0.0 && (0.0..=1.0).contains(&g.delta),
            self.0.says(&format!(
                "it guarantees epsilon {epsilon} at delta {}; epsilon is at least 0, delta in 0..=1",
                g.delta
            ))
        );
        Ok(Guarantee {
            epsilon,
            delta: g.delta,
            unit: g.unit,
            neighbours: g.neighbours,
            data_dependent: g.data_dependent,
            noise: g.noise,
            after_split: false,
            finest_split: false,
            claimed_by: Vec::new(),
        })
    }

    fn merge(&mut self, ledgers: &[Ledger], how: Composition) -> Result<()> {
        priceable(ledgers.iter().flat_map(|l| &l.events))?;
        let text = serde_json::to_string(&json!({ "ledgers": ledgers, "how": how }))?;
        let done = self.0.must(FL_MERGE, &text, &[], Means::default());
        done.map(drop)
    }
}

/// The text of [`FL_MERGE`].
#[derive(Deserialize)]
struct MergeText {
    ledgers: Vec<Ledger>,
    how: Composition,
}

impl Callee for Box<dyn Accountant> {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_CHARGE => self.charge(&input.json()?)?,
            FL_GUARANTEE => {
                let next: Option<PrivacyEvent> = input.json()?;
                host.json(&self.guarantee(next.as_ref())?)?;
            }
            FL_MERGE => {
                let MergeText { ledgers, how } = input.json()?;
                self.merge(&ledgers, how)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
