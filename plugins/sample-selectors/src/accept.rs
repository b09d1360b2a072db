//! From scores to a mask: thresholds, and the samples that pass.

/// Returns the `q`-quantile, `q` in `0..=1`: linear between order statistics, at position
/// `(n - 1) q` (type 7 of Hyndman and Fan 1996, NumPy's default). `None` without values.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = last as f64 * q.clamp(0.0, 1.0);
    let (below, above) = (
        sorted[at.floor() as usize],
        sorted[(at.ceil() as usize).min(last)],
    );
    // a whole position gives the exact bits of the order statistic: a sample must not miss its own
    // threshold
    Some(if below == above {
        below
    } else {
        below + (at - at.floor()) * (above - below)
    })
}

/// Returns whether a score passes. Selective-FD rejects below the threshold; its published code
/// (`strict`) rejects at the threshold too.
pub fn accept(score: f64, threshold: f64, strict: bool) -> bool {
    if strict {
        score > threshold
    } else {
        score >= threshold
    }
}

/// Returns whether one of several estimators, with a threshold each, accepts (Selective-FD, weakly
/// non-IID clients).
pub fn accept_any<'a>(
    scores: impl IntoIterator<Item = &'a f64>,
    thresholds: &[f64],
    strict: bool,
) -> bool {
    let mut pairs = scores.into_iter().zip(thresholds);
    pairs.any(|(w, t)| accept(*w, *t, strict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_ends_and_whole_positions_are_order_statistics() {
        let values = [0.3, 0.1, 0.2, 0.5, 0.4];
        for (q, wanted) in [(0.0, 0.1), (0.25, 0.2), (0.5, 0.3), (0.75, 0.4), (1.0, 0.5)] {
            assert_eq!(quantile(&values, q), Some(wanted), "{q}");
        }
        assert_eq!(quantile(&[1.0, 2.0], 0.25), Some(1.25));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
