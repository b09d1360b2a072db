//! Accountants of a library as parts of this program.

use super::part_handle::PartHandle;
use crate::abi::raw::*;
use crate::privacy::{Composition, Guarantee, Ledger, Neighbours, Noise, Unit};
use crate::{Accountant, PrivacyEvent, Problem, Result};
use anyhow::{bail, ensure};
use serde::Deserialize;
use serde_json::json;

pub(super) struct LoadedAccountant(pub PartHandle);

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

impl Accountant for LoadedAccountant {
    fn charge(&mut self, event: &PrivacyEvent) -> Result<()> {
        priceable([event])?;
        let text = serde_json::to_string(event)?;
        self.0.must(FL_CHARGE, &text, &[], None, None)?;
        Ok(())
    }

    fn guarantee(&self, next: Option<&PrivacyEvent>) -> Result<Guarantee> {
        priceable(next)?;
        let text = serde_json::to_string(&next)?;
        let answer = self.0.must(FL_GUARANTEE, &text, &[], None, None)?;
        let g: GuaranteeText = self.0.json(&answer)?;
        let epsilon = g.epsilon.unwrap_or(f64::INFINITY);
        ensure!(
            epsilon >= 0.0 && (0.0..=1.0).contains(&g.delta),
            "{}: it guarantees epsilon {epsilon} at delta {}; epsilon is at least 0, delta in 0..=1",
            self.0.who(),
            g.delta
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
        let how = match how {
            Composition::Sequential => "sequential",
            Composition::Parallel => "parallel",
        };
        let text = serde_json::to_string(&json!({ "ledgers": ledgers, "how": how }))?;
        self.0.must(FL_MERGE, &text, &[], None, None)?;
        Ok(())
    }
}
