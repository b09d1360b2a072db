//! Layers as a spec writes them.

use fl_core::settings::{Reader, Setting, Value, ValueType, above};
use fl_core::{choices, settings};

choices! {
    /// One layer of a network.
    pub enum Layer {
        /// `max(x, 0)`.
        Relu = "relu",
        /// `x` if above 0, this times `x` if below.
        LeakyRelu(f64, in above(0.0)) = "leaky-relu",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// `1 / (1 + exp(-x))`.
        Sigmoid = "sigmoid",
        /// Converts an image to one row of numbers. A linear layer does so itself.
        Flatten = "flatten",
        /// Two-dimensional convolution.
        Conv(Conv) = "conv",
        /// The transpose of a convolution (`ConvTranspose2d`): `(n - 1) stride - 2 pad + kernel`
        /// rows out of `n`. Its weight is `out x in x kernel x kernel`, turned by half a turn:
        /// PyTorch's is `weight.flip(2, 3).transpose(0, 1)`.
        TransposedConv(Conv) = "transposed-conv",
        /// Converts a row of numbers to an image of this many channels, rows and columns.
        Unflatten(Vec<usize>) = "unflatten",
        /// Fully connected, with this many outputs. The last layer of a list must have the outputs
        /// of the task.
        Linear(usize, in 1..) = "linear",
        /// Fully connected, with the outputs of the task; in a generator, with the numbers of an
        /// input. For tasks with a class or a value for every pixel: a 1x1 convolution with a
        /// channel for each class or colour.
        Outputs = "outputs",
        /// The largest number of each window of this many rows and columns; windows do not overlap.
        Pool(usize, in 1..) = "pool",
        /// The largest number of each window.
        MaxPool(Window) = "max-pool",
        /// The mean of each window of this many rows and columns; windows do not overlap.
        AveragePool(usize, in 1..) = "average-pool",
        /// The mean of each channel.
        GlobalPool = "global-pool",
        /// Batch normalisation of each channel, with PyTorch's constants: epsilon 1e-5, momentum
        /// 0.1.
        BatchNorm = "batch-norm",
        /// Batch normalisation without a learnt scale and shift (`affine=False`).
        Standardise = "standardise",
        /// Layer normalisation of each sample, with a learnt scale and shift for each of its numbers
        /// (PyTorch's `LayerNorm` of the whole shape; epsilon 1e-5).
        LayerNorm = "layer-norm",
        /// Group normalisation (Wu, He 2018): each of this many groups of neighbouring channels of
        /// a sample, with a learnt scale and shift for each channel (PyTorch's `GroupNorm`; epsilon
        /// 1e-5). It divides the number of channels.
        GroupNorm(usize, in 1..) = "group-norm",
        /// During training, sets numbers to 0 with this probability, and divides the rest by its
        /// complement.
        Dropout(f64, in 0.0..1.0) = "dropout",
        /// Repeats every row and column this many times.
        Upsample(usize, in 1..) = "upsample",
        /// `relu(body(x) + shortcut(x))`, as in ResNet.
        Residual(Residual) = "residual",
        /// The input, with the output of these layers as further channels of the same size. The
        /// skip connections of a U-Net, nested.
        Skip(Layers) = "skip",
        /// Converts a text, a row of word numbers, to a row of learnt numbers for each word:
        /// `words x width`. Only as the first layer.
        Embedding(Embedding) = "embedding",
        /// One-dimensional convolution along the words of a text (Kim 2014, equation 2), without
        /// padding. Windows that begin or end beyond the text are 0, except the first.
        Conv1d(Conv1d) = "conv1d",
        /// The largest number of each channel over the words of a text (Kim 2014, section 2).
        MaxOverTime = "max-over-time",
        /// Long short-term memory with this many units: an output for each word of a text, that
        /// knows the words before it. PyTorch's `LSTM` of one layer, with one bias.
        Lstm(usize, in 1..) = "lstm",
        /// The numbers of the last word of a text.
        LastOverTime = "last-over-time",
        /// Several lists of layers, all of the same input: their channels side by side.
        Branches(Vec<Layers>) = "branches",
    }
}

settings! {
    /// Learnt numbers for words: `vocabulary x width`, row `n - 1` for word `n`; PyTorch's
    /// `Embedding` without a row for 0. Initial values are uniform in -0.25 to 0.25, as in Kim's
    /// code.
    pub struct Embedding {
        /// The largest word number; the data set's `width`. 0 marks the absence of a word, and
        /// becomes zeros that are not learnt.
        vocabulary: usize, in 1..=1 << 24;
        /// Numbers of a word.
        width: usize, in 1..;
    }
}

settings! {
    /// A convolution along words; its weight is that of PyTorch's
    /// `Conv2d(1, out, (kernel, channels))`, without the 1.
    pub struct Conv1d {
        /// Channels out.
        out: usize, in 1..;
        /// Neighbouring words of a window.
        kernel: usize, in 1..;
    }
}

settings! {
    /// A convolution; its names and defaults are PyTorch's `Conv2d`.
    #[check(Conv::check_pad)]
    pub struct Conv {
        /// Channels out.
        out: usize, in 1..;
        /// Rows and columns of the kernel.
        kernel: usize, in 1..;
        /// Step in rows and columns between two outputs.
        stride: usize = 1, in 1..;
        /// Rows and columns of zeros around the input; less than `kernel`.
        pad: usize = 0;
        /// Add a bias to every channel; batch normalisation right after makes it useless.
        bias: bool = true;
    }
}

impl Conv {
    fn check_pad(&self) -> Result<(), String> {
        if self.pad < self.kernel {
            Ok(())
        } else {
            let Self { kernel, pad, .. } = self;
            Err(format!(
                "`pad` must be less than `kernel` ({kernel}), got {pad}"
            ))
        }
    }
}

settings! {
    /// Windows of a pooling layer.
    pub struct Window {
        /// Rows and columns of a window.
        kernel: usize, in 1..;
        /// Step in rows and columns between two windows.
        stride: usize, in 1..;
    }
}

settings! {
    /// A residual block.
    pub struct Residual {
        /// The layers whose output is added.
        body: Layers;
        /// The layers between the input and the sum; none for the input itself.
        shortcut: Layers = Layers(vec![]);
    }
}

/// The layers of a block. A separate type, because a schema that contained itself would never end.
#[derive(Clone, Debug, PartialEq)]
pub struct Layers(pub Vec<Layer>);

impl Setting for Layers {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        Vec::read(value, reader).map(Self)
    }
    fn write(&self) -> Value {
        self.0.write()
    }
    fn value_type() -> ValueType {
        ValueType::list(ValueType::Any).described("list of layers")
    }
}
