//! Optimisers and schedules on flat buffers, with the semantics of PyTorch's.

use crate::simd::{Strip, sum2, vectorised};
use fl_core::PassStep;
use fl_core::pulled;
use fl_core::settings::above;
use fl_core::{choices, settings};
use std::f64::consts::PI;

settings! {
    /// Stochastic gradient descent (`torch.optim.SGD`).
    pub struct Sgd {
        /// Learning rate.
        lr: f64, in above(0.0);
        /// Share of the last direction that is kept (PyTorch's default: none).
        momentum: f64 = 0.0, in 0.0..1.0;
        /// Look one step ahead (Nesterov).
        nesterov: bool = false;
        /// Adds this times the weights to the gradient.
        weight_decay: f64 = 0.0, in 0.0..;
    }
}

settings! {
    /// Adam (Kingma and Ba 2015; `torch.optim.Adam`, whose defaults these are).
    pub struct Adam {
        /// Learning rate.
        lr: f64 = 1e-3, in above(0.0);
        /// Decay of the mean of gradients.
        beta1: f64 = 0.9, in 0.0..1.0;
        /// Decay of the mean of squared gradients.
        beta2: f64 = 0.999, in 0.0..1.0;
        /// Added to the root of the mean square.
        eps: f64 = 1e-8, in above(0.0);
        /// Adds this times the weights to the gradient (L2, not decoupled).
        weight_decay: f64 = 0.0, in 0.0..;
    }
}

choices! {
    /// The optimiser: how weights follow gradients.
    pub enum Rule {
        /// Stochastic gradient descent.
        Sgd(Sgd) = "sgd",
        /// Adam.
        Adam(Adam) = "adam",
    }
}

settings! {
    /// The learning rate falls in steps (`StepLR`).
    pub struct Steps {
        /// Batches between two falls, counted since the optimiser was reset: in each round anew if
        /// the protocol has `fresh: true`, otherwise by each client over the whole run.
        every: usize, in 1..;
        /// Factor of the rate at each fall.
        factor: f64, in above(0.0);
    }
}

settings! {
    /// The learning rate falls along half a cosine (`CosineAnnealingLR`).
    pub struct Cosine {
        /// The last rate.
        to: f64 = 0.0, in 0.0..;
        /// Batches until the last rate, counted since the optimiser was reset: in each round anew
        /// if the protocol has `fresh: true`, otherwise by each client over the whole run. If not
        /// given, each training starts anew and ends at the last rate.
        steps: Option<usize> = None, in 1..;
    }
}

choices! {
    /// The schedule of the learning rate.
    pub enum Schedule {
        /// No change.
        Constant = "constant",
        /// In steps.
        Step(Steps) = "step",
        /// Along half a cosine.
        Cosine(Cosine) = "cosine",
    }
}

impl Schedule {
    /// Returns the number of batches since the reset of the optimiser that it takes to fall once,
    /// or to end if it falls all the time; `None` if each pass has all of it.
    pub fn length(&self) -> Option<usize> {
        match self {
            Self::Constant => None,
            Self::Step(s) => Some(s.every.saturating_add(1)),
            Self::Cosine(c) => c.steps,
        }
    }

    /// Returns the rate that it keeps after [`Schedule::length`] batches, if it ends.
    pub fn end(&self) -> Option<f64> {
        match self {
            Self::Cosine(c) => c.steps.map(|_| c.to),
            Self::Constant | Self::Step(_) => None,
        }
    }

    /// Returns whether each pass has all of it.
    pub fn follows_pass(&self) -> bool {
        matches!(self, Self::Cosine(Cosine { steps: None, .. }))
    }

    /// Returns the rate of batch `done` since the reset of the optimiser, which is batch `at` of
    /// `of` of its pass.
    pub fn rate(&self, lr: f64, done: u64, at: usize, of: usize) -> f64 {
        match self {
            Self::Constant => lr,
            Self::Step(s) => lr * libm::pow(s.factor, (done / s.every as u64) as f64),
            Self::Cosine(c) => {
                let (at, of) = c
                    .steps
                    .map_or((at as f64, of as f64), |steps| (done as f64, steps as f64));
                c.to + (lr - c.to) * (1.0 + libm::cos(PI * (at / of).min(1.0))) / 2.0
            }
        }
    }
}

/// A rule and its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimiser {
    /// The rule.
    pub rule: Rule,
    /// The schedule of its rate.
    pub schedule: Schedule,
    /// Its state.
    pub state: State,
}

/// The state of an optimiser between batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Batches since the reset.
    pub done: u64,
    /// Momentum, or the mean of gradients; empty before the first batch and for plain gradient
    /// descent.
    pub first: Vec<f32>,
    /// Mean of squared gradients; empty before the first batch and for gradient descent.
    pub second: Vec<f32>,
}

impl Optimiser {
    /// Returns an optimiser before its first batch.
    pub fn new(rule: Rule, schedule: Schedule) -> Self {
        Self {
            rule,
            schedule,
            state: State::default(),
        }
    }

    /// Returns whether every step is the same rate times the gradient.
    pub fn is_plain(&self) -> bool {
        matches!(&self.rule, Rule::Sgd(sgd) if sgd.momentum == 0.0)
            && self.schedule == Schedule::Constant
    }

    /// Returns the momentum, if every step is the same rate times the plain sum of gradients that
    /// it makes (no Nesterov).
    pub fn momentum(&self) -> Option<f64> {
        match &self.rule {
            Rule::Sgd(sgd) if sgd.momentum > 0.0 && !sgd.nesterov => {
                (self.schedule == Schedule::Constant).then_some(sgd.momentum)
            }
            _ => None,
        }
    }

    /// Returns whether its steps add a multiple of the weights to the gradient.
    pub fn decays(&self) -> bool {
        let decay = match &self.rule {
            Rule::Sgd(sgd) => sgd.weight_decay,
            Rule::Adam(adam) => adam.weight_decay,
        };
        decay > 0.0
    }

    /// Returns whether it has a first and a second moment after a step.
    pub fn moments(&self) -> [bool; 2] {
        match &self.rule {
            _ if self.state.done == 0 => [false, false],
            Rule::Sgd(sgd) => [sgd.momentum != 0.0, false],
            Rule::Adam(_) => [true, true],
        }
    }

    /// Returns the rate of the next batch, if it is the first of its pass.
    pub fn rate(&self) -> f64 {
        let lr = match &self.rule {
            Rule::Sgd(s) => s.lr,
            Rule::Adam(a) => a.lr,
        };
        self.schedule.rate(lr, self.state.done, 0, 1)
    }

    /// Returns the move of each weight for this step of a pass; counts it.
    pub fn advance(&mut self, step: &PassStep) -> Move {
        let (lr, decay) = match &self.rule {
            Rule::Sgd(s) => (s.lr, s.weight_decay as f32),
            Rule::Adam(a) => (a.lr, a.weight_decay as f32),
        };
        let lr = step.rate * self.schedule.rate(lr, self.state.done, step.at, step.of);
        self.state.done += 1;
        match &self.rule {
            Rule::Sgd(s) if s.momentum == 0.0 => Move::Plain {
                rate: lr as f32,
                decay,
            },
            Rule::Sgd(s) => Move::Momentum {
                rate: lr as f32,
                decay,
                keep: s.momentum as f32,
                nesterov: s.nesterov,
            },
            Rule::Adam(a) => {
                let t = self.state.done as f64;
                let (fix1, fix2) = (1.0 - libm::pow(a.beta1, t), 1.0 - libm::pow(a.beta2, t));
                Move::Adam(AdamMove {
                    rate: (lr / fix1) as f32,
                    root: fix2.sqrt().recip() as f32,
                    beta1: a.beta1 as f32,
                    beta2: a.beta2 as f32,
                    rest1: (1.0 - a.beta1) as f32,
                    rest2: (1.0 - a.beta2) as f32,
                    eps: a.eps as f32,
                    decay,
                })
            }
        }
    }

    /// Moves `weights` by this step of a pass.
    pub fn step(&mut self, weights: &mut [f32], gradient: &[f32], step: &PassStep) {
        self.advance(step).apply(weights, gradient, &mut self.state);
    }
}

impl Move {
    /// Moves `weights` along `gradient`; uses and updates `state`.
    pub fn apply(self, weights: &mut [f32], gradient: &[f32], state: &mut State) {
        let State { first, second, .. } = state;
        let both = weights.iter_mut().zip(gradient);
        match self {
            Move::Plain { rate, decay } => {
                let descent = Descent { rate, decay };
                vectorised(
                    #[inline(always)]
                    || both.for_each(|(w, g)| *w = descent.next(*w, *g)),
                );
            }
            Move::Momentum {
                rate,
                decay,
                keep,
                nesterov,
            } => {
                first.resize(gradient.len(), 0.0);
                vectorised(
                    #[inline(always)]
                    || {
                        for ((w, g), m) in both.zip(first) {
                            let g = g + decay * *w;
                            *m = keep * *m + g;
                            *w -= rate * if nesterov { g + keep * *m } else { *m };
                        }
                    },
                );
            }
            Move::Adam(r) => {
                first.resize(gradient.len(), 0.0);
                second.resize(gradient.len(), 0.0);
                vectorised(
                    #[inline(always)]
                    || {
                        for (((w, g), m), v) in both.zip(first).zip(second) {
                            let g = g + r.decay * *w;
                            *m = r.beta1 * *m + r.rest1 * g;
                            *v = r.beta2 * *v + r.rest2 * g * g;
                            *w -= r.rate * *m / (v.sqrt() * r.root + r.eps);
                        }
                    },
                );
            }
        }
    }
}

/// Plain gradient descent. It needs the weight and the gradient only, so it can follow where a
/// gradient is computed.
#[derive(Clone, Copy, Debug)]
pub struct Descent {
    /// Learning rate.
    pub rate: f32,
    /// Weight decay.
    pub decay: f32,
}

impl Descent {
    /// Returns the next weight.
    #[inline(always)]
    pub fn next(self, weight: f32, gradient: f32) -> f32 {
        weight - self.rate * (gradient + self.decay * weight)
    }

    /// As [`Descent::next`], each, with the same bits: a product is rounded, then added.
    #[inline(always)]
    pub fn next_each<S: Strip>(
        self,
        strip: S,
        weights: S::Vector,
        gradient: S::Vector,
    ) -> S::Vector {
        // adding -0 changes no product, not even the sign of a 0
        let [rate, decay, none] = [-self.rate, self.decay, -0.0].map(
            #[inline(always)]
            |x| strip.splat(x),
        );
        let pull = strip.fused_each(decay, weights, none);
        let slope = strip.add_each(gradient, pull);
        strip.add_each(weights, strip.fused_each(rate, slope, none))
    }

    /// Turns a gradient into the next weights.
    pub fn replace(self, gradient: &mut [f32], weights: &[f32]) {
        vectorised(
            #[inline(always)]
            || {
                let both = gradient.iter_mut().zip(weights);
                both.for_each(|(g, w)| *g = self.next(*w, *g));
            },
        );
    }
}

/// The move of each weight for one batch.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// `w -= rate (g + decay w)`.
    Plain {
        /// Learning rate.
        rate: f32,
        /// Weight decay.
        decay: f32,
    },
    /// The same with momentum.
    Momentum {
        /// Learning rate.
        rate: f32,
        /// Weight decay.
        decay: f32,
        /// Share of the last direction that is kept.
        keep: f32,
        /// Look one step ahead.
        nesterov: bool,
    },
    /// Adam.
    Adam(AdamMove),
}

/// One step of Adam, with its corrections for the first batches.
#[derive(Clone, Copy, Debug)]
pub struct AdamMove {
    /// Learning rate over the correction of the mean.
    pub rate: f32,
    /// Reciprocal root of the correction of the squares.
    pub root: f32,
    /// Decay of the mean of gradients.
    pub beta1: f32,
    /// Decay of the mean of squares.
    pub beta2: f32,
    /// `1 - beta1`.
    pub rest1: f32,
    /// `1 - beta2`.
    pub rest2: f32,
    /// Added to the root.
    pub eps: f32,
    /// Weight decay.
    pub decay: f32,
}

/// Squares that clipping sums together: a sum of millions of squares in f32 loses digits.
pub const CLIP_BLOCK: usize = 4096;

/// Scales a gradient down to Euclidean norm `most`, if it is longer.
pub fn clip(gradient: &mut [f32], most: f32) {
    let squares = gradient.chunks(CLIP_BLOCK).map(|block| {
        vectorised(
            #[inline(always)]
            || sum2(block, block, |a, b| a * b),
        )
    });
    if let Some(factor) = clip_factor(squares, most) {
        gradient.iter_mut().for_each(|g| *g *= factor);
    }
}

/// Returns the factor of a gradient, from the sums of its squares, block by block; `None` if it is
/// short enough.
pub fn clip_factor(squares: impl Iterator<Item = f32>, most: f32) -> Option<f32> {
    let length = squares.map(f64::from).sum::<f64>().sqrt();
    (length > f64::from(most)).then(|| (f64::from(most) / length) as f32)
}

/// `gradient += factor * (weights - anchor)`: FedProx's proximal term (Li et al. 2020).
pub fn proximal(gradient: &mut [f32], weights: &[f32], anchor: &[f32], factor: f32) {
    let all = gradient.iter_mut().zip(weights).zip(anchor);
    vectorised(
        #[inline(always)]
        || all.for_each(|((g, w), a)| *g = pulled(*g, *w, *a, factor)),
    );
}

/// `gradient += gradient_offset`: SCAFFOLD's correction (Karimireddy et al. 2020).
pub fn gradient_offset(gradient: &mut [f32], gradient_offset: &[f32]) {
    vectorised(
        #[inline(always)]
        || {
            gradient
                .iter_mut()
                .zip(gradient_offset)
                .for_each(|(g, d)| *g += d)
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rule: Rule, steps: usize) -> Vec<f32> {
        let (mut o, mut w) = (
            Optimiser::new(rule, Schedule::Constant),
            vec![1.0, -2.0, 0.5],
        );
        for _ in 0..steps {
            let g: Vec<f32> = w.iter().map(|w| 2.0 * w + 0.3).collect();
            o.step(&mut w, &g, &PassStep::new(0, 1));
        }
        w
    }

    /// The expected numbers are those of `torch.optim` 2.x on the same problem.
    #[test]
    fn close_three_steps_are_pytorchs() {
        let sgd = |momentum, nesterov, weight_decay| {
            Rule::Sgd(Sgd {
                lr: 0.1,
                momentum,
                nesterov,
                weight_decay,
            })
        };
        let adam = |weight_decay| {
            Rule::Adam(Adam {
                lr: 0.1,
                beta1: 0.9,
                beta2: 0.999,
                eps: 1e-8,
                weight_decay,
            })
        };
        let cases = [
            ("sgd", sgd(0.0, false, 0.01), TORCH[0]),
            ("momentum", sgd(0.9, false, 0.01), TORCH[1]),
            ("nesterov", sgd(0.9, true, 0.01), TORCH[2]),
            ("adam", adam(0.0), TORCH[3]),
            ("adam with decay", adam(0.01), TORCH[4]),
        ];
        for (name, rule, wanted) in cases {
            for (a, b) in run(rule, 3).iter().zip(wanted) {
                assert!((a - b).abs() < 2e-6, "{name}: {a}, PyTorch {b}");
            }
        }
    }

    const TORCH: [[f32; 3]; 5] = [
        [0.4369603, -1.093287, 0.1819192],
        [-0.08237387, -0.2569564, -0.1114709],
        [-0.2775691, 0.05738413, -0.2217436],
        [0.701298, -1.700688, 0.2030971],
        [0.7012992, -1.700687, 0.203103],
    ];

    #[test]
    fn a_cosine_ends_where_it_should() {
        let cosine = Schedule::Cosine(Cosine {
            to: 0.001,
            steps: None,
        });
        assert_eq!(cosine.rate(0.0025, 77, 0, 10), 0.0025);
        assert!((cosine.rate(0.0025, 77, 5, 10) - 0.00175).abs() < 1e-12);
        let fixed = Schedule::Cosine(Cosine {
            to: 0.0,
            steps: Some(100),
        });
        assert_eq!(
            (
                fixed.rate(1.0, 0, 3, 10),
                fixed.rate(1.0, 100, 3, 10),
                fixed.rate(1.0, 500, 3, 10)
            ),
            (1.0, 0.0, 0.0)
        );
        let steps = Schedule::Step(Steps {
            every: 10,
            factor: 0.5,
        });
        assert_eq!(
            (
                steps.rate(1.0, 9, 0, 1),
                steps.rate(1.0, 10, 0, 1),
                steps.rate(1.0, 29, 0, 1)
            ),
            (1.0, 0.5, 0.25)
        );
    }

    #[test]
    fn a_schedule_of_its_length_falls_and_a_shorter_pass_does_not_see_it() {
        let steps = Schedule::Step(Steps {
            every: 5,
            factor: 0.1,
        });
        let cosine = |steps| Schedule::Cosine(Cosine { to: 0.0, steps });
        assert_eq!(steps.length(), Some(6));
        let rate = |done| steps.rate(1.0, done, 0, 1);
        assert_eq!((rate(4), rate(5)), (1.0, 0.1));
        assert_eq!(cosine(Some(7)).length(), Some(7));
        assert_eq!(cosine(None).length(), None);
        assert_eq!(
            (cosine(Some(7)).end(), cosine(None).end()),
            (Some(0.0), None)
        );
        assert_eq!(steps.end(), None);
        assert_eq!(Schedule::Constant.length(), None);
    }

    #[test]
    fn clipping_shortens_only_what_is_too_long() {
        let mut g = vec![3.0, 4.0];
        clip(&mut g, 10.0);
        assert_eq!(g, [3.0, 4.0]);
        clip(&mut g, 1.0);
        assert!((g[0] - 0.6).abs() < 1e-6 && (g[1] - 0.8).abs() < 1e-6);
    }
}
