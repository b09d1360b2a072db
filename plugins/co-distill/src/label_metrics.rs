//! Metrics of the ensemble's labels, by true labels that no part of the method sees.
use fl_core::Problem;
use fl_core::message::SoftLabels;
use fl_core::prelude::*;
use ndarray::ArrayView1;

/// How far labels are from the true classes, in the terms of Selective-FD's Theorem 2. A label of a
/// sample of class `y` is wrong if its most probable class is not `y`. Its distance is the l1 distance
/// to the one-hot label of `y`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LabelErrors {
    /// Share of wrong labels; `p2` of the theorem is the rest.
    p1: f64,
    /// Mean over all labels of the distance of those that are wrong.
    p1_l1: f64,
    /// Mean over all labels of the distance of those that are right.
    p2_l1: f64,
}

impl LabelErrors {
    /// Returns the errors of labels, one row for each sample, whose true classes are `truth`.
    fn of<'a>(labels: impl Iterator<Item = ArrayView1<'a, f32>>, truth: &[u32]) -> Self {
        let (mut errors, mut all) = (Self::default(), 0.0);
        for (row, class) in labels.zip(truth) {
            let wanted = |at: usize| if at == *class as usize { 1.0 } else { 0.0 };
            let terms = row.iter().enumerate();
            let distance: f64 = terms
                .map(|(at, p)| (wanted(at) - f64::from(*p)).abs())
                .sum();
            all += 1.0;
            // a tie is wrong only if the lowest of the most probable classes is another one
            if fl_core::metrics::argmax(row) as u32 != *class {
                errors.p1 += 1.0;
                errors.p1_l1 += distance;
            } else {
                errors.p2_l1 += distance;
            }
        }
        let all = f64::max(all, 1.0);
        Self {
            p1: errors.p1 / all,
            p1_l1: errors.p1_l1 / all,
            p2_l1: errors.p2_l1 / all,
        }
    }
}

/// The names of what [`judge`] records of labels.
const ERRORS: [&str; 3] = ["p1", "p1-l1", "p2-l1"];

/// Returns what [`judge`] records for labels called `name`.
pub(crate) fn measures(name: &str) -> [Measurement; 3] {
    ERRORS.map(|error| Measurement::number(format!("{name}.{error}")))
}

/// Why labels cannot be judged, after `judge-labels`.
pub(crate) const UNKNOWN: &str = "needs the classes of the public samples, and rows of another data set have none here: take all public samples from the clients' set, or leave `judge-labels` out";

/// Returns the class of each public sample.
///
/// # Errors
/// If they are not known.
pub(crate) fn truth(server: &Server<'_>) -> Result<Vec<u32>> {
    let text = || Problem::Lacks(format!("protocol.judge-labels {UNKNOWN}"));
    server.public()?.truth().with_context(text)
}

/// Records the errors of labels in this round as `NAME.p1`, `NAME.p1-l1` and `NAME.p2-l1`; nothing
/// without any label.
///
/// # Errors
/// If the classes of the public samples are not known.
pub(crate) fn judge(
    server: &mut Server<'_>,
    round: &Round,
    name: &str,
    labels: &SoftLabels,
) -> Result<()> {
    let truth = truth(server)?;
    if labels.rows.is_empty() {
        return Ok(());
    }
    let truth: Vec<u32> = labels.rows.iter().map(|id| truth[*id as usize]).collect();
    let errors = LabelErrors::of(labels.values.rows().into_iter(), &truth);
    let values = [errors.p1, errors.p1_l1, errors.p2_l1];
    for (what, value) in ERRORS.into_iter().zip(values) {
        server.record(round, &format!("{name}.{what}"), value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::arr2;

    #[test]
    fn exact_label_errors_by_hand() {
        let labels = arr2(&[
            [0.75, 0.25, 0.0], // right: 0.25 + 0.25
            [0.5, 0.25, 0.25], // right: 0.5 + 0.5
            [0.25, 0.5, 0.25], // wrong: 0.75 + 0.75
            [0.0, 1.0, 0.0],   // wrong: 1 + 1
            [0.5, 0.5, 0.0],   // a tie that the right class wins: 0.5 + 0.5
        ]);
        let errors = |n: usize| LabelErrors::of(labels.rows().into_iter().take(n), &[0; 5]);
        let of = |p1, p1_l1, p2_l1| LabelErrors { p1, p1_l1, p2_l1 };
        assert_eq!(errors(0), LabelErrors::default());
        assert_eq!(errors(1), of(0.0, 0.0, 0.5));
        // the sum is Eq. 20's mean distance, 2 (1 - p(y)) for probabilities
        assert_eq!(errors(4), of(0.5, 3.5 / 4.0, 1.5 / 4.0));
        assert_eq!(errors(5), of(0.4, 0.7, 0.5));
    }
}
