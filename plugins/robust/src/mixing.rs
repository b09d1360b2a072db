//! A step before an aggregator: means of nearest neighbours.
use crate::by_numbers;
use fl_core::message::ParamsList;
use fl_core::prelude::*;

settings! {
    /// Replaces each answer by the mean of the `n - f` answers nearest to it, itself among them
    /// (nearest-neighbour mixing; Allouah et al. 2023), with the weight of the answer. Good answers
    /// become alike, and a bad one counts little unless it is near to them. Needs `n >= 2 f + 1`.
    pub struct NearestNeighbourMixing {
        /// Share of the clients that may be bad: `f = floor(byzantine-share * n)`.
        byzantine_share: f64 = 0.2, in 0.0..0.5;
    }
}

/// Returns for each answer the mean of the answers nearest to it by `distances`, `n x n`: all but
/// the share that may be bad. On a tie the smaller numbers come first.
pub(crate) fn mixed(
    round: &Round,
    inbox: &Inbox<Params>,
    distances: &[Vec<f64>],
    byzantine_share: f64,
) -> Result<ParamsList> {
    let keep = inbox.len() - floor_share(byzantine_share, inbox.len());
    let means = inbox.iter().zip(distances).map(|(mail, from)| {
        let mut nearest: Vec<usize> = (0..inbox.len()).collect();
        nearest.sort_by(|a, b| {
            let near = from[*a].total_cmp(&from[*b]);
            near.then_with(|| by_numbers(inbox, *a, *b))
        });
        let mut weights = vec![0.0; inbox.len()];
        nearest[..keep].iter().for_each(|at| weights[*at] = 1.0);
        (mail.weight, inbox.weighted_mean(&weights, &*round.exec))
    });
    ParamsList::new(means.collect())
}

impl Aggregator for NearestNeighbourMixing {
    type In = Params;
    type Out = ParamsList;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<ParamsList> {
        let distances = inbox.squared_distances(&*round.exec);
        mixed(round, inbox, &distances, self.byzantine_share)
    }
    fn robustness(&self) -> Option<Robustness> {
        (self.byzantine_share > 0.0).then(|| Robustness::of_share(self.byzantine_share, 2, 1))
    }
}
plugin!(aggregator "nearest-neighbour-mixing" => NearestNeighbourMixing, aliases: ["nnm"],
    papers: ["Allouah et al. 2023"]);
