#![doc = include_str!("../README.md")]

mod nets;

pub use nets::MakerNet;

use fl_core::Problem;
use fl_core::prelude::*;
use fl_nets::{Adam, Network, Rule, Schedule};
use ndarray::{Array2, ArrayView2};

settings! {
    /// A network that makes inputs from noise (the generator of data-free distillation; Chen et al.
    /// 2019; Gong et al. 2023).
    pub struct NoiseToInput {
        /// The network.
        net: MakerNet = MakerNet::Upsampling;
        /// Normally distributed numbers per input. FedIOD: 100, for 100 classes 256.
        noise: usize = 100, in 1..=100_000;
        /// The optimiser. FedIOD: Adam with rate 0.001; its published code 0.0001 and `beta1: 0.5`.
        optimiser: Rule = Rule::Adam(Adam { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0 });
        /// How the learning rate changes. FedIOD: `cosine` to 0, with `steps`.
        schedule: Schedule = Schedule::Constant;
    }
}

/// The generator of [`NoiseToInput`].
pub struct NoiseNet {
    network: Network,
    noise: usize,
    shape: Vec<usize>,
    last: Option<Last>,
}

/// The randomness of the last batch.
struct Last {
    noise: Array2<f32>,
    /// The source of dropout.
    stream: Stream,
}

impl NoiseNet {
    /// Returns a generator of inputs for `make`'s task, with initial weights from its stream.
    ///
    /// # Errors
    /// If the network cannot make such inputs.
    pub fn new(settings: NoiseToInput, make: &BuildContext) -> Result<Self> {
        let shape = &make.task.input;
        let network = Network::new(
            &settings.net.layers(shape)?,
            (settings.noise, shape),
            (settings.optimiser, settings.schedule),
            &make.stream.child("weights", 0),
        )?;
        Ok(Self {
            network,
            noise: settings.noise,
            shape: shape.clone(),
            last: None,
        })
    }

    /// Returns the number of trainable parameters.
    pub fn parameters(&self) -> usize {
        self.network.parameters()
    }
}

impl Generator for NoiseNet {
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples> {
        let mut draws = stream.child("noise", 0).draws();
        let noise = Array2::from_shape_simple_fn((n, self.noise), || draws.normal() as f32);
        let made = self.network.run(noise.view(), stream)?;
        self.last = Some(Last {
            noise,
            stream: stream.clone(),
        });
        Samples::fresh(made, self.shape.clone())
    }

    /// Makes the batch again, now on the tape: [`Generator::sample`] keeps only its noise.
    fn learn(&mut self, made: &Samples, slope: ArrayView2<'_, f32>) -> Result<()> {
        let other = || Problem::Shape("these inputs are not the last sampled ones".into());
        let last = self.last.as_ref().with_context(other)?;
        let wanted = (made.len(), made.width());
        let text = || format!("a slope of {:?} for inputs of {wanted:?}", slope.dim());
        Problem::shape_unless(slope.dim() == wanted, text)?;
        self.network.learn(last.noise.view(), &last.stream, |now| {
            ensure!(now == made.values(), other());
            Ok(slope.to_owned())
        })?;
        // the same noise would make another batch now
        self.last = None;
        Ok(())
    }

    fn save(&self) -> Result<Vec<u8>> {
        self.network.save_state()
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.last = None;
        self.network.load_state(state)
    }
}
plugin!(generator "noise-to-input" => NoiseToInput as NoiseNet,
    papers: ["Chen et al. 2019", "Gong et al. 2023"]);

#[cfg(test)]
mod tests;
