//! The moments accountant of the noisy maximum with Laplace noise (LNMax): PATE (Papernot et
//! al. 2017) and FedKT (Li et al. 2021). All logarithms are natural. `gamma` is the inverse scale
//! of the noise.

use crate::priced_ledger::{plus, scaled};

/// The orders `l` at which moments are kept: `step, 2 step, ..., n step`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Orders {
    /// The first order, and the step to the next.
    pub step: f64,
    /// Number of orders.
    pub n: usize,
}

impl Orders {
    /// Returns the orders `l = 1..=n`.
    pub fn up_to(n: usize) -> Self {
        Self { step: 1.0, n }
    }

    /// Iterates over all orders.
    pub fn iter(self) -> impl Iterator<Item = f64> {
        (1..=self.n).map(move |i| i as f64 * self.step)
    }
}

/// FedKT Lemma 7 (PATE Lemma 4): the probability that the noise makes another class win is at most
/// the sum over the losers of `(2 + gamma * gap) / (4 exp(gamma * gap))`. On a tie any of the
/// classes with the highest count may be the winner.
pub fn lnmax_q(counts: &[f64], gamma: f64) -> f64 {
    let (winner, highest) = winner(counts);
    let losers = counts.iter().enumerate().filter(|(c, _)| *c != winner);
    losers.map(|(_, n)| loses(gamma * (highest - n))).sum()
}

/// One loser's share of [`lnmax_q`], `x = gamma * gap`.
fn loses(x: f64) -> f64 {
    (2.0 + x) / 4.0 * libm::exp(-x)
}

/// Returns the lowest class with the highest count, and that count.
pub(crate) fn winner(counts: &[f64]) -> (usize, f64) {
    let first = (0, counts.first().copied().unwrap_or(0.0));
    let all = counts.iter().copied().enumerate();
    all.fold(
        first,
        |best, next| if next.1 > best.1 { next } else { best },
    )
}

/// Caps `q` at its value for pure chance: `q <= 1 - 1 / classes` (the published code).
pub fn cap_q(q: f64, classes: usize) -> f64 {
    q.min(1.0 - 1.0 / classes.max(1) as f64)
}

/// The data-dependent bound holds for `q` below this: `(e^eps0 - 1) / (e^(2 eps0) - 1)`.
pub fn q_limit(eps0: f64) -> f64 {
    1.0 / (1.0 + libm::exp(eps0))
}

/// PATE Theorem 3, FedKT Theorem 2: `ln((1-q) ((1-q) / (1 - e^eps0 q))^l + q e^(eps0 l))`; `None`
/// where it does not hold.
pub fn data_dependent(q: f64, eps0: f64, l: f64) -> Option<f64> {
    (q < q_limit(eps0)).then(|| {
        // with u = (1-q)/(1 - e^eps0 q) - 1, the argument of the logarithm is 1 + (1-q) ((1+u)^l
        // - 1) + q (e^(eps0 l) - 1): a sum without cancellation, for any small q
        let (u, top) = (growth(q, eps0), eps0 * l);
        if top < LARGEST {
            libm::log1p((1.0 - q) * libm::expm1(l * libm::log1p(u)) + q * libm::expm1(top))
        } else {
            let (a, b) = (libm::log1p(-q) + l * libm::log1p(u), libm::log(q) + top);
            a.max(b) + libm::log1p(libm::exp(-(a - b).abs()))
        }
    })
}

/// `(1-q) / (1 - e^eps0 q) - 1`, without cancellation.
fn growth(q: f64, eps0: f64) -> f64 {
    q * libm::expm1(eps0) / (1.0 - libm::exp(eps0) * q)
}

/// Above this, `exp` is near the largest number.
const LARGEST: f64 = 600.0;

/// Theorem 1: for any data, `eps0^2 l (l+1) / 2`.
pub fn data_independent(eps0: f64, l: f64) -> f64 {
    0.5 * eps0 * eps0 * l * (l + 1.0)
}

/// Returns the moment of one query: the least of the bounds that hold (`eps0 * l` holds for every
/// eps0-private answer).
pub fn alpha(q: Option<f64>, eps0: f64, l: f64) -> f64 {
    let bound = data_independent(eps0, l).min(eps0 * l);
    match q.and_then(|q| data_dependent(q, eps0, l)) {
        Some(dependent) => bound.min(dependent),
        None => bound,
    }
}

/// Returns [`alpha`] of many queries, summed for each of `orders`. `changed` votes can change, so
/// one answer is `eps0 = 2 * changed * gamma` private.
///
/// Sums of `ln(1 + x)` are kept as products, `1 + x = (1 + a)(1 + b)`, so that a query needs no
/// logarithm. `(1+u)^l - 1` follows from that of the order before: a few additions and
/// multiplications for each query and order.
pub fn moments<'a>(
    queries: impl IntoIterator<Item = &'a [u32]>,
    gamma: f64,
    changed: u32,
    orders: Orders,
) -> Vec<f64> {
    let eps0 = 2.0 * f64::from(changed) * gamma;
    let bound: Vec<f64> = orders.iter().map(|l| alpha(None, eps0, l)).collect();
    let mut total = vec![0.0; orders.n];
    if changed == 0 {
        return total;
    }
    let losing = WinnerTable::new(gamma);
    let exact = eps0 * orders.step * orders.n as f64 >= LARGEST;
    let powers: Vec<f64> = orders.iter().map(|l| libm::expm1(eps0 * l)).collect();
    let caps: Vec<f64> = bound.iter().map(|b| libm::expm1(*b)).collect();
    let (mut product, mut held) = (vec![0.0; orders.n], 0);
    // a product of 32 numbers of at most e^caps stays finite, and rounding does not add up
    let most = (LARGEST / bound.last().copied().unwrap_or(1.0)).clamp(1.0, 32.0) as usize;
    for counts in queries {
        // if it underflows, a larger number is a bound as well; 0 would make the answer free
        let q = losing.q(counts).max(f64::MIN_POSITIVE);
        if q >= q_limit(eps0) {
            total
                .iter_mut()
                .zip(&bound)
                .for_each(|(t, b)| *t = plus(*t, *b));
            continue;
        }
        if exact {
            let each = orders.iter().map(|l| alpha(Some(q), eps0, l));
            total
                .iter_mut()
                .zip(each)
                .for_each(|(t, a)| *t = plus(*t, a));
            continue;
        }
        let u = growth(q, eps0);
        let u = libm::expm1(orders.step * libm::log1p(u));
        let (factor, stay, mut grown) = (1.0 + u, 1.0 - q, 0.0);
        for ((p, power), cap) in product.iter_mut().zip(&powers).zip(&caps) {
            grown = grown * factor + u;
            // for the largest numbers `grown` is infinite, and the cap applies
            let x = (stay * grown + q * power).min(*cap);
            *p += x + *p * x;
        }
        held += 1;
        if held == most {
            flush(&mut product, &mut total);
            held = 0;
        }
    }
    flush(&mut product, &mut total);
    total
}

fn flush(product: &mut [f64], total: &mut [f64]) {
    for (p, t) in product.iter_mut().zip(total) {
        *t = plus(*t, libm::log1p(std::mem::take(p)));
    }
}

/// Computes [`lnmax_q`], capped, of whole counts; [`loses`] is tabulated.
struct WinnerTable {
    gamma: f64,
    known: Vec<f64>,
}

impl WinnerTable {
    fn new(gamma: f64) -> Self {
        let known = (0..4096).map(|gap| loses(gamma * f64::from(gap))).collect();
        Self { gamma, known }
    }

    fn q(&self, counts: &[u32]) -> f64 {
        let highest = counts.iter().copied().max().unwrap_or(0);
        let (mut sum, mut won) = (0.0, false);
        for n in counts {
            // skip one winner among the highest: a later subtraction of its share would cancel
            // digits of a small sum
            if *n == highest && !won {
                won = true;
                continue;
            }
            let gap = highest - n;
            sum += match self.known.get(gap as usize) {
                Some(known) => *known,
                None => loses(self.gamma * f64::from(gap)),
            };
        }
        cap_q(sum, counts.len())
    }
}

/// Returns the tail bound of Abadi et al. 2016, `min_l (alpha(l) - ln delta) / l`, and the order
/// that attains it.
pub fn epsilon(alpha: &[f64], orders: Orders, delta: f64) -> (f64, f64) {
    let each = alpha.iter().zip(orders.iter());
    each.map(|(a, l)| ((a - libm::log(delta)) / l, l))
        .fold((f64::INFINITY, 0.0), |best, next| {
            if next.0 < best.0 { next } else { best }
        })
}

/// The sums that composition of pure guarantees needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pure {
    /// Sum of the epsilons.
    pub sum: f64,
    /// Sum of their squares.
    pub squares: f64,
    /// Sum of `eps (e^eps - 1)`.
    pub gains: f64,
}

impl Pure {
    /// Returns the sums for `k` answers that are `eps0` private each.
    pub fn of(k: usize, eps0: f64) -> Self {
        let k = k as f64;
        Self {
            sum: scaled(k, eps0),
            squares: scaled(scaled(k, eps0), eps0),
            gains: scaled(scaled(k, eps0), libm::expm1(eps0)),
        }
    }

    /// Adds the sums of others.
    pub fn plus(self, other: Self) -> Self {
        Self {
            sum: plus(self.sum, other.sum),
            squares: plus(self.squares, other.squares),
            gains: plus(self.gains, other.gains),
        }
    }

    /// Advanced composition (Dwork and Roth 2014, Theorem 3.20, for unequal epsilons as in Dwork,
    /// Rothblum, Vadhan 2010): `sqrt(2 ln(1/delta) sum eps^2) + sum eps (e^eps - 1)`.
    pub fn advanced(&self, delta: f64) -> f64 {
        (-2.0 * libm::log(delta) * self.squares).sqrt() + self.gains
    }

    /// Returns the least of basic (`delta = 0`) and advanced composition.
    pub fn least(&self, delta: f64) -> f64 {
        self.sum.min(self.advanced(delta))
    }
}
