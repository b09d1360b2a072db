//! Ensemble distillation at the server (FedDF, Lin et al. 2020).
use fl_core::loss;
use fl_core::prelude::*;
use fl_core::settings::above;
use ndarray::{Array2, ArrayView2};

choices! {
    /// How the clients' models teach together.
    pub enum TeacherOf {
        /// The softmax of the mean of their scores (FedDF).
        MeanScores = "mean-scores",
        /// The mean of their probabilities.
        MeanProbabilities = "mean-probabilities",
    }
}

settings! {
    /// The server's model, which starts at the combined parameters, learns what the clients' models say together about the
    /// public samples. Always the same number of mini-batches: FedDF stops early by a validation set that we do not ask for.
    pub struct Fuse {
        /// The server's training in one round, with an optimiser that starts anew. FedDF: Adam 0.001, batch 128, at most 10,000
        /// steps.
        training: Training = Training::steps(1000, 128);
        /// Temperature of the teachers' probabilities.
        temperature: f64 = 1.0, in above(0.0);
        /// How the clients' models teach together.
        teacher: TeacherOf = TeacherOf::MeanScores;
    }
}

/// Probabilities (`samples x classes`) from the scores of several models for the same samples; every model counts alike.
pub fn teacher<T: Into<f64> + Copy>(
    models: &[ArrayView2<'_, T>],
    how: &TeacherOf,
    tau: f64,
) -> Array2<f64> {
    let mut sum = Array2::<f64>::zeros(models.first().map_or((0, 0), |m| m.dim()));
    for scores in models {
        for (mut sum, scores) in sum.rows_mut().into_iter().zip(scores.rows()) {
            let mut row: Vec<f64> = scores.iter().map(|v| (*v).into()).collect();
            if *how == TeacherOf::MeanProbabilities {
                loss::softmax(&mut row, tau);
            }
            sum.iter_mut().zip(row).for_each(|(s, v)| *s += v);
        }
    }
    sum.mapv_inplace(|s| s / models.len() as f64);
    if *how == TeacherOf::MeanScores {
        for mut row in sum.rows_mut() {
            let mut wide = row.to_vec();
            loss::softmax(&mut wide, tau);
            row.iter_mut().zip(wide).for_each(|(r, p)| *r = p);
        }
    }
    sum
}

impl Fuse {
    /// The server's parameters after it has learnt from what was `sent`, starting at `mean`.
    pub(crate) fn distil(
        &self,
        fed: &mut Federation<'_>,
        round: &Round,
        sent: &Inbox<Params>,
        mean: &Params,
    ) -> Result<Params> {
        let public = fed.public()?;
        let mut scores = Vec::with_capacity(sent.len());
        for mail in sent.iter() {
            fed.parametric("model")?.set_params(&mail.body)?;
            scores.push(fed.model("model")?.predict(public.samples())?);
        }
        let views: Vec<ArrayView2<'_, f32>> = scores.iter().map(|s| s.view()).collect();
        let target = teacher(&views, &self.teacher, self.temperature).mapv(|p| p as f32);
        fed.parametric("model")?.set_params(mean)?;
        let pass = Pass {
            fresh: true,
            ..self.training.pass(Loss::CrossEntropy)
        };
        let stream = round.stream.child("fuse", 0);
        fed.fit(
            "model",
            &stream,
            public.samples(),
            Target::Soft(target.view()),
            &pass,
        )?;
        Ok(fed.parametric("model")?.params())
    }
}
