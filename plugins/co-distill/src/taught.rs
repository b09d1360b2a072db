//! What the clients are taught in a round.
use fl_core::message::{SoftLabels, Votes, softmax};
use fl_core::prelude::*;
use ndarray::{Array2, Axis};

/// One-hot rows, each the mean of its voters.
pub(crate) fn one_hot(votes: Votes) -> SoftLabels {
    let mut values = Array2::zeros((votes.rows.len(), votes.classes()));
    let share = 1.0 / votes.voters() as f32;
    for ((row, _), label) in votes.labels.indexed_iter() {
        values[[row, *label as usize]] += share;
    }
    SoftLabels::new(votes.rows, values)
}

/// One label for each sample.
pub(crate) fn votes(rows: Vec<u32>, labels: Vec<u32>, classes: usize) -> Votes {
    let table = Array2::from_shape_vec((rows.len(), 1), labels);
    Votes::new(rows, table.expect("one label for each row"), classes)
}

/// What is known about the samples of a round after the clients have spoken.
pub(crate) enum Taught {
    Soft(SoftLabels),
    Scores(Logits),
    Hard(Votes),
}

impl Taught {
    pub fn rows(&self) -> &[u32] {
        match self {
            Self::Soft(soft) => &soft.rows,
            Self::Scores(scores) => &scores.rows,
            Self::Hard(votes) => &votes.rows,
        }
    }

    /// As probabilities, for what judges them.
    pub fn soft(&self) -> SoftLabels {
        match self {
            Self::Soft(soft) => soft.clone(),
            Self::Scores(z) => SoftLabels::new(z.rows.clone(), softmax(z.values.view(), 1.0)),
            Self::Hard(votes) => one_hot(votes.clone()),
        }
    }

    /// Only the most probable class of each sample.
    pub fn hard(self) -> Self {
        let soft = self.soft();
        let (labels, classes) = (soft.labels(), soft.values.ncols());
        Self::Hard(votes(soft.rows, labels, classes))
    }

    /// Only the rows at these positions.
    pub fn retain_rows(&mut self, positions: &[usize]) {
        match self {
            Self::Soft(soft) => soft.retain_rows(positions),
            Self::Hard(votes) => votes.retain_rows(positions),
            Self::Scores(z) => {
                let rows = positions.iter().map(|p| z.rows[*p]).collect();
                *z = Logits::new(rows, z.values.select(Axis(0), positions));
            }
        }
    }
}
