//! FedTGP (Zhang et al. 2024): prototypes that the server trains to keep classes apart.
use crate::means::{Which, mean_of_classes};
use crate::prototype_network::{Network, norm};
use crate::prototypes::FeatureMeans;
use fl_core::Length;
use fl_core::message::{decode, encode};
use fl_core::prelude::*;
use ndarray::Array2;

settings! {
    /// The prototypes that a network at the server makes of an embedding of each class. It learns
    /// them from the clients' mean features, by a margin: a mean is nearer to the prototype of its
    /// class than to any other (FedTGP, Zhang et al. 2024).
    pub struct TrainablePrototypes {
        /// The largest margin. The margin of a round is the largest of all distances between the
        /// mean of a class and that nearest to it, if that is less.
        margin: f64 = 100.0, in above_to(0.0, 1e9);
        /// Passes over the clients' mean features in one round.
        epochs: usize = 100, in 1..=100_000;
        /// Mean features in a mini-batch.
        batch: usize = 10, in 1..=1_000_000;
        /// The learning rate of plain gradient descent.
        lr: f64 = 0.01, in above(0.0);
    }
}

/// The aggregator, with the network that lasts between rounds.
pub struct Trainable {
    settings: TrainablePrototypes,
    network: Network,
}

impl Aggregator for Trainable {
    type In = FeatureMeans;
    type Out = FeatureMeans;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<FeatureMeans>) -> Result<FeatureMeans> {
        let all: Vec<_> = inbox.iter().map(|mail| &mail.body.0).collect();
        let rows = all.iter().map(|m| (&m.rows[..], m.values.view()));
        let (classes, means) = mean_of_classes(rows, &Which::All);
        if classes.is_empty() {
            return Ok(self.network.prototypes());
        }
        self.network.grow(&classes, means.ncols(), &round.stream)?;
        let sent = all.iter().flat_map(|m| m.rows.iter().zip(m.values.rows()));
        let sent: Vec<_> = sent.map(|(class, p)| (*class, p.mapv(f64::from))).collect();
        let of = &self.settings;
        let pass = FitOptions::new(Length::Epochs(of.epochs), of.batch, Loss::CrossEntropy);
        let batches = pass.batches(sent.len(), &round.stream);
        let batches = batches.map(|rows| rows.iter().map(|at| &sent[*at]).collect());
        let margin = gap(&means).min(of.margin);
        let loss = self.network.train(batches, margin, of.lr);
        ensure!(
            loss.is_finite(),
            "the loss of the prototypes is {loss}; a smaller `lr` may help"
        );
        Ok(self.network.prototypes())
    }

    fn claims(&self) -> Properties {
        Properties {
            weight_free: true,
            weight_scale_free: true,
            ..Properties::default()
        }
    }

    fn save(&self) -> Vec<u8> {
        encode(&self.network)
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.network = decode(state)?;
        Ok(())
    }
}
plugin!(aggregator "trainable-prototypes" => TrainablePrototypes as Trainable { network },
    papers: ["Zhang et al. 2024"]);

/// Returns the largest of all distances between a mean and that nearest to it; infinity if there
/// are no two.
fn gap(means: &Array2<f64>) -> f64 {
    let nearest = |at: usize| {
        let others = (0..means.nrows()).filter(|other| *other != at);
        let far = others.map(|other| norm(&(&means.row(at) - &means.row(other))));
        far.fold(f64::INFINITY, f64::min)
    };
    let nearest = (0..means.nrows()).map(nearest);
    nearest.reduce(f64::max).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_its_claims() {
        fl_conformance::aggregator(|| {
            Trainable::from(TrainablePrototypes {
                margin: 2.0,
                epochs: 3,
                batch: 4,
                lr: 0.05,
            })
        });
    }

    #[test]
    fn exact_the_gap_is_the_largest_of_the_nearest_distances() {
        let means = ndarray::array![[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]];
        assert_eq!(gap(&means), 5.0);
        assert_eq!(gap(&ndarray::array![[1.0]]), f64::INFINITY);
    }
}
