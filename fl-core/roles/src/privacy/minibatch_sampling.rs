//! [`MinibatchSampling`]: the random lots of a training's steps.

use crate::{Cohort, SamplingScheme, Stream, floor_share};

/// The number of training steps, and how each draws its lot of a client's examples. It does not
/// depend on the number of examples, so a price based on it reveals nothing about that number.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MinibatchSampling {
    /// Number of steps.
    pub steps: usize,
    /// The share of the examples in a lot, above 0 and at most 1.
    pub rate: f64,
    /// Whether a lot has exactly that share of the examples (rounded down), every such set equally
    /// likely. Otherwise each example is in it with probability `rate`, independently.
    pub fixed: bool,
}

/// The number of examples for which a fixed share is written as a whole number, rounded up.
const OF: usize = 100_000;

impl MinibatchSampling {
    /// Returns a lot as a cohort of examples, for a mechanism's price.
    pub fn cohort(&self) -> Cohort {
        match self.fixed {
            true if self.rate < 1.0 => {
                let most = ((self.rate * OF as f64).ceil() as usize).min(OF);
                Cohort {
                    of: OF,
                    draw: SamplingScheme::FixedSize,
                    ..Cohort::all(most)
                }
            }
            false if self.rate < 1.0 => Cohort {
                draw: SamplingScheme::Poisson { rate: self.rate },
                ..Cohort::all(1)
            },
            _ => Cohort::all(1),
        }
    }

    /// Returns the size of a lot of `n` examples; its mean, where lots differ in size.
    pub fn lot(&self, n: usize) -> f64 {
        match self.fixed {
            _ if self.rate >= 1.0 => n as f64,
            true => floor_share(self.rate, n) as f64,
            false => self.rate * n as f64,
        }
    }

    /// Returns the positions of one lot among `n` examples, ascending.
    pub fn draw(&self, n: usize, stream: &Stream) -> Vec<usize> {
        let mut draws = stream.draws();
        match self.fixed {
            _ if self.rate >= 1.0 => (0..n).collect(),
            true => draws.choose(n, self.lot(n) as usize),
            false => (0..n).filter(|_| draws.uniform() < self.rate).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lots(rate: f64, fixed: bool) -> MinibatchSampling {
        MinibatchSampling {
            steps: 1,
            rate,
            fixed,
        }
    }

    #[test]
    fn lots_are_drawn_as_they_are_priced() {
        let stream = Stream::root(1);
        let sizes = |fixed| {
            let size = |k| lots(0.1, fixed).draw(1000, &stream.child("lot", k)).len();
            (0..200).map(size).collect::<Vec<_>>()
        };
        assert!(sizes(true).iter().all(|n| *n == 100));
        let poisson = sizes(false);
        let mean = poisson.iter().sum::<usize>() as f64 / 200.0;
        let variance = poisson
            .iter()
            .map(|n| (*n as f64 - mean).powi(2))
            .sum::<f64>()
            / 200.0;
        assert!(
            (mean - 100.0).abs() < 3.0 && (60.0..130.0).contains(&variance),
            "{mean} {variance}"
        );
        let fixed = lots(0.12345678, true).cohort();
        assert!(fixed.len() as f64 / fixed.of as f64 >= 0.12345678);
        assert_eq!(
            lots(0.1, false).cohort().draw,
            SamplingScheme::Poisson { rate: 0.1 }
        );
        for fixed in [true, false] {
            assert_eq!(lots(1.0, fixed).cohort().draw, SamplingScheme::Everyone);
            assert_eq!(lots(1.0, fixed).draw(3, &stream), [0, 1, 2]);
        }
    }
}
