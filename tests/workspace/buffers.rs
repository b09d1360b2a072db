//! Buffers, such as the running statistics of batch normalisation: the server's next model has the
//! clients' mean of them, whatever step it takes with the parameters.

use crate::corrections::{CLIENTS, OWN, everybody};
use crate::federation::{part, protocol};
use fl_core::message::Params;
use fl_core::prelude::*;
use fl_core::settings::read_yaml;
use fl_core::{
    BoxedAggregator, FitReport, Parametric, Parts, Problem, Role, RunEvent, RunOptions,
    SlotAssignment,
};
use fl_sim::{Execution, Manifest, Outcome, RunFolder, RunRecord, Session, Setup, StoppedRun, run};
use ndarray::{Array2, ArrayD, IxDyn};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

settings! {
    /// Another aggregator of parameters, whose buffers are watched.
    struct WatchedSettings {
        /// Its name.
        part: String;
        /// Its settings.
        settings: String = "{}".to_string();
        /// Whether the next buffers need only lie between those of the clients and of the server.
        between: bool = false;
    }
}

/// The least and the largest value that each number of a buffer may have next.
type Bounds = BTreeMap<String, Vec<(f64, f64)>>;

struct Watched {
    inner: BoxedAggregator<Params, Params>,
    between: bool,
    due: Bounds,
}

impl From<WatchedSettings> for Watched {
    fn from(settings: WatchedSettings) -> Self {
        let of = part(
            "aggregator",
            Role::Aggregator,
            &settings.part,
            &settings.settings,
        );
        let make = BuildContext {
            task: everybody().0.task(),
            stream: Stream::root(0),
        };
        Self {
            inner: of.decl.make(&of.settings.value, &make).unwrap(),
            between: settings.between,
            due: Bounds::new(),
        }
    }
}

impl Watched {
    fn next(&self, name: &str, sent: &Params, inbox: &Inbox<Params>) -> Vec<(f64, f64)> {
        let total: f64 = inbox.iter().map(|mail| mail.weight).sum();
        let all = (0..sent.0[name].len()).map(|at| {
            let number = |of: &Params| f64::from(*of.0[name].iter().nth(at).unwrap());
            let answers = inbox.iter().map(|mail| number(&mail.body));
            if self.between {
                let all = answers.chain([number(sent)]);
                return all.fold((f64::MAX, f64::MIN), |(low, high), x| {
                    (low.min(x), high.max(x))
                });
            }
            let products = answers.zip(inbox.iter()).map(|(x, mail)| x * mail.weight);
            let mean = products.sum::<f64>() / total;
            (mean, mean)
        });
        all.collect()
    }
}

impl Aggregator for Watched {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let sent: &Params = round.sent().context("the message sent")?;
        ensure!(
            round.buffers().len() == 2,
            "two buffers: {:?}",
            round.buffers()
        );
        for (name, due) in &self.due {
            for (found, (low, high)) in sent.0[name].iter().zip(due) {
                let (found, slack) = (f64::from(*found), 1e-6 * high.abs().max(1.0));
                ensure!(
                    (low - slack..=high + slack).contains(&found),
                    "{}: `{name}` is {found}, and {low} to {high} was due",
                    round.name
                );
            }
        }
        round.record("compared", self.due.len() as f64);
        let buffers = round.buffers().iter();
        self.due = buffers
            .map(|name| (name.clone(), self.next(name, sent, inbox)))
            .collect();
        self.inner.aggregate(round, inbox)
    }

    fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            sent: true,
            ..self.inner.needs()
        }
    }
}
plugin!(aggregator "watched" => WatchedSettings as Watched);

/// A network with batch normalisation.
const NORM: &str = "{net: [{linear: 3}, batch-norm, relu, outputs], optimiser: {sgd: {lr: 0.3}}}";

fn setup(method: &str, settings: &str, parts: Vec<SlotAssignment>) -> Setup<'static> {
    let (all, own) = everybody();
    Setup::new(
        protocol(method, settings),
        Arc::new(Parts::new(parts)),
        RunOptions::new(1, all.task()),
        own,
        all,
    )
}

/// Runs it, and returns its notes too.
fn noted(setup: Setup<'_>) -> Result<(Outcome, Vec<String>)> {
    let notes = RefCell::new(Vec::new());
    let done = run(Setup {
        execution: Execution {
            listeners: vec![Box::new(|event: &RunEvent<'_>, _: &RunRecord| {
                if let RunEvent::Note(note) | RunEvent::Warning(note) = event {
                    notes.borrow_mut().push(note.to_string());
                }
            })],
            ..setup.execution
        },
        ..setup
    })?;
    Ok((done, notes.into_inner()))
}

fn watch(method: &str, aggregator: &str) {
    let parts = vec![
        part("model", Role::Trainer, "dfdx", NORM),
        part("aggregator", Role::Aggregator, "watched", aggregator),
    ];
    let (method, more) = method.split_once(", ").unwrap_or((method, ""));
    let done = run(setup(method, &format!("{{{LOCAL}, {more}}}"), parts));
    let done = done.unwrap_or_else(|error| panic!("{method} {more} {aggregator}: {error:#}"));
    let compared = done.metrics["aggregator.compared"];
    assert_eq!(
        (done.rounds, compared),
        (4, 2.0),
        "{method} {more} {aggregator}"
    );
}

const LOCAL: &str = "rounds: 4, local: {epochs: 2, batch: 4}";

#[test]
fn close_the_server_averages_buffers_and_takes_no_step_with_them() {
    for name in ["fed-avg-m", "fed-adagrad", "fed-adam", "fed-yogi", "mean"] {
        watch("fedavg", &format!("{{part: {name}}}"));
    }
    let fast = "{part: fed-avg-m, settings: '{lr: 3}'}";
    watch("fedprox", fast);
    for method in [
        "scaffold, server-lr: 2",
        "scaffold, control: gradient",
        "fednova",
    ] {
        watch(method, "{part: mean}");
        watch(method, fast);
    }
}

#[test]
fn bounded_no_aggregator_extrapolates_buffers() {
    for of in [
        "part: centred-clipping, settings: '{radius: 0.5}'",
        "part: fltrust, settings: '{trusted: 2}'",
        "part: q-fair-mean, settings: '{lr: 0.3}'",
        "part: norm-bounding, settings: '{bound: 0.5}'",
    ] {
        watch("fedavg", &format!("{{{of}, between: true}}"));
    }
}

/// Noise on the update of a client is noise on its running variances too.
#[test]
fn a_variance_that_noise_takes_below_zero_counts_as_zero() {
    let parts = vec![
        part("model", Role::Trainer, "dfdx", NORM),
        part("aggregator", Role::Aggregator, "mean", "{}"),
        part(
            "privacy",
            Role::Privacy,
            "gaussian-update",
            "{clip: 1, noise-multiplier: 9}",
        ),
    ];
    let (_, notes) = noted(setup("fedavg", &format!("{{{LOCAL}}}"), parts)).unwrap();
    assert_eq!(notes.iter().find(|note| note.contains("NaN")), None);
}

settings! {
    /// A model that cannot be trained on six examples, as it says with an error about a shape.
    struct FussySettings {}
}

struct Fussy {
    outputs: usize,
    w: f32,
}

impl Fussy {
    fn new(_: FussySettings, make: &BuildContext) -> Result<Self> {
        let outputs = make.task.kind.outputs();
        Ok(Self { outputs, w: 0.0 })
    }
}

impl Trainer for Fussy {
    fn fit(
        &mut self,
        x: &Samples,
        _: Target<'_>,
        _: &FitOptions<'_>,
        _: &Stream,
    ) -> Result<FitReport> {
        self.w += x.values().sum();
        ensure!(
            x.ids()[0] as usize != OWN,
            Problem::Shape("too odd to learn".into())
        );
        Ok(FitReport {
            steps: 1,
            loss: 1.0,
            falls: None,
        })
    }
    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        Ok(Array2::from_elem((x.len(), self.outputs), self.w))
    }
    fn save(&self) -> Result<Vec<u8>> {
        Ok(self.w.to_le_bytes().to_vec())
    }
    fn load(&mut self, model: &[u8]) -> Result<()> {
        self.w = f32::from_le_bytes(model.try_into().context("four bytes")?);
        Ok(())
    }
    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        Some(self)
    }
}

impl Parametric for Fussy {
    fn params(&self) -> Params {
        Params([("w".into(), ArrayD::from_elem(IxDyn(&[]), self.w))].into())
    }
    fn set_params(&mut self, params: &Params) -> Result<()> {
        self.w = params.flat()[0];
        Ok(())
    }
}
plugin!(trainer "fussy" => FussySettings as Fussy);

fn fussy(
    faults: &str,
    fresh: bool,
    (threads, wire): (usize, bool),
    folder: Option<&Path>,
) -> Result<(Outcome, Vec<String>)> {
    let parts = || {
        vec![
            part("model", Role::Trainer, "fussy", "{}"),
            part("aggregator", Role::Aggregator, "mean", "{}"),
        ]
    };
    let begin = |folder, resumed, stop_after| {
        let settings = format!("{{rounds: 3, fresh: {fresh}}}");
        let setup = setup("fedavg", &settings, parts());
        let mut options = setup.options.clone();
        options.faults = read_yaml(faults).unwrap();
        noted(Setup {
            options,
            execution: Execution {
                threads,
                wire,
                stop_after,
                ..Execution::default()
            },
            folder,
            resumed,
            ..setup
        })
    };
    let manifest = || Manifest::new(Session::now("0", &[]), 1, "fussy", Vec::new(), Vec::new());
    let Some(path) = folder else {
        return begin(None, None, None);
    };
    let folder = RunFolder::create(path, "fussy", &manifest())?;
    begin(Some(folder), None, Some(1))?;
    let (folder, resumed) = StoppedRun::open(path, false)?.go_on(manifest(), "fussy")?;
    begin(Some(folder), resumed, None)
}

#[test]
fn exact_a_client_whose_training_fails_is_left_out_in_every_way() {
    for fresh in [true, false] {
        let drop =
            |way, folder: Option<&Path>| fussy("{on-error: drop}", fresh, way, folder).unwrap();
        let (done, notes) = drop((1, false), None);
        let left_out: Vec<&String> = notes.iter().filter(|n| n.contains("left out")).collect();
        assert_eq!(left_out.len(), 1, "{notes:?}");
        assert!(
            left_out[0].ends_with("client 1 (1: too odd to learn)"),
            "{left_out:?}"
        );
        let dir = tempfile::tempdir().unwrap();
        for (way, folder) in [
            ((CLIENTS, false), None),
            ((2, true), None),
            ((2, false), Some(dir.path().join("stopped"))),
        ] {
            let (other, _) = drop(way, folder.as_deref());
            assert_eq!(other.digest, done.digest, "{way:?}");
        }
    }
    // the shape of an answer is another matter
    let error = fussy("{on-shape: drop}", true, (1, false), None).unwrap_err();
    assert!(
        format!("{error:#}").ends_with("client 1: too odd to learn"),
        "{error:#}"
    );
}
