//! The networks of the papers, layer by layer.

use super::layers::{Conv, Conv1d, Embedding, Layer, Layers, Residual};

/// Names and descriptions.
pub const NAMES: [(&str, &str); 23] = [
    (
        "lenet",
        "Two 5x5 convolutions (6, 16), linear 120, 84 (FedKT, section 5.1)",
    ),
    (
        "cnn-niid",
        "The same as lenet: NIID-Bench's simple CNN (Li et al. 2022), 62,006 parameters on CIFAR-10",
    ),
    (
        "cnn-mcmahan",
        "Two padded 5x5 convolutions (32, 64), linear 512 (McMahan et al. 2017), 1,663,370 parameters on MNIST",
    ),
    (
        "cnn-pfllib",
        "Two 5x5 convolutions (32, 64), linear 512 (PFLlib's FedAvgCNN), 582,026 parameters on MNIST",
    ),
    (
        "selective-fd-a",
        "Convolutions 5x5 (10, 20), linear 50 (Selective-FD, clients 0-1)",
    ),
    (
        "selective-fd-b",
        "Padded convolutions 3x3 (10, 20), linear 128 (Selective-FD, clients 2-3)",
    ),
    (
        "selective-fd-c",
        "Convolution 5x5 (10), padded convolution 3x3 (20), linear 64 (Selective-FD, clients 4-5)",
    ),
    (
        "selective-fd-d",
        "Linear 1024, 512, 256 (Selective-FD, clients 6-7)",
    ),
    (
        "selective-fd-e",
        "Linear 1024, 1024 (Selective-FD, clients 8-9)",
    ),
    ("mlp", "Linear 1024, 512, 256: the same as selective-fd-d"),
    ("mlp-wide", "Linear 1024, 1024: the same as selective-fd-e"),
    (
        "resnet-8",
        "Residual blocks of 16, 32, 64 channels, global mean (FedDF)",
    ),
    (
        "resnet-8-wide",
        "Residual blocks of 128, 256, 512 channels, means of 4x4 (FedKD, FedIOD)",
    ),
    (
        "resnet-18",
        "Two residual blocks each of 64, 128, 256, 512 channels after a 3x3 convolution, global mean (He et al. 2016, as it is used for CIFAR), 11,173,962 parameters on CIFAR-10",
    ),
    (
        "resnet-18-gn",
        "resnet-18 with group normalisation in 2 groups in place of batch normalisation (Hsieh et al. 2020)",
    ),
    (
        "resnet-20",
        "Three residual blocks each of 16, 32, 64 channels, global mean (He et al. 2016, with 1x1 convolutions where sizes change), 272,474 parameters on CIFAR-10",
    ),
    (
        "resnet-20-gn",
        "resnet-20 with group normalisation in 2 groups in place of batch normalisation",
    ),
    (
        "vgg-9",
        "Six padded 3x3 convolutions (32, 64, 128, 128, 256, 256), linear 512, 512 (FedMA, without its dropout)",
    ),
    (
        "vgg-11",
        "Eight padded 3x3 convolutions (64, 128, 256, 256, 512, 512, 512, 512) without normalisation, linear 512, 512 (Simonyan and Zisserman 2015, configuration A for images of 32x32, without dropout), 9,750,922 parameters on CIFAR-10",
    ),
    ("logistic", "One linear layer"),
    (
        "unet",
        "U-Net of three levels, 16, 32 and 64 channels: padded 3x3 convolutions with batch normalisation in pairs, and skip connections (Ronneberger et al. 2015, smaller); sides are divisible by 4",
    ),
    (
        "text-cnn",
        "Convolutions of 3, 4 and 5 words (32 channels each) on embeddings of 32 numbers, largest numbers over the text, dropout 0.5 (Kim 2014, CNN-rand, smaller); word numbers up to 8192",
    ),
    (
        "lstm-shakespeare",
        "Embeddings of 8 numbers, two LSTM layers of 256 units, the last output (McMahan et al. 2017) with LEAF's 80 characters: 817,872 parameters. McMahan et al. print 866,578, which 258 symbols and peephole connections would come to",
    ),
];

/// Returns the input that a known network is described with: MNIST's image, CIFAR's, or a text of
/// 200 words or 80 characters.
pub(super) fn usual_input(name: &str) -> &'static [usize] {
    match name {
        "text-cnn" => &[200],
        "lstm-shakespeare" => &[80],
        "unet" | "cnn-niid" => &[3, 32, 32],
        name if name.starts_with("resnet") || name.starts_with("vgg") => &[3, 32, 32],
        _ => &[1, 28, 28],
    }
}

/// Returns the number of classes that a known network is described with.
pub(super) fn usual_classes(name: &str) -> usize {
    match name {
        // the next character
        "lstm-shakespeare" => 80,
        _ => 10,
    }
}

/// Returns the layers of a known network.
pub fn layers(name: &str) -> Option<Vec<Layer>> {
    use Layer::{AveragePool, BatchNorm, GlobalPool};
    let small = |first, second, width| [cnn(10, first), cnn(20, second), linear(width)].concat();
    let mut layers = match name {
        "cnn-mcmahan" => [cnn(32, [5, 2]), cnn(64, [5, 2]), linear(512)].concat(),
        "cnn-pfllib" => [cnn(32, [5, 0]), cnn(64, [5, 0]), linear(512)].concat(),
        "lenet" | "cnn-niid" => [cnn(6, [5, 0]), cnn(16, [5, 0]), linear(120), linear(84)].concat(),
        "selective-fd-a" => small([5, 0], [5, 0], 50),
        "selective-fd-b" => small([3, 1], [3, 1], 128),
        "selective-fd-c" => small([5, 0], [3, 1], 64),
        "selective-fd-d" | "mlp" => [1024, 512, 256].map(linear).concat(),
        "selective-fd-e" | "mlp-wide" => [1024, 1024].map(linear).concat(),
        "resnet-8" => [resnet(&[16, 32, 64], 1, BatchNorm), vec![GlobalPool]].concat(),
        "resnet-8-wide" => [resnet(&[128, 256, 512], 1, BatchNorm), vec![AveragePool(4)]].concat(),
        "resnet-18" | "resnet-18-gn" => {
            let trunk = resnet(&[64, 128, 256, 512], 2, norm(name));
            [trunk, vec![GlobalPool]].concat()
        }
        "resnet-20" | "resnet-20-gn" => {
            [resnet(&[16, 32, 64], 3, norm(name)), vec![GlobalPool]].concat()
        }
        "vgg-9" => vgg(&[&[32, 64], &[128, 128], &[256, 256]]),
        "vgg-11" => vgg(&[&[64], &[128], &[256, 256], &[512, 512], &[512, 512]]),
        "logistic" => Vec::new(),
        "unet" => unet(&[16, 32, 64]),
        "text-cnn" => {
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
        "lstm-shakespeare" => {
            let (vocabulary, width) = (80, 8);
            vec![
                Layer::Embedding(Embedding { vocabulary, width }),
                Layer::Lstm(256),
                Layer::Lstm(256),
                Layer::LastOverTime,
            ]
        }
        _ => return None,
    };
    layers.push(Layer::Outputs);
    Some(layers)
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

/// Returns the normalisation of a network of this name.
fn norm(name: &str) -> Layer {
    if name.ends_with("-gn") {
        Layer::GroupNorm(2)
    } else {
        Layer::BatchNorm
    }
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
