//! New inputs that are computed from the old ones: random features, principal components of public
//! rows, and features of a model that another run kept.

use crate::kept_model::{FrozenModel, KeptModel};
use anyhow::{Context, Result, bail, ensure};
use fl_core::portable::{add_product, product};
use fl_core::settings::above;
use fl_core::{Inputs, Samples, Stream, Task, TaskKind};
use fl_linalg::symmetric_eigen;
use fl_registry::Catalogue;
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use sha2::{Digest, Sha256};
use std::f64::consts::TAU;
use std::path::Path;
use std::sync::Arc;

/// Rows that are computed at a time.
const BATCH: usize = 256;

/// The most inputs that principal components are found for: the time grows with the third power.
const MOST: usize = 1024;

/// The most numbers of the map: 1 GiB of them.
const MOST_WEIGHTS: usize = 1 << 27;

/// The most numbers of the features of all rows: 8 GiB of them.
const MOST_FEATURES: usize = 1 << 31;

/// The most inputs that are read at a time, unless a row has more: 128 MiB of them.
const MOST_READ: usize = 1 << 24;

/// An eigenvalue below this part of the largest is rounding.
const LEAST: f64 = 1e-9;

fl_core::choices! {
    /// New inputs that are computed from the old ones, for the rows of all alike.
    pub enum Features {
        /// `sqrt(2 / width) cos(x . w / scale + b)`, with `w` from the normal and `b` from the
        /// uniform distribution over a circle: a linear model of them is a kernel machine, with the
        /// kernel `exp(-|x - y|^2 / (2 scale^2))` (Rahimi, Recht 2007).
        RandomFourier(RandomFourier) = "random-fourier",
        /// `sqrt(2 / width) max(0, x . w)`, with `w` from the normal distribution: a layer of a
        /// network that stays as it begins. A linear model of them is a kernel machine, with the
        /// arc-cosine kernel of order 1 (Cho, Saul 2009).
        RandomRelu(RandomRelu) = "random-relu",
        /// The principal components of the public samples, so `public` is needed. The clients' rows
        /// have no part in them.
        PrincipalComponents(PrincipalComponents) = "principal-components",
        /// The output of the layer before the last of a model that another run kept, such as a
        /// network that learnt public rows. It stays as it is.
        KeptModel(KeptModel) = "kept-model",
    }
}

fl_core::settings! {
    /// Random Fourier features.
    pub struct RandomFourier {
        /// Number of features.
        width: usize, in 1..=65_536;
        /// The distance over which the kernel falls, in units of the (normalised) inputs.
        scale: f64 = 1.0, in above(0.0);
        /// Another draw of the features. They do not depend on the run's seed, so a model that one
        /// run kept can be the start of another.
        seed: u64 = 0;
    }
}

fl_core::settings! {
    /// A random layer with a rectifier.
    pub struct RandomRelu {
        /// Number of features.
        width: usize, in 1..=65_536;
        /// Another draw of the features. They do not depend on the run's seed, so a model that one
        /// run kept can be the start of another.
        seed: u64 = 0;
    }
}

fl_core::settings! {
    /// Principal components.
    pub struct PrincipalComponents {
        /// Number of components, those of the largest variances.
        width: usize, in 1..=1024;
        /// Divide each by its standard deviation over the public samples.
        whiten: bool = false;
    }
}

impl Features {
    /// Number of features.
    fn width(&self) -> Result<usize> {
        Ok(match self {
            Self::RandomFourier(of) => of.width,
            Self::RandomRelu(of) => of.width,
            Self::PrincipalComponents(of) => of.width,
            Self::KeptModel(of) => of.frozen()?.width,
        })
    }

    /// The kept model that it is, if it is one.
    pub fn kept_model(&self) -> Option<&KeptModel> {
        match self {
            Self::KeptModel(of) => Some(of),
            _ => None,
        }
    }

    /// Loads a kept model, by the parts of `catalogue`; its path is relative to `folder`.
    ///
    /// # Errors
    /// If it cannot be loaded, or has no features.
    pub(crate) fn load(&mut self, folder: &Path, catalogue: &Catalogue) -> Result<()> {
        match self {
            Self::KeptModel(of) => of.load(folder, catalogue),
            _ => Ok(()),
        }
    }

    /// What is to be learnt of rows that were for this.
    ///
    /// # Errors
    /// If outputs belong to places of the inputs, there are less inputs than components, or the map
    /// would be too large.
    pub(crate) fn task(&self, of: &Task) -> Result<Task> {
        if let TaskKind::Pixels { .. } | TaskKind::Image { .. } = of.kind {
            bail!("features have no pixels to predict; leave it out");
        }
        let (width, inputs) = (self.width()?, of.width());
        let task = Task::new(vec![width], of.kind);
        if let Self::KeptModel(kept) = self {
            let due = &kept.frozen()?.input;
            ensure!(
                of.input == *due,
                "the kept model takes inputs of shape {due:?}, and rows of this run have {:?}; give this run the inputs of the model",
                of.input
            );
            return Ok(task);
        }
        if let Self::PrincipalComponents(_) = self {
            ensure!(
                width <= inputs && inputs <= MOST,
                "{width} components of {inputs} inputs; there are at most as many as inputs, and at most {MOST} inputs are possible: take less, or `random-fourier`"
            );
        }
        let weights = width.saturating_mul(inputs);
        ensure!(
            weights <= MOST_WEIGHTS,
            "{width} features of {inputs} inputs would take {}, and at most {} are possible; take a smaller `width`",
            gigabytes(weights, size_of::<f64>()),
            gigabytes(MOST_WEIGHTS, size_of::<f64>())
        );
        Ok(task)
    }

    /// Whether it is computed from public samples.
    pub(crate) fn needs_public(&self) -> bool {
        matches!(self, Self::PrincipalComponents(_))
    }

    /// Returns the map of inputs to features.
    ///
    /// # Errors
    /// If the public samples have fewer components than are wanted.
    pub(crate) fn map(&self, inputs: usize, public: Option<&Samples>) -> Result<FeatureMap> {
        let width = self.width()?;
        let random = |seed: u64, scale: f64| {
            let stream = Stream::root(seed).child("random-features", inputs as u64);
            let mut draws = stream.child("weights", 0).draws();
            let weights = Array2::from_shape_simple_fn((width, inputs), || draws.normal() / scale);
            let mut draws = stream.child("offsets", 0).draws();
            let offsets = Array1::from_shape_simple_fn(width, || TAU * draws.uniform());
            (weights.reversed_axes(), offsets)
        };
        let none = Array1::zeros(inputs);
        match self {
            Self::RandomFourier(of) => {
                let (weights, offsets) = random(of.seed, of.scale);
                Ok(FeatureMap::Product(Product {
                    centre: none,
                    weights,
                    last: Last::Cosine(offsets),
                }))
            }
            Self::RandomRelu(of) => Ok(FeatureMap::Product(Product {
                centre: none,
                weights: random(of.seed, 1.0).0,
                last: Last::Rectifier,
            })),
            Self::PrincipalComponents(of) => {
                let public = public.context("principal components are of public samples")?;
                of.map(public).map(FeatureMap::Product)
            }
            Self::KeptModel(of) => Ok(FeatureMap::Model(of.frozen()?.clone())),
        }
    }
}

impl PrincipalComponents {
    fn map(&self, public: &Samples) -> Result<Product> {
        let (rows, inputs) = (public.len(), public.width());
        let all: Vec<usize> = (0..rows).collect();
        let mut centre = Array1::<f64>::zeros(inputs);
        for batch in all.chunks(BATCH) {
            centre += &values(public, batch).sum_axis(Axis(0));
        }
        centre /= rows as f64;
        let mut covariance = Array2::<f64>::zeros((inputs, inputs));
        for batch in all.chunks(BATCH) {
            let apart = values(public, batch) - &centre;
            add_product(1.0, apart.t(), apart.view(), &mut covariance.view_mut());
        }
        covariance /= rows.saturating_sub(1).max(1) as f64;
        let found = symmetric_eigen(covariance)?;
        let largest = found.values[inputs - 1].max(0.0);
        let known = found.values.iter().filter(|v| **v > LEAST * largest);
        let known = known.count();
        ensure!(
            self.width <= known,
            "`features.principal-components`: the {rows} public samples have {known} components, and `width` is {}; take fewer, or more public samples",
            self.width
        );
        let mut weights = Array2::zeros((inputs, self.width));
        for (k, mut to) in weights.columns_mut().into_iter().enumerate() {
            let at = inputs - 1 - k;
            let vector = found.vectors.column(at);
            let longest = vector
                .iter()
                .copied()
                .fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
            // the sign of a vector is arbitrary
            let mut factor = longest.signum();
            if self.whiten {
                factor /= found.values[at].sqrt();
            }
            to.assign(&vector.mapv(|v| v * factor));
        }
        Ok(Product {
            centre,
            weights,
            last: Last::Nothing,
        })
    }
}

/// Returns the memory that `numbers` of `each` bytes take, in GB.
fn gigabytes(numbers: usize, each: usize) -> String {
    format!("{:.1} GB", numbers as f64 * each as f64 / 1e9)
}

/// The values of these rows, `positions x inputs`.
fn values(of: &Samples, positions: &[usize]) -> Array2<f64> {
    let mut rows = Array2::<f32>::zeros((positions.len(), of.width()));
    of.write(positions, rows.as_slice_mut().unwrap_or_default());
    rows.mapv(f64::from)
}

/// What follows the product with the weights.
#[derive(Clone, Debug)]
enum Last {
    /// The cosine of the sum with these.
    Cosine(Array1<f64>),
    Rectifier,
    Nothing,
}

/// A product with weights, and a function of each number.
#[derive(Clone, Debug)]
pub struct Product {
    /// What is taken away from the inputs.
    centre: Array1<f64>,
    /// `inputs x features`
    weights: Array2<f64>,
    last: Last,
}

impl Product {
    /// The features of these rows, `rows x features`.
    fn of(&self, rows: &ArrayView2<'_, f64>) -> Array2<f32> {
        let mut all = product((rows - &self.centre).view(), self.weights.view());
        let scale = (2.0 / self.weights.ncols() as f64).sqrt();
        match &self.last {
            Last::Cosine(offsets) => {
                all += offsets;
                all.mapv_inplace(|v| scale * libm::cos(v));
            }
            Last::Rectifier => all.mapv_inplace(|v| scale * v.max(0.0)),
            Last::Nothing => {}
        }
        all.mapv(|v| v as f32)
    }
}

/// A map of inputs to features.
#[derive(Clone, Debug)]
pub enum FeatureMap {
    /// A product with weights.
    Product(Product),
    /// A kept model.
    Model(FrozenModel),
}

impl FeatureMap {
    /// The SHA-256 of its numbers or of its model, in hexadecimal, if public samples or a file
    /// decide them; `None` if the settings do.
    pub fn hash(&self) -> Option<String> {
        let (centre, weights) = match self {
            Self::Model(of) => return Some(of.sha256.clone()),
            Self::Product(of) if matches!(of.last, Last::Nothing) => (&of.centre, &of.weights),
            Self::Product(_) => return None,
        };
        let mut hash = Sha256::new();
        for number in centre.iter().chain(weights) {
            hash.update(number.to_le_bytes());
        }
        let hash: [u8; 32] = hash.finalize().into();
        Some(fl_core::hex(&hash))
    }

    /// Number of inputs, and of features.
    fn dim(&self) -> (usize, usize) {
        match self {
            Self::Product(of) => of.weights.dim(),
            Self::Model(of) => (of.input.iter().product(), of.width),
        }
    }

    /// The features of these rows, of which there are `most` at most.
    fn of(&self, all: &Samples, rows: &[usize], most: usize) -> Result<Array2<f32>> {
        match self {
            Self::Product(of) => Ok(of.of(&values(all, rows).view())),
            Self::Model(of) => {
                // PyTorch's last bits may depend on the size of a batch, and a node has fewer rows
                let filled: Vec<usize> = rows.iter().copied().cycle().take(most).collect();
                let features = of.of(&all.pick(&filled))?;
                Ok(features.slice_move(s![..rows.len(), ..]))
            }
        }
    }

    /// Puts features in the place of the inputs of these views; sets that they share they still
    /// share, and rows keep their ids. Rows that no view shows become 0.
    ///
    /// # Errors
    /// If they have another number of inputs, the features of all would be too large, or a model
    /// fails.
    pub fn apply(&self, mut views: Vec<&mut Samples>) -> Result<()> {
        let mut sets: Vec<&Arc<Inputs>> = Vec::new();
        for view in &views {
            if !sets.iter().any(|set| Arc::ptr_eq(set, view.inputs())) {
                sets.push(view.inputs());
            }
        }
        let rows: usize = sets.iter().map(|set| set.len()).sum();
        let (inputs, width) = self.dim();
        let all = rows.saturating_mul(width);
        ensure!(
            all <= MOST_FEATURES,
            "`features`: {width} features of {rows} rows would take {}, and at most {} are possible; take a smaller `width`, or fewer rows",
            gigabytes(all, size_of::<f32>()),
            gigabytes(MOST_FEATURES, size_of::<f32>())
        );
        while let Some(first) = views.first() {
            let old = first.inputs().clone();
            ensure!(
                old.width() == inputs,
                "rows have {} inputs, and the features are of {inputs}",
                old.width()
            );
            let (same, others): (Vec<_>, Vec<_>) = views
                .into_iter()
                .partition(|view| Arc::ptr_eq(view.inputs(), &old));
            views = others;
            let mut shown: Vec<usize> = same
                .iter()
                .flat_map(|view| view.ids().iter().map(|id| *id as usize))
                .collect();
            shown.sort_unstable();
            shown.dedup();
            let all = Samples::all(old);
            let mut new = Array2::<f32>::zeros((all.len(), width));
            let most = (MOST_READ / inputs.max(1)).clamp(1, BATCH);
            for batch in shown.chunks(most) {
                let features = self.of(&all, batch, most).context("`features`")?;
                for (row, features) in batch.iter().zip(features.rows()) {
                    new.slice_mut(s![*row, ..]).assign(&features);
                }
            }
            let data = new.into_raw_vec_and_offset().0;
            let shape = vec![width];
            let new = Arc::new(Inputs::Dense { shape, data });
            for view in same {
                *view = Samples::of(new.clone(), view.ids().to_vec())?;
            }
        }
        Ok(())
    }
}
