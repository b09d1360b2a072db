//! The networks of the papers, layer by layer.

use super::layers::{Conv, Conv1d, Embedding, Layer, Layers, Residual};
use fl_core::settings::{Reader, Setting, ValueType, Word};

fl_core::choices! {
    /// A network that a spec calls by its name.
    pub enum KnownNet {
        /// Two 5x5 convolutions (6, 16), linear 120, 84 (FedKT, section 5.1)
        LeNet = "lenet",
        /// The same as lenet: NIID-Bench's simple CNN (Li et al. 2022), 62,006 parameters on
        /// CIFAR-10
        CnnNiid = "cnn-niid",
        /// Two padded 5x5 convolutions (32, 64), linear 512 (McMahan et al. 2017), 1,663,370
        /// parameters on MNIST
        CnnMcMahan = "cnn-mcmahan",
        /// Two 5x5 convolutions (32, 64), linear 512 (PFLlib's FedAvgCNN), 582,026 parameters on
        /// MNIST
        CnnPfllib = "cnn-pfllib",
        /// Convolutions 5x5 (10, 20), linear 50 (Selective-FD, clients 0-1)
        SelectiveFdA = "selective-fd-a",
        /// Padded convolutions 3x3 (10, 20), linear 128 (Selective-FD, clients 2-3)
        SelectiveFdB = "selective-fd-b",
        /// Convolution 5x5 (10), padded convolution 3x3 (20), linear 64 (Selective-FD, clients 4-5)
        SelectiveFdC = "selective-fd-c",
        /// Linear 1024, 512, 256 (Selective-FD, clients 6-7)
        SelectiveFdD = "selective-fd-d",
        /// Linear 1024, 1024 (Selective-FD, clients 8-9)
        SelectiveFdE = "selective-fd-e",
        /// Linear 1024, 512, 256: the same as selective-fd-d
        Mlp = "mlp",
        /// Linear 1024, 1024: the same as selective-fd-e
        MlpWide = "mlp-wide",
        /// Residual blocks of 16, 32, 64 channels, global mean (FedDF)
        ResNet8 = "resnet-8",
        /// Residual blocks of 128, 256, 512 channels, means of 4x4 (FedKD, FedIOD)
        ResNet8Wide = "resnet-8-wide",
        /// Two residual blocks each of 64, 128, 256, 512 channels after a 3x3 convolution, global
        /// mean (He et al. 2016, as it is used for CIFAR), 11,173,962 parameters on CIFAR-10
        ResNet18 = "resnet-18",
        /// resnet-18 with group normalisation in 2 groups in place of batch normalisation (Hsieh et
        /// al. 2020)
        ResNet18Gn = "resnet-18-gn",
        /// Three residual blocks each of 16, 32, 64 channels, global mean (He et al. 2016, with 1x1
        /// convolutions where sizes change), 272,474 parameters on CIFAR-10
        ResNet20 = "resnet-20",
        /// resnet-20 with group normalisation in 2 groups in place of batch normalisation
        ResNet20Gn = "resnet-20-gn",
        /// Six padded 3x3 convolutions (32, 64, 128, 128, 256, 256), linear 512, 512 (FedMA,
        /// without its dropout)
        Vgg9 = "vgg-9",
        /// Eight padded 3x3 convolutions (64, 128, 256, 256, 512, 512, 512, 512) without
        /// normalisation, linear 512, 512 (Simonyan and Zisserman 2015, configuration A for images
        /// of 32x32, without dropout), 9,750,922 parameters on CIFAR-10
        Vgg11 = "vgg-11",
        /// One linear layer
        Logistic = "logistic",
        /// U-Net of three levels, 16, 32 and 64 channels: padded 3x3 convolutions with batch
        /// normalisation in pairs, and skip connections (Ronneberger et al. 2015, smaller); sides
        /// are divisible by 4
        UNet = "unet",
        /// Convolutions of 3, 4 and 5 words (32 channels each) on embeddings of 32 numbers, largest
        /// numbers over the text, dropout 0.5 (Kim 2014, CNN-rand, smaller); word numbers up to
        /// 8192
        TextCnn = "text-cnn",
        /// Embeddings of 8 numbers, two LSTM layers of 256 units, the last output (McMahan et al.
        /// 2017) with LEAF's 80 characters: 817,872 parameters. McMahan et al. print 866,578, which
        /// 258 symbols and peephole connections would come to
        LstmShakespeare = "lstm-shakespeare",
    }
}

/// Returns the names of all known networks, with their descriptions.
pub fn known() -> Vec<Word> {
    match KnownNet::value_type() {
        ValueType::Choice { words, .. } => words,
        _ => unreachable!("names are a choice"),
    }
}

impl KnownNet {
    /// Returns the network of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::read(&name.into(), &mut Reader::default())
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        self.write().as_str().unwrap_or_default().into()
    }

    /// Returns the input that it is described with: MNIST's image, CIFAR's, or a text of 200 words
    /// or 80 characters.
    pub(super) fn usual_input(&self) -> &'static [usize] {
        match self {
            Self::TextCnn => &[200],
            Self::LstmShakespeare => &[80],
            Self::UNet | Self::CnnNiid | Self::Vgg9 | Self::Vgg11 => &[3, 32, 32],
            Self::ResNet8 | Self::ResNet8Wide | Self::ResNet18 | Self::ResNet18Gn => &[3, 32, 32],
            Self::ResNet20 | Self::ResNet20Gn => &[3, 32, 32],
            _ => &[1, 28, 28],
        }
    }

    /// Returns the number of classes that it is described with.
    pub(super) fn usual_classes(&self) -> usize {
        match self {
            // the next character
            Self::LstmShakespeare => 80,
            _ => 10,
        }
    }

    /// Returns its layers.
    pub fn layers(&self) -> Vec<Layer> {
        use Layer::{AveragePool, BatchNorm, GlobalPool, GroupNorm};
        let small =
            |first, second, width| [cnn(10, first), cnn(20, second), linear(width)].concat();
        let (of_18, of_20) = ([64, 128, 256, 512], [16, 32, 64]);
        let mean = vec![GlobalPool];
        let mut layers = match self {
            Self::CnnMcMahan => [cnn(32, [5, 2]), cnn(64, [5, 2]), linear(512)].concat(),
            Self::CnnPfllib => [cnn(32, [5, 0]), cnn(64, [5, 0]), linear(512)].concat(),
            Self::LeNet | Self::CnnNiid => {
                [cnn(6, [5, 0]), cnn(16, [5, 0]), linear(120), linear(84)].concat()
            }
            Self::SelectiveFdA => small([5, 0], [5, 0], 50),
            Self::SelectiveFdB => small([3, 1], [3, 1], 128),
            Self::SelectiveFdC => small([5, 0], [3, 1], 64),
            Self::SelectiveFdD | Self::Mlp => [1024, 512, 256].map(linear).concat(),
            Self::SelectiveFdE | Self::MlpWide => [1024, 1024].map(linear).concat(),
            Self::ResNet8 => [resnet(&of_20, 1, BatchNorm), mean].concat(),
            Self::ResNet8Wide => {
                [resnet(&[128, 256, 512], 1, BatchNorm), vec![AveragePool(4)]].concat()
            }
            Self::ResNet18 => [resnet(&of_18, 2, BatchNorm), mean].concat(),
            Self::ResNet18Gn => [resnet(&of_18, 2, GroupNorm(2)), mean].concat(),
            Self::ResNet20 => [resnet(&of_20, 3, BatchNorm), mean].concat(),
            Self::ResNet20Gn => [resnet(&of_20, 3, GroupNorm(2)), mean].concat(),
            Self::Vgg9 => vgg(&[&[32, 64], &[128, 128], &[256, 256]]),
            Self::Vgg11 => vgg(&[&[64], &[128], &[256, 256], &[512, 512], &[512, 512]]),
            Self::Logistic => Vec::new(),
            Self::UNet => unet(&[16, 32, 64]),
            Self::TextCnn => {
                let branch = |kernel| {
                    let conv = Layer::Conv1d(Conv1d { out: 32, kernel });
                    Layers(vec![conv, Layer::Relu, Layer::MaxOverTime])
                };
                let (vocabulary, width) = (8192, 32);
                vec![
                    Layer::Embedding(Embedding { vocabulary, width }),
                    Layer::Branches([3, 4, 5].map(branch).to_vec()),
                    Layer::Dropout(0.5),
                ]
            }
            Self::LstmShakespeare => {
                let (vocabulary, width) = (80, 8);
                vec![
                    Layer::Embedding(Embedding { vocabulary, width }),
                    Layer::Lstm(256),
                    Layer::Lstm(256),
                    Layer::LastOverTime,
                ]
            }
        };
        layers.push(Layer::Outputs);
        layers
    }
}

/// Returns a U-Net with a pair of convolutions on each level. All but the lowest level add the
/// output of the next one, which has half the rows and columns and a transposed convolution back to
/// full size.
fn unet(widths: &[usize]) -> Vec<Layer> {
    let Some((width, below)) = widths.split_first() else {
        return Vec::new();
    };
    let one = || {
        let conv = conv(*width, 3, 1, 1, false);
        [conv, Layer::BatchNorm, Layer::Relu]
    };
    let pair = || [one(), one()].concat();
    if below.is_empty() {
        return pair();
    }
    let up = Layer::TransposedConv(Conv {
        out: *width,
        kernel: 2,
        stride: 2,
        pad: 0,
        bias: true,
    });
    let around = [vec![Layer::Pool(2)], unet(below), vec![up]].concat();
    [pair(), vec![Layer::Skip(Layers(around))], pair()].concat()
}

fn conv(out: usize, kernel: usize, stride: usize, pad: usize, bias: bool) -> Layer {
    Layer::Conv(Conv {
        out,
        kernel,
        stride,
        pad,
        bias,
    })
}

/// Returns convolution (kernel, padding), relu, pooling by 2.
fn cnn(out: usize, [kernel, pad]: [usize; 2]) -> Vec<Layer> {
    let conv = conv(out, kernel, 1, pad, true);
    vec![conv, Layer::Relu, Layer::Pool(2)]
}

fn linear(width: usize) -> Vec<Layer> {
    vec![Layer::Linear(width), Layer::Relu]
}

/// Returns padded 3x3 convolutions in groups, each group with pooling by 2 after it, and two linear
/// layers of 512.
fn vgg(groups: &[&[usize]]) -> Vec<Layer> {
    let conv = |out: &usize| [conv(*out, 3, 1, 1, true), Layer::Relu];
    let group = |group: &&[usize]| {
        let convs = group.iter().flat_map(conv);
        convs.chain([Layer::Pool(2)]).collect::<Vec<_>>()
    };
    let layers = groups.iter().flat_map(group);
    layers.chain([linear(512), linear(512)].concat()).collect()
}

/// Returns a 3x3 convolution, then `blocks` residual blocks of each width: the common trunk of
/// FedDF's and FedKD's networks. The first block of each width but the first has stride 2 and a 1x1
/// convolution on the shortcut (He et al. 2016, for CIFAR).
fn resnet(widths: &[usize], blocks: usize, norm: Layer) -> Vec<Layer> {
    let conv = |out, kernel, stride| {
        let conv = conv(out, kernel, stride, kernel / 2, false);
        vec![conv, norm.clone()]
    };
    let relu = || vec![Layer::Relu];
    let mut layers = [conv(widths[0], 3, 1), relu()].concat();
    for at in 0..blocks * widths.len() {
        let (width, halves) = (widths[at / blocks], at > 0 && at % blocks == 0);
        let stride = if halves { 2 } else { 1 };
        let body = [conv(width, 3, stride), relu(), conv(width, 3, 1)].concat();
        let shortcut = if halves {
            conv(width, 1, stride)
        } else {
            vec![]
        };
        layers.push(Layer::Residual(Residual {
            body: Layers(body),
            shortcut: Layers(shortcut),
        }));
    }
    layers
}
