//! Images in one file and their labels in another, as MNIST and its relatives have them.

use anyhow::{Result, ensure};
use fl_core::Labels;
use fl_data_kit::dataset::Part;
use fl_data_kit::format::{self, idx};
use fl_data_kit::{Download, Folder, Rows};

/// Shape of the images of MNIST and its relatives.
pub const GREY: [usize; 3] = [1, 28, 28];

/// The files of MNIST and Fashion-MNIST.
pub const MNIST_FILES: &[&[&str]] = &[
    &["train-images-idx3-ubyte"],
    &["train-labels-idx1-ubyte"],
    &["t10k-images-idx3-ubyte"],
    &["t10k-labels-idx1-ubyte"],
];

/// The files of MNIST in a folder, or those of Fashion-MNIST, which have the same sizes.
pub const fn downloads(folder: &'static str, sha256: [&'static str; 4]) -> [Download; 4] {
    const FILES: [(&str, u64); 4] = [
        ("train-images-idx3-ubyte.gz", 47_040_016),
        ("train-labels-idx1-ubyte.gz", 60_008),
        ("t10k-images-idx3-ubyte.gz", 7_840_016),
        ("t10k-labels-idx1-ubyte.gz", 10_008),
    ];
    const fn of(folder: &'static str, at: usize, sha256: &'static str) -> Download {
        let (file, bytes) = FILES[at];
        Download {
            folder,
            file,
            bytes,
            sha256,
        }
    }
    let [a, b, c, d] = sha256;
    [
        of(folder, 0, a),
        of(folder, 1, b),
        of(folder, 2, c),
        of(folder, 3, d),
    ]
}

/// Reads the images and labels of two parts: those to learn from, and those to test with.
pub fn rows(folder: &Folder<'_>, [train, test]: [&str; 2], classes: usize) -> Result<Rows> {
    let (train, test) = (
        images(folder, train, classes)?,
        images(folder, test, classes)?,
    );
    Ok(Rows::new(train, test))
}

/// Images and labels in two IDX files of equally many rows.
pub fn images(folder: &Folder<'_>, part: &str, classes: usize) -> Result<Part> {
    let names = [
        format!("{part}-images-idx3-ubyte"),
        format!("{part}-labels-idx1-ubyte"),
    ];
    let images = folder.read(&names[0], idx::images)?;
    let of = folder.read(&names[1], |bytes| idx::labels(bytes, classes))?;
    let (shape, rows) = (
        [1, images.height, images.width],
        images.data.len() / (images.height * images.width),
    );
    ensure!(
        rows == of.len(),
        "data set `{}`: {} holds {rows} images, but {} holds {} labels",
        folder.set(),
        names[0],
        names[1],
        of.len()
    );
    Ok((
        format::images(shape, images.data),
        Labels::Classes { of, classes },
    ))
}
