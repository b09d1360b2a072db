//! Distributions of the privacy loss `ln(P(x) / Q(x))`, `x ~ P`, on a grid.
//!
//! A loss between two points of the grid is split over both so that `P` and `Q` keep their mass
//! ("connect the dots", Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022). The pair on the grid
//! dominates the real one, so its results are upper bounds, with an error of the order of the
//! squared step.

use crate::gaussian_pair::{density, gaussian_loss, pieces, place_of, tail};
use crate::public_size::{Sizes, WithData, sizes};

/// One release, in terms of noise of standard deviation 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Release {
    /// Gaussian noise on numbers that a unit changes by `shift`, if it is in the Poisson sample,
    /// with probability `rate`.
    Poisson {
        /// Probability that a unit takes part.
        rate: f64,
        /// Sensitivity over standard deviation.
        shift: f64,
    },
    /// The same on a sample of fixed size, for a unit that is replaced (Balle, Barthe and Gaboardi
    /// 2018, theorem 11; Zhu, Dong and Wang 2022, theorem 11).
    Fixed {
        /// Share of the units that takes part.
        rate: f64,
        /// Sensitivity over standard deviation.
        shift: f64,
    },
    /// The same on a Poisson sample of public size, for a unit that is present with its data or
    /// without any.
    PublicSize {
        /// Number of units.
        of: usize,
        /// Probability that a unit takes part.
        rate: f64,
        /// Sensitivity over standard deviation.
        shift: f64,
    },
    /// Laplace noise, sensitivity over scale.
    Laplace(f64),
    /// Any mechanism of this pure epsilon; randomised response is the worst case (Kairouz, Oh and
    /// Viswanath 2015).
    Pure(f64),
}

/// The data set that was used, of two neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The one with the unit: the unit is removed.
    Removed,
    /// The one without the unit.
    Added,
}

/// The masses of the losses `h * (first + i)`.
#[derive(Clone, Debug)]
pub struct Losses {
    /// The grid point of the first mass.
    pub first: i64,
    /// The mass of each point.
    pub mass: Vec<f64>,
    /// Mass of an infinite loss.
    pub infinite: f64,
}

impl Release {
    /// Returns what says how much its noise hides: the shift, or the epsilon.
    pub fn noise(&mut self) -> &mut f64 {
        match self {
            Self::Poisson { shift: noise, .. }
            | Self::Fixed { shift: noise, .. }
            | Self::PublicSize { shift: noise, .. }
            | Self::Laplace(noise)
            | Self::Pure(noise) => noise,
        }
    }

    /// Returns whether its noise hides anything at all: beside what it is to hide, noise can be too
    /// small for a number.
    pub fn is_noisy(mut self) -> bool {
        self.noise().is_finite()
    }

    /// Returns an upper bound of the total variation of the pair.
    pub fn variation(&self) -> f64 {
        match *self {
            Self::Poisson { rate, shift } | Self::Fixed { rate, shift } => rate * 0.4 * shift,
            Self::PublicSize { of, rate, shift } => {
                let sizes = sizes(of, rate).into_iter();
                let share: f64 = sizes.map(|s| s.probability * s.share).sum();
                share * 0.4 * shift
            }
            Self::Laplace(epsilon) | Self::Pure(epsilon) => 0.5 * epsilon,
        }
        .min(1.0)
    }

    /// Returns whether both directions have the same losses.
    pub fn is_symmetric(&self) -> bool {
        match self {
            Self::Poisson { rate, .. } => *rate >= 1.0,
            Self::PublicSize { .. } => false,
            Self::Fixed { .. } | Self::Laplace(_) | Self::Pure(_) => true,
        }
    }

    /// Calls `put(loss, mass)` with losses that cover all mass of `P` within `cut` standard
    /// deviations. Returns the mass whose loss lies above all of them. No two losses of one
    /// quadrature lie on both sides of a multiple of `step`.
    pub fn visit(&self, way: Way, step: f64, cut: f64, put: &mut dyn FnMut(f64, f64)) -> f64 {
        let beyond = tail(-cut);
        match *self {
            Self::Pure(epsilon) => {
                let least = 1.0 / (1.0 + libm::exp(epsilon));
                put(epsilon, 1.0 - least);
                put(-epsilon, least);
                0.0
            }
            Self::Laplace(epsilon) => {
                // the mass beyond is less than that of a normal variable
                let far = epsilon.min(0.5 * cut * cut);
                put(epsilon, 0.5);
                put(epsilon - 2.0 * far, 0.5 * libm::exp(-far));
                let loss = |x: f64| epsilon + 2.0 * x;
                let place = |loss: f64| 0.5 * (loss - epsilon);
                cells(step, (-far, 0.0), &place, &loss, &mut |x, w| {
                    put(loss(x), w * 0.5 * libm::exp(x));
                });
                0.0
            }
            Self::Fixed { rate, shift } => {
                let (loss, place) = Self::both(rate, shift);
                let mut sum = 0.0;
                for range in ranges(shift, cut, 0.5 * shift) {
                    cells(step, range, &place, &loss, &mut |z, w| {
                        let q = w * density(z);
                        let p = (1.0 - rate) * q + rate * w * density(z - shift);
                        let loss = loss(z);
                        put(loss, p);
                        put(-loss, q);
                        sum += p + q;
                    });
                }
                let above = (1.0 - rate) * tail(-shift - cut) + rate * beyond;
                put(0.0, (1.0 - sum - above).max(0.0));
                above + beyond
            }
            Self::PublicSize { of, rate, shift } => {
                let mut above = 0.0;
                for Sizes { share, probability } in sizes(of, rate) {
                    let mut of_size = |loss: f64, mass: f64| put(loss, probability * mass);
                    above +=
                        probability * Self::of_size(share, shift, way, step, cut, &mut of_size);
                }
                above
            }
            Self::Poisson { rate, shift } => {
                let (loss, place) = Self::both(rate, shift);
                let all = ranges(shift, cut, f64::NEG_INFINITY);
                let lowest = loss(-cut);
                match way {
                    Way::Removed => {
                        for range in all {
                            cells(step, range, &place, &loss, &mut |z, w| {
                                let p = (1.0 - rate) * density(z) + rate * density(z - shift);
                                put(loss(z), w * p);
                            });
                        }
                        put(lowest, beyond);
                        // above all losses, or between two intervals that do not touch
                        2.0 * beyond
                    }
                    Way::Added => {
                        cells(step, (-cut, cut), &place, &loss, &mut |z, w| {
                            put(-loss(z), w * density(z));
                        });
                        put(-loss(cut), beyond);
                        beyond
                    }
                }
            }
        }
    }

    /// [`Release::visit`] for one share of the units.
    fn of_size(
        share: f64,
        shift: f64,
        way: Way,
        step: f64,
        cut: f64,
        outer: &mut dyn FnMut(f64, f64),
    ) -> f64 {
        if share == 0.0 {
            outer(0.0, 1.0);
            return 0.0;
        }
        let pair = WithData { share, shift };
        let mut sum = 0.0;
        let mut put = |loss, mass| {
            sum += mass;
            outer(loss, mass);
        };
        // the unit's data against none
        for range in ranges(2.0 * shift, cut, pair.from()) {
            let (place, loss) = (|loss| pair.place(loss), |z| pair.loss(z));
            cells(step, range, &place, &loss, &mut |z, w| match way {
                Way::Removed => put(pair.loss(z), w * pair.with(z)),
                Way::Added => put(-pair.loss(z), w * pair.without(z)),
            });
        }
        // none against the unit's data
        let (loss, place) = Self::both(share, shift);
        for range in ranges(shift, cut, 0.5 * shift) {
            cells(step, range, &place, &loss, &mut |z, w| match way {
                Way::Removed => put(-loss(z), w * density(z)),
                Way::Added => put(loss(z), w * pair.without(z)),
            });
        }
        // above all losses, or between two intervals that do not touch
        let above = 2.0 * tail(-cut);
        let rest = 1.0 - sum - above;
        outer(0.0, rest.max(0.0));
        above
    }

    fn both(rate: f64, shift: f64) -> (impl Fn(f64) -> f64, impl Fn(f64) -> f64) {
        (
            move |z| gaussian_loss(rate, shift, z),
            move |loss| place_of(rate, shift, loss),
        )
    }

    /// Returns the losses on a grid with this step.
    pub fn on_grid(&self, way: Way, step: f64, cut: f64) -> Losses {
        let (least, most) = self.range(cut);
        let first = (least / step).floor() as i64 - 1;
        let points = (most / step).ceil() as i64 + 2 - first;
        let mut mass = vec![0.0; points.max(2) as usize];
        let whole = -libm::expm1(-step);
        let infinite = self.visit(way, step, cut, &mut |loss, m| {
            let below = (loss / step).floor();
            let at = ((below as i64 - first).max(0) as usize).min(mass.len() - 2);
            let up = m * (-libm::expm1(below * step - loss) / whole).clamp(0.0, 1.0);
            mass[at + 1] += up;
            mass[at] += m - up;
        });
        let end = mass
            .iter()
            .rposition(|m| *m > 0.0)
            .map_or(1, |last| last + 1);
        mass.truncate(end);
        let start = mass.iter().position(|m| *m > 0.0).unwrap_or_default();
        mass.drain(..start);
        Losses {
            first: first + start as i64,
            mass,
            infinite,
        }
    }

    /// Returns a range that contains all losses, in both directions.
    pub fn range(&self, cut: f64) -> (f64, f64) {
        match *self {
            Self::Laplace(epsilon) | Self::Pure(epsilon) => (-epsilon, epsilon),
            Self::PublicSize { of, rate, shift } => {
                // the range grows with the share
                let share = sizes(of, rate).last().map_or(1.0, |s| s.share);
                let pair = WithData { share, shift };
                let most = pair.loss(2.0 * shift + cut);
                let most = most.max(gaussian_loss(share, shift, shift + cut));
                (-most, most)
            }
            Self::Poisson { rate, shift } | Self::Fixed { rate, shift } => {
                let most = gaussian_loss(rate, shift, shift + cut);
                let least = if self.is_symmetric() {
                    -most
                } else {
                    gaussian_loss(rate, shift, -cut).min(-gaussian_loss(rate, shift, cut))
                };
                (least, most.max(-gaussian_loss(rate, shift, -cut)))
            }
        }
    }

    /// Returns the variance of the loss.
    pub fn variance(&self, way: Way, cut: f64) -> f64 {
        let (mut mean, mut square) = (0.0, 0.0);
        self.visit(way, f64::INFINITY, cut, &mut |loss, m| {
            mean += m * loss;
            square += m * loss * loss;
        });
        (square - mean * mean).max(0.0)
    }
}

/// Returns where normal variables around 0 and `shift` lie, above `from`: one interval, or two that
/// do not touch.
fn ranges(shift: f64, cut: f64, from: f64) -> Vec<(f64, f64)> {
    let near = ((-cut).max(from), cut);
    let far = ((shift - cut).max(from), shift + cut);
    match near.1 >= far.0 {
        true => vec![(near.0, far.1)],
        false if near.0 < near.1 => vec![near, far],
        false => vec![far],
    }
}

/// Calls `node(z, weight)` for a quadrature of `range`, cell by cell of the grid of losses.
fn cells(
    step: f64,
    range: (f64, f64),
    place: &dyn Fn(f64) -> f64,
    loss: &dyn Fn(f64) -> f64,
    node: &mut dyn FnMut(f64, f64),
) {
    let mut index = (loss(range.0) / step).floor();
    let mut from = range.0;
    while from < range.1 {
        let to = if step.is_finite() {
            place((index + 1.0) * step).min(range.1)
        } else {
            range.1
        };
        index += 1.0;
        if to <= from {
            continue;
        }
        pieces((from, to), node);
        from = to;
    }
}
