//! Checks of a trainer: learning and reproducibility. Those of refusals are in `trainer_rules`.

use crate::broken::{Broken, Held, attempt, elsewhere, must, none, run};
use crate::compare::{apart_tables, difference, digits};
use crate::toy::Toy;
use fl_core::message::Params;
use fl_core::{
    BuildContext, FitOptions, FitReport, Length, Loss, Problem, Result, Samples, Stream, Target,
    Task, TaskKind, Trainer,
};
use ndarray::Array2;

const MAKES: &str = "can be made for the task";
const LEARNS: &str = "learns an easy problem";
const IMITATES: &str = "learns to imitate scores";
const SHAPE: &str = "gives one finite score for each sample and output";
const SAME: &str = "same calls, same bits";
const THREAD: &str = "same bits on another thread";
const ALONE: &str = "predicts each sample by itself";
const SAVES: &str = "a saved model predicts the same";
const GOES_ON: &str = "training goes on after a stop";
const WAYS: &str = "same bits in every way of running";
const REMEMBERS: &str = "a client's memory outlasts its model";
const FRESH: &str = "`fresh` forgets the optimiser";
const NOTHING: &str = "no step changes nothing";
pub(crate) const ROUND_TRIP: &str = "parameters go out and in";
const PULL: &str = "`proximal` pulls towards the anchor";
const DRIFT: &str = "`gradient_offset` is added to the gradient";

pub(crate) type Model = Box<dyn Trainer>;

/// See [`crate::trainer_for`].
///
/// # Errors
/// The first property that does not hold.
pub fn check(tasks: &[Task], make: &dyn Fn(&BuildContext) -> Result<Model>) -> Result<(), Broken> {
    tasks.iter().try_for_each(|task| {
        let kind = format!("{:?}", task.kind).to_lowercase().replace('(', " (");
        let stream = Stream::root(0).child("trainer", 0);
        let mut bench = Bench {
            task,
            make,
            toy: Toy::new(task, 48, &stream.child("toy", 0)),
            stream,
            place: format!("{kind}, inputs {:?}", task.input),
        };
        if let Some(vocabulary) = bench.model(0)?.abilities().vocabulary {
            bench.toy = bench.toy.in_words(vocabulary);
        }
        bench.all()
    })
}

pub(crate) struct Bench<'a> {
    pub(crate) task: &'a Task,
    make: &'a dyn Fn(&BuildContext) -> Result<Model>,
    pub(crate) toy: Toy,
    pub(crate) stream: Stream,
    pub(crate) place: String,
}

/// Returns a short pass: batches of 8, so that the last of an epoch has the same size.
fn short(kind: TaskKind) -> FitOptions<'static> {
    FitOptions::new(Length::Steps(9), 8, kind.loss())
}

impl Bench<'_> {
    pub(crate) fn short(&self) -> FitOptions<'static> {
        short(self.task.kind)
    }

    fn all(&self) -> Held {
        self.learns()?;
        self.same()?;
        self.saves()?;
        self.remembers()?;
        self.goes_on()?;
        self.ways()?;
        self.forces()?;
        self.head()?;
        self.feature_loss()?;
        self.rules()
    }

    /// Returns a model with different initial weights for every `seed`.
    pub(crate) fn model(&self, seed: u64) -> Held<Model> {
        let make = BuildContext::new(self.task.clone(), self.stream.child("weights", seed));
        run(MAKES, &self.place, || (self.make)(&make))
    }

    pub(crate) fn fit(
        &self,
        property: &'static str,
        model: &mut Model,
        pass: &FitOptions<'_>,
        seed: u64,
    ) -> Held<FitReport> {
        let stream = self.stream.child("fit", seed);
        run(property, &self.place, || {
            model.fit(&self.toy.x, self.toy.target(), pass, &stream)
        })
    }

    pub(crate) fn predict(&self, property: &'static str, model: &mut Model) -> Held<Array2<f32>> {
        run(property, &self.place, || model.predict(&self.toy.x))
    }

    pub(crate) fn equal(
        &self,
        property: &'static str,
        one: &Array2<f32>,
        other: &Array2<f32>,
        tolerance: f64,
    ) -> Held {
        self.none(property, apart_tables(one, other, tolerance))
    }

    /// Breaks `property` unless a model predicts these scores, bit by bit.
    pub(crate) fn predicts(
        &self,
        property: &'static str,
        model: &mut Model,
        wanted: &Array2<f32>,
    ) -> Held {
        self.equal(property, wanted, &self.predict(property, model)?, 0.0)
    }

    /// Breaks `property` if something was found.
    pub(crate) fn none(&self, property: &'static str, found: Option<String>) -> Held {
        none(property, &self.place, found)
    }

    pub(crate) fn must(
        &self,
        property: &'static str,
        holds: bool,
        found: impl FnOnce() -> String,
    ) -> Held {
        must(property, holds, || format!("{} ({})", found(), self.place))
    }

    fn learns(&self) -> Held {
        let mut model = self.model(0)?;
        let before = self.toy.loss(LEARNS, &self.place, &mut *model)?;
        let fitted = self.fit(
            LEARNS,
            &mut model,
            &FitOptions::new(Length::Epochs(20), 8, self.task.kind.loss()),
            0,
        )?;
        let after = self.toy.loss(LEARNS, &self.place, &mut *model)?;
        self.must(
            LEARNS,
            after < 0.99 * before && fitted.loss.is_finite(),
            || {
                format!(
                    "the loss was {} before and is {} after 20 epochs",
                    digits(before),
                    digits(after)
                )
            },
        )?;
        let wanted = (self.toy.x.len(), self.task.kind.outputs());
        let scores = self.predict(SHAPE, &mut model)?;
        self.must(SHAPE, scores.dim() == wanted, || {
            format!("the scores are {:?}, not {wanted:?}", scores.dim())
        })?;
        let features = run(SHAPE, &self.place, || model.features(&self.toy.x))?;
        let fits =
            features.is_none_or(|f| f.nrows() == wanted.0 && f.iter().all(|v| v.is_finite()));
        self.must(SHAPE, fits, || {
            "features are one finite row for each sample".into()
        })?;
        self.imitates(&scores)
    }

    /// Checks distillation: another model learns the scores of this one. A trainer may lack it.
    fn imitates(&self, scores: &Array2<f32>) -> Held {
        let mut model = self.model(1)?;
        let far = |model: &mut Model| -> Held<f64> {
            let other = self.predict(IMITATES, model)?;
            Ok(other
                .iter()
                .zip(scores)
                .map(|(a, b)| f64::from(a - b).powi(2))
                .sum())
        };
        let before = far(&mut model)?;
        let pass = FitOptions::new(Length::Epochs(20), 8, Loss::Mse);
        let target = Target::Scores(scores.view());
        let outcome = attempt(IMITATES, &self.place, || {
            model.fit(&self.toy.x, target, &pass, &self.stream.child("imitate", 0))
        })?;
        if let Err(error) = outcome {
            let lacks = matches!(error.downcast_ref(), Some(Problem::Lacks(_)));
            return self.must(IMITATES, lacks, || {
                format!("{error:#}, which is not a `Problem::Lacks`")
            });
        }
        let after = far(&mut model)?;
        self.must(IMITATES, after < before, || {
            format!(
                "the squared distance to the scores was {} before and is {} after 20 epochs",
                digits(before),
                digits(after)
            )
        })
    }

    fn same(&self) -> Held {
        let fitted = |property| -> Held<Array2<f32>> {
            let mut model = self.model(0)?;
            self.fit(property, &mut model, &self.short(), 0)?;
            self.predict(property, &mut model)
        };
        let one = fitted(SAME)?;
        self.equal(SAME, &one, &fitted(SAME)?, 0.0)?;

        let mut model = self.model(0)?;
        let (stream, place) = (self.stream.child("fit", 0), &self.place);
        let (toy, kind) = (&self.toy, self.task.kind);
        let other = elsewhere(THREAD, move || {
            run(THREAD, place, || {
                model.fit(&toy.x, toy.target(), &short(kind), &stream)
            })?;
            run(THREAD, place, || model.predict(&toy.x))
        })?;
        self.equal(THREAD, &one, &other, 0.0)?;

        let mut model = self.model(0)?;
        self.fit(ALONE, &mut model, &self.short(), 0)?;
        for at in [0, 17] {
            let alone = run(ALONE, &self.place, || {
                model.predict(&self.toy.x.pick(&[at]))
            })?;
            let among = one.select(ndarray::Axis(0), &[at]);
            let most = among.fold(1.0, |m: f64, v| m.max(f64::from(v.abs())));
            self.equal(ALONE, &among, &alone, 1e-4 * most)?;
        }
        Ok(())
    }

    fn saves(&self) -> Held {
        let mut model = self.model(0)?;
        self.fit(SAVES, &mut model, &self.short(), 0)?;
        let wanted = self.predict(SAVES, &mut model)?;
        for state in [false, true] {
            let mut other = self.model(1)?;
            run(SAVES, &self.place, || {
                if state {
                    other.load_state(&model.save_state()?)
                } else {
                    other.load(&model.save()?)
                }
            })?;
            self.predicts(SAVES, &mut other, &wanted)?;
        }
        for length in [Length::Steps(0), Length::Epochs(0)] {
            let pass = FitOptions {
                length,
                ..self.short()
            };
            let fitted = self.fit(NOTHING, &mut model, &pass, 3)?;
            self.must(NOTHING, fitted.steps == 0, || {
                format!("{:?} made {} steps", pass.length, fitted.steps)
            })?;
            self.predicts(NOTHING, &mut model, &wanted)?;
        }
        Ok(())
    }

    fn goes_on(&self) -> Held {
        let mut going = self.model(0)?;
        self.fit(GOES_ON, &mut going, &self.short(), 0)?;
        let (state, model) = run(GOES_ON, &self.place, || {
            Ok((going.save_state()?, going.save()?))
        })?;
        self.fit(GOES_ON, &mut going, &self.short(), 1)?;
        let mut stopped = self.model(1)?;
        run(GOES_ON, &self.place, || stopped.load_state(&state))?;
        self.fit(GOES_ON, &mut stopped, &self.short(), 1)?;
        let wanted = self.predict(GOES_ON, &mut going)?;
        self.predicts(GOES_ON, &mut stopped, &wanted)?;

        let fresh = FitOptions {
            fresh: true,
            ..self.short()
        };
        let (mut used, mut new) = (self.model(1)?, self.model(2)?);
        run(FRESH, &self.place, || used.load_state(&state))?;
        run(FRESH, &self.place, || {
            new.load(&model)?;
            // `fresh` keeps the client's memory
            match used.save_memory()? {
                memory if memory.is_empty() => Ok(()),
                memory => new.load_memory(&memory),
            }
        })?;
        self.fit(FRESH, &mut used, &fresh, 1)?;
        self.fit(FRESH, &mut new, &fresh, 1)?;
        let wanted = self.predict(FRESH, &mut used)?;
        self.predicts(FRESH, &mut new, &wanted)
    }

    /// Checks four requests to a model that stays. An engine may also rebuild the model from its
    /// state: before each request (over the wire, with a limit on memory), once (after a stop), and
    /// on another thread (in another process).
    fn ways(&self) -> Held {
        for fresh in [false, true] {
            let pass = FitOptions {
                fresh,
                ..self.short()
            };
            let mut stays = self.model(0)?;
            let (mut each, mut once) = (self.model(0)?, self.model(0)?);
            for question in 1..=4 {
                let again = |model: &Model| -> Held<Model> {
                    let mut new = self.model(question)?;
                    let state = run(WAYS, &self.place, || model.save_state())?;
                    let place = &self.place;
                    elsewhere(WAYS, move || {
                        run(WAYS, place, || new.load_state(&state))?;
                        Ok(new)
                    })
                };
                each = again(&each)?;
                if question == 3 {
                    once = again(&once)?;
                }
                let fitted = self.fit(WAYS, &mut stays, &pass, question)?;
                let scores = self.predict(WAYS, &mut stays)?;
                for (what, other) in [("each", &mut each), ("the third", &mut once)] {
                    let found = self.fit(WAYS, other, &pass, question)?;
                    self.must(WAYS, found == fitted, || {
                        format!(
                            "question {question}, made anew before {what}: it says {found:?}, and {fitted:?} where it stays"
                        )
                    })?;
                    self.predicts(WAYS, other, &scores)?;
                }
            }
        }
        Ok(())
    }

    /// Checks that a client's memory goes to a new model. It is also part of the state, and changes
    /// neither the model nor the optimiser.
    fn remembers(&self) -> Held {
        let fresh = FitOptions {
            fresh: true,
            ..self.short()
        };
        let memory = |model: &Model| run(REMEMBERS, &self.place, || model.save_memory());
        let mut model = self.model(0)?;
        self.fit(REMEMBERS, &mut model, &self.short(), 0)?;
        let held = memory(&model)?;
        if held.is_empty() {
            return Ok(());
        }
        let same = |what: &str, found: &[u8]| {
            self.must(REMEMBERS, found == held, || {
                format!("{what}: it remembers other bytes than before")
            })
        };
        let (state, saved) = run(REMEMBERS, &self.place, || {
            Ok((model.save_state()?, model.save()?))
        })?;
        let mut whole = self.model(1)?;
        run(REMEMBERS, &self.place, || whole.load_state(&state))?;
        same("from its state", &memory(&whole)?)?;
        // a new model, with the memory set before or after its parameters
        let (mut before, mut after) = (self.model(2)?, self.model(3)?);
        run(REMEMBERS, &self.place, || {
            before.load_memory(&held)?;
            before.load(&saved)
        })?;
        run(REMEMBERS, &self.place, || {
            after.load(&saved)?;
            after.load_memory(&held)
        })?;
        let mut other = self.model(4)?;
        let scores = self.predict(REMEMBERS, &mut other)?;
        run(REMEMBERS, &self.place, || other.load_memory(&held))?;
        self.predicts(REMEMBERS, &mut other, &scores)?;
        let fitted = self.fit(REMEMBERS, &mut whole, &fresh, 1)?;
        let wanted = self.predict(REMEMBERS, &mut whole)?;
        let next = memory(&whole)?;
        for (what, other) in [("before the model", &mut before), ("after it", &mut after)] {
            same(what, &memory(other)?)?;
            let found = self.fit(REMEMBERS, other, &fresh, 1)?;
            self.must(REMEMBERS, found == fitted, || {
                format!("{what}: it says {found:?}, and {fitted:?} where the model stays")
            })?;
            self.predicts(REMEMBERS, other, &wanted)?;
            self.must(REMEMBERS, memory(other)? == next, || {
                format!("{what}: it remembers something else of the next question")
            })?;
        }
        Ok(())
    }

    /// Returns the parameters of a model, if it has any.
    pub(crate) fn params(&self, model: &mut Model) -> Held<Option<Params>> {
        run(ROUND_TRIP, &self.place, || {
            Ok(model.parametric().map(|m| m.params()))
        })
    }

    /// Checks the additions of `pass` to the gradient: the proximal term and the offset.
    fn forces(&self) -> Held {
        let mut model = self.model(0)?;
        self.fit(ROUND_TRIP, &mut model, &self.short(), 0)?;
        let Some(params) = self.params(&mut model)? else {
            return Ok(());
        };
        let wanted = self.predict(ROUND_TRIP, &mut model)?;
        let memory = run(ROUND_TRIP, &self.place, || model.save_memory())?;
        let mut other = self.model(1)?;
        run(ROUND_TRIP, &self.place, || {
            // parameters that stay at home are in the client's memory
            if !memory.is_empty() {
                other.load_memory(&memory)?;
            }
            match other.parametric() {
                Some(other) => other.set_params(&params),
                None => Ok(()),
            }
        })?;
        self.predicts(ROUND_TRIP, &mut other, &wanted)?;
        let again = self.params(&mut other)?.unwrap_or_default();
        self.none(ROUND_TRIP, difference(&params, &again, 0.0))?;

        let map = |f: fn(f32) -> f32| {
            Params(
                params
                    .0
                    .iter()
                    .map(|(k, v)| (k.clone(), v.mapv(f)))
                    .collect(),
            )
        };
        if !self.model(1)?.abilities().gradient_terms {
            return Ok(());
        }
        let (anchor, up) = (map(|v| v + 0.5), map(|_| 0.1));
        let trained = |property, pass: &FitOptions<'_>| -> Held<Params> {
            let mut model = self.model(1)?;
            run(property, &self.place, || {
                model.parametric().map_or(Ok(()), |m| m.set_params(&params))
            })?;
            let stream = self.stream.child("fit", 1);
            run(property, &self.place, || {
                model.fit(&self.toy.x, self.toy.target(), pass, &stream)
            })?;
            Ok(self.params(&mut model)?.unwrap_or_default())
        };
        let free = trained(PULL, &self.short())?;
        let lowers = |property, pass, of: &dyn Fn(&Params) -> f64, told: [&str; 2]| {
            let (with, without) = (of(&trained(property, &pass)?), of(&free));
            self.must(property, with < without, || {
                let [before, after] = told;
                let [with, without] = [with, without].map(digits);
                format!("{before}{with}{after} with and {without} without")
            })
        };
        let pulled = FitOptions {
            proximal: Some((0.5, &anchor)),
            ..self.short()
        };
        let far = |p: &Params| {
            p.0.iter()
                .map(|(k, v)| crate::compare::distance(v, &anchor.0[k]))
                .sum::<f64>()
        };
        lowers(PULL, pulled, &far, ["", " from it"])?;
        let drifted = FitOptions {
            gradient_offset: Some(&up),
            ..self.short()
        };
        let sum = |p: &Params| p.iter().map(|v| f64::from(*v)).sum::<f64>();
        let told = "a gradient offset of 0.1 everywhere: the parameters add up to ";
        lowers(DRIFT, drifted, &sum, [told, ""])
    }

    /// Returns two samples to differentiate at.
    pub(crate) fn few(&self) -> Samples {
        self.toy.x.pick(&[5, 23])
    }
}
