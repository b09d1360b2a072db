//! Co-Boosting (Dai et al. 2024, algorithm 1).
use crate::ensemble::{Ensemble, weighted};
use crate::generator_loss::{Emphasis, Seen};
use crate::one_shot::{OneShot, OneShotRule, Shared};
use crate::pool::Pool;
use fl_core::loss::{self, softmax};
use fl_core::prelude::*;
use ndarray::Array2;

/// The published temperature of the generator's divergence.
const TEMPERATURE: f64 = 3.0;
/// The published factor of the step of a weight.
const DECAY: f64 = 0.99;

settings! {
    /// DENSE whose generator looks for inputs that the ensemble finds hard, and whose ensemble
    /// learns the weights of its models from them (Co-Boosting; Dai et al. 2024).
    pub struct CoBoosting {
        /// The power of `1 - p`, by which an input counts in the cross-entropy; `p` is the
        /// ensemble's probability of its label. Published code: 1.
        hardness: f64 = 1.0, in 0.0..=100.0;
        /// The temperature of the generator's divergence. Published code: 3.
        adversarial_temperature: f64 = TEMPERATURE, in above(0.0);
        /// The step of a model's weight in the ensemble, for each mini-batch of the pool. Published
        /// code: 0.01, with 10 clients, whose weights begin at 0.1 each; with more clients take
        /// less.
        weight_step: f64 = 0.01, in 0.0..=1.0;
        /// The factor of that step from round to round. Published code: 0.99.
        weight_decay: f64 = DECAY, in above_to(0.0, 1.0);
        /// How far each number of a made input moves before the student learns from it, as a share
        /// of the range of the made inputs. Published code: 8 of 255.
        shift: f64 = 0.031372549, in 0.0..=1.0;
    }
}

/// The temperature of the probabilities that a shift changes.
const SHIFT_TEMPERATURE: f64 = 4.0;

impl OneShotRule for CoBoosting {
    fn adversarial_temperature(&self) -> f64 {
        self.adversarial_temperature
    }

    fn conflicts(&self, adversarial: f64) -> Vec<Conflict> {
        let temperature =
            Conflict::no_effect("adversarial-temperature", "while `adversarial` is 0");
        let decay = Conflict::no_effect("weight-decay", "while `weight-step` is 0");
        [
            temperature.when(adversarial == 0.0 && self.adversarial_temperature != TEMPERATURE),
            decay.when(self.weight_step == 0.0 && self.weight_decay != DECAY),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn emphasis(&self, seen: &Seen) -> Emphasis {
        Emphasis {
            cross_entropy: libm::pow(1.0 - seen.likely, self.hardness),
            divergence: 1.0,
        }
    }

    /// Takes a step of each weight for each mini-batch of the pool.
    fn weigh(
        &self,
        ensemble: &mut Ensemble,
        weights: &mut Vec<f64>,
        pool: &Pool,
        (round, batch): (&Round, usize),
    ) -> Result<()> {
        if pool.is_empty() || self.weight_step == 0.0 {
            return Ok(());
        }
        let (x, labels) = pool.examples()?;
        let scores = ensemble.scores(&x)?;
        let pass = FitOptions::new(fl_core::Length::Epochs(1), batch, Loss::CrossEntropy);
        for rows in pass.batches(x.len(), &round.stream.child("weights", 0)) {
            let some = |z: &Array2<f64>| z.select(ndarray::Axis(0), &rows);
            let scores: Vec<Array2<f64>> = scores.iter().map(some).collect();
            let labels: Vec<u32> = rows.iter().map(|row| labels[*row]).collect();
            let slopes = slopes_by_weights(&scores, weights, &labels)?;
            step(weights, &slopes, self.length(round.number));
        }
        Ok(())
    }

    /// Moves each number by a fixed length along the sign of the slope of a random sum of the
    /// ensemble's probabilities.
    fn shifted(
        &self,
        ensemble: &mut Ensemble,
        weights: &[f64],
        x: Samples,
        stream: &Stream,
    ) -> Result<Samples> {
        if self.shift == 0.0 {
            return Ok(x);
        }
        let scores = weighted(&ensemble.scores(&x)?, weights);
        let mut draws = stream.draws();
        let by_p = Array2::from_shape_simple_fn(scores.dim(), || 2.0 * draws.uniform() - 1.0);
        let slope = ensemble.slope(weights, &x, &through_softmax(&scores, &by_p))?;
        let mut values = x.values();
        let range = values.iter().fold((f32::MAX, f32::MIN), |(low, high), v| {
            (low.min(*v), high.max(*v))
        });
        let length = (self.shift * f64::from(range.1 - range.0)) as f32;
        values.zip_mut_with(&slope, |v, g| *v += length * sign(*g) as f32);
        Samples::fresh(values, x.shape())
    }
}

impl CoBoosting {
    /// The step of a weight in a round, the first of which is 1.
    fn length(&self, round: usize) -> f64 {
        self.weight_step * libm::pow(self.weight_decay, round.saturating_sub(1) as f64)
    }
}
plugin!(protocol "co-boosting" => Shared<CoBoosting> as OneShot<CoBoosting>,
    papers: ["Dai et al. 2024"]);

/// -1, 0 or 1.
fn sign(x: f64) -> f64 {
    f64::from(i8::from(x > 0.0) - i8::from(x < 0.0))
}

/// The slope of `sum u softmax(z / T)` by the scores `z`.
fn through_softmax(scores: &Array2<f64>, u: &Array2<f64>) -> Array2<f64> {
    let mut by = u.clone();
    for (mut by, z) in by.rows_mut().into_iter().zip(scores.rows()) {
        let mut p = z.to_vec();
        softmax(&mut p, SHIFT_TEMPERATURE);
        let mean: f64 = by.iter().zip(&p).map(|(u, p)| u * p).sum();
        let each = by.iter_mut().zip(&p);
        each.for_each(|(u, p)| *u = p * (*u - mean) / SHIFT_TEMPERATURE);
    }
    by
}

/// The slopes of the ensemble's cross-entropy by the weight of each model.
fn slopes_by_weights(scores: &[Array2<f64>], weights: &[f64], labels: &[u32]) -> Result<Vec<f64>> {
    let all = weighted(scores, weights);
    let target = Target::Classes(labels);
    let (_, slope) = loss::of_batch(Loss::CrossEntropy, target, all.mapv(|z| z as f32).view())?;
    let slope = slope.mapv(f64::from);
    // d (sum w z / sum w) / d w_k = (z_k - all) / sum w; the sum changes no sign
    Ok(scores
        .iter()
        .map(|z| (&slope * &(z - &all)).sum())
        .collect())
}

/// `w <- clip(w - length * sign(slope), 0, 1)`.
fn step(weights: &mut [f64], slopes: &[f64], length: f64) {
    for (w, slope) in weights.iter_mut().zip(slopes) {
        *w = (*w - length * sign(*slope)).clamp(0.0, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ensemble::tests::pair;
    use fl_core::settings::read_yaml;
    use ndarray::array;

    #[test]
    fn exact_a_step_of_the_weights_follows_signs_and_keeps_their_range() {
        let mut weights = [0.5, 0.995, 0.005, 0.3];
        step(&mut weights, &[7.0, -1e-9, 2.0, 0.0], 0.01);
        assert_eq!(weights, [0.49, 1.0, 0.0, 0.3]);
    }

    #[test]
    fn slopes_by_weights_are_those_of_the_cross_entropy() {
        let mut draws = Stream::root(5).draws();
        let table = |_| Array2::from_shape_simple_fn((6, 3), || draws.normal());
        let scores: Vec<Array2<f64>> = (0..3).map(table).collect();
        let (weights, labels) = ([0.2, 0.5, 0.1], [0, 1, 2, 0, 1, 2]);
        let value = |weights: &[f64]| {
            let mean = weighted(&scores, weights);
            let each = mean.rows().into_iter().zip(labels).map(|(z, label)| {
                let mut p = z.to_vec();
                softmax(&mut p, 1.0);
                -libm::log(p[label as usize])
            });
            each.sum::<f64>() / 6.0
        };
        let exact = slopes_by_weights(&scores, &weights, &labels).unwrap();
        for at in 0..3 {
            let moved = |by: f64| {
                let mut weights = weights;
                weights[at] += by;
                value(&weights)
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            // the sum of the weights, 0.8, is left out
            assert!((exact[at] / 0.8 - slope).abs() < 1e-6, "{at}");
        }
    }

    #[test]
    fn close_the_weights_move_to_the_model_that_knows_the_labels() {
        let rule: CoBoosting = read_yaml("{weight-decay: 0.5}").unwrap();
        let (mut pool, mut weights) = (Pool::default(), vec![0.5, 0.5]);
        let x = array![[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]];
        let first = Round::first().with_stream(Stream::root(1));
        let turn = (&first, 2);
        rule.weigh(&mut pair(), &mut weights, &pool, turn).unwrap();
        assert_eq!(weights, [0.5, 0.5], "nothing to learn from");
        let x = Samples::fresh(x, vec![2]).unwrap();
        pool.add(&x, vec![0, 1, 0], 9);
        rule.weigh(&mut pair(), &mut weights, &pool, turn).unwrap();
        // two mini-batches of the first round
        assert!((weights[0] - 0.52).abs() < 1e-12 && (weights[1] - 0.48).abs() < 1e-12);
        assert!((rule.length(3) - 0.0025).abs() < 1e-15);
    }

    #[test]
    fn close_a_random_sum_of_probabilities_has_these_slopes() {
        let z = array![[0.3, -1.0, 2.0]];
        let u = array![[0.5, -0.7, 0.1]];
        let value = |z: &Array2<f64>| {
            let mut p = z.row(0).to_vec();
            softmax(&mut p, SHIFT_TEMPERATURE);
            p.iter().zip(&u).map(|(p, u)| p * u).sum::<f64>()
        };
        let exact = through_softmax(&z, &u);
        for class in 0..3 {
            let moved = |by: f64| {
                let mut z = z.clone();
                z[(0, class)] += by;
                value(&z)
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((exact[(0, class)] - slope).abs() < 1e-9);
        }
    }

    #[test]
    fn a_shift_is_a_share_of_the_range_in_each_number() {
        let rule: CoBoosting = read_yaml("{shift: 0.25}").unwrap();
        let before = array![[1.0, 0.0], [-1.0, 0.5]];
        let x = Samples::fresh(before.clone(), vec![2]).unwrap();
        let weights = [0.6, 0.2];
        let shifted = |seed| {
            let stream = Stream::root(seed);
            let moved = rule.shifted(&mut pair(), &weights, x.clone(), &stream);
            moved.unwrap().values() - &before
        };
        let moved = shifted(1);
        // the range is 2
        assert!(moved.iter().all(|by| by.abs() == 0.5), "{moved}");
        assert!(
            (2..9).any(|seed| shifted(seed) != moved),
            "the sum is random"
        );
    }

    #[test]
    fn close_hard_inputs_count_more() {
        let rule: CoBoosting = read_yaml("{hardness: 2.0}").unwrap();
        let seen = |likely| {
            rule.emphasis(&Seen {
                likely,
                agreed: true,
            })
        };
        assert!((seen(0.9).cross_entropy - 0.01).abs() < 1e-12);
        assert_eq!(seen(0.0).cross_entropy, 1.0);
        assert_eq!(seen(0.9).divergence, 1.0);
    }
}
