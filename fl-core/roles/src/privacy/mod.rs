//! [`PrivacyEvent`]: the cost of a release. [`Guarantee`]: the guarantee after all of them.

mod bound;
mod discrete;
mod minibatch_sampling;
mod nesting;
mod noise;
mod protection;

pub use bound::{LowerBound, UpperBound};
pub use minibatch_sampling::MinibatchSampling;
pub use noise::{LEAST_CLIP, Noise, NoiseDraws, NoiseSource, ReleaseNoise, at_most, grid};
pub use protection::{
    DataDependence, Epsilons, Observer, Protection, Protections, UnpricedDisclosures, epsilons,
};

use crate::ClientId;
use crate::message::VoteSensitivity;
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};

crate::choices! {
    /// The unit whose presence is protected.
    pub enum Unit: Copy, Eq, PartialOrd, Ord, Serialize, Deserialize {
        /// One example of one client.
        Example = "example",
        /// A whole client.
        Party = "party",
    }
}

impl Display for Unit {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Example => "example",
            Self::Party => "party",
        })
    }
}

crate::choices! {
    /// The pairs of data sets that a guarantee covers.
    pub enum Neighbours: Copy, Eq, PartialOrd, Ord, Serialize, Deserialize {
        /// One unit is added or removed. For a party only its data are; the party itself still
        /// takes part (zero-out, Kairouz et al. 2021).
        Removed = "removed",
        /// One unit is replaced by another.
        Replaced = "replaced",
    }
}

impl Neighbours {
    /// Why prices of different pairs of data sets have no sum.
    pub const DO_NOT_ADD_UP: &str = "guarantees for an example that is added or removed, and for one that is replaced, do not add up";
}

/// The pairs of data sets that several prices cover together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation {
    neighbours: Neighbours,
    /// Whether a price holds for replaced units only.
    replaced_only: bool,
}

impl Relation {
    /// Returns that of no price.
    pub const fn of_nothing() -> Self {
        Self {
            neighbours: Neighbours::Replaced,
            replaced_only: false,
        }
    }

    /// Returns that of a price of which only this is known.
    pub fn of(neighbours: Neighbours) -> Self {
        Self {
            neighbours,
            replaced_only: neighbours == Neighbours::Replaced,
        }
    }

    /// Returns that of both. A release that hides the replacement of a unit also hides its
    /// presence, unless the price holds for replaced units only.
    pub fn and(self, other: Self) -> Self {
        Self {
            neighbours: self.neighbours.min(other.neighbours),
            replaced_only: self.replaced_only || other.replaced_only,
        }
    }

    /// Returns that of these prices and of one for this event.
    pub fn with(self, event: &PrivacyEvent) -> Self {
        let neighbours = event.neighbours().unwrap_or(Neighbours::Replaced);
        let replaced_only = !event.covers_removal();
        self.and(Self {
            neighbours,
            replaced_only,
        })
    }

    /// Returns the pairs that all prices cover; `None` if there are none. The parties of a run are
    /// fixed, so for them a price of replacement covers removal.
    pub fn neighbours(self, unit: Unit) -> Option<Neighbours> {
        let none =
            unit == Unit::Example && self.neighbours == Neighbours::Removed && self.replaced_only;
        (!none).then_some(self.neighbours)
    }
}

/// The cost of one release of data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub enum PrivacyEvent {
    /// Laplace noise of `scale` on numbers that one unit changes by at most `sensitivity` in total
    /// (L1 norm).
    Laplace {
        /// L1 sensitivity.
        sensitivity: f64,
        /// Scale of the noise.
        scale: f64,
        /// The unit that changes the numbers.
        unit: Unit,
    },
    /// Gaussian noise of standard deviation `sigma` on numbers that one unit changes by at most
    /// `sensitivity` (L2 norm).
    Gaussian {
        /// L2 sensitivity.
        sensitivity: f64,
        /// Standard deviation of the noise.
        sigma: f64,
        /// The unit that changes the numbers.
        unit: Unit,
    },
    /// As [`PrivacyEvent::Gaussian`], on a random part of the data: every unit takes part with
    /// probability `rate`, independently (Poisson subsampling). The units that take part are
    /// secret, and so is their number.
    SubsampledGaussian {
        /// Probability that a unit takes part, in `[0, 1]`.
        rate: f64,
        /// L2 sensitivity.
        sensitivity: f64,
        /// Standard deviation of the noise.
        sigma: f64,
        /// The unit that changes the numbers.
        unit: Unit,
    },
    /// As [`PrivacyEvent::SubsampledGaussian`], of `of` units, where the number that takes part is
    /// public, as that of the clients of a round. A unit without data is drawn like any other, so
    /// only a party has a price: an example that is added or removed changes the number.
    PublicSizeGaussian {
        /// Probability that a unit takes part, in `[0, 1]`.
        rate: f64,
        /// Number of units.
        of: usize,
        /// L2 sensitivity.
        sensitivity: f64,
        /// Standard deviation of the noise.
        sigma: f64,
        /// The unit whose data change the numbers.
        unit: Unit,
    },
    /// As [`PrivacyEvent::Gaussian`], on `k` of the `of` units, drawn without replacement.
    FixedSizeGaussian {
        /// Number of units that take part.
        k: usize,
        /// Number of units.
        of: usize,
        /// L2 sensitivity.
        sensitivity: f64,
        /// Standard deviation of the noise.
        sigma: f64,
        /// The unit that changes the numbers.
        unit: Unit,
    },
    /// Answers that are private with delta 0, such as randomised response: `times` of them on the
    /// same data.
    Pure {
        /// Epsilon of one answer.
        epsilon: f64,
        /// Number of answers.
        times: usize,
        /// The unit that is protected.
        unit: Unit,
    },
    /// Only `k` drawn of `n` examples are used (privacy by sampling alone; Sun and Lyu 2020, NFDP).
    Sampled {
        /// Number of draws.
        k: usize,
        /// Number of examples; if `public`, a lower bound.
        n: usize,
        /// Whether `n` is public, and below any client's number. Otherwise it is the client's own
        /// number, and the price reveals it.
        #[serde(default)]
        public: bool,
        /// Whether an example can be drawn twice.
        replacement: bool,
    },
    /// The winners of votes with noise on the counts.
    Votes(VoteRelease),
    /// A release without any guarantee, and why.
    Unaccounted {
        /// The reason, for people.
        why: String,
    },
    /// A mechanism claimed a price and drew no noise, so nothing is guaranteed. This is known only
    /// after the release.
    Undrawn {
        /// The mechanism and its claim, for people.
        why: String,
    },
    /// The same release of the same data, several times, such as the steps of DP-SGD.
    Repeated {
        /// Number of times.
        times: usize,
        /// One of them. It must not be a repetition itself; reading one fails.
        #[serde(deserialize_with = "nesting::once")]
        event: Box<PrivacyEvent>,
    },
}

/// Noise on the counts of votes, before the highest count wins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
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
    /// A query is answered only if its highest count, with noise of `check`, reaches `threshold`;
    /// its counts then get noise of `sigma` (Confident-GNMax).
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

/// The release of the winners of votes. The counts are those without noise. A ledger that holds
/// them is as secret as the votes, and so is every epsilon computed from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VoteRelease {
    /// The noise.
    pub noise: VoteNoise,
    /// Number of queries put to the vote.
    pub queries: usize,
    /// Number of classes.
    pub classes: usize,
    /// The counts without noise, one list of `classes` numbers for each query. `None` if they are
    /// withheld; then only a data-independent guarantee is possible.
    pub counts: Option<Vec<Vec<u32>>>,
    /// Whether each query was answered; `None` if all were.
    pub answered: Option<Vec<bool>>,
    /// How many votes of a query one unit of data can change.
    pub sensitivity: VoteSensitivity,
}

impl VoteRelease {
    /// Returns how many votes one `unit` can change, and whether that was computed from the data.
    pub fn votes_of(&self, unit: Unit) -> (Option<u32>, bool) {
        match unit {
            Unit::Example => (self.sensitivity.example, self.sensitivity.from_data),
            Unit::Party => (self.sensitivity.party, false),
        }
    }
}

impl PrivacyEvent {
    /// Returns the pairs of data sets that its price covers; `None` if it has no price.
    /// Amplification by Poisson subsampling (Mironov et al. 2019) and by sampling alone (Sun and
    /// Lyu 2020) cover units that are added or removed, all others units that are replaced.
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

impl PrivacyEvent {
    /// Returns the unit that it names; `None` if it names none, or the accountant chooses.
    pub fn unit(&self) -> Option<Unit> {
        match self {
            Self::Laplace { unit, .. }
            | Self::Gaussian { unit, .. }
            | Self::SubsampledGaussian { unit, .. }
            | Self::PublicSizeGaussian { unit, .. }
            | Self::FixedSizeGaussian { unit, .. }
            | Self::Pure { unit, .. } => Some(*unit),
            Self::Sampled { .. } => Some(Unit::Example),
            _ => None,
        }
    }

    /// Returns whether its price for an example also holds if the example is added or removed. A
    /// number of examples that is drawn, or split among voters, follows from the number of all: one
    /// example more may change it, and every vote.
    pub fn covers_removal(&self) -> bool {
        match self {
            Self::FixedSizeGaussian { .. } | Self::Pure { .. } | Self::Votes(_) => false,
            Self::Repeated { event, .. } => event.covers_removal(),
            _ => true,
        }
    }

    /// Returns this release of the server as `observer` sees it. Another client knows whether it
    /// takes part itself. So the draw is one of the other clients only.
    pub fn seen_by(&self, observer: Observer) -> Self {
        let mut seen = self.clone();
        if observer == Observer::Clients {
            match &mut seen {
                Self::PublicSizeGaussian { of, .. } => *of = (*of - 1).max(1),
                // the observer may be drawn or not: the others have at most `k` places
                Self::FixedSizeGaussian { k, of, .. } => {
                    *of = (*of - 1).max(1);
                    *k = (*k).min(*of);
                }
                Self::Repeated { event, .. } => **event = event.seen_by(observer),
                _ => {}
            }
        }
        seen
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

/// A differential-privacy guarantee, with all its conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guarantee {
    /// Epsilon, at least 0.
    pub epsilon: f64,
    /// Delta, in `[0, 1)`.
    pub delta: f64,
    /// The unit that is protected.
    pub unit: Unit,
    /// The pairs of data sets that it covers.
    pub neighbours: Neighbours,
    /// Whether a spec split these data among the clients. The pairs then differ after the split;
    /// with other rows, the split and the public samples would differ too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_split: bool,
    /// Whether it is one of several runs that split the rows among parties differently. The parties
    /// are then those of the split whose parties each lie in one party of every other split.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finest_split: bool,
    /// Whether epsilon depends on the data, so that publishing it reveals something.
    pub data_dependent: bool,
    /// The source of the noise.
    pub noise: Noise,
    /// The libraries whose parts the guarantee relies on. Their claims about noise, sensitivity and
    /// price cannot be checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claimed_by: Vec<String>,
}

/// A larger delta is printed in full: delta should be well below one over the number of protected
/// units.
const LARGE_DELTA: f64 = 1e-3;

impl Display for Guarantee {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (epsilon, delta) = (UpperBound(self.epsilon), short(self.delta));
        write!(f, "epsilon {epsilon} at delta {delta}")?;
        if self.delta > LARGE_DELTA {
            let percent = UpperBound(100.0 * self.delta);
            write!(f, " (with a chance of {percent:.2} % of no protection)")?;
        }
        write!(f, " for each {}", self.unit)?;
        if self.finest_split {
            f.write_str(" of the finest split")?;
        }
        if self.after_split {
            f.write_str(" after the split")?;
        }
        f.write_str(match (self.neighbours, self.unit) {
            (Neighbours::Replaced, _) => " (replaced by another), ",
            (Neighbours::Removed, Unit::Example) => " (added or removed), ",
            // the list of participants is public: a party without data still takes part
            (Neighbours::Removed, Unit::Party) => " (with its data or with none), ",
        })?;
        f.write_str(if self.data_dependent {
            "data-dependent; "
        } else {
            "data-independent; "
        })?;
        // a library's part may draw its noise elsewhere, so its source is unknown
        let claimed = !self.claimed_by.is_empty();
        match (claimed, self.noise) {
            (true, Noise::System) => {}
            (true, noise) => write!(f, "noise {noise}; ")?,
            (false, noise) => write!(f, "noise {noise}")?,
        }
        if claimed {
            write!(f, "as claimed by {}", self.claimed_by.join(", "))
        } else {
            Ok(())
        }
    }
}

/// Formats a delta as given, or rounded up to four digits if it was computed.
pub fn short(delta: f64) -> String {
    let whole = format!("{delta:e}");
    match delta {
        0.0 => "0".into(),
        _ if whole.len() <= 8 => whole,
        _ => bound::significant(delta, 4, true),
    }
}

/// How the costs of several clients compose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Composition {
    /// All used the same data: costs add.
    Sequential,
    /// Every client used its own data: the largest cost counts.
    Parallel,
}

/// The releases of one client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// The client; `None` for the server.
    pub client: Option<ClientId>,
    /// In the order of release.
    pub events: Vec<PrivacyEvent>,
}

/// Returns `sensitivity / scale`, rounded up: an epsilon must not be below the exact one. Both are
/// finite, the sensitivity at least 0 and the scale above 0.
pub fn ratio_up(sensitivity: f64, scale: f64) -> f64 {
    let ratio = sensitivity / scale;
    let below = libm::fma(ratio, scale, -sensitivity) < 0.0;
    if below { ratio.next_up() } else { ratio }
}

/// Returns the guarantee for one example when `k` of `n` are drawn, as (epsilon, delta) (Sun and
/// Lyu 2020, FedMD-NFDP, theorems 1 and 2): `(ln((n+1)/(n+1-k)), k/n)` without replacement,
/// `(k ln((n+1)/n), 1 - ((n-1)/n)^k)` with. A delta of 1 is no guarantee. The paper's epsilon is
/// for neighbours of `n` and `n + 1` examples, its delta for `n`: slightly more than necessary.
pub fn sampled(k: usize, n: usize, replacement: bool) -> (f64, f64) {
    let (k, n) = (k as f64, n as f64);
    if k == 0.0 {
        (0.0, 0.0)
    } else if replacement {
        let delta = if n == 1.0 {
            1.0
        } else {
            -libm::expm1(k * libm::log1p(-1.0 / n))
        };
        (k * libm::log1p(1.0 / n), delta)
    } else {
        (-libm::log1p(-k / (n + 1.0)), k / n)
    }
}

/// Returns the most draws of `n` examples with [`sampled`]'s epsilon at most `epsilon`; at most `n`
/// without replacement.
pub fn draws_for(epsilon: f64, n: usize, replacement: bool) -> usize {
    let n = n as f64;
    // a round trip through `sampled` must not lose a draw to rounding
    const SLACK: f64 = 1e-9;
    if replacement {
        (epsilon / libm::log1p(1.0 / n) + SLACK) as usize
    } else {
        (-(n + 1.0) * libm::expm1(-epsilon) + SLACK).min(n) as usize
    }
}
