//! Similarity of two pictures of one channel.

use anyhow::{Result, ensure};
use ndarray::{Array1, ArrayView2};

/// The window of [`ssim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// 7 x 7, all pixels weighted equally, with the sample covariance (scikit-image's default).
    Uniform,
    /// 11 x 11, a Gaussian of standard deviation 1.5 (Wang et al. 2004).
    Gaussian,
}

impl Window {
    /// Returns the weights along one side, and the factor of (co)variances.
    fn weights(self) -> (Array1<f64>, f64) {
        match self {
            Self::Uniform => (Array1::from_elem(7, 1.0 / 7.0), 49.0 / 48.0),
            Self::Gaussian => {
                let bell = |x: usize| libm::exp(-0.5 * ((x as f64 - 5.0) / 1.5).powi(2));
                let all = Array1::from_shape_fn(11, bell);
                let sum = all.sum();
                (all / sum, 1.0)
            }
        }
    }
}

fn alike(a: ArrayView2<'_, f64>, b: ArrayView2<'_, f64>) -> Result<()> {
    ensure!(
        a.dim() == b.dim() && !a.is_empty(),
        "two pictures of {:?} and {:?} pixels",
        a.dim(),
        b.dim()
    );
    Ok(())
}

/// Returns the mean squared error.
///
/// # Errors
/// If the pictures have different shapes, or no pixel.
pub fn mse(a: ArrayView2<'_, f64>, b: ArrayView2<'_, f64>) -> Result<f64> {
    alike(a, b)?;
    let squares = a.iter().zip(b).map(|(x, y)| (x - y).powi(2));
    Ok(squares.sum::<f64>() / a.len() as f64)
}

/// Peak signal-to-noise ratio in dB: `10 log10(range^2 / mse)`, infinite for identical pictures.
/// `range` is the range of the values, such as 1 or 255.
///
/// # Errors
/// As [`mse`].
pub fn psnr(a: ArrayView2<'_, f64>, b: ArrayView2<'_, f64>, range: f64) -> Result<f64> {
    Ok(10.0 * libm::log10(range * range / mse(a, b)?))
}

/// Structural similarity (Wang et al. 2004): the mean over all positions of the window within the
/// picture, with the constants `(0.01 range)^2` and `(0.03 range)^2`.
///
/// # Errors
/// As [`mse`], or if a picture is smaller than the window.
pub fn ssim(
    a: ArrayView2<'_, f64>,
    b: ArrayView2<'_, f64>,
    range: f64,
    window: Window,
) -> Result<f64> {
    alike(a, b)?;
    let (weights, scale) = window.weights();
    let side = weights.len();
    let (rows, columns) = a.dim();
    ensure!(
        rows >= side && columns >= side,
        "the window has {side} x {side} pixels, and the pictures have {rows} x {columns}"
    );
    let (c1, c2) = ((0.01 * range).powi(2), (0.03 * range).powi(2));
    // a window is a product of two sides: average along the rows, then down the columns
    let blurred = |of: &dyn Fn(f64, f64) -> f64| {
        let product = ndarray::Zip::from(a).and(b).map_collect(|x, y| of(*x, *y));
        let along = ndarray::Array2::from_shape_fn((rows, columns + 1 - side), |(r, c)| {
            product.slice(ndarray::s![r, c..c + side]).dot(&weights)
        });
        ndarray::Array2::from_shape_fn((rows + 1 - side, columns + 1 - side), |(r, c)| {
            along.slice(ndarray::s![r..r + side, c]).dot(&weights)
        })
    };
    let (of_a, of_b) = (blurred(&|x, _| x), blurred(&|_, y| y));
    let (aa, bb, ab) = (
        blurred(&|x, _| x * x),
        blurred(&|_, y| y * y),
        blurred(&|x, y| x * y),
    );
    let mut sum = 0.0;
    for (at, ma) in of_a.indexed_iter() {
        let mb = of_b[at];
        let (va, vb) = (scale * (aa[at] - ma * ma), scale * (bb[at] - mb * mb));
        let vab = scale * (ab[at] - ma * mb);
        sum +=
            (2.0 * ma * mb + c1) * (2.0 * vab + c2) / ((ma * ma + mb * mb + c1) * (va + vb + c2));
    }
    Ok(sum / of_a.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;

    #[test]
    fn pictures_that_cannot_be_compared_are_refused() {
        let picture = |r, c| Array2::<f64>::zeros((r, c));
        assert!(mse(picture(2, 2).view(), picture(2, 3).view()).is_err());
        assert!(mse(picture(0, 3).view(), picture(0, 3).view()).is_err());
        let small = ssim(
            picture(9, 12).view(),
            picture(9, 12).view(),
            1.0,
            Window::Gaussian,
        );
        assert_eq!(
            small.unwrap_err().to_string(),
            "the window has 11 x 11 pixels, and the pictures have 9 x 12"
        );
    }
}
