//! A run on a thread of its own; Python takes its events.

use crate::engine::{PythonCourier, engine};
use crate::{Wrong, catalogue, wrong};
use fl_core::RunEvent;
use fl_engine::{DataOwnership, ExecuteOptions, Placement, RunRequest, Source};
use fl_sim::{Execution, OnStep, Outcome, RunRecord, StepReport};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long Ctrl-C may take to be noticed.
const PAUSE: Duration = Duration::from_millis(50);

enum Event {
    /// Its name, which one it is, of how many, the last score with its name, and the bytes so far.
    Step(String, usize, usize, Option<(String, f64)>, u64),
    /// A step that is done, in JSON. The run waits for [`Run::go_on`].
    Done(String),
    Note(String),
    Folder(PathBuf),
    /// What it came to; `None`: it was stopped before it began.
    Ended(Option<String>),
    Wrong(Wrong),
}

/// Sends the events of a run that is about to begin.
fn listen(
    name: &str,
    options: &mut ExecuteOptions<'_>,
    bar: bool,
    events: &Sender<Event>,
    verdicts: Option<Receiver<bool>>,
) -> anyhow::Result<()> {
    // the receiver may have gone; the run goes on to the end of its step
    let tell = |event: Event, to: &Sender<Event>| drop(to.send(event));
    let bar = fl_cli::bar(bar);
    let mut show = fl_cli::progress(name, &bar)?;
    let (all, done) = (events.clone(), events.clone());
    let listener = move |event: &RunEvent<'_>, run: &RunRecord| {
        show(event, run);
        match *event {
            RunEvent::Begins(Some(folder)) => tell(Event::Folder(folder.into()), &all),
            // a line in the middle of a bar would break it
            RunEvent::Note(text) | RunEvent::Warning(text) => {
                bar.suspend(|| tell(Event::Note(text.into()), &all));
            }
            RunEvent::StepBegins { step, number, of } => {
                let score = run.score().map(|(name, value)| (name.into(), value));
                let event = Event::Step(step.into(), number, of, score, run.crossed);
                tell(event, &all);
            }
            _ => {}
        }
    };
    options.execution.listeners.push(Box::new(listener));
    if let Some(verdicts) = verdicts {
        let on_step = OnStep(move |report: StepReport<'_>| {
            let report = fl_engine::step_json(&report).to_string();
            tell(Event::Done(report), &done);
            // with no receiver left, the run ends as it would have
            matches!(verdicts.recv(), Ok(true))
        });
        options.execution.listeners.push(Box::new(on_step));
    }
    Ok(())
}

fn run(
    request: RunRequest<'static>,
    bar: bool,
    events: &Sender<Event>,
    verdicts: Option<Receiver<bool>>,
) -> anyhow::Result<Option<Outcome>> {
    fl_engine::run(request, &catalogue()?, |spec, options| {
        listen(&spec.name, options, bar, events, verdicts)
    })
}

/// A run: `next()` gives its events until it is done.
#[pyclass(frozen)]
pub struct Run {
    events: Mutex<Receiver<Event>>,
    verdicts: Mutex<Sender<bool>>,
    stop: Arc<AtomicBool>,
}

#[pymethods]
impl Run {
    /// Begins: with a spec's `text`, which mistakes call `name`, or where the run in the folder
    /// `resume` stopped.
    #[new]
    #[pyo3(signature = (name, text, set, *, resume, locked, out, threads, stop_after, wire, processes, courier, deadline, memory, data_dir, command, bar, steps, events))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        name: String,
        text: String,
        set: Vec<String>,
        resume: Option<PathBuf>,
        locked: bool,
        out: Option<PathBuf>,
        threads: Option<usize>,
        stop_after: Option<usize>,
        wire: bool,
        processes: Option<usize>,
        courier: Option<PythonCourier>,
        deadline: Option<f64>,
        memory: Option<u64>,
        data_dir: Option<PathBuf>,
        command: Vec<String>,
        bar: bool,
        steps: bool,
        events: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let deadline = deadline.and_then(|s| Duration::try_from_secs_f64(s).ok());
        let owners = match courier {
            Some(courier) => Some(DataOwnership::Engine(engine(courier))),
            None => processes.map(|processes| DataOwnership::Leader { processes }),
        };
        let threads = fl_engine::threads(threads);
        let data_dir = fl_data_kit::data_dir(data_dir.as_deref());
        let to_stop = stop.clone();
        // made on the thread of the run, to which callbacks cannot be sent
        let request = move || {
            let execution = Execution {
                threads,
                memory,
                wire,
                stop_after,
                stop: to_stop,
                ..Execution::default()
            };
            RunRequest {
                source: match resume {
                    Some(dir) => Source::Stopped(dir),
                    None => Source::Text(name, text.into_bytes()),
                },
                set,
                locked,
                out,
                options: ExecuteOptions {
                    placement: owners.map(|owners| Placement { owners, deadline }),
                    events: events.map(crate::sinks::listener),
                    ..ExecuteOptions::new(data_dir, command, execution)
                },
            }
        };
        let (said, received) = channel();
        let (say, verdicts) = channel();
        let verdicts = steps.then_some(verdicts);
        let job = move || {
            let done = catch_unwind(AssertUnwindSafe(|| run(request(), bar, &said, verdicts)));
            let json = |o: Outcome| serde_json::to_string(&o).unwrap_or_default();
            let event = match done {
                Ok(Ok(outcome)) => Event::Ended(outcome.map(json)),
                Ok(Err(error)) => Event::Wrong(wrong(&error)),
                Err(_) => Event::Wrong(("run", "it panicked".into(), "[]".into())),
            };
            drop(said.send(event));
        };
        std::thread::Builder::new()
            .name("fl".into())
            .spawn(job)
            .map_err(PyErr::from)?;
        Ok(Self {
            events: Mutex::new(received),
            verdicts: Mutex::new(say),
            stop,
        })
    }

    /// The run stops after the step that is going on.
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// After the event `after`: goes on with the next step, or ends the rounds.
    fn go_on(&self, ends: bool) {
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        // it has ended: nothing waits for the verdict
        let _ = verdicts.send(ends);
    }

    /// The next event, the last of which is `done` or `wrong`; `None`: nothing has happened for a
    /// while. Ctrl-C is noticed.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let wait = || {
            let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            events.recv_timeout(PAUSE)
        };
        let event = py.detach(wait);
        // an event that has been taken must not get lost
        if event.is_err() {
            py.check_signals()?;
        }
        let tuple = match event {
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                ("wrong", "run", "it has ended", "[]").into_pyobject(py)?
            }
            Ok(Event::Step(name, number, of, score, bytes)) => {
                ("step", name, number, of, score, bytes).into_pyobject(py)?
            }
            Ok(Event::Note(text)) => ("note", text).into_pyobject(py)?,
            Ok(Event::Folder(path)) => ("folder", path.display().to_string()).into_pyobject(py)?,
            Ok(Event::Done(report)) => ("after", report).into_pyobject(py)?,
            Ok(Event::Ended(outcome)) => ("done", outcome).into_pyobject(py)?,
            Ok(Event::Wrong((kind, text, all))) => ("wrong", kind, text, all).into_pyobject(py)?,
        };
        Ok(Some(tuple))
    }
}
