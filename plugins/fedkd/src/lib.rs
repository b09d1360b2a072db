//! FedKD (Gong et al. 2022): every client trains its own model to the end and predicts the public samples once; the
//! server combines the quantised predictions, weighted by class, adds noise and distils them into a student.
//! "Eq." numbers are the paper's; METHODS section 1 lists its readings.
mod ensemble;
mod noise;
mod protocol;
mod quantise;

pub use ensemble::{ClassWeighted, ZeroClass, class_weights, weighted_sum};
pub use noise::LaplaceLogits;
pub use protocol::OneShotDistill;
pub use quantise::{Quantise, Rule};
