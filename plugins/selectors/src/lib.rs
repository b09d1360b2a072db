//! Selectors of distillation samples: which public samples a client speaks about, and which answers a server sends back.
//!
//! | name | chooses from | keeps a sample if |
//! |---|---|---|
//! | `density-ratio` | samples | it looks like the client's own data: KuLSIF density ratio (Selective-FD, Shao et al. 2024) |
//! | `confidence` | a model's scores, as samples | the largest softmax probability is high (Hendrycks and Gimpel 2017) |
//! | `energy` | a model's scores, as samples | the free energy `-logsumexp(z)` is low (Liu et al. 2020) |
//! | `unambiguous` | soft labels | the ensemble agrees with itself (Selective-FD's server selector) |
//!
//! Linear systems are solved by a blocked Cholesky factorisation. The cargo feature `lapack` takes the system's OpenBLAS instead (`libopenblas-dev`; set
//! `OPENBLAS_NUM_THREADS=1` for bits that do not depend on the number of processors); all else is the same.

mod accept;
mod density_ratio;
mod exp;
mod kernel;
mod kulsif;
mod landmarks;
mod scores;
mod solve;
mod unambiguous;
mod width;

pub use accept::{accept, accept_any, quantile};
pub use density_ratio::{DensityRatio, DensityRatioSettings, Variant};
pub use kulsif::{Method, Ratios};
pub use scores::{Confidence, ConfidenceSettings, Energy, EnergySettings};
pub use unambiguous::{Unambiguous, ambiguity};
pub use width::Width;
