//! What is known about each set before any file is opened.

/// A set that can be named in a spec.
#[derive(Debug)]
pub struct Known {
    /// Its name in a spec.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Classes (or findings) with default settings.
    pub classes: usize,
    /// Shape of an input with default settings, `[channels, height, width]` or `[width]`.
    pub shape: &'static [usize],
    /// Its folder in the data directory; empty for a set that the program makes itself.
    pub folder: &'static str,
    /// The files it is read from. Each is looked for under any of its names, plain, `.gz` or `.xz`; the first name
    /// is the one the set was published with.
    pub files: &'static [&'static [&'static str]],
    /// Where it comes from and what to search for.
    pub source: &'static str,
    /// Terms of use, as known.
    pub licence: &'static str,
    /// Mean and standard deviation of each channel, the training images', for sets of images.
    pub statistics: Option<(&'static [f32], &'static [f32])>,
}

use crate::format::cifar;
use crate::made::{findings, glyphs};

const GREY: [usize; 3] = [1, 28, 28];

const MNIST_FILES: &[&[&str]] = &[
    &["train-images-idx3-ubyte"],
    &["train-labels-idx1-ubyte"],
    &["t10k-images-idx3-ubyte"],
    &["t10k-labels-idx1-ubyte"],
];
const MADE: &str = "made by this program";
const ADULT: &str = "CC BY 4.0 (Becker, Kohavi 1996)";

/// All known sets.
pub static KNOWN: [Known; 13] = [
    Known {
        name: "mnist",
        about: "handwritten digits, 28 x 28 grey",
        classes: 10,
        shape: &GREY,
        folder: "mnist",
        files: MNIST_FILES,
        source: "MNIST (LeCun, Cortes, Burges)",
        licence: "CC BY-SA 3.0",
        statistics: Some((&[0.1307], &[0.3081])),
    },
    Known {
        name: "fashion-mnist",
        about: "articles of clothing, 28 x 28 grey",
        classes: 10,
        shape: &GREY,
        folder: "fashion-mnist",
        files: MNIST_FILES,
        source: "Fashion-MNIST, github.com/zalandoresearch/fashion-mnist",
        licence: "MIT (Zalando SE)",
        statistics: Some((&[0.2860], &[0.3530])),
    },
    Known {
        name: "cifar10",
        about: "ten kinds of things, 32 x 32 in colour",
        classes: 10,
        shape: &cifar::SHAPE,
        folder: "cifar10",
        files: &[
            &["data_batch_1.bin"],
            &["data_batch_2.bin"],
            &["data_batch_3.bin"],
            &["data_batch_4.bin"],
            &["data_batch_5.bin"],
            &["test_batch.bin"],
        ],
        source: "CIFAR-10 binary version, cs.toronto.edu/~kriz/cifar.html (Krizhevsky 2009)",
        licence: "free use with citation",
        statistics: Some((&[0.4913, 0.4821, 0.4465], &[0.2452, 0.2428, 0.2606])),
    },
    Known {
        name: "cifar100",
        about: "a hundred kinds of things, 32 x 32 in colour",
        classes: 100,
        shape: &cifar::SHAPE,
        folder: "cifar100",
        files: &[&["train.bin"], &["test.bin"]],
        source: "CIFAR-100 binary version, cs.toronto.edu/~kriz/cifar.html (Krizhevsky 2009)",
        licence: "free use with citation",
        statistics: Some((&[0.5071, 0.4865, 0.4409], &[0.2673, 0.2564, 0.2762])),
    },
    Known {
        name: "pneumoniamnist",
        about: "chest X-rays, normal or pneumonia, 28 x 28 grey",
        classes: 2,
        shape: &GREY,
        folder: "pneumoniamnist",
        files: &[
            &["train-images-idx3-ubyte"],
            &["train-labels-idx1-ubyte"],
            &["val-images-idx3-ubyte"],
            &["val-labels-idx1-ubyte"],
            &["test-images-idx3-ubyte"],
            &["test-labels-idx1-ubyte"],
        ],
        source: "PneumoniaMNIST of MedMNIST v2, medmnist.com, its arrays written as IDX",
        licence: "CC BY 4.0 (Yang et al. 2023; Kermany et al. 2018)",
        statistics: Some((&[0.5], &[0.5])),
    },
    Known {
        name: "adult",
        about: "census rows, income above 50,000 or not, 123 yes/no features",
        classes: 2,
        shape: &[123],
        folder: "adult",
        files: &[&["a9a"], &["a9a.t"]],
        source: "a9a of the LIBSVM data sets, csie.ntu.edu.tw/~cjlin/libsvmtools/datasets",
        licence: ADULT,
        statistics: None,
    },
    Known {
        name: "adult-raw",
        about: "census rows, income above 50,000 or not, numbers and categories",
        classes: 2,
        shape: &[105],
        folder: "adult",
        files: &[&["adult.data"], &["adult.test"]],
        source: "Adult, UCI Machine Learning Repository",
        licence: ADULT,
        statistics: None,
    },
    Known {
        name: "cod-rna",
        about: "pairs of RNA sequences, non-coding or not, 8 numbers",
        classes: 2,
        shape: &[8],
        folder: "cod-rna",
        files: &[&["cod-rna"], &["cod-rna.t"]],
        source: "cod-rna of the LIBSVM data sets, csie.ntu.edu.tw/~cjlin/libsvmtools/datasets",
        licence: "none stated; cite Uzilov, Keegan, Mathews 2006",
        statistics: None,
    },
    Known {
        name: "ag-news",
        about: "news in four topics, hashed words",
        classes: 4,
        shape: &[2048],
        folder: "agnews",
        files: &[&["train.csv", "train-subset.csv"], &["test.csv"]],
        source: "AG News topic classification (Zhang, Zhao, LeCun 2015)",
        licence: "research and other non-commercial use",
        statistics: None,
    },
    Known {
        name: "sst2",
        about: "sentences of film reviews, against or for, hashed words",
        classes: 2,
        shape: &[2048],
        folder: "sst2",
        files: &[&["train.tsv"], &["dev.tsv"]],
        source: "SST-2 as in GLUE (Socher et al. 2013); its dev part is the test set here",
        licence: "none stated; research use",
        statistics: None,
    },
    Known {
        name: "blobs",
        about: "a cloud of points per class",
        classes: 4,
        shape: &[8],
        folder: "",
        files: &[],
        source: MADE,
        licence: "",
        statistics: None,
    },
    Known {
        name: "glyphs",
        about: "ten hand-drawn glyphs, 28 x 28 grey",
        classes: glyphs::CLASSES,
        shape: &GREY,
        folder: "",
        files: &[],
        source: MADE,
        licence: "",
        statistics: Some((&[glyphs::STATISTICS.0], &[glyphs::STATISTICS.1])),
    },
    Known {
        name: "findings",
        about: "glyphs of which several may be present at once, 28 x 28 grey, multi-label",
        classes: 5,
        shape: &GREY,
        folder: "",
        files: &[],
        source: MADE,
        licence: "",
        statistics: Some((&[findings::STATISTICS.0], &[findings::STATISTICS.1])),
    },
];
