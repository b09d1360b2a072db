//! [`Images`]: target images for models that make images.

use super::TaskKind;
use crate::{Problem, Result};
use ndarray::{Array2, ArrayView2, Axis};

/// Target images: a value is `byte / 255`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Images {
    shape: [usize; 3],
    of: Array2<u8>,
}

impl Images {
    /// Wraps images of this shape (channels, height, width): `of` has one in each row, channel by
    /// channel, row by row.
    ///
    /// # Errors
    /// If a row does not have `channels * height * width` bytes, or these are none.
    pub fn new(shape: [usize; 3], of: Array2<u8>) -> Result<Self> {
        let [channels, height, width] = shape;
        let due = channels * height * width;
        Problem::shape_unless(of.ncols() == due && due > 0, || {
            format!(
                "rows of {} values for images of {channels}x{height}x{width}; {due} were due",
                of.ncols()
            )
        })?;
        Ok(Self { shape, of })
    }

    /// Returns channels, height, width.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Returns their bytes: `images x (channels * height * width)`.
    pub fn of(&self) -> ArrayView2<'_, u8> {
        self.of.view()
    }

    /// Returns their values, from 0 to 1.
    pub fn values(&self) -> Array2<f32> {
        self.of.mapv(|byte| f32::from(byte) / 255.0)
    }

    /// Returns the task of a model that makes them.
    pub fn task(&self) -> TaskKind {
        let [channels, height, width] = self.shape;
        TaskKind::Image {
            channels,
            height,
            width,
        }
    }

    /// Returns the images at these positions.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            of: self.of.select(Axis(0), rows),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn exact_bytes_are_values_of_0_to_1() {
        let images = Images::new([1, 1, 2], array![[0, 255], [51, 102]]).unwrap();
        assert_eq!(images.values(), array![[0.0, 1.0], [0.2, 0.4]]);
        assert_eq!(images.select(&[1]).of(), array![[51, 102]]);
        assert_eq!(images.task().to_string(), "images of 1x1x2 values");
        let refused = Images::new([3, 1, 2], array![[0, 255]]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "rows of 2 values for images of 3x1x2; 6 were due"
        );
    }
}
