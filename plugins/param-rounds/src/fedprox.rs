//! FedProx (Li et al. 2020): FedAvg with a local loss that pulls towards the server's parameters.
use crate::rounds::{RoundRule, Rounds, Shared};
use fl_core::prelude::*;

settings! {
    /// FedAvg with `mu / 2 * |w - w_server|^2` in the local loss (FedProx, Li et al. 2020).
    pub struct FedProx {
        /// The weight of the distance to the server's parameters. FedKT's comparison uses 0.1.
        mu: f64 = 0.1, in above_to(0.0, 1e6);
    }
}

impl RoundRule for FedProx {
    type State = ();

    fn mu(&self) -> f64 {
        self.mu
    }
}
plugin!(protocol "fedprox" => Shared<FedProx> as Rounds<FedProx>, papers: ["Li et al. 2020"]);
