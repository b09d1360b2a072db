//! How a run looks on a terminal.

use crate::say;
use bytesize::ByteSize;
use fl_core::RunEvent;
use fl_sim::{Outcome, RunRecord, StepProgress};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// How often a run says how far it is where there is no terminal to show it on.
const WITHOUT_TERMINAL: Duration = Duration::from_secs(60);

/// Shows on the bar how far the run `name` is, and adds each step to the log. Without a terminal it
/// says so once a minute.
///
/// # Errors
/// When the bar's template is wrong.
pub fn progress(
    name: &str,
    bar: &ProgressBar,
) -> anyhow::Result<impl FnMut(&RunEvent<'_>, &RunRecord) + 'static> {
    let left = ProgressStyle::with_template("{spinner} {msg} {elapsed}, about {eta} left")?;
    bar.set_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}")?);
    let (bar, name) = (bar.clone(), name.to_string());
    let mut said = (!console::Term::stderr().is_term()).then(Instant::now);
    Ok(move |event: &RunEvent<'_>, run: &RunRecord| {
        let Some(step) = run.progress(event) else {
            return;
        };
        let line = format!("{name}: {}", line(step));
        crate::log::note(&line);
        if let Some(last) = &mut said
            && last.elapsed() >= WITHOUT_TERMINAL
            && !crate::log::quiet()
        {
            *last = Instant::now();
            crate::log::complain(&line);
        }
        if step.of > 0 {
            bar.set_length(step.of as u64);
            bar.set_position(step.number as u64);
            bar.set_style(left.clone());
        }
        bar.set_message(line);
        bar.tick();
    })
}

/// Prints notes above the bar.
pub fn notes(bar: &ProgressBar) -> impl FnMut(&RunEvent<'_>, &RunRecord) + 'static {
    let bar = bar.clone();
    move |event: &RunEvent<'_>, _: &RunRecord| {
        if let RunEvent::Note(text) | RunEvent::Warning(text) = event {
            bar.suspend(|| say(format_args!("note: {text}")));
        }
    }
}

/// How far a run is.
pub fn line(begun: StepProgress<'_>) -> String {
    let mut line = match begun.of {
        0 => begun.step.to_string(),
        of => format!("{} of {of} rounds", begun.number),
    };
    if let Some((name, score)) = begun.score {
        line += &format!(", {name} {score:.4}");
    }
    if begun.bytes > 0 {
        line += &format!(", {}", ByteSize(begun.bytes).display().si());
    }
    line
}

/// What a run came to, for people.
pub fn text(o: &Outcome) -> String {
    let mut out = format!(
        "{} (seed {}, {} steps{}{})\n",
        o.name,
        o.seed,
        o.rounds,
        (o.stopped.as_ref()).map_or(String::new(), |after| format!(", stopped after {after}")),
        o.seconds
            .map_or(String::new(), |seconds| format!(", {seconds:.1} s"))
    );
    let shown = || o.metrics.iter().filter(|(name, _)| !name.ends_with(".std"));
    let longest = shown().map(|(name, _)| name.chars().count()).max();
    let wide = longest.unwrap_or(0).max(20);
    for (name, value) in shown() {
        let std = o
            .metrics
            .get(&format!("{name}.std"))
            .map_or(String::new(), |s| format!(" +- {s:.4}"));
        let _ = writeln!(out, "  {name:<wide$} {value:.4}{std}");
    }
    let (up, down) = (bytes(o.bytes.up), bytes(o.bytes.down));
    let _ = writeln!(out, "  {:<wide$} {up} up, {down} down", "bytes");
    // who has no accountant has not asked for a guarantee
    for (observer, protection) in o.privacy.iter().flatten() {
        let against = format!("against {observer}");
        let _ = writeln!(out, "  {:<wide$} {against}: {protection}", "privacy");
    }
    let _ = writeln!(out, "  {:<wide$} {}", "digest", o.digest);
    let _ = write!(
        out,
        "  {:<wide$} {}",
        "run folder",
        o.out.as_deref().unwrap_or("none")
    );
    out
}

/// A number of bytes, a large one in a larger unit too.
pub fn bytes(count: u64) -> String {
    match count {
        0..1_000_000 => count.to_string(),
        _ => format!("{count} ({})", ByteSize(count).display().si()),
    }
}
