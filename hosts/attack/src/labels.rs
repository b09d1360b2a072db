//! Attack that infers the classes of the inputs of a gradient.

use crate::gradient::parameters;
use anyhow::Result;
use fl_core::message::Params;
use fl_core::{Examples, Loss, Samples, Target, Trainer};
use ndarray::{Array1, ArrayD};

/// The most public examples of a class to use.
const ENOUGH: usize = 100;

/// Passes of least squares over the classes.
const PASSES: usize = 1000;

/// Returns the classes of the `n` inputs of a gradient of the cross-entropy, at any scale,
/// ascending.
///
/// The slope by the last layer's bias is the mean of `p - onehot` over the inputs, with the model's
/// probabilities `p`. For one input it is below 0 exactly at its class (iDLG; Zhao, Mopuri, Bilen
/// 2020). For more, `p` is unknown, but the last layer's gradient for `public` examples of a class
/// is known (the auxiliary knowledge of LLG+; Wainakh et al. 2022). The result is the list of
/// classes whose gradients together have the observed direction. It is found by non-negative least
/// squares, rounded, and then by exchanges of one class for another while that improves the fit.
/// `None` if no tensor is the bias of a last layer.
///
/// # Errors
/// If the model has no parameters, or others.
pub fn labels(
    model: &mut dyn Trainer,
    sent: &Params,
    gradient: &Params,
    public: &Examples,
    n: usize,
) -> Result<Option<Vec<u32>>> {
    let Some(bias) = last_bias(model, sent, &public.pick(&[0]).samples)? else {
        return Ok(None);
    };
    let slope = gradient.0[&bias].iter().enumerate();
    if n == 1 {
        let least = slope.min_by(|a, b| a.1.total_cmp(b.1));
        return Ok(Some(
            least.map(|(class, _)| class as u32).into_iter().collect(),
        ));
    }
    // the bias alone cannot separate some of each class from twice as many: if an untrained model
    // treats all classes equally, they add up to 0
    let weight = bias.replace("bias", "weight");
    let last = |of: &Params| -> Array1<f64> {
        let both =
            of.0.iter()
                .filter(|(name, _)| **name == bias || **name == weight);
        both.flat_map(|(_, tensor)| tensor)
            .map(|g| f64::from(*g))
            .collect()
    };
    parameters(model)?.set_params(sent)?;
    let mut each = Vec::new();
    for (class, _) in slope {
        each.push(last(&of_class(model, public, class as u32)?));
    }
    Ok(Some(nearest(&last(gradient), &each, n)))
}

/// Returns the gradient of public examples of a class; without any, that of other examples with
/// this label.
fn of_class(model: &mut dyn Trainer, public: &Examples, class: u32) -> Result<Params> {
    let of = public.classes().unwrap_or_default();
    let of_it = (0..of.len()).filter(|at| of[*at] == class);
    let mut at: Vec<usize> = of_it.take(ENOUGH).collect();
    if at.is_empty() {
        at = (0..public.len().min(ENOUGH)).collect();
    }
    let classes = vec![class; at.len()];
    let samples = public.samples.pick(&at);
    parameters(model)?.gradient(&samples, Target::Classes(&classes), Loss::CrossEntropy)
}

/// Returns the bias of the last layer: the tensor whose changes change the scores by the same
/// numbers and nothing else.
fn last_bias(model: &mut dyn Trainer, sent: &Params, input: &Samples) -> Result<Option<String>> {
    parameters(model)?.set_params(sent)?;
    let before = model.predict(input)?;
    let by = |class: usize| (class + 1) as f32;
    for (name, tensor) in &sent.0 {
        if tensor.shape() != [before.ncols()] {
            continue;
        }
        let mut moved = sent.clone();
        let by_class = ArrayD::from_shape_fn(tensor.raw_dim(), |at| by(at[0]));
        moved.0.insert(name.clone(), tensor + &by_class);
        parameters(model)?.set_params(&moved)?;
        let after = model.predict(input)?;
        let scores = after.row(0).into_iter().zip(before.row(0)).enumerate();
        let mut left = scores.map(|(class, (after, before))| after - before - by(class));
        if left.all(|left| left.abs() < 0.01) {
            return Ok(Some(name.clone()));
        }
    }
    Ok(None)
}

/// Returns the `n` of `each` (with repeats if needed), ascending, whose sum is nearest to the
/// direction of `seen`.
fn nearest(seen: &Array1<f64>, each: &[Array1<f64>], n: usize) -> Vec<u32> {
    let cosine = |of: &Array1<f64>| of.dot(seen) / of.dot(of).sqrt().max(f64::MIN_POSITIVE);
    let best = |sum: &Array1<f64>| {
        let with = each.iter().map(|one| cosine(&(sum + one))).enumerate();
        let most = with.max_by(|a, b| a.1.total_cmp(&b.1));
        most.unwrap_or((0, f64::NEG_INFINITY))
    };
    let mut found = rounded(&shares(seen, each), n);
    let all = found.iter().map(|class| &each[*class]);
    let mut sum = all.fold(Array1::zeros(seen.len()), |sum, one| sum + one);
    loop {
        let now = cosine(&sum);
        let exchanged = (0..n).map(|at| (at, best(&(&sum - &each[found[at]]))));
        let most = exchanged.max_by(|a, b| a.1.1.total_cmp(&b.1.1));
        // a gain by rounding only does not count
        let better = most.filter(|(_, (_, then))| then - now > 1e-9 * now.abs());
        let Some((at, (class, _))) = better else {
            break;
        };
        sum = &sum - &each[found[at]] + &each[class];
        found[at] = class;
    }
    found.sort_unstable();
    found.into_iter().map(|class| class as u32).collect()
}

/// Returns the non-negative shares of each of `each` in `seen`: least squares, coordinate by
/// coordinate.
fn shares(seen: &Array1<f64>, each: &[Array1<f64>]) -> Vec<f64> {
    let mut shares = vec![0.0; each.len()];
    let mut left = seen.clone();
    for _ in 0..PASSES {
        for (share, one) in shares.iter_mut().zip(each) {
            let by = left.dot(one) / one.dot(one).max(f64::MIN_POSITIVE);
            let by = by.max(-*share);
            left.scaled_add(-by, one);
            *share += by;
        }
    }
    shares
}

/// Distributes `n` by these shares: whole numbers first, then by the largest remainders.
fn rounded(shares: &[f64], n: usize) -> Vec<usize> {
    let sum = shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let mut due: Vec<f64> = shares.iter().map(|share| share / sum * n as f64).collect();
    let mut found = Vec::with_capacity(n);
    for _ in 0..n {
        let most = (0..due.len()).max_by(|a, b| due[*a].total_cmp(&due[*b]));
        let class = most.unwrap_or(0);
        due[class] -= 1.0;
        found.push(class);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradient::tests::{WIDTH, linear, seen};
    use fl_core::{FitOptions, FitReport, Inputs, Labels, Parametric, Stream};
    use ndarray::Array2;
    use std::sync::Arc;

    /// Returns inputs at a distance `spread` around a point of their class.
    fn inputs(of: &[u32], spread: f64, seed: u64) -> Array2<f32> {
        let mut draws = Stream::root(seed).draws();
        Array2::from_shape_fn((of.len(), WIDTH), |(row, at)| {
            f32::from(u8::from(at == of[row] as usize)) + (spread * draws.normal()) as f32
        })
    }

    fn public(of: &[u32]) -> Examples {
        let inputs = Inputs::Dense {
            shape: vec![WIDTH],
            data: inputs(of, 0.1, 5).into_iter().collect(),
        };
        let of = of.to_vec();
        Examples::all(
            Arc::new(inputs),
            Arc::new(Labels::Classes { of, classes: 3 }),
        )
        .unwrap()
    }

    #[test]
    fn exact_the_class_of_one_input_is_where_the_last_bias_falls() {
        let mut model = linear();
        for class in 0..3 {
            // the opposite of the public ones, and at another scale
            let private = inputs(&[class], 0.1, 4) * -3.0;
            let mut seen = seen(model.as_mut(), &private, &[class]);
            seen.gradient.scale(1e-3);
            let public = public(&[0, 1, 2]);
            let found = labels(model.as_mut(), &seen.sent, &seen.gradient, &public, 1);
            assert_eq!(found.unwrap().unwrap(), [class]);
        }
    }

    /// A model whose scores are bounded, so that no bias is added to them.
    struct Bounded(Box<dyn Trainer>);

    impl Trainer for Bounded {
        fn fit(
            &mut self,
            x: &Samples,
            target: Target<'_>,
            pass: &FitOptions<'_>,
            stream: &Stream,
        ) -> Result<FitReport> {
            self.0.fit(x, target, pass, stream)
        }
        fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
            Ok(self.0.predict(x)?.mapv(libm::tanhf))
        }
        fn save(&self) -> Result<Vec<u8>> {
            self.0.save()
        }
        fn load(&mut self, model: &[u8]) -> Result<()> {
            self.0.load(model)
        }
        fn parametric(&mut self) -> Option<&mut dyn Parametric> {
            self.0.parametric()
        }
    }

    #[test]
    fn where_no_bias_is_last_nothing_is_found() {
        let mut model = linear();
        let seen = seen(model.as_mut(), &inputs(&[1], 1.0, 2), &[1]);
        let mut model = Bounded(model);
        let found = labels(&mut model, &seen.sent, &seen.gradient, &public(&[0]), 1);
        assert_eq!(found.unwrap(), None);
    }

    #[test]
    fn exact_the_classes_of_several_inputs_are_counted() {
        let mut model = linear();
        let known: Vec<u32> = (0..60).map(|at| at % 3).collect();
        for of in [
            vec![0, 1],
            vec![2, 2, 2],
            vec![0, 0, 0, 1, 2],
            vec![0, 1, 1, 1, 1, 1, 2, 2],
        ] {
            let mut seen = seen(model.as_mut(), &inputs(&of, 0.1, 9), &of);
            seen.gradient.scale(1e-3);
            let mut found = |known: &[u32]| {
                let public = public(known);
                let found = labels(
                    model.as_mut(),
                    &seen.sent,
                    &seen.gradient,
                    &public,
                    of.len(),
                );
                found.unwrap().unwrap()
            };
            assert_eq!(found(&known), of);
            // no examples of class 2 are known: the attack infers less, and does not fail
            let two: Vec<u32> = known.iter().map(|class| class % 2).collect();
            assert_eq!(found(&two).len(), of.len());
        }
    }

    #[test]
    fn exact_a_sum_is_taken_apart() {
        let mut draws = Stream::root(3).draws();
        for n in [2, 5, 9, 12, 15, 20, 25, 30] {
            let each: Vec<Array1<f64>> = (0..6)
                .map(|_| Array1::from_shape_simple_fn(8, || draws.normal()))
                .collect();
            let mut of: Vec<u32> = (0..n).map(|_| draws.below(6) as u32).collect();
            of.sort_unstable();
            let all = of.iter().map(|class| &each[*class as usize]);
            let sum = all.fold(Array1::zeros(8), |sum, one| sum + one);
            assert_eq!(nearest(&(sum * 0.01), &each, n), of);
        }
    }
}
