//! What people are shown of a run: how far it is, and what it came to.

use crate::ask::Told;
use crate::say;
use bytesize::ByteSize;
use fl_sim::{Begun, Outcome};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write;

/// Shows how far the run `name` is, where a terminal is to show it, and says what the user should know.
pub fn shown(name: &str, bar: &ProgressBar) -> anyhow::Result<Told<'static>> {
    let left = ProgressStyle::with_template("{spinner} {msg} {elapsed}, about {eta} left")?;
    bar.set_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}")?);
    let (step, note, name) = (bar.clone(), bar.clone(), name.to_string());
    Ok(Told {
        progress: Box::new(move |begun| {
            let line = format!("{name}: {}", progress(begun));
            crate::log::note(&line);
            if begun.of > 0 {
                step.set_length(begun.of as u64);
                step.set_position(begun.number as u64);
                step.set_style(left.clone());
            }
            step.set_message(line);
            step.tick();
        }),
        warn: Box::new(move |text| note.suspend(|| say(format_args!("note: {text}")))),
        begun: Box::new(|_| {}),
    })
}

/// How far a run is.
pub fn progress(begun: Begun<'_>) -> String {
    let mut line = match begun.of {
        0 => begun.step.to_string(),
        of => format!("{} of {of} rounds", begun.number),
    };
    if let Some(accuracy) = begun.accuracy {
        line += &format!(", accuracy {accuracy:.4}");
    }
    if begun.bytes > 0 {
        line += &format!(", {}", ByteSize(begun.bytes).display().si());
    }
    line
}

/// What a run came to, for people.
pub fn text(o: &Outcome) -> String {
    let mut out = format!(
        "{} (seed {}, {} steps, {:.1} s)\n",
        o.name, o.seed, o.rounds, o.seconds
    );
    for (name, value) in o.metrics.iter().filter(|(name, _)| !name.ends_with(".std")) {
        let std = o
            .metrics
            .get(&format!("{name}.std"))
            .map_or(String::new(), |s| format!(" +- {s:.4}"));
        let _ = writeln!(out, "  {name:<20} {value:.4}{std}");
    }
    let _ = writeln!(
        out,
        "  {:<20} {} up, {} down",
        "bytes", o.bytes.up, o.bytes.down
    );
    let _ = match &o.privacy {
        Some(all) => all.iter().try_for_each(|(observer, protection)| {
            let against = format!("against {observer}");
            writeln!(out, "  {:<20} {against}: {protection}", "privacy")
        }),
        None => writeln!(out, "  {:<20} nothing is guaranteed", "privacy"),
    };
    let _ = writeln!(out, "  {:<20} {}", "digest", o.digest);
    let _ = write!(
        out,
        "  {:<20} {}",
        "run folder",
        o.out.as_deref().unwrap_or("none")
    );
    out
}
