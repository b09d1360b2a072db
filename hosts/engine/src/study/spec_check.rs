//! Which tables of a study are asked for, and the check of the specs of their runs.

use super::CheckedRun;
use crate::recorded_runs::RunKey;
use crate::{NotRun, prepare};
use fl_core::Certainty;
use fl_core::settings::nearest;
use fl_registry::{Catalogue, Document, Mistake, Mistakes, SourcePosition};
use fl_report::NEGATIVE_TRANSFER;
use fl_study::{COSTS, Cell, RunSpec, Study, StudyFile, Table};
use sha2::{Digest, Sha256};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The tables that were asked for; of a part of a table, the row that others are compared with too.
pub(super) fn chosen(study: &Study, only: &[String]) -> anyhow::Result<Vec<TablePart>> {
    let part = |(at, rows): (usize, BTreeSet<usize>)| TablePart {
        at,
        table: study.tables[at].part(&rows),
        rows: rows.into_iter().collect(),
    };
    if only.is_empty() {
        let all = study.tables.iter().enumerate();
        let all = all.map(|(at, table)| (at, (0..table.rows.len()).collect()));
        return Ok(all.map(part).collect());
    }
    let mut wanted: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for text in only {
        let (name, row) = text.split_once('/').unwrap_or((text, ""));
        let known = || study.tables.iter().map(|t| &t.name[..]).collect::<Vec<_>>();
        let Some(at) = study.tables.iter().position(|t| t.name == name) else {
            let near = fl_core::settings::nearest(name, known());
            let near = near.map_or(";".into(), |near| format!("; did you mean `{near}`?"));
            return Err(NotRun::usage(format!(
                "--only {text}: no table is called `{name}`{near} tables: {}",
                known().join(", ")
            )));
        };
        let rows = study.tables[at].rows.iter().enumerate();
        let found: Vec<usize> = rows
            .filter(|(_, item)| item.name.contains(row))
            .map(|(at, _)| at)
            .collect();
        if found.is_empty() {
            return Err(NotRun::usage(format!(
                "--only {text}: no row of `{name}` has `{row}` in its name"
            )));
        }
        let against = study.tables[at].against;
        wanted
            .entry(at)
            .or_default()
            .extend(found.into_iter().chain(against));
    }
    Ok(wanted.into_iter().map(part).collect())
}

/// Part of a table, with its place in the study's file.
pub(super) struct TablePart {
    /// The number of the table.
    at: usize,
    /// The numbers of its rows.
    rows: Vec<usize>,
    pub table: Table,
}

/// Where a mistake of a spec occurs.
struct Occurrence {
    table: String,
    row: String,
    /// Further rows.
    more: usize,
}

/// The check of the specs of a study.
struct SpecCheck<'a> {
    file: &'a StudyFile,
    /// Overrides from outside the study.
    set: &'a [String],
    catalogue: &'a Catalogue,
    runs: BTreeMap<RunSpec, CheckedRun>,
    /// The seeds of a row have the same mistakes, and rows have many in common.
    mistakes: Vec<(Mistake, Option<Occurrence>)>,
    parsed: BTreeMap<PathBuf, Document>,
    /// Specs that are not checked for want of a library.
    left: BTreeSet<PathBuf>,
    /// What is wrong with libraries, by its text.
    refused: BTreeMap<String, NotRun>,
}

/// Checks the study, and the specs of all its runs.
///
/// # Errors
/// Every mistake of the study's file and of the specs at once.
pub(super) fn checked(
    file: &StudyFile,
    chosen: &[TablePart],
    set: &[String],
    as_written: bool,
    catalogue: &Catalogue,
) -> anyhow::Result<BTreeMap<RunSpec, CheckedRun>> {
    let own = file.mistakes.iter().cloned();
    let mut check = SpecCheck {
        file,
        set,
        catalogue,
        runs: BTreeMap::new(),
        mistakes: own.map(|mistake| (mistake, None)).collect(),
        parsed: BTreeMap::new(),
        left: BTreeSet::new(),
        refused: BTreeMap::new(),
    };
    for part in chosen {
        let (at, table) = (part.at, &part.table);
        let marked = as_written && !table.name.is_empty();
        let into = table.into.as_ref().filter(|into| marked && into.is_file());
        if let Some(into) = into {
            let held = std::fs::read_to_string(into).map_err(anyhow::Error::from);
            if let Err(error) =
                held.and_then(|text| fl_study::section(&text, &table.name).map(drop))
            {
                let text = format!("{}: {error:#}", into.display());
                check.mistakes.push((file.of_readme(at, text), None));
            }
        }
        check.specs(part)?;
        // what a part of a table lacks, other rows may have
        if table.rows.len() < file.study.tables[at].rows.len() {
            continue;
        }
        for (names, text) in unmeasured(table, &check.runs) {
            let mistake = file.of_measure(at, names, text);
            // that of the defaults is one for all tables
            if !check.mistakes.iter().any(|(known, _)| *known == mistake) {
                check.mistakes.push((mistake, None));
            }
        }
    }
    let libraries = |(mistake, _): &(Mistake, _)| check.refused.contains_key(&mistake.text);
    let only_libraries = check.mistakes.iter().all(libraries);
    match check.refused.pop_first() {
        None if check.mistakes.is_empty() => Ok(check.runs),
        // what is wrong with a library alone is no mistake of a spec
        Some((_, why)) if only_libraries => Err(why.into()),
        _ => Err(NotRun::Mistakes(check.sorted()).into()),
    }
}

/// The measures of a table that no run of it has, each with what is wrong with it.
fn unmeasured<'t>(
    table: &'t Table,
    runs: &BTreeMap<RunSpec, CheckedRun>,
) -> Vec<(&'t [String], String)> {
    let of_table = table.runs.iter().flatten().flatten();
    let specs = of_table.filter_map(|(_, run)| Some(&runs.get(run)?.spec));
    let specs: Vec<_> = specs.collect();
    let alone = specs.iter().any(|spec| spec.protocol_name == "solo");
    let transfer = |name: &&str| NEGATIVE_TRANSFER.contains(name);
    let has = |name: &String| {
        if transfer(&name.as_str()) {
            return alone;
        }
        specs.iter().any(|spec| {
            let cost = fl_study::cost_of(name, spec.parts.has("accountant"));
            cost.unwrap_or_else(|| spec.measured.has_number(name) != Certainty::No)
        })
    };
    let scores = fl_core::metrics::names(None);
    let known = specs.iter().flat_map(|spec| spec.measured.names());
    let of_solo = NEGATIVE_TRANSFER.into_iter().filter(|_| alone);
    let mut known: BTreeSet<&str> = known.chain(COSTS).chain(of_solo).collect();
    if specs.is_empty() {
        known.extend(scores.iter().map(String::as_str));
    }
    let wrong = |names: &'t [String]| {
        let mut missing: Vec<&String> = names.iter().filter(|name| !has(name)).collect();
        let near = |name: &String| {
            let plain = name.strip_suffix(".std").unwrap_or(name);
            let near = nearest(plain, known.iter().copied());
            near.filter(|near| *near != plain)
        };
        // runs of another table with the same names may have the others, and of runs with mistakes
        // nothing is known
        if missing.len() < names.len() || specs.is_empty() {
            missing.retain(|name| near(name).is_some());
        }
        if missing.is_empty() {
            return None;
        }
        let hints = missing.iter().filter_map(|name| near(name));
        let hints: Vec<String> = hints.map(|near| format!("`{near}`")).collect();
        let hint = if missing.iter().all(|name| transfer(&name.as_str())) {
            "it needs a row of `solo` to compare with".into()
        } else if hints.is_empty() {
            let known: Vec<&str> = known.iter().copied().collect();
            format!("they have {}", known.join(", "))
        } else {
            format!("did you mean {}?", hints.join(" and "))
        };
        let missing: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
        let text = format!(
            "no run of this table measures {}; {hint}",
            missing.join(" or ")
        );
        Some((names, text))
    };
    table.measures().into_iter().filter_map(wrong).collect()
}

impl SpecCheck<'_> {
    /// Checks the specs of all runs of a table.
    fn specs(&mut self, part: &TablePart) -> anyhow::Result<()> {
        let table = &part.table;
        for ((row, named), of_row) in part.rows.iter().zip(&table.rows).zip(&table.runs) {
            for (across, (other, runs)) in table.across.iter().zip(of_row).enumerate() {
                let cell = Cell {
                    table: part.at,
                    row: *row,
                    across,
                };
                let name = if other.name.is_empty() {
                    named.name.clone()
                } else {
                    format!("{}, {}", named.name, other.name)
                };
                for (seed, run) in runs {
                    self.spec(cell, &table.name, &name, *seed, run)?;
                }
            }
        }
        Ok(())
    }

    /// Checks the spec of a run, unless that has been done.
    fn spec(
        &mut self,
        cell: Cell,
        table: &str,
        row: &str,
        seed: u64,
        run: &RunSpec,
    ) -> anyhow::Result<()> {
        // a spec that is not there is a mistake of the file, and a library that cannot be loaded is
        // not tried for each run
        let left = self.left.contains(&run.base) || !run.base.is_file();
        if left || self.runs.contains_key(run) {
            return Ok(());
        }
        let base = match self.parsed.entry(run.base.clone()) {
            Entry::Occupied(base) => base.into_mut(),
            Entry::Vacant(place) => place.insert(prepare::parse(&run.base)?),
        };
        let document = base.clone().set(&run.set);
        match prepare::check(&document, self.catalogue) {
            Ok(Ok(spec)) => {
                let sha256 = |text: String| fl_core::hex(&Sha256::digest(text));
                let asked = serde_json::to_value(document.values())?;
                let checked = CheckedRun {
                    key: RunKey {
                        spec: sha256(spec.yaml()?),
                        asked: sha256(asked.to_string()),
                    },
                    spec: Arc::new(spec),
                    place: format!("{table}, {row}, seed {seed}"),
                    table: table.into(),
                    at: self.runs.len(),
                };
                self.runs.insert(run.clone(), checked);
            }
            Ok(Err(mistakes)) => {
                for mistake in mistakes.0 {
                    self.note(cell, mistake, table, row);
                }
            }
            Err(why) => {
                let mistake = self.file.of_row(cell, why.to_string());
                self.note(cell, mistake, table, row);
                self.refused.insert(why.to_string(), why);
                self.left.insert(run.base.clone());
            }
        }
        Ok(())
    }

    /// Adds a mistake of a row's spec, at its place in the study if the study sets the value.
    fn note(&mut self, cell: Cell, mistake: Mistake, table: &str, row: &str) {
        let outside = |set: &str| {
            let mut all = self
                .set
                .iter()
                .filter_map(|set| Some(set.split_once('=')?.0));
            all.any(|path| path == set)
        };
        let mistake = match &mistake.place {
            SourcePosition::Set(set) if outside(set) => mistake,
            _ => self.file.place(cell, mistake),
        };
        let known = |(of, _): &&mut (Mistake, Option<Occurrence>)| {
            (&of.file, &of.place, &of.text) == (&mistake.file, &mistake.place, &mistake.text)
        };
        match self.mistakes.iter_mut().find(known) {
            Some((_, Some(first))) if (&first.table[..], &first.row[..]) != (table, row) => {
                first.more += 1;
            }
            Some(_) => {}
            None => {
                let first = Occurrence {
                    table: table.into(),
                    row: row.into(),
                    more: 0,
                };
                self.mistakes.push((mistake, Some(first)));
            }
        }
    }

    /// The mistakes of the study's file, then those of its specs, each with its row.
    fn sorted(self) -> Mistakes {
        let mut mistakes: Vec<Mistake> = Vec::new();
        for (mut mistake, first) in self.mistakes {
            if let Some(Occurrence { table, row, more }) = first {
                let more = match more {
                    0 => String::new(),
                    n => format!(" and {n} more"),
                };
                mistake.text += &format!(" (table `{table}`, row `{row}`{more})");
            }
            mistakes.push(mistake);
        }
        let study = self.file.name();
        mistakes.sort_by(|a, b| {
            let key = |m: &Mistake| (m.file != study, m.file.clone(), m.place.clone());
            key(a).cmp(&key(b))
        });
        Mistakes(mistakes)
    }
}
