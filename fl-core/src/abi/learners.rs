//! Trainers and generators of a library as parts of this program, and how samples cross.

use super::cross::{Letter, content, shorter};
use super::kinds::Crossing;
use super::raw::*;
use super::remote::Remote;
use super::services::Late;
use crate::message::{Message, Named, Params, Parcel, SoftLabels, Tensor, View};
use crate::{
    Differentiable, Examples, Fitted, Generator, Inputs, Parametric, Pass, Problem, Result, Roster,
    Samples, Stream, Target, Task, Trainer,
};
use anyhow::{Context, ensure};
use ndarray::{Array2, ArrayD, ArrayView2, ArrayViewD, IxDyn};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Runs `f` with the values of `x`, `samples x ..`: those of the set itself, if they are all of it in order.
fn with_values<R>(x: &Samples, f: impl FnOnce(ArrayViewD<'_, f32>) -> R) -> R {
    let shape: Vec<usize> = std::iter::once(x.len()).chain(x.shape()).collect();
    if let Inputs::Dense { data, .. } = &**x.inputs()
        && x.ids().iter().copied().eq(0..x.len() as u32)
        && let Some(data) = data.get(..x.len() * x.width())
        && let Ok(view) = ArrayViewD::from_shape(IxDyn(&shape), data)
    {
        return f(view);
    }
    let values = x.values().into_raw_vec_and_offset().0;
    match ArrayD::from_shape_vec(IxDyn(&shape), values) {
        Ok(values) => f(values.view()),
        Err(_) => f(ArrayD::zeros(IxDyn(&[0])).view()), // cannot be: as many values as the shape says
    }
}

/// Samples from a tensor `values`, `samples x ..`.
pub(super) fn samples(parcel: &mut Parcel) -> Result<Samples> {
    let values = parcel.f32("values")?;
    let (rows, shape) = values
        .shape()
        .split_first()
        .map(|(n, shape)| (*n, shape.to_vec()))
        .context("`values` has no dimension")?;
    let width = shape.iter().product();
    let values = values.as_standard_layout().into_owned();
    let values = Array2::from_shape_vec((rows, width), values.into_raw_vec_and_offset().0)?;
    Samples::fresh(values, shape)
}

/// Runs `f` with samples and what is known about them.
pub(super) fn with_examples<R>(own: &Examples, f: impl FnOnce(&Named<'_>) -> R) -> R {
    with_values(&own.samples, |values| {
        let mut tensors: Named<'_> = vec![("values".into(), View::F32(values))];
        let (classes, findings) = (own.classes(), own.multi_label().map(|f| f.mapv(f32::from)));
        if let Some(classes) = &classes {
            let classes = ndarray::ArrayView1::from(classes).into_dyn();
            tensors.push(("classes".into(), View::U32(classes)));
        }
        if let Some(findings) = &findings {
            tensors.push(("multi-label".into(), View::F32(findings.view().into_dyn())));
        }
        f(&tensors)
    })
}

impl Crossing for Roster {
    fn send<R>(&self, f: impl FnOnce(&Named<'_>) -> R) -> R {
        let clients: Vec<u32> = self.iter().map(|(id, _)| *id).collect();
        let sizes: Vec<f64> = self.iter().map(|(_, n)| *n as f64).collect();
        f(&vec![
            (
                "clients".into(),
                View::U32(ndarray::ArrayView1::from(&clients).into_dyn()),
            ),
            (
                "sizes".into(),
                View::F64(ndarray::ArrayView1::from(&sizes).into_dyn()),
            ),
        ])
    }
    fn receive<R>(mut parcel: Parcel, f: impl FnOnce(&Self) -> Result<R>) -> Result<R> {
        let clients = parcel.list("clients")?;
        let sizes = parcel.f64("sizes")?;
        ensure!(
            clients.len() == sizes.len(),
            Problem::Shape(format!(
                "{} clients and {} sizes",
                clients.len(),
                sizes.len()
            ))
        );
        let roster: Vec<_> = clients
            .into_iter()
            .zip(sizes.iter().map(|n| *n as usize))
            .collect();
        f(&roster)
    }
    fn size(&self) -> usize {
        self.len()
    }
}

impl Crossing for Samples {
    fn send<R>(&self, f: impl FnOnce(&Named<'_>) -> R) -> R {
        with_values(self, |values| {
            f(&vec![("values".into(), View::F32(values))])
        })
    }
    fn receive<R>(mut parcel: Parcel, f: impl FnOnce(&Self) -> Result<R>) -> Result<R> {
        f(&samples(&mut parcel)?)
    }
    fn size(&self) -> usize {
        self.len()
    }
}

impl Crossing for SoftLabels {
    fn send<R>(&self, f: impl FnOnce(&Named<'_>) -> R) -> R {
        f(&self.tensors())
    }
    fn receive<R>(parcel: Parcel, f: impl FnOnce(&Self) -> Result<R>) -> Result<R> {
        let labels = Self::from_tensors(parcel)?;
        crate::message::check(&labels)?;
        f(&labels)
    }
    fn size(&self) -> usize {
        self.rows.len()
    }
}

pub(super) struct LoadedGenerator {
    remote: Remote,
    /// The shape of its task's inputs.
    input: Vec<usize>,
}

impl LoadedGenerator {
    pub fn new(remote: Remote, task: &Task) -> Self {
        Self {
            remote,
            input: task.input.clone(),
        }
    }
}

impl Generator for LoadedGenerator {
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples> {
        let text = json!({ "samples": n }).to_string();
        let answer = self
            .remote
            .must(FL_SAMPLE, &text, &[], Some(stream), None)?;
        let made = samples(&mut Parcel::new(answer.tensors)).context(self.remote.who())?;
        ensure!(
            made.len() == n && made.shape() == self.input,
            Problem::Shape(format!(
                "{}: {} samples of shape {:?} where {n} of {:?} were due",
                self.remote.who(),
                made.len(),
                made.shape(),
                self.input
            ))
        );
        Ok(made)
    }

    fn learn(&mut self, made: &Samples, slope: ArrayView2<'_, f32>) -> Result<()> {
        with_values(made, |values| {
            let tensors: Named<'_> = vec![
                ("values".into(), View::F32(values.view())),
                ("slope".into(), View::F32(slope.view().into_dyn())),
            ];
            self.remote
                .must(FL_LEARN, "", &[Letter::new(&tensors)], None, None)
        })?;
        Ok(())
    }

    fn save(&self) -> Result<Vec<u8>> {
        Ok(self.remote.save(FL_SAVE)?.unwrap_or_default())
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        super::services::load(&self.remote, state)
    }
}

/// The facts of a [`Pass`], as they cross.
#[derive(Serialize, Deserialize)]
pub(super) struct PassText {
    pub length: crate::Length,
    pub batch: usize,
    pub loss: crate::Loss,
    pub fresh: bool,
    pub pull: Option<f64>,
    pub drift: bool,
    pub clip: Option<f64>,
    pub target: String,
}

#[derive(Deserialize)]
struct FittedText {
    steps: usize,
    loss: f64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AboutTrainer {
    parametric: bool,
    differentiable: bool,
}

pub(super) struct LoadedTrainer {
    remote: Remote,
    about: AboutTrainer,
    /// How many scores each sample has.
    outputs: usize,
    late: Late,
}

impl LoadedTrainer {
    pub fn new(remote: Remote, task: &Task) -> Result<Self> {
        let about = match remote.call(FL_DESCRIBE, "", &[], None, None)? {
            Some(answer) => remote.json(&answer)?,
            None => AboutTrainer::default(),
        };
        Ok(Self {
            remote,
            about,
            outputs: task.kind.outputs(),
            late: Late::default(),
        })
    }

    fn scores(&self, operation: u32, name: &str, x: &Samples) -> Result<Option<Array2<f32>>> {
        self.late.check().context(self.remote.who())?;
        let answer = with_values(x, |values| {
            let tensors: Named<'_> = vec![("values".into(), View::F32(values))];
            let letter = [Letter::new(&tensors)];
            self.remote.call(operation, "", &letter, None, None)
        })?;
        let Some(answer) = answer.filter(|a| operation != FL_FEATURES || !a.tensors.is_empty())
        else {
            return Ok(None);
        };
        // a network may have as many features as it likes
        let columns = (operation == FL_PREDICT).then_some(self.outputs);
        self.table(answer.tensors, name, x.len(), columns).map(Some)
    }

    /// The answer's table of this name, with a row for each sample and so many columns.
    fn table(
        &self,
        tensors: Vec<(String, Tensor)>,
        name: &str,
        rows: usize,
        columns: Option<usize>,
    ) -> Result<Array2<f32>> {
        let table = Parcel::new(tensors)
            .table(name)
            .context(self.remote.who())?;
        let due = (rows, columns.unwrap_or(table.ncols()));
        ensure!(
            table.dim() == due,
            Problem::Shape(format!(
                "{}: `{name}` is {:?} where {due:?} was due",
                self.remote.who(),
                table.dim()
            ))
        );
        Ok(table)
    }
}

/// A target as a tensor; findings, which are -1, 0 or 1, as floats.
fn with_target<R>(target: Target<'_>, f: impl FnOnce(&str, View<'_>) -> R) -> R {
    match target {
        Target::Classes(of) => f(
            "classes",
            View::U32(ndarray::ArrayView1::from(of).into_dyn()),
        ),
        Target::MultiLabel(of) => {
            let of = of.mapv(f32::from);
            f("multi-label", View::F32(of.view().into_dyn()))
        }
        Target::Soft(of) => f("soft", View::F32(of.into_dyn())),
        Target::Scores(of) => f("scores", View::F32(of.into_dyn())),
    }
}

impl Trainer for LoadedTrainer {
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &Pass<'_>,
        stream: &Stream,
    ) -> Result<Fitted> {
        self.late.check().context(self.remote.who())?;
        let mut text = PassText {
            length: pass.length,
            batch: pass.batch,
            loss: pass.loss,
            fresh: pass.fresh,
            pull: pass.pull.map(|(mu, _)| f64::from(mu)),
            drift: pass.drift.is_some(),
            clip: pass.clip.map(f64::from),
            target: String::new(),
        };
        let anchors = [pass.pull.map(|(_, p)| p), pass.drift];
        let answer = with_values(x, |values| {
            with_target(target, |kind, view| {
                text.target = kind.into();
                let mut all: Vec<Named<'_>> = vec![vec![
                    ("values".into(), View::F32(values.view())),
                    ("target".into(), shorter(&view)),
                ]];
                all.extend(anchors.iter().flatten().map(|p| p.tensors()));
                let letters: Vec<_> = all.iter().map(Letter::new).collect();
                let text = serde_json::to_string(&text)?;
                self.remote
                    .must(FL_TRAIN, &text, &letters, Some(stream), None)
            })
        })?;
        let fitted: FittedText = self.remote.json(&answer)?;
        Ok(Fitted {
            steps: fitted.steps,
            loss: fitted.loss,
        })
    }

    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        let scores = self.scores(FL_PREDICT, "scores", x)?;
        scores.with_context(|| format!("{}: it predicts nothing", self.remote.who()))
    }

    fn features(&mut self, x: &Samples) -> Result<Option<Array2<f32>>> {
        self.scores(FL_FEATURES, "features", x)
    }

    fn save(&self) -> Result<Vec<u8>> {
        let saved = self.remote.save(FL_SAVE)?;
        saved.with_context(|| format!("{}: it cannot be saved", self.remote.who()))
    }

    fn load(&mut self, model: &[u8]) -> Result<()> {
        let done = self.remote.load(FL_LOAD, model)?;
        done.with_context(|| format!("{}: it cannot be loaded", self.remote.who()))
    }

    fn save_state(&self) -> Result<Vec<u8>> {
        match self.remote.save(FL_SAVE_STATE)? {
            Some(state) => Ok(state),
            None => self.save(),
        }
    }

    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        match self.remote.load(FL_LOAD_STATE, state)? {
            Some(()) => Ok(()),
            None => self.load(state),
        }
    }

    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        self.about.parametric.then_some(self as &mut dyn Parametric)
    }

    fn differentiable(&mut self) -> Option<&mut dyn Differentiable> {
        let able = self.about.differentiable;
        able.then_some(self as &mut dyn Differentiable)
    }
}

impl Parametric for LoadedTrainer {
    fn params(&self) -> Params {
        let params = || {
            let answer = self.remote.must(FL_PARAMS, "", &[], None, None)?;
            self.remote.message::<Params>(answer)
        };
        self.late.keep(params()).unwrap_or_default()
    }

    fn set_params(&mut self, params: &Params) -> Result<()> {
        self.late.check().context(self.remote.who())?;
        let tensors = content(params);
        let letter = [Letter::new(&tensors)];
        self.remote.must(FL_SET_PARAMS, "", &letter, None, None)?;
        Ok(())
    }
}

impl Differentiable for LoadedTrainer {
    fn vjp(&mut self, x: &Samples, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        let answer = with_values(x, |values| {
            let tensors: Named<'_> = vec![
                ("values".into(), View::F32(values.view())),
                ("slope".into(), View::F32(slope.view().into_dyn())),
            ];
            let letter = [Letter::new(&tensors)];
            self.remote.must(FL_VJP, "", &letter, None, None)
        })?;
        self.table(answer.tensors, "slopes", x.len(), Some(x.width()))
    }
}
