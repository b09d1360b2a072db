//! The server's loss on one batch, with its slopes by all answers.
use crate::ensemble::{Ensemble, shares};
use crate::loss_terms::{self, Term};
use crate::settings::{Classes, Discriminators, Divergence, GenerateAndDistill, Mimic, Weights};
use ndarray::{Array1, Array2};
use std::iter::repeat_n;

/// The answers for one batch: one entry for each client that answered. If every pixel has a class,
/// a pixel counts as an input of its own for classes, and shares the judgement of its image. `rows`
/// are then those of all pixels, one image after the other.
#[derive(Clone, Debug, Default)]
pub struct ClientAnswers {
    /// Teachers' scores, `rows x classes`.
    pub scores: Vec<Array2<f64>>,
    /// Discriminators' log-odds of "generated", one for each input; empty if there are none.
    pub odds: Vec<Array1<f64>>,
    /// The mean probability of "generated" of real inputs; empty if there are no discriminators.
    pub real: Vec<f64>,
}

impl ClientAnswers {
    /// Returns the number of rows per input.
    fn parts(&self) -> usize {
        let inputs = self.odds.first().map_or(0, |odds| odds.len());
        self.scores[0].nrows().checked_div(inputs).unwrap_or(1)
    }
}

/// The generator's loss, with the clients' weights.
pub struct Objective<'a> {
    of: &'a GenerateAndDistill,
    /// Each client's share of all examples.
    pi: Vec<f64>,
    prior: Vec<Array1<f64>>,
}

/// The loss on one batch.
pub struct Outcome {
    /// `gan`, `conf`, `unique`, `mimic` and `balance`, each before its weight; 0 for one that is
    /// left out.
    pub terms: [f64; 5],
    /// The value that the generator minimises: the weighted sum, with `mimic` subtracted.
    pub value: f64,
    /// Its slopes by each client's scores.
    pub by_scores: Vec<Array2<f64>>,
    /// Its slopes by each client's log-odds; empty without discriminators.
    pub by_odds: Vec<Array1<f64>>,
    /// Its slope by the student's scores.
    pub by_student: Array2<f64>,
}

/// The ensemble's answers.
pub struct TrainingTarget {
    ensemble: Ensemble,
    /// The teachers' scores or probabilities.
    values: Vec<Array2<f64>>,
    /// Their weighted sum.
    sum: Array2<f64>,
    /// The student's target: the sum, for probabilities divided by the sum of each row.
    pub target: Array2<f64>,
    /// Rows per input.
    parts: usize,
}

impl<'a> Objective<'a> {
    /// Makes the loss for clients with these numbers of examples per class. If classes do not
    /// count, each has one number in total, or none if unknown (equal weights).
    pub fn new(of: &'a GenerateAndDistill, counts: &[Vec<u32>]) -> Self {
        let classes = match &of.weights {
            Weights::Importance(importance) => &importance.classes,
            _ => &Classes::Proportions,
        };
        let sizes: Vec<f64> = counts
            .iter()
            .map(|of| of.iter().map(|n| f64::from(*n)).sum())
            .collect();
        let total: f64 = sizes.iter().sum();
        let even = 1.0 / counts.len() as f64;
        Self {
            of,
            pi: sizes
                .iter()
                .map(|n| if total > 0.0 { n / total } else { even })
                .collect(),
            prior: shares(counts, classes),
        }
    }

    /// Returns client `k`'s share of all examples.
    pub fn share(&self, k: usize) -> f64 {
        self.pi[k]
    }

    /// Returns the ensemble's answers for a batch (Eq. 8 and 9).
    pub fn wanted(&self, answers: &ClientAnswers) -> TrainingTarget {
        let parts = answers.parts();
        let odds = answers.odds.iter().map(|odds| {
            let each = odds.iter().flat_map(|odds| repeat_n(*odds, parts));
            each.collect()
        });
        let odds: Vec<Array1<f64>> = odds.collect();
        let about = (&odds[..], &answers.real[..]);
        let ensemble = Ensemble::new(
            &self.of.weights,
            &self.prior,
            &self.pi,
            about,
            answers.scores[0].dim(),
        );
        let values: Vec<_> = match self.of.mimic {
            Mimic::Kl => answers
                .scores
                .iter()
                .map(|z| loss_terms::probabilities(z.view(), self.of.tau))
                .collect(),
            _ => answers.scores.clone(),
        };
        let sum = ensemble.of(&values);
        let mut target = sum.clone();
        if self.of.mimic == Mimic::Kl {
            for mut row in target.rows_mut() {
                let total = row.sum();
                row /= total;
            }
        }
        TrainingTarget {
            ensemble,
            values,
            sum,
            target,
            parts,
        }
    }

    /// Returns the weight of each client's discriminator.
    fn rho(&self) -> Vec<f64> {
        let n = self.pi.len();
        match self.of.discriminators {
            Discriminators::Sum => vec![1.0; n],
            Discriminators::Sizes => self.pi.clone(),
            Discriminators::Mean => vec![1.0 / n as f64; n],
        }
    }

    /// Returns the generator's loss. `student`: its scores, if `terms.mimic` counts. Only `gan`
    /// counts if `warming`.
    pub fn of(
        &self,
        answers: &ClientAnswers,
        wanted: &TrainingTarget,
        student: &Array2<f64>,
        warming: bool,
    ) -> Outcome {
        let (terms, tau, pi) = (&self.of.terms, self.of.tau, &self.pi);
        let zeros = || {
            answers
                .scores
                .iter()
                .map(|z| Array2::zeros(z.dim()))
                .collect::<Vec<_>>()
        };
        let mut out = Outcome {
            terms: [0.0; 5],
            value: 0.0,
            by_scores: zeros(),
            by_odds: answers
                .odds
                .iter()
                .map(|o| Array1::zeros(o.len()))
                .collect(),
            by_student: Array2::zeros(answers.scores[0].dim()),
        };
        if terms.gan > 0.0 {
            let (value, slopes) = loss_terms::generated(&answers.odds, &self.rho(), &self.of.game);
            out.count(0, terms.gan, value);
            out.add_odds(terms.gan, &slopes);
        }
        if warming {
            return out;
        }
        let unique = || match self.of.divergence {
            Divergence::JensenShannon => loss_terms::unique(&answers.scores, pi, tau),
            Divergence::Published => loss_terms::published(&answers.scores, tau),
        };
        let conf = || loss_terms::confidence(&answers.scores, pi, tau);
        let balance = || loss_terms::balance(&answers.scores, pi, tau);
        let by_scores: [(usize, f64, &dyn Fn() -> Term); 3] = [
            (1, terms.conf, &conf),
            (2, terms.unique, &unique),
            (4, terms.balance, &balance),
        ];
        for (at, weight, term) in by_scores {
            if weight > 0.0 {
                let (value, slopes) = term();
                out.count(at, weight, value);
                out.add_scores(weight, &slopes);
            }
        }
        if terms.mimic > 0.0 {
            let (value, by_student, by_wanted) =
                loss_terms::mimic(&self.of.mimic, student, &wanted.target);
            let (by_scores, by_odds) = wanted.back(&by_wanted, tau, &self.of.mimic);
            out.count(3, -terms.mimic, value);
            out.by_student.scaled_add(-terms.mimic, &by_student);
            out.add_scores(-terms.mimic, &by_scores);
            out.add_odds(-terms.mimic, &by_odds);
        }
        out
    }
}

impl TrainingTarget {
    /// Converts the slope by [`TrainingTarget::target`] to those by scores and log-odds.
    fn back(
        &self,
        slope: &Array2<f64>,
        tau: f64,
        how: &Mimic,
    ) -> (Vec<Array2<f64>>, Vec<Array1<f64>>) {
        let mut slope = slope.clone();
        if *how != Mimic::Kl {
            let (by_scores, by_odds) = self.ensemble.back(&self.values, &self.sum, &slope);
            return (by_scores, self.of_inputs(by_odds));
        }
        // through the normalisation of each row
        for ((mut g, p), sum) in slope
            .rows_mut()
            .into_iter()
            .zip(self.target.rows())
            .zip(self.sum.rows())
        {
            let (mean, total) = (g.dot(&p), sum.sum());
            g.mapv_inplace(|g| (g - mean) / total);
        }
        let (by_p, by_odds) = self.ensemble.back(&self.values, &self.sum, &slope);
        let by_scores = by_p.into_iter().zip(&self.values);
        let by_scores = by_scores.map(|(by, p)| loss_terms::through_softmax(p, by, tau));
        (by_scores.collect(), self.of_inputs(by_odds))
    }

    /// Sums over the rows of each input.
    fn of_inputs(&self, by_row: Vec<Array1<f64>>) -> Vec<Array1<f64>> {
        let sums = by_row.iter().map(|by| {
            let inputs = by.exact_chunks(self.parts).into_iter();
            inputs.map(|rows| rows.sum()).collect()
        });
        sums.collect()
    }
}

impl Outcome {
    fn count(&mut self, at: usize, weight: f64, value: f64) {
        self.terms[at] = value;
        self.value += weight * value;
    }
    fn add_scores(&mut self, weight: f64, slopes: &[Array2<f64>]) {
        let both = self.by_scores.iter_mut().zip(slopes);
        both.for_each(|(all, more)| all.scaled_add(weight, more));
    }
    fn add_odds(&mut self, weight: f64, slopes: &[Array1<f64>]) {
        let both = self.by_odds.iter_mut().zip(slopes);
        both.for_each(|(all, more)| all.scaled_add(weight, more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Stream;
    use fl_core::settings::read_yaml;

    /// Checks every slope of the whole loss, for every reading, by central differences.
    #[test]
    fn slopes_are_those_of_the_loss() {
        let mut draws = Stream::root(5).draws();
        let mut table = |n, c| Array2::from_shape_simple_fn((n, c), || draws.normal());
        let answers = ClientAnswers {
            scores: (0..3).map(|_| table(4, 3)).collect(),
            odds: (0..3).map(|_| table(1, 4).row(0).to_owned()).collect(),
            real: vec![0.3, 0.5, 0.7],
        };
        let student = table(4, 3);
        // four inputs, then two of two pixels
        for inputs in [4, 2] {
            let cut = |odds: &Array1<f64>| odds.iter().copied().take(inputs).collect();
            let answers = ClientAnswers {
                odds: answers.odds.iter().map(cut).collect(),
                ..answers.clone()
            };
            every_slope(&answers, &student);
        }
    }

    fn every_slope(answers: &ClientAnswers, student: &Array2<f64>) {
        let counts = [vec![40, 10, 0], vec![10, 10, 20], vec![0, 60, 30]];
        for yaml in [
            "{}",
            "{terms: {balance: 10.0, unique: 0.5}, divergence: published, tau: 2.0, discriminators: sizes}",
            "{mimic: kl, tau: 1.5, game: linear, discriminators: mean}",
            "{mimic: absolute, weights: sizes}",
            "{weights: uniform, terms: {gan: 0.0, mimic: 3.0}}",
            "{weights: {importance: {classes: counts, discriminator: false}}, mimic: kl}",
        ] {
            let of: GenerateAndDistill = read_yaml(yaml).unwrap();
            let objective = Objective::new(&of, &counts);
            let value = |answers: &ClientAnswers, student: &Array2<f64>| {
                objective
                    .of(answers, &objective.wanted(answers), student, false)
                    .value
            };
            let exact = objective.of(answers, &objective.wanted(answers), student, false);
            let same = |exact: f64, n: f64, what: &str| {
                assert!(
                    (exact - n).abs() < 1e-7,
                    "{yaml} {what}: {exact}, differences {n}"
                );
            };
            for k in 0..3 {
                for place in ndarray::indices((4, 3)) {
                    let at = |d: f64| {
                        let mut answers = answers.clone();
                        answers.scores[k][place] += d;
                        value(&answers, student)
                    };
                    same(
                        exact.by_scores[k][place],
                        (at(1e-5) - at(-1e-5)) / 2e-5,
                        "scores",
                    );
                }
                for i in 0..answers.odds[k].len() {
                    let at = |d: f64| {
                        let mut answers = answers.clone();
                        answers.odds[k][i] += d;
                        value(&answers, student)
                    };
                    same(exact.by_odds[k][i], (at(1e-5) - at(-1e-5)) / 2e-5, "odds");
                }
            }
            for place in ndarray::indices((4, 3)) {
                let at = |d: f64| {
                    let mut student = student.clone();
                    student[place] += d;
                    value(answers, &student)
                };
                same(
                    exact.by_student[place],
                    (at(1e-5) - at(-1e-5)) / 2e-5,
                    "student",
                );
            }
        }
    }
}
