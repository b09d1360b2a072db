//! What several published sets are read with.

use crate::folder::Folder;
use crate::format::{cifar, idx, libsvm};
use crate::set::Part;
use anyhow::{Result, ensure};
use fl_core::{Inputs, Labels, Task, TaskKind};

/// Shape of the images of MNIST and its relatives.
pub const GREY: [usize; 3] = [1, 28, 28];

/// The files of MNIST and Fashion-MNIST.
pub const MNIST_FILES: &[&[&str]] = &[
    &["train-images-idx3-ubyte"],
    &["train-labels-idx1-ubyte"],
    &["t10k-images-idx3-ubyte"],
    &["t10k-labels-idx1-ubyte"],
];

/// Terms of Adult.
pub const ADULT_LICENCE: &str = "CC BY 4.0 (Becker, Kohavi 1996)";

pub fn task(shape: &[usize], classes: usize) -> Option<Task> {
    Some(Task {
        input: shape.to_vec(),
        kind: TaskKind::Classes(classes),
    })
}

pub fn classes(of: Vec<u32>, classes: usize) -> Labels {
    Labels::Classes { of, classes }
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
    Ok((bytes(shape, images.data), self::classes(of, classes)))
}

/// Images on the scale 0 to 1.
pub fn bytes(shape: [usize; 3], data: Vec<u8>) -> Inputs {
    Inputs::Bytes {
        shape,
        data,
        mean: vec![0.0; shape[0]],
        std: vec![1.0; shape[0]],
    }
}

/// The records of several batch files.
pub fn cifar(
    folder: &Folder<'_>,
    files: &[&[&str]],
    label_bytes: usize,
    classes: usize,
) -> Result<Part> {
    let (mut data, mut of) = (vec![], vec![]);
    for names in files {
        folder.read(names[0], |bytes| {
            cifar::append(&bytes, label_bytes, classes, &mut data, &mut of)
        })?;
    }
    Ok((bytes(cifar::SHAPE, data), self::classes(of, classes)))
}

/// A two-class file whose rows are mostly 0.
pub fn sparse(rows: libsvm::Rows, width: usize) -> Inputs {
    let libsvm::Rows {
        starts,
        columns,
        values,
        ..
    } = rows;
    Inputs::Sparse {
        width,
        starts,
        columns,
        values,
    }
}

/// As numbers, zeros and all.
pub fn dense(rows: &libsvm::Rows, width: usize) -> Inputs {
    let mut data = vec![0.0; (rows.starts.len() - 1) * width];
    for (out, ends) in data.chunks_mut(width).zip(rows.starts.windows(2)) {
        for at in ends[0]..ends[1] {
            out[rows.columns[at] as usize] = rows.values[at];
        }
    }
    Inputs::Dense {
        shape: vec![width],
        data,
    }
}
