//! The networks of the papers, layer by layer.

use super::layers::{Conv, Conv1d, Embedding, Layer, Layers, Residual};

/// Names and descriptions.
pub const NAMES: [(&str, &str); 14] = [
    (
        "lenet",
        "Two 5x5 convolutions (6, 16), linear 120, 84 (FedKT, section 5.1)",
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
        "vgg-9",
        "Six padded 3x3 convolutions (32, 64, 128, 128, 256, 256), linear 512, 512 (FedMA, without its dropout)",
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
];

/// Returns the layers of a known network.
pub fn layers(name: &str) -> Option<Vec<Layer>> {
    use Layer::{AveragePool, GlobalPool, Outputs, Relu};
    let mlp = |widths: &[usize]| {
        widths
            .iter()
            .flat_map(|w| linear(*w))
            .chain([Outputs])
            .collect()
    };
    let small = |first: [usize; 2], second: [usize; 2], width| {
        let parts = [
            cnn(10, first),
            cnn(20, second),
            linear(width),
            vec![Outputs],
        ];
        parts.concat()
    };
    Some(match name {
        "lenet" => [
            cnn(6, [5, 0]),
            cnn(16, [5, 0]),
            linear(120),
            linear(84),
            vec![Outputs],
        ]
        .concat(),
        "selective-fd-a" => small([5, 0], [5, 0], 50),
        "selective-fd-b" => small([3, 1], [3, 1], 128),
        "selective-fd-c" => small([5, 0], [3, 1], 64),
        "selective-fd-d" | "mlp" => mlp(&[1024, 512, 256]),
        "selective-fd-e" | "mlp-wide" => mlp(&[1024, 1024]),
        "resnet-8" => [resnet([16, 32, 64]), vec![GlobalPool, Outputs]].concat(),
        "resnet-8-wide" => [resnet([128, 256, 512]), vec![AveragePool(4), Outputs]].concat(),
        "vgg-9" => {
            let conv = |out| {
                vec![
                    Layer::Conv(Conv {
                        out,
                        kernel: 3,
                        stride: 1,
                        pad: 1,
                        bias: true,
                    }),
                    Relu,
                ]
            };
            let pair = |a, b| [conv(a), conv(b), vec![Layer::Pool(2)]].concat();
            [
                pair(32, 64),
                pair(128, 128),
                pair(256, 256),
                linear(512),
                linear(512),
                vec![Outputs],
            ]
            .concat()
        }
        "logistic" => vec![Outputs],
        "unet" => [unet(&[16, 32, 64]), vec![Outputs]].concat(),
        "text-cnn" => {
            let branch = |kernel| {
                let conv = Layer::Conv1d(Conv1d { out: 32, kernel });
                Layers(vec![conv, Relu, Layer::MaxOverTime])
            };
            let embedding = Embedding {
                vocabulary: 8192,
                width: 32,
            };
            vec![
                Layer::Embedding(embedding),
                Layer::Branches([3, 4, 5].map(branch).to_vec()),
                Layer::Dropout(0.5),
                Outputs,
            ]
        }
        _ => return None,
    })
}

/// Returns a U-Net with a pair of convolutions on each level. All but the lowest level add the
/// output of the next one, which has half the rows and columns and a transposed convolution back to
/// full size.
fn unet(widths: &[usize]) -> Vec<Layer> {
    let Some((width, below)) = widths.split_first() else {
        return Vec::new();
    };
    let conv = |out, kernel, stride, pad, bias| Conv {
        out,
        kernel,
        stride,
        pad,
        bias,
    };
    let one = || {
        let conv = Layer::Conv(conv(*width, 3, 1, 1, false));
        [conv, Layer::BatchNorm, Layer::Relu]
    };
    let pair = || [one(), one()].concat();
    if below.is_empty() {
        return pair();
    }
    let up = Layer::TransposedConv(conv(*width, 2, 2, 0, true));
    let around = [vec![Layer::Pool(2)], unet(below), vec![up]].concat();
    [pair(), vec![Layer::Skip(Layers(around))], pair()].concat()
}

/// Returns convolution (kernel, padding), relu, pooling by 2.
fn cnn(out: usize, [kernel, pad]: [usize; 2]) -> Vec<Layer> {
    vec![
        Layer::Conv(Conv {
            out,
            kernel,
            stride: 1,
            pad,
            bias: true,
        }),
        Layer::Relu,
        Layer::Pool(2),
    ]
}

fn linear(width: usize) -> Vec<Layer> {
    vec![Layer::Linear(width), Layer::Relu]
}

/// Returns the common trunk of FedDF's and FedKD's networks: a 3x3 convolution, then one block for
/// each width. The second and third block have stride 2 and a 1x1 convolution on the shortcut (He
/// et al. 2016, for CIFAR).
fn resnet(widths: [usize; 3]) -> Vec<Layer> {
    let conv = |out, kernel: usize, stride| {
        vec![
            Layer::Conv(Conv {
                out,
                kernel,
                stride,
                pad: kernel / 2,
                bias: false,
            }),
            Layer::BatchNorm,
        ]
    };
    let relu = || vec![Layer::Relu];
    let mut layers = [conv(widths[0], 3, 1), relu()].concat();
    for (at, width) in widths.into_iter().enumerate() {
        let stride = if at == 0 { 1 } else { 2 };
        let body = [conv(width, 3, stride), relu(), conv(width, 3, 1)].concat();
        let shortcut = if at == 0 {
            vec![]
        } else {
            conv(width, 1, stride)
        };
        layers.push(Layer::Residual(Residual {
            body: Layers(body),
            shortcut: Layers(shortcut),
        }));
    }
    layers
}
