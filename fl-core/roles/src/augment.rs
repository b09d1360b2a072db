//! [`Augment`]: random changes to training images: pad and crop, flip, cut out.

use crate::{Draws, Inputs, Problem, Result, choices};

choices! {
    /// A random change to a training image. FedKD: `[{crop: 4}, flip, {cutout: 16}]`.
    pub enum Augment {
        /// Adds this many black rows and columns on every side and cuts an image of the old size
        /// out at random.
        Crop(usize) = "crop",
        /// Mirrors left and right with probability 1/2.
        Flip = "flip",
        /// Sets a square of exactly this many rows and columns to the mean, centred anywhere, so
        /// that part of it may lie outside (DeVries and Taylor 2017).
        Cutout(usize) = "cutout",
    }
}

impl Augment {
    /// Checks the size of the change against images of this shape, `[channels, height, width]`.
    ///
    /// # Errors
    /// If it is 0, above the sides of the images, or as large as them and no cutout.
    pub fn fits(&self, shape: &[usize]) -> Result<()> {
        let side = shape.iter().skip(1).copied().min().unwrap_or(0);
        let (name, size, most, limit) = match self {
            Self::Crop(size) => ("crop", *size, side.saturating_sub(1), "below"),
            Self::Cutout(size) => ("cutout", *size, side, "at most"),
            Self::Flip => return Ok(()),
        };
        Problem::shape_unless((1..=most).contains(&size), || {
            format!(
                "augment: `{name}` is {size}, and must be at least 1 and {limit} {side}, the \
                 images' side"
            )
        })
    }
}

/// The changes for images of one shape.
#[derive(Clone, Debug)]
pub struct Augmenter {
    changes: Vec<Augment>,
    shape: [usize; 3],
}

impl Augmenter {
    /// Makes the changes for images of this shape.
    ///
    /// # Errors
    /// If there are changes, but the inputs are no images.
    pub fn new(changes: Vec<Augment>, shape: &[usize]) -> Result<Self> {
        let image = <[usize; 3]>::try_from(shape).ok();
        let text = || {
            format!(
                "augment: needs images [channels, height, width], got inputs of shape {shape:?}"
            )
        };
        Problem::shape_unless(changes.is_empty() || image.is_some(), text)?;
        Ok(Self {
            changes,
            shape: image.unwrap_or_default(),
        })
    }

    /// Returns whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the value of black in each channel of normalised inputs. The published code crops
    /// images before it normalises them, and cuts out after.
    pub fn black(inputs: &Inputs) -> Vec<f32> {
        match inputs {
            Inputs::Bytes { mean, std, .. } => mean.iter().zip(std).map(|(m, s)| -m / s).collect(),
            Inputs::Dense { .. } | Inputs::Sparse { .. } => Vec::new(),
        }
    }

    /// Changes every image of a batch. `black` is the result of [`Augmenter::black`]; 0 for
    /// channels it does not name.
    pub fn apply(&self, batch: &mut [f32], black: &[f32], draws: &mut Draws) {
        let [channels, height, width] = self.shape;
        for image in batch.chunks_exact_mut((channels * height * width).max(1)) {
            for change in &self.changes {
                match change {
                    Augment::Crop(pad) => {
                        let (down, right) = (draws.below(2 * pad + 1), draws.below(2 * pad + 1));
                        for (c, plane) in image.chunks_exact_mut(height * width).enumerate() {
                            let fill = black.get(c).copied().unwrap_or(0.0);
                            shift(
                                plane,
                                [height, width],
                                [down, right].map(|s| s as isize - *pad as isize),
                                fill,
                            );
                        }
                    }
                    Augment::Flip => {
                        if draws.below(2) == 1 {
                            image.chunks_exact_mut(width).for_each(<[f32]>::reverse);
                        }
                    }
                    Augment::Cutout(size) => {
                        let hole = |n: usize, centre: usize| {
                            centre.saturating_sub(size / 2)..(centre + size.div_ceil(2)).min(n)
                        };
                        let (rows, columns) = (
                            hole(height, draws.below(height)),
                            hole(width, draws.below(width)),
                        );
                        for plane in image.chunks_exact_mut(height * width) {
                            for row in plane
                                .chunks_exact_mut(width)
                                .skip(rows.start)
                                .take(rows.len())
                            {
                                row[columns.clone()].fill(0.0);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Sets `plane[y][x] = plane[y + by[0]][x + by[1]]`, or `fill` if that lies outside.
fn shift(plane: &mut [f32], [height, width]: [usize; 2], by: [isize; 2], fill: f32) {
    let old = plane.to_vec();
    for (i, v) in plane.iter_mut().enumerate() {
        let (y, x) = (
            (i / width).checked_add_signed(by[0]),
            (i % width).checked_add_signed(by[1]),
        );
        *v = match (y, x) {
            (Some(y), Some(x)) if y < height && x < width => old[y * width + x],
            _ => fill,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;

    fn run(
        changes: Vec<Augment>,
        shape: [usize; 3],
        batch: &[f32],
        black: &[f32],
        seed: u64,
    ) -> Vec<f32> {
        let mut out = batch.to_vec();
        Augmenter::new(changes, &shape).unwrap().apply(
            &mut out,
            black,
            &mut Stream::root(seed).draws(),
        );
        out
    }

    #[test]
    fn a_crop_moves_the_image_and_fills_with_black() {
        let image: Vec<f32> = (1..=18).map(|i| i as f32).collect();
        let seen: Vec<Vec<f32>> = (0..200)
            .map(|s| run(vec![Augment::Crop(1)], [2, 3, 3], &image, &[-5.0], s))
            .collect();
        assert!(seen.contains(&image), "no shift is one of nine");
        let up_left = [
            5.0, 6.0, -5.0, 8.0, 9.0, -5.0, -5.0, -5.0, -5.0, 14.0, 15.0, 0.0, 17.0, 18.0, 0.0,
            0.0, 0.0, 0.0,
        ];
        assert!(
            seen.iter().any(|s| s[..] == up_left),
            "both channels move together, each with its own black"
        );
        let mut different: Vec<String> = seen.iter().map(|s| format!("{s:?}")).collect();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), 9);
    }

    #[test]
    fn a_flip_is_a_mirror_half_of_the_time() {
        let rows = |s| {
            run(
                vec![Augment::Flip],
                [1, 2, 2],
                &[1.0, 2.0, 3.0, 4.0],
                &[],
                s,
            )
        };
        let flipped = (0..400)
            .filter(|s| rows(*s) == [2.0, 1.0, 4.0, 3.0])
            .count();
        assert!((160..240).contains(&flipped), "{flipped}");
        assert!((0..400).all(|s| rows(s)[0] == 2.0 || rows(s) == [1.0, 2.0, 3.0, 4.0]));
    }

    #[test]
    fn a_hole_is_clipped_at_the_border() {
        let sizes: Vec<usize> = (0..300)
            .map(|s| {
                run(vec![Augment::Cutout(4)], [1, 8, 8], &[1.0; 64], &[], s)
                    .iter()
                    .filter(|v| **v == 0.0)
                    .count()
            })
            .collect();
        assert_eq!(
            (sizes.iter().max(), sizes.iter().min()),
            (Some(&16), Some(&4))
        );
        let odd = |size| {
            let holes =
                (0..300).map(|s| run(vec![Augment::Cutout(size)], [1, 8, 8], &[1.0; 64], &[], s));
            holes
                .map(|image| image.iter().filter(|v| **v == 0.0).count())
                .max()
        };
        assert_eq!((odd(1), odd(3)), (Some(1), Some(9)));
    }

    #[test]
    fn a_change_is_not_empty_and_no_larger_than_the_image() {
        let fits = |change: Augment| change.fits(&[3, 8, 10]).is_ok();
        assert_eq!(
            [0, 1, 7, 8].map(|size| fits(Augment::Crop(size))),
            [false, true, true, false]
        );
        assert_eq!(
            [0, 1, 8, 9].map(|size| fits(Augment::Cutout(size))),
            [false, true, true, false]
        );
        let error = Augment::Cutout(9).fits(&[3, 8, 10]).unwrap_err();
        assert!(error.to_string().contains("at least 1 and at most 8"));
        let error = Augment::Crop(0).fits(&[3, 8, 10]).unwrap_err().to_string();
        assert_eq!(
            error,
            "augment: `crop` is 0, and must be at least 1 and below 8, the images' side"
        );
        assert!(fits(Augment::Flip));
    }

    #[test]
    fn only_images_can_be_changed() {
        assert!(
            Augmenter::new(vec![Augment::Flip], &[12])
                .unwrap_err()
                .to_string()
                .contains("needs images")
        );
        assert!(Augmenter::new(vec![], &[12]).is_ok());
    }

    #[test]
    fn the_same_stream_makes_the_same_images() {
        let all = vec![Augment::Crop(2), Augment::Flip, Augment::Cutout(3)];
        let image: Vec<f32> = (0..200).map(|i| i as f32).collect();
        let once = |seed| run(all.clone(), [1, 10, 10], &image, &[], seed);
        assert_eq!(once(3), once(3));
        assert_ne!(once(3), once(4));
    }
}
