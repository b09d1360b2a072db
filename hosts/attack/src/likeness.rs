//! [`Likeness`]: similarity of reconstructed and private inputs.

use anyhow::Result;
use fl_core::{Examples, Inputs};
use fl_plugin_dense_prediction::images::{Window, mse, ssim};
use ndarray::{Array2, ArrayView1, ArrayView2, Axis};
use serde::Serialize;

/// Numbers with a smaller squared error count as equal: 120 dB.
const SAME: f64 = 1e-12;

/// Similarity of each private input and the nearest reconstruction.
#[derive(Clone, Debug, Serialize)]
pub struct Likeness {
    /// Peak signal-to-noise ratio in dB, of numbers in units of their range; at most 120.
    pub psnr: Vec<f64>,
    /// Structural similarity (7 x 7, all pixels weighted equally), averaged over channels; `None`
    /// if inputs are no images of that size.
    pub ssim: Option<Vec<f64>>,
    /// The index of the nearest reconstruction.
    #[serde(skip)]
    pub nearest: Vec<usize>,
}

impl Likeness {
    /// Returns the mean over all, in dB.
    pub fn mean_psnr(&self) -> f64 {
        mean(&self.psnr)
    }

    /// Formats the mean over all; `-` if there is none.
    pub fn mean_ssim(&self) -> String {
        let all = self.ssim.as_ref();
        all.map_or("-".into(), |all| format!("{:.3}", mean(all)))
    }

    /// Returns the largest, in dB.
    pub fn most_psnr(&self) -> f64 {
        self.psnr.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Appends further results.
    pub fn join(&mut self, more: Self) {
        self.psnr.extend(more.psnr);
        self.nearest.extend(more.nearest);
        if let (Some(all), Some(more)) = (&mut self.ssim, more.ssim) {
            all.extend(more);
        }
    }
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

/// Compares each of the `private` inputs with the reconstruction in `found` of least squared error,
/// as an attacker could show who recognises a good picture. `range` is that of each number.
///
/// # Errors
/// If there is nothing to compare.
pub fn likeness(
    private: &Array2<f32>,
    found: &Array2<f32>,
    shape: &[usize],
    range: &[(f32, f32)],
) -> Result<Likeness> {
    let unit = |row: ArrayView1<'_, f32>| -> Array2<f64> {
        let each = row.iter().zip(range);
        let each =
            each.map(|(x, (low, high))| f64::from(x - low) / f64::from(high - low).max(1e-12));
        Array2::from_shape_fn((1, row.len()), {
            let all: Vec<f64> = each.collect();
            move |(_, at)| all[at]
        })
    };
    let found: Vec<Array2<f64>> = found.rows().into_iter().map(unit).collect();
    let mut all = Likeness {
        psnr: Vec::new(),
        ssim: matches!(shape, [_, h, w] if *h.min(w) >= 7).then(Vec::new),
        nearest: Vec::new(),
    };
    for row in private.rows() {
        let row = unit(row);
        let mut best = (f64::INFINITY, 0);
        for (at, found) in found.iter().enumerate() {
            let error = mse(row.view(), found.view())?;
            if error < best.0 {
                best = (error, at);
            }
        }
        all.psnr.push(-10.0 * libm::log10(best.0.max(SAME)));
        all.nearest.push(best.1);
        if let (Some(ssims), [channels, height, width]) = (&mut all.ssim, shape) {
            let plane = |of: &Array2<f64>, c: usize| {
                let from = c * height * width;
                let of = of.row(0).to_vec();
                Array2::from_shape_vec((*height, *width), of[from..from + height * width].to_vec())
            };
            let mut sum = 0.0;
            for c in 0..*channels {
                let (a, b) = (plane(&row, c)?, plane(&found[best.1], c)?);
                sum += ssim(a.view(), b.view(), 1.0, Window::Uniform)?;
            }
            ssims.push(sum / *channels as f64);
        }
    }
    Ok(all)
}

/// Returns the public knowledge about each class: the mean of its examples in `public`, or of all
/// if it has none.
pub fn class_means(public: &Examples, classes: &[u32]) -> Array2<f32> {
    let values = public.samples.values();
    let of = public.classes().unwrap_or_default();
    let mean = |class: u32| {
        let at: Vec<usize> = (0..of.len()).filter(|at| of[*at] == class).collect();
        let rows: ArrayView2<'_, f32> = values.view();
        let rows = if at.is_empty() {
            rows.to_owned()
        } else {
            rows.select(Axis(0), &at)
        };
        rows.mean_axis(Axis(0))
    };
    let mut means = Array2::zeros((classes.len(), values.ncols()));
    for (mut row, class) in means.rows_mut().into_iter().zip(classes) {
        if let Some(mean) = mean(*class) {
            row.assign(&mean);
        }
    }
    means
}

/// Returns the smallest and the largest publicly known value of each number of an input: for bytes
/// the values of 0 and 255, for numbers those in `public`.
pub fn ranges(public: &Examples) -> Vec<(f32, f32)> {
    if let Inputs::Bytes {
        shape, mean, std, ..
    } = &**public.samples.inputs()
    {
        let plane = shape[1] * shape[2];
        let channel = |c: usize| (-mean[c] / std[c], (1.0 - mean[c]) / std[c]);
        return (0..shape[0] * plane)
            .map(|at| channel(at / plane))
            .collect();
    }
    let values = public.samples.values();
    let range = |column: ArrayView1<'_, f32>| {
        let low = column.fold(f32::INFINITY, |a, b| a.min(*b));
        let high = column.fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        // a constant number still has a range to search
        if low < high {
            (low, high)
        } else {
            (low - 1.0, low + 1.0)
        }
    };
    values.columns().into_iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn exact_every_private_input_is_compared_with_the_nearest() {
        let range = [(-1.0, 1.0), (0.0, 4.0)];
        let private = array![[0.0f32, 2.0], [1.0, 4.0]];
        let found = array![[1.0f32, 4.0], [0.0, 1.6]];
        let like = likeness(&private, &found, &[2], &range).unwrap();
        assert_eq!(like.nearest, [1, 0]);
        assert_eq!(like.psnr[1], 120.0);
        // a tenth of the range in one of two numbers: -10 log10(0.005)
        assert!((like.psnr[0] - 23.0103).abs() < 1e-3, "{:?}", like.psnr);
        assert!(like.ssim.is_none());
    }
}
