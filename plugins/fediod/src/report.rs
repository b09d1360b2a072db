//! Measurements of a round of the protocol.
use crate::frechet::Inception;
use crate::loss_terms::probabilities;
use crate::objective::{ClientAnswers, Outcome};
use crate::settings::GenerateAndDistill;
use fl_core::TaskKind;
use fl_core::prelude::*;

/// The measurements of one round.
pub(crate) struct Report {
    steps: usize,
    terms: [f64; 5],
    /// One for each client; `None` if an input has no single class.
    inception: Option<Vec<Inception>>,
}

impl Report {
    pub fn new(task: &Task) -> Self {
        Self {
            steps: 0,
            terms: [0.0; 5],
            inception: matches!(task.kind, TaskKind::Classes(_)).then(Vec::new),
        }
    }

    pub fn add(&mut self, said: &ClientAnswers, loss: &Outcome) {
        self.steps += 1;
        self.terms
            .iter_mut()
            .zip(loss.terms)
            .for_each(|(sum, term)| *sum += term);
        if let Some(inception) = &mut self.inception {
            inception.resize(said.scores.len(), Inception::default());
            for (score, z) in inception.iter_mut().zip(&said.scores) {
                score.add(probabilities(z.view(), 1.0).view());
            }
        }
    }

    pub fn record(
        &self,
        fed: &mut Server<'_>,
        round: &Round,
        of: &GenerateAndDistill,
    ) -> Result<()> {
        let terms = &of.terms;
        let weights = [
            terms.gan,
            terms.conf,
            terms.unique,
            terms.mimic,
            terms.balance,
        ];
        let names = ["gan", "conf", "unique", "mimic", "balance"];
        for ((name, weight), sum) in names.iter().zip(weights).zip(self.terms) {
            if weight > 0.0 {
                fed.record(round, &format!("generator.{name}"), sum / self.steps as f64)?;
            }
        }
        if let Some(inception) = &self.inception {
            let scores = inception.iter().map(Inception::score);
            let n = inception.len().max(1) as f64;
            fed.record(round, "generator.inception", scores.sum::<f64>() / n)?;
        }
        Ok(())
    }
}
