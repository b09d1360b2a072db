//! Accountants.
use fl_core::Problem;
use fl_core::prelude::*;
use fl_core::privacy::{Composition, Guarantee, Ledger, Noise, Unit};
use std::collections::BTreeMap;

settings! {
    /// Basic composition of pure guarantees: epsilons of the same data add, of disjoint data the largest counts
    /// (Dwork and Roth 2014, theorem 3.16). Delta is 0, so only Laplace events have a price here.
    pub struct Basic {}
}

/// [`Basic`] at work.
#[derive(Clone, Default)]
pub struct BasicAccountant {
    server: f64,
    clients: BTreeMap<u32, f64>,
    unit: Option<Unit>,
}

impl From<Basic> for BasicAccountant {
    fn from(_: Basic) -> Self {
        Self::default()
    }
}

impl BasicAccountant {
    fn price(&self, event: &PrivacyEvent) -> Result<(f64, Unit)> {
        let (epsilon, unit) = match event {
            PrivacyEvent::Laplace {
                sensitivity,
                scale,
                unit,
            } => {
                let sound = *sensitivity >= 0.0 && sensitivity.is_finite() && *scale > 0.0;
                ensure!(
                    sound,
                    Problem::Unpriced(format!(
                        "{event:?} makes no sense: the sensitivity must be finite and at least 0, the scale above 0"
                    ))
                );
                (sensitivity / scale, *unit)
            }
            PrivacyEvent::Unaccounted { why } => bail!(Problem::Unpriced(format!(
                "no guarantee can be given: {why}"
            ))),
            other => bail!(Problem::Unpriced(format!(
                "`basic` has no price for {other:?}; it prices Laplace noise only"
            ))),
        };
        if let Some(before) = self.unit.filter(|u| *u != unit) {
            bail!(Problem::Unpriced(format!(
                "guarantees for an {unit:?} and for an {before:?} do not add up"
            )));
        }
        Ok((epsilon, unit))
    }
}

impl Accountant for BasicAccountant {
    fn charge(&mut self, event: &PrivacyEvent) -> Result<()> {
        let (epsilon, unit) = self.price(event)?;
        self.server += epsilon;
        self.unit = Some(unit);
        Ok(())
    }

    fn guarantee(&self, next: Option<&PrivacyEvent>) -> Result<Guarantee> {
        let (more, unit) = next
            .map(|e| self.price(e))
            .transpose()?
            .unwrap_or((0.0, self.unit.unwrap_or(Unit::Example)));
        let clients = self.clients.values().copied().fold(0.0, f64::max);
        Ok(Guarantee {
            epsilon: self.server + clients + more,
            delta: 0.0,
            unit,
            data_dependent: false,
            noise: Noise::Seeded,
        })
    }

    fn merge(&mut self, ledgers: &[Ledger], how: Composition) -> Result<()> {
        // all or nothing: a ledger that is refused charges none of its events
        let mut all = self.clone();
        for ledger in ledgers {
            for event in &ledger.events {
                let (epsilon, unit) = all.price(event)?;
                all.unit = Some(unit);
                match (how, ledger.client) {
                    (Composition::Parallel, Some(id)) => {
                        *all.clients.entry(id).or_default() += epsilon
                    }
                    _ => all.server += epsilon,
                }
            }
        }
        *self = all;
        Ok(())
    }
}
plugin!(accountant "basic" => Basic as BasicAccountant);

#[cfg(test)]
mod tests {
    use super::*;

    fn laplace(sensitivity: f64) -> PrivacyEvent {
        PrivacyEvent::Laplace {
            sensitivity,
            scale: 2.0,
            unit: Unit::Party,
        }
    }

    #[test]
    fn own_releases_add_and_of_the_clients_the_largest_counts() {
        let mut a = BasicAccountant::default();
        a.charge(&laplace(1.0)).unwrap();
        a.charge(&laplace(2.0)).unwrap();
        let ledger = |client, n| Ledger {
            client: Some(client),
            events: vec![laplace(1.0); n],
        };
        a.merge(&[ledger(0, 1), ledger(1, 3)], Composition::Parallel)
            .unwrap();
        a.merge(&[ledger(0, 1)], Composition::Parallel).unwrap();
        let epsilon = a.guarantee(None).unwrap().epsilon;
        assert_eq!(epsilon, 1.5 + 1.5);
        assert_eq!(
            a.guarantee(Some(&laplace(4.0))).unwrap().epsilon,
            epsilon + 2.0
        );
        assert_eq!(
            a.guarantee(None).unwrap().epsilon,
            epsilon,
            "asking costs nothing"
        );
    }

    #[test]
    fn it_is_an_accountant() {
        fl_conformance::accountant(BasicAccountant::default);
    }

    #[test]
    fn what_has_no_price_is_refused() {
        let mut a = BasicAccountant::default();
        let gaussian = PrivacyEvent::Gaussian {
            sensitivity: 1.0,
            sigma: 1.0,
            unit: Unit::Party,
        };
        assert!(
            a.charge(&gaussian)
                .unwrap_err()
                .downcast_ref::<Problem>()
                .is_some()
        );
        let why = PrivacyEvent::Unaccounted {
            why: "z_max comes from the data".into(),
        };
        assert_eq!(
            a.charge(&why).unwrap_err().to_string(),
            "no guarantee can be given: z_max comes from the data"
        );
        a.charge(&laplace(1.0)).unwrap();
        let example = PrivacyEvent::Laplace {
            sensitivity: 1.0,
            scale: 1.0,
            unit: Unit::Example,
        };
        assert!(a.charge(&example).is_err(), "units do not mix");
    }
}
