//! What a release costs, and what is guaranteed after all of them.

use crate::ClientId;
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
    /// Something was released for which nothing can be guaranteed, and why.
    Unaccounted {
        /// The reason, for people.
        why: String,
    },
}

/// Where a mechanism's noise came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Noise {
    /// The run's seed, so that a run can be repeated. Whoever knows the seed can take the noise off.
    Seeded,
}

impl Display for Noise {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Seeded => {
                f.write_str("from the run's seed (reproducible, for research: not a guarantee)")
            }
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
    /// Does epsilon itself depend on the data, so that publishing it tells something?
    pub data_dependent: bool,
    /// Where the noise came from.
    pub noise: Noise,
}

impl Display for Guarantee {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let unit = match self.unit {
            Unit::Example => "example",
            Unit::Party => "party",
        };
        write!(
            f,
            "epsilon {:.4} at delta {:e} for each {unit}, ",
            self.epsilon, self.delta
        )?;
        write!(
            f,
            "{}; noise {}",
            if self.data_dependent {
                "data-dependent"
            } else {
                "data-independent"
            },
            self.noise
        )
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
