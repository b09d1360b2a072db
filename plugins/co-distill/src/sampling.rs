//! Privacy by sampling alone.
use fl_core::prelude::*;
use fl_core::privacy::draws_for;
use fl_core::settings::{above, above_to};

/// The most draws of one client.
const MOST: usize = 10_000_000;

settings! {
    /// Each client trains on a random sample of its own examples and on nothing else (FedMD-NFDP, Sun and Lyu 2020). Give one of
    /// `k`, `share` and `epsilon`.
    #[check(SampleExamples::one_size)]
    pub struct SampleExamples {
        /// How many examples to draw.
        k: Option<usize> = None, in 1..=MOST;
        /// Or which share of the client's examples, rounded down to whole ones, at least one.
        share: Option<f64> = None, in above_to(0.0, 1.0);
        /// Or as many as this epsilon allows.
        epsilon: Option<f64> = None, in above(0.0);
        /// Can an example be drawn more than once?
        replacement: bool = false;
    }
}

impl SampleExamples {
    fn one_size(&self) -> Result<(), String> {
        let given = [
            self.k.is_some(),
            self.share.is_some(),
            self.epsilon.is_some(),
        ];
        match given.iter().filter(|given| **given).count() {
            1 => Ok(()),
            _ => Err("give one of `k`, `share` and `epsilon`".into()),
        }
    }

    /// How many draws of `n` examples.
    fn size(&self, n: usize) -> Result<usize> {
        let k = match (self.k, self.share, self.epsilon) {
            (Some(k), _, _) => k,
            (_, Some(share), _) => ((share * n as f64 + 1e-9) as usize).max(1),
            (_, _, epsilon) => draws_for(epsilon.unwrap_or(0.0), n, self.replacement),
        };
        ensure!(
            self.replacement || k <= n,
            "`sample-examples` draws {k} without replacement, and there are only {n} examples"
        );
        ensure!(
            k > 0,
            "an epsilon of {} allows not one of {n} examples; the least for one is {:.2e}",
            self.epsilon.unwrap_or(0.0),
            fl_core::privacy::sampled(1, n, self.replacement).0
        );
        ensure!(
            k <= MOST,
            "an epsilon of {} asks for {k} draws, and {MOST} is the most",
            self.epsilon.unwrap_or(0.0)
        );
        Ok(k)
    }
}

impl PrivacyMechanism for SampleExamples {
    type On = Ids;

    fn clip(&self, _: &mut Ids) -> Result<()> {
        Ok(()) // an example is there or not
    }

    fn price(&self, own: &Ids, _: &Cohort) -> Result<PrivacyEvent> {
        Ok(PrivacyEvent::Sampled {
            k: self.size(own.0.len())?,
            n: own.0.len(),
            replacement: self.replacement,
        })
    }

    fn perturb(&mut self, own: &mut Ids, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        let (n, mut draws) = (own.0.len(), noise.stream().draws());
        let k = self.size(n)?;
        let chosen: Vec<usize> = match self.replacement {
            true => (0..k).map(|_| draws.below(n)).collect(),
            false => draws.choose(n, k),
        };
        *own = Ids(chosen.into_iter().map(|at| own.0[at]).collect());
        Ok(())
    }
}
plugin!(privacy "sample-examples" => SampleExamples);

#[cfg(test)]
mod tests {
    use super::*;

    fn part(k: Option<usize>, epsilon: Option<f64>, replacement: bool) -> SampleExamples {
        SampleExamples {
            k,
            share: None,
            epsilon,
            replacement,
        }
    }

    #[test]
    fn what_is_drawn_is_what_is_priced() {
        // (settings, how many of 1000): `epsilon` by nfdp.json
        for (mut part, k) in [
            (part(Some(200), None, false), 200),
            (part(None, Some(1.0), false), 632),
            (part(None, Some(1.0), true), 1000),
            (
                SampleExamples {
                    share: Some(0.1),
                    ..part(None, None, false)
                },
                100,
            ),
        ] {
            let mut own = Ids((0..1000).collect());
            let PrivacyEvent::Sampled {
                k: priced,
                n,
                replacement,
            } = part.price(&own, &Cohort::all(1)).unwrap()
            else {
                panic!("a sample is priced as one");
            };
            assert_eq!((priced, n), (k, 1000));
            part.perturb(
                &mut own,
                &Cohort::all(1),
                &ReleaseNoise::seeded(&Stream::root(3)),
            )
            .unwrap();
            assert_eq!(own.0.len(), k);
            let mut different = own.0.clone();
            different.sort_unstable();
            different.dedup();
            assert_eq!(different.len() == k, !replacement);
            assert!(different.iter().all(|id| *id < 1000));
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        let own = Ids((0..10).collect());
        let too_many = part(Some(11), None, false)
            .price(&own, &Cohort::all(1))
            .unwrap_err();
        assert_eq!(
            too_many.to_string(),
            "`sample-examples` draws 11 without replacement, and there are only 10 examples"
        );
        let none = part(None, Some(0.01), false)
            .price(&own, &Cohort::all(1))
            .unwrap_err();
        assert_eq!(
            none.to_string(),
            "an epsilon of 0.01 allows not one of 10 examples; the least for one is 9.53e-2"
        );
    }
}
