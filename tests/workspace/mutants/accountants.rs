//! Flawed accountants: pure epsilons that add up, and what can be wrong with that.

use super::Mutant;
use fl_conformance::check;
use fl_core::Problem;
use fl_core::prelude::*;
use fl_core::privacy::{Composition, Guarantee, Ledger, Noise, Unit};
use std::cell::Cell;

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    Nothing,
    UnknownFree,
    UnknownText,
    AskingCharges,
    AskedWrongly,
    Shrinks,
    Free,
    NoiseCosts,
    TakesNegative,
    LastLedger,
    ParallelTwice,
}

struct Adds {
    flaw: Flaw,
    epsilon: Cell<f64>,
    unit: Unit,
}

impl Adds {
    fn price(&self, event: &PrivacyEvent) -> Result<f64> {
        let PrivacyEvent::Laplace {
            sensitivity, scale, ..
        } = event
        else {
            match self.flaw {
                Flaw::UnknownFree => return Ok(0.0),
                Flaw::UnknownText => bail!("no price for {event:?}"),
                _ => bail!(Problem::Unpriced(format!("no price for {event:?}"))),
            }
        };
        let sound = *sensitivity >= 0.0 && sensitivity.is_finite() && *scale > 0.0;
        ensure!(
            sound || self.flaw == Flaw::TakesNegative,
            Problem::Unpriced(format!("{event:?} makes no sense"))
        );
        match self.flaw {
            Flaw::Free => Ok(0.0),
            Flaw::NoiseCosts => Ok(sensitivity * scale),
            _ => Ok(sensitivity / scale),
        }
    }
}

impl Accountant for Adds {
    fn charge(&mut self, event: &PrivacyEvent) -> Result<()> {
        let more = self.price(event)?;
        if let PrivacyEvent::Laplace { unit, .. } = event {
            self.unit = *unit;
        }
        let epsilon = self.epsilon.get();
        self.epsilon
            .set(if self.flaw == Flaw::Shrinks && epsilon > 1.0 {
                0.9 * epsilon
            } else {
                epsilon + more
            });
        Ok(())
    }

    fn guarantee(&self, next: Option<&PrivacyEvent>) -> Result<Guarantee> {
        let more = next.map_or(Ok(0.0), |event| self.price(event))?;
        let epsilon = self.epsilon.get();
        let asked = if self.flaw == Flaw::AskedWrongly {
            epsilon
        } else {
            epsilon + more
        };
        if self.flaw == Flaw::AskingCharges {
            self.epsilon.set(epsilon + more);
        }
        Ok(Guarantee {
            epsilon: asked,
            delta: 0.0,
            unit: self.unit,
            neighbours: fl_core::privacy::Neighbours::Replaced,
            data_dependent: false,
            noise: Noise::Seeded,
            after_split: false,
            finest_split: false,
            claimed_by: Vec::new(),
        })
    }

    fn merge(&mut self, ledgers: &[Ledger], how: Composition) -> Result<()> {
        let of = |ledger: &Ledger| {
            ledger
                .events
                .iter()
                .map(|event| self.price(event))
                .sum::<Result<f64>>()
        };
        let each = ledgers.iter().map(of).collect::<Result<Vec<f64>>>()?;
        let sum: f64 = each.iter().sum();
        let cost = match how {
            Composition::Parallel if self.flaw == Flaw::ParallelTwice => 2.0 * sum,
            _ if self.flaw == Flaw::LastLedger => each.last().copied().unwrap_or(0.0),
            // an upper bound for disjoint data too
            _ => sum,
        };
        self.epsilon.set(self.epsilon.get() + cost);
        Ok(())
    }
}

pub fn all() -> Vec<Mutant> {
    use Flaw::*;
    let flaws = [
        ("without a flaw", None, Flaw::Nothing),
        (
            "what it does not know is free",
            Some("an event without a price is refused"),
            UnknownFree,
        ),
        (
            "refuses without saying why it does",
            Some("an event without a price is refused"),
            UnknownText,
        ),
        (
            "asking costs",
            Some("asking changes nothing"),
            AskingCharges,
        ),
        (
            "says less than it charges",
            Some("an event has the requested cost"),
            AskedWrongly,
        ),
        (
            "epsilon shrinks",
            Some("epsilon grows with events"),
            Shrinks,
        ),
        ("all is free", Some("epsilon grows with events"), Free),
        ("noise costs", Some("more noise costs less"), NoiseCosts),
        (
            "a negative cost",
            Some("an impossible event is refused"),
            TakesNegative,
        ),
        (
            "the last ledger counts",
            Some("ledgers merge in any order"),
            LastLedger,
        ),
        (
            "disjoint data cost twice",
            Some("parallel costs at most sequential"),
            ParallelTwice,
        ),
    ];
    let make = |flaw| {
        Box::new(Adds {
            flaw,
            epsilon: Cell::new(0.0),
            unit: Unit::Example,
        })
    };
    flaws
        .map(|(name, wanted, flaw)| (name, wanted, check::accountant(&|| make(flaw))))
        .into()
}
