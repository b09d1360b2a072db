//! [`Sum`]: a sum of bounded parameters.

use fl_core::message::alike;
use fl_core::prelude::*;

/// A sum of parameters in 64 bits, rounded once. A sum in 32 bits is rounded after each addend. One
/// addend more or less would change it by all later roundings, not only by its bound.
pub struct Sum {
    like: Params,
    sums: Vec<f64>,
}

impl Sum {
    /// Returns an empty sum, named and shaped as `like`.
    pub fn like(like: &Params) -> Self {
        Self {
            sums: vec![0.0; like.count()],
            like: like.zeros_like(),
        }
    }

    /// Adds parameters.
    ///
    /// # Errors
    /// If names or shapes differ.
    pub fn add(&mut self, more: &Params) -> Result<()> {
        alike(&self.like, more)?;
        let both = self.sums.iter_mut().zip(more.iter());
        both.for_each(|(sum, x)| *sum += f64::from(*x));
        Ok(())
    }

    /// Returns the sum, rounded to 32 bits.
    pub fn total(mut self) -> Params {
        let places = self.like.0.values_mut().flatten();
        places
            .zip(&self.sums)
            .for_each(|(place, sum)| *place = *sum as f32);
        self.like
    }
}

/// Replaces parameters with NaN or infinity by zeros: they would pass every bound, and show in the
/// result.
pub fn finite(params: &mut Params) {
    if !params.norm().is_finite() {
        *params = params.zeros_like();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(x: f32) -> Params {
        Params([("w".to_string(), ndarray::arr1(&[x]).into_dyn())].into())
    }

    fn sum(of: impl Iterator<Item = f32>) -> f64 {
        let mut sum = Sum::like(&one(0.0));
        of.for_each(|x| sum.add(&one(x)).unwrap());
        f64::from(*sum.total().iter().next().unwrap())
    }

    /// In 32 bits these two sums differ by 2: each small number is rounded up above 2^14, and not
    /// below.
    #[test]
    fn one_number_less_moves_a_sum_by_that_number() {
        let of = |ones: usize| {
            let small = std::iter::repeat_n(0.00098, 1024);
            sum(std::iter::repeat_n(1.0, ones).chain(small))
        };
        let moved = of(16384) - of(16383);
        assert!((moved - 1.0).abs() < 0.01, "{moved}");
    }

    #[test]
    fn what_has_no_length_is_nothing() {
        for (x, left) in [(f32::NAN, 0.0), (f32::INFINITY, 0.0), (f32::MAX, f32::MAX)] {
            let mut params = one(x);
            finite(&mut params);
            assert_eq!(params, one(left));
        }
    }
}
