//! The joint guarantee of all runs of a study that learnt from the same rows.

use crate::cells::cell;
use crate::model::{RunSpec, Table};
use crate::results::RunResults;
use crate::tables::BuiltTable;
use fl_core::privacy::{Observer, Protection};
use fl_ledger::{Entry, MakeAccountant, rule, together};
use fl_report::{Run, Section};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Describes what an observer of a run has seen, as a ledger over runs does.
pub type AsEntry<'a> = &'a dyn Fn(&RunSpec, &Run, Observer) -> Option<Entry>;

/// Runs that may have learnt from the same rows.
#[derive(Default)]
struct Group<'a> {
    data: BTreeSet<String>,
    runs: Vec<(&'a RunSpec, &'a Run)>,
}

/// Returns every run of these tables once, grouped by the rows that it learnt from. Two runs with
/// one file in common are in one group: a total of too many releases is still a bound.
fn groups<'a>(tables: &'a [Table], answers: &'a RunResults) -> Vec<Group<'a>> {
    let all = tables
        .iter()
        .flat_map(|table| table.runs.iter().flatten().flatten());
    let done = all.filter_map(|(_, run)| Some((run, answers.get(run)?.as_ref().ok()?.run())));
    // equal specs are one run, in one folder
    let runs: BTreeMap<&Path, (&RunSpec, &Run)> =
        done.map(|(spec, run)| (&*run.path, (spec, run))).collect();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (spec, run) in runs.into_values() {
        let mut one = Group {
            data: run.data().into_iter().collect(),
            runs: vec![(spec, run)],
        };
        let (same, others): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|group| !group.data.is_disjoint(&one.data));
        for group in same {
            one.data.extend(group.data);
            one.runs.extend(group.runs);
        }
        groups = others;
        groups.push(one);
    }
    groups
}

/// Returns the joint guarantees of runs on the same rows, composed as `fl ledger show` does. `None`
/// if no two runs with a guarantee used the same rows.
pub fn totals(
    tables: &[Table],
    answers: &RunResults,
    entry: AsEntry<'_>,
    make: MakeAccountant<'_>,
) -> Option<BuiltTable> {
    let (mut rows, mut csv) = (Vec::new(), Vec::new());
    let title = "Privacy of all runs on the same rows";
    let groups = groups(tables, answers).into_iter();
    for group in groups.filter(|group| group.runs.len() > 1) {
        let (_, first) = group.runs.first()?;
        let files = first.data();
        let set = match &files[..] {
            [made] if made.starts_with(first.set()) => made.clone(),
            _ => first.set().to_string(),
        };
        for observer in Observer::ALL {
            let guarded = |(_, run): &(&RunSpec, &Run)| {
                let outcome = &run.summary.as_ref()?.outcome;
                outcome.protection(observer)?.guarantee().map(drop)
            };
            if !group.runs.iter().any(|run| guarded(run).is_some()) {
                continue;
            }
            let entries: Option<Vec<Entry>> = group
                .runs
                .iter()
                .map(|(spec, run)| entry(spec, run, observer))
                .collect();
            let entries = entries?;
            let entries: Vec<&Entry> = entries.iter().collect();
            let all = together(&entries, observer, make);
            let how = match all {
                Protection::Holds(_) => rule(&entries),
                Protection::Nothing { .. } => String::new(),
            };
            let runs = group.runs.len().to_string();
            if let Some(guarantee) = all.guarantee() {
                for (what, number) in [("epsilon", guarantee.epsilon), ("delta", guarantee.delta)] {
                    let measure = format!("{what}.{}", observer.name());
                    let about = [title, &set, "all", &measure, &runs, &number.to_string()];
                    let mut line: [String; 13] = Default::default();
                    line.iter_mut()
                        .zip(about)
                        .for_each(|(cell, text)| *cell = text.into());
                    csv.push(line);
                }
            }
            rows.push(vec![
                set.clone(),
                runs,
                observer.to_string(),
                all.to_string(),
                how,
            ]);
        }
    }
    if rows.is_empty() {
        return None;
    }
    // `seed 2` comes before `seed 10`
    let order = |set: &String| (set.len(), set.clone());
    rows.sort_by_key(|row| order(&row[0]));
    csv.sort_by_key(|row| order(&row[1]));
    let mut notes = vec![String::from(
        "An observer of several runs on the same rows sees all their releases. Runs outside these tables are not counted; a `ledger` counts them.",
    )];
    let failed = answers.values().filter(|result| result.is_err()).count();
    if failed > 0 {
        let s = if failed == 1 { "" } else { "s" };
        notes.push(format!("{failed} failed run{s} may have released more."));
    }
    let head = ["data", "runs", "against", "guarantee", "composition"].map(String::from);
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|c| cell(c)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut markdown = format!("### {title}\n\n{}|---|---|---|---|---|\n", line(&head));
    rows.iter().for_each(|row| markdown += &line(row));
    notes
        .iter()
        .for_each(|note| markdown += &format!("\n* {note}"));
    Some(BuiltTable {
        markdown: markdown + "\n",
        whole: true,
        section: Section {
            title: title.into(),
            head: head.into(),
            rows,
            notes,
            pictures: Vec::new(),
        },
        csv,
    })
}
