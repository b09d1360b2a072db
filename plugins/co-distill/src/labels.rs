//! Labels of public samples: of one client, of the ensemble, and for training.
use crate::settings::Labels;
use fl_core::message::{SoftLabels, Votes, softmax};
use fl_core::prelude::*;
use fl_core::{Problem, metrics};
use ndarray::{Array2, Axis};

/// Returns one-hot rows, each averaged over its voters.
pub(crate) fn one_hot(votes: &Votes) -> SoftLabels {
    let mut values = Array2::zeros((votes.rows.len(), votes.classes()));
    let share = 1.0 / votes.voters() as f32;
    for ((row, _), label) in votes.labels.indexed_iter() {
        values[[row, *label as usize]] += share;
    }
    SoftLabels::new(votes.rows.clone(), values)
}

/// Returns one label for each sample.
fn votes(rows: Vec<u32>, labels: Vec<u32>, classes: usize) -> Votes {
    let table = Array2::from_shape_vec((rows.len(), 1), labels);
    Votes::new(rows, table.expect("one label for each row"), classes)
}

/// Returns the class probabilities of a model's scores.
pub(crate) fn soft(Logits { rows, values, .. }: Logits) -> SoftLabels {
    SoftLabels::of_scores(rows, values.view())
}

/// Returns the most probable classes of a model's scores.
pub(crate) fn hard(Logits { rows, values, .. }: Logits) -> Votes {
    votes(rows, metrics::classes(values.view()), values.ncols())
}

/// The labels that all clients learn in a round.
pub(crate) enum RoundLabels {
    Soft(SoftLabels),
    Scores(Logits),
    Hard(Votes),
}

impl RoundLabels {
    /// Returns the samples.
    pub fn rows(&self) -> &[u32] {
        match self {
            Self::Soft(soft) => &soft.rows,
            Self::Scores(scores) => &scores.rows,
            Self::Hard(votes) => &votes.rows,
        }
    }

    /// Calls `learn` with the training target for the samples.
    pub fn teach<T>(&self, learn: impl FnOnce(Target<'_>) -> T) -> T {
        match self {
            Self::Soft(soft) => learn(Target::Soft(soft.values.view())),
            Self::Scores(scores) => learn(Target::Scores(scores.values.view())),
            Self::Hard(votes) => learn(Target::Classes(&votes.labels.column(0).to_vec())),
        }
    }

    /// Returns the loss to train with.
    pub fn loss(&self, labels: &Labels) -> Loss {
        match self {
            Self::Scores(_) => labels.score_loss(),
            Self::Soft(_) | Self::Hard(_) => Loss::CrossEntropy,
        }
    }

    /// Returns them as probabilities, for parts that judge them.
    pub fn soft(&self) -> SoftLabels {
        match self {
            Self::Soft(soft) => soft.clone(),
            Self::Scores(z) => SoftLabels::new(z.rows.clone(), softmax(z.values.view(), 1.0)),
            Self::Hard(votes) => one_hot(votes),
        }
    }

    /// Keeps only the most probable class of each sample.
    pub fn hard(self) -> Self {
        let soft = self.soft();
        let (labels, classes) = (soft.labels(), soft.values.ncols());
        Self::Hard(votes(soft.rows, labels, classes))
    }

    /// Keeps only the rows at these positions.
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

/// Returns the true labels of these public samples, as probabilities.
pub(crate) fn truth(server: &Server<'_>, ids: Vec<u32>) -> Result<RoundLabels> {
    let public = server.public()?;
    let of = public.examples()?.classes().with_context(|| {
        Problem::Lacks(
            "data.public: `teacher: truth` needs one class for each public sample".into(),
        )
    })?;
    let labels = ids.iter().map(|id| of[*id as usize]).collect();
    let outputs = server.task().kind.outputs();
    Ok(RoundLabels::Soft(one_hot(&votes(ids, labels, outputs))))
}
