//! Images in one file and their labels in another, as MNIST and its relatives have them.

use anyhow::{Result, ensure};
use fl_core::Labels;
use fl_data_kit::dataset::Part;
use fl_data_kit::format::{self, idx};
use fl_data_kit::{Folder, Rows};

/// Shape of the images of MNIST and its relatives.
pub const GREY: [usize; 3] = [1, 28, 28];

/// The files of MNIST and Fashion-MNIST.
pub const MNIST_FILES: &[&[&str]] = &[
    &["train-images-idx3-ubyte"],
    &["train-labels-idx1-ubyte"],
    &["t10k-images-idx3-ubyte"],
    &["t10k-labels-idx1-ubyte"],
];

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
