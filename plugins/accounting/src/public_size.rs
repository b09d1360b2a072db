//! Gaussian noise on a Poisson sample of units of public size.
//!
//! Each of `n` units takes part with probability `q`, independently. A unit's data count, or count
//! for nothing (zero-out). So the size `k` is binomial for any data, and given `k` every set of `k`
//! units is equally likely. Let `g = k / n`, any test `A` and `e >= 1`. A unit adds `u`, and the
//! one in its place would add `w` (both at most `s`, in standard deviations of the noise). Its leak
//! is
//!
//! ```text
//! g N(u)(A) - (e - 1) (1 - g) N(w)(A) - g e N(0)(A)
//! ```
//!
//! With `N(u)(A) = a` the others are at least `Phi(Phi^-1(a) - 2s)` and `Phi(Phi^-1(a) - s)`, by
//! the lemma of Neyman and Pearson, and half-lines reach both at once for `w = -u`. So
//! `(1 - g) N(0) + g N(2s)` against `(1 - g) N(0) + g N(s)` is the worst pair for a unit with data
//! against one without. The other direction is `(1 - g) N(0) + g N(s)` against `N(0)`, likewise.
//! Each pair is the worst where its loss is positive; for a loss below 0 the other one applies (as
//! in Zhu, Dong and Wang 2022, theorem 11). The price is that of the size together with the sum.

use crate::gaussian_pair::{density, gaussian_loss, pieces};
use crate::renyi::gaussian;
use libm::lgamma;

/// A share of all units that stands for the sizes near it.
///
/// The sizes of a large sample are too many to price. So each size is split over the two shares
/// next to it that keep its mean. Both distributions of a pair are linear in the share. So a size
/// is such a mixture of the two, and the mixture leaks no more if it says which of them was drawn.
///
/// The shares do not depend on `n`. What a share leaks is convex in it, and stays so between them.
/// So one unit more never raises the price: `k / n` is the mean of what it would be without one of
/// the units, of which each is equally likely.
pub(crate) struct Sizes {
    /// Share of all units.
    pub share: f64,
    /// Probability of this share.
    pub probability: f64,
}

/// The first distance of a share from the rate, in standard deviations of one unit, and the growth
/// from each distance to the next.
const NEAREST: f64 = 3e-4;
const GROWTH: f64 = 1.15;

/// `exp` of this and of smaller numbers is 0.
const LN_NOTHING: f64 = -760.0;

/// Returns the shares that stand for all sizes, upwards.
fn shares(rate: f64) -> Vec<f64> {
    let nearest = NEAREST * (rate * (1.0 - rate)).sqrt();
    let away = std::iter::successors(Some(nearest), |away| Some(away * GROWTH));
    let below = away.clone().map(|away| rate - away);
    let mut all: Vec<f64> = below.take_while(|share| *share > 0.0).collect();
    all.push(0.0);
    all.reverse();
    all.push(rate);
    let above = away.map(|away| rate + away);
    all.extend(above.take_while(|share| *share < 1.0));
    all.push(1.0);
    all.dedup();
    all
}

/// Returns all sizes of a Poisson sample of `of` units, by share.
pub(crate) fn sizes(of: usize, rate: f64) -> Vec<Sizes> {
    if rate == 0.0 || rate == 1.0 {
        let (share, probability) = (rate, 1.0);
        return vec![Sizes { share, probability }];
    }
    let n = of as f64;
    let ln_probability = |k: f64| {
        let ln_choose = lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0);
        ln_choose + k * libm::log(rate) + (n - k) * libm::log1p(-rate)
    };
    let shares = shares(rate);
    let mut all: Vec<Sizes> = shares
        .into_iter()
        .map(|share| Sizes {
            share,
            probability: 0.0,
        })
        .collect();
    let mut put = |k: usize| {
        let (share, ln_mass) = (k as f64 / n, ln_probability(k as f64));
        let mass = libm::exp(ln_mass);
        let above = all.partition_point(|s| s.share < share);
        let above = above.clamp(1, all.len() - 1);
        let (low, high) = (all[above - 1].share, all[above].share);
        let part = ((share - low) / (high - low)).clamp(0.0, 1.0);
        all[above].probability += mass * part;
        all[above - 1].probability += mass * (1.0 - part);
        ln_mass > LN_NOTHING
    };
    // probabilities fall on both sides of the likeliest size
    let likeliest = (((n + 1.0) * rate) as usize).min(of);
    let _ = (0..=likeliest).rev().all(&mut put);
    let _ = (likeliest + 1..=of).all(&mut put);
    // rounding must not lose probability
    let sum: f64 = all.iter().map(|sizes| sizes.probability).sum();
    all.iter_mut().for_each(|sizes| sizes.probability /= sum);
    all.retain(|sizes| sizes.probability > 0.0);
    all
}

/// The pair of the unit with data against one without, for one share.
#[derive(Clone, Copy)]
pub(crate) struct WithData {
    pub share: f64,
    /// Sensitivity over standard deviation.
    pub shift: f64,
}

impl WithData {
    /// Returns the `z` from which the loss is positive and grows.
    pub fn from(&self) -> f64 {
        1.5 * self.shift
    }

    /// Returns the loss at `z`.
    pub fn loss(&self, z: f64) -> f64 {
        let twice = 2.0 * self.shift;
        gaussian_loss(self.share, twice, z) - gaussian_loss(self.share, self.shift, z)
    }

    /// Returns the `z` at which the loss is `loss`, which is positive, by a quadratic equation in
    /// `exp(shift * z)`.
    pub fn place(&self, loss: f64) -> f64 {
        if loss <= 0.0 {
            return self.from();
        }
        let (share, shift) = (self.share, self.shift);
        let rest = 4.0 * (1.0 - share) / share;
        let under = 1.0 + rest * -libm::expm1(-loss) * libm::exp(-loss - shift * shift);
        (loss + libm::log(0.5 * (1.0 + under.sqrt()))) / shift + self.from()
    }

    /// Returns the density at `z` for a unit with data.
    pub fn with(&self, z: f64) -> f64 {
        (1.0 - self.share) * density(z) + self.share * density(z - 2.0 * self.shift)
    }

    /// Returns the density at `z` for a unit without data.
    pub fn without(&self, z: f64) -> f64 {
        (1.0 - self.share) * density(z) + self.share * density(z - self.shift)
    }
}

/// Losses are added up to this many standard deviations beyond the farthest mean.
const FAR: f64 = 12.0;
/// If the mean of an order may exceed `e` to this, the order costs as much as without sampling.
const MOST_EXPONENT: f64 = 200.0;
/// Less probable groups of sizes are priced as if all data took part.
const RARE: f64 = 1e-40;

/// Masses of a pair, by their losses.
type Masses = Vec<(f64, f64)>;

/// Returns the Renyi divergence of the size and the sum, by order.
pub(crate) fn divergences(of: usize, rate: f64, sigma: f64, orders: &[f64]) -> Vec<f64> {
    let all = |order: f64| gaussian(sigma, order);
    let shift = 1.0 / sigma;
    let near = |order: &f64| (order - 1.0) * all(*order) <= MOST_EXPONENT;
    let most = orders.iter().copied().filter(near).fold(1.0, f64::max);
    if most == 1.0 {
        // hardly any noise: no order needs the masses, of which there would be millions
        return orders.iter().copied().map(all).collect();
    }
    // the mean of the powers, minus 1: with data against without, and without against with
    let mut excess = vec![[0.0; 2]; orders.len()];
    for Sizes { share, probability } in sizes(of, rate) {
        if share == 0.0 {
            continue;
        }
        let rare = probability < RARE;
        let pair = WithData { share, shift };
        let to = shift * (most + 1.0) + FAR;
        let ways = if rare {
            Default::default()
        } else {
            pair.both(to)
        };
        for (excess, order) in excess.iter_mut().zip(orders).filter(|(_, a)| near(a)) {
            let power = order - 1.0;
            let whole = libm::expm1(power * all(*order));
            for (excess, masses) in excess.iter_mut().zip(&ways) {
                let one = |(loss, mass): &(f64, f64)| mass * libm::expm1(power * loss);
                let sum: f64 = masses.iter().map(one).sum();
                // a sample leaks no more than all data
                *excess += probability * if rare { whole } else { sum.min(whole) };
            }
        }
    }
    let cost = |([one, other], order): (&[f64; 2], &f64)| {
        if near(order) {
            (libm::log1p(one.max(*other)) / (order - 1.0)).min(all(*order))
        } else {
            all(*order)
        }
    };
    excess.iter().zip(orders).map(cost).collect()
}

impl WithData {
    /// Returns the masses of losses up to `to`: with data against without, and the reverse. The
    /// remaining mass has no loss.
    fn both(&self, to: f64) -> [Masses; 2] {
        let (mut with, mut without) = (Masses::new(), Masses::new());
        pieces((self.from(), to), &mut |z, w| {
            let loss = self.loss(z);
            with.push((loss, w * self.with(z)));
            without.push((-loss, w * self.without(z)));
        });
        pieces((0.5 * self.shift, to), &mut |z, w| {
            let loss = gaussian_loss(self.share, self.shift, z);
            with.push((-loss, w * density(z)));
            without.push((loss, w * self.without(z)));
        });
        [with, without]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose;
    use crate::losses::Release;
    use crate::renyi::{Conversion, epsilon, orders, subsampled_gaussian};

    fn by_losses(of: usize, rate: f64, sigma: f64, times: f64, delta: f64) -> f64 {
        let shift = 1.0 / sigma;
        let release = Release::PublicSize { of, rate, shift };
        compose::epsilon(&[(release, times)], delta)
    }

    fn by_orders(of: usize, rate: f64, sigma: f64, times: f64, delta: f64) -> f64 {
        let costs = divergences(of, rate, sigma, &orders());
        let costs: Vec<f64> = costs.iter().map(|cost| cost * times).collect();
        epsilon(&costs, &orders(), delta, &Conversion::Improved).0
    }

    #[test]
    fn all_sizes_are_there_and_grow() {
        for (of, rate) in [
            (1, 0.01),
            (100, 0.01),
            (1000, 0.001),
            (6000, 0.05),
            (30, 1.0),
        ] {
            let sizes = sizes(of, rate);
            let sum: f64 = sizes.iter().map(|s| s.probability).sum();
            let mean: f64 = sizes.iter().map(|s| s.probability * s.share).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{of} {rate}: {sum}");
            assert!((mean / rate - 1.0).abs() < 1e-7, "{of} {rate}: {mean}");
            assert!(sizes.is_sorted_by(|a, b| a.share < b.share));
            assert!(sizes.len() < 150, "{}", sizes.len());
        }
    }

    /// Another client sees a draw of one client less than a reader does: it knows more.
    #[test]
    fn one_unit_more_never_costs_more() {
        for (rate, sigma, all) in [
            (0.2, 1.0, 2..60),
            (0.05, 0.7, 95..105),
            (0.01, 2.0, 995..1003),
        ] {
            let mut before = f64::INFINITY;
            for of in all {
                let found = by_orders(of, rate, sigma, 10.0, 1e-5);
                let due = before * (1.0 + 1e-9);
                assert!(found <= due, "{of} {rate}: {found}, without one {before}");
                before = found;
            }
        }
    }

    /// The expected number is that of two data sets that differ in one client: all others send
    /// `other`, in units of the bound. An external program summed over all sizes on a fine grid.
    #[test]
    fn bounded_no_less_than_what_two_data_sets_show() {
        for (of, rate, sigma, times, delta, other_0, other_minus_1) in [
            (100, 0.01, 1.0, 100.0, 1e-5, 1.2922, 5.745),
            (1, 0.01, 1.0, 100.0, 1e-5, 8.6149, 8.6149),
            (1000, 0.001, 1.0, 1000.0, 1e-6, 0.3538, 4.4439),
            (100, 0.2, 1.0, 20.0, 1e-3, 4.4258, 8.22),
            (6000, 0.05, 1.3446, 100.0, 1e-5, 2.0051, 5.8416),
        ] {
            let losses = by_losses(of, rate, sigma, times, delta);
            let orders = by_orders(of, rate, sigma, times, delta);
            let all = format!("{of} {rate}: {losses} {orders}");
            assert!(losses >= other_0 && losses >= other_minus_1, "{all}");
            // near it, and Renyi's bound is looser
            assert!(losses <= other_minus_1 * 1.06, "{all}");
            assert!((losses..losses * 1.4).contains(&orders), "{all}");
        }
    }

    #[test]
    fn a_public_size_costs_more_than_a_secret_one_and_less_than_everybody() {
        for (of, rate) in [(10, 0.3), (100, 0.05), (2000, 0.01)] {
            let public = divergences(of, rate, 2.0, &orders());
            for (cost, order) in public.iter().zip(orders()) {
                let secret = subsampled_gaussian(rate, 2.0, order);
                let all = gaussian(2.0, order);
                let shown = format!("{of} {rate} {order}: {secret} {cost} {all}");
                assert!(secret * (1.0 - 1e-9) <= *cost && *cost <= all, "{shown}");
            }
        }
        assert_eq!(divergences(7, 0.0, 2.0, &[2.0]), [0.0]);
        let all = divergences(7, 1.0, 2.0, &[2.0])[0];
        assert!((all - gaussian(2.0, 2.0)).abs() < 1e-9, "{all}");
    }

    /// With masses for all losses this would run for hours.
    #[test]
    fn next_to_no_noise_costs_what_everybody_costs() {
        for sigma in [1e-6, 1e-150] {
            let all: Vec<f64> = orders().iter().map(|a| gaussian(sigma, *a)).collect();
            assert_eq!(divergences(6000, 0.05, sigma, &orders()), all);
        }
    }

    #[test]
    fn the_place_of_a_loss_is_where_it_is() {
        for (share, shift) in [(0.01, 1.0), (0.5, 0.1), (1.0, 3.0), (1e-4, 20.0)] {
            let pair = WithData { share, shift };
            for z in [0.01, 0.5, 2.0, 9.0, 60.0].map(|above| pair.from() + above) {
                let loss = pair.loss(z);
                let found = pair.place(loss);
                assert!(loss >= 0.0, "{share} {shift} {z}: {loss}");
                // where the loss hardly grows, its position is inexact
                let close = (pair.loss(found) - loss).abs() <= 1e-9 * (1.0 + loss);
                assert!(close, "{share} {shift}: {found} for {z}");
            }
        }
    }
}
