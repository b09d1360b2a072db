//! [`LossCurve`]: whether the loss of a training still fell at its end.

/// The number of means that a curve keeps at most; even.
const MOST: usize = 1024;
/// Fewer losses say nothing about a trend.
const LEAST: usize = 8;
/// The share of the whole fall that the last quarter must exceed.
const SHARE: f64 = 0.05;
/// The share of the steps whose mean is the loss at the start.
const START: usize = 32;
/// The standard errors that it must exceed.
const ERRORS: f64 = 2.0;

/// The losses of a training's steps, as means of neighbours: its memory is bounded.
#[derive(Clone, Debug)]
pub struct LossCurve {
    means: Vec<f64>,
    /// Losses of a mean.
    width: usize,
    /// The sum and the number of the losses after the last mean.
    open: (f64, usize),
}

impl Default for LossCurve {
    fn default() -> Self {
        Self {
            means: Vec::new(),
            width: 1,
            open: (0.0, 0),
        }
    }
}

impl LossCurve {
    /// Adds the loss of the next step.
    pub fn add(&mut self, loss: f64) {
        let (sum, count) = (self.open.0 + loss, self.open.1 + 1);
        if count < self.width {
            self.open = (sum, count);
            return;
        }
        self.open = (0.0, 0);
        self.means.push(sum / count as f64);
        if self.means.len() == MOST {
            let pairs = self.means.as_chunks().0.iter();
            self.means = pairs.map(|[a, b]| (a + b) / 2.0).collect();
            self.width *= 2;
        }
    }

    /// Returns whether the loss still fell at the end; `None` after fewer than eight steps.
    ///
    /// It did if the mean loss of the last quarter of the steps is below that of the quarter
    /// before, by more than a twentieth of the fall since the start (the first 32nd of the steps),
    /// and by more than two standard errors of the difference.
    pub fn falls(&self) -> Option<bool> {
        let (n, quarter) = (self.means.len(), self.means.len() / 4);
        if n < LEAST {
            return None;
        }
        let of = |losses: &[f64]| {
            let count = losses.len() as f64;
            let mean = losses.iter().sum::<f64>() / count;
            let squares = losses.iter().map(|loss| (loss - mean).powi(2));
            (mean, squares.sum::<f64>() / (count - 1.0) / count)
        };
        let (first, _) = of(&self.means[..(n / START).max(2)]);
        let (before, spread) = of(&self.means[n - 2 * quarter..n - quarter]);
        let (last, more) = of(&self.means[n - quarter..]);
        let (fall, error) = (before - last, (spread + more).sqrt());
        Some(fall > SHARE * (first - last) && fall > ERRORS * error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;

    /// Returns the verdict on `steps` losses `of(t)`, `t` from 0 to 1, with noise.
    fn falls(steps: usize, noise: f64, of: impl Fn(f64) -> f64) -> Option<bool> {
        let (mut curve, mut draws) = (LossCurve::default(), Stream::root(1).draws());
        for at in 0..steps {
            let clean = of(at as f64 / steps as f64);
            curve.add(clean * (1.0 + noise * draws.normal()));
        }
        assert!(curve.means.len() < MOST);
        curve.falls()
    }

    #[test]
    fn a_loss_falls_at_the_end_or_has_settled() {
        for steps in [8, 40, 200, 5_000, 100_000] {
            let noises: &[f64] = if steps < 200 { &[0.0] } else { &[0.0, 0.1] };
            for noise in noises {
                let falls = |of: fn(f64) -> f64| falls(steps, *noise, of);
                assert_eq!(falls(|t| 2.0 - t), Some(true), "steadily");
                assert_eq!(falls(|t| libm::exp(-2.0 * t)), Some(true), "ever slower");
                assert_eq!(
                    falls(|t| 0.3 + libm::exp(-20.0 * t)),
                    Some(false),
                    "settled"
                );
                assert_eq!(falls(|t| 1.0 / (1.0 + 300.0 * t)), Some(false), "nearly");
                assert_eq!(falls(|t| 1.0 + t), Some(false), "rises");
                assert_eq!(falls(|_| 1.0), Some(false), "never moved");
            }
        }
        assert_eq!(falls(7, 0.0, |t| 2.0 - t), None);
    }
}
