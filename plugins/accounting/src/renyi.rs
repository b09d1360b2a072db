//! Renyi differential privacy: Mironov 2017; Mironov, Talwar, Zhang 2019; the conversions of
//! Mironov 2017 and of Balle et al. 2020 / Canonne, Kamath, Steinke 2020. `sigma` is relative to a
//! sensitivity of 1.

use crate::gnmax::ln_add;
use crate::priced_ledger::plus;
use fl_core::choices;

/// Returns the orders that accountants try: fractions, which are best with much noise, and whole
/// numbers beyond.
pub fn orders() -> Vec<f64> {
    let tenths = (11..110).map(|i| f64::from(i) / 10.0);
    let whole = (11..64).map(f64::from);
    let far = [80.0, 96.0, 128.0, 192.0, 256.0, 512.0, 1024.0];
    tenths.chain(whole).chain(far).collect()
}

/// The Gaussian mechanism: `a / (2 sigma^2)`.
pub fn gaussian(sigma: f64, a: f64) -> f64 {
    a / (2.0 * sigma * sigma)
}

/// The Laplace mechanism of pure level `eps` (Mironov 2017, Proposition 6):
/// `ln(a/(2a-1) e^(eps (a-1)) + (a-1)/(2a-1) e^(-eps a)) / (a-1)`.
pub fn laplace(eps: f64, a: f64) -> f64 {
    let (p, r) = (a / (2.0 * a - 1.0), (a - 1.0) / (2.0 * a - 1.0));
    let total = if eps * (a - 1.0) < 1.0 {
        // p + r = 1, so this is 1 + p (e^.. - 1) + r (e^.. - 1)
        libm::log1p(p * libm::expm1(eps * (a - 1.0)) + r * libm::expm1(-eps * a))
    } else {
        ln_add(libm::log(p) + eps * (a - 1.0), libm::log(r) - eps * a)
    };
    total / (a - 1.0)
}

/// Any mechanism of pure level `eps`: at most `eps`, and `a eps^2 / 2` (Bun and Steinke 2016,
/// proposition 1.4).
pub fn pure(eps: f64, a: f64) -> f64 {
    eps.min(a * eps * eps / 2.0)
}

/// The Gaussian mechanism on a Poisson sample of rate `q`:
/// `ln E_{x ~ N(0, sigma^2)}[(1 - q + q exp((2x - 1) / (2 sigma^2)))^a] / (a - 1)`.
pub fn subsampled_gaussian(q: f64, sigma: f64, a: f64) -> f64 {
    if q == 0.0 {
        0.0
    } else if q == 1.0 {
        gaussian(sigma, a)
    } else if a.fract() == 0.0 {
        // ln(1 + e^x): the sum below leaves out the 1 that the binomial weights add up to
        ln_add(0.0, ln_excess_whole(q, sigma, a)) / (a - 1.0)
    } else if points(sigma, a) > MOST_POINTS {
        // hardly any noise: the next whole order costs at least as much
        subsampled_gaussian(q, sigma, a.ceil())
    } else {
        ln_mean_fraction(q, sigma, a) / (a - 1.0)
    }
}

/// With more points the result is not worth the time.
const MOST_POINTS: f64 = 1e5;

/// The step of the trapezoidal rule of [`ln_mean_fraction`].
fn step(sigma: f64) -> f64 {
    (sigma / 8.0).min(sigma * sigma / 2.0)
}

/// Returns the number of points of [`ln_mean_fraction`].
fn points(sigma: f64, a: f64) -> f64 {
    (a + 80.0 * sigma) / step(sigma)
}

/// For a whole order the mean is `sum_i C(a, i) (1-q)^(a-i) q^i exp((i^2 - i) / (2 sigma^2))`
/// (2019, section 3.3); this is the logarithm of the mean minus 1, a sum of positive terms.
fn ln_excess_whole(q: f64, sigma: f64, a: f64) -> f64 {
    let (mut ln_choose, mut sum) = (0.0, f64::NEG_INFINITY);
    for i in 1..=a as usize {
        let i = i as f64;
        ln_choose += libm::log((a - i + 1.0) / i);
        let x = (i * i - i) / (2.0 * sigma * sigma);
        let ln_gain = if x > 30.0 {
            x
        } else {
            libm::log(libm::expm1(x))
        };
        sum = ln_add(
            sum,
            ln_choose + (a - i) * libm::log1p(-q) + i * libm::log(q) + ln_gain,
        );
    }
    sum
}

/// Fractional orders by the trapezoidal rule, whose error for such analytic integrands falls as
/// `exp(-2 pi d / step)`; `d = pi sigma^2`, where the base is 0, and the Gaussian's own
/// `exp(-2 pi^2 sigma^2 / step^2)`.
fn ln_mean_fraction(q: f64, sigma: f64, a: f64) -> f64 {
    let variance = sigma * sigma;
    let step = step(sigma);
    // the integrand is at most a Gaussian around 0 plus one around `a`
    let (from, to) = (-40.0 * sigma, a + 40.0 * sigma);
    let n = ((to - from) / step).ceil() as usize;
    let ln_norm = libm::log(step / (sigma * (2.0 * std::f64::consts::PI).sqrt()));
    let (mut ln_mean, mut excess) = (f64::NEG_INFINITY, 0.0);
    for k in 0..=n {
        let x = from + k as f64 * step;
        let (weight, ratio) = (
            ln_norm - x * x / (2.0 * variance),
            (2.0 * x - 1.0) / (2.0 * variance),
        );
        let ln_base = if ratio > 30.0 {
            ln_add(libm::log1p(-q), libm::log(q) + ratio)
        } else {
            libm::log1p(q * libm::expm1(ratio))
        };
        ln_mean = ln_add(ln_mean, weight + a * ln_base);
        // the mean minus 1, and minus a q E[ratio - 1] = 0, the largest part of it if q is small
        let linear = if ratio < 700.0 {
            a * q * libm::expm1(ratio)
        } else {
            f64::NAN
        };
        excess += libm::exp(weight) * (libm::expm1(a * ln_base) - linear);
    }
    // if the mean is near 1, its logarithm has no digits left, and the excess is exact
    if ln_mean < 1e-3 && excess.is_finite() {
        libm::log1p(excess)
    } else {
        ln_mean
    }
}

choices! {
    /// The conversion of Renyi differential privacy to an epsilon.
    pub enum Conversion {
        /// Canonne, Kamath and Steinke 2020, proposition 12: always at least as good.
        Improved = "improved",
        /// Mironov 2017, proposition 3.
        Classic = "classic",
    }
}

/// Returns the least epsilon over all orders, never below 0, and the order that gives it.
pub fn epsilon(rdp: &[f64], orders: &[f64], delta: f64, rule: &Conversion) -> (f64, f64) {
    let one = |(r, a): (&f64, &f64)| {
        let epsilon = match rule {
            // rdp + ln(1/delta) / (a-1)
            Conversion::Classic => r - libm::log(delta) / (a - 1.0),
            // rdp + ln((a-1)/a) - (ln delta + ln a) / (a-1)
            Conversion::Improved => {
                r + libm::log1p(-1.0 / a) - (libm::log(delta) + libm::log(*a)) / (a - 1.0)
            }
        };
        (epsilon, *a)
    };
    let all = rdp.iter().zip(orders).map(one).filter(|(e, _)| !e.is_nan());
    let (epsilon, order) = all.fold((f64::INFINITY, 0.0), |best, next| {
        if next.0 < best.0 { next } else { best }
    });
    (epsilon.max(0.0), order)
}

/// The exact delta of one Gaussian mechanism at `epsilon` (Balle and Wang 2018, Theorem 8):
/// `Phi(1/(2 sigma) - epsilon sigma) - e^epsilon Phi(-1/(2 sigma) - epsilon sigma)`.
pub fn gaussian_delta(sigma: f64, epsilon: f64) -> f64 {
    let phi = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    let (middle, side) = (epsilon * sigma, 0.5 / sigma);
    (phi(side - middle) - libm::exp(epsilon) * phi(-side - middle)).max(0.0)
}

/// What rounding can take away from [`gaussian_delta`]: that of the arguments counts by the slope of
/// the logarithm of `Phi`.
fn gaussian_delta_error(sigma: f64, epsilon: f64) -> f64 {
    let (middle, side) = (epsilon * sigma, 0.5 / sigma);
    let phi = 0.5 * libm::erfc((middle - side) / std::f64::consts::SQRT_2);
    f64::EPSILON * (8.0 + 4.0 * (side + middle).powi(2)) * phi
}

/// Returns the least epsilon whose [`gaussian_delta`] is at most `delta`, and never less than that:
/// the last digits, and more of a tiny epsilon, allow for rounding; 0 for an infinite `sigma`.
pub fn gaussian_epsilon(sigma: f64, delta: f64) -> f64 {
    // 1 / sigma^2 / 2 + sqrt(2 ln(1 / delta)) / sigma holds for any noise (Bun and Steinke 2016,
    // proposition 1.3)
    let most = 0.5 / sigma / sigma + (-2.0 * libm::log(delta)).sqrt() / sigma;
    if most.is_nan() || most > 700.0 {
        return most; // e^epsilon is too large to hold, and so is epsilon for any use
    }
    let (mut least, mut most) = (0.0, most);
    let holds = |epsilon| {
        let error = gaussian_delta_error(sigma, epsilon);
        gaussian_delta(sigma, epsilon) + error <= delta
    };
    if holds(0.0) {
        return 0.0;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(least, most);
        if holds(middle) {
            most = middle
        } else {
            least = middle
        }
    }
    most
}

/// The Gaussian mechanism on a sample of fixed size, drawn without replacement, that a unit is part
/// of with probability `q`. The bound is for neighbours with one unit replaced, for whole orders
/// (Wang, Balle and Kasiviswanathan 2019, theorem 9, with `epsilon(infinity)` infinite). The cost
/// grows with the order, so a fraction costs as much as the next whole order.
pub fn fixed_size_gaussian(q: f64, sigma: f64, a: f64) -> f64 {
    let whole = a.ceil().max(2.0);
    let all = gaussian(sigma, a);
    if q == 0.0 || all == 0.0 {
        return 0.0;
    }
    let cost = |order: f64| gaussian(sigma, order);
    // ln of 4 (e^cost(2) - 1), or 2 e^cost(2) if that is less
    let second = libm::log(4.0 * libm::expm1(cost(2.0))).min(libm::log(2f64) + cost(2.0));
    let (mut ln_choose, mut sum) = (libm::log(whole), f64::NEG_INFINITY);
    for j in 2..=whole as usize {
        let j = j as f64;
        ln_choose += libm::log((whole - j + 1.0) / j);
        let term = if j == 2.0 {
            second
        } else {
            libm::log(2f64) + (j - 1.0) * cost(j)
        };
        sum = ln_add(sum, ln_choose + j * libm::log(q) + term);
    }
    // a sample leaks no more than all data
    (ln_add(0.0, sum) / (whole - 1.0)).min(all)
}

/// Adds costs order by order; an empty list is 0.
pub(crate) fn add(sum: &mut Vec<f64>, more: &[f64]) {
    if sum.is_empty() {
        sum.resize(more.len(), 0.0);
    }
    sum.iter_mut()
        .zip(more)
        .for_each(|(s, m)| *s = plus(*s, *m));
}

/// Returns the epsilon of costs at [`orders`]; 0 if nothing was spent.
pub(crate) fn spent(cost: &[f64], delta: f64, rule: &Conversion) -> f64 {
    if cost.iter().all(|c| *c == 0.0) {
        return 0.0;
    }
    epsilon(cost, &orders(), delta, rule).0
}
