//! Checks of a trainer's refusals, and of its slopes.

use crate::broken::{Held, attempt, run};
use crate::compare::{difference, digits};
use crate::trainer::{Bench, Model, ROUND_TRIP};
use anyhow::Context;
use fl_core::message::{self, Params};
use fl_core::{
    FitOptions, Length, OwnedTarget, Parametric, Problem, Result, Samples, Target, TaskKind,
};
use ndarray::{Array2, ArrayD, IxDyn};

const SLOPES: &str = "vjp is the slope of its predictions";
const GRADIENT: &str = "gradient is the slope of its mean loss";
const BUFFERS: &str = "buffers are parameters without a gradient";
const CLIPPED: &str = "clipped gradients are those of single samples";
const REFUSES: &str = "unsuitable input is an error";
const UNCHANGED: &str = "an error changes nothing";
const WHOLE: &str = "set_params takes all or nothing";
const RATE: &str = "the rate of a pass scales its step";
const EMPTY: &str = "no samples are no problem";

/// A wrong call of a model.
type Wrong<'a> = (&'a str, Box<dyn Fn(&mut Model) -> Result<()> + 'a>);

/// The parameters without buffers.
fn own(model: &dyn Parametric) -> Params {
    let (mut params, buffers) = (model.params(), model.buffers());
    params.0.retain(|name, _| !buffers.contains(name));
    params
}

impl Bench<'_> {
    pub(crate) fn rules(&self) -> Held {
        let mut model = self.model(0)?;
        self.fit(REFUSES, &mut model, &self.short(), 0)?;
        self.empty(&mut model)?;
        self.slopes(&mut model)?;
        self.gradient(&mut model)?;
        self.clipped(&mut model)?;
        self.refuses(&mut model)?;
        self.rates()?;
        self.whole(&mut model)
    }

    /// Compares one step at rates 0, 1/2 and 1, if passes have rates.
    fn rates(&self) -> Held {
        let step = |rate: f64| -> Held<Option<f64>> {
            let mut model = self.model(0)?;
            let scales = model.abilities().scales_rate;
            let able = scales.then(|| model.parametric()).flatten();
            let Some(before) = able.map(|able| own(able)) else {
                return Ok(None);
            };
            let pass = FitOptions {
                rate,
                length: Length::Steps(1),
                ..self.short()
            };
            self.fit(RATE, &mut model, &pass, 0)?;
            let after = model.parametric().map(|able| own(able));
            let moved = after.and_then(|after| before.zip(&after, |a, b| b - a).ok());
            Ok(moved.map(|moved| moved.norm()))
        };
        let (Some(none), Some(half), Some(whole)) = (step(0.0)?, step(0.5)?, step(1.0)?) else {
            return Ok(());
        };
        self.must(RATE, none == 0.0, || {
            format!("a step at rate 0 moved the parameters by {none}")
        })?;
        self.must(RATE, (half - whole / 2.0).abs() <= 0.02 * whole, || {
            format!("steps at rates 0.5 and 1 moved the parameters by {half} and {whole}")
        })
    }

    fn empty(&self, model: &mut Model) -> Held {
        let (none, outputs) = (self.toy.x.pick(&[]), self.task.kind.outputs());
        let before = self.predict(EMPTY, model)?;
        let scores = run(EMPTY, &self.place, || model.predict(&none))?;
        self.must(EMPTY, scores.dim() == (0, outputs), || {
            format!("scores of shape {:?} for no samples", scores.dim())
        })?;
        run(EMPTY, &self.place, || model.features(&none))?;
        let nothing = self.toy.target().pick(&[]);
        // an error and no step are both allowed
        let fitted = attempt(EMPTY, &self.place, || {
            model.fit(&none, nothing.view(), &self.short(), &self.stream)
        })?;
        self.must(EMPTY, !fitted.is_ok_and(|f| f.steps > 0), || {
            "it made steps without samples".into()
        })?;
        self.predicts(EMPTY, model, &before)?;
        let width = self.task.width();
        let slope = Array2::zeros((0, outputs));
        let back = run(EMPTY, &self.place, || {
            model
                .differentiable()
                .map(|d| d.vjp(&none, slope.view()))
                .transpose()
        })?;
        self.must(EMPTY, back.is_none_or(|b| b.dim() == (0, width)), || {
            format!("slopes for no samples are not 0 x {width}")
        })
    }

    /// Compares the vector-Jacobian product with differences.
    fn slopes(&self, model: &mut Model) -> Held {
        let x = self.few();
        let mut draws = self.stream.child("slope", 0).draws();
        let slope = Array2::from_shape_simple_fn((x.len(), self.task.kind.outputs()), || {
            draws.normal() as f32
        });
        let Some(vjp) = run(SLOPES, &self.place, || {
            model
                .differentiable()
                .map(|d| d.vjp(&x, slope.view()))
                .transpose()
        })?
        else {
            return Ok(());
        };
        let values = x.values();
        self.must(SLOPES, vjp.dim() == values.dim(), || {
            format!("it is {:?}, the samples are {:?}", vjp.dim(), values.dim())
        })?;
        let mut at = |(i, j): (usize, usize), step: f32| -> Held<(f64, f64)> {
            let mut moved = values.clone();
            moved[[i, j]] += step;
            let there = f64::from(moved[[i, j]]);
            let scores = run(SLOPES, &self.place, || {
                model.predict(&Samples::fresh(moved, self.task.input.clone())?)
            })?;
            let products = scores.iter().zip(&slope);
            let sum = products.map(|(s, g)| f64::from(*s) * f64::from(*g)).sum();
            Ok((sum, there))
        };
        let mut along = |number: (usize, usize), step: f32| -> Held<f64> {
            let ((there, to), (here, from)) = (at(number, step)?, at(number, 0.0)?);
            Ok((there - here) / (to - from))
        };
        // a fortieth of the size of a toy sample's number
        let step = 0.05 / (values.ncols() as f32).sqrt();
        let mut measured = Vec::new();
        for ((i, j), by_vjp) in vjp.indexed_iter().step_by(vjp.len().div_ceil(256)) {
            measured.push(Slope {
                of: format!("number {j} of sample {i}"),
                said: f64::from(*by_vjp),
                up: along((i, j), step)?,
                down: along((i, j), -step)?,
            });
        }
        self.by_differences(SLOPES, &measured)
    }

    /// Compares slopes with differences where upward and downward ones agree: elsewhere there is a
    /// kink.
    fn by_differences(&self, property: &'static str, measured: &[Slope]) -> Held {
        let largest = |m: f64, s: &Slope| m.max(s.said.abs()).max(s.up.abs()).max(s.down.abs());
        let tolerance = 0.02 * measured.iter().fold(0.0, largest) + 1e-4;
        let smooth = measured
            .iter()
            .filter(|s| (s.up - s.down).abs() <= tolerance / 2.0);
        let smooth: Vec<&Slope> = smooth.collect();
        self.must(property, 8 * smooth.len() >= measured.len(), || {
            format!(
                "differences up and down agree at {} of {} numbers only",
                smooth.len(),
                measured.len()
            )
        })?;
        let found = |s: &Slope| (s.up + s.down) / 2.0;
        let off = |s: &&&Slope| (s.said - found(s)).abs() > tolerance;
        let off: Vec<_> = smooth.iter().filter(off).collect();
        // one in fifty may have as many kinks above as below
        self.must(property, 50 * off.len() <= smooth.len(), || {
            let (said, found) = (digits(off[0].said), digits(found(off[0])));
            format!("{} has {said} and {found} by differences", off[0].of)
        })
    }

    /// Compares some numbers of the gradient, as [`Bench::slopes`] does. Skips tensors on which, by
    /// the gradient, nothing depends, such as running statistics.
    fn gradient(&self, model: &mut Model) -> Held {
        let (x, target) = (&self.toy.x, self.toy.target());
        let before = self.predict(GRADIENT, model)?;
        let found = run(GRADIENT, &self.place, || {
            let Some(able) = model.parametric() else {
                return Ok(None);
            };
            let gradient = able.gradient(x, target, self.task.kind.loss());
            match gradient {
                Err(e) if matches!(e.downcast_ref(), Some(Problem::Lacks(_))) => Ok(None),
                other => other.map(|gradient| Some((gradient, able.params(), able.buffers()))),
            }
        })?;
        let Some((gradient, params, buffers)) = found else {
            return Ok(());
        };
        for name in &buffers {
            let moved = gradient.0.get(name).map(|t| t.iter().any(|g| *g != 0.0));
            self.must(BUFFERS, moved == Some(false), || match moved {
                Some(_) => format!("`{name}` has a gradient"),
                None => format!("there is no parameter `{name}`"),
            })?;
        }
        self.predicts(GRADIENT, model, &before)?;
        let alike = message::alike(&params, &gradient);
        self.must(GRADIENT, alike.is_ok(), || format!("{alike:?}"))?;
        let mut cost = |name: &str, at: usize, step: f32| -> Held<f64> {
            let mut moved = params.clone();
            let number = moved.0.get_mut(name).and_then(|t| t.iter_mut().nth(at));
            number.into_iter().for_each(|x| *x += step);
            run(GRADIENT, &self.place, || {
                let able = model.parametric().context("it had parameters before")?;
                able.set_params(&moved)
            })?;
            self.toy.loss(GRADIENT, &self.place, model.as_mut())
        };
        let scale = gradient
            .iter()
            .fold(0.0, |m: f64, g| m.max(f64::from(g.abs())));
        self.must(GRADIENT, scale > 0.0, || "it is 0 everywhere".into())?;
        // short, because an absolute error has a kink wherever a score meets its target, and one
        // number may change every score
        const STEP: f32 = 0.001;
        let live = |t: &&ArrayD<f32>| t.iter().any(|g| *g != 0.0);
        let mut measured = Vec::new();
        for (name, tensor) in gradient.0.iter().filter(|(_, t)| live(t)) {
            let every = tensor.len().div_ceil(12);
            for (at, slope) in tensor.iter().enumerate().step_by(every) {
                let mut along = |step: f32| -> Held<f64> {
                    let (there, here) = (cost(name, at, step)?, cost(name, at, 0.0)?);
                    Ok((there - here) / f64::from(step))
                };
                measured.push(Slope {
                    of: format!("number {at} of `{name}`"),
                    said: f64::from(*slope),
                    up: along(STEP)?,
                    down: along(-STEP)?,
                });
            }
        }
        self.by_differences(GRADIENT, &measured)?;
        run(GRADIENT, &self.place, || {
            model
                .parametric()
                .map(|able| able.set_params(&params))
                .transpose()
        })?;
        Ok(())
    }

    /// Compares a sum of clipped gradients with the gradients of single samples, of which about
    /// half are longer than the bound. Skips trainers that leave such a sum to their caller.
    fn clipped(&self, model: &mut Model) -> Held {
        let loss = self.task.kind.loss();
        let at: Vec<usize> = (0..9).collect();
        let (x, target) = (self.toy.x.pick(&at), self.toy.target().pick(&at));
        let before = self.predict(CLIPPED, model)?;
        let found = run(CLIPPED, &self.place, || {
            let Some(able) = model.parametric() else {
                return Ok(None);
            };
            if able
                .clipped_gradients(&x, target.view(), loss, 1.0)?
                .is_none()
            {
                return Ok(None);
            }
            let of_one = |at| {
                let target = self.toy.target().pick(&[at]);
                able.gradient(&self.toy.x.pick(&[at]), target.view(), loss)
            };
            let single = at.iter().copied().map(of_one).collect::<Result<Vec<_>>>()?;
            let mut norms: Vec<f64> = single.iter().map(Params::norm).collect();
            norms.sort_by(f64::total_cmp);
            let clip = norms[norms.len() / 2].max(1e-3);
            let mut due = able.params().zeros_like();
            for one in &single {
                due.add_scaled((clip / one.norm()).min(1.0), one)?;
            }
            let sum = able.clipped_gradients(&x, target.view(), loss, clip)?;
            Ok(Some((sum.context("it gave one before")?, due, clip)))
        })?;
        let Some((sum, due, clip)) = found else {
            return Ok(());
        };
        self.predicts(CLIPPED, model, &before)?;
        let alike = message::alike(&due, &sum);
        self.must(CLIPPED, alike.is_ok(), || format!("{alike:?}"))?;
        let apart = sum.iter().zip(due.iter());
        let apart = apart.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
        let apart = apart.sum::<f64>().sqrt();
        self.must(CLIPPED, apart <= 1e-4 * clip, || {
            format!(
                "the sum for a bound of {} is {} from theirs, which is {} long",
                digits(clip),
                digits(apart),
                digits(due.norm())
            )
        })
    }

    fn refuses(&self, model: &mut Model) -> Held {
        let (x, outputs) = (&self.toy.x, self.task.kind.outputs());
        let wide = |x: &Samples| {
            Samples::fresh(
                Array2::zeros((x.len(), self.task.width() + 1)),
                vec![self.task.width() + 1],
            )
        };
        let few = self.few();
        let fit = |model: &mut Model, x: &Samples, target: Target<'_>| {
            model
                .fit(x, target, &self.short(), &self.stream)
                .map(|_| ())
        };
        let table = |rows: usize, columns: usize| Array2::<f32>::zeros((rows, columns));
        let soft = move |model: &mut Model, rows, columns| {
            let t = table(rows, columns);
            fit(model, x, Target::Soft(t.view()))
        };
        let strange = Params([("strange".to_string(), ArrayD::zeros(IxDyn(&[2])))].into());
        let parametric = self.params(model)?.is_some();
        let differentiable = model.differentiable().is_some();
        let anchor = FitOptions {
            proximal: Some((0.5, &strange)),
            ..self.short()
        };
        let offset = FitOptions {
            gradient_offset: Some(&strange),
            ..self.short()
        };
        let passes = [
            ("an anchor of another model", anchor),
            ("a gradient offset of another model", offset),
        ];
        let mut wrong: Vec<Wrong<'_>> = vec![
            (
                "samples of another shape, to learn",
                Box::new(|m| fit(m, &wide(x)?, self.toy.target())),
            ),
            (
                "samples of another shape, to predict",
                Box::new(|m| m.predict(&wide(x)?).map(|_| ())),
            ),
            (
                "targets for other samples",
                Box::new(|m| fit(m, &few, self.toy.target())),
            ),
            (
                "a class, a finding, or a pixel too many",
                Box::new(|m| {
                    let (n, classes) = (x.len(), self.task.kind.classes());
                    let many = match self.task.kind {
                        TaskKind::Classes(_) => OwnedTarget::Classes(vec![classes as u32; n]),
                        TaskKind::MultiLabel(_) => {
                            OwnedTarget::MultiLabel(Array2::zeros((n, classes + 1)))
                        }
                        TaskKind::Pixels { .. } => {
                            let size = (n, self.task.width());
                            OwnedTarget::Pixels(Array2::from_elem(size, classes as u8))
                        }
                        TaskKind::Image { .. } | TaskKind::Numbers { .. } => {
                            OwnedTarget::Scores(table(n, outputs + 1))
                        }
                    };
                    fit(m, x, many.view())
                }),
            ),
            (
                "soft labels with a class too many",
                Box::new(move |m| soft(m, x.len(), outputs + 1)),
            ),
            (
                "soft labels for a sample less",
                Box::new(move |m| soft(m, x.len() - 1, outputs)),
            ),
            ("a model of 0 bytes", Box::new(|m| m.load(&[]))),
            (
                "half a model",
                Box::new(|m| {
                    let all = m.save()?;
                    m.load(&all[..all.len() / 2])
                }),
            ),
            (
                "a memory that is none",
                Box::new(|m| m.load_memory(b"no memory of a trainer")),
            ),
            ("a state of 0 bytes", Box::new(|m| m.load_state(&[]))),
            (
                "half a state",
                Box::new(|m| {
                    let all = m.save_state()?;
                    m.load_state(&all[..all.len() / 2])
                }),
            ),
        ];
        for (name, pass) in passes.iter().filter(|_| parametric) {
            let call = move |m: &mut Model| m.fit(x, self.toy.target(), pass, &self.stream);
            wrong.push((name, Box::new(move |m| call(m).map(|_| ()))));
        }
        if differentiable {
            for (name, rows, columns) in [
                ("a slope with an output too many", 2, outputs + 1),
                ("a slope for a sample less", 1, outputs),
            ] {
                let few = &few;
                wrong.push((
                    name,
                    Box::new(move |m| {
                        m.differentiable().map_or(Ok(()), |d| {
                            d.vjp(few, table(rows, columns).view()).map(|_| ())
                        })
                    }),
                ));
            }
        }
        let before = self.predict(UNCHANGED, model)?;
        for (what, call) in wrong {
            let outcome = attempt(REFUSES, &format!("{what} ({})", self.place), || call(model))?;
            self.must(REFUSES, outcome.is_err(), || {
                format!("{what}: it was taken")
            })?;
            let after = self.predict(UNCHANGED, model)?;
            let apart = crate::compare::apart_tables(&before, &after, 0.0);
            self.none(UNCHANGED, apart.map(|apart| format!("{what}: {apart}")))?;
        }
        Ok(())
    }

    /// Checks that parameters with one misfit tensor are refused, and that none of the others is
    /// set.
    fn whole(&self, model: &mut Model) -> Held {
        let Some(params) = self.params(model)? else {
            return Ok(());
        };
        let others = Params(params.0.iter().map(|(k, v)| (k.clone(), v + 1.0)).collect());
        let mut wrong = Vec::new();
        for name in params.0.keys() {
            let with = |tensor: Option<ArrayD<f32>>| {
                let mut changed = others.clone();
                changed.0.remove(name);
                changed.0.extend(tensor.map(|t| (name.clone(), t)));
                changed
            };
            let mut shape = params.0[name].shape().to_vec();
            shape.push(2);
            wrong.push((
                format!("`{name}` of shape {shape:?}"),
                with(Some(ArrayD::zeros(IxDyn(&shape)))),
            ));
            wrong.push((format!("no `{name}`"), with(None)));
        }
        let mut more = others.clone();
        more.0
            .insert("zz strange".into(), ArrayD::zeros(IxDyn(&[1])));
        wrong.push(("one tensor too many".into(), more));
        for (what, wrong) in wrong {
            let taken = attempt(ROUND_TRIP, &self.place, || {
                model.parametric().map_or(Ok(()), |m| m.set_params(&wrong))
            })?;
            self.must(WHOLE, taken.is_err(), || format!("{what}: it was taken"))?;
            let now = self.params(model)?.unwrap_or_default();
            let apart = difference(&params, &now, 0.0);
            self.none(WHOLE, apart.map(|apart| format!("{what}: {apart}")))?;
        }
        Ok(())
    }
}

/// A reported slope, and those of differences up and down.
struct Slope {
    of: String,
    said: f64,
    up: f64,
    down: f64,
}
