//! A mean whose weights are powers of training losses.
use fl_core::Weigh;
use fl_core::prelude::*;

// ANCHOR: part
settings! {
    /// Mean of the clients' parameters, with each client weighted by a power of its training loss.
    pub struct LossWeightedMean {
        /// The power. Above 0, clients with a large loss count more; below 0, less.
        power: f64 = 1.0, in -4.0..=4.0;
        /// The weight of a client besides its loss.
        weigh: Weigh = Weigh::Samples;
    }
}

impl Aggregator for LossWeightedMean {
    type In = Params;
    type Out = Params;

    fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            training_loss: true,
            ..self.weigh.needs()
        }
    }

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let losses = inbox.training_losses()?;
        let weigh = |(mail, loss): (&ClientMessage<Params>, f64)| {
            // a loss of 0 would leave no weight at all
            mail.weight * libm::pow(loss.max(1e-10), self.power)
        };
        let weights: Vec<f64> = inbox.iter().zip(losses).map(weigh).collect();
        Ok(inbox.weighted_mean(&weights, &*round.exec))
    }

    fn claims(&self) -> Properties {
        Properties {
            order_free: true,
            weight_scale_free: true,
            within_hull: true,
            ..Properties::default()
        }
    }
}
plugin!(aggregator "loss-weighted-mean" => LossWeightedMean);
// ANCHOR_END: part
