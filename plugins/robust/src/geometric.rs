//! The geometric median.
use fl_core::Weigh;
use fl_core::prelude::*;
use fl_core::squared_distance;

/// A step this small relative to the distance of the answers is the last.
const SMALL: f64 = 1e-6;

settings! {
    /// The geometric median: the point with the least sum of distances to the clients' answers, by
    /// smoothed Weiszfeld steps (RFA; Pillutla et al. 2022). Where rounding holds one at an answer
    /// that is not the median, a step of Vardi and Zhang (2000) leaves it. Robust to fewer than half
    /// of the clients being bad; needs all answers at once.
    pub struct GeometricMedian {
        /// Largest number of steps, those of Vardi and Zhang too, from the median of each number. A
        /// step below a millionth of the distance to the nearest answers is the last.
        passes: usize = 100, in 1..=1000;
        /// Smaller distances count as this, so that no division by 0 occurs.
        smoothing: f64 = 1e-6, in above(0.0);
        /// The weight of a client. With weights by examples, as in the paper, a client could lie
        /// about their number.
        weigh: Weigh = Weigh::Uniform;
    }
}

/// The weights of a step away from the answers at `here`, by those of a plain step and by the length
/// of a step to the mean of the other answers; `None` if the median is there (Vardi and Zhang 2000).
fn leaving(
    here: &[usize],
    own: &[f64],
    mut weights: Vec<f64>,
    way: impl FnOnce(&[f64]) -> f64,
) -> Option<Vec<f64>> {
    here.iter().for_each(|at| weights[*at] = 0.0);
    let others: f64 = weights.iter().sum();
    let held: f64 = here.iter().map(|at| own[*at]).sum();
    let length = if others > 0.0 { way(&weights) } else { 0.0 };
    let pull = others * length;
    weights.iter_mut().for_each(|w| *w *= 1.0 - held / pull);
    here.iter()
        .for_each(|at| weights[*at] = own[*at] * others / pull);
    (pull > held).then_some(weights)
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
            let apart = |sent: &Vec<f32>| squared_distance(sent, &here).sqrt();
            let apart: Vec<f64> = sent.iter().map(apart).collect();
            let weigh = |(apart, own): (&f64, &f64)| own / apart.max(self.smoothing);
            let weights: Vec<f64> = apart.iter().zip(&own).map(weigh).collect();
            at = inbox.weighted_mean(&weights, &*round.exec);
            // the harmonic mean of the distances, which distant answers hardly affect
            let near = total / weights.iter().sum::<f64>();
            let before = std::mem::replace(&mut here, at.flat());
            if here == before && apart.contains(&0.0) {
                // an answer's own weight leaves a step of `smoothing`, which `f32` may not tell
                let held: Vec<usize> = (0..apart.len()).filter(|at| apart[*at] == 0.0).collect();
                let way = |weights: &[f64]| {
                    let to = inbox.weighted_mean(weights, &*round.exec).flat();
                    squared_distance(&to, &before).sqrt()
                };
                let Some(away) = leaving(&held, &own, weights, way) else {
                    break;
                };
                at = inbox.weighted_mean(&away, &*round.exec);
                here = at.flat();
            } else if squared_distance(&here, &before).sqrt() <= SMALL * near {
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
