#![doc = include_str!("../README.md")]

mod gaussian;
mod sum;

pub use gaussian::GaussianNoise;
pub use sum::{Sum, finite};

use fl_core::message::GradientSum;
use fl_core::prelude::*;
use fl_core::privacy::{LEAST_CLIP, MinibatchSampling, Unit};
use fl_core::{Examples, Parametric, PassStep};

/// The slot of the mechanism that clips the gradient of every example, and adds noise to their sum.
pub const SLOT: MechanismSlot<GradientSum> = MechanismSlot::new(
    "example-privacy",
    "Clips the gradient of each of a client's examples, and adds noise to the sum of each step (DP-SGD).",
);

choices! {
    /// How a step draws its examples.
    pub enum MinibatchDraw {
        /// Each example with probability `rate`, independently (Poisson sampling): priced for an
        /// example that is added or removed.
        Poisson = "poisson",
        /// The share `rate` of them, rounded down, every such set equally likely: priced for an
        /// example that is replaced by another.
        Fixed = "fixed",
    }
}

settings! {
    /// How a step of DP-SGD draws a client's examples.
    pub struct Sampling {
        /// Share of the client's examples in a step; at 1, all of them, priced for an example that
        /// is replaced by another. The sum of their gradients is divided by `local.batch`, which
        /// should be about the number of examples in a step.
        rate: f64, in above_to(0.0, 1.0);
        /// How they are drawn.
        draw: MinibatchDraw = MinibatchDraw::Poisson;
    }
}

settings! {
    /// Clips the gradient of each example to an L2 norm and adds Gaussian noise to every number of
    /// their sum (DP-SGD, Abadi et al. 2016). Protects one example of one client.
    pub struct GaussianGradients {
        /// The largest L2 norm of the gradient of one example.
        clip: f64 = 1.0, in LEAST_CLIP..;
        /// Standard deviation of the noise, in multiples of `clip`.
        noise_multiplier: f64 = 1.0, in above(0.0);
    }
}

impl GaussianGradients {
    fn noise(&self) -> GaussianNoise {
        GaussianNoise {
            clip: self.clip,
            noise_multiplier: self.noise_multiplier,
            unit: Unit::Example,
        }
    }
}

impl PrivacyMechanism for GaussianGradients {
    type On = GradientSum;

    fn clip(&self, gradient: &mut GradientSum) -> Result<()> {
        self.noise().clip(&mut gradient.sum);
        Ok(())
    }

    fn norm_bound(&self) -> Option<f64> {
        Some(self.clip)
    }

    fn price(&self, _: &GradientSum, lot: &Cohort) -> Result<PrivacyEvent> {
        Ok(self.noise().price(lot))
    }

    fn perturb(&mut self, all: &mut GradientSum, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        self.noise().perturb(&mut all.sum, noise);
        Ok(())
    }
}
plugin!(privacy "gaussian-gradients" => GaussianGradients,
    aliases: ["dp-sgd"],
    papers: ["Abadi et al. 2016"]);

/// Returns the slot of a model that learns a client's own data in this way, if `sampling` is given.
pub fn learner(model: SlotSpec, sampling: Option<&Sampling>) -> SlotSpec {
    let model = model.through(&SLOT);
    model.needs_if(sampling.is_some(), Ability::ExampleGradients)
}

/// Declares the exchange that trains it.
pub fn declared<'p, D: Message, U: Message>(
    training: Declared<'p, D, U>,
    sampling: Option<&Sampling>,
    of: &Training,
) -> Declared<'p, D, U> {
    match lots(sampling, of) {
        Some(lots) => training.releases_steps(&SLOT, lots),
        None => training,
    }
}

/// Returns the steps of a training, if a mechanism protects the examples.
pub fn lots(sampling: Option<&Sampling>, training: &Training) -> Option<MinibatchSampling> {
    let sampling = sampling?;
    Some(MinibatchSampling {
        steps: training.steps?,
        rate: sampling.rate,
        fixed: sampling.draw == MinibatchDraw::Fixed,
    })
}

/// Returns the conflict of `sampling` with the slot, filled or empty.
pub fn conflict(
    has: &dyn Fn(&str) -> bool,
    sampling: Option<&Sampling>,
    training: &Training,
) -> Option<Conflict> {
    if has(&SLOT) && training.clip.is_some() {
        return Some(Conflict::no_effect(
            "local.clip",
            "with `example-privacy`, which clips the gradient of each example",
        ));
    }
    match (has(&SLOT), sampling, training.steps) {
        (true, None, _) | (true, _, None) => Some(Conflict::between(
            "`example-privacy` needs `sampling: { rate: .. }`, and `local.steps` in place of epochs: the number of steps must not depend on the number of a client's examples",
        )),
        (false, Some(_), _) => Some(Conflict::idle("sampling", &SLOT)),
        _ => None,
    }
}

/// Returns the sum of the gradients of single examples, each clipped.
fn clipped_sum(
    model: &mut dyn Parametric,
    examples: &Examples,
    lot: &[usize],
    mechanism: &dyn PrivacyMechanism<On = GradientSum>,
) -> Result<GradientSum> {
    let (mut sum, loss) = (Sum::like(&model.params()), examples.task().kind.loss());
    if let Some(clip) = mechanism.norm_bound().filter(|_| !lot.is_empty()) {
        let all = examples.pick(lot);
        let target = all.target();
        if let Some(sum) = model.clipped_gradients(&all.samples, target.view(), loss, clip)? {
            return Ok(GradientSum { sum });
        }
    }
    for at in lot {
        let one = examples.pick(&[*at]);
        let mut gradient = GradientSum {
            sum: model.gradient(&one.samples, one.target().view(), loss)?,
        };
        mechanism.clip(&mut gradient)?;
        sum.add(&gradient.sum)?;
    }
    Ok(GradientSum { sum: sum.total() })
}

/// The model in `model` learns a client's own examples:
/// `w <- w - lr (sum of clipped gradients + noise) / batch`, by its own optimiser.
///
/// # Errors
/// If `sampling` or the steps are not given; those of [`Client::release_steps`], and of the model.
pub fn train(
    client: &mut Client,
    model: &TrainerSlot,
    sampling: Option<&Sampling>,
    (training, rate): (&Training, f64),
) -> Result<()> {
    let lots = lots(sampling, training).context("`sampling` and `local.steps` are not given")?;
    let (examples, batch) = (client.own().clone(), training.batch as f64);
    let like = GradientSum {
        sum: client.parametric(model)?.params().zeros_like(),
    };
    client.release_steps(
        &SLOT,
        like,
        |client, lot, mechanism| {
            let model = client.parametric(model)?;
            clipped_sum(model, &examples, lot, mechanism.as_ref())
        },
        |client, at, GradientSum { mut sum }| {
            sum.scale(1.0 / batch);
            let of = lots.steps;
            client
                .parametric(model)?
                .descend(&sum, &PassStep { at, of, rate })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::{Inputs, Labels, Parts, Role, SlotAssignment, TaskKind, linked_parts};
    use fl_plugin_trainer_linear as _;
    use std::sync::Arc;

    fn part(clip: f64, noise_multiplier: f64) -> GaussianGradients {
        GaussianGradients {
            clip,
            noise_multiplier,
        }
    }

    #[test]
    fn noise_and_price_agree() {
        for (clip, noise_multiplier) in [(1.0, 1.0), (30.0, 0.2)] {
            fl_conformance::mechanism(|| part(clip, noise_multiplier));
        }
    }

    /// Returns nine examples around 0, and one at `last`.
    fn examples(last: f32) -> Examples {
        let mut draws = Stream::root(3).draws();
        let mut data: Vec<f32> = (0..20).map(|_| draws.normal() as f32).collect();
        data[18..].fill(last);
        let inputs = Inputs::Dense {
            shape: vec![2],
            data,
        };
        let labels = Labels::Classes {
            of: (0..10).map(|at| at % 2).collect(),
            classes: 2,
        };
        Examples::all(Arc::new(inputs), Arc::new(labels)).unwrap()
    }

    /// Returns the sum over all of them at the first weights of a linear model.
    fn sum(examples: &Examples, clip: f64) -> (Params, Params) {
        let decl = linked_parts()
            .into_iter()
            .find(|part| part.role == Role::Trainer && part.name == "linear")
            .unwrap();
        let parts = Parts::new(vec![SlotAssignment {
            slot: "model".into(),
            clients: None,
            decl,
            settings: decl.read(&fl_core::settings::Value::Null).unwrap(),
        }]);
        let context = BuildContext {
            task: Task {
                input: vec![2],
                kind: TaskKind::Classes(2),
            },
            stream: Stream::root(0),
        };
        let mut model: Box<dyn Trainer> =
            parts.build(Role::Trainer, "model", None, &context).unwrap();
        let model = model.parametric().unwrap();
        let classes = examples.classes().unwrap();
        let whole = model
            .gradient(
                &examples.samples,
                Target::Classes(&classes),
                Loss::CrossEntropy,
            )
            .unwrap();
        let lot: Vec<usize> = (0..examples.len()).collect();
        let sum = clipped_sum(model, examples, &lot, &part(clip, 1.0)).unwrap();
        (sum.sum, whole)
    }

    #[test]
    fn an_example_far_away_moves_the_sum_by_no_more_than_two_bounds() {
        let clip = 0.3;
        let (near, far) = (sum(&examples(0.1), clip).0, sum(&examples(1e4), clip).0);
        let moved = near.zip(&far, |a, b| a - b).unwrap().norm();
        assert!(moved > clip / 2.0 && moved <= 2.0 * clip, "{moved}");
        // without bounds the last example dominates the sum
        let moved = sum(&examples(1e4), 1e9).0.norm();
        assert!(moved > 1e3, "{moved}");
    }

    #[test]
    fn without_clipping_the_sum_is_the_gradient_of_all() {
        let (mut sum, whole) = sum(&examples(0.5), 1e9);
        sum.scale(0.1);
        let off = sum.zip(&whole, |a, b| a - b).unwrap().norm();
        assert!(off < 1e-6 * whole.norm(), "{off}");
    }
}
