//! Networks that make inputs.

use fl_core::Problem;
use fl_core::prelude::*;
use fl_nets::{Conv, Layer, Layers};

choices! {
    /// A network that makes inputs.
    pub enum MakerNet {
        /// Doubles a small image twice, with convolutions of 128 and 64 channels (Chen et al. 2019,
        /// for CIFAR).
        Upsampling = "upsampling",
        /// The same with 32 and 16 channels.
        UpsamplingSmall = "upsampling-small",
        /// One hidden layer of 256, for rows of numbers.
        Mlp = "mlp",
        /// A linear layer alone.
        Affine = "affine",
        /// Layer by layer, as for the trainer `dfdx`.
        Layers(Layers) = "layers",
    }
}

impl MakerNet {
    /// Returns its layers, for inputs of this shape.
    ///
    /// # Errors
    /// If it cannot make such inputs.
    pub fn layers(&self, input: &[usize]) -> Result<Vec<Layer>> {
        Ok(match self {
            Self::Upsampling => upsampling(input, [128, 64])?,
            Self::UpsamplingSmall => upsampling(input, [32, 16])?,
            Self::Mlp => vec![Layer::Linear(256), Layer::LeakyRelu(0.2), Layer::Outputs],
            Self::Affine => vec![Layer::Outputs],
            Self::Layers(Layers(layers)) => layers.clone(),
        })
    }
}

fn upsampling(input: &[usize], [wide, narrow]: [usize; 2]) -> Result<Vec<Layer>> {
    let [channels, height, width] = *input else {
        bail!(Problem::Shape(format!(
            "net: upsampling makes images [channels, height, width], not {input:?}; use `mlp` or `layers`"
        )));
    };
    Problem::shape_unless(
        height % 4 == 0 && width % 4 == 0 && height * width > 0,
        || {
            format!(
                "net: upsampling makes images whose sides are multiples of 4, not {height}x{width}; use `layers`"
            )
        },
    )?;
    let conv = |out| {
        Layer::Conv(Conv {
            out,
            kernel: 3,
            stride: 1,
            pad: 1,
            bias: true,
        })
    };
    let (norm, leaky) = (Layer::BatchNorm, Layer::LeakyRelu(0.2));
    let start = [wide, height / 4, width / 4];
    let doubled = |out| vec![Layer::Upsample(2), conv(out), norm.clone(), leaky.clone()];
    Ok([
        vec![
            Layer::Linear(start.iter().product()),
            Layer::Unflatten(start.to_vec()),
            norm.clone(),
        ],
        doubled(wide),
        doubled(narrow),
        vec![conv(channels), Layer::Tanh, Layer::Standardise],
    ]
    .concat())
}
