//! Parts that remember walk ten rounds: on one thread and on three, through the wire, and stopped
//! after every round and resumed. Every way must end with the same digest.

use crate::federation::part;
use fl_core::message::Params;
use fl_core::prelude::*;
use fl_core::{
    Examples, FitReport, Inputs, Labels, MeanOfParams, Parts, Problem, Public, Role, RunOptions,
    SlotAssignment,
};
use fl_plugins as _;
use fl_sim::{Execution, Manifest, Outcome, RunFolder, Session, Setup, StoppedRun, run};
use ndarray::{Array2, ArrayD, ArrayView2, IxDyn};
use std::path::Path;
use std::sync::Arc;

const ROUNDS: usize = 10;

/// Counts its uses, and tells the count by what it does.
macro_rules! counts {
    () => {
        fn save(&self) -> Vec<u8> {
            self.uses.to_le_bytes().to_vec()
        }
        fn load(&mut self, state: &[u8]) -> Result<()> {
            self.uses = u32::from_le_bytes(state.try_into().context("four bytes")?);
            Ok(())
        }
    };
}

macro_rules! made_from {
    ($settings:ty => $part:ident) => {
        #[derive(Default)]
        struct $part {
            uses: u32,
        }
        impl From<$settings> for $part {
            fn from(_: $settings) -> Self {
                Self::default()
            }
        }
    };
}

settings! {
    /// Adds the number of its releases.
    struct ReleasesSettings {}
}
made_from!(ReleasesSettings => Releases);

impl PrivacyMechanism for Releases {
    type On = Params;
    fn clip(&self, _: &mut Params) -> Result<()> {
        Ok(())
    }
    fn price(&self, _: &Params, _: &Cohort) -> Result<PrivacyEvent> {
        let why = "it only counts".into();
        Ok(PrivacyEvent::Unaccounted { why })
    }
    fn perturb(&mut self, message: &mut Params, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        self.uses += 1;
        let noise = noise.draws().laplace(0.0, 1.0) as f32;
        for tensor in message.0.values_mut() {
            tensor.mapv_inplace(|x| x + self.uses as f32 + noise);
        }
        Ok(())
    }
    counts!();
}
plugin!(privacy "counts-releases" => ReleasesSettings as Releases);

settings! {
    /// The mean, and the number of rounds so far; it folds.
    struct RoundsSettings {}
}
made_from!(RoundsSettings => Rounds);

impl Aggregator for Rounds {
    type In = Params;
    type Out = Params;
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let weights = vec![1.0; inbox.len()];
        self.update(round, inbox.weighted_mean(&weights, &*round.exec))
    }
    fn fold(&self, _: &Round) -> Option<Box<dyn Fold<Params, Params>>> {
        Some(Box::new(MeanOfParams::default()))
    }
    fn update(&mut self, round: &Round, mut mean: Params) -> Result<Params> {
        self.uses += 1;
        round.record("uses", f64::from(self.uses));
        let sent = round.sent::<Params>().context("the message sent")?;
        mean.add_scaled(0.5, sent)?;
        mean.scale(f64::from(self.uses));
        Ok(mean)
    }
    fn needs(&self) -> RequiredInputs {
        RequiredInputs::SENT
    }
    counts!();
}
plugin!(aggregator "counts-rounds" => RoundsSettings as Rounds);

settings! {
    /// Those samples whose turn it is.
    struct TurnsSettings {}
}
made_from!(TurnsSettings => Turns);

impl Selector for Turns {
    type Pool = Samples;
    fn select(&mut self, _: &Round, pool: &Samples) -> Result<Vec<usize>> {
        self.uses += 1;
        Ok((0..pool.len().min(self.uses as usize)).collect())
    }
    counts!();
}
plugin!(selector "takes-turns" => TurnsSettings as Turns);

settings! {
    /// Numbers that drift with what it has learnt.
    struct DriftsSettings {}
}

struct Drifts {
    task: Task,
    at: f32,
}

impl Drifts {
    fn new(_: DriftsSettings, context: &BuildContext) -> Result<Self> {
        let task = context.task.clone();
        Ok(Self { task, at: 0.0 })
    }
}

impl Generator for Drifts {
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples> {
        let mut draws = stream.draws();
        let shape = (n, self.task.width());
        let values = Array2::from_shape_simple_fn(shape, || draws.normal() as f32 + self.at);
        Samples::fresh(values, self.task.input.clone())
    }
    fn learn(&mut self, _: &Samples, slope: ArrayView2<'_, f32>) -> Result<()> {
        self.at -= 0.1 * slope.mean().unwrap_or(0.0);
        Ok(())
    }
    fn save(&self) -> Result<Vec<u8>> {
        Ok(self.at.to_le_bytes().to_vec())
    }
    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.at = f32::from_le_bytes(state.try_into().context("four bytes")?);
        Ok(())
    }
}
plugin!(generator "drifts" => DriftsSettings as Drifts);

settings! {
    /// Counts its uses, as its model, its optimiser and its memory.
    struct TalliesSettings {
        /// Keep the memory.
        remembers: bool = true;
    }
}

/// The reported loss shows all three counts.
struct Tallies {
    outputs: usize,
    remembers: bool,
    model: u8,
    optimiser: u8,
    memory: u8,
}

impl Tallies {
    fn new(settings: TalliesSettings, context: &BuildContext) -> Result<Self> {
        Ok(Self {
            outputs: context.task.kind.outputs(),
            remembers: settings.remembers,
            model: 0,
            optimiser: 0,
            memory: 0,
        })
    }
}

impl Trainer for Tallies {
    fn fit(
        &mut self,
        _: &Samples,
        _: Target<'_>,
        _: &FitOptions<'_>,
        _: &Stream,
    ) -> Result<FitReport> {
        self.model += 1;
        self.optimiser += 1;
        self.memory += 1;
        let of = |count: u8, weight: f64| weight * f64::from(count);
        let loss = of(self.model, 1.0) + of(self.optimiser, 20.0) + of(self.memory, 400.0);
        Ok(FitReport {
            steps: 1,
            loss,
            falls: None,
        })
    }
    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        Ok(Array2::from_elem(
            (x.len(), self.outputs),
            self.model.into(),
        ))
    }
    fn save(&self) -> Result<Vec<u8>> {
        Ok(vec![self.model])
    }
    fn load(&mut self, model: &[u8]) -> Result<()> {
        let [model] = model.try_into().context("one byte")?;
        self.model = model;
        Ok(())
    }
    fn save_state(&self) -> Result<Vec<u8>> {
        Ok(vec![self.model, self.optimiser, self.memory])
    }
    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        let [model, optimiser, memory] = state.try_into().context("three bytes")?;
        (self.model, self.optimiser, self.memory) = (model, optimiser, memory);
        Ok(())
    }
    fn save_memory(&self) -> Result<Vec<u8>> {
        Ok(if self.remembers {
            vec![self.memory]
        } else {
            Vec::new()
        })
    }
    fn load_memory(&mut self, memory: &[u8]) -> Result<()> {
        let [memory] = memory.try_into().context("one byte")?;
        self.memory = memory;
        Ok(())
    }
}
plugin!(trainer "tallies" => TalliesSettings as Tallies);

/// A protocol in which every role has a part that remembers, at the server and at clients.
struct Walk {
    lasting: bool,
}

const MODEL: TrainerSlot = TrainerSlot::new("model", "");
const AGGREGATOR: AggregatorSlot<Params, Params> = AggregatorSlot::new("aggregator", "");
const COHORT: SelectorSlot<Roster> = SelectorSlot::new("cohort", "");
const TURNS: SelectorSlot<Samples> = SelectorSlot::new("turns", "");
const AT_CLIENT: MechanismSlot<Params> = MechanismSlot::new("at-client", "");
const AT_SERVER: MechanismSlot<Params> = MechanismSlot::new("at-server", "");
const GENERATOR: GeneratorSlot = GeneratorSlot::new("generator", "");
const STEP: Exchange<Params, Params> = Exchange::new("a step");
const LOSS: Exchange<Params, Scalar> = Exchange::new("loss");

impl Protocol for Walk {
    fn declare(&self) -> Declaration<'_> {
        let step = STEP.answered_by(|me, global| {
            let pass = Training::steps(2, 5).pass(Loss::CrossEntropy);
            let loss = me.fit_own(&MODEL, &pass)?.loss as f32;
            let public = me.public()?;
            let chosen = me.with_selector(&TURNS, |me, turns| {
                turns.select(&me.round(&TURNS), public.samples())
            })?;
            let moved = loss + chosen.map_or(0, |c| c.len()) as f32;
            let mut out = global.clone();
            let all = out.0.values_mut();
            all.for_each(|w| w.mapv_inplace(|x| x + moved));
            Ok(out)
        });
        let step = step.each_round().into(&AGGREGATOR).releases(&AT_CLIENT);
        let loss = LOSS.answered_by(|me, global| {
            let sum: f32 = global.iter().sum();
            Ok(Scalar::new(sum + me.id() as f32))
        });
        let generator = GENERATOR.spec().optional().with_task(|task| Task {
            input: vec![3],
            ..task.clone()
        });
        Declaration::new()
            .rounds(ROUNDS)
            .slot(MODEL.spec().lasting_if(self.lasting))
            .slot(&TURNS)
            .slot(generator)
            .exchange(step.to(&COHORT).releases_at_server(&AT_SERVER))
            .exchange(loss.if_requested_by(&COHORT))
    }

    fn lead(&self, fed: &mut Server<'_>) -> Result<()> {
        let mut global = Params([("w".to_string(), ArrayD::zeros(IxDyn(&[2])))].into());
        fed.rounds(&mut global, |fed, global, round| {
            let cohort = fed.cohort_by_loss(round, &LOSS, &*global)?;
            if cohort.is_empty() {
                return Ok(()); // a Poisson draw of no client
            }
            *global = fed.run(round, &STEP, |_| &*global)?;
            // twice in one round: the two must not share their noise
            fed.release(&STEP, round, global, &cohort)?;
            if fed.has(&GENERATOR) {
                let made = fed.generator(&GENERATOR)?.sample(4, &round.stream)?;
                assert_eq!(made.shape(), [3], "the slot's own task");
                let slope = made.values();
                fed.generator(&GENERATOR)?.learn(&made, slope.view())?;
                let sum = made.values().sum();
                global
                    .0
                    .values_mut()
                    .for_each(|w| w.mapv_inplace(|x| x + sum));
            }
            // large numbers would hide small ones
            global
                .0
                .values_mut()
                .for_each(|w| w.mapv_inplace(|x| x % 8.0));
            Ok(())
        })
    }
}

#[derive(Clone, Copy)]
struct How<'a> {
    threads: usize,
    wire: bool,
    /// Bytes of clients' states that stay in memory.
    cache: Option<u64>,
    /// A folder, and the steps after which the run is stopped and goes on.
    stops: Option<(&'a Path, &'a [usize])>,
}

const STRAIGHT: How<'_> = How {
    threads: 1,
    wire: false,
    cache: None,
    stops: None,
};

fn walk(lasting: bool, parts: &[SlotAssignment], how: How<'_>) -> Result<Outcome> {
    let inputs = Arc::new(Inputs::Dense {
        shape: vec![2],
        data: (0..120).map(|i| (i % 7) as f32).collect(),
    });
    let labels = Arc::new(Labels::Classes {
        of: (0..60).map(|i| i % 2).collect(),
        classes: 2,
    });
    let all = Examples::all(inputs, labels)?;
    let own = |k: usize| all.pick(&(10 * k..10 * (k + 1)).collect::<Vec<_>>());
    let once = |folder: Option<RunFolder>, resumed, stop_after, cache| {
        run(Setup {
            execution: Execution {
                threads: how.threads,
                wire: how.wire,
                stop_after,
                memory: cache,
                ..Execution::default()
            },
            public: Some(Public::unlabelled(all.samples.clone())),
            folder,
            resumed,
            ..Setup::new(
                Arc::new(Walk { lasting }),
                Arc::new(Parts::new(parts.to_vec())),
                RunOptions::new(1, all.task()),
                (0..6).map(own).collect(),
                all.pick(&[0, 1]),
            )
        })
    };
    let Some((path, stops)) = how.stops else {
        return once(None, None, None, how.cache);
    };
    let manifest = || Manifest::new(Session::now("0", &[]), 1, "walk", Vec::new(), Vec::new());
    let mut folder = Some(RunFolder::create(path, "walk", &manifest())?);
    let mut resumed = None;
    for stop in stops {
        // what stays in memory may be another from one time to the next
        let cache = how.cache.filter(|_| stop % 2 == 0);
        let outcome = once(folder.take(), resumed.take(), Some(*stop), cache)?;
        assert!(outcome.stopped.is_some(), "it stops after {stop}");
        let again = StoppedRun::open(path, false)?.go_on(manifest(), "walk")?;
        (folder, resumed) = (Some(again.0), again.1);
    }
    let outcome = once(folder, resumed, None, how.cache)?;
    let left: Vec<_> = std::fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<_>>()?;
    let states = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with("clients-");
    assert_eq!(
        left.iter().find(states),
        None,
        "a run that is done keeps no states"
    );
    Ok(outcome)
}

fn everything() -> Vec<SlotAssignment> {
    vec![
        part("model", Role::Trainer, "linear", "{}"),
        part("aggregator", Role::Aggregator, "counts-rounds", "{}"),
        part("cohort", Role::Selector, "cyclic", "{size: 4}"),
        part("turns", Role::Selector, "takes-turns", "{}"),
        part("at-client", Role::Privacy, "counts-releases", "{}"),
        part("at-server", Role::Privacy, "counts-releases", "{}"),
        part("generator", Role::Generator, "drifts", "{}"),
    ]
}

#[test]
fn parts_that_remember_end_the_same_on_every_way() {
    let folders = tempfile::tempdir().unwrap();
    let mut parts = everything();
    for (number, cohort) in ["cyclic", "power-of-choice", "poisson"]
        .into_iter()
        .enumerate()
    {
        let settings = match cohort {
            "cyclic" => "{size: 4}",
            "power-of-choice" => "{size: 2, candidates: 4}",
            _ => "{rate: 0.7}",
        };
        parts[2] = part("cohort", Role::Selector, cohort, settings);
        let digest = |name: &str, how: How<'_>| {
            let outcome = walk(true, &parts, how);
            outcome
                .unwrap_or_else(|e| panic!("{cohort}, {name}: {e:#}"))
                .digest
        };
        let straight = digest("straight", STRAIGHT);
        let three = How {
            threads: 3,
            ..STRAIGHT
        };
        let wire = How {
            wire: true,
            ..three
        };
        assert_eq!(
            digest("threads", three),
            straight,
            "{cohort} on three threads"
        );
        assert_eq!(digest("wire", wire), straight, "{cohort} through the wire");
        let kept = |cache| How {
            cache: Some(cache),
            ..three
        };
        for cache in [0, 200, 1 << 30] {
            let text = format!("{cohort}, with {cache} bytes of states in memory");
            assert_eq!(digest(&text, kept(cache)), straight, "{text}");
        }
        let all: Vec<usize> = (1..ROUNDS).collect();
        let ways = [
            (&all[..], three),
            (&all, wire),
            (&all, kept(0)),
            (&[3, 7], kept(200)),
        ];
        for (at, (stops, way)) in ways.into_iter().enumerate() {
            let folder = folders.path().join(format!("{number}-{at}"));
            let how = How {
                stops: Some((&folder, stops)),
                ..way
            };
            let text = format!("{cohort}, stopped and resumed");
            assert_eq!(digest(&text, how), straight, "{text}");
        }
    }
}

#[test]
fn a_trainers_memory_outlasts_its_model_on_every_way() {
    let folders = tempfile::tempdir().unwrap();
    let tallies = |settings| {
        let mut parts = everything();
        parts[0] = part("model", Role::Trainer, "tallies", settings);
        parts
    };
    let digest = |lasting, settings, how: How<'_>| {
        let outcome = walk(lasting, &tallies(settings), how);
        outcome.unwrap_or_else(|e| panic!("{e:#}")).digest
    };
    let forgetful = digest(false, "{remembers: false}", STRAIGHT);
    let lasts = digest(true, "{}", STRAIGHT);
    assert_eq!(digest(true, "{remembers: false}", STRAIGHT), lasts);
    for (lasting, straight) in [(true, lasts), (false, digest(false, "{}", STRAIGHT))] {
        assert_ne!(straight, forgetful, "lasting: {lasting}");
        let wire = How {
            wire: true,
            ..STRAIGHT
        };
        let small = How {
            cache: Some(0),
            threads: 3,
            ..STRAIGHT
        };
        let stops: Vec<usize> = (1..ROUNDS).collect();
        for (at, way) in [STRAIGHT, wire, small].into_iter().enumerate() {
            let found = digest(lasting, "{}", way);
            assert_eq!(found, straight, "lasting: {lasting}, way {at}");
            let folder = folders.path().join(format!("{lasting}-{at}"));
            let stopped = How {
                stops: Some((&folder, &stops)),
                ..way
            };
            let found = digest(lasting, "{}", stopped);
            assert_eq!(found, straight, "lasting: {lasting}, way {at}, stopped");
        }
    }
    // memory alone: a model that does not last is another model than one that lasts
    assert_ne!(digest(false, "{}", STRAIGHT), digest(true, "{}", STRAIGHT));
}

#[test]
fn each_part_that_remembers_changes_what_comes_out() {
    let all = walk(true, &everything(), STRAIGHT).unwrap();
    assert_eq!(all.metrics["aggregator.uses"], ROUNDS as f64);
    for empty in ["cohort", "turns", "at-client", "at-server", "generator"] {
        let parts: Vec<SlotAssignment> = everything()
            .into_iter()
            .filter(|p| p.slot != empty)
            .collect();
        let outcome = walk(true, &parts, STRAIGHT).unwrap();
        assert_ne!(outcome.digest, all.digest, "without {empty}");
    }
    let forgetful = walk(false, &everything(), STRAIGHT).unwrap();
    assert_ne!(
        forgetful.digest, all.digest,
        "a model that does not last learns anew"
    );
    let wire = How {
        wire: true,
        ..STRAIGHT
    };
    let there = walk(false, &everything(), wire).unwrap();
    assert_eq!(there.digest, forgetful.digest);
}

#[test]
fn a_price_that_counts_on_a_draw_is_believed_only_if_clients_were_drawn_like_that() {
    settings! {
        /// Claims that few take part.
        struct Optimist {
            /// And that unknown reason many.
            secret: bool = false;
        }
    }
    impl PrivacyMechanism for Optimist {
        type On = Params;
        fn clip(&self, _: &mut Params) -> Result<()> {
            Ok(())
        }
        fn price(&self, _: &Params, cohort: &Cohort) -> Result<PrivacyEvent> {
            let unit = fl_core::privacy::Unit::Party;
            let (rate, sensitivity, sigma) = (0.25, 1.0, 1.0);
            Ok(if self.secret {
                PrivacyEvent::SubsampledGaussian {
                    rate,
                    sensitivity,
                    sigma,
                    unit,
                }
            } else {
                PrivacyEvent::PublicSizeGaussian {
                    rate,
                    of: cohort.of,
                    sensitivity,
                    sigma,
                    unit,
                }
            })
        }
        fn perturb(&mut self, _: &mut Params, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
            noise.draws().gaussian(0.0, 1.0);
            Ok(())
        }
    }
    plugin!(privacy "optimist" => Optimist);
    let mut parts = everything();
    for (optimist, cohort, settings, believed) in [
        ("{}", "uniform", "{share: 1.0}", false),
        ("{}", "uniform", "{share: 0.34}", false),
        ("{}", "cyclic", "{size: 1}", false),
        ("{}", "poisson", "{rate: 0.5}", false),
        ("{}", "poisson", "{rate: 0.25}", true),
        // the journal says how many clients were drawn
        ("{secret: true}", "poisson", "{rate: 0.25}", false),
    ] {
        parts[5] = part("at-server", Role::Privacy, "optimist", optimist);
        parts[2] = part("cohort", Role::Selector, cohort, settings);
        let outcome = walk(true, &parts, STRAIGHT);
        let refused = outcome
            .as_ref()
            .is_err_and(|e| matches!(e.downcast_ref::<Problem>(), Some(Problem::Unpriced(_))));
        assert_eq!(refused, !believed, "{cohort} {settings}: {outcome:?}");
    }
}
