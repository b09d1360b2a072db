//! The noisy maximum with Gaussian noise (GNMax) and its confident form: Papernot et al. 2018,
//! "Scalable private learning with PATE". A change of `m` votes is the same as one vote with noise
//! of `sigma / m`.

use crate::pate::winner;

/// `ln(erfc(x))`, also where `erfc` is smaller than the smallest number.
pub fn ln_erfc(x: f64) -> f64 {
    if x < 20.0 {
        return libm::log(libm::erfc(x));
    }
    // asymptotic series (DLMF 7.12.1): at 20 the fifth term is below 1e-12
    let y = 1.0 / (2.0 * x * x);
    let series = -y * (1.0 - y * (3.0 - y * (15.0 - y * (105.0 - y * 945.0))));
    -x * x - libm::log(x * std::f64::consts::PI.sqrt()) + libm::log1p(series)
}

/// `ln(exp(a) + exp(b))`.
pub(crate) fn ln_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if high == f64::NEG_INFINITY || low == f64::NEG_INFINITY {
        return high;
    }
    high + libm::log1p(libm::exp(low - high))
}

/// Proposition 7: the logarithm of a bound on the probability that another class wins,
/// `sum 0.5 erfc(gap / (2 sigma))`, not capped.
pub fn ln_q(counts: &[f64], sigma: f64) -> f64 {
    let (winner, highest) = winner(counts);
    let losers = counts.iter().enumerate().filter(|(c, _)| *c != winner);
    losers
        // a probability that underflows is not 0: noise without effect guarantees nothing
        .map(|(_, n)| {
            (ln_erfc((highest - n) / (2.0 * sigma)) - std::f64::consts::LN_2).max(f64::MIN)
        })
        .fold(f64::NEG_INFINITY, ln_add)
}

/// Caps `q` at its value for pure chance: `q <= 1 - 1 / classes`.
pub fn cap_ln_q(ln_q: f64, classes: usize) -> f64 {
    ln_q.min(libm::log1p(-1.0 / classes.max(1) as f64))
}

/// Theorem 6 with the orders of Proposition 10: Renyi differential privacy of order `a`. The
/// mechanism is a Gaussian one of noise `sigma` for a change of L2 norm sqrt(2) (`a / sigma^2` for
/// any data). Its likely answer fails with probability at most `q`.
pub fn rdp(ln_q: f64, sigma: f64, a: f64) -> f64 {
    let independent = a / (sigma * sigma);
    match data_dependent(ln_q, sigma, a) {
        Some(dependent) => independent.min(dependent.max(0.0)),
        None => independent,
    }
}

fn data_dependent(ln_q: f64, sigma: f64, a: f64) -> Option<f64> {
    if ln_q == f64::NEG_INFINITY {
        return Some(0.0);
    }
    let variance = sigma * sigma;
    let mu2 = sigma * (-ln_q).max(0.0).sqrt();
    let mu1 = mu2 + 1.0;
    let (e1, e2) = (mu1 / variance, mu2 / variance);
    let limit =
        (mu2 - 1.0) * e2 - mu2 * (libm::log1p(1.0 / (mu1 - 1.0)) + libm::log1p(1.0 / (mu2 - 1.0)));
    if !(a < mu1 && mu2 > 1.0 && -ln_q > e2 && ln_q <= limit) {
        return None;
    }
    let q = libm::exp(ln_q);
    // ln A = (a-1) (ln(1-q) - ln(1 - (q e^e2)^(1 - 1/mu2))), and the same for B
    let inner = libm::exp((ln_q + e2) * (1.0 - 1.0 / mu2));
    let ln_a = (a - 1.0) * (libm::log1p(-q) - libm::log1p(-inner));
    let ln_b = (a - 1.0) * (e1 - ln_q / (mu1 - 1.0));
    // (1-q) A + q B = 1 + [(1-q)] + [q (B-1)]: as exact for tiny moments as for large ones
    let total = ln_add(libm::log1p(-q) + ln_a, ln_q + ln_b);
    let small = (1.0 - q) * libm::expm1(ln_a) + q * libm::expm1(ln_b);
    let total = if total.abs() < 0.5 {
        libm::log1p(small)
    } else {
        total
    };
    Some(total / (a - 1.0))
}

/// Confident-GNMax: returns the logarithms of two probabilities: the highest count with noise of
/// `sigma1` reaches `threshold`, or it does not.
pub fn ln_answered(counts: &[f64], threshold: f64, sigma1: f64) -> (f64, f64) {
    let x = (threshold - winner(counts).1) / (sigma1 * std::f64::consts::SQRT_2);
    let half = |x: f64| ln_erfc(x) - std::f64::consts::LN_2;
    // the likelier side is computed from the other one, which keeps its digits near 1
    if x < 0.0 {
        (libm::log1p(-libm::exp(half(-x))), half(-x))
    } else {
        (half(x), libm::log1p(-libm::exp(half(x))))
    }
}

/// Returns the cost of the threshold check at order `a`, answered or not, if `changed` votes can
/// change. It is `a changed^2 / (2 sigma1^2)` (the highest count moves by `changed`), or the
/// data-dependent bound with noise `sqrt(2) sigma1 / changed`, which is the same mechanism.
pub fn threshold_rdp(counts: &[f64], threshold: f64, sigma1: f64, changed: f64, a: f64) -> f64 {
    let (answered, refused) = ln_answered(counts, threshold, sigma1);
    let sigma = std::f64::consts::SQRT_2 * sigma1 / changed;
    rdp(answered.min(refused).max(f64::MIN), sigma, a)
}
