//! What a release costs, and what is guaranteed after all of them.

mod discrete;
mod minibatch_sampling;
mod nesting;
mod noise;
mod protection;

pub use minibatch_sampling::MinibatchSampling;
pub use noise::{LEAST_CLIP, Noise, NoiseDraws, NoiseSource, ReleaseNoise, at_most, grid};
pub use protection::{
    DataDependence, Epsilons, Observer, Protection, Protections, UnpricedDisclosures, epsilons,
};

use crate::ClientId;
use crate::message::VoteSensitivity;
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};

/// Whose presence is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// One example of one client.
    Example,
    /// A whole client (party).
    Party,
}

impl Display for Unit {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Example => "example",
            Self::Party => "party",
        })
    }
}

/// Which two data sets a guarantee says are hard to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbours {
    /// One unit is added or removed; a party's data are, who itself takes part as before (zero-out, Kairouz et al. 2021).
    Removed,
    /// One unit is replaced by another.
    Replaced,
}

/// What one release of data costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PrivacyEvent {
    /// Laplace noise of `scale` on numbers that one unit moves by at most `sensitivity` in all (L1 norm).
    Laplace {
        /// L1 sensitivity.
        sensitivity: f64,
        /// Scale of the noise.
        scale: f64,
        /// Whose presence moves the numbers.
        unit: Unit,
    },
    /// Gaussian noise of standard deviation `sigma` on numbers that one unit moves by at most `sensitivity` (L2 norm).
    Gaussian {
        /// L2 sensitivity.
        sensitivity: f64,
        /// Standard deviation of the noise.
        sigma: f64,
        /// Whose presence moves the numbers.
        unit: Unit,
    },
    /// As [`PrivacyEvent::Gaussian`], on a random part of the data: every unit takes part with probability `rate`, by
    /// itself (Poisson subsampling). Who takes part is secret, and so is how many do.
    SubsampledGaussian {
        /// Probability that a unit takes part, in `[0, 1]`.
        rate: f64,
        /// L2 sensitivity.
        sensitivity: f64,
        /// Standard deviation of the noise.
        sigma: f64,
        /// Whose presence moves the numbers.
        unit: Unit,
    },
    /// As [`PrivacyEvent::SubsampledGaussian`], of `of` units, and everybody sees how many take
    /// part, as of the clients of a round. A unit without data is drawn like any other.
    PublicSizeGaussian {
        /// Probability that a unit takes part, in `[0, 1]`.
        rate: f64,
        /// How many units there are.
        of: usize,
        /// L2 sensitivity.
        sensitivity: f64,
        /// Standard deviation of the noise.
        sigma: f64,
        /// Whose data move the numbers.
        unit: Unit,
    },
    /// As [`PrivacyEvent::Gaussian`], on `k` of the `of` units, drawn without replacement.
    FixedSizeGaussian {
        /// How many units take part.
        k: usize,
        /// How many there are.
        of: usize,
        /// L2 sensitivity.
        sensitivity: f64,
        /// Standard deviation of the noise.
        sigma: f64,
        /// Whose presence moves the numbers.
        unit: Unit,
    },
    /// Answers that are private without any delta, such as randomised response: `times` of them on the same data.
    Pure {
        /// Epsilon of one answer.
        epsilon: f64,
        /// How many answers.
        times: usize,
        /// Whose presence is hidden.
        unit: Unit,
    },
    /// Of `n` examples `k` were drawn, and only those are used (privacy by sampling alone; Sun and Lyu 2020, NFDP).
    Sampled {
        /// How many draws.
        k: usize,
        /// How many examples there are, or, if it is `public`, at least are.
        n: usize,
        /// Is `n` public, and less than any client has? Otherwise it is the client's own, and the
        /// price reveals it.
        #[serde(default)]
        public: bool,
        /// Can an example be drawn twice?
        replacement: bool,
    },
    /// The winners of votes that were counted and noised.
    Votes(VoteRelease),
    /// Something was released for which nothing can be guaranteed, and why.
    Unaccounted {
        /// The reason, for people.
        why: String,
    },
    /// A mechanism claimed a price and drew no noise, so nothing is guaranteed. It is known only
    /// after the release.
    Undrawn {
        /// The mechanism and its claim, for people.
        why: String,
    },
    /// The same release of the same data so many times, such as the steps of DP-SGD.
    Repeated {
        /// How many times.
        times: usize,
        /// One of them; not a repetition itself, which is refused where it is read.
        #[serde(deserialize_with = "nesting::once")]
        event: Box<PrivacyEvent>,
    },
}

/// Noise on the counts of votes, before the highest count wins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VoteNoise {
    /// Laplace noise of scale `1 / gamma` on every count (LNMax: PATE; FedKT-L1 and -L2).
    Laplace {
        /// Inverse scale.
        gamma: f64,
    },
    /// Gaussian noise on every count (GNMax).
    Gaussian {
        /// Standard deviation.
        sigma: f64,
    },
    /// A query is answered only if its highest count, with noise of `check`, reaches `threshold`; its counts then get
    /// noise of `sigma` (Confident-GNMax).
    Confident {
        /// The highest count must reach this.
        threshold: f64,
        /// Standard deviation of the noise on the highest count.
        check: f64,
        /// Standard deviation of the noise on the counts.
        sigma: f64,
    },
}

impl Display for VoteNoise {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Laplace { gamma } => write!(f, "Laplace noise of scale 1/{gamma}"),
            Self::Gaussian { sigma } => write!(f, "Gaussian noise of {sigma}"),
            Self::Confident {
                threshold,
                check,
                sigma,
            } => write!(
                f,
                "Gaussian noise of {sigma} where the highest count, with noise of {check}, reaches {threshold}"
            ),
        }
    }
}

/// What the release of the winners of some votes depends on. The counts are those without noise: a ledger that holds
/// them is as secret as the votes, and so is every epsilon that was computed from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VoteRelease {
    /// The noise.
    pub noise: VoteNoise,
    /// How many queries were put to the vote.
    pub queries: usize,
    /// How many classes there are.
    pub classes: usize,
    /// The counts without noise, one list of `classes` numbers for each query; `None` if they are kept back, and then
    /// only what does not depend on the data can be guaranteed.
    pub counts: Option<Vec<Vec<u32>>>,
    /// Which queries were answered; `None`: all of them.
    pub answered: Option<Vec<bool>>,
    /// How many votes of a query can change with one unit of data.
    pub sensitivity: VoteSensitivity,
}

impl VoteRelease {
    /// How many votes can change with one `unit`, and whether that was worked out from the data.
    pub fn votes_of(&self, unit: Unit) -> (Option<u32>, bool) {
        match unit {
            Unit::Example => (self.sensitivity.example, self.sensitivity.from_data),
            Unit::Party => (self.sensitivity.party, false),
        }
    }
}

impl PrivacyEvent {
    /// Which data sets its price is about; `None` if it has none. Amplification by Poisson subsampling (Mironov et al. 2019)
    /// and by sampling alone (Sun and Lyu 2020) are about units that come or go, all else about units that become others.
    pub fn neighbours(&self) -> Option<Neighbours> {
        match self {
            Self::SubsampledGaussian { .. }
            | Self::PublicSizeGaussian { .. }
            | Self::Sampled { .. } => Some(Neighbours::Removed),
            Self::Unaccounted { .. } | Self::Undrawn { .. } => None,
            Self::Repeated { event, .. } => event.neighbours(),
            _ => Some(Neighbours::Replaced),
        }
    }
}

impl Display for PrivacyEvent {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Laplace {
                scale, sensitivity, ..
            } => write!(
                f,
                "Laplace noise of scale {scale} for an L1 sensitivity of {sensitivity}"
            ),
            Self::Gaussian {
                sigma, sensitivity, ..
            } => write!(
                f,
                "Gaussian noise of {sigma} for an L2 sensitivity of {sensitivity}"
            ),
            Self::SubsampledGaussian {
                rate,
                sigma,
                sensitivity,
                ..
            } => {
                write!(
                    f,
                    "Gaussian noise of {sigma} for an L2 sensitivity of {sensitivity}, each unit with probability {rate}"
                )
            }
            Self::PublicSizeGaussian {
                rate,
                of,
                sigma,
                sensitivity,
                ..
            } => {
                write!(
                    f,
                    "Gaussian noise of {sigma} for an L2 sensitivity of {sensitivity}, each of {of} units with probability {rate} (how many is public)"
                )
            }
            Self::FixedSizeGaussian {
                k,
                of,
                sigma,
                sensitivity,
                ..
            } => {
                write!(
                    f,
                    "Gaussian noise of {sigma} for an L2 sensitivity of {sensitivity}, on {k} of {of} units"
                )
            }
            Self::Pure { epsilon, times, .. } => {
                let s = if *times == 1 { "" } else { "s" };
                write!(f, "{times} answer{s} of pure epsilon {epsilon}")
            }
            Self::Repeated { times, event } => write!(f, "{times} times {event}"),
            Self::Sampled {
                k,
                n,
                public,
                replacement,
            } => {
                let with = if *replacement { "with" } else { "without" };
                let least = if *public { "at least " } else { "" };
                write!(
                    f,
                    "a sample of {k} of {least}{n} examples {with} replacement"
                )
            }
            Self::Votes(v) => write!(f, "{} votes with {}", v.queries, v.noise),
            Self::Unaccounted { why } | Self::Undrawn { why } => f.write_str(why),
        }
    }
}

/// A differential-privacy guarantee, with everything that it depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guarantee {
    /// Epsilon, at least 0.
    pub epsilon: f64,
    /// Delta, in `[0, 1)`.
    pub delta: f64,
    /// Whose presence is hidden.
    pub unit: Unit,
    /// Which two data sets cannot be told apart.
    pub neighbours: Neighbours,
    /// Are these data what a spec has dealt to the clients? The two then differ after the split:
    /// with other rows, the split and public samples would be others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_split: bool,
    /// Does epsilon itself depend on the data, so that publishing it tells something?
    pub data_dependent: bool,
    /// Where the noise came from.
    pub noise: Noise,
    /// The libraries whose parts the guarantee rests on: what they say of noise, sensitivity and
    /// price cannot be checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claimed_by: Vec<String>,
}

/// A larger delta is spelt out: it ought to be well below one over the number of those who are protected.
const LARGE_DELTA: f64 = 1e-3;

impl Display for Guarantee {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        // a small epsilon is not 0
        match self.epsilon {
            e if e == 0.0 || e >= 0.001 => write!(f, "epsilon {e:.4}")?,
            e => write!(f, "epsilon {e:.2e}")?,
        }
        write!(f, " at delta {}", short(self.delta))?;
        if self.delta > LARGE_DELTA {
            let percent = 100.0 * self.delta;
            write!(f, " (a chance of {percent:.2} % that nothing is hidden)")?;
        }
        write!(f, " for each {}", self.unit)?;
        if self.after_split {
            f.write_str(" after the split")?;
        }
        f.write_str(match (self.neighbours, self.unit) {
            (Neighbours::Replaced, _) => " (replaced by another), ",
            (Neighbours::Removed, Unit::Example) => " (added or removed), ",
            // who takes part is public: a party without data still does
            (Neighbours::Removed, Unit::Party) => " (with its data or with none), ",
        })?;
        f.write_str(match self.data_dependent {
            true => "data-dependent; ",
            false => "data-independent; ",
        })?;
        // that noise is of the system is not known of a part that adds it somewhere else
        let claimed = !self.claimed_by.is_empty();
        match (claimed, self.noise) {
            (true, Noise::System) => {}
            (true, noise) => write!(f, "noise {noise}; ")?,
            (false, noise) => write!(f, "noise {noise}")?,
        }
        match claimed {
            true => write!(f, "as claimed by {}", self.claimed_by.join(", ")),
            false => Ok(()),
        }
    }
}

/// A delta as people write it: as it was given, and no more than four digits of one that was worked out.
pub fn short(delta: f64) -> String {
    let whole = format!("{delta:e}");
    match delta {
        0.0 => "0".into(),
        _ if whole.len() <= 8 => whole,
        _ => format!("{delta:.3e}"),
    }
}

/// How the costs of several clients add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Composition {
    /// The same data were used: costs add.
    Sequential,
    /// Every client used its own data: the largest cost counts.
    Parallel,
}

/// What one client has released.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Whose it is; `None` for the server.
    pub client: Option<ClientId>,
    /// In the order of release.
    pub events: Vec<PrivacyEvent>,
}

/// What drawing `k` of `n` examples guarantees for one example, as (epsilon, delta) (Sun and Lyu 2020, FedMD-NFDP, theorems 1
/// and 2): `(ln((n+1)/(n+1-k)), k/n)` without replacement, `(k ln((n+1)/n), 1 - ((n-1)/n)^k)` with. A delta of 1 is no
/// guarantee. The paper's epsilon is about neighbours of `n` and `n + 1` examples, its delta about `n`: slightly more than
/// it need be.
pub fn sampled(k: usize, n: usize, replacement: bool) -> (f64, f64) {
    let (k, n) = (k as f64, n as f64);
    if k == 0.0 {
        (0.0, 0.0)
    } else if replacement {
        let delta = if n == 1.0 {
            1.0
        } else {
            -(k * (-1.0 / n).ln_1p()).exp_m1()
        };
        (k * (1.0 / n).ln_1p(), delta)
    } else {
        (-(-k / (n + 1.0)).ln_1p(), k / n)
    }
}

/// The most draws of `n` examples that keep [`sampled`]'s epsilon at most `epsilon`; without replacement at most `n`.
pub fn draws_for(epsilon: f64, n: usize, replacement: bool) -> usize {
    let n = n as f64;
    // a round trip through `sampled` must not lose a draw to rounding
    const SLACK: f64 = 1e-9;
    if replacement {
        (epsilon / (1.0 / n).ln_1p() + SLACK) as usize
    } else {
        (-(n + 1.0) * (-epsilon).exp_m1() + SLACK).min(n) as usize
    }
}
