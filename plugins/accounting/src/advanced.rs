//! Advanced composition.
use crate::basic::pure;
use crate::pate::Pure;
use crate::priced_ledger::{Price, PricedLedger, Pricing};
use fl_core::prelude::*;
use fl_core::privacy::Unit;
use fl_core::settings::between;

settings! {
    /// Advanced composition of pure guarantees (Dwork and Roth 2014, theorem 3.20; unequal epsilons
    /// as in Dwork, Rothblum and Vadhan 2010), or basic composition where that is less. Prices
    /// Laplace noise and randomised response only.
    pub struct AdvancedComposition {
        /// Delta of the guarantee.
        delta: f64 = 1e-5, in between(0.0, 1.0);
        /// The unit to protect, if a release has a price for either.
        unit: Unit = Unit::Example;
    }
}

impl Pricing for AdvancedComposition {
    type Cost = Pure;

    fn price(&self, event: &PrivacyEvent) -> Result<Price<Pure>> {
        let price = pure("advanced-composition", event, self.unit)?;
        Ok(price.map(|(k, epsilon)| Pure::of(k, epsilon)))
    }

    fn add(sum: &mut Pure, more: &Pure) {
        *sum = sum.plus(*more);
    }

    fn spent(&self, cost: &Pure) -> (f64, f64) {
        (cost.least(self.delta), self.delta)
    }
}
plugin!(accountant "advanced-composition" => AdvancedComposition as PricedLedger<AdvancedComposition>,
    papers: ["Dwork and Roth 2014", "Dwork, Rothblum and Vadhan 2010"]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_an_accountant() {
        for delta in [1e-5, 0.1] {
            fl_conformance::accountant(|| {
                PricedLedger::from(AdvancedComposition {
                    delta,
                    unit: Unit::Party,
                })
            });
        }
    }
}
