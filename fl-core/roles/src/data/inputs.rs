//! [`Inputs`] and [`Labels`]: the content of a data set in compact form.

use super::{Images, Masks, Numbers, TaskKind};
use ndarray::{Array2, Axis};

/// The inputs of a data set in their compact form; a batch is converted to `f32` when it is drawn.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Inputs {
    /// Images: `rows x channels x height x width` bytes. A value is
    /// `(byte / 255 - mean[c]) / std[c]`.
    Bytes {
        /// Channels, height, width.
        shape: [usize; 3],
        /// All rows, one after the other.
        data: Vec<u8>,
        /// Mean of each channel, on the scale 0 to 1.
        mean: Vec<f32>,
        /// Standard deviation of each channel, on the scale 0 to 1.
        std: Vec<f32>,
    },
    /// Numbers: `rows x product(shape)`.
    Dense {
        /// Shape of one row.
        shape: Vec<usize>,
        /// All rows, one after the other.
        data: Vec<f32>,
    },
    /// Rows whose values are mostly 0 (compressed sparse rows).
    Sparse {
        /// Values in a row.
        width: usize,
        /// Row `i` is `columns[starts[i]..starts[i + 1]]`; its length is the number of rows plus 1.
        starts: Vec<usize>,
        /// Ascending within a row.
        columns: Vec<u32>,
        /// The value of each entry in `columns`.
        values: Vec<f32>,
    },
}

impl Inputs {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes { data, .. } => data.len() / self.width().max(1),
            Self::Dense { data, .. } => data.len() / self.width().max(1),
            Self::Sparse { starts, .. } => starts.len() - 1,
        }
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the shape of one row: `[channels, height, width]` for images.
    pub fn shape(&self) -> Vec<usize> {
        match self {
            Self::Bytes { shape, .. } => shape.to_vec(),
            Self::Dense { shape, .. } => shape.clone(),
            Self::Sparse { width, .. } => vec![*width],
        }
    }

    /// Returns the number of values in one row.
    pub fn width(&self) -> usize {
        match self {
            Self::Bytes { shape, .. } => shape.iter().product(),
            Self::Dense { shape, .. } => shape.iter().product(),
            Self::Sparse { width, .. } => *width,
        }
    }

    /// Whether its lists have the required lengths, for inputs that a library or a node has made.
    #[doc(hidden)]
    pub fn is_sound(&self) -> bool {
        let width = match self {
            Self::Bytes { shape, .. } => shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)),
            Self::Dense { shape, .. } => shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)),
            Self::Sparse { width, .. } => Some(*width),
        };
        let Some(width) = width else { return false };
        match self {
            Self::Bytes {
                shape,
                data,
                mean,
                std,
            } => {
                let channels = mean.len() == shape[0] && std.len() == shape[0];
                channels && data.len().is_multiple_of(width.max(1))
            }
            Self::Dense { data, .. } => data.len().is_multiple_of(width.max(1)),
            Self::Sparse {
                starts,
                columns,
                values,
                ..
            } => {
                starts.first() == Some(&0)
                    && starts.is_sorted()
                    && starts.last() == Some(&columns.len())
                    && columns.len() == values.len()
                    && columns.iter().all(|c| (*c as usize) < width)
            }
        }
    }

    /// Returns these rows alone, in this order.
    pub fn select(&self, rows: &[usize]) -> Self {
        let width = self.width();
        let all = |row: &usize| row * width..(row + 1) * width;
        match self {
            Self::Bytes {
                shape,
                data,
                mean,
                std,
            } => Self::Bytes {
                shape: *shape,
                data: rows
                    .iter()
                    .map(|row| &data[all(row)])
                    .collect::<Vec<_>>()
                    .concat(),
                mean: mean.clone(),
                std: std.clone(),
            },
            Self::Dense { shape, data } => Self::Dense {
                shape: shape.clone(),
                data: rows
                    .iter()
                    .map(|row| &data[all(row)])
                    .collect::<Vec<_>>()
                    .concat(),
            },
            Self::Sparse {
                width,
                starts,
                columns,
                values,
            } => {
                let mut own = (vec![0], Vec::new(), Vec::new());
                for row in rows {
                    let range = starts[*row]..starts[row + 1];
                    own.1.extend_from_slice(&columns[range.clone()]);
                    own.2.extend_from_slice(&values[range]);
                    own.0.push(own.1.len());
                }
                let (starts, columns, values) = own;
                Self::Sparse {
                    width: *width,
                    starts,
                    columns,
                    values,
                }
            }
        }
    }

    /// Loads some sparse rows into the caches; does nothing for other inputs. The rows of a sample
    /// are far apart in memory. Here loads do not wait for each other, as they do while a row is
    /// written.
    pub fn preload(&self, rows: impl Iterator<Item = usize>) {
        let Self::Sparse {
            starts,
            columns,
            values,
            ..
        } = self
        else {
            return;
        };
        let mut read = 0;
        for row in rows {
            // a row seldom has more than two cache lines
            let (first, end) = (starts[row], starts[row + 1]);
            if first < end {
                read ^= columns[first] ^ columns[end - 1];
                read ^= values[first].to_bits() ^ values[end - 1].to_bits();
            }
        }
        std::hint::black_box(read);
    }

    /// Writes row `row` as `f32` into `out`, which is [`Inputs::width`] long.
    pub fn write_row(&self, row: usize, out: &mut [f32]) {
        let width = self.width();
        match self {
            Self::Bytes {
                shape,
                data,
                mean,
                std,
            } => {
                let plane = shape[1] * shape[2];
                let bytes = &data[row * width..(row + 1) * width];
                for (c, (out, bytes)) in out.chunks_mut(plane).zip(bytes.chunks(plane)).enumerate()
                {
                    let (factor, shift) = (1.0 / (255.0 * std[c]), mean[c] / std[c]);
                    for (o, b) in out.iter_mut().zip(bytes) {
                        *o = f32::from(*b) * factor - shift;
                    }
                }
            }
            Self::Dense { data, .. } => out.copy_from_slice(&data[row * width..(row + 1) * width]),
            Self::Sparse {
                starts,
                columns,
                values,
                ..
            } => {
                out.fill(0.0);
                let range = starts[row]..starts[row + 1];
                for (c, v) in columns[range.clone()].iter().zip(&values[range]) {
                    out[*c as usize] = *v;
                }
            }
        }
    }
}

/// The labels of the rows of a data set.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Labels {
    /// One class per row.
    Classes {
        /// The class of each row, below `classes`.
        of: Vec<u32>,
        /// Number of classes.
        classes: usize,
    },
    /// Several yes/no labels per row: 1 yes, 0 no, -1 unknown; `rows x labels`.
    Multi(Array2<i8>),
    /// A class for every pixel of an image.
    Pixels(Masks),
    /// A target image for each row.
    Images(Images),
    /// Numbers to predict.
    Numbers(Numbers),
}

impl Labels {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Classes { of, .. } => of.len(),
            Self::Multi(of) => of.nrows(),
            Self::Pixels(of) => of.of().nrows(),
            Self::Images(of) => of.of().nrows(),
            Self::Numbers(of) => of.of().nrows(),
        }
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of classes or labels; 1 for images and numbers, which have none.
    pub fn classes(&self) -> usize {
        match self {
            Self::Classes { classes, .. } => *classes,
            Self::Multi(of) => of.ncols(),
            Self::Pixels(of) => of.classes(),
            Self::Images(_) | Self::Numbers(_) => 1,
        }
    }

    /// Returns the labels of these rows.
    pub fn select(&self, rows: &[usize]) -> Self {
        match self {
            Self::Classes { of, classes } => Self::Classes {
                of: rows.iter().map(|row| of[*row]).collect(),
                classes: *classes,
            },
            Self::Multi(of) => Self::Multi(of.select(Axis(0), rows)),
            Self::Pixels(of) => Self::Pixels(of.select(rows)),
            Self::Images(of) => Self::Images(of.select(rows)),
            Self::Numbers(of) => Self::Numbers(of.select(rows)),
        }
    }

    /// Returns the task of a model that predicts them.
    pub fn task(&self) -> TaskKind {
        match self {
            Self::Classes { classes, .. } => TaskKind::Classes(*classes),
            Self::Multi(of) => TaskKind::MultiLabel(of.ncols()),
            Self::Pixels(of) => of.task(),
            Self::Images(of) => of.task(),
            Self::Numbers(of) => of.task(),
        }
    }
}
