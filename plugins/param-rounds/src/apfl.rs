//! APFL (Deng et al. 2020, algorithm 1): each client mixes a model of its own with the common one.
use crate::local::{slope, zip};
use crate::rounds::{Family, RoundRule, Rounds, Shared, Start};
use crate::slots::MODEL;
use fl_core::message::Scalar;
use fl_core::prelude::*;

settings! {
    /// FedAvg in which each client also learns `v`, and predicts by the mixture
    /// `mix v + (1 - mix) w` of it and the common model (APFL, Deng et al. 2020). Both models take
    /// plain steps by the learning rate of `parts.model`; buffers stay as they were sent.
    pub struct Apfl {
        /// The share of the client's own model in the mixture, at first if it is `adaptive`.
        mix: f64 = 0.5, in 0.0..=1.0;
        /// Each client moves its share along its loss, once a round, before its first step.
        adaptive: bool = false;
    }
}

/// Returns the next share of a client's own model: a step along the gradient of the mixture's loss
/// by the share, which is `slope`, held within 0 and 1.
pub fn next_mix(mix: f64, rate: f64, slope: f64) -> f64 {
    (mix - rate * slope).clamp(0.0, 1.0)
}

fn step(at: &Params, gradient: &Params, rate: f64) -> Result<Params> {
    zip(at, gradient, |w, g| w - rate * g)
}

fn mixture(own: &Params, common: &Params, mix: f64) -> Result<Params> {
    zip(own, common, |v, w| mix * v + (1.0 - mix) * w)
}

impl RoundRule for Apfl {
    type State = ();
    const PERSONAL: bool = true;
    const BY_GRADIENTS: bool = true;
    const CORRECTS: bool = true;

    fn declare<'p>(&'p self, family: Family<'p>, all: Declaration<'p>) -> Declaration<'p> {
        let mix = self.adaptive.then(|| Measurement::each("mix"));
        all.exchange(family.trains(self)).measures(mix)
    }

    /// Steps of both models. The client's model between rounds is the mixture, and `v` its memory.
    fn train(&self, client: &mut Client, start: Start<'_>) -> Result<Params> {
        let (pass, batches) = start.steps(client);
        let (kept, share) = (client.stashed("own")?, client.stashed::<Scalar>("mix")?);
        let mut mix = share.map_or(self.mix, |share| share.value().into());
        let model = client.parametric(&MODEL)?;
        // until it takes part, a client's own model is the first one
        let (mut own, mut common) = (kept.unwrap_or_else(|| model.params()), start.global.clone());
        let rate = model.step_size().context("parts.model: APFL takes steps of one learning rate, and this trainer's are not (Adam, momentum, a rate that changes); use plain gradient descent")?;
        let rate = rate * pass.rate;
        for (at, rows) in batches.iter().enumerate() {
            let batch = start.examples.pick(rows);
            let mixed = mixture(&own, &common, mix)?;
            let by_mixture = slope(model, &mixed, &batch, pass.loss)?;
            if self.adaptive && at == 0 {
                let apart = zip(&own, &common, |v, w| v - w)?;
                mix = next_mix(mix, rate, apart.dot(&by_mixture)?);
            }
            let by_common = slope(model, &common, &batch, pass.loss)?;
            common = step(&common, &by_common, rate)?;
            own = step(&own, &by_mixture, rate * mix)?;
        }
        model.set_params(&mixture(&own, &common, mix)?)?;
        client.stash("own", &own);
        if self.adaptive {
            client.stash("mix", &Scalar::new(mix as f32));
            client.measure("mix", mix);
        }
        Ok(common)
    }

    fn model(&self, slot: SlotSpec) -> SlotSpec {
        let slot = slot.needs(Ability::EqualSteps);
        slot.needs(Ability::ByGradient).needs(Ability::NoDecay)
    }
}
plugin!(protocol "apfl" => Shared<Apfl> as Rounds<Apfl>, papers: ["Deng et al. 2020"]);
