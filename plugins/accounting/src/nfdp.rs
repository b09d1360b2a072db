//! Privacy by sampling alone.
use crate::priced_ledger::{Price, PricedLedger, Pricing, plus, unpriced};
use fl_core::Problem;
use fl_core::prelude::*;
use fl_core::privacy::{Unit, sampled};

settings! {
    /// The closed form of noise-free differential privacy: the guarantee for one example when `k`
    /// of `n` examples are drawn before training (Sun and Lyu 2020, FedMD-NFDP). Delta follows from
    /// the sample and is large, about `k / n`. New draws compose: epsilons and deltas add. Prices
    /// only such samples.
    pub struct Nfdp {}
}

impl Pricing for Nfdp {
    type Cost = (f64, f64);

    fn price(&self, event: &PrivacyEvent) -> Result<Price<(f64, f64)>> {
        match event {
            PrivacyEvent::Sampled {
                k,
                n,
                public,
                replacement,
            } => {
                ensure!(
                    *n > 0 && (*replacement || k <= n),
                    Problem::Unpriced(format!(
                        "{event} makes no sense: without replacement there are at most as many draws as examples"
                    ))
                );
                Ok(Price {
                    cost: sampled(*k, *n, *replacement),
                    unit: Unit::Example,
                    // the number of a client's examples is private, and the price reveals it
                    data_dependent: !public,
                })
            }
            _ => unpriced("nfdp", "samples of the training examples only", event),
        }
    }

    fn add(sum: &mut (f64, f64), more: &(f64, f64)) {
        *sum = (plus(sum.0, more.0), plus(sum.1, more.1));
    }

    /// Returns an epsilon of infinity if delta has reached 1, because nothing is guaranteed then.
    fn spent(&self, (epsilon, delta): &(f64, f64)) -> (f64, f64) {
        if *delta < 1.0 {
            (*epsilon, *delta)
        } else {
            (f64::INFINITY, 0.0)
        }
    }
}
plugin!(accountant "nfdp" => Nfdp as PricedLedger<Nfdp>,
    papers: ["Sun and Lyu 2020"]);

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> PricedLedger<Nfdp> {
        Nfdp {}.into()
    }

    #[test]
    fn it_is_an_accountant() {
        fl_conformance::accountant(books);
    }

    #[test]
    fn a_price_of_a_clients_own_number_follows_its_data() {
        for public in [true, false] {
            let event = PrivacyEvent::Sampled {
                k: 1,
                n: 12,
                public,
                replacement: false,
            };
            let guarantee = books().guarantee(Some(&event)).unwrap();
            assert_eq!(guarantee.data_dependent, !public);
        }
    }

    #[test]
    fn all_examples_are_no_protection() {
        let event = |k| PrivacyEvent::Sampled {
            k,
            n: 300,
            public: true,
            replacement: false,
        };
        let mut some = books();
        some.charge(&event(100)).unwrap();
        let given = some.guarantee(None).unwrap();
        assert!((given.epsilon - 0.403_805_356_689_8).abs() < 1e-12);
        assert_eq!(given.delta, 100.0 / 300.0);
        assert_eq!(given.unit, Unit::Example);
        let mut all = books();
        all.charge(&event(300)).unwrap();
        assert_eq!(all.guarantee(None).unwrap().epsilon, f64::INFINITY);
        assert!(
            all.charge(&event(301))
                .unwrap_err()
                .to_string()
                .contains("at most as many draws")
        );
    }
}
