//! A step before an aggregator: means of random groups of answers.
use fl_core::message::ParamsList;
use fl_core::prelude::*;

settings! {
    /// Means of random groups of `size` answers (bucketing; Karimireddy et al. 2022), each with the
    /// weight of its answers together. The order is drawn anew in each round; the last group may be
    /// smaller. A bad client spoils one group: the aggregator must withstand as many bad groups of
    /// `ceil(n / size)`. Clients with different data become alike, so fewer good ones are taken for
    /// bad.
    pub struct Bucketing {
        /// Number of answers in a group. 1: no answer changes.
        size: usize = 2, in 1..;
    }
}

impl Aggregator for Bucketing {
    type In = Params;
    type Out = ParamsList;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<ParamsList> {
        let mut draws = round.stream.child("buckets", 0).draws();
        let order = draws.permutation(inbox.len());
        let mut weights = vec![0.0; inbox.len()];
        let mut mean = |bucket: &[usize]| {
            weights.fill(0.0);
            for (at, mail) in inbox.iter().enumerate() {
                if bucket.contains(&at) {
                    weights[at] = mail.weight;
                }
            }
            let weight = weights.iter().sum::<f64>();
            (weight > 0.0).then(|| (weight, inbox.weighted_mean(&weights, &*round.exec)))
        };
        ParamsList::new(order.chunks(self.size).filter_map(&mut mean).collect())
    }
    fn robustness(&self) -> Option<Robustness> {
        Some(Robustness {
            bucket: self.size,
            ..Robustness::default()
        })
    }
}
plugin!(aggregator "bucketing" => Bucketing,
    papers: ["Karimireddy et al. 2022"]);
