//! The joint guarantee of all runs of a study that learnt from the same rows.

use crate::cells::cell;
use crate::model::{RunSpec, Table};
use crate::results::RunResults;
use crate::tables::{BuiltTable, CsvLine};
use fl_core::privacy::{Noise, Observer, Protection};
use fl_privacy::{
    AccountantId, Amount, DataId, Entry, MakeAccountant, Reservation, RunId, Spending, rule,
    together,
};
use fl_report::{Run, Section};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Runs that may have learnt from the same rows, each with its name.
#[derive(Default)]
struct Group<'a> {
    data: BTreeSet<String>,
    runs: Vec<(String, &'a Run)>,
}

/// Groups runs by the rows that they learnt from. Two runs with one file in common are in one
/// group, and so are all runs on a user's files if one is a record without hashes: a total of too
/// many releases is still a bound.
fn groups<'a>(runs: impl Iterator<Item = (String, &'a Run)>) -> Vec<Group<'a>> {
    let runs: Vec<_> = runs.collect();
    let unknown = runs.iter().any(|(_, run)| run.data() == ["files"]);
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (name, run) in runs {
        let files = (unknown && run.set() == "files").then(|| "files".to_string());
        let mut one = Group {
            data: run.data().into_iter().chain(files).collect(),
            runs: vec![(name, run)],
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

/// Describes what an observer has seen of a run that is done, as a ledger over runs does: its
/// releases, or its epsilon if an older fl made the folder. Runs with the same data section and, if
/// the rows are dealt, the same seed have the same split.
fn entry(name: &str, run: &Run, observer: Observer) -> Option<Entry> {
    let summary = run.summary.as_ref()?;
    let mut nothing = BTreeMap::new();
    let (mut amount, mut guarantee) = (Amount::Unknown, None);
    match summary.outcome.protection(observer) {
        Some(Protection::Holds(holds)) => {
            let releases = summary.releases.clone().map(serde_json::from_value);
            amount = match releases {
                Some(Ok(releases)) => Amount::Releases(releases),
                _ => Amount::AtMost {
                    epsilon: holds.epsilon,
                    delta: holds.delta,
                    unit: Some(holds.unit),
                },
            };
            guarantee = Some(holds);
        }
        Some(Protection::Nothing { nothing: why, .. }) => {
            nothing.insert(observer, why);
        }
        None => {}
    }
    let dealt = guarantee.as_ref().is_some_and(|holds| holds.after_split);
    let (seed, data) = run.deal();
    let accountant = run.spec.get("parts").and_then(|all| all.get("accountant"));
    let accountant = accountant.and_then(|part| {
        let mut settings = serde_json::to_value(part).ok()?;
        let name = settings.as_object_mut()?.remove("use")?;
        let name = name.as_str()?.into();
        Some(AccountantId { name, settings })
    });
    let spent = Spending { amount, nothing };
    let reservation = Reservation {
        id: RunId {
            run: run.path.display().to_string(),
            spec: String::new(),
        },
        time: run.began().into(),
        name: name.into(),
        seed: seed.parse().unwrap_or_default(),
        data: DataId {
            name: run.set().into(),
            rows: run.data().join(" "),
            split: format!("{data:?} {}", if dealt { &seed } else { "" }),
            dealt,
            sample: Vec::new(),
            public: Vec::new(),
        },
        accountant,
        noise: guarantee
            .as_ref()
            .map_or(Noise::Seeded, |holds| holds.noise),
        claimed_by: guarantee.map(|holds| holds.claimed_by).unwrap_or_default(),
        most: spent.clone(),
    };
    Some(Entry::ended(reservation, spent))
}

/// Returns why a client's rows of one of these runs are public in another, if they are: a file is
/// private in one and public in the other, or seeds draw the public rows from the clients' set.
fn shown_elsewhere(runs: &[(String, &Run)]) -> Option<String> {
    let drawn = |run: &Run| {
        let from = run.spec.get("data")?.get("public")?.get("from")?;
        let from = from
            .as_str()
            .or_else(|| from.as_mapping()?.keys().next()?.as_str())?;
        matches!(from, "share" | "count" | "tabular").then(|| run.seed())
    };
    let seeds: BTreeSet<String> = runs.iter().filter_map(|(_, run)| drawn(run)).collect();
    if seeds.len() > 1 {
        return Some("each seed draws public rows that are clients' rows with another".into());
    }
    let files: Vec<_> = runs
        .iter()
        .map(|(name, run)| (name, run.sources()))
        .collect();
    files.iter().find_map(|(name, (_, public))| {
        let shows = |(_, (own, _)): &&(_, (BTreeSet<&str>, _))| !own.is_disjoint(public);
        let (other, _) = files.iter().find(shows)?;
        Some(format!("a file of clients in {other} is public in {name}"))
    })
}

/// Returns the joint guarantees of the runs of these tables, as [`joint`]. `place` names a run's
/// row.
pub fn totals(
    tables: &[Table],
    answers: &RunResults,
    place: &dyn Fn(&RunSpec) -> Option<String>,
    make: MakeAccountant<'_>,
) -> Option<BuiltTable> {
    let all = tables
        .iter()
        .flat_map(|table| table.runs.iter().flatten().flatten());
    let done = all.filter_map(|(_, spec)| {
        let run = answers.get(spec)?.as_ref().ok()?.run();
        // equal specs are one run, in one folder
        Some((&*run.path, (place(spec)?, run)))
    });
    let done: BTreeMap<&Path, (String, &Run)> = done.collect();
    let mut all = joint(done.into_values(), make)?;
    let failed = answers.values().filter(|result| result.is_err()).count();
    if failed > 0 {
        let s = if failed == 1 { "" } else { "s" };
        let note = format!("{failed} failed run{s} may have released more.");
        all.markdown += &format!("* {note}\n");
        all.section.notes.push(note);
    }
    Some(all)
}

/// Returns the joint guarantees of those of these runs that learnt from the same rows, composed as
/// `fl ledger show` does. `None` if no two runs with a guarantee did.
pub fn joint<'a>(
    runs: impl Iterator<Item = (String, &'a Run)>,
    make: MakeAccountant<'_>,
) -> Option<BuiltTable> {
    let (mut rows, mut csv) = (Vec::new(), Vec::new());
    let title = "Privacy of all runs on the same rows";
    let groups = groups(runs).into_iter();
    for group in groups.filter(|group| group.runs.len() > 1) {
        let (_, first) = group.runs.first()?;
        let files = first.data();
        let set = match &files[..] {
            [made] if made.starts_with(first.set()) => made.clone(),
            _ => first.set().to_string(),
        };
        for observer in Observer::ALL {
            let guarded = |(_, run): &(String, &Run)| {
                let outcome = &run.summary.as_ref()?.outcome;
                outcome.protection(observer)?.guarantee().map(drop)
            };
            if !group.runs.iter().any(|run| guarded(run).is_some()) {
                continue;
            }
            let entries: Option<Vec<Entry>> = group
                .runs
                .iter()
                .map(|(name, run)| entry(name, run, observer))
                .collect();
            let entries = entries?;
            let entries: Vec<&Entry> = entries.iter().collect();
            let all = match shown_elsewhere(&group.runs) {
                Some(why) => Protection::nothing(vec![why]),
                None => together(&entries, observer, make),
            };
            let how = match all {
                Protection::Holds(_) => rule(&entries),
                Protection::Nothing { .. } => String::new(),
            };
            let runs = group.runs.len().to_string();
            let priced = all.guarantee();
            for (what, number) in [
                ("epsilon", priced.map(|guarantee| guarantee.epsilon)),
                ("delta", priced.map(|guarantee| guarantee.delta)),
            ] {
                let measure = format!("{what}.{}", observer.name());
                let number = number.map_or(String::new(), |number| number.to_string());
                let about = [title, &set, "all", &measure, &runs, &number];
                let mut line = CsvLine::default();
                line.iter_mut()
                    .zip(about)
                    .for_each(|(cell, text)| *cell = text.into());
                line[13] = all.to_string();
                csv.push(line);
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
    let note = "An observer of several runs on the same rows sees all their releases. Other runs on these rows are not counted here; a `ledger` counts all.";
    let head = ["data", "runs", "against", "guarantee", "composition"].map(String::from);
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|c| cell(c)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut markdown = format!("### {title}\n\n{}|---|---|---|---|---|\n", line(&head));
    rows.iter().for_each(|row| markdown += &line(row));
    markdown += &format!("\n* {note}\n");
    Some(BuiltTable {
        markdown,
        whole: true,
        section: Section {
            title: title.into(),
            head: head.into(),
            rows,
            notes: vec![note.into()],
            pictures: Vec::new(),
        },
        csv,
    })
}
