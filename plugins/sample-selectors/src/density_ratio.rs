//! `density-ratio`, the client selector of Selective-FD (Shao et al., "Selective knowledge sharing
//! for privacy-preserving federated distillation without a good teacher", Nature Communications
//! 2024): a client labels only samples that resemble its own, by the ratio of the density of its
//! data to a uniform density.

use crate::accept::{accept_any, quantile};
use crate::kernel::BLOCK;
use crate::kulsif::{Method, Ratios};
use crate::width::Width;
use anyhow::anyhow;
use fl_core::prelude::*;
use fl_core::{Examples, Problem};
use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// With more uniform points, the matrix of the exact fit takes more than 3.2 GB.
const MOST_EXACT: usize = 20_000;

/// Number of landmarks, if none is given.
const LANDMARKS: usize = 400;

/// Numbers of all uniform points together: 2 GB.
const MOST_VALUES: usize = 500_000_000;

choices! {
    /// The estimator of the density ratio.
    pub enum Variant {
        /// Solve the linear system: time grows with the cube of `uniform`.
        Exact = "exact",
        /// The published code's slip, for comparison: multiply by the matrix instead of its
        /// inverse.
        Official = "official",
        /// The best sum of `landmarks` kernels: time grows linearly with `uniform` and with the
        /// client's samples.
        Landmarks = "landmarks",
    }
}

settings! {
    /// Keeps the samples that resemble the client's own, by a kernel estimate (KuLSIF) of the ratio
    /// of densities between the client's data and uniform points (Selective-FD, Shao et al. 2024).
    #[check(check)]
    pub struct DensityRatioSettings {
        /// Number of uniform points (n_u; 250 in the paper's MNIST demo); at most 20,000 unless
        /// `variant: landmarks`.
        uniform: usize = 250, in 1..=1_000_000;
        /// The box of the uniform points, `[low, high]` for every feature ([-0.4242, 2.82157] in
        /// the paper's MNIST demo); each feature's smallest and largest own value if left out.
        bounds: Option<Vec<f64>> = None;
        /// Share of the own samples that the ratio is fitted to: the first (of each class, with
        /// `per-class`), at least one (5 % in the paper); the others set the threshold.
        share: f64 = 0.05, in above_to(0.0, 1.0);
        /// The threshold is this quantile of the ratio over the other own samples (tau_client; 0.25
        /// in the paper's ablations).
        quantile: f64 = 0.25, in 0.0..=1.0;
        /// Reject samples right at the threshold too, as the published code does.
        strict: bool = false;
        /// Width of the Gaussian kernel (sigma; 5 in the paper's MNIST demo), or `median` distance
        /// between own samples.
        width: Width = Width::Fixed(5.0);
        /// Regularisation; 1 / sqrt(uniform) if left out.
        beta: Option<f64> = None, in above(0.0);
        /// The estimator of the ratio.
        variant: Variant = Variant::Exact;
        /// Number of landmarks; only for `variant: landmarks`. Default: 400.
        landmarks: Option<usize> = None, in 1..=20_000;
        /// One ratio and threshold for each class that the client has; a sample is kept if any
        /// accepts it. Otherwise, and for sets without single labels, one ratio for all.
        per_class: bool = true;
    }
}

fn check(s: &DensityRatioSettings) -> Result<(), String> {
    if s.variant != Variant::Landmarks && s.uniform > MOST_EXACT {
        return Err(format!(
            "`uniform` must be at most {MOST_EXACT} for an exact ratio, got {}; use `variant: landmarks`",
            s.uniform
        ));
    }
    if s.variant != Variant::Landmarks && s.landmarks.is_some() {
        return Err("`landmarks` has no effect without `variant: landmarks`: set that, or leave `landmarks` out".into());
    }
    match s.bounds.as_deref() {
        None => Ok(()),
        Some([low, high]) if low <= high && f64::from(f32::MAX) >= high.max(-low) => Ok(()),
        Some(other) => Err(format!(
            "`bounds` must be [low, high], low at most high; got {other:?}"
        )),
    }
}

/// The fit to the client's own samples. Without own samples `thresholds` is empty and no sample is
/// kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RatioModel {
    ratios: Option<Ratios>,
    /// One for each ratio.
    thresholds: Vec<f64>,
}

/// The selector. See [`DensityRatioSettings`].
///
/// For a class with few samples, the ratio is fitted to `max(1, round(share n))` of its `n`
/// samples. If that leaves none, they set the threshold themselves, so a class of one sample
/// accepts samples that are at least as dense.
///
/// [`Selector::rank`] returns `w(x)`, or with several ratios the largest `w(x) - threshold`.
#[derive(Clone, Debug)]
pub struct DensityRatio {
    settings: DensityRatioSettings,
    fitted: Option<RatioModel>,
}

/// Returns the samples at `positions` as numbers, in blocks.
///
/// # Errors
/// A block with NaN or an infinity is an error.
pub(crate) fn blocks<'a>(
    samples: &'a Samples,
    positions: &'a [usize],
    what: &'a str,
) -> impl Iterator<Item = Result<Array2<f32>>> + 'a {
    let width = samples.width();
    positions.chunks(BLOCK).map(move |positions| {
        let mut values = vec![0.0; positions.len() * width];
        samples.write(positions, &mut values);
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            let (row, column) = (positions[at / width], at % width);
            return Err(Problem::NotFinite {
                tensor: format!("sample {} of {what}", samples.ids()[row]),
                at: column,
                value: values[at].to_string(),
            }
            .into());
        }
        Ok(Array2::from_shape_vec((positions.len(), width), values)?)
    })
}

/// Returns the samples at `positions`, all at once.
fn rows(samples: &Samples, positions: &[usize]) -> Result<Array2<f32>> {
    let mut all = Array2::zeros((0, samples.width()));
    for block in blocks(samples, positions, "the client's own data") {
        all.append(ndarray::Axis(0), block?.view())?;
    }
    Ok(all)
}

/// Returns the positions of the own samples that share a ratio: those of each class, or all.
fn groups(own: &Examples, per_class: bool) -> Vec<Vec<usize>> {
    let mut groups = match own.classes().filter(|_| per_class) {
        Some(classes) => {
            let mut groups = vec![Vec::new(); own.labels().classes()];
            for (at, class) in classes.into_iter().enumerate() {
                groups[class as usize].push(at);
            }
            groups
        }
        None => vec![(0..own.len()).collect()],
    };
    groups.retain(|group| !group.is_empty());
    groups
}

impl DensityRatio {
    /// Returns the box: one range for each feature.
    fn bounds(&self, own: &Samples) -> Result<Vec<RangeInclusive<f32>>> {
        if let Some([low, high]) = self.settings.bounds.as_deref() {
            return Ok(vec![*low as f32..=*high as f32; own.width()]);
        }
        let mut bounds = vec![f32::INFINITY..=f32::NEG_INFINITY; own.width()];
        let all: Vec<usize> = (0..own.len()).collect();
        for block in blocks(own, &all, "the client's own data") {
            for row in block?.rows() {
                for (b, v) in bounds.iter_mut().zip(row) {
                    *b = b.start().min(*v)..=b.end().max(*v);
                }
            }
        }
        Ok(bounds)
    }

    fn uniform(&self, own: &Samples, stream: &Stream) -> Result<Array2<f32>> {
        let values = self.settings.uniform.saturating_mul(own.width());
        ensure!(
            values <= MOST_VALUES,
            "`uniform` must be at most {} for samples of {} values, got {}",
            MOST_VALUES / own.width(),
            own.width(),
            self.settings.uniform
        );
        let (bounds, mut draws) = (self.bounds(own)?, stream.draws());
        let shape = (self.settings.uniform, own.width());
        Ok(Array2::from_shape_fn(shape, |(_, feature)| {
            let (low, high) = (
                f64::from(*bounds[feature].start()),
                f64::from(*bounds[feature].end()),
            );
            (low + (high - low) * draws.uniform()) as f32
        }))
    }

    fn learn(&self, own: &Examples, stream: &Stream) -> Result<RatioModel> {
        let s = &self.settings;
        if own.is_empty() {
            return Ok(RatioModel {
                ratios: None,
                thresholds: Vec::new(),
            });
        }
        let cut = |group: &[usize]| {
            let n = group.len();
            ((s.share * n as f64).round() as usize).clamp(1, n)
        };
        let groups = groups(own, s.per_class);
        let uniform = self.uniform(&own.samples, &stream.child("uniform", 0))?;
        let fit_to = groups.iter().map(|g| rows(&own.samples, &g[..cut(g)]));
        let fit_to = fit_to.collect::<Result<Vec<_>>>()?;
        let fit_to: Vec<ArrayView2<'_, f32>> = fit_to.iter().map(|set| set.view()).collect();
        let sigma = s.width.of(&own.samples, &stream.child("width", 0));
        let beta = s.beta.unwrap_or(libm::pow(s.uniform as f64, -0.5));
        let landmarks = stream.child("landmarks", 0);
        let method = match s.variant {
            Variant::Exact => Method::Exact,
            Variant::Official => Method::Official,
            Variant::Landmarks => Method::Landmarks(s.landmarks.unwrap_or(LANDMARKS), &landmarks),
        };
        let ratios = Ratios::fit(uniform.view(), &fit_to, sigma, beta, method)?;
        let threshold = |(of, group): (usize, &Vec<usize>)| {
            let (first, rest) = group.split_at(cut(group));
            let judged = if rest.is_empty() { first } else { rest };
            let w = ratios.of_blocks(blocks(&own.samples, judged, "the client's own data"))?;
            ensure!(
                w.column(of).iter().any(|w| *w != 0.0),
                "every ratio of the client's own samples is 0, so it ranks no samples: `width` ({sigma}) is far below the distances between samples; try `width: median`"
            );
            quantile(&w.column(of).to_vec(), s.quantile).context("a threshold needs a sample")
        };
        let thresholds = groups.iter().enumerate().map(threshold);
        let thresholds = thresholds.collect::<Result<_>>()?;
        Ok(RatioModel {
            ratios: Some(ratios),
            thresholds,
        })
    }

    /// Returns the ratios of `pool`, `samples x ratios`, and the threshold of each.
    fn judge(&self, pool: &Samples) -> Result<(Array2<f64>, &[f64])> {
        let fitted = self.fitted.as_ref();
        let fitted = fitted.context("`density-ratio` must see the client's own samples first")?;
        let all: Vec<usize> = (0..pool.len()).collect();
        let w = match &fitted.ratios {
            None => Array2::zeros((pool.len(), 0)),
            Some(ratios) => {
                Problem::shape_unless(pool.width() == ratios.features(), || {
                    format!(
                        "samples of {} values, and `density-ratio` was fitted to samples of {}",
                        pool.width(),
                        ratios.features()
                    )
                })?;
                ratios.of_blocks(blocks(pool, &all, "those to choose from"))?
            }
        };
        Ok((w, &fitted.thresholds))
    }
}

impl Selector for DensityRatio {
    type Pool = Samples;

    fn fit(&mut self, own: &Examples, stream: &Stream) -> Result<()> {
        self.fitted = Some(self.learn(own, stream).context("`density-ratio`")?);
        Ok(())
    }

    fn select(&mut self, _: &Round, pool: &Samples) -> Result<Vec<usize>> {
        let (w, thresholds) = self.judge(pool)?;
        let strict = self.settings.strict;
        let kept = w.rows().into_iter().enumerate();
        Ok(kept
            .filter(|(_, w)| accept_any(w, thresholds, strict))
            .map(|(at, _)| at)
            .collect())
    }

    fn rank(&mut self, pool: &Samples) -> Result<Option<Vec<f64>>> {
        let (w, thresholds) = self.judge(pool)?;
        let rank = w.rows().into_iter().map(|w| match thresholds {
            [] => 0.0,
            [_] => w[0],
            all => {
                let above = w.iter().zip(all).map(|(w, t)| w - t);
                above.fold(f64::NEG_INFINITY, f64::max)
            }
        });
        Ok(Some(rank.collect()))
    }

    fn save(&self) -> Vec<u8> {
        let bytes = self.fitted.as_ref().map(postcard::to_stdvec);
        bytes.map_or_else(Vec::new, |b| b.expect("plain numbers can be written"))
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        if state.is_empty() {
            self.fitted = None;
            return Ok(());
        }
        let wrong = |why: String| anyhow!("not a state of `density-ratio`: {why}");
        let (fitted, rest) =
            postcard::take_from_bytes::<RatioModel>(state).map_err(|e| wrong(e.to_string()))?;
        ensure!(
            rest.is_empty(),
            wrong(format!("{} bytes too many", rest.len()))
        );
        let sets = fitted.ratios.as_ref().map_or(0, Ratios::sets);
        let sound = fitted.ratios.as_ref().is_none_or(Ratios::is_sound);
        ensure!(
            sound
                && sets == fitted.thresholds.len()
                && fitted.thresholds.iter().all(|t| t.is_finite()),
            wrong("its numbers do not fit together".into())
        );
        self.fitted = Some(fitted);
        Ok(())
    }
}
plugin!(selector "density-ratio" => DensityRatioSettings as DensityRatio { fitted },
    papers: ["Shao et al. 2024"]);

#[cfg(test)]
#[path = "density_ratio_tests.rs"]
mod tests;
