//! `report.md`: what a person wants to know of a run.

use crate::Outcome;
use fl_core::{ClientId, Entry, Metric, PrivacyEvent};
use std::collections::BTreeMap;
use std::fmt::Write;

/// 1234567 as `1,234,567`.
fn count(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|g| std::str::from_utf8(g).unwrap_or_default())
        .collect();
    groups.join(",")
}

/// What nobody accounts for, in one sentence.
pub(crate) fn unaccounted(events: &[PrivacyEvent]) -> String {
    let why = events.iter().find_map(|e| match e {
        PrivacyEvent::Unaccounted { why } => Some(why.as_str()),
        _ => None,
    });
    let (n, verb) = match events.len() {
        1 => ("1 release".to_string(), "is"),
        n => (format!("{n} releases"), "are"),
    };
    format!(
        "{n} {verb} not accounted for, so no privacy is guaranteed: {}",
        why.unwrap_or("parts.accountant is empty")
    )
}

pub(crate) fn write(
    outcome: &Outcome,
    entries: &[Entry],
    metrics: &[Metric],
    clients: &BTreeMap<ClientId, Vec<u32>>,
    open: &[PrivacyEvent],
    notes: &[String],
) -> String {
    let mut out = String::new();
    // writing to a String cannot fail
    let _ = fill(&mut out, outcome, entries, metrics, clients, open, notes);
    out
}

fn fill(
    out: &mut String,
    outcome: &Outcome,
    entries: &[Entry],
    metrics: &[Metric],
    clients: &BTreeMap<ClientId, Vec<u32>>,
    open: &[PrivacyEvent],
    notes: &[String],
) -> std::fmt::Result {
    writeln!(out, "# {}\n", outcome.name)?;
    writeln!(
        out,
        "Protocol `{}`, seed {}, {} steps, {:.1} s.\n",
        outcome.protocol, outcome.seed, outcome.rounds, outcome.seconds
    )?;

    writeln!(out, "## Results\n\n| measure | value |\n|---|---|")?;
    for (name, value) in &outcome.metrics {
        writeln!(out, "| {name} | {value:.4} |")?;
    }
    writeln!(
        out,
        "\n## Measured on the way\n\n| step | measure | value | std over clients |\n|---|---|---|---|"
    )?;
    for m in metrics {
        let std = m.std.map_or(String::new(), |s| format!("{s:.4}"));
        writeln!(out, "| {} | {} | {:.4} | {std} |", m.step, m.name, m.value)?;
    }

    writeln!(
        out,
        "\n## Communication\n\n| question | asked | answers | bytes down (kind) | bytes up (kind) |\n|---|---|---|---|---|"
    )?;
    let mut rows: Vec<(&str, [u64; 4], &str, &str)> = Vec::new();
    for e in entries {
        let at = rows
            .iter()
            .position(|r| r.0 == e.question)
            .unwrap_or_else(|| {
                rows.push((&e.question, [0; 4], &e.down, &e.up));
                rows.len() - 1
            });
        let sums = &mut rows[at].1;
        sums[0] += 1;
        sums[1] += (e.clients - e.dropped.len()) as u64;
        sums[2] += e.bytes_down.total();
        sums[3] += e.bytes_up.total() + e.bytes_envelope;
    }
    for (question, [asked, answers, down, up], kind_down, kind_up) in rows {
        writeln!(
            out,
            "| {question} | {asked} | {answers} | {} ({kind_down}) | {} ({kind_up}) |",
            count(down),
            count(up)
        )?;
    }
    writeln!(
        out,
        "| all | | | {} | {} |",
        count(outcome.bytes.down),
        count(outcome.bytes.up)
    )?;
    let dropped: Vec<String> = entries
        .iter()
        .flat_map(|e| {
            e.dropped
                .iter()
                .map(move |(id, why)| format!("* {}, {}, client {id}: {why}", e.step, e.question))
        })
        .collect();
    if !dropped.is_empty() {
        writeln!(out, "\nAnswers left out:\n\n{}", dropped.join("\n"))?;
    }

    writeln!(out, "\n## Privacy\n")?;
    match (&outcome.privacy, open) {
        (Some(all), _) => {
            for (observer, protection) in all {
                writeln!(out, "* against {observer}: {protection}")?;
            }
        }
        (None, []) => writeln!(
            out,
            "Nothing was released through a privacy mechanism, and nothing is guaranteed."
        )?,
        (None, open) => writeln!(out, "{}.", unaccounted(open))?,
    }

    if !notes.is_empty() {
        writeln!(out, "\n## Notes\n\n* {}", notes.join("\n* "))?;
    }
    if clients.is_empty() {
        return writeln!(
            out,
            "\nWhat each client holds is not told where somebody accounts for privacy.\n\nDigest `{}`.",
            outcome.digest
        );
    }
    writeln!(
        out,
        "\n## Clients\n\n| client | examples per class |\n|---|---|"
    )?;
    for (id, counts) in clients {
        writeln!(
            out,
            "| {id} | {} |",
            counts
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        )?;
    }
    writeln!(out, "\nDigest `{}`.", outcome.digest)
}
