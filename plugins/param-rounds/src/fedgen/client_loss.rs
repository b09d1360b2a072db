//! The loss that FedGEN adds to a client's training (Zhu et al. 2021), from features that the
//! generator makes.
use fl_core::prelude::*;
use fl_core::{AuxiliaryLoss, AuxiliaryTerm, Head, Problem, loss};
use ndarray::{Array2, ArrayView2};
use std::fmt::{Debug, Formatter};

/// Adds two terms to the mean loss of a mini-batch of `n` examples `x` of classes `y`. The first,
/// `kl * mean KL(softmax(head(make(y))) || softmax(scores(x)))`, trains the whole model but not the
/// side of the made features. The second, `cross_entropy * mean CE(head(make(c)), c)` with `n`
/// classes `c` drawn uniformly, trains the head.
#[derive(Clone, Copy)]
pub struct GeneratedFeatures<F> {
    /// Makes features of these classes, `classes x features`, with randomness from the stream.
    pub make: F,
    /// Weight of the cross-entropy of made features.
    pub cross_entropy: f64,
    /// Weight of the divergence from the scores of made features of an example's class.
    pub kl: f64,
}

impl<F> Debug for GeneratedFeatures<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("GeneratedFeatures");
        shown.field("cross_entropy", &self.cross_entropy);
        shown.field("kl", &self.kl).finish_non_exhaustive()
    }
}

impl<F> AuxiliaryLoss for GeneratedFeatures<F>
where
    F: Fn(&[u32], &Stream) -> Result<Array2<f32>>,
{
    /// Draws classes and features from `stream`.
    fn of_batch(
        &self,
        head: &Head,
        target: Target<'_>,
        scores: ArrayView2<'_, f32>,
        stream: &Stream,
    ) -> Result<AuxiliaryTerm> {
        let Target::Classes(classes) = target else {
            let text = "made features are of one class each, so the examples must have classes";
            bail!(Problem::Lacks(text.into()));
        };
        let made = |classes: &[u32], label| -> Result<Array2<f64>> {
            let made = (self.make)(classes, &stream.child(label, 0))?;
            let due = (classes.len(), head.features());
            let text = || {
                format!(
                    "features of {:?} were made where {due:?} were due",
                    made.dim()
                )
            };
            Problem::shape_unless(made.dim() == due, text)?;
            Ok(made.mapv(f64::from))
        };
        let mut added = AuxiliaryTerm::nothing(head, scores);
        if self.kl > 0.0 {
            let like = made(classes, "alike")?;
            let like = head.scores(like.view()).mapv(|s| s as f32);
            let kl = Loss::Kl { tau: 1.0 };
            let (loss, slope) = loss::of_batch(kl, Target::Scores(like.view()), scores)?;
            added.loss += self.kl * loss;
            added.by_scores = slope * self.kl as f32;
        }
        if self.cross_entropy > 0.0 {
            let mut draws = stream.child("classes", 0).draws();
            let drawn = classes.iter().map(|_| draws.below(head.outputs()) as u32);
            let drawn: Vec<u32> = drawn.collect();
            let features = made(&drawn, "made")?;
            let scores = head.scores(features.view()).mapv(|s| s as f32);
            let target = Target::Classes(&drawn);
            let (loss, slope) = loss::of_batch(Loss::CrossEntropy, target, scores.view())?;
            added.loss += self.cross_entropy * loss;
            let slope = slope.mapv(|g| f64::from(g) * self.cross_entropy);
            added.by_head = Head::by_weights(features.view(), slope.view());
        }
        Ok(added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn head() -> Head {
        Head {
            weight: array![[0.3, -0.7], [1.1, 0.2], [-0.4, 0.9]],
            bias: array![0.1, -0.2, 0.05],
        }
    }

    /// Returns the features of a class, with noise.
    fn make(classes: &[u32], stream: &Stream) -> Result<Array2<f32>> {
        let mut draws = stream.draws();
        Ok(Array2::from_shape_fn((classes.len(), 2), |(i, j)| {
            (f64::from(classes[i]) - j as f64 + 0.3 * draws.normal()) as f32
        }))
    }

    type Make = fn(&[u32], &Stream) -> Result<Array2<f32>>;

    const MADE: GeneratedFeatures<Make> = GeneratedFeatures {
        make,
        cross_entropy: 2.5,
        kl: 0.7,
    };

    fn loss(head: &Head, scores: ArrayView2<'_, f32>) -> f64 {
        let stream = Stream::root(5);
        let target = Target::Classes(&[2, 0, 1, 1]);
        let added = MADE.of_batch(head, target, scores, &stream);
        added.unwrap().loss
    }

    fn scores() -> Array2<f32> {
        Array2::from_shape_fn((4, 3), |(i, j)| (i as f32 - j as f32) / 2.0)
    }

    #[test]
    fn close_slopes_are_those_of_the_loss() {
        let target = Target::Classes(&[2, 0, 1, 1]);
        let found = MADE.of_batch(&head(), target, scores().view(), &Stream::root(5));
        let found = found.unwrap();
        for (at, slope) in found.by_scores.indexed_iter() {
            let moved = |d: f32| {
                let mut scores = scores();
                scores[at] += d;
                loss(&head(), scores.view())
            };
            let n = (moved(0.01) - moved(-0.01)) / f64::from(0.02f32);
            assert!((f64::from(*slope) - n).abs() < 1e-4, "{at:?}: {slope}, {n}");
        }
        // the divergence depends on the head too, and must not train it
        let only = GeneratedFeatures { kl: 0.0, ..MADE };
        for (at, slope) in found.by_head.weight.indexed_iter() {
            let moved = |d: f64| {
                let mut head = head();
                head.weight[at] += d;
                let added = only.of_batch(&head, target, scores().view(), &Stream::root(5));
                added.unwrap().loss
            };
            let n = (moved(1e-3) - moved(-1e-3)) / 2e-3;
            assert!((slope - n).abs() < 1e-4, "{at:?}: {slope}, {n}");
        }
        let all: f64 = found.by_head.bias.sum();
        assert!(all.abs() < 1e-6, "probabilities add up to 1: {all}");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let refused = |made: &dyn AuxiliaryLoss, target: Target<'_>| {
            let found = made.of_batch(&head(), target, scores().view(), &Stream::root(5));
            found.unwrap_err().to_string()
        };
        let wide = |classes: &[u32], _: &Stream| Ok(Array2::zeros((classes.len(), 5)));
        let wide = GeneratedFeatures {
            make: wide,
            cross_entropy: 2.5,
            kl: 0.7,
        };
        let said = refused(&wide, Target::Classes(&[2, 0, 1, 1]));
        assert_eq!(said, "features of (4, 5) were made where (4, 2) were due");
        let soft = Array2::zeros((4, 3));
        let said = refused(&MADE, Target::Soft(soft.view()));
        assert!(said.contains("must have classes"), "{said}");
    }

    #[test]
    fn exact_weights_of_nothing_add_nothing() {
        let idle = GeneratedFeatures {
            cross_entropy: 0.0,
            kl: 0.0,
            ..MADE
        };
        let target = Target::Classes(&[2, 0, 1, 1]);
        let added = idle.of_batch(&head(), target, scores().view(), &Stream::root(5));
        let added = added.unwrap();
        assert_eq!(added.loss, 0.0);
        assert!(added.by_scores.iter().all(|g| *g == 0.0));
        assert!(added.by_head.weight.iter().all(|g| *g == 0.0));
    }
}
