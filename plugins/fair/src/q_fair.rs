//! q-FedAvg: algorithm 2 of Li et al. 2020.
use fl_core::Weigh;
use fl_core::prelude::*;

/// Addend to each loss, as in the published code: a power of 0 may be infinite.
const LEAST: f64 = 1e-10;

settings! {
    /// Mean of the clients' changes, with each client weighted by the power `q` of its training
    /// loss, and a step computed from the changes (q-FedAvg, which solves q-FFL; Li et al. 2020). A
    /// larger `q` makes the clients' losses more equal.
    pub struct QFairMean {
        /// The power. At 0 it is the plain mean. The paper has 0.001 to 5.
        q: f64 = 1.0, in 0.0..=100.0;
        /// The learning rate of the clients' training. The paper uses its inverse for `L`, the
        /// Lipschitz constant of the gradients.
        lr: f64, in above(0.0);
        /// The weight of a client besides its loss. The paper draws clients by their numbers of
        /// examples and then weights all equally.
        weigh: Weigh = Weigh::Uniform;
    }
}

impl Aggregator for QFairMean {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let sent: &Params = round
            .sent()
            .context("it needs the parameters sent to clients")?;
        let losses = inbox.training_losses()?;
        let losses = losses.into_iter().map(|loss| loss.max(0.0) + LEAST);
        let all: Vec<(&ClientMessage<Params>, f64)> = inbox.iter().zip(losses).collect();
        // both sums are divided by this loss to the power q, so that no power is infinite
        let counted = all.iter().filter(|(mail, _)| mail.weight > 0.0);
        let largest = counted.fold(LEAST, |most, (_, loss)| most.max(*loss));
        let (mut weights, mut sum, mut bound) = (Vec::new(), 0.0, 0.0);
        for (mail, loss) in all {
            let weight = mail.weight * libm::pow((loss / largest).min(1.0), self.q);
            let mut change = mail.body.zip(sent, |after, before| after - before)?;
            // buffers follow no gradient
            change
                .named_mut(round.buffers())
                .for_each(|tensor| tensor.fill(0.0));
            let slope = change.norm() / self.lr;
            weights.push(weight);
            sum += weight;
            bound += weight * (self.q * slope * slope / loss + 1.0 / self.lr);
        }
        let mean = inbox.weighted_mean(&weights, &*round.exec);
        let step = sum / (self.lr * bound);
        sent.step(&mean, round.buffers(), |sent, mean| {
            sent + step * (mean - sent)
        })
    }
    fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            training_loss: true,
            sent: true,
            ..self.weigh.needs()
        }
    }
    fn claims(&self) -> Properties {
        Properties::SCALE_FREE
    }
}
plugin!(aggregator "q-fair-mean" => QFairMean, aliases: ["q-fedavg", "q-ffl"],
    papers: ["Li et al. 2020"]);
