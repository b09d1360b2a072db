//! Server momentum.
use fl_core::MeanOfParams;
use fl_core::message::{alike, decode, encode};
use fl_core::prelude::*;

// ANCHOR: settings
settings! {
    /// Mean of the clients' parameters with momentum from earlier rounds (FedAvgM; Hsu et al.
    /// 2019).
    pub struct MomentumMean {
        /// Share of the earlier direction that is kept.
        beta: f64 = 0.9, in 0.0..1.0;
    }
}

/// The aggregator. Its state is its last position and its direction.
#[derive(Debug)]
pub struct Momentum {
    settings: MomentumMean,
    last: Option<(Params, Params)>,
}

// ANCHOR_END: settings
impl Aggregator for Momentum {
    type In = Params;
    type Out = Params;

    // ANCHOR: work
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let weights: Vec<f64> = inbox.iter().map(|mail| mail.weight).collect();
        self.update(round, inbox.weighted_mean(&weights, &*round.exec))
    }

    fn fold(&self, _: &Round) -> Option<Box<dyn Fold<Params, Params>>> {
        Some(Box::new(MeanOfParams::default()))
    }

    fn update(&mut self, _: &Round, mean: Params) -> Result<Params> {
        let beta = self.settings.beta as f32;
        let (at, speed) = match &self.last {
            // another model than before: its direction is unknown
            Some((at, speed)) if alike(at, &mean).is_ok() => {
                let step = mean.zip(at, |m, a| m - a)?;
                let speed = speed.zip(&step, |v, d| beta * v + d)?;
                (at.zip(&speed, |a, v| a + v)?, speed)
            }
            _ => (mean.clone(), mean.zip(&mean, |_, _| 0.0)?),
        };
        self.last = Some((at.clone(), speed));
        Ok(at)
    }
    // ANCHOR_END: work

    fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            samples: true,
            ..RequiredInputs::default()
        }
    }

    fn claims(&self) -> Properties {
        Properties::SCALE_FREE.of_mean(true)
    }

    // ANCHOR: state
    fn save(&self) -> Vec<u8> {
        let Some((at, speed)) = &self.last else {
            return Vec::new();
        };
        let (at, speed) = (encode(at), encode(speed));
        [&(at.len() as u64).to_le_bytes()[..], &at, &speed].concat()
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.last = match state.split_first_chunk::<8>() {
            None => None,
            Some((length, rest)) => {
                let cut = rest.split_at_checked(u64::from_le_bytes(*length) as usize);
                let (at, speed) = cut.context("a state that is cut short")?;
                Some((decode(at)?, decode(speed)?))
            }
        };
        Ok(())
    }
    // ANCHOR_END: state
}
plugin!(aggregator "momentum-mean" => MomentumMean as Momentum { last });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_its_claims() {
        for beta in [0.0, 0.9] {
            fl_conformance::aggregator(|| Momentum::from(MomentumMean { beta }));
        }
    }

    #[test]
    fn exact_it_overshoots() {
        let mut part = Momentum::from(MomentumMean { beta: 0.5 });
        let inbox = |x: f32| fl_conformance::params(&[&[x], &[x + 2.0]]);
        fl_conformance::snapshot!(part, Round::first(), inbox(0.0), @"w [1] 1");
        fl_conformance::snapshot!(part, Round::first(), inbox(4.0), @"w [1] 5");
        fl_conformance::snapshot!(part, Round::first(), inbox(4.0), @"w [1] 7");
    }
}
