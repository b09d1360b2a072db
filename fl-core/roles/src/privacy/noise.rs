//! [`NoiseSource`] and [`ReleaseNoise`]: the noise of a release, and its source.
//!
//! Seeded noise is for experiments: anyone with the seed can remove it. System noise follows a key
//! that only this run knows, and is drawn on a grid. The last bits of noise drawn from the real
//! numbers would reveal the value that it was added to (Mironov 2012).

use super::discrete;
use crate::{Draws, Result, Stream};
use anyhow::anyhow;
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

crate::choices! {
    /// Where noise comes from.
    pub enum Noise: Copy, Eq, Serialize, Deserialize {
        /// The seed, so that the run can be repeated. A reader of the spec can remove the noise
        /// again, so this is for experiments.
        Seeded = "seeded",
        /// A key of the operating system that is forgotten with the run; exact samplers on a grid
        /// (Canonne, Kamath and Steinke 2020). The run cannot be repeated bit for bit, and its
        /// digest leaves out what depends on the noise.
        System = "system",
    }
}

#[expect(clippy::derivable_impls, reason = "`choices!` takes no `#[default]`")]
impl Default for Noise {
    fn default() -> Self {
        Self::Seeded
    }
}

impl Display for Noise {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Seeded => "from the run's seed (reproducible, for research: not a guarantee)",
            Self::System => "from the operating system, on a grid (cannot be repeated)",
        })
    }
}

/// The source of all noise of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NoiseSource {
    /// See [`Noise::Seeded`].
    #[default]
    Seeded,
    /// See [`Noise::System`]; holds the key of the run.
    System(Stream),
}

impl NoiseSource {
    /// Draws a new key from the operating system.
    ///
    /// # Errors
    /// If the system has none to give.
    pub fn system() -> Result<Self> {
        let mut key = [0; 32];
        let drawn = getrandom::fill(&mut key);
        drawn.map_err(|e| anyhow!("the operating system gives no random numbers: {e}"))?;
        Ok(Self::System(Stream::from_key(key)))
    }

    /// Returns the kind of this source.
    pub fn kind(&self) -> Noise {
        match self {
            Self::Seeded => Noise::Seeded,
            Self::System(_) => Noise::System,
        }
    }

    /// Returns the noise of the release with this address in the run. A release that is repeated
    /// after a stop gets the same noise.
    pub fn at(&self, address: &Stream) -> ReleaseNoise {
        let stream = match self {
            Self::Seeded => address.clone(),
            Self::System(key) => {
                let words = address.key();
                let words = words.chunks_exact(8);
                let words = words.map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
                words.fold(key.clone(), |stream, word| stream.child("noise", word))
            }
        };
        ReleaseNoise::of(stream, self.kind())
    }
}

/// The noise of one release.
#[derive(Clone, Debug)]
pub struct ReleaseNoise {
    stream: Stream,
    kind: Noise,
    /// Whether the mechanism drew any noise, also from a child.
    drawn: Arc<AtomicBool>,
}

impl ReleaseNoise {
    /// Returns noise that follows the seed of `stream`.
    pub fn seeded(stream: &Stream) -> Self {
        Self::of(stream.clone(), Noise::Seeded)
    }

    /// Returns noise of this kind from this stream.
    pub fn of(stream: Stream, kind: Noise) -> Self {
        Self {
            stream,
            kind,
            drawn: Arc::default(),
        }
    }

    /// Returns whether a mechanism has drawn any of this noise.
    pub fn is_drawn(&self) -> bool {
        self.drawn.load(Ordering::Relaxed)
    }

    /// Returns the same noise, marked as not drawn yet.
    pub(crate) fn undrawn(&self) -> Self {
        Self::of(self.stream.clone(), self.kind)
    }

    /// Marks the noise as drawn elsewhere.
    #[doc(hidden)]
    pub fn mark_drawn(&self) {
        self.drawn.store(true, Ordering::Relaxed);
    }

    /// Returns the stream, for a library that reports itself whether it drew.
    #[doc(hidden)]
    pub fn source(&self) -> &Stream {
        &self.stream
    }

    /// Returns the kind of its source.
    pub fn kind(&self) -> Noise {
        self.kind
    }

    /// Returns the noise for one of several purposes in a release.
    pub fn child(&self, label: &str, index: u64) -> Self {
        Self {
            stream: self.stream.child(label, index),
            kind: self.kind,
            drawn: self.drawn.clone(),
        }
    }

    /// Returns the bare numbers, for mechanisms that are private by a choice and not by noise, such
    /// as a random sample.
    pub fn stream(&self) -> &Stream {
        self.mark_drawn();
        &self.stream
    }

    /// Returns the noise from its beginning.
    pub fn draws(&self) -> NoiseDraws {
        self.mark_drawn();
        NoiseDraws {
            draws: self.stream.draws(),
            exact: self.kind == Noise::System,
        }
    }
}

/// Perturbs numbers and labels one after the other.
pub struct NoiseDraws {
    draws: Draws,
    exact: bool,
}

impl NoiseDraws {
    /// Returns `x` with Laplace noise of this scale, which is above 0 and finite. System noise
    /// first moves `x` to [`grid`], towards 0, so that a bound on `x` still holds.
    pub fn laplace(&mut self, x: f64, scale: f64) -> f64 {
        if !self.exact {
            x + self.draws.laplace(scale)
        } else {
            on_grid(x, scale, |t| discrete::laplace(&mut self.draws, t))
        }
    }

    /// Returns `x` with normal noise of this standard deviation, which is above 0 and finite; as
    /// [`NoiseDraws::laplace`].
    pub fn gaussian(&mut self, x: f64, sigma: f64) -> f64 {
        if !self.exact {
            x + sigma * self.draws.normal()
        } else {
            on_grid(x, sigma, |t| discrete::gaussian(&mut self.draws, t))
        }
    }

    /// Returns `label` with probability `e^epsilon / (e^epsilon + classes - 1)`, and otherwise one
    /// of the other classes, all equally likely.
    pub fn randomised_response(&mut self, label: u32, classes: usize, epsilon: f64) -> u32 {
        if classes < 2 {
            return label;
        }
        if self.exact {
            return discrete::randomised_response(&mut self.draws, label, classes, epsilon);
        }
        // divided by e^epsilon, which may overflow
        let keep = 1.0 / (1.0 + (classes - 1) as f64 * libm::exp(-epsilon));
        if self.draws.uniform() < keep {
            return label;
        }
        let other = self.draws.below(classes - 1) as u32;
        other + u32::from(other >= label)
    }
}

/// The resolution of the grid: a scale has 2^20 to 2^21 steps.
const STEPS: i32 = 20;

/// Returns the grid for noise of this scale: a power of two.
pub fn grid(scale: f64) -> f64 {
    // not by `exp2`, whose last bit is not guaranteed
    let exponent = ((scale.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let exponent = (exponent - STEPS).clamp(-1022, 1023);
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Moves `x` to the grid towards 0, and adds the number of steps that `noise` returns for a scale
/// of `t` steps. `t` is rounded up: never less noise than requested.
fn on_grid(x: f64, scale: f64, noise: impl FnOnce(u64) -> i64) -> f64 {
    if !x.is_finite() {
        return x; // refused after the noise
    }
    let grid = grid(scale);
    let t = ((scale / grid).ceil() as u64).max(1);
    // a whole number, exact as long as a double holds it, and rounded as a whole above that
    let steps = (x / grid).trunc() as i128;
    steps.saturating_add(i128::from(noise(t))) as f64 * grid
}

/// The least bound of a norm that single precision can keep. Scaling to a smaller bound may round
/// number by number to a norm above it: below 1.2e-38, numbers are 1.4e-45 apart.
pub const LEAST_CLIP: f64 = 1e-30;

/// Returns the largest number of single precision that is at most `bound`, for mechanisms that clip
/// to it.
pub fn at_most(bound: f64) -> f32 {
    let near = bound as f32;
    if f64::from(near) > bound {
        near.next_down()
    } else {
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(seed: u64) -> ReleaseNoise {
        NoiseSource::System(Stream::root(seed)).at(&Stream::root(1).child("release", 0))
    }

    #[test]
    fn seeded_noise_is_that_of_the_stream() {
        let stream = Stream::root(3);
        let (mut a, mut b) = (ReleaseNoise::seeded(&stream).draws(), stream.draws());
        assert_eq!(a.laplace(1.5, 2.0), 1.5 + b.laplace(2.0));
        assert_eq!(a.gaussian(1.5, 2.0), 1.5 + 2.0 * b.normal());
    }

    #[test]
    fn noise_knows_whether_it_was_drawn() {
        let noise = ReleaseNoise::seeded(&Stream::root(1));
        let step = noise.child("step", 0);
        assert!(!noise.is_drawn() && !noise.clone().is_drawn());
        step.draws();
        assert!(noise.is_drawn(), "a part of it was");
        let choice = ReleaseNoise::seeded(&Stream::root(1));
        choice.stream();
        assert!(choice.is_drawn());
    }

    #[test]
    fn every_release_has_noise_of_its_own_and_keeps_it() {
        let run = NoiseSource::system().unwrap();
        let (a, b) = (Stream::root(1).child("a", 0), Stream::root(1).child("a", 1));
        let key = |source: &NoiseSource, address| source.at(address).stream().key();
        assert_eq!(key(&run, &a), key(&run, &a));
        assert_ne!(key(&run, &a), key(&run, &b));
        assert_ne!(key(&run, &a), key(&NoiseSource::system().unwrap(), &a));
        assert_ne!(key(&run, &a), a.key(), "the seed tells nothing");
    }

    #[test]
    fn exact_what_is_released_lies_on_the_grid_for_any_input() {
        for scale in [1e-300, 1e-3, 0.3, 1.0, 5.0, 1e6, 1e300] {
            let grid = grid(scale);
            assert!(scale / grid >= 1_048_576.0 && scale / grid < 2_097_152.0);
            let mut draws = system(7).draws();
            for x in [0.0, 0.1 * scale, -0.123_456_789 * scale, scale / 3.0] {
                for y in [draws.laplace(x, scale), draws.gaussian(x, scale)] {
                    assert_eq!((y / grid).fract(), 0.0, "{y} at {scale}");
                }
            }
        }
        assert!(
            system(7).draws().laplace(f64::MAX, 1.0) > 1e30,
            "no overflow"
        );
        assert!(system(7).draws().laplace(f64::NAN, 1.0).is_nan());
    }

    #[test]
    fn bounds_are_not_rounded_upwards() {
        for bound in [0.1, 0.3, 1.0, 30.0, 1e-40, 16_777_217.0] {
            let near = at_most(bound);
            assert!(f64::from(near) <= bound && f64::from(near.next_up()) > bound);
        }
    }

    #[test]
    fn both_kinds_have_the_moments_that_they_should() {
        for noise in [ReleaseNoise::seeded(&Stream::root(1)), system(1)] {
            let mut draws = noise.draws();
            let mut moments = |f: &dyn Fn(&mut NoiseDraws) -> f64| {
                let all: Vec<f64> = (0..100_000).map(|_| f(&mut draws)).collect();
                let mean = all.iter().sum::<f64>() / 1e5;
                (
                    mean,
                    all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5,
                )
            };
            let (mean, variance) = moments(&|d| d.laplace(3.0, 0.5));
            assert!((mean - 3.0).abs() < 0.01 && (variance / 0.5 - 1.0).abs() < 0.04);
            let (mean, variance) = moments(&|d| d.gaussian(-3.0, 2.0));
            assert!((mean + 3.0).abs() < 0.03 && (variance / 4.0 - 1.0).abs() < 0.02);
            // e / (e + 3) = 0.4754
            let (kept, _) = moments(&|d| f64::from(d.randomised_response(2, 4, 1.0) == 2));
            assert!((kept - 0.4754).abs() < 0.007, "{kept}");
        }
    }
}
