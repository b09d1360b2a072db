//! Fourier transforms of real numbers, with the same bits on every processor. A library picks its
//! algorithm for the processor, and takes sines from the system.

/// A complex number: its real and imaginary part.
pub type Complex = (f64, f64);

/// Returns the product.
pub fn times((a, b): Complex, (c, d): Complex) -> Complex {
    (a * c - b * d, a * d + b * c)
}

/// Returns `z^n`, on the principal branch.
pub fn power((re, im): Complex, n: f64) -> Complex {
    let length = libm::pow(libm::hypot(re, im), n);
    let (sin, cos) = libm::sincos(libm::atan2(im, re) * n);
    (length * cos, length * sin)
}

fn conjugate((re, im): Complex) -> Complex {
    (re, -im)
}

/// Transforms of this many numbers.
pub struct Fourier {
    /// `exp(-2 pi i k / points)` for `k` below half of the points.
    turns: Vec<Complex>,
    /// The same for each shorter transform, the longest first, side by side for the cache.
    shorter: Vec<Vec<Complex>>,
}

impl Fourier {
    /// `points` is a power of two, at least 2.
    pub fn new(points: usize) -> Self {
        let turn = |k: usize| {
            let angle = std::f64::consts::TAU * k as f64 / points as f64;
            let (sin, cos) = libm::sincos(angle);
            (cos, -sin)
        };
        let turns: Vec<Complex> = (0..points / 2).map(turn).collect();
        let steps = std::iter::successors(Some(2), |step| Some(2 * step));
        let shorter = steps.take_while(|step| *step < points);
        Self {
            shorter: shorter
                .map(|step| turns.iter().copied().step_by(step).collect())
                .collect(),
            turns,
        }
    }

    /// Returns `sum_j x[j] exp(-2 pi i j k / points)` for `k` from 0 to half of the points; the
    /// others are the conjugates of these.
    pub fn forward(&self, x: &[f64]) -> Vec<Complex> {
        let half = self.turns.len();
        // even places are real parts, odd ones imaginary
        let pairs: Vec<Complex> = x.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let mut z = vec![(0.0, 0.0); half];
        transform(&self.shorter, &pairs, 1, &mut z);
        let at = |k: usize| {
            let (a, b) = (z[k % half], conjugate(z[(half - k) % half]));
            let (even, odd) = ((a.0 + b.0, a.1 + b.1), (a.1 - b.1, b.0 - a.0));
            let turned = if k == half {
                (-odd.0, -odd.1)
            } else {
                times(odd, self.turns[k])
            };
            (0.5 * (even.0 + turned.0), 0.5 * (even.1 + turned.1))
        };
        (0..=half).map(at).collect()
    }

    /// Returns `sum_k z[k] exp(2 pi i j k / points)` over all points, for `z` as
    /// [`Fourier::forward`] returns it.
    pub fn backward(&self, z: &[Complex]) -> Vec<f64> {
        let half = self.turns.len();
        let pair = |k: usize| {
            let (a, b) = (z[k], conjugate(z[half - k]));
            let odd = times((a.0 - b.0, a.1 - b.1), conjugate(self.turns[k]));
            // the conjugate of `even + i odd`, so that the transform forward is one backward
            (a.0 + b.0 - odd.1, -(a.1 + b.1 + odd.0))
        };
        let pairs: Vec<Complex> = (0..half).map(pair).collect();
        let mut x = vec![(0.0, 0.0); half];
        transform(&self.shorter, &pairs, 1, &mut x);
        x.into_iter().flat_map(|(re, im)| [re, -im]).collect()
    }
}

/// Transforms every `step`-th number of `x` (Cooley and Tukey 1965): its even and its odd places
/// first, so that short transforms stay in the cache.
fn transform(turns: &[Vec<Complex>], x: &[Complex], step: usize, out: &mut [Complex]) {
    let [turns, shorter @ ..] = turns else {
        out[0] = x[0];
        return;
    };
    let half = out.len() / 2;
    let (even, odd) = out.split_at_mut(half);
    match half {
        1 => (even[0], odd[0]) = (x[0], x[step]),
        _ => {
            transform(shorter, x, 2 * step, even);
            transform(shorter, &x[step..], 2 * step, odd);
        }
    }
    for ((a, b), turn) in even.iter_mut().zip(odd).zip(turns) {
        let turned = times(*b, *turn);
        (*a, *b) = (
            (a.0 + turned.0, a.1 + turned.1),
            (a.0 - turned.0, a.1 - turned.1),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_are_the_sums_of_their_definition() {
        for points in [2, 4, 8, 64, 256] {
            let x: Vec<f64> = (0..points)
                .map(|j| ((j * 37 % 101) as f64 - 50.0) / 7.0)
                .collect();
            let fourier = Fourier::new(points);
            let z = fourier.forward(&x);
            assert_eq!(z.len(), points / 2 + 1);
            for (k, found) in z.iter().enumerate() {
                let wanted = x
                    .iter()
                    .enumerate()
                    .fold((0.0, 0.0), |sum: Complex, (j, x)| {
                        let turn = (j * k % points) as f64 / points as f64;
                        let (sin, cos) = libm::sincos(-std::f64::consts::TAU * turn);
                        (sum.0 + x * cos, sum.1 + x * sin)
                    });
                let off = libm::hypot(found.0 - wanted.0, found.1 - wanted.1);
                assert!(
                    off < 1e-11,
                    "{points} points, {k}: {found:?} for {wanted:?}"
                );
            }
            let back = fourier.backward(&z);
            for (found, x) in back.iter().zip(&x) {
                assert!((found / points as f64 - x).abs() < 1e-13, "{found} for {x}");
            }
        }
    }

    #[test]
    fn powers_are_repeated_products() {
        let z = (0.3, -0.9);
        let cube = times(z, times(z, z));
        let found = power(z, 3.0);
        assert!((found.0 - cube.0).abs() < 1e-15 && (found.1 - cube.1).abs() < 1e-15);
    }
}
