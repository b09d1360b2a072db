//! Exact samplers of noise on the whole numbers: Canonne, Kamath and Steinke, "The Discrete
//! Gaussian for Differential Privacy" (2020), algorithms 1 to 3. They use whole numbers only, so
//! they never round.

use crate::Draws;
use rand::RngCore;

/// Draws uniformly from `0..n`, `n` above 0, exactly unbiased.
fn below(draws: &mut Draws, n: u128) -> u128 {
    let bits = 128 - (n - 1).leading_zeros();
    let mask = u128::MAX.checked_shr(128 - bits).unwrap_or(0);
    loop {
        let high = if bits > 64 { draws.next_u64() } else { 0 };
        let drawn = (u128::from(high) << 64 | u128::from(draws.next_u64())) & mask;
        if drawn < n {
            return drawn;
        }
    }
}

/// Returns true with probability `e^-(a / b)`, for `b` above 0 (algorithm 1).
fn bernoulli_exp(draws: &mut Draws, a: u128, b: u128) -> bool {
    // e^-(whole + rest / b) = (e^-1)^whole * e^-(rest / b)
    let (mut whole, rest) = (a / b, a % b);
    while whole > 0 {
        if !below_one(draws, 1, 1) {
            return false;
        }
        whole -= 1;
    }
    below_one(draws, rest, b)
}

/// Returns true with probability `e^-(a / b)` for `a <= b`. Draws with chances `a / b`, a half of
/// it, a third of it, .. until one fails: the number of successes is even with that probability.
fn below_one(draws: &mut Draws, a: u128, b: u128) -> bool {
    let mut k = 1;
    while below(draws, b * k) < a {
        k += 1;
    }
    k % 2 == 1
}

/// Draws from `P(n) ~ e^(-|n| / t)`, `t` above 0 (algorithm 2).
pub fn laplace(draws: &mut Draws, t: u64) -> i64 {
    loop {
        let u = below(draws, u128::from(t));
        if !below_one(draws, u, u128::from(t)) {
            continue;
        }
        let mut v = 0;
        while below_one(draws, 1, 1) {
            v += 1;
        }
        // `t` is below 2^22, and a `v` of a hundred never occurs in practice
        let size = (u as i64).saturating_add((t as i64).saturating_mul(v));
        let negative = below(draws, 2) == 1;
        if !(negative && size == 0) {
            return if negative { -size } else { size };
        }
    }
}

/// Draws from `P(n) ~ e^(-n^2 / (2 sigma^2))`, `sigma` above 0 and below 2^31 (algorithm 3).
pub fn gaussian(draws: &mut Draws, sigma: u64) -> i64 {
    let (t, square) = (u128::from(sigma) + 1, u128::from(sigma).pow(2));
    loop {
        let y = laplace(draws, t as u64);
        // (|y| - sigma^2 / t)^2 / (2 sigma^2), over t^2; a value too large for 128 bits is
        // practically impossible
        let apart = (u128::from(y.unsigned_abs()) * t).abs_diff(square);
        let Some(a) = apart.checked_mul(apart) else {
            continue;
        };
        if bernoulli_exp(draws, a, 2 * square * t * t) {
            return y;
        }
    }
}

/// Returns `label`, or another of `classes` with a probability that is `e^epsilon` times smaller;
/// `epsilon` is rounded down to a multiple of 2^-20.
pub fn randomised_response(draws: &mut Draws, label: u32, classes: usize, epsilon: f64) -> u32 {
    const PARTS: u128 = 1 << 20;
    // so large that another label never occurs in practice
    let parts = (epsilon.min(1e9) * PARTS as f64) as u128;
    loop {
        let drawn = below(draws, classes as u128) as u32;
        if drawn == label || bernoulli_exp(draws, parts, PARTS) {
            return drawn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;

    /// Compares the frequencies of `-5..=5` with those by `weight`.
    fn compare(name: &str, weight: &dyn Fn(f64) -> f64, mut draw: impl FnMut(&mut Draws) -> i64) {
        const N: usize = 200_000;
        let mut draws = Stream::root(11).child(name, 0).draws();
        let mut counts = std::collections::BTreeMap::<i64, f64>::new();
        (0..N).for_each(|_| *counts.entry(draw(&mut draws)).or_default() += 1.0);
        let total: f64 = (-2000..=2000).map(|n| weight(f64::from(n))).sum();
        for n in -5..=5 {
            let p = weight(n as f64) / total;
            let found = counts.get(&n).copied().unwrap_or(0.0) / N as f64;
            // five standard deviations; the stream is fixed, so the test is deterministic
            let most = 5.0 * (p * (1.0 - p) / N as f64).sqrt();
            assert!((found - p).abs() <= most, "{name} at {n}: {found}, not {p}");
        }
    }

    #[test]
    fn frequencies_are_those_of_the_definitions() {
        for t in [1, 2, 7] {
            let weight = |n: f64| libm::exp(-n.abs() / t as f64);
            compare("laplace", &weight, |d| laplace(d, t));
            let weight = |n: f64| libm::exp(-n * n / (2 * t * t) as f64);
            compare("gaussian", &weight, |d| gaussian(d, t));
        }
    }

    #[test]
    fn chances_are_exponential_above_and_below_one() {
        let mut draws = Stream::root(5).draws();
        for (a, b) in [(0, 3), (1, 3), (1, 1), (5, 2), (7, 2)] {
            let n = 100_000;
            let share =
                (0..n).filter(|_| bernoulli_exp(&mut draws, a, b)).count() as f64 / n as f64;
            let due = libm::exp(-(a as f64) / b as f64);
            assert!(
                (share - due).abs() < 0.008,
                "e^-({a}/{b}): {share}, not {due}"
            );
        }
    }

    #[test]
    fn whole_ranges_are_drawn_alike() {
        let mut draws = Stream::root(6).draws();
        for n in [1, 2, 3, 1 << 64, (1 << 70) + 3] {
            assert!((0..100).all(|_| below(&mut draws, n) < n));
        }
        let mut seen = [0; 5];
        (0..50_000).for_each(|_| seen[below(&mut draws, 5) as usize] += 1);
        assert!(seen.iter().all(|s| (9_600..10_400).contains(s)), "{seen:?}");
    }
}
