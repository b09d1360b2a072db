//! The geometric median.
use fl_core::Weigh;
use fl_core::prelude::*;
use fl_core::squared_distance;

/// A step this small relative to the distance of the answers is the last.
const SMALL: f64 = 1e-6;

settings! {
    /// The geometric median: the point with the least sum of distances to the clients' answers, by
    /// smoothed Weiszfeld steps (RFA; Pillutla et al. 2022). Robust to fewer than half of the
    /// clients being bad; needs all answers at once.
    pub struct GeometricMedian {
        /// Largest number of Weiszfeld steps, from the median of each number. A step below a
        /// millionth of the distance to the nearest answers is the last.
        passes: usize = 100, in 1..=1000;
        /// Smaller distances count as this, so that no division by 0 occurs.
        smoothing: f64 = 1e-6, in above(0.0);
        /// The weight of a client. With weights by examples, as in the paper, a client could lie
        /// about their number.
        weigh: Weigh = Weigh::Uniform;
    }
}

impl Aggregator for GeometricMedian {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let own: Vec<f64> = inbox.iter().map(|mail| mail.weight).collect();
        let sent = crate::flat(inbox);
        let total: f64 = own.iter().sum();
        // from the mean, a few huge answers would need hundreds of steps
        let mut at = inbox.median(&*round.exec);
        let mut here = at.flat();
        for _ in 0..self.passes {
            let near = |(sent, own): (&Vec<f32>, &f64)| {
                own / squared_distance(sent, &here).sqrt().max(self.smoothing)
            };
            let weights: Vec<f64> = sent.iter().zip(&own).map(near).collect();
            at = inbox.weighted_mean(&weights, &*round.exec);
            // the harmonic mean of the distances, which distant answers hardly affect
            let near = total / weights.iter().sum::<f64>();
            let before = std::mem::replace(&mut here, at.flat());
            if squared_distance(&here, &before).sqrt() <= SMALL * near {
                break;
            }
        }
        Ok(at)
    }

    fn needs(&self) -> RequiredInputs {
        self.weigh.needs()
    }

    fn claims(&self) -> Properties {
        Properties::HULL
    }

    fn robustness(&self) -> Option<Robustness> {
        Some(Robustness::at_least(3))
    }
}
plugin!(aggregator "geometric-median" => GeometricMedian,
    papers: ["Pillutla et al. 2022"]);
