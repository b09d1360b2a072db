//! [`Stream`]: randomness by address. A draw depends on its *user* and its *purpose*, never on
//! earlier draws.
//!
//! A [`Stream`] is a path such as `root/round 3/client 7/batch-order`. Its key is the SHA-256 of
//! that path and its numbers come from ChaCha with eight rounds, whose output is published and
//! stable. A stream is passed by reference and never stored, so a run that was stopped resumes with
//! the same numbers.

mod normal;

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

/// The address of a sequence of random numbers.
///
/// ```
/// use fl_core::Stream;
/// let run = Stream::root(7);
/// let (a, b) = (run.child("client", 1), run.child("client", 2));
/// // the path decides, not the order
/// assert_eq!(a.draws().below(100), run.child("client", 1).draws().below(100));
/// assert_ne!(a.key(), b.key());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u8; 32],
}

impl Stream {
    /// Returns the root of a run.
    pub fn root(seed: u64) -> Self {
        Self::named(b"fl stream v1", "seed", seed)
    }

    fn named(parent: &[u8], label: &str, index: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(parent);
        hash.update((label.len() as u64).to_le_bytes());
        hash.update(label.as_bytes());
        hash.update(index.to_le_bytes());
        Self {
            key: hash.finalize().into(),
        }
    }

    /// Returns the stream for one purpose (`label`) and one of its instances (`index`).
    pub fn child(&self, label: &str, index: u64) -> Self {
        Self::named(&self.key, label, index)
    }

    /// Returns the 32 bytes that identify the stream; they may cross a process or a C interface.
    pub fn key(&self) -> [u8; 32] {
        self.key
    }

    /// Returns the stream with this [`Stream::key`].
    pub fn from_key(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// Returns the numbers, from the first.
    pub fn draws(&self) -> Draws {
        Draws(ChaCha8Rng::from_seed(self.key))
    }
}

/// The numbers of one stream. It is a [`RngCore`], so `rand_distr`'s distributions accept it; the
/// functions below give the same bits on every processor.
pub struct Draws(ChaCha8Rng);

impl RngCore for Draws {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
    fn fill_bytes(&mut self, dest: &mut [u8]) {
        self.0.fill_bytes(dest);
    }
}

impl Draws {
    /// Draws uniformly from `[0, 1)`, 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws uniformly from `0..n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// Draws from the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        normal::normal(self)
    }

    /// Draws from the Laplace distribution with mean 0 and the given scale, by the inverse of its
    /// distribution function.
    pub fn laplace(&mut self, scale: f64) -> f64 {
        // the middle of each of 2^53 cells: never 0 or 1, where the inverse is infinite
        let u = ((self.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        laplace_quantile(u, scale)
    }

    /// Draws the natural logarithm of a Gamma(`shape`, 1) value. Shapes down to 1e-4 (a Dirichlet
    /// that gives everything to one client) underflow in the value itself.
    pub fn ln_gamma_draw(&mut self, shape: f64) -> f64 {
        // G(a) = G(a + 1) * U^(1/a); Marsaglia and Tsang 2000, section 6
        let above = normal::gamma(self, shape + 1.0);
        let u = 1.0 - self.uniform();
        libm::log(above) + libm::log(u) / shape
    }

    /// Returns a random order of `0..n` (Fisher-Yates).
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        self.shuffle(&mut order);
        order
    }

    /// Puts `items` in a random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// Draws `k` different numbers from `0..n`, ascending; all of them if `k >= n`.
    pub fn choose(&mut self, n: usize, k: usize) -> Vec<usize> {
        let mut order = self.permutation(n);
        order.truncate(k);
        order.sort_unstable();
        order
    }
}

/// Returns the `u`-quantile, `u` in `(0, 1)`, of the Laplace distribution with mean 0 and the given
/// scale.
pub fn laplace_quantile(u: f64, scale: f64) -> f64 {
    let centred = u - 0.5;
    // `signum` of 0.0 is 1, but the logarithm is 0 there
    -scale * centred.signum() * libm::log1p(-2.0 * centred.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_the_first_values_never_change() {
        let stream = Stream::root(7).child("round", 3).child("client", 1);
        let mut draws = stream.draws();
        let first: Vec<String> = (0..3)
            .map(|_| format!("{:016x}", draws.next_u64()))
            .collect();
        insta::assert_snapshot!(first.join(" "), @"53dbc20c2baf0194 31021af361988276 0d6451f70dfbb7b8");
        insta::assert_snapshot!(format!("{:?}", stream.draws().permutation(8)), @"[6, 7, 3, 4, 5, 0, 1, 2]");
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut d = Stream::root(1).draws();
        let n = 200_000;
        let moments = |f: &mut dyn FnMut() -> f64| {
            let (mut s, mut s2) = (0.0, 0.0);
            for _ in 0..n {
                let x = f();
                s += x;
                s2 += x * x;
            }
            (s / n as f64, s2 / n as f64)
        };
        let (m, v) = moments(&mut || d.normal());
        assert!(m.abs() < 0.012 && (v - 1.0).abs() < 0.02, "normal {m} {v}");
        let (m, v) = moments(&mut || d.laplace(0.5));
        assert!(
            m.abs() < 0.012 && (v - 0.5).abs() < 0.02,
            "laplace has variance 2 scale^2: {m} {v}"
        );
        let (m, _) = moments(&mut || libm::exp(d.ln_gamma_draw(0.3)));
        assert!((m - 0.3).abs() < 0.01, "gamma has mean = shape: {m}");
        let (m, v) = moments(&mut || d.uniform());
        assert!(
            (m - 0.5).abs() < 0.005 && (v - 1.0 / 3.0).abs() < 0.005,
            "uniform {m} {v}"
        );
    }

    #[test]
    fn tiny_shapes_stay_finite() {
        let mut d = Stream::root(2).draws();
        assert!((0..1000).all(|_| d.ln_gamma_draw(1e-4).is_finite()));
    }
}
