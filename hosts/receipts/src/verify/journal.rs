//! The journal of a run beside its receipts.

use super::chain::{Line, MOST_RECEIPTS, ReadChain};
use super::{Difference, differs};
use anyhow::Context;
use fl_core::JournalEntry;
use fl_core::message::{Message, Scalar};
use fl_core::regular_file::RegularLines;
use fl_core::settings::Value;
use std::collections::BTreeMap;
use std::path::Path;

const JOURNAL: &str = "journal.jsonl";

/// The label of the request for the number of a client's examples, before clients are picked.
const SAMPLES: &str = "number of examples";

/// A journal lists the answers to requests to at most this many clients.
const LISTED: usize = 256;

/// Reads the journal: each entry with its line. The last line of a run that is not done may be cut
/// short.
fn read_journal(
    folder: &Path,
    done: bool,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<(usize, JournalEntry)>> {
    let path = folder.join(JOURNAL);
    let what = || format!("reading {}", path.display());
    let mut lines = RegularLines::open(&path, MOST_RECEIPTS).with_context(what)?;
    let (mut entries, mut number) = (Vec::new(), 0);
    while let Some(line) = lines.next_line().with_context(what)? {
        number += 1;
        let place = format!("{JOURNAL}, line {number}");
        if !done && !line.ends_with(b"\n") {
            notes.push(format!("{place} is incomplete: its process was killed"));
            break;
        }
        match serde_json::from_slice(line) {
            Ok(entry) => entries.push((number, entry)),
            Err(error) => return differs(place, error.to_string(), "an exchange"),
        }
    }
    Ok(entries)
}

/// Which exchanges of a run's spec have no receipt.
struct WithoutReceipt {
    /// With fewer answers a step is done again.
    least: usize,
    /// How often.
    repeats: usize,
    /// How often a budget may refuse an exchange.
    refusals: usize,
    /// Whether clients may be asked for a number before they are picked.
    polls: bool,
    /// The attempts at each step.
    attempts: BTreeMap<String, usize>,
}

impl WithoutReceipt {
    fn of(spec: &Value) -> Self {
        let faults = spec.get("faults");
        let number = |value: Option<&Value>| value.and_then(Value::as_u64).map(|n| n as usize);
        let stages = spec.get("stages").and_then(Value::as_sequence);
        let own = [spec].into_iter().chain(stages.into_iter().flatten());
        let fills: Vec<&Value> = own.filter_map(|of| of.get("parts")).collect();
        let has = |slot: &str| {
            let mut filled = fills.iter().filter_map(|parts| parts.get(slot));
            filled.any(|part| !part.is_null())
        };
        let spends = has("accountant") || spec.get("ledger").is_some_and(|of| !of.is_null());
        Self {
            least: number(faults.and_then(|of| of.get("min-answers"))).unwrap_or(1),
            repeats: number(faults.and_then(|of| of.get("if-too-few")?.get("repeat"))).unwrap_or(0),
            refusals: usize::from(spends) * fills.len(),
            polls: has("cohort"),
            attempts: BTreeMap::new(),
        }
    }

    /// Whether an exchange, which is not the next with a receipt, may have none.
    fn has(&mut self, entry: &JournalEntry) -> bool {
        if self.polls && (entry.question == SAMPLES || entry.up == Scalar::KIND) {
            return true;
        }
        if self.failed(entry) {
            let attempts = self.attempts.entry(entry.step.clone()).or_default();
            *attempts += 1;
            if *attempts <= self.repeats {
                return true;
            }
        }
        let refused = self.refusals > 0 && !entry.dropped.is_empty();
        self.refusals -= usize::from(refused);
        refused
    }

    /// Whether an exchange had too few answers.
    fn failed(&self, entry: &JournalEntry) -> bool {
        let dropped = entry.dropped.len();
        dropped > 0 && entry.clients.saturating_sub(dropped) < self.least
    }
}

/// Checks that the exchanges of the journal are those of the receipts, with their answers. Returns
/// how often each step was done again.
pub(super) fn check_journal(
    folder: &Path,
    chain: &ReadChain,
    spec: &Value,
    notes: &mut Vec<String>,
) -> anyhow::Result<BTreeMap<String, usize>> {
    let entries = read_journal(folder, chain.end.is_some(), notes)?;
    let mut without = WithoutReceipt::of(spec);
    let mut again: BTreeMap<String, usize> = BTreeMap::new();
    for (_, entry) in entries.iter().filter(|(_, entry)| without.failed(entry)) {
        let times = again.entry(entry.step.clone()).or_default();
        *times = without.repeats.min(*times + 1);
    }
    let hidden = spec.get("noise").and_then(Value::as_str) == Some("system");
    let due = chain.steps.iter();
    let mut due = due.filter_map(|line| Some((line, line.step.receipt.exchange.as_ref()?)));
    let mut next = due.next();
    let mut open = Vec::new();
    for (number, entry) in &entries {
        match next {
            Some((line, label))
                if (&line.step.receipt.step, label) == (&entry.step, &entry.question)
                    && !without.failed(entry) =>
            {
                if let Some(other) = unlike(line, entry, *number, hidden) {
                    return Err(other.into());
                }
                next = due.next();
            }
            _ if without.has(entry) => {}
            _ => open.push((number, entry)),
        }
    }
    if let (Some((line, _)), []) = (next, &open[..]) {
        return differs(JOURNAL, "no such exchange", line.place(None));
    }
    let Some((number, first)) = open.first() else {
        return Ok(again);
    };
    let place = format!(
        "{JOURNAL}, line {number} ({}, exchange `{}`)",
        first.step, first.question
    );
    // an exchange gets its line before its receipt
    let last = **number == entries.len() && next.is_none() && chain.end.is_none();
    if !last {
        return differs(
            place,
            format!("{} exchanges without a receipt", open.len()),
            "one at most, the last, whose process was killed: lines were added, or the receipts were cut back, or are of another run",
        );
    }
    notes.push(format!(
        "{place} has no receipt: its process was killed, or the receipts were cut back"
    ));
    Ok(again)
}

/// Returns the first answer that a line of the journal states otherwise than a receipt. `hidden`:
/// a journal may lack the answers because nothing repeats them.
fn unlike(line: &Line, entry: &JournalEntry, number: usize, hidden: bool) -> Option<Difference> {
    let inputs = &line.step.inputs;
    if inputs.is_empty() {
        return None;
    }
    let says = format!("as line {number} of journal.jsonl says");
    let other = |client: u32, found: String, due: String| Difference {
        place: line.place(Some(client)),
        found,
        expected: format!("{due}, {says}"),
    };
    let unequal = entry.answers.iter().find_map(|(client, due)| {
        let found = inputs.iter().find(|input| input.client == *client);
        let found = found.map(|input| input.answer.as_ref().unwrap_or(&input.sha256));
        let found = found.map_or("no answer", String::as_str);
        (!found.starts_with(due.as_str())).then(|| other(*client, found.into(), format!("{due}..")))
    });
    let listed = entry.clients <= LISTED && !(hidden && entry.digest.is_empty());
    let unlisted = || {
        let mut left = entry
            .answers
            .iter()
            .map(|(client, _)| client)
            .collect::<Vec<_>>();
        let extra = inputs.iter().find(|input| {
            let at = left.iter().position(|client| **client == input.client);
            at.map(|at| left.swap_remove(at)).is_none()
        });
        extra
            .filter(|_| listed)
            .map(|input| other(input.client, "an answer".into(), "none".into()))
    };
    unequal.or_else(unlisted)
}
