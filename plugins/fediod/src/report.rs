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

const INCEPTION: &str = "generator.inception";

/// Returns the name of each term of the generator's loss; `None` if it has no weight.
fn names(of: &GenerateAndDistill) -> [Option<String>; 5] {
    let terms = &of.terms;
    [
        ("gan", terms.gan),
        ("conf", terms.conf),
        ("unique", terms.unique),
        ("mimic", terms.mimic),
        ("balance", terms.balance),
    ]
    .map(|(name, weight)| (weight > 0.0).then(|| format!("generator.{name}")))
}

/// Returns what [`Report::record`] records.
pub(crate) fn measures(of: &GenerateAndDistill) -> Vec<Measurement> {
    let terms = names(of).into_iter().flatten();
    let all = terms.chain([INCEPTION.into()]);
    all.map(Measurement::number).collect()
}

impl Report {
    pub fn new(task: &Task) -> Self {
        Self {
            steps: 0,
            terms: [0.0; 5],
            inception: matches!(task.kind, TaskKind::Classes(_)).then(Vec::new),
        }
    }

    pub fn add(&mut self, answers: &ClientAnswers, loss: &Outcome) {
        self.steps += 1;
        self.terms
            .iter_mut()
            .zip(loss.terms)
            .for_each(|(sum, term)| *sum += term);
        if let Some(inception) = &mut self.inception {
            inception.resize(answers.scores.len(), Inception::default());
            for (score, z) in inception.iter_mut().zip(&answers.scores) {
                score.add(probabilities(z.view(), 1.0).view());
            }
        }
    }

    pub fn record(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        of: &GenerateAndDistill,
    ) -> Result<()> {
        for (name, sum) in names(of).into_iter().zip(self.terms) {
            if let Some(name) = name {
                server.record(round, &name, sum / self.steps as f64)?;
            }
        }
        if let Some(inception) = &self.inception {
            let scores = inception.iter().map(Inception::score);
            let n = inception.len().max(1) as f64;
            server.record(round, INCEPTION, scores.sum::<f64>() / n)?;
        }
        Ok(())
    }
}
