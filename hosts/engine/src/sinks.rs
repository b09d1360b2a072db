//! Sends the events of a run to the sinks of its spec, while it runs.

use crate::study::WITHHELD;
use crate::{ExecuteOptions, NotRun};
use fl_data::DataSpec;
use fl_registry::Spec;
use fl_sim::{Next, Outcome, StepReport};
use serde_json::{Value as Json, json};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::OnceLock;

/// Takes events, each a JSON object with `event`.
pub type TakeEvent = Box<dyn FnMut(&Json)>;

/// Opens the sinks of a run from their settings, or says what is missing.
pub type OpenSinks = fn(&Json) -> Result<TakeEvent, String>;

static OPEN: OnceLock<OpenSinks> = OnceLock::new();

const NO_PYTHON: &str = "`sinks` needs the Python package: run the spec with the `fl` that comes with fl-federated \
    (`pip install`), or with `fl.run` in Python; `on_step`, `fl export` and the report need no sinks";

/// Says how sinks are opened: for the host that has them. The first call counts.
pub fn on_sinks(open: OpenSinks) {
    let _ = OPEN.set(open);
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

/// The sinks of a run.
pub(crate) struct Sinks {
    take: Option<Rc<RefCell<TakeEvent>>>,
    /// Whether the text of an error may hold private values.
    withholds: bool,
}

/// Opens the sinks of a spec and lets them, and the listener of the options, hear of the run's
/// begin and of each step.
///
/// # Errors
/// When a sink cannot be opened.
pub(crate) fn open<'a>(
    spec: &Spec<DataSpec>,
    options: &mut ExecuteOptions<'a>,
) -> anyhow::Result<Sinks> {
    let withholds = spec.parts.has("accountant");
    let mut listeners: Vec<TakeEvent> = options.events.take().into_iter().collect();
    if !spec.sinks.is_empty() {
        let open = OPEN.get().ok_or_else(|| NotRun::usage(NO_PYTHON))?;
        let settings = spec.sinks.iter().map(fl_registry::Sink::json).collect();
        let take = open(&settings).map_err(|why| NotRun::usage(format!("sinks: {why}")))?;
        listeners.push(take);
    }
    if listeners.is_empty() {
        return Ok(Sinks {
            take: None,
            withholds,
        });
    }
    let take: TakeEvent =
        Box::new(move |event| listeners.iter_mut().for_each(|listener| listener(event)));
    let take = Rc::new(RefCell::new(take));
    let (begun, stepped) = (take.clone(), take.clone());
    let about = json!({
        "event": "begin", "name": spec.name, "seed": spec.seed,
        "spec": fl_core::settings::to_json(&spec.resolved),
    });
    let on_folder = std::mem::replace(&mut options.on_folder, Box::new(|_| {}));
    options.on_folder = Box::new(move |folder: &Path| {
        let mut about = about;
        about["folder"] = folder.display().to_string().into();
        begun.borrow_mut()(&about);
        on_folder(folder);
    });
    let mut on_step = options.execution.on_step.take();
    options.execution.on_step = Some(Box::new(move |report| {
        let mut event = step_json(&report);
        event["event"] = "step".into();
        stepped.borrow_mut()(&event);
        on_step
            .as_mut()
            .map_or(Next::GoOn, |on_step| on_step(report))
    }));
    Ok(Sinks {
        take: Some(take),
        withholds,
    })
}

impl Sinks {
    /// The run has ended.
    pub(crate) fn end(self, outcome: &anyhow::Result<Outcome>) {
        let Some(take) = self.take else { return };
        let event = match outcome {
            Ok(outcome) => json!({"event": "end", "outcome": outcome}),
            // sinks write it into files
            Err(_) if self.withholds => json!({"event": "end", "error": WITHHELD}),
            Err(error) => json!({"event": "end", "error": format!("{error:#}")}),
        };
        take.borrow_mut()(&event);
    }
}
