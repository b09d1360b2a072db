#![doc = include_str!("../README.md")]

mod exact_mean;
mod lora_product;

pub use exact_mean::{ExactMeanOfParams, exact_mean};
pub use lora_product::LoraProduct;

use fl_core::prelude::*;
use fl_core::{MeanOfParams, Weigh};

choices! {
    /// How a mean is summed.
    pub enum Sum {
        /// In 64-bit floats and in client order.
        F64 = "f64",
        /// Without rounding: the result is the exact mean, rounded once to the nearest 32-bit
        /// float. It does not depend on the order of clients or on how they are grouped. Products
        /// with weights are exact for weights of 0 and from 2^-700 to 2^700; others are refused.
        Exact = "exact",
    }
}

settings! {
    /// Mean of the clients' parameters, weighted by their numbers of examples (FedAvg; McMahan et
    /// al. 2017).
    pub struct Mean {
        /// The weight of a client.
        weigh: Weigh = Weigh::Samples;
        /// How the mean is summed.
        sum: Sum = Sum::F64;
    }
}

impl Aggregator for Mean {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let weights: Vec<f64> = inbox.iter().map(|mail| mail.weight).collect();
        let mean = match self.sum {
            Sum::F64 => inbox.weighted_mean(&weights, &*round.exec),
            Sum::Exact => exact_mean(inbox, &weights, &*round.exec)?,
        };
        self.update(round, mean)
    }
    fn update(&mut self, round: &Round, mean: Params) -> Result<Params> {
        if let Some(text) = lora_product::mean_of_factors(&mean) {
            round.note(text);
        }
        Ok(mean)
    }
    fn fold(&self, _: &Round) -> Option<Box<dyn Fold<Params, Params>>> {
        Some(match self.sum {
            Sum::F64 => Box::<MeanOfParams>::default(),
            Sum::Exact => Box::<ExactMeanOfParams>::default(),
        })
    }
    fn needs(&self) -> RequiredInputs {
        self.weigh.needs()
    }
    fn claims(&self) -> Properties {
        Properties::HULL.of_mean(true)
    }
}
plugin!(aggregator "mean" => Mean,
    papers: ["McMahan et al. 2017"]);

settings! {
    /// Coordinate-wise median (Yin et al. 2018): robust to fewer than half of the clients being
    /// bad.
    pub struct Median {}
}

impl Aggregator for Median {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        Ok(inbox.median(&*round.exec))
    }
    fn claims(&self) -> Properties {
        Properties::UNWEIGHTED
    }
    fn robustness(&self) -> Option<Robustness> {
        Some(Robustness::at_least(3))
    }
}
plugin!(aggregator "median" => Median,
    papers: ["Yin et al. 2018"]);

settings! {
    /// Coordinate-wise trimmed mean (Yin et al. 2018): robust to a minority of bad clients.
    pub struct TrimmedMean {
        /// Share of clients dropped at each end, rounded down.
        trim: f64 = 0.1, in 0.0..0.5;
    }
}

impl Aggregator for TrimmedMean {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let drop = floor_share(self.trim, inbox.len()).min((inbox.len() - 1) / 2);
        let kept = drop..inbox.len() - drop;
        Ok(inbox.per_rank(kept, &*round.exec, |kept| {
            (kept.iter().map(|v| f64::from(*v)).sum::<f64>() / kept.len() as f64) as f32
        }))
    }
    fn claims(&self) -> Properties {
        Properties::UNWEIGHTED.of_mean(self.trim == 0.0)
    }
    fn robustness(&self) -> Option<Robustness> {
        (self.trim > 0.0).then(|| Robustness::of_share(self.trim, 2, 1))
    }
}
plugin!(aggregator "trimmed-mean" => TrimmedMean,
    papers: ["Yin et al. 2018"]);

#[cfg(test)]
mod tests {
    use super::*;
    use fl_conformance::snapshot;

    #[test]
    fn they_keep_their_claims() {
        for sum in [Sum::F64, Sum::Exact] {
            for weigh in [Weigh::Samples, Weigh::Uniform] {
                let (weigh, sum) = (weigh.clone(), sum.clone());
                fl_conformance::aggregator(move || Mean {
                    weigh: weigh.clone(),
                    sum: sum.clone(),
                });
            }
        }
        fl_conformance::aggregator(|| Median {});
        for trim in [0.0, 0.1, 0.25, 0.49] {
            fl_conformance::aggregator(|| TrimmedMean { trim });
        }
    }

    #[test]
    fn exact_a_trimmed_mean_drops_the_decimal_share() {
        // the product of 0.29 and 100 is less than 29 in floating-point numbers
        let squares: Vec<[f32; 1]> = (0..100_u16).map(|k| [f32::from(k * k)]).collect();
        let all: Vec<&[f32]> = squares.iter().map(|row| &row[..]).collect();
        let inbox = fl_conformance::params(&all);
        let mut trimmed = TrimmedMean { trim: 0.29 };
        let kept: u32 = (29..=70_u32).map(|k| k * k).sum();
        snapshot!(trimmed, Round::first(), inbox, @"w [1] 2597.17");
        assert_eq!(kept, 109_081);
        // never all of them
        let mut trimmed = TrimmedMean {
            trim: 0.5_f64.next_down(),
        };
        let two = fl_conformance::params(&[&[1.0], &[2.0]]);
        snapshot!(trimmed, Round::first(), two, @"w [1] 1.5");
    }

    #[test]
    fn exact_one_wild_client() {
        let inbox = fl_conformance::params(&[&[1.0, 2.0], &[2.0, 2.0], &[3.0, 2.0], &[1e9, -1e9]]);
        let inbox = fl_conformance::weigh(&inbox, &[10.0, 30.0, 60.0, 1.0]);
        let mut mean = Mean {
            weigh: Weigh::Samples,
            sum: Sum::F64,
        };
        snapshot!(mean, Round::first(), inbox, @"w [2] 9900990 -9900990");
        snapshot!(Median {}, Round::first(), inbox, @"w [2] 2.5 2");
        snapshot!(TrimmedMean { trim: 0.25 }, Round::first(), inbox, @"w [2] 2.5 2");
    }
}
