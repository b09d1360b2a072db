//! Sends the events of a run to the sinks of its spec, while it runs.

use crate::events::{TakeEvent, unpriced};
use crate::{ExecuteOptions, NotRun};
use fl_core::RunEvent;
use fl_core::settings::Step;
use fl_data::DataSpec;
use fl_registry::{Document, Mistakes, Spec};
use fl_sim::{Listener, Outcome, RunRecord, StepReport, Unpriced, Verdict};
use serde_json::{Value as Json, json};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::OnceLock;

/// Opens the sinks of a run from their settings, or says what is missing.
pub type OpenSinks = fn(&Json) -> Result<TakeEvent, String>;

static OPEN: OnceLock<OpenSinks> = OnceLock::new();

const NO_PYTHON: &str = "needs the Python package: run the spec with the `fl` that comes with fl-federated \
    (`pip install`), or with `fl.run` in Python; `on_step`, `fl export` and the report need no sinks";

/// Says how sinks are opened: for the host that has them. The first call counts.
pub fn on_sinks(open: OpenSinks) {
    let _ = OPEN.set(open);
}

/// Refuses a spec with sinks in a program that has none, at its place in `document`.
///
/// # Errors
/// The mistake.
pub(crate) fn check(document: &Document, spec: &Spec<DataSpec>) -> Result<(), Mistakes> {
    if spec.sinks.is_empty() || OPEN.get().is_some() {
        Ok(())
    } else {
        let at = [Step::Key("sinks".into())];
        Err(Mistakes(vec![document.mistake_at(&at, NO_PYTHON)]))
    }
}

/// A finished step as JSON.
pub fn step_json(report: &StepReport<'_>) -> Json {
    let StepReport {
        number,
        of,
        metrics,
        accuracy,
        cost,
        seconds,
    } = report;
    json!({
        "step": cost.step, "number": number, "of": of, "metrics": metrics,
        "accuracy": accuracy, "seconds": seconds,
        "bytes_up": cost.bytes_up, "bytes_down": cost.bytes_down, "epsilon": cost.privacy,
        "guarantees": cost.protections,
    })
}

/// The sinks of a run, and the listener to its events in JSON.
#[derive(Clone)]
pub(crate) struct Sinks {
    take: Rc<RefCell<Vec<TakeEvent>>>,
    /// The event of the run's begin, without its folder.
    about: Json,
    unpriced: Unpriced,
}

/// Opens the sinks of a spec.
///
/// # Errors
/// When a sink cannot be opened.
pub(crate) fn open(
    spec: &Spec<DataSpec>,
    options: &mut ExecuteOptions<'_>,
) -> anyhow::Result<Sinks> {
    let mut take: Vec<TakeEvent> = options.events.take().into_iter().collect();
    if !spec.sinks.is_empty() {
        let open = OPEN
            .get()
            .ok_or_else(|| NotRun::usage(format!("sinks: {NO_PYTHON}")))?;
        let settings = spec.sinks.iter().map(fl_registry::Sink::json).collect();
        take.push(open(&settings).map_err(|why| NotRun::usage(format!("sinks: {why}")))?);
    }
    let sinks = Sinks {
        take: Rc::new(RefCell::new(take)),
        about: json!({
            "event": "begin", "name": spec.name, "seed": spec.seed,
            "spec": fl_core::settings::to_json(&spec.resolved),
        }),
        unpriced: unpriced(spec),
    };
    let listener = Box::new(sinks.clone());
    options.execution.listeners.insert(0, listener);
    Ok(sinks)
}

impl Listener for Sinks {
    fn on(&mut self, event: &RunEvent<'_>, run: &RunRecord) -> anyhow::Result<Verdict> {
        if let RunEvent::Begins(Some(folder)) = event {
            let mut about = self.about.clone();
            about["folder"] = folder.display().to_string().into();
            self.tell(&about);
        } else if let Some(report) = run.step_report(event) {
            let mut step = step_json(&report);
            step["event"] = "step".into();
            self.tell(&step);
        }
        Ok(Verdict::GoOn)
    }
}

impl Sinks {
    fn tell(&self, event: &Json) {
        for take in self.take.borrow_mut().iter_mut() {
            take(event);
        }
    }

    /// The run has ended.
    pub(crate) fn end(self, outcome: &anyhow::Result<Outcome>) {
        self.tell(&match outcome {
            Ok(outcome) => json!({"event": "end", "outcome": outcome.for_readers()}),
            Err(error) => {
                json!({"event": "end", "error": self.unpriced.error(&format!("{error:#}"))})
            }
        });
    }
}
