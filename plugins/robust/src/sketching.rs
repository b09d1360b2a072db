//! A step before an aggregator: means of nearest neighbours, found by sketches of the answers.
use crate::mixing::mixed;
use fl_core::message::ParamsList;
use fl_core::prelude::*;

settings! {
    /// Replaces each answer by the mean of the `n - f` answers nearest to it, as
    /// `nearest-neighbour-mixing` does, but judges nearness by count sketches of `columns` numbers
    /// (SketchGuard's screening; Rangwala et al. 2025). Squared distances are right on average, with
    /// a relative standard deviation of at most `sqrt(2 / columns)`. The server draws the sketch
    /// after all answers are there, so only a client that knows the run's seed could hide in what
    /// it drops. Distances cost `n^2 columns` and not `n^2` times the model. Needs `n >= 2 f + 1`.
    pub struct Sketching {
        /// Share of the clients that may be bad: `f = floor(byzantine-share * n)`.
        byzantine_share: f64 = 0.2, in 0.0..0.5;
        /// Numbers in the sketch of an answer.
        columns: usize = 1024, in 1..=1 << 24;
    }
}

/// Returns the count sketch of an answer: each of its numbers is added to one column, or taken from
/// it. `places` has for each number twice its column, plus 1 if it is taken.
fn sketch(answer: &Params, places: &[usize], columns: usize) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    for (x, place) in answer.iter().zip(places) {
        let x = f64::from(*x);
        sums[place / 2] += if place % 2 == 0 { x } else { -x };
    }
    sums
}

impl Aggregator for Sketching {
    type In = Params;
    type Out = ParamsList;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<ParamsList> {
        let mut draws = round.stream.child("sketch", 0).draws();
        let numbers = inbox
            .iter()
            .next()
            .map_or(0, |mail| mail.body.iter().count());
        let places: Vec<usize> = (0..numbers)
            .map(|_| draws.below(2 * self.columns))
            .collect();
        let of = |mail: &fl_core::ClientMessage<Params>| sketch(&mail.body, &places, self.columns);
        let sketches: Vec<Vec<f64>> = inbox.iter().map(of).collect();
        let apart =
            |a: &Vec<f64>, b: &Vec<f64>| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
        let from = |a| sketches.iter().map(|b| apart(a, b)).collect();
        let distances: Vec<Vec<f64>> = sketches.iter().map(from).collect();
        mixed(round, inbox, &distances, self.byzantine_share)
    }
    fn robustness(&self) -> Option<Robustness> {
        (self.byzantine_share > 0.0).then(|| Robustness::of_share(self.byzantine_share, 2, 1))
    }
}
plugin!(aggregator "sketching" => Sketching,
    papers: ["Rangwala et al. 2025"]);
