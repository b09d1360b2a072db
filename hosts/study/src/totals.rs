//! The joint guarantee of all runs of a study that learnt from the same rows.

use crate::cells::line;
use crate::model::{RunSpec, Table};
use crate::results::RunResults;
use crate::tables::{BuiltTable, CsvLine};
use fl_core::Result;
use fl_core::privacy::Protection;
use fl_privacy::{Entry, MakeAccountant, State, caveat, data_sets, rule};
use fl_report::{Run, Section};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A run that has begun and is not done, or that failed, with the name of its row.
#[derive(Debug)]
pub struct BegunRun {
    /// The name of its row.
    pub name: String,
    /// The run, as its folder has it.
    pub run: Result<Run>,
    /// Whether it is known to have failed.
    pub failed: bool,
}

impl BegunRun {
    /// Returns the run if it is known what it may have released: that stands in its book, which a
    /// run without an accountant has not.
    fn known(&self) -> Option<&Run> {
        let run = self.run.as_ref().ok()?;
        (run.book().is_some() || !run.accounts()).then_some(run)
    }
}

/// What the joint guarantee needs of a run: the name of its row, and whether it failed.
type Counted<'a> = (String, &'a Run, bool);

/// Returns the joint guarantees of the runs of these tables, as [`joint`]. `begun` are those that
/// are not done, by their folders. `place` names a run's row.
pub fn totals<'a>(
    tables: &'a [Table],
    answers: &'a RunResults,
    begun: &'a BTreeMap<PathBuf, BegunRun>,
    place: &dyn Fn(&RunSpec) -> Option<String>,
    make: MakeAccountant<'_>,
) -> Option<BuiltTable> {
    let all = tables
        .iter()
        .flat_map(|table| table.runs.iter().flatten().flatten());
    let done = all.filter_map(|(_, spec)| {
        let run = answers.get(spec)?.as_ref().ok()?.run();
        // equal specs are one run, in one folder
        Some((&*run.path, (place(spec)?, run, false)))
    });
    let mut runs: BTreeMap<&Path, Counted<'_>> = done.collect();
    let open = |(folder, begun): (&'a PathBuf, &'a BegunRun)| {
        Some((
            &**folder,
            (begun.name.clone(), begun.known()?, begun.failed),
        ))
    };
    runs.extend(begun.iter().filter_map(open));
    let unread = begun.values().filter(|begun| begun.known().is_none());
    let unknown = match unread.count() {
        0 => None,
        1 => Some("a failed run may have released more".into()),
        failed => Some(format!("{failed} failed runs may have released more")),
    };
    joint_beside(runs.into_values(), unknown, make)
}

/// Returns the joint guarantees of those of these runs that learnt from the same rows, composed as
/// `fl ledger show` does. `None` if no two runs with a guarantee did.
pub fn joint<'a>(
    runs: impl Iterator<Item = (String, &'a Run)>,
    make: MakeAccountant<'_>,
) -> Option<BuiltTable> {
    joint_beside(runs.map(|(name, run)| (name, run, false)), None, make)
}

/// As [`joint`], beside other releases of which nothing is known, if so.
fn joint_beside<'a>(
    runs: impl Iterator<Item = Counted<'a>>,
    unknown: Option<String>,
    make: MakeAccountant<'_>,
) -> Option<BuiltTable> {
    let (mut rows, mut csv) = (Vec::new(), Vec::new());
    let title = "Privacy of all runs on the same rows";
    let runs: Vec<Counted<'a>> = runs.collect();
    let named = runs.iter().map(|(name, run, _)| (name.clone(), *run));
    let entries = Entry::of_runs(named);
    let failed = entries
        .iter()
        .zip(&runs)
        .filter(|(_, (.., failed))| *failed);
    let failed = failed.map(|(entry, _)| entry);
    let open = |entry: &&Entry| !matches!(entry.state, State::Settled(_));
    let failed: Vec<&Entry> = failed.filter(open).collect();
    let sets = data_sets(&entries).into_iter();
    for group in sets.filter(|set| set.runs.len() > 1) {
        let names: Vec<&str> = group.names.iter().copied().collect();
        let set = names.join(", ");
        let of_set = |run: &&&Entry| group.runs.iter().any(|of| std::ptr::eq(*of, **run));
        let failed = failed.iter().filter(of_set).count();
        for (observer, all) in group.together(make) {
            let all = match &unknown {
                Some(why) => Protection::nothing(vec![why.clone()]),
                None => all,
            };
            if !group.runs.iter().any(|run| run.guarantees(observer)) {
                continue;
            }
            let (how, open) = match all {
                Protection::Holds(_) => {
                    let how = rule(&group.runs, failed, observer);
                    (how, caveat(&group.runs, failed))
                }
                Protection::Nothing { .. } => (String::new(), None),
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
                if let Some(open) = &open {
                    line[13] += &format!("; {open}");
                }
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
