//! The terms of the losses (Eq. 2 to 6 and 10), each with its slopes in closed form. Scores are
//! `batch x classes`, one table for each client; `pi` are weights of the clients that add up to 1.
//! Means are over the batch, logarithms natural, `0 ln 0 = 0`.
use crate::settings::Game;
use fl_core::loss::{self, sigmoid};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Zip};

/// A value and its slopes by each client's scores.
pub type Term = (f64, Vec<Array2<f64>>);

fn ln(p: f64) -> f64 {
    libm::log(p.max(f64::MIN_POSITIVE))
}

/// Returns the entropy.
pub fn entropy(p: ArrayView1<'_, f64>) -> f64 {
    -p.iter().map(|p| p * ln(*p)).sum::<f64>()
}

/// Returns the probabilities of scores at temperature `tau`.
pub fn probabilities(scores: ArrayView2<'_, f64>, tau: f64) -> Array2<f64> {
    let mut p = scores.as_standard_layout().into_owned();
    for mut row in p.rows_mut() {
        if let Some(row) = row.as_slice_mut() {
            loss::softmax(row, tau);
        }
    }
    p
}

/// Converts the slope by probabilities at `tau` to the slope by scores.
pub fn through_softmax(p: &Array2<f64>, mut slope: Array2<f64>, tau: f64) -> Array2<f64> {
    for (mut g, p) in slope.rows_mut().into_iter().zip(p.rows()) {
        let mean = g.dot(&p);
        Zip::from(&mut g)
            .and(p)
            .for_each(|g, p| *g = p * (*g - mean) / tau);
    }
    slope
}

/// `sum_k pi_k q_k`.
pub fn mixture(q: &[Array2<f64>], pi: &[f64]) -> Array2<f64> {
    let mut sum = Array2::zeros(q[0].dim());
    q.iter().zip(pi).for_each(|(q, pi)| sum.scaled_add(*pi, q));
    sum
}

/// Returns the Jensen-Shannon divergence of the clients' probabilities, input by input:
/// `H(sum_k pi_k q_k) - sum_k pi_k H(q_k)`.
pub fn jensen_shannon(q: &[Array2<f64>], pi: &[f64]) -> Array1<f64> {
    let mut of = mixture(q, pi)
        .rows()
        .into_iter()
        .map(entropy)
        .collect::<Array1<f64>>();
    for (q, pi) in q.iter().zip(pi) {
        Zip::from(&mut of)
            .and(q.rows())
            .for_each(|d, q| *d -= pi * entropy(q));
    }
    of
}

fn all(scores: &[Array2<f64>], tau: f64) -> Vec<Array2<f64>> {
    scores
        .iter()
        .map(|z| probabilities(z.view(), tau))
        .collect()
}

fn mean(of: impl Iterator<Item = f64>, n: usize) -> f64 {
    of.sum::<f64>() / n as f64
}

/// `L_conf = mean sum_k pi_k H(q_k)` (Eq. 3).
pub fn confidence(scores: &[Array2<f64>], pi: &[f64], tau: f64) -> Term {
    let (q, n) = (all(scores, tau), scores[0].nrows());
    let each = q.iter().zip(pi);
    let value = each
        .clone()
        .map(|(q, pi)| pi * mean(q.rows().into_iter().map(entropy), n))
        .sum();
    let slopes = each.map(|(q, pi)| {
        let by_q = q.mapv(|p| -pi / n as f64 * (ln(p) + 1.0));
        through_softmax(q, by_q, tau)
    });
    (value, slopes.collect())
}

/// `L_unique = -mean JSD` (Eq. 5).
pub fn unique(scores: &[Array2<f64>], pi: &[f64], tau: f64) -> Term {
    let (q, n) = (all(scores, tau), scores[0].nrows());
    let mix = mixture(&q, pi);
    let value = -jensen_shannon(&q, pi).sum() / n as f64;
    let slopes = q.iter().zip(pi).map(|(q, pi)| {
        // of -H(mixture) + pi H(q); a constant for all classes drops out
        let by_q = (mix.mapv(ln) - q.mapv(ln)) * (pi / n as f64);
        through_softmax(q, by_q, tau)
    });
    (value, slopes.collect())
}

/// The least probability whose logarithm the published code takes.
const LEAST: f64 = 1e-7;

/// The published code's divergence: mean over clients and inputs of `KL(m || q_k)`, `m` the plain
/// mean of all `q_k`. It is minimised, the opposite of [`unique`].
pub fn published(scores: &[Array2<f64>], tau: f64) -> Term {
    let (q, n, k) = (all(scores, tau), scores[0].nrows(), scores.len() as f64);
    let m = mixture(&q, &vec![1.0 / k; scores.len()]);
    let cut = |p: f64| libm::log(p.clamp(LEAST, 1.0));
    let (ln_m, mean_ln) = (
        m.mapv(ln),
        q.iter()
            .map(|q| q.mapv(cut))
            .fold(Array2::<f64>::zeros(m.dim()), |a, b| a + b)
            / k,
    );
    let value = (&m * &(&ln_m - &mean_ln)).sum() / n as f64;
    let by_m = &ln_m - &mean_ln;
    let slopes = q.iter().map(|q| {
        let mut by_q = by_m.clone();
        Zip::from(&mut by_q).and(&m).and(q).for_each(|g, m, q| {
            *g -= if *q > LEAST { m / q } else { 0.0 };
        });
        through_softmax(q, by_q / (k * n as f64), tau)
    });
    (value, slopes.collect())
}

/// The published code's class balance: `sum_k pi_k sum_c m_kc log2 m_kc`, `m_k` the mean of `q_k`
/// over the batch.
pub fn balance(scores: &[Array2<f64>], pi: &[f64], tau: f64) -> Term {
    let (q, n) = (all(scores, tau), scores[0].nrows() as f64);
    let mut value = 0.0;
    let slopes = q.iter().zip(pi).map(|(q, pi)| {
        let m = q.sum_axis(ndarray::Axis(0)) / n;
        value -= pi * entropy(m.view()) / std::f64::consts::LN_2;
        let by_m = m.mapv(|m| pi / n * (ln(m) / std::f64::consts::LN_2));
        let by_q = by_m
            .broadcast(q.dim())
            .map(|b| b.to_owned())
            .unwrap_or_default();
        through_softmax(q, by_q, tau)
    });
    let slopes = slopes.collect();
    (value, slopes)
}

/// Returns the generator's loss against the discriminators, and its slopes by their log-odds of
/// "generated". `rho` is the weight of each.
///
/// Non-saturating: `sum_k rho_k mean -ln(1 - D_k)`; linear: `-sum_k rho_k mean (1 - D_k)`, the part
/// of Eq. 2 that depends on the made inputs.
pub fn generated(odds: &[Array1<f64>], rho: &[f64], game: &Game) -> (f64, Vec<Array1<f64>>) {
    let mut value = 0.0;
    let slopes = odds.iter().zip(rho).map(|(odds, rho)| {
        let share = rho / odds.len() as f64;
        match game {
            Game::NonSaturating => {
                // ln(1 + e^x), without overflow
                value += share
                    * odds
                        .mapv(|x| x.max(0.0) + libm::log1p(libm::exp(-x.abs())))
                        .sum();
                odds.mapv(|x| share * sigmoid(x))
            }
            Game::Linear => {
                value -= share * odds.mapv(|x| sigmoid(-x)).sum();
                odds.mapv(|x| share * sigmoid(x) * sigmoid(-x))
            }
        }
    });
    let slopes = slopes.collect();
    (value, slopes)
}

/// Returns the student's remaining loss: its value, its slope by the student's scores, and by its
/// target, which is scores or, for `kl`, probabilities.
pub fn mimic(
    how: &crate::Mimic,
    student: &Array2<f64>,
    wanted: &Array2<f64>,
) -> (f64, Array2<f64>, Array2<f64>) {
    let (n, classes) = (student.nrows() as f64, student.ncols() as f64);
    let off = student - wanted;
    match how {
        crate::Mimic::Squared => {
            let slope = &off * (2.0 / n);
            (off.mapv(|d| d * d).sum() / n, slope.clone(), -slope)
        }
        crate::Mimic::Absolute => {
            let slope = off.mapv(|d| {
                if d == 0.0 {
                    0.0
                } else {
                    d.signum() / (n * classes)
                }
            });
            (
                off.mapv(f64::abs).sum() / (n * classes),
                slope.clone(),
                -slope,
            )
        }
        crate::Mimic::Kl => {
            let says = probabilities(student.view(), 1.0);
            let apart = wanted.mapv(ln) - says.mapv(ln);
            let value = (wanted * &apart).sum() / n;
            ((value), (says - wanted) / n, (apart + 1.0) / n)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Stream;

    fn scores() -> Vec<Array2<f64>> {
        let mut draws = Stream::root(3).draws();
        (0..3)
            .map(|_| Array2::from_shape_simple_fn((4, 5), || draws.normal()))
            .collect()
    }

    /// Compares slopes with central differences of the value, number by number.
    fn close(what: &str, at: &[Array2<f64>], f: &dyn Fn(&[Array2<f64>]) -> Term) {
        let slopes = f(at).1;
        for k in 0..at.len() {
            for place in ndarray::indices(at[k].dim()) {
                let moved = |by: f64| {
                    let mut at = at.to_vec();
                    at[k][place] += by;
                    f(&at).0
                };
                let (exact, n) = (slopes[k][place], (moved(1e-5) - moved(-1e-5)) / 2e-5);
                assert!(
                    (exact - n).abs() < 1e-8,
                    "{what} {k} {place:?}: {exact}, differences {n}"
                );
            }
        }
    }

    #[test]
    fn slopes_are_those_of_the_values() {
        let (z, pi) = (scores(), [0.2, 0.3, 0.5]);
        for tau in [1.0, 2.5] {
            close("conf", &z, &|z| confidence(z, &pi, tau));
            close("unique", &z, &|z| unique(z, &pi, tau));
            close("published", &z, &|z| published(z, tau));
            close("balance", &z, &|z| balance(z, &pi, tau));
        }
        for game in [Game::NonSaturating, Game::Linear] {
            let as_odds = |z: &[Array2<f64>]| -> Vec<Array1<f64>> {
                z.iter().map(|z| z.iter().copied().collect()).collect()
            };
            close("gan", &z, &|z| {
                let (value, slopes) = generated(&as_odds(z), &pi, &game);
                (
                    value,
                    slopes
                        .into_iter()
                        .map(|s| s.into_shape_with_order((4, 5)).unwrap())
                        .collect(),
                )
            });
        }
        for how in [
            crate::Mimic::Squared,
            crate::Mimic::Absolute,
            crate::Mimic::Kl,
        ] {
            let q = all(&z, 1.0);
            close("mimic", &[z[0].clone(), q[1].clone()], &|both| {
                let (value, one, other) = mimic(&how, &both[0], &both[1]);
                (value, vec![one, other])
            });
        }
    }

    #[test]
    fn sure_and_silent_teachers_give_finite_numbers() {
        let z = vec![
            ndarray::array![[800.0, -800.0, 0.0]],
            ndarray::array![[-900.0, 900.0, 0.0]],
        ];
        for (value, slopes) in [
            confidence(&z, &[0.5, 0.5], 1.0),
            unique(&z, &[1.0, 0.0], 1.0),
            published(&z, 1.0),
            balance(&z, &[0.5, 0.5], 1.0),
        ] {
            assert!(value.is_finite() && slopes.iter().flatten().all(|g| g.is_finite()));
        }
        let (value, slopes) = generated(
            &[ndarray::array![900.0, -900.0]],
            &[1.0],
            &Game::NonSaturating,
        );
        assert_eq!((value, slopes[0].to_vec()), (450.0, vec![0.5, 0.0]));
    }
}
