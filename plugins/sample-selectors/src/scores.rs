//! `confidence` and `energy`: two selectors by a model's own scores (logits), with which
//! Selective-FD compares its density ratio.
//!
//! The samples that they choose from *are* scores, one value per class: the protocol passes those
//! of the client's model.

use crate::accept::{accept, quantile};
use crate::density_ratio::blocks;
use fl_core::prelude::*;
use fl_core::{Examples, Problem, TaskKind};
use ndarray::ArrayView1;
use serde::{Deserialize, Serialize};

settings! {
    /// Keeps the samples with the largest softmax probability of the client's model (Hendrycks and
    /// Gimpel 2017). Chooses from scores: set `protocol.filter-on: scores`.
    #[check(ConfidenceSettings::one_threshold)]
    pub struct ConfidenceSettings {
        /// Share of the client's own samples that would be rejected (0.25 as in Selective-FD's
        /// ablations): the threshold is this quantile of their confidences. Default: 0.25.
        quantile: Option<f64> = None, in 0.0..=1.0;
        /// A fixed threshold in place of a quantile.
        threshold: Option<f64> = None, in above_to(0.0, 1.0);
    }
}

settings! {
    /// Keeps the samples of low energy, `-logsumexp(scores)` (Liu et al. 2020). Chooses from
    /// scores: set `protocol.filter-on: scores`.
    #[check(EnergySettings::one_threshold)]
    pub struct EnergySettings {
        /// Share of the client's own samples that would be rejected (0.25 as in Selective-FD's
        /// ablations): the threshold is this quantile of their energies, counted from the highest.
        /// Default: 0.25.
        quantile: Option<f64> = None, in 0.0..=1.0;
        /// A fixed threshold in place of a quantile; an energy may be negative.
        threshold: Option<f64> = None;
    }
}

/// The share of a client's own samples to reject, if neither it nor a threshold is given.
const QUANTILE: f64 = 0.25;

impl ConfidenceSettings {
    fn one_threshold(&self) -> Result<(), String> {
        one_threshold(self.quantile, self.threshold)
    }
}

impl EnergySettings {
    fn one_threshold(&self) -> Result<(), String> {
        one_threshold(self.quantile, self.threshold)
    }
}

fn one_threshold(quantile: Option<f64>, threshold: Option<f64>) -> Result<(), String> {
    if quantile.is_some() && threshold.is_some() {
        Err("`quantile` has no effect beside a fixed `threshold`: leave one of them out".into())
    } else {
        Ok(())
    }
}

/// Returns the largest and the sum of `exp(z - largest)`.
fn powers(z: ArrayView1<'_, f32>) -> (f64, f64) {
    let top: f64 = z.iter().fold(f32::NEG_INFINITY, |m, v| m.max(*v)).into();
    let powers = z.iter().map(|v| libm::exp(f64::from(*v) - top));
    (top, powers.sum())
}

/// Returns the largest softmax probability of scores, in `1/classes..=1`.
fn confidence(z: ArrayView1<'_, f32>) -> f64 {
    1.0 / powers(z).1
}

/// Returns `logsumexp(z)`: the negative energy, so that more is better.
fn negative_energy(z: ArrayView1<'_, f32>) -> f64 {
    let (top, sum) = powers(z);
    top + libm::log(sum)
}

/// Judges a row of scores: more is better.
type Judge = fn(ArrayView1<'_, f32>) -> f64;

/// The fit to the client's own scores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct ScoreModel {
    classes: usize,
    /// `None` without own samples and without a fixed threshold: no sample is kept.
    threshold: Option<f64>,
}

/// The shared part of the two selectors.
#[derive(Clone, Debug)]
struct Filter {
    name: &'static str,
    judge: Judge,
    quantile: f64,
    /// On the scale of `judge`.
    fixed: Option<f64>,
    fitted: Option<ScoreModel>,
}

impl Filter {
    fn judged(&self, scores: &Samples, classes: usize) -> Result<Vec<f64>> {
        let (name, width) = (self.name, scores.width());
        Problem::shape_unless(width == classes, || {
            format!(
                "{width} values a sample for {classes} classes: `{name}` looks at scores; set `protocol.filter-on: scores`"
            )
        })?;
        let all: Vec<usize> = (0..scores.len()).collect();
        let mut judged = Vec::with_capacity(scores.len());
        for block in blocks(scores, &all, "the scores") {
            judged.extend(block?.rows().into_iter().map(self.judge));
        }
        Ok(judged)
    }

    fn fit(&mut self, own: &Examples) -> Result<()> {
        let TaskKind::Classes(classes) = own.task().kind else {
            bail!(
                "`{}` needs one class for each sample, and this task has another target",
                self.name
            );
        };
        let threshold = match self.fixed {
            Some(fixed) => Some(fixed),
            None => quantile(&self.judged(&own.samples, classes)?, self.quantile),
        };
        self.fitted = Some(ScoreModel { classes, threshold });
        Ok(())
    }

    fn pool(&self, scores: &Samples) -> Result<(Vec<f64>, Option<f64>)> {
        let fitted = self.fitted.as_ref();
        let ScoreModel { classes, threshold } = fitted
            .with_context(|| format!("`{}` must see the client's own scores first", self.name))?;
        Ok((self.judged(scores, *classes)?, *threshold))
    }

    fn select(&self, scores: &Samples) -> Result<Vec<usize>> {
        let (judged, threshold) = self.pool(scores)?;
        let kept = |v: f64| threshold.is_some_and(|t| accept(v, t, false));
        Ok((0..judged.len()).filter(|at| kept(judged[*at])).collect())
    }

    fn save(&self) -> Vec<u8> {
        let bytes = self.fitted.as_ref().map(postcard::to_stdvec);
        bytes.map_or_else(Vec::new, |b| b.expect("two numbers can be written"))
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.fitted = if state.is_empty() {
            None
        } else {
            let read = postcard::take_from_bytes::<ScoreModel>(state);
            let read = read.ok().filter(|(fitted, rest)| {
                rest.is_empty() && fitted.threshold.is_none_or(f64::is_finite)
            });
            Some(
                read.with_context(|| format!("not a state of `{}`", self.name))?
                    .0,
            )
        };
        Ok(())
    }
}

macro_rules! selector {
    ($(#[doc = $doc:literal])+ $part:ident, $settings:ident, $name:literal, $paper:literal, $judge:expr, $fixed:expr) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug)]
        pub struct $part(Filter);

        impl From<$settings> for $part {
            fn from(settings: $settings) -> Self {
                let fixed: fn(&$settings) -> Option<f64> = $fixed;
                Self(Filter { name: $name, judge: $judge, fixed: fixed(&settings), quantile: settings.quantile.unwrap_or(QUANTILE), fitted: None })
            }
        }
        impl Selector for $part {
            type Pool = Samples;
            fn fit(&mut self, own: &Examples, _: &Stream) -> Result<()> { self.0.fit(own) }
            fn needs_scores(&self) -> bool { true }
            fn select(&mut self, _: &Round, pool: &Samples) -> Result<Vec<usize>> { self.0.select(pool) }
            fn rank(&mut self, pool: &Samples) -> Result<Option<Vec<f64>>> { Ok(Some(self.0.pool(pool)?.0)) }
            fn save(&self) -> Vec<u8> { self.0.save() }
            fn load(&mut self, state: &[u8]) -> Result<()> { self.0.load(state) }
        }
        plugin!(selector $name => $settings as $part, papers: [$paper]);
    };
}

selector! {
    /// Keeps a sample if its largest softmax probability is at least the threshold; ranks by that
    /// probability.
    Confidence, ConfidenceSettings, "confidence", "Hendrycks and Gimpel 2017", confidence, |s| s.threshold
}
selector! {
    /// Keeps a sample if its energy is at most the threshold; ranks by the negative energy.
    Energy, EnergySettings, "energy", "Liu et al. 2020", negative_energy, |s| s.threshold.map(|t| -t)
}

#[cfg(test)]
#[path = "scores_tests.rs"]
mod tests;
