//! The joint guarantee of all runs of a study that learnt from the same rows.

use crate::cells::cell;
use crate::model::Table;
use crate::results::RunResults;
use fl_core::privacy::{Guarantee, Noise, Observer, Protection, Unit};
use fl_report::{Run, Section};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Runs that may have learnt from the same rows.
#[derive(Default)]
struct Group<'a> {
    data: BTreeSet<String>,
    runs: Vec<&'a Run>,
}

/// Returns every run of these tables once, grouped by the rows that it learnt from. Two runs with
/// one file in common are in one group: a total that adds too much is still a bound.
fn groups<'a>(tables: &[Table], answers: &'a RunResults) -> Vec<Group<'a>> {
    let all = tables
        .iter()
        .flat_map(|table| table.runs.iter().flatten().flatten());
    let done = all.filter_map(|(_, run)| Some(answers.get(run)?.as_ref().ok()?.run()));
    // equal specs are one run, in one folder
    let runs: BTreeMap<&Path, &Run> = done.map(|run| (&*run.path, run)).collect();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for run in runs.into_values() {
        let mut one = Group {
            data: run.data().into_iter().collect(),
            runs: vec![run],
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

/// Returns the joint guarantee of these runs: epsilons and deltas add (basic composition, Dwork and
/// Roth 2014, theorem 3.16). `None` if none of them guarantees anything.
fn together(runs: &[&Run], observer: Observer) -> Option<Result<Guarantee, String>> {
    let all = runs
        .iter()
        .map(|run| run.summary.as_ref()?.outcome.protection(observer));
    let all: Vec<Option<Protection>> = all.collect();
    if !all.iter().flatten().any(|p| p.guarantee().is_some()) {
        return None;
    }
    let dealt_anew = runs.iter().any(|run| run.deal() != runs[0].deal());
    let mut sum: Option<Guarantee> = None;
    for protection in all {
        let next = match protection {
            Some(Protection::Holds(next)) => next,
            Some(Protection::Nothing { nothing, .. }) => return Some(Err(nothing.join("; "))),
            None => return Some(Err("one of the runs has no accountant".into())),
        };
        sum = Some(match sum {
            None => next,
            Some(sum) if sum.unit != next.unit => {
                let why = format!(
                    "guarantees for one {} and for one {} do not add up",
                    sum.unit, next.unit
                );
                return Some(Err(why));
            }
            // a party has other rows in each of them
            Some(sum) if dealt_anew && sum.unit == Unit::Party && next.after_split => {
                let why = "the runs deal the rows to parties differently, so no party is the same";
                return Some(Err(why.into()));
            }
            Some(sum) => Guarantee {
                epsilon: sum.epsilon + next.epsilon,
                delta: sum.delta + next.delta,
                // a release that hides the replacement of a unit also hides its presence
                neighbours: sum.neighbours.min(next.neighbours),
                after_split: sum.after_split || next.after_split,
                data_dependent: sum.data_dependent || next.data_dependent,
                // noise that follows a seed gives no guarantee
                noise: match (sum.noise, next.noise) {
                    (Noise::System, Noise::System) => Noise::System,
                    _ => Noise::Seeded,
                },
                claimed_by: {
                    let both = sum.claimed_by.into_iter().chain(next.claimed_by);
                    both.collect::<BTreeSet<_>>().into_iter().collect()
                },
                ..next
            },
        });
    }
    let sum = sum.filter(|sum| sum.delta < 1.0);
    Some(sum.ok_or_else(|| "the deltas add up to 1".to_string()))
}

/// Returns the joint guarantees of runs on the same rows, in Markdown and for a page. `None` if no
/// two runs with a guarantee used the same rows.
pub fn totals(tables: &[Table], answers: &RunResults) -> Option<(String, Section)> {
    let mut rows = Vec::new();
    for group in groups(tables, answers)
        .iter()
        .filter(|group| group.runs.len() > 1)
    {
        let first = group.runs.first()?;
        let files = first.data();
        let set = match &files[..] {
            [made] if made.starts_with(first.set()) => made.clone(),
            _ => first.set().to_string(),
        };
        for observer in Observer::ALL {
            let told = match together(&group.runs, observer) {
                Some(Ok(guarantee)) => guarantee.to_string(),
                Some(Err(why)) => format!("nothing: {why}"),
                None => continue,
            };
            let runs = group.runs.len().to_string();
            rows.push(vec![set.clone(), runs, observer.to_string(), told]);
        }
    }
    if rows.is_empty() {
        return None;
    }
    // `seed 2` comes before `seed 10`
    rows.sort_by(|a, b| (a[0].len(), &a[0]).cmp(&(b[0].len(), &b[0])));
    let title = "Privacy of all runs on the same rows";
    let note = "An observer of several runs on the same rows sees all their releases: epsilons and deltas add.";
    let head = ["data", "runs", "against", "guarantee"].map(String::from);
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|c| cell(c)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut markdown = format!("### {title}\n\n{}|---|---|---|---|\n", line(&head));
    rows.iter().for_each(|row| markdown += &line(row));
    markdown += &format!("\n* {note}\n");
    let section = Section {
        title: title.into(),
        head: head.into(),
        rows,
        notes: vec![note.into()],
        pictures: Vec::new(),
    };
    Some((markdown, section))
}
