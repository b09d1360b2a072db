//! Lower bounds of epsilon, from counts of right guesses.

use fl_conformance::at_least;
use statrs::distribution::{Binomial, Discrete};
use statrs::function::beta::beta_reg;

/// The largest epsilon that is looked for.
const MOST: f64 = 64.0;

/// Bounds of Clopper and Pearson for all counts of `n` runs, each wrong with the same probability.
pub struct Rates {
    /// A lower bound of the probability of an event, by the number of runs in which it happened.
    low: Vec<f64>,
}

impl Rates {
    /// Computes them for `n` runs.
    pub fn new(n: usize, error_rate: f64) -> Self {
        let low = (0..=n).map(|k| at_least(k, n, error_rate));
        Self { low: low.collect() }
    }

    /// Returns a lower bound of epsilon: an event happened in `a` runs of one world, and in `b` of
    /// the other (Jagielski, Ullman and Oprea 2020). Wrong with at most twice the error rate.
    pub fn epsilon(&self, a: usize, b: usize, delta: f64) -> f64 {
        let high = 1.0 - self.low[self.low.len() - 1 - b];
        let epsilon = libm::log((self.low[a] - delta) / high);
        // also where no event is likelier than delta
        if epsilon > 0.0 { epsilon } else { 0.0 }
    }

    /// Returns the largest bound that these runs can give.
    pub fn most(&self, delta: f64) -> f64 {
        self.epsilon(self.low.len() - 1, 0, delta)
    }
}

/// More runs than anyone does.
const MOST_RUNS: f64 = 1e6;

/// Returns the number of runs of each world from which a bound above `epsilon` is possible, if half
/// of the runs count.
pub fn runs_for(epsilon: f64, delta: f64, error_rate: f64) -> Option<usize> {
    // all of n: error_rate^(1/n), and the rate of the other world is at most 1 minus that
    let miss = (1.0 - delta) * libm::exp(-epsilon) / (1.0 + libm::exp(-epsilon));
    let n = libm::log(error_rate) / libm::log1p(-miss);
    (n < MOST_RUNS).then(|| 2 * (n as usize + 1))
}

/// Returns a lower bound of epsilon: of `canaries`, each in the data by the toss of a coin,
/// `guesses` were guessed, and `right` of these correctly (Steinke, Nasr and Jagielski 2023,
/// theorem 5.2). Wrong with probability `error_rate`.
pub fn of_canaries(
    canaries: usize,
    guesses: usize,
    right: usize,
    delta: f64,
    error_rate: f64,
) -> f64 {
    let explained = |epsilon| by_chance(canaries, guesses, right, epsilon, delta) >= error_rate;
    if explained(0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, MOST);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if explained(middle) {
            high = middle
        } else {
            low = middle
        }
    }
    low
}

/// Returns an upper bound of the probability that this number of guesses is right under
/// (epsilon, delta).
fn by_chance(canaries: usize, guesses: usize, right: usize, epsilon: f64, delta: f64) -> f64 {
    let rate = 1.0 / (1.0 + libm::exp(-epsilon));
    let tail = match right {
        0 => 1.0,
        _ => beta_reg(right as f64, (guesses - right + 1) as f64, rate),
    };
    let Ok(distribution) = Binomial::new(rate, guesses as u64) else {
        return 1.0;
    };
    let (mut sum, mut most) = (0.0, 0.0f64);
    for i in 1..=right {
        sum += distribution.pmf((right - i) as u64);
        most = most.max(sum / i as f64);
    }
    (tail + 2.0 * canaries as f64 * delta * most).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfect_guesses_give_the_bound_of_the_number_of_runs() {
        let rates = Rates::new(50, 0.025);
        // 0.025^(1/50) of both sides
        let low = libm::pow(0.025, 1.0 / 50.0);
        assert!((rates.most(0.0) - libm::log(low / (1.0 - low))).abs() < 1e-9);
        assert_eq!(rates.epsilon(25, 25, 0.0), 0.0);
        assert_eq!(rates.epsilon(0, 0, 1e-3), 0.0);
        assert!(rates.epsilon(50, 0, 0.5) < rates.most(0.0));
        let runs = runs_for(2.0, 1e-5, 0.01).unwrap();
        assert!(Rates::new(runs / 2, 0.01).most(1e-5) > 2.0);
        assert!(Rates::new(runs / 4, 0.01).most(1e-5) < 2.0);
        assert_eq!(runs_for(640.0, 0.0, 0.01), None);
    }

    #[test]
    fn canaries_give_the_bounds_of_the_paper() {
        // all of 100 guesses right: rate^100 = 0.05
        let found = of_canaries(1000, 100, 100, 0.0, 0.05);
        let rate = libm::pow(0.05, 0.01);
        assert!(
            (found - libm::log(rate / (1.0 - rate))).abs() < 1e-6,
            "{found}"
        );
        // half of them right is chance
        assert_eq!(of_canaries(1000, 100, 50, 0.0, 0.05), 0.0);
        // a large delta explains more
        let with = of_canaries(1000, 100, 100, 1e-3, 0.05);
        assert!(with < found, "{with} {found}");
        assert!(of_canaries(1000, 100, 100, 1e-6, 0.05) > found - 0.1);
    }

    #[test]
    fn canaries_of_randomised_response_do_not_exceed_its_epsilon() {
        // 75 % right is an epsilon of ln 3; the expected number of right guesses shows less
        let found = of_canaries(1000, 1000, 750, 0.0, 0.05);
        assert!(found < libm::log(3.0) && found > 0.9, "{found}");
    }
}
