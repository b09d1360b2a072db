//! Going on with a stopped run: its spec, and what `--set` may change in it, which is only what
//! does not touch the completed steps.

use crate::{NotRun, prepare};
use anyhow::ensure;
use fl_core::settings::Value;
use fl_data::DataSpec;
use fl_registry::{Catalogue, Document, Spec};
use fl_sim::StoppedRun;
use std::path::Path;

/// The stopped run in a folder, and its spec with the libraries that it started with.
///
/// # Errors
/// [`NotRun`] when the request or the spec is wrong; otherwise why the run cannot go on.
pub(crate) fn open(
    dir: &Path,
    stop_after: Option<usize>,
    set: &[String],
    catalogue: &Catalogue,
) -> anyhow::Result<(StoppedRun, Spec<DataSpec>)> {
    let path = dir.join("spec.yaml");
    // libraries before the run is locked: a program may begin itself anew to load them. What is
    // wrong with the folder is reported first
    let read = prepare::text(&path).map(|text| {
        let document = Document::parse(&path.display().to_string(), &text);
        let loaded = catalogue.with_plugins(&document);
        (text, document, loaded)
    });
    let here = dir.display();
    let paused = StoppedRun::open(dir, !set.is_empty())?;
    if let Some(steps) = stop_after.filter(|steps| *steps <= paused.done()) {
        return Err(NotRun::usage(format!(
            "--stop-after {steps}: the run in {here} has done {} steps already; give more, or leave it out",
            paused.done()
        )));
    }
    let (text, document, loaded) = read?;
    ensure!(
        paused.is_of(&text),
        "the run in {here} was given another spec by another process at this moment; try again"
    );
    let catalogue = loaded.map_err(|mut refusal| {
        refusal.text += &format!("; the run in {here} was begun with that one");
        NotRun::Refused(refusal)
    })?;
    let then = document.read(&catalogue).map_err(NotRun::Mistakes)?;
    if set.is_empty() {
        return Ok((paused, then));
    }
    let now = prepare::read(&document.set(set), &catalogue)?;
    let protocol = now.make_protocol(&fl_registry::any_make())?;
    let accounts = then.parts.has("accountant") || then.ledger.is_some();
    let last = if accounts {
        LastRound::Promised
    } else if paused.grows() {
        LastRound::Open
    } else {
        LastRound::Done
    };
    allowed(
        &then.resolved,
        &now.resolved,
        (protocol.grows(), last),
        &here.to_string(),
    )?;
    if accounts && then.resolved != now.resolved && !paused.rests() {
        return Err(NotRun::usage(format!(
            "--set: the run in {here} was killed, and may have released what no checkpoint has; with other settings it would draw other noise for that, and no guarantee would count both. Go on without --set, with --stop-after {} to stop after the next step; then change it",
            paused.done() + 1
        )));
    }
    Ok((paused, now))
}

/// The last round of a stopped run.
#[derive(Clone, Copy, PartialEq)]
enum LastRound {
    /// A guarantee holds for a number of rounds that was fixed before results were seen.
    Promised,
    /// It is still to come, and may be a later one.
    Open,
    /// It is done.
    Done,
}

/// May a run of the resolved spec `then` go on as `now`? `grows` is the protocol's setting that
/// only says how many rounds there are.
///
/// # Errors
/// Names what cannot be changed, and what can.
fn allowed(
    then: &Value,
    now: &Value,
    (grows, last): (Option<&str>, LastRound),
    dir: &str,
) -> anyhow::Result<()> {
    let alike = |spec: &Value| {
        let mut spec = spec.clone();
        fl_remote::leave_out_devices(&mut spec);
        spec
    };
    let changed = fl_remote::differences(&alike(then), &alike(now));
    let rounds = grows.map(|name| format!("protocol.{name}"));
    for path in changed
        .iter()
        .filter(|path| !path.starts_with("checkpoint."))
    {
        let Some(grows) = grows.filter(|_| rounds.as_deref() == Some(path)) else {
            let can = rounds
                .as_deref()
                .filter(|_| last != LastRound::Promised)
                .map_or(String::new(), |r| format!("`{r}` and "));
            let why = if path.starts_with("stages") {
                ", and a run with `stages` gets no more rounds"
            } else {
                ""
            };
            return Err(NotRun::usage(format!(
                "--set {path}: the run in {dir} keeps the settings that it began with{why}; only {can}`checkpoint` and the `device` of a trainer can be changed"
            )));
        };
        let of = |spec: &Value| spec["protocol"][grows].as_u64().unwrap_or(0);
        let (before, after) = (of(then), of(now));
        if last == LastRound::Promised {
            return Err(NotRun::usage(format!(
                "--set {path}={after}: the run in {dir} began with {before}, and its guarantee holds only if that was fixed before results were seen: go on without --set, or begin a new run with {path}={after}"
            )));
        }
        if after < before {
            return Err(NotRun::usage(format!(
                "--set {path}={after}: the run in {dir} began with {before}; give {before} or more"
            )));
        }
        if last == LastRound::Done {
            return Err(NotRun::usage(format!(
                "--set {path}={after}: the run in {dir} was stopped after its last round, and can only be finished"
            )));
        }
    }
    Ok(())
}
