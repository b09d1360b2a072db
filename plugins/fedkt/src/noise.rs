//! Noise on counts of votes, before the highest count wins.
use fl_core::message::Counts;
use fl_core::prelude::*;
use fl_core::privacy::{NoiseDraws, VoteNoise, VoteRelease};

/// The most noise on counts. Its grid has whole votes on it, so that a vote moves a count by what the
/// price says.
const MOST_NOISE: f64 = 1e6;

/// Returns the cost of releasing the winners of these counts. `tell`: whether the ledger may hold
/// the counts.
fn price(counts: &Counts, noise: VoteNoise, tell: bool) -> PrivacyEvent {
    let whole = |n: &f64| *n >= 0.0 && n.fract() == 0.0 && *n <= f64::from(u32::MAX);
    if !counts.values.iter().all(whole) {
        return PrivacyEvent::Unaccounted {
            why: "counts of votes must be whole numbers from 0; these have been changed".into(),
        };
    }
    let mut sensitivity = counts.sensitivity();
    if !tell && sensitivity.from_data {
        // for any votes, one example changes at most as much as its party
        sensitivity.example = sensitivity.party;
        sensitivity.from_data = false;
    }
    let of = |row: ndarray::ArrayView1<'_, f64>| row.iter().map(|n| *n as u32).collect();
    PrivacyEvent::Votes(VoteRelease {
        noise,
        queries: counts.rows.len(),
        classes: counts.values.ncols(),
        counts: tell.then(|| counts.values.rows().into_iter().map(of).collect()),
        answered: None,
        sensitivity,
    })
}

fn truncate(counts: &mut Counts, n: usize) {
    counts.retain_rows(&(0..n).collect::<Vec<_>>());
}

macro_rules! votes_are_noised {
    ($t:ty, $noise:expr, $hide:expr) => {
        impl PrivacyMechanism for $t {
            type On = Counts;

            fn clip(&self, _: &mut Counts) -> Result<()> {
                Ok(()) // the number of voters bounds a count
            }

            fn price(&self, counts: &Counts, _: &Cohort) -> Result<PrivacyEvent> {
                Ok(price(counts, $noise(self), self.data_dependent))
            }

            fn perturb(
                &mut self,
                counts: &mut Counts,
                _: &Cohort,
                noise: &ReleaseNoise,
            ) -> Result<()> {
                let mut draws = noise.draws();
                let hide = |n| $hide(&*self, &mut draws, n);
                counts.values.mapv_inplace(hide);
                Ok(())
            }

            fn queries(&self, counts: &Counts) -> usize {
                counts.rows.len()
            }

            fn truncate(&self, counts: &mut Counts, n: usize) {
                truncate(counts, n);
            }
        }
    };
}

settings! {
    /// Laplace noise of scale `1 / gamma` on every count (LNMax: PATE, Papernot et al. 2017;
    /// FedKT-L1 at the server, -L2 inside each party, Li et al. 2021).
    pub struct LaplaceVotes {
        /// Inverse scale of the noise. FedKT uses 0.02 to 0.1.
        gamma: f64, in 1.0 / MOST_NOISE..;
        /// Calculate epsilon from these votes: the ledger then holds the counts without noise. Such
        /// an epsilon reveals something about the votes, so it is for research and nothing is
        /// guaranteed. If false, the price holds for any votes and is guaranteed.
        data_dependent: bool = true;
    }
}
votes_are_noised!(
    LaplaceVotes,
    |this: &LaplaceVotes| VoteNoise::Laplace { gamma: this.gamma },
    |this: &LaplaceVotes, draws: &mut NoiseDraws, n| draws.laplace(n, 1.0 / this.gamma)
);
plugin!(privacy "laplace-votes" => LaplaceVotes,
    papers: ["Papernot et al. 2017", "Li et al. 2021"]);

settings! {
    /// Gaussian noise on every count (GNMax, Papernot et al. 2018).
    pub struct GaussianVotes {
        /// Standard deviation of the noise. The paper uses 40 for 250 teachers.
        sigma: f64, in above_to(0.0, MOST_NOISE);
        /// Calculate epsilon from these votes: the ledger then holds the counts without noise. Such
        /// an epsilon reveals something about the votes, so it is for research and nothing is
        /// guaranteed. If false, the price holds for any votes and is guaranteed.
        data_dependent: bool = true;
    }
}
votes_are_noised!(
    GaussianVotes,
    |this: &GaussianVotes| VoteNoise::Gaussian { sigma: this.sigma },
    |this: &GaussianVotes, draws: &mut NoiseDraws, n| draws.gaussian(n, this.sigma)
);
plugin!(privacy "gaussian-votes" => GaussianVotes,
    papers: ["Papernot et al. 2018"]);

settings! {
    /// A sample is answered only if its highest count, with Gaussian noise of `check`, reaches
    /// `threshold`; its counts then get Gaussian noise of `sigma` (Confident-GNMax, Papernot et al.
    /// 2018). Samples without an answer are not released. The price assumes an answer to every
    /// sample, or with `data-dependent: true` covers the actual answers.
    pub struct ConfidentVotes {
        /// The highest count must reach this. The paper uses 200 for 250 teachers.
        threshold: f64, in 0.0..;
        /// Standard deviation of the noise on the highest count (sigma 1). The paper uses 150.
        check: f64, in above_to(0.0, MOST_NOISE);
        /// Standard deviation of the noise on the counts (sigma 2). The paper uses 40.
        sigma: f64, in above_to(0.0, MOST_NOISE);
        /// Calculate epsilon from these votes: the ledger then holds the counts without noise. Such
        /// an epsilon reveals something about the votes, so it is for research and nothing is
        /// guaranteed. If false, the price holds for any votes and is guaranteed.
        data_dependent: bool = true;
    }
}

/// The mechanism of [`ConfidentVotes`].
pub struct Confident {
    settings: ConfidentVotes,
    /// Whether each sample of the last release was answered.
    answered: Vec<bool>,
}

/// Confident-GNMax: returns the rows whose highest counts reach `threshold` after `hide` has added
/// noise, row by row.
pub fn confident(counts: &Counts, threshold: f64, mut hide: impl FnMut(f64) -> f64) -> Vec<bool> {
    let highest = |row: ndarray::ArrayView1<'_, f64>| row.iter().copied().fold(0.0, f64::max);
    let rows = counts.values.rows().into_iter().map(highest);
    rows.map(|highest| hide(highest) >= threshold).collect()
}

impl PrivacyMechanism for Confident {
    type On = Counts;

    fn clip(&self, _: &mut Counts) -> Result<()> {
        Ok(())
    }

    fn price(&self, counts: &Counts, _: &Cohort) -> Result<PrivacyEvent> {
        let ConfidentVotes {
            threshold,
            check,
            sigma,
            data_dependent,
        } = self.settings;
        let noise = VoteNoise::Confident {
            threshold,
            check,
            sigma,
        };
        Ok(price(counts, noise, data_dependent))
    }

    fn perturb(&mut self, counts: &mut Counts, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        let mut draws = noise.child("check", 0).draws();
        let check = |highest| draws.gaussian(highest, self.settings.check);
        self.answered = confident(counts, self.settings.threshold, check);
        let kept = self
            .answered
            .iter()
            .enumerate()
            .filter(|(_, answered)| **answered);
        counts.retain_rows(&kept.map(|(row, _)| row).collect::<Vec<_>>());
        let (mut draws, sigma) = (noise.child("counts", 0).draws(), self.settings.sigma);
        counts.values.mapv_inplace(|n| draws.gaussian(n, sigma));
        Ok(())
    }

    fn queries(&self, counts: &Counts) -> usize {
        counts.rows.len()
    }

    fn truncate(&self, counts: &mut Counts, n: usize) {
        truncate(counts, n);
    }

    fn actual_cost(&self, mut price: PrivacyEvent) -> PrivacyEvent {
        // the number of answers depends on the votes: a price for any votes covers all queries
        if let PrivacyEvent::Votes(votes) = &mut price
            && votes.counts.is_some()
        {
            votes.answered = Some(self.answered.clone());
        }
        price
    }
}
plugin!(privacy "confident-votes" => ConfidentVotes as Confident { answered },
    papers: ["Papernot et al. 2018"]);

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::message::VoteSensitivity;
    use ndarray::{Array2, array};

    fn counts() -> Counts {
        let mut counts = Counts::new(
            vec![2, 5, 7],
            array![[200.0, 30.0], [120.0, 110.0], [0.0, 230.0]],
        );
        counts.set_sensitivity(VoteSensitivity {
            example: Some(1),
            party: Some(3),
            ..VoteSensitivity::default()
        });
        counts
    }

    #[test]
    fn they_are_mechanisms() {
        for data_dependent in [true, false] {
            fl_conformance::mechanism(|| LaplaceVotes {
                gamma: 0.1,
                data_dependent,
            });
            fl_conformance::mechanism(|| GaussianVotes {
                sigma: 3.0,
                data_dependent,
            });
        }
    }

    #[test]
    fn the_noise_is_that_of_the_price() {
        let spread = |mechanism: &mut dyn PrivacyMechanism<On = Counts>| {
            let mut many = Counts::new((0..20_000).collect(), Array2::zeros((20_000, 2)));
            mechanism
                .perturb(
                    &mut many,
                    &Cohort::all(1),
                    &ReleaseNoise::seeded(&Stream::root(3)),
                )
                .unwrap();
            let mean = many.values.mean().unwrap();
            (
                mean,
                many.values.mapv(|x| (x - mean).powi(2)).mean().unwrap(),
            )
        };
        let (mean, variance) = spread(&mut LaplaceVotes {
            gamma: 0.5,
            data_dependent: true,
        });
        assert!(
            mean.abs() < 0.06 && (variance / 8.0 - 1.0).abs() < 0.05,
            "2 / gamma^2: {mean} {variance}"
        );
        let (mean, variance) = spread(&mut GaussianVotes {
            sigma: 3.0,
            data_dependent: true,
        });
        assert!(
            mean.abs() < 0.06 && (variance / 9.0 - 1.0).abs() < 0.05,
            "{mean} {variance}"
        );
    }

    /// On a coarser grid a vote could move a count by more than one.
    #[test]
    fn exact_votes_lie_on_the_grid_of_the_most_noise() {
        use fl_core::privacy::grid;
        use fl_core::settings::read_yaml;
        assert!(grid(MOST_NOISE) <= 1.0);
        assert!(read_yaml::<LaplaceVotes>("{gamma: 1e-6}").is_ok());
        assert!(read_yaml::<LaplaceVotes>("{gamma: 9e-7}").is_err());
        assert!(read_yaml::<GaussianVotes>("{sigma: 1e6}").is_ok());
        assert!(read_yaml::<GaussianVotes>("{sigma: 1.1e6}").is_err());
        for (check, sigma) in [("2e6", "1"), ("1", "2e6")] {
            let text = format!("{{threshold: 1, check: {check}, sigma: {sigma}}}");
            assert!(read_yaml::<ConfidentVotes>(&text).is_err());
        }
    }

    #[test]
    fn exact_the_price_says_what_accountants_need() {
        let laplace = |data_dependent| LaplaceVotes {
            gamma: 0.1,
            data_dependent,
        };
        let PrivacyEvent::Votes(told) = laplace(true).price(&counts(), &Cohort::all(1)).unwrap()
        else {
            panic!()
        };
        assert_eq!(
            (told.queries, told.classes, told.sensitivity),
            (3, 2, counts().sensitivity())
        );
        assert_eq!(told.counts.unwrap(), [[200, 30], [120, 110], [0, 230]]);
        let PrivacyEvent::Votes(kept) = laplace(false).price(&counts(), &Cohort::all(1)).unwrap()
        else {
            panic!()
        };
        assert_eq!(kept.counts, None);
        let mut noisy = counts();
        laplace(true)
            .perturb(
                &mut noisy,
                &Cohort::all(1),
                &ReleaseNoise::seeded(&Stream::root(1)),
            )
            .unwrap();
        let again = laplace(true).price(&noisy, &Cohort::all(1)).unwrap();
        assert!(
            matches!(again, PrivacyEvent::Unaccounted { .. }),
            "noise is priced once"
        );
    }

    #[test]
    fn exact_unsure_samples_are_left_out_and_only_answers_are_charged() {
        let settings = ConfidentVotes {
            threshold: 150.0,
            check: 1.0,
            sigma: 0.5,
            data_dependent: true,
        };
        let mut mechanism = Confident::from(settings);
        let (mut answered, price) = (
            counts(),
            mechanism.price(&counts(), &Cohort::all(1)).unwrap(),
        );
        mechanism
            .perturb(
                &mut answered,
                &Cohort::all(1),
                &ReleaseNoise::seeded(&Stream::root(1)),
            )
            .unwrap();
        assert_eq!(
            (&answered.rows[..], answered.winners()),
            (&[2, 7][..], vec![0, 1])
        );
        let PrivacyEvent::Votes(charged) = mechanism.actual_cost(price) else {
            panic!()
        };
        assert_eq!(charged.answered.unwrap(), [true, false, true]);
        assert_eq!(charged.queries, 3, "the check of every query costs");
    }
}
