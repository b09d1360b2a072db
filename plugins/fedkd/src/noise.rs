//! Eq. 2: Laplace noise on the ensemble's scores, and on the counts that weight it (the paper's Eq.
//! 1 uses exact counts).
use fl_core::message::Counts;
use fl_core::prelude::*;
use fl_core::privacy::{Unit, at_most, ratio_up};

settings! {
    /// Laplace noise of scale `1 / gamma` on every score of the ensemble, drawn once (FedKD, Eq. 2;
    /// Gong et al. 2022).
    pub struct LaplaceLogits {
        /// Inverse scale of the noise. FedKD uses 1.
        gamma: f64 = 1.0, in above(0.0);
        /// A bound that does not depend on the data: the ensemble is clipped to it, and the release
        /// has a price. The paper has none, and then no epsilon can be stated.
        clip: Option<f64> = None, in above(0.0);
    }
}

impl PrivacyMechanism for LaplaceLogits {
    type On = Logits;

    fn clip(&self, z: &mut Logits) -> Result<()> {
        if let Some(clip) = self.clip {
            let most = at_most(clip);
            z.values.mapv_inplace(|v| v.clamp(-most, most));
        }
        Ok(())
    }

    fn price(&self, z: &Logits, _: &Cohort) -> Result<PrivacyEvent> {
        Ok(match self.clip {
            // a party can change each number from one end to the other
            Some(clip) => PrivacyEvent::Laplace { sensitivity: 2.0 * clip * z.values.len() as f64, scale: 1.0 / self.gamma, unit: Unit::Party },
            None => PrivacyEvent::Unaccounted { why: "the scores have no bound that is independent of the data; set `clip` in laplace-logits".into() },
        })
    }

    fn perturb(&mut self, z: &mut Logits, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        let mut draws = noise.draws();
        let hide = |v| draws.laplace(f64::from(v), 1.0 / self.gamma) as f32;
        z.values.mapv_inplace(hide);
        Ok(())
    }
}
plugin!(privacy "laplace-logits" => LaplaceLogits,
    papers: ["Gong et al. 2022"]);

settings! {
    /// Laplace noise on a client's number of examples per class (the Laplace mechanism, Dwork et
    /// al. 2006). Without `max-count` it protects one example, which moves one count up and another
    /// down; with it, a whole client.
    pub struct LaplaceCounts {
        /// Scale of the noise. One example costs an epsilon of 2 over it, once.
        scale: f64, in above_to(0.0, 1e6);
        /// Larger counts are replaced by this. A client then changes the counts by at most the
        /// number of classes times it.
        max_count: Option<u32> = None, in 1..=1_000_000;
    }
}

impl PrivacyMechanism for LaplaceCounts {
    type On = Counts;

    fn clip(&self, counts: &mut Counts) -> Result<()> {
        if let Some(most) = self.max_count {
            let most = f64::from(most);
            counts.values.mapv_inplace(|n| n.clamp(-most, most));
        }
        Ok(())
    }

    fn price(&self, counts: &Counts, _: &Cohort) -> Result<PrivacyEvent> {
        let (rows, stated) = (counts.values.nrows() as f64, counts.sensitivity());
        // for any data, one example changes at most as much as its party
        let example = if stated.from_data {
            stated.party
        } else {
            stated.example
        };
        let moved = match (self.max_count, example) {
            (Some(most), _) => Some((counts.values.len() as f64 * f64::from(most), Unit::Party)),
            // in every row some counts rise and others fall
            (None, Some(example)) => Some((2.0 * f64::from(example) * rows, Unit::Example)),
            (None, None) => None,
        };
        Ok(match moved {
            // an event of Laplace noise also covers an example that is added or removed
            Some((sensitivity, Unit::Example)) if !stated.also_removed => PrivacyEvent::Pure {
                epsilon: ratio_up(sensitivity, self.scale),
                times: 1,
                unit: Unit::Example,
            },
            Some((sensitivity, unit)) => PrivacyEvent::Laplace {
                sensitivity,
                scale: self.scale,
                unit,
            },
            None => PrivacyEvent::Unaccounted {
                why: "the number of counts that one example changes is unknown; set `max-count` in laplace-counts".into(),
            },
        })
    }

    fn perturb(&mut self, counts: &mut Counts, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        let mut draws = noise.draws();
        counts.values.mapv_inplace(|n| draws.laplace(n, self.scale));
        Ok(())
    }
}
plugin!(privacy "laplace-counts" => LaplaceCounts,
    papers: ["Dwork et al. 2006"]);

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::message::VoteSensitivity;
    use ndarray::array;

    /// A price of what these data let one example change would tell something about them.
    #[test]
    fn exact_the_price_of_counts_holds_for_any_data() {
        let price = |example, party, from_data, also_removed| {
            let mut counts = Counts::new(vec![0, 1], array![[3.0, 2.0], [1.0, 4.0]]);
            counts.set_sensitivity(VoteSensitivity {
                example,
                party,
                from_data,
                also_removed,
            });
            let part = LaplaceCounts {
                scale: 4.0,
                max_count: None,
            };
            part.price(&counts, &Cohort::all(1)).unwrap()
        };
        let moves = |sensitivity| PrivacyEvent::Laplace {
            sensitivity,
            scale: 4.0,
            unit: Unit::Example,
        };
        assert_eq!(price(Some(1), Some(3), false, true), moves(4.0));
        assert_eq!(price(Some(1), Some(3), true, true), moves(12.0));
        assert_eq!(price(Some(2), Some(3), true, true), moves(12.0));
        // one example more may change how the others are split among voters
        let of_votes = price(Some(1), Some(3), true, false);
        assert!(!of_votes.covers_removal(), "{of_votes}");
        assert_eq!(of_votes.to_string(), "1 answer of pure epsilon 3");
        let unknown = price(Some(1), None, true, false);
        assert!(
            matches!(unknown, PrivacyEvent::Unaccounted { .. }),
            "{unknown}"
        );
    }

    /// 12 / 0.7 as a double is below the quotient.
    #[test]
    fn exact_the_price_of_counts_is_not_below_the_exact_one() {
        let (sensitivity, scale) = (12.0_f64, 0.7);
        let exact = |epsilon: f64| epsilon.mul_add(scale, -sensitivity);
        assert!(exact(sensitivity / scale) < 0.0);
        let mut counts = Counts::new(vec![0, 1], array![[3.0, 2.0], [1.0, 4.0]]);
        counts.set_sensitivity(VoteSensitivity {
            example: Some(1),
            party: Some(3),
            from_data: true,
            also_removed: false,
        });
        let part = LaplaceCounts {
            scale,
            max_count: None,
        };
        let price = part.price(&counts, &Cohort::all(1)).unwrap();
        let PrivacyEvent::Pure { epsilon, .. } = price else {
            panic!("{price}");
        };
        assert!(exact(epsilon) >= 0.0, "{epsilon}");
        assert!(exact(epsilon.next_down()) < 0.0, "{epsilon}");
    }

    #[test]
    fn noise_on_counts_hides_an_example_or_a_client() {
        for at_most in [None, Some(20)] {
            fl_conformance::mechanism(|| LaplaceCounts {
                scale: 4.0,
                max_count: at_most,
            });
        }
    }

    #[test]
    fn noise_and_price_agree() {
        for (gamma, clip) in [(1.0, Some(2.0)), (0.04, Some(30.0)), (1.0, None)] {
            fl_conformance::mechanism(|| LaplaceLogits { gamma, clip });
        }
    }
}
