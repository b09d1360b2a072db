//! Metrics of the ensemble's labels, by true labels that no part of the method sees.
use fl_core::Problem;
use fl_core::message::SoftLabels;
use fl_core::prelude::*;
use ndarray::ArrayView1;

/// The harm that labels do, in the terms of Selective-FD's Theorem 2. A label of a sample of class
/// `y` is *misleading* if another class is more probable than `y`, and *ambiguous* if `y` is the
/// most probable class, with at most half of the probability. Its loss is `1 - p(y)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Harm {
    /// Share of misleading labels.
    misleading: f64,
    /// Share of ambiguous labels.
    ambiguous: f64,
    /// Mean loss of the misleading labels, 0 without any.
    misleading_loss: f64,
    /// Mean loss of the ambiguous labels, 0 without any.
    ambiguous_loss: f64,
}

impl Harm {
    /// Returns the harm of labels, one row for each sample, whose true classes are `truth`.
    fn of<'a>(labels: impl Iterator<Item = ArrayView1<'a, f32>>, truth: &[u32]) -> Self {
        let (mut harm, mut all) = (Self::default(), 0.0);
        for (row, class) in labels.zip(truth) {
            let right = f64::from(row[*class as usize]);
            // a tie misleads only if the lowest of the most probable classes is another one
            let said = fl_core::metrics::argmax(row) as u32;
            all += 1.0;
            if said != *class {
                harm.misleading += 1.0;
                harm.misleading_loss += 1.0 - right;
            } else if right <= 0.5 {
                harm.ambiguous += 1.0;
                harm.ambiguous_loss += 1.0 - right;
            }
        }
        harm.misleading_loss /= f64::max(harm.misleading, 1.0);
        harm.ambiguous_loss /= f64::max(harm.ambiguous, 1.0);
        harm.misleading /= f64::max(all, 1.0);
        harm.ambiguous /= f64::max(all, 1.0);
        harm
    }
}

/// The names of what [`judge`] records of labels.
const HARMS: [&str; 4] = [
    "misleading",
    "ambiguous",
    "misleading-loss",
    "ambiguous-loss",
];

/// Returns what [`judge`] records for labels called `name`.
pub(crate) fn measures(name: &str) -> [Measurement; 4] {
    HARMS.map(|harm| Measurement::number(format!("{name}.{harm}")))
}

/// Returns the class of each public sample.
///
/// # Errors
/// If they are not known.
pub(crate) fn truth(fed: &Server<'_>) -> Result<Vec<u32>> {
    fed.public()?.truth().with_context(|| {
        Problem::Lacks(
            "protocol.judge-labels: the classes of the public samples are not known; take them from the clients' set, or leave it out".into(),
        )
    })
}

/// Records the harm of labels in this round as `NAME.misleading`, `NAME.ambiguous`,
/// `NAME.misleading-loss` and `NAME.ambiguous-loss`; nothing without any label.
///
/// # Errors
/// If the classes of the public samples are not known.
pub(crate) fn judge(
    fed: &mut Server<'_>,
    round: &Round,
    name: &str,
    labels: &SoftLabels,
) -> Result<()> {
    let truth = truth(fed)?;
    if labels.rows.is_empty() {
        return Ok(());
    }
    let truth: Vec<u32> = labels.rows.iter().map(|id| truth[*id as usize]).collect();
    let harm = Harm::of(labels.values.rows().into_iter(), &truth);
    let values = [
        harm.misleading,
        harm.ambiguous,
        harm.misleading_loss,
        harm.ambiguous_loss,
    ];
    for (what, value) in HARMS.into_iter().zip(values) {
        fed.record(round, &format!("{name}.{what}"), value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::arr2;

    #[test]
    fn exact_harm_by_hand() {
        let labels = arr2(&[
            [0.75, 0.25, 0.0], // right and clear
            [0.5, 0.25, 0.25], // right and ambiguous: loss 0.5
            [0.25, 0.5, 0.25], // misleading: loss 0.75
            [0.0, 1.0, 0.0],   // misleading: loss 1
            [0.5, 0.5, 0.0],   // a tie that the right class wins: ambiguous, loss 0.5
        ]);
        let harm = |truth: &[u32]| Harm::of(labels.rows().into_iter(), truth);
        let by_hand = Harm {
            misleading: 0.4,
            ambiguous: 0.4,
            misleading_loss: 0.875,
            ambiguous_loss: 0.5,
        };
        assert_eq!(harm(&[0; 5]), by_hand);
        assert_eq!(harm(&[]), Harm::default());
    }
}
