//! Momentum at the server.
use crate::{Moments, Rule, ServerOptimiser};
use fl_core::Weigh;
use fl_core::prelude::*;

settings! {
    /// Momentum at the server (FedAvgM; Hsu et al. 2019): adds the round's change, `mean - sent`,
    /// to a share of the earlier ones.
    pub struct FedAvgM {
        /// Share of the earlier direction that is kept.
        beta: f64 = 0.9, in 0.0..1.0;
        /// The server's learning rate; 1 with `beta: 0` is FedAvg.
        lr: f64 = 1.0, in above(0.0);
        /// The weight of a client.
        weigh: Weigh = Weigh::Samples;
    }
}

impl Rule for FedAvgM {
    fn weigh(&self) -> &Weigh {
        &self.weigh
    }
    fn start(&self) -> Moments {
        [0.0; 2]
    }
    fn step(&self, sent: f64, mean: f64, [v, _]: &mut Moments) -> f64 {
        *v = self.beta * *v + (sent - mean);
        sent - self.lr * *v
    }
}
plugin!(aggregator "fed-avg-m" => FedAvgM as ServerOptimiser<FedAvgM>,
    papers: ["Hsu et al. 2019"]);
