//! Statistics over several seeds.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Numbers of several seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Wraps at least one number.
    pub fn new(values: Vec<f64>) -> Option<Self> {
        (!values.is_empty()).then_some(Self(values))
    }

    /// Returns their number.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns their mean.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Returns their deviation, with n - 1 in the denominator; `None` for a single number.
    pub fn std(&self) -> Option<f64> {
        let (n, mean) = (self.0.len(), self.mean());
        let squares: f64 = self.0.iter().map(|v| (v - mean).powi(2)).sum();
        (n > 1).then(|| (squares / (n - 1) as f64).sqrt())
    }

    /// Returns the middle one, or the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        match sorted.len() % 2 {
            1 => sorted[half],
            _ => (sorted[half - 1] + sorted[half]) / 2.0,
        }
    }

    /// Returns the smallest.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Returns the largest.
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

/// Differences between two settings with the same seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Their mean.
    pub mean: f64,
    /// Half the width of its 95 % t-interval; `None` for a single pair.
    pub half: Option<f64>,
}

impl Paired {
    /// Returns whether the interval excludes 0; `None` for a single pair.
    pub fn distinguishable(&self) -> Option<bool> {
        self.half.map(|half| self.mean.abs() > half)
    }
}

/// Returns first minus second, seed by seed; `None` without a pair.
pub fn paired(differences: Vec<f64>) -> Option<Paired> {
    let sample = Sample::new(differences)?;
    let n = sample.count() as f64;
    let t = || {
        StudentsT::new(0.0, 1.0, n - 1.0)
            .map(|t| t.inverse_cdf(0.975))
            .ok()
    };
    let half = sample.std().and_then(|std| Some(t()? * std / n.sqrt()));
    Some(Paired {
        mean: sample.mean(),
        half,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_tables() {
        // 97.5 % quantiles of Student's t, as printed
        for (n, t) in [
            (2, 12.706),
            (3, 4.303),
            (5, 2.776),
            (10, 2.262),
            (31, 2.042),
        ] {
            let differences: Vec<f64> = (0..n).map(f64::from).collect();
            let sample = Sample::new(differences.clone()).unwrap();
            let found = paired(differences).unwrap();
            let wanted = t * sample.std().unwrap() / f64::from(n).sqrt();
            assert!(
                (found.half.unwrap() / wanted - 1.0).abs() < 3e-4,
                "{n}: {found:?}, wanted {wanted}"
            );
        }
        assert_eq!(
            paired(vec![0.5]),
            Some(Paired {
                mean: 0.5,
                half: None
            })
        );
        assert_eq!(paired(vec![]), None);
        assert_eq!(
            paired(vec![0.0, 0.0]).unwrap().distinguishable(),
            Some(false)
        );
        assert_eq!(
            paired(vec![1.0, 1.0]).unwrap().distinguishable(),
            Some(true)
        );
    }

    #[test]
    fn a_sample_is_what_it_was_in_numpy() {
        let sample = Sample::new(vec![78.1, 83.2, 81.0, 81.8]).unwrap();
        assert!((sample.mean() - 81.025).abs() < 1e-9 && (sample.median() - 81.4).abs() < 1e-9);
        assert!((sample.std().unwrap() - 2.15155).abs() < 1e-5);
        assert_eq!((sample.min(), sample.max()), (78.1, 83.2));
    }
}
