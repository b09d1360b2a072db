//! `report.md`: a summary of a run for people.

use crate::folder::CheckpointCost;
use crate::{Summary, Traffic, Unpriced};
use fl_core::{ClientId, JournalEntry, Metric, PrivacyEvent};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// The most clients to list.
const CLIENTS: usize = 1000;

/// Formats 1234567 as `1,234,567`.
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

/// Escapes a text for one line: no markup, link or end of a cell.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '[' => out.extend(['\\', c]),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Describes the releases that no accountant covers, in one sentence.
pub(crate) fn unaccounted(events: &[PrivacyEvent]) -> String {
    let why = events.iter().find_map(|e| match e {
        PrivacyEvent::Unaccounted { why } | PrivacyEvent::Undrawn { why } => Some(why.as_str()),
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
    summary: &Summary,
    entries: &[JournalEntry],
    metrics: &[Metric],
    pictures: &[String],
    written: &CheckpointCost,
) -> String {
    let mut out = String::new();
    // writing to a String cannot fail
    let _ = fill(&mut out, summary, entries, metrics);
    for picture in pictures {
        let file = picture.bytes().fold(String::new(), |mut file, b| {
            if b.is_ascii_alphanumeric() || b"-_.".contains(&b) {
                file.push(char::from(b))
            } else {
                file += &format!("%{b:02X}")
            }
            file
        });
        let _ = writeln!(out, "\n![{}](pictures/{file})", plain(picture));
    }
    // a checkpoint has the clients' states, and its size and time follow them
    let unpriced = Unpriced::beside(summary.outcome.privacy.is_some());
    if written.times > 0 && unpriced == Unpriced::Told {
        let _ = writeln!(
            out,
            "\nCheckpoints: {}, {:.1} s in all; the last has {} bytes.",
            written.times,
            written.seconds,
            count(written.bytes)
        );
    }
    out
}

fn fill(
    out: &mut String,
    summary: &Summary,
    entries: &[JournalEntry],
    metrics: &[Metric],
) -> fmt::Result {
    let outcome = &summary.outcome;
    writeln!(out, "# {}\n", plain(&outcome.name))?;
    writeln!(
        out,
        "Protocol `{}`, seed {}, {} steps{}.\n",
        plain(&outcome.protocol).replace('`', ""),
        outcome.seed,
        outcome.rounds,
        outcome
            .seconds
            .map_or(String::new(), |seconds| format!(", {seconds:.1} s"))
    )?;

    writeln!(out, "## Results\n\n| measure | value |\n|---|---|")?;
    for (name, value) in &outcome.metrics {
        writeln!(out, "| {} | {value:.4} |", plain(name))?;
    }
    writeln!(
        out,
        "\n## Measured during the run\n\n| step | measure | value | std over clients |\n|---|---|---|---|"
    )?;
    for m in metrics {
        let std = m.std.map_or(String::new(), |s| format!("{s:.4}"));
        let (step, name) = (plain(&m.step), plain(&m.name));
        writeln!(out, "| {step} | {name} | {:.4} | {std} |", m.value)?;
    }
    communication(out, outcome.bytes, entries)?;
    left_out(out, entries)?;

    writeln!(out, "\n## Privacy\n")?;
    match (&outcome.privacy, &summary.unaccounted) {
        (Some(all), _) => {
            for (observer, protection) in all {
                let protection = plain(&protection.to_string());
                writeln!(out, "* against {observer}: {protection}")?;
            }
        }
        (None, None) => writeln!(
            out,
            "Nothing was released through a privacy mechanism, and nothing is guaranteed."
        )?,
        (None, Some(open)) => writeln!(out, "{}.", plain(open))?,
    }

    let notes = summary.data_notes.iter().chain(&summary.notes);
    let notes: Vec<String> = notes.map(|note| plain(note)).collect();
    if !notes.is_empty() {
        writeln!(out, "\n## Notes\n\n* {}", notes.join("\n* "))?;
    }
    if summary.held.is_empty() {
        let why = match &outcome.privacy {
            Some(_) => "The run has an accountant",
            None => "The clients' rows are at their nodes",
        };
        writeln!(
            out,
            "\n{why}, so the report does not show each client's classes."
        )?
    } else {
        clients(out, &summary.held)?
    }
    writeln!(out, "\nDigest `{}`.", outcome.digest)
}

/// Writes the bytes of each kind of exchange.
fn communication(out: &mut String, all: Traffic, entries: &[JournalEntry]) -> fmt::Result {
    writeln!(
        out,
        "\n## Communication\n\n| exchange | asked | answers | bytes down (kind) | bytes up (kind) |\n|---|---|---|---|---|"
    )?;
    let mut rows: Vec<(&JournalEntry, [u64; 4])> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for e in entries {
        let at = *places.entry(&e.question).or_insert_with(|| {
            rows.push((e, [0; 4]));
            rows.len() - 1
        });
        let sums = &mut rows[at].1;
        sums[0] += 1;
        sums[1] += (e.clients - e.dropped.len()) as u64;
        sums[2] += e.bytes_down.total();
        sums[3] += e.bytes_up.total() + e.bytes_envelope;
    }
    for (first, [asked, answers, down, up]) in rows {
        writeln!(
            out,
            "| {} | {asked} | {answers} | {} ({}) | {} ({}) |",
            plain(&first.question),
            count(down),
            plain(&first.down),
            count(up),
            plain(&first.up)
        )?;
    }
    let (down, up) = (count(all.down), count(all.up));
    writeln!(out, "| all | | | {down} | {up} |")
}

/// Writes the answers that were dropped: client and reason, once for each client and exchange.
fn left_out(out: &mut String, entries: &[JournalEntry]) -> fmt::Result {
    let mut groups: BTreeMap<(&str, ClientId), (usize, &str, &str)> = BTreeMap::new();
    for e in entries {
        for (id, why) in &e.dropped {
            let first = (0, e.step.as_str(), why.as_str());
            groups.entry((&e.question, *id)).or_insert(first).0 += 1;
        }
    }
    if !groups.is_empty() {
        writeln!(out, "\nAnswers left out:\n")?;
    }
    for ((question, id), (times, step, why)) in groups {
        let [question, step, why] = [question, step, why].map(plain);
        let more = match times {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        writeln!(out, "* {step}{more}, {question}, client {id}: {why}")?;
    }
    Ok(())
}

/// Writes each client's classes.
fn clients(out: &mut String, held: &BTreeMap<ClientId, Vec<u32>>) -> fmt::Result {
    writeln!(
        out,
        "\n## Clients\n\n| client | examples per class |\n|---|---|"
    )?;
    for (id, counts) in held.iter().take(CLIENTS) {
        let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
        writeln!(out, "| {id} | {} |", counts.join(" "))?;
    }
    if held.len() > CLIENTS {
        writeln!(
            out,
            "\nThe first {} of {}; all are in `outcome.json`.",
            count(CLIENTS as u64),
            count(held.len() as u64)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Traffic};

    #[test]
    fn nothing_that_a_run_names_is_markup_in_its_report() {
        let evil = "<script>x</script>\n# Forged | ![y](http://z) &amp;\u{2028}\r";
        let outcome = Outcome {
            name: evil.into(),
            seed: 1,
            protocol: evil.into(),
            rounds: 1,
            metrics: BTreeMap::from([(evil.into(), 0.5)]),
            bytes: Traffic::default(),
            privacy: None,
            digest: "d".into(),
            seconds: Some(1.0),
            out: None,
            stopped: None,
        };
        let summary = Summary {
            outcome,
            held: BTreeMap::new(),
            data_notes: vec![evil.into()],
            notes: vec![evil.into()],
            unaccounted: Some(evil.into()),
            releases: None,
            keeps: false,
        };
        let metric = Metric {
            step: evil.into(),
            round: 1,
            name: evil.into(),
            value: 0.5,
            std: None,
            each: Vec::new(),
            clients: Vec::new(),
            confusion: Vec::new(),
        };
        let entry = serde_json::json!({
            "step": evil, "question": evil, "down": evil, "up": evil, "clients": 2, "dropped": [[1, evil]],
            "bytes_down": {"values": 1, "keys": 0}, "bytes_up": {"values": 1, "keys": 0},
            "bytes_envelope": 0, "digest": "d", "answers": [], "privacy": null,
        });
        let entry: JournalEntry = serde_json::from_value(entry).unwrap();
        let picture = format!("{evil}.png");
        let text = write(
            &summary,
            &[entry],
            &[metric],
            &[picture],
            &CheckpointCost::default(),
        );
        assert!(!text.contains('<'), "{text}");
        // except for the picture itself
        assert_eq!(text.replace("\\[", "").matches('[').count(), 1, "{text}");
        assert_eq!(text.matches("\n#").count(), 5, "{text}");
        for line in text.lines().filter(|line| line.starts_with('|')) {
            let cells = line.replace("\\|", "").matches('|').count();
            assert!([3, 5, 6].contains(&cells), "{line}");
        }
    }
}
