//! Privacy by sampling alone.
use fl_core::prelude::*;

/// The most draws of one client.
const MOST: usize = 10_000_000;

settings! {
    /// Each client trains only on a random sample of its own examples (FedMD-NFDP, Sun and Lyu
    /// 2020). Give `k` or `share`; `fl account nfdp` prints the `k` that an epsilon allows. Only
    /// `k` with `min-examples` has a price.
    #[check(SampleExamples::one_size)]
    pub struct SampleExamples {
        /// Number of examples to draw.
        k: Option<usize> = None, in 1..=MOST;
        /// A public lower bound of every client's number of examples without one of them: every
        /// client has more. It sets the price of the sample; without it the price reveals a
        /// client's number of examples, and nothing is guaranteed.
        min_examples: Option<usize> = None, in 1..=MOST;
        /// Share of the client's examples to draw, rounded down, at least one. The sample then
        /// grows with their number, which reveals an additional example: nothing is guaranteed.
        share: Option<f64> = None, in above_to(0.0, 1.0);
        /// Whether an example can be drawn more than once.
        replacement: bool = false;
    }
}

impl SampleExamples {
    fn one_size(&self) -> Result<(), String> {
        match (self.k, self.share, self.min_examples) {
            (Some(k), None, Some(n)) if !self.replacement && k > n => Err(format!(
                "`k` is {k} without replacement, and `min-examples` only {n}"
            )),
            (None, Some(_), Some(_)) => Err("`min-examples` is for `k`, not for `share`".into()),
            (Some(_), None, _) | (None, Some(_), None) => Ok(()),
            _ => Err("give `k` or `share`".into()),
        }
    }

    /// Returns the number of draws of `n` examples.
    fn size(&self, n: usize) -> Result<usize> {
        let share = |share: f64| ((share * n as f64 + 1e-9) as usize).max(1);
        let k = self.k.unwrap_or_else(|| share(self.share.unwrap_or(1.0)));
        // how many examples there are is a secret
        ensure!(
            n > 0 && (self.replacement || k <= n),
            "`sample-examples` draws {k} of a client's examples, and the client has too few: draw fewer"
        );
        Ok(k)
    }
}

impl PrivacyMechanism for SampleExamples {
    type On = Ids;

    fn clip(&self, _: &mut Ids) -> Result<()> {
        Ok(()) // an example is present or not
    }

    fn price(&self, own: &Ids, _: &Cohort) -> Result<PrivacyEvent> {
        let (n, least) = (own.0.len(), self.min_examples);
        let k = self.size(n)?;
        // the theorem compares n examples with one more: also without one there must be `least`
        ensure!(
            least.is_none_or(|least| n > least),
            "`sample-examples` has a price for more than {} examples, and a client has no more; set `min-examples` to what every client is known to have without one of them",
            least.unwrap_or_default()
        );
        Ok(match self.k {
            Some(_) => PrivacyEvent::Sampled {
                k,
                // more examples cost less
                n: least.unwrap_or(n),
                public: least.is_some(),
                replacement: self.replacement,
            },
            // the theorem compares samples of the same size, from one more and one fewer example
            None => PrivacyEvent::Unaccounted {
                why: "the number of drawn examples depends on the number of examples, so one more of them is seen; give `k` in \
                      sample-examples (`fl account nfdp` finds one)"
                    .into(),
            },
        })
    }

    fn perturb(&mut self, own: &mut Ids, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        let (n, mut draws) = (own.0.len(), noise.stream().draws());
        let k = self.size(n)?;
        let chosen: Vec<usize> = if self.replacement {
            (0..k).map(|_| draws.below(n)).collect()
        } else {
            draws.choose(n, k)
        };
        *own = Ids(chosen.into_iter().map(|at| own.0[at]).collect());
        Ok(())
    }
}
plugin!(privacy "sample-examples" => SampleExamples,
    papers: ["Sun and Lyu 2020"]);

#[cfg(test)]
mod tests {
    use super::*;

    fn part(k: usize, replacement: bool) -> SampleExamples {
        SampleExamples {
            k: Some(k),
            min_examples: None,
            share: None,
            replacement,
        }
    }

    #[test]
    fn a_public_number_of_examples_is_the_price_of_any_more() {
        let event = |few: &SampleExamples, n| few.price(&Ids((0..n).collect()), &Cohort::all(1));
        let mut few = part(5, false);
        let own = |n| event(&part(5, false), n).unwrap();
        assert_ne!(own(12), own(13), "which tells how many there are");
        few.min_examples = Some(11);
        let due = PrivacyEvent::Sampled {
            k: 5,
            n: 11,
            public: true,
            replacement: false,
        };
        for n in [12, 13, 500] {
            assert_eq!(event(&few, n).unwrap(), due);
        }
        // without one of 11 there are 10, whose sample costs more than that of 11
        for n in [10, 11] {
            let refused = event(&few, n).unwrap_err().to_string();
            assert!(refused.contains("for more than 11 examples"), "{refused}");
        }
    }

    #[test]
    fn what_is_drawn_is_what_is_priced() {
        for (mut part, k) in [(part(200, false), 200), (part(1500, true), 1500)] {
            let mut own = Ids((0..1000).collect());
            let event = part.price(&own, &Cohort::all(1)).unwrap();
            let due = PrivacyEvent::Sampled {
                k,
                n: 1000,
                public: false,
                replacement: part.replacement,
            };
            assert_eq!(event, due);
            draw(&mut part, &mut own);
            assert_eq!(own.0.len(), k);
            let mut different = own.0.clone();
            different.sort_unstable();
            different.dedup();
            assert_eq!(different.len() == k, !part.replacement);
            assert!(different.iter().all(|id| *id < 1000));
        }
    }

    fn draw(part: &mut SampleExamples, own: &mut Ids) {
        let noise = ReleaseNoise::seeded(&Stream::root(3));
        part.perturb(own, &Cohort::all(1), &noise).unwrap();
    }

    #[test]
    fn a_share_shows_how_many_there_are_and_has_no_price() {
        for (rows, k) in [(9, 4), (10, 5), (1, 1)] {
            let mut half = SampleExamples {
                k: None,
                min_examples: None,
                share: Some(0.5),
                replacement: false,
            };
            let mut own = Ids((0..rows).collect());
            let event = half.price(&own, &Cohort::all(1)).unwrap();
            assert!(matches!(event, PrivacyEvent::Unaccounted { .. }), "{event}");
            draw(&mut half, &mut own);
            assert_eq!(own.0.len(), k);
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        let own = Ids((0..10).collect());
        let too_many = part(11, false).price(&own, &Cohort::all(1)).unwrap_err();
        assert_eq!(
            too_many.to_string(),
            "`sample-examples` draws 11 of a client's examples, and the client has too few: draw fewer"
        );
    }
}
