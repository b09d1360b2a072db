//! [`Masks`]: the class of every pixel of an image.

use super::TaskKind;
use crate::{Problem, Result};
use ndarray::{Array2, ArrayView2, Axis};

/// The class of every pixel of images, and the object that it belongs to if that is known.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Masks {
    classes: usize,
    height: usize,
    width: usize,
    of: Array2<u8>,
    objects: Option<Array2<u16>>,
}

impl Masks {
    /// Wraps masks of `height x width` pixels: `of` has an image in each row, pixel by pixel, row
    /// by row. So has `objects`, the number of each pixel's object (0: none). Class 0 is the
    /// background.
    ///
    /// # Errors
    /// If a class is not below `classes`, there are fewer than 2 or more than 256 of these, or a
    /// row does not have `height * width` pixels.
    pub fn new(
        classes: usize,
        (height, width): (usize, usize),
        of: Array2<u8>,
        objects: Option<Array2<u16>>,
    ) -> Result<Self> {
        Problem::shape_unless((2..=256).contains(&classes), || {
            format!("masks of {classes} classes; there must be 2 to 256")
        })?;
        let due = (of.nrows(), height * width);
        let shapes = [Some(of.dim()), objects.as_ref().map(Array2::dim)];
        if let Some(found) = shapes.into_iter().flatten().find(|found| *found != due) {
            return Err(Problem::Shape(format!(
                "a table of {found:?} for masks of {height}x{width} pixels; {due:?} was due"
            ))
            .into());
        }
        if let Some(((row, _), wrong)) =
            of.indexed_iter().find(|(_, c)| usize::from(**c) >= classes)
        {
            return Err(Problem::Shape(format!(
                "mask {row} has a pixel of class {wrong}, and there are {classes} classes, from 0"
            ))
            .into());
        }
        Ok(Self {
            classes,
            height,
            width,
            of,
            objects,
        })
    }

    /// Returns the number of classes, including the background.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Returns the rows and columns of a mask.
    pub fn size(&self) -> (usize, usize) {
        (self.height, self.width)
    }

    /// Returns the class of every pixel: `images x (height * width)`.
    pub fn of(&self) -> ArrayView2<'_, u8> {
        self.of.view()
    }

    /// Returns the object of every pixel, as [`Masks::of`], 0 for none; `None` if objects are
    /// unknown.
    pub fn objects(&self) -> Option<ArrayView2<'_, u16>> {
        self.objects.as_ref().map(|objects| objects.view())
    }

    /// Returns the task of a model for them.
    pub fn task(&self) -> TaskKind {
        TaskKind::Pixels {
            classes: self.classes,
            height: self.height,
            width: self.width,
        }
    }

    /// Returns the masks at these positions.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            of: self.of.select(Axis(0), rows),
            objects: self.objects.as_ref().map(|o| o.select(Axis(0), rows)),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn masks_that_are_none_are_refused() {
        let said = |classes, size, of, objects| {
            let refused = Masks::new(classes, size, of, objects).unwrap_err();
            refused.to_string()
        };
        assert_eq!(
            said(2, (1, 2), array![[0, 1], [2, 0]], None),
            "mask 1 has a pixel of class 2, and there are 2 classes, from 0"
        );
        assert!(said(1, (1, 1), array![[0]], None).contains("2 to 256"));
        assert_eq!(
            said(2, (2, 2), array![[0, 1]], None),
            "a table of (1, 2) for masks of 2x2 pixels; (1, 4) was due"
        );
        let objects = Some(array![[0u16]]);
        assert!(said(2, (1, 2), array![[0, 1]], objects).contains("(1, 1)"));
    }
}
