//! Privacy by sampling alone.
use fl_core::prelude::*;
use fl_core::settings::above_to;

/// The most draws of one client.
const MOST: usize = 10_000_000;

settings! {
    /// Each client trains on a random sample of its own examples and on nothing else (FedMD-NFDP, Sun and Lyu 2020). Give `k` or
    /// `share`; `fl account nfdp` says which `k` an epsilon allows. Only `k` has a price.
    #[check(SampleExamples::one_size)]
    pub struct SampleExamples {
        /// How many examples to draw.
        k: Option<usize> = None, in 1..=MOST;
        /// Or which share of the client's examples, rounded down to whole ones, at least one. The sample then grows with them, which
        /// shows that there is one more: nothing is guaranteed.
        share: Option<f64> = None, in above_to(0.0, 1.0);
        /// Can an example be drawn more than once?
        replacement: bool = false;
    }
}

impl SampleExamples {
    fn one_size(&self) -> Result<(), String> {
        match self.k.is_some() == self.share.is_some() {
            true => Err("give `k` or `share`".into()),
            false => Ok(()),
        }
    }

    /// How many draws of `n` examples.
    fn size(&self, n: usize) -> Result<usize> {
        let share = |share: f64| ((share * n as f64 + 1e-9) as usize).max(1);
        let k = self.k.unwrap_or_else(|| share(self.share.unwrap_or(1.0)));
        ensure!(
            self.replacement || k <= n,
            "`sample-examples` draws {k} without replacement, and there are only {n} examples"
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
        let k = self.size(own.0.len())?;
        Ok(match self.k {
            Some(_) => PrivacyEvent::Sampled {
                k,
                n: own.0.len(),
                replacement: self.replacement,
            },
            // the theorem compares samples of the same size, from one example more and one less
            None => PrivacyEvent::Unaccounted {
                why: "how many examples are drawn follows how many there are, so one more of them is seen; give `k` in \
                      sample-examples (`fl account nfdp` finds one)"
                    .into(),
            },
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
plugin!(privacy "sample-examples" => SampleExamples,
    papers: ["Sun and Lyu 2020"]);

#[cfg(test)]
mod tests {
    use super::*;

    fn part(k: usize, replacement: bool) -> SampleExamples {
        SampleExamples {
            k: Some(k),
            share: None,
            replacement,
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
            "`sample-examples` draws 11 without replacement, and there are only 10 examples"
        );
    }
}
