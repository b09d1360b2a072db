//! Two masks of one shape: the truth and the prediction.

use anyhow::{Result, ensure};
use ndarray::{Array2, ArrayView1, ArrayView2};

/// Counts of pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// In both masks.
    pub both: usize,
    /// In the truth only.
    pub missed: usize,
    /// In the prediction only.
    pub added: usize,
    /// In neither.
    pub neither: usize,
}

impl Overlap {
    /// Counts the pixels.
    ///
    /// # Errors
    /// If the masks have different shapes.
    pub fn of(truth: ArrayView2<'_, bool>, prediction: ArrayView2<'_, bool>) -> Result<Self> {
        alike(truth, prediction)?;
        let mut all = Self::default();
        for (truth, predicted) in truth.iter().zip(prediction) {
            *match (truth, predicted) {
                (true, true) => &mut all.both,
                (true, false) => &mut all.missed,
                (false, true) => &mut all.added,
                (false, false) => &mut all.neither,
            } += 1;
        }
        Ok(all)
    }

    /// `2 both / (2 both + missed + added)`; 1 for two empty masks.
    pub fn dice(&self) -> f64 {
        share(2 * self.both, self.missed + self.added).unwrap_or(1.0)
    }

    /// Intersection over union; 1 for two empty masks.
    pub fn iou(&self) -> f64 {
        share(self.both, self.missed + self.added).unwrap_or(1.0)
    }

    /// The share of the truth that the prediction covers; `None` if the truth is empty.
    pub fn sensitivity(&self) -> Option<f64> {
        share(self.both, self.missed)
    }

    /// The share of the pixels outside the truth that the prediction leaves out; `None` if there
    /// are none.
    pub fn specificity(&self) -> Option<f64> {
        share(self.neither, self.added)
    }
}

/// `n / (n + others)`.
fn share(n: usize, others: usize) -> Option<f64> {
    (n + others > 0).then(|| n as f64 / (n + others) as f64)
}

fn alike<T, U>(one: ArrayView2<'_, T>, other: ArrayView2<'_, U>) -> Result<()> {
    ensure!(
        one.dim() == other.dim(),
        "two pictures of {:?} and {:?} pixels",
        one.dim(),
        other.dim()
    );
    Ok(())
}

/// The pixels whose distances count, and how the two directions are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// The larger of the two directions' quantiles over the pixels of the boundaries.
    Larger,
    /// The quantile over the boundary distances of both directions together (MedPy).
    Pooled,
    /// As [`Directions::Larger`], over all pixels of the masks.
    LargerOfAllPixels,
}

/// The `quantile` of the distances between two masks in pixels: 1 is the Hausdorff distance, 0.95
/// is HD95. Between ranks it is interpolated. A boundary pixel has a neighbour (of four) outside
/// the mask; pixels outside the picture count as outside the mask. 0 for two empty masks, `None` if
/// one is empty.
///
/// # Errors
/// If the masks have different shapes.
pub fn hausdorff(
    truth: ArrayView2<'_, bool>,
    prediction: ArrayView2<'_, bool>,
    quantile: f64,
    directions: Directions,
) -> Result<Option<f64>> {
    alike(truth, prediction)?;
    let of = |mask: ArrayView2<'_, bool>| match directions {
        Directions::LargerOfAllPixels => mask.to_owned(),
        Directions::Larger | Directions::Pooled => boundary(mask),
    };
    let (a, b) = (of(truth), of(prediction));
    let some = |mask: &Array2<bool>| mask.iter().any(|x| *x);
    match (some(&a), some(&b)) {
        (false, false) => return Ok(Some(0.0)),
        (true, true) => {}
        _ => return Ok(None),
    }
    let (mut there, mut back) = (directed(&a, &b), directed(&b, &a));
    Ok(Some(match directions {
        Directions::Pooled => {
            there.append(&mut back);
            quantile_of(there, quantile)
        }
        _ => quantile_of(there, quantile).max(quantile_of(back, quantile)),
    }))
}

fn boundary(mask: ArrayView2<'_, bool>) -> Array2<bool> {
    let (rows, columns) = mask.dim();
    Array2::from_shape_fn((rows, columns), |(r, c)| {
        let inside = |r: usize, c: usize| mask.get((r, c)).copied().unwrap_or(false);
        // 0 - 1 wraps to an index outside every picture
        let around = [
            (r.wrapping_sub(1), c),
            (r + 1, c),
            (r, c.wrapping_sub(1)),
            (r, c + 1),
        ];
        mask[(r, c)] && !around.into_iter().all(|(r, c)| inside(r, c))
    })
}

/// Returns the distance from each pixel of `from` to the nearest of `to`.
fn directed(from: &Array2<bool>, to: &Array2<bool>) -> Vec<f64> {
    let squares = squared_distances(to.view());
    let inside = from.iter().zip(&squares).filter(|(inside, _)| **inside);
    inside.map(|(_, square)| square.sqrt()).collect()
}

/// Returns the squared distance from each pixel to the nearest of the mask, in time linear in the
/// pixels (Felzenszwalb and Huttenlocher 2012). Infinite if the mask is empty.
pub fn squared_distances(mask: ArrayView2<'_, bool>) -> Array2<f64> {
    let mut all = mask.mapv(|inside| if inside { 0.0 } else { f64::INFINITY });
    for mut column in all.columns_mut() {
        let nearest = along(column.view());
        column.iter_mut().zip(nearest).for_each(|(x, d)| *x = d);
    }
    for mut row in all.rows_mut() {
        let nearest = along(row.view());
        row.iter_mut().zip(nearest).for_each(|(x, d)| *x = d);
    }
    all
}

/// `min over q of (p - q)^2 + f(q)` for every `p`: the lower envelope of parabolas.
fn along(f: ArrayView1<'_, f64>) -> Vec<f64> {
    // the parabolas of the envelope, and the position from which each is the lowest
    let mut envelope: Vec<(usize, f64)> = Vec::new();
    for (q, height) in f.iter().enumerate().filter(|(_, h)| h.is_finite()) {
        let from = loop {
            let Some((below, from)) = envelope.last() else {
                break f64::NEG_INFINITY;
            };
            let (p, q) = (*below as f64, q as f64);
            let meet = ((height + q * q) - (f[*below] + p * p)) / (2.0 * (q - p));
            if meet > *from {
                break meet;
            }
            envelope.pop();
        };
        envelope.push((q, from));
    }
    if envelope.is_empty() {
        return vec![f64::INFINITY; f.len()];
    }
    let mut at = 0;
    let nearest = (0..f.len()).map(|p| {
        while envelope
            .get(at + 1)
            .is_some_and(|(_, from)| *from < p as f64)
        {
            at += 1;
        }
        let q = envelope[at].0;
        (p as f64 - q as f64).powi(2) + f[q]
    });
    nearest.collect()
}

/// Returns a quantile, interpolated between ranks, of at least one value.
fn quantile_of(mut values: Vec<f64>, quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = quantile.clamp(0.0, 1.0) * (values.len() - 1) as f64;
    let (low, high) = (rank.floor() as usize, rank.ceil() as usize);
    values[low] + (values[high] - values[low]) * (rank - low as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_a_search_over_all_pixels() {
        // a mask without a pattern
        let mask = Array2::from_shape_fn((17, 23), |(r, c)| (r * 31 + c * 17 + r * c) % 29 == 0);
        let points: Vec<_> = mask.indexed_iter().filter(|(_, x)| **x).collect();
        for ((r, c), found) in squared_distances(mask.view()).indexed_iter() {
            let square = |((y, x), _): &((usize, usize), &bool)| {
                (*y as f64 - r as f64).powi(2) + (*x as f64 - c as f64).powi(2)
            };
            let due = points.iter().map(square).fold(f64::INFINITY, f64::min);
            assert_eq!(*found, due, "at {r}, {c}");
        }
        let nothing = squared_distances(Array2::from_elem((2, 3), false).view());
        assert!(nothing.iter().all(|d| d.is_infinite()));
    }

    #[test]
    fn pictures_of_two_shapes_are_refused() {
        let (a, b) = (
            Array2::from_elem((2, 3), true),
            Array2::from_elem((3, 2), true),
        );
        let refused = Overlap::of(a.view(), b.view()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "two pictures of (2, 3) and (3, 2) pixels"
        );
        assert!(hausdorff(a.view(), b.view(), 1.0, Directions::Larger).is_err());
    }
}
