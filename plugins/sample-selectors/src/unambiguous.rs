//! `unambiguous`, the server selector of Selective-FD (Shao et al. 2024): the server does not send
//! back labels on which the clients disagree.

use fl_core::Problem;
use fl_core::message::SoftLabels;
use fl_core::prelude::*;

/// Probabilities have type `f32`: one of 0.5 to 1 is off by up to 2^-25, and `l1` by twice that.
const ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;

settings! {
    /// Keeps the samples on which the ensemble agrees: those whose soft label is within an l1
    /// distance of the one-hot label of its most probable class (Selective-FD, Shao et al. 2024).
    /// The distance is 2 (1 - largest probability), whatever the others of a label add up to, as
    /// they may with the median of labels.
    pub struct Unambiguous {
        /// Largest distance, 2 (1 - largest probability) (tau_server): 2 keeps everything, 0 only
        /// unanimous labels.
        max_distance: f64 = 2.0, in 0.0..=2.0;
    }
}

/// `|h - onehot(argmax h)|_1` of probabilities `h` that add up to 1, which is `2 (1 - max h)`; in
/// `0..=2`.
pub fn ambiguity(h: impl IntoIterator<Item = f64>) -> f64 {
    2.0 * (1.0 - h.into_iter().fold(f64::NEG_INFINITY, f64::max))
}

impl Unambiguous {
    /// Returns whether a soft label of this [`ambiguity`] is kept, up to the rounding of `f32`
    /// probabilities.
    pub fn keeps(&self, ambiguity: f64) -> bool {
        // noise may leave no number above 0; a setting that keeps everything keeps that too
        self.max_distance >= 2.0 || ambiguity <= self.max_distance + ROUNDING
    }
}

/// Returns the ambiguity of each row.
fn ambiguities(pool: &SoftLabels) -> Result<Vec<f64>> {
    let (rows, classes) = pool.values.dim();
    Problem::shape_unless(rows == 0 || classes > 0, || {
        "`unambiguous` got soft labels of no class; a row needs at least one".into()
    })?;
    if let Some(((row, class), v)) = pool.values.indexed_iter().find(|(_, v)| !v.is_finite()) {
        let at = row * classes + class;
        return Err(Problem::NotFinite {
            tensor: "soft labels".into(),
            at,
            value: v.to_string(),
        }
        .into());
    }
    let rows = pool.values.rows().into_iter();
    Ok(rows
        .map(|h| ambiguity(h.iter().map(|v| f64::from(*v))))
        .collect())
}

impl Selector for Unambiguous {
    type Pool = SoftLabels;

    fn select(&mut self, _: &Round, pool: &SoftLabels) -> Result<Vec<usize>> {
        let all = ambiguities(pool)?;
        Ok((0..all.len()).filter(|at| self.keeps(all[*at])).collect())
    }

    fn rank(&mut self, pool: &SoftLabels) -> Result<Option<Vec<f64>>> {
        Ok(Some(ambiguities(pool)?.into_iter().map(|l1| -l1).collect()))
    }
}
plugin!(selector "unambiguous" => Unambiguous,
    papers: ["Shao et al. 2024"]);

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::arr2;

    fn kept(rows: &[[f32; 3]], at_most: f64) -> Vec<usize> {
        let pool = SoftLabels::new((0..rows.len() as u32).collect(), arr2(rows));
        Unambiguous {
            max_distance: at_most,
        }
        .select(&Round::first(), &pool)
        .unwrap()
    }

    #[test]
    fn unambiguous_is_a_selector() {
        for at_most in [0.0, 0.7, 2.0] {
            fl_conformance::selector(|| Unambiguous {
                max_distance: at_most,
            });
        }
    }

    #[test]
    fn exact_the_boundary_is_kept_although_f32_rounds() {
        // 0.65 is slightly less as f32
        let rows = [
            [0.625, 0.25, 0.125],
            [0.65, 0.25, 0.1],
            [0.6499, 0.25, 0.1001],
        ];
        assert_eq!(kept(&rows, 0.75), [0, 1, 2]);
        assert_eq!(kept(&rows, 0.7), [1]);
        assert_eq!(kept(&rows, 0.74), [1, 2]);
    }

    #[test]
    fn exact_zero_keeps_only_the_unanimous() {
        let below_one = f32::from_bits(1f32.to_bits() - 1);
        let rows = [[1.0, 0.0, 0.0], [below_one, 0.0, 0.0], [0.5, 0.5, 0.0]];
        assert_eq!(kept(&rows, 0.0), [0]);
    }

    #[test]
    fn exact_two_keeps_even_what_noise_has_left() {
        assert_eq!(kept(&[[-0.5, -0.1, -3.0], [0.0, 0.0, 0.0]], 2.0), [0, 1]);
        assert_eq!(kept(&[[-0.5, -0.1, -3.0]], 1.9), [] as [usize; 0]);
    }

    #[test]
    fn nan_is_an_error() {
        let pool = SoftLabels::new(vec![4], arr2(&[[0.5, f32::NAN]]));
        let error = Unambiguous { max_distance: 2.0 }
            .select(&Round::first(), &pool)
            .unwrap_err();
        insta::assert_snapshot!(error, @"`soft labels` holds NaN at position 1; every number must be finite");
    }
}
