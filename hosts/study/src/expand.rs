//! The tables of a study, and the runs of their rows.

use crate::MAX_RUNS;
use crate::columns::{Column, ColumnKind, columns};
use crate::file::{File, RawColumn, RawItem, RawTable, Scalar};
use crate::grid::{At, PlannedRow, grid, key};
use crate::model::{Item, Plot, Position, RunSpec, Table};
use crate::plots::plots;
use fl_core::settings::{Settings, Step};
use fl_registry::Places;
use fl_report::inline;
use serde_yaml::{Mapping, Value};
use std::collections::BTreeSet;
use std::path::Path;

/// The specs and READMEs that a study names and that do not exist.
pub(crate) fn missing(file: &File, folder: &Path) -> Vec<At> {
    let mut wrong = Vec::new();
    let mut look = |path: Vec<Step>, name: Option<&String>| {
        let Some(found) = name.map(|name| folder.join(name)) else {
            return;
        };
        if found.is_file() {
            return;
        }
        let what = if path.last() == Some(&key("into")) {
            "create it with the marks of the table, or leave `into` out"
        } else {
            "write that spec, or name another; paths are relative to the study's folder"
        };
        wrong.push((
            path,
            format!("there is no file {}: {what}", found.display()),
        ));
    };
    let tables = file.tables.iter().enumerate();
    let tables = tables.map(|(at, table)| (vec![key("tables"), Step::Item(at)], table));
    for (here, table) in tables.chain([(vec![key("defaults")], &file.defaults)]) {
        let at = |steps: &[Step]| [&here[..], steps].concat();
        look(at(&[key("base")]), table.base.as_ref());
        look(at(&[key("into")]), table.into.as_ref());
        for (list, items) in [("rows", &table.rows), ("across", &table.across)] {
            for (row, item) in items.iter().enumerate() {
                look(
                    at(&[key(list), Step::Item(row), key("base")]),
                    item.base.as_ref(),
                );
            }
        }
        match table.grid.get("base") {
            Some(Value::Sequence(all)) => {
                for (nth, base) in all.iter().enumerate() {
                    let name = base.as_str().map(str::to_string);
                    look(
                        at(&[key("grid"), key("base"), Step::Item(nth)]),
                        name.as_ref(),
                    );
                }
            }
            Some(Value::Mapping(all)) => {
                for (called, base) in all {
                    let name = base.as_str().map(str::to_string);
                    let called = key(&inline(called));
                    look(at(&[key("grid"), key("base"), called]), name.as_ref());
                }
            }
            _ => {}
        }
    }
    wrong
}

/// The tables of a study, in the order of the file; every mistake goes to `wrong`. A table with a
/// mistake has the runs that are known.
pub(crate) fn tables(
    file: &File,
    folder: &Path,
    places: &Places,
    wrong: &mut Vec<At>,
) -> Vec<Table> {
    let plain = |name: &str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !name.is_empty() && name.chars().all(fine) && !name.starts_with('.')
    };
    let unfit = |name: &str| {
        format!("names files, so it must have letters, digits, `-`, `_` and `.` only, got `{name}`")
    };
    if !plain(&file.name) {
        wrong.push((vec![key("name")], unfit(&file.name)));
    }
    if file.tables.is_empty() {
        wrong.push((
            vec![key("tables")],
            "there is none; write at least one".into(),
        ));
    }
    let mut seen = BTreeSet::new();
    let (mut tables, mut runs) = (Vec::new(), 0);
    for (at, raw) in file.tables.iter().enumerate() {
        let here = |field: &str| vec![key("tables"), Step::Item(at), key(field)];
        let name = raw.name.as_deref().unwrap_or_default();
        if raw.name.is_none() {
            wrong.push((here("name"), "is missing (text)".into()));
        } else if !plain(name) {
            wrong.push((here("name"), unfit(name)));
        } else if !seen.insert(name) {
            let text = format!("`{name}` is another table's name too");
            wrong.push((here("name"), text));
        }
        let mut of_table = OneTable {
            at,
            name,
            raw,
            defaults: &file.defaults,
            folder,
            most: MAX_RUNS - runs,
            places,
            grid_is_wrong: false,
            wrong,
        };
        let table = of_table.read();
        runs += table.runs.iter().flatten().map(Vec::len).sum::<usize>();
        tables.push(table);
    }
    tables
}

/// A table while it is read.
struct OneTable<'a> {
    /// Its number in the file.
    at: usize,
    name: &'a str,
    raw: &'a RawTable,
    defaults: &'a RawTable,
    folder: &'a Path,
    /// The most runs that it may have.
    most: usize,
    places: &'a Places,
    /// Is a path of its grid wrong, and so left out?
    grid_is_wrong: bool,
    wrong: &'a mut Vec<At>,
}

impl OneTable<'_> {
    /// Notes a mistake below the table, or below the defaults if the table does not have the
    /// field.
    fn note(&mut self, own: bool, below: &[Step], text: impl Into<String>) {
        let mut path = if own {
            vec![key("tables"), Step::Item(self.at)]
        } else {
            vec![key("defaults")]
        };
        path.extend_from_slice(below);
        self.wrong.push((path, text.into()));
    }

    /// Are these fields of the table as the file has them, and none that is unknown?
    fn whole(&self, fields: &[&str]) -> bool {
        let table = [key("tables"), Step::Item(self.at)];
        let mut out = self.places.left_out_in(&table);
        out.all(|path| match path.first() {
            Some(Step::Key(field)) => {
                let known = RawTable::names().iter().any(|name| name == field);
                known && !fields.contains(&field.as_str())
            }
            _ => true,
        })
    }

    /// Are all rows, and their names, as the file has them?
    fn has_rows(&self) -> bool {
        self.whole(&["rows", "grid", "across"]) && !self.grid_is_wrong
    }

    fn read(&mut self) -> Table {
        let (raw, defaults) = (self.raw, self.defaults);
        let all = with_defaults(raw, defaults);
        let rows = self.rows();
        let names = self.names(&rows);
        self.seeds_in_set();
        let texts = || rows.iter().map(|row| &row.item).chain(&raw.across);
        let against = all.against.as_ref().and_then(|of| {
            let found = rows.iter().position(|r| r.item.name == *of);
            // a table without rows has its own mistake
            if found.is_none() && !rows.is_empty() && self.has_rows() {
                let text = format!("no row is called `{of}`; rows: {}", list(&names));
                self.note(raw.against.is_some(), &[key("against")], text);
            }
            found
        });
        let (own_columns, own_lead) = (!raw.columns.is_empty(), !raw.lead.is_empty());
        let columns_ = columns(&all.columns, &all);
        let lead = columns(&all.lead, &all);
        let mut kept = Vec::new();
        for (list, own, all) in [("columns", own_columns, columns_), ("lead", own_lead, lead)] {
            let mut fine = Vec::new();
            for (nth, column) in all.into_iter().enumerate() {
                let unknown = |column: &Column| match &column.what {
                    ColumnKind::Text(name)
                        if !texts().any(|i| i.text.contains_key(name)) && self.has_rows() =>
                    {
                        Some(format!("no row has a text `{name}`"))
                    }
                    _ => None,
                };
                match column.and_then(|c| unknown(&c).map_or(Ok(c), Err)) {
                    Ok(column) => fine.push(column),
                    Err(text) => self.note(own, &[key(list), Step::Item(nth)], text),
                }
            }
            kept.push(fine);
        }
        let runs = self.runs(&all, &rows);
        let item = |raw: &RawItem, hours: Option<f64>, grid: &[Position]| Item {
            grid: grid.to_vec(),
            hours: raw.hours.or(hours),
            name: raw.name.clone(),
            published: raw
                .published
                .as_ref()
                .map(|Scalar(value)| value)
                .or(all.published.get(&raw.name))
                .map(inline),
            text: raw
                .text
                .iter()
                .map(|(key, value)| (inline(key), inline(value)))
                .collect(),
        };
        let items: Vec<Item> = rows
            .iter()
            .map(|row| item(&row.item, all.hours, &row.places))
            .collect();
        let pictures = self.pictures(&all, &items);
        let lead = kept.pop().unwrap_or_default();
        Table {
            title: all.title.clone().unwrap_or(self.name.into()),
            name: self.name.into(),
            plots: pictures,
            rows: items,
            across: across(raw).iter().map(|raw| item(raw, None, &[])).collect(),
            lead,
            columns: kept.pop().unwrap_or_default(),
            against,
            published_spread: raw
                .published_spread
                .or(defaults.published_spread)
                .unwrap_or(0.0),
            into: all.into.as_ref().map(|into| self.folder.join(into)),
            runs,
        }
    }

    fn pictures(&mut self, all: &RawTable, items: &[Item]) -> Vec<Plot> {
        let mut pictures = Vec::new();
        for (nth, plot) in plots(all, items).into_iter().enumerate() {
            match plot {
                Ok(plot) => pictures.push(plot),
                Err(_) if self.grid_is_wrong => {}
                Err(text) => {
                    let own = !self.raw.plots.is_empty();
                    self.note(own, &[key("plots"), Step::Item(nth)], text);
                }
            }
        }
        pictures
    }

    /// Those of the list, or of the grid.
    fn rows(&mut self) -> Vec<PlannedRow> {
        let raw = self.raw;
        let planned = |item: &RawItem| PlannedRow {
            item: item.clone(),
            set: Vec::new(),
            places: Vec::new(),
        };
        match (raw.rows.is_empty(), raw.grid.is_empty()) {
            (false, true) => raw.rows.iter().map(planned).collect(),
            (true, false) => {
                let mut wrong = Vec::new();
                let rows = grid(&raw.grid, raw.label.as_deref(), self.most, &mut wrong);
                self.grid_is_wrong = !wrong.is_empty();
                for (path, text) in wrong {
                    self.note(true, &path, text);
                }
                rows
            }
            (true, true) => {
                if self.whole(&["rows", "grid"]) {
                    self.note(true, &[], "it has neither `rows` nor a `grid`");
                }
                Vec::new()
            }
            (false, false) => {
                let text = "it has both `rows` and a `grid`; a table has one of them";
                self.note(true, &[key("grid")], text);
                raw.rows.iter().map(planned).collect()
            }
        }
    }

    /// The names of the rows; every name once, and none that a table cannot show.
    fn names(&mut self, rows: &[PlannedRow]) -> BTreeSet<String> {
        let raw = self.raw;
        let named = |list: &str, nth: usize| [key(list), Step::Item(nth), key("name")];
        let mut names = BTreeSet::new();
        for (nth, row) in rows.iter().enumerate() {
            let name = &row.item.name;
            let path: &[Step] = if raw.rows.is_empty() {
                &[key("grid")]
            } else {
                &named("rows", nth)
            };
            if name.is_empty() && !self.grid_is_wrong {
                self.note(true, path, "a row has no name");
            }
            if !names.insert(name.clone()) {
                self.note(true, path, format!("two rows are called `{name}`"));
            }
            self.shown(path, name);
        }
        let mut seen = BTreeSet::new();
        for (nth, other) in raw.across.iter().enumerate() {
            let path = named("across", nth);
            if !seen.insert(&other.name) {
                let text = format!("two of `across` are called `{}`", other.name);
                self.note(true, &path, text);
            }
            self.shown(&path, &other.name);
            let set = other.set.keys().filter_map(Value::as_str);
            if let Some(twice) = { set }.find(|twice| raw.grid.contains_key(*twice)) {
                let path = [key("across"), Step::Item(nth), key("set"), key(twice)];
                self.note(true, &path, "the grid sets this too; leave one out");
            }
        }
        if let Some(title) = &raw.title {
            self.shown(&[key("title")], title);
        }
        for (name, value) in &raw.published {
            let name = inline(name);
            let path = [key("published"), key(&name)];
            if !names.contains(&name) && self.has_rows() {
                let text = format!("no row is called `{name}`; rows: {}", list(&names));
                self.note(true, &path, text);
            } else if !(value.is_string() || value.is_number()) {
                self.note(true, &path, "must be a number or a text");
            }
        }
        names
    }

    fn shown(&mut self, path: &[Step], text: &str) {
        if text.contains(char::is_control) {
            let text = format!("{text:?} has control characters, which a table cannot show");
            self.note(true, path, text);
        }
    }

    /// Seeds are not set as other values are.
    fn seeds_in_set(&mut self) {
        let seed = |set: &Mapping| set.contains_key("seed");
        let text = "a study sets the seeds in `seeds`";
        if self.at == 0 && seed(&self.defaults.set) {
            self.note(false, &[key("set"), key("seed")], text);
        }
        let raw = self.raw;
        for (field, map) in [("set", &raw.set), ("grid", &raw.grid)] {
            if seed(map) {
                self.note(true, &[key(field), key("seed")], text);
            }
        }
        for (field, items) in [("rows", &raw.rows), ("across", &raw.across)] {
            for (nth, _) in items.iter().enumerate().filter(|(_, i)| seed(&i.set)) {
                let path = [key(field), Step::Item(nth), key("set"), key("seed")];
                self.note(true, &path, text);
            }
        }
    }

    /// By row and by the second direction, one run for each seed.
    fn runs(&mut self, all: &RawTable, rows: &[PlannedRow]) -> Vec<Vec<Vec<(u64, RunSpec)>>> {
        let across = across(self.raw);
        let count = rows.len().saturating_mul(across.len());
        let mut runs = Vec::new();
        let mut left = self.most;
        let mut without_spec = None;
        for (nth, row) in rows.iter().enumerate() {
            let mut of_row = Vec::new();
            for other in &across {
                let seeds = other.seeds.as_ref();
                let seeds = seeds.or(row.item.seeds.as_ref()).or(all.seeds.as_ref());
                let seeds = seeds.map_or(vec![1], |seeds| seeds.0.clone());
                if count > self.most || seeds.len() > left {
                    let text = format!("the study has more than {MAX_RUNS} runs");
                    self.note(self.raw.seeds.is_some(), &[key("seeds")], text);
                    return Vec::new();
                }
                left -= seeds.len();
                let of_cell = self.cell(all, row, other, &seeds).unwrap_or_else(|| {
                    without_spec.get_or_insert(nth);
                    Vec::new()
                });
                of_row.push(of_cell);
            }
            runs.push(of_row);
        }
        let usual = [key("defaults"), key("base")];
        let readable = !self.places.left_out(&usual) && self.whole(&["base", "grid"]);
        if let Some(nth) = without_spec.filter(|_| readable) {
            let name = &rows[nth].item.name;
            let path: &[Step] = if self.raw.rows.is_empty() {
                &[]
            } else {
                &[key("rows"), Step::Item(nth)]
            };
            let text = format!("row `{name}`: no `base` says which spec it runs");
            self.note(true, path, text);
        }
        runs
    }

    /// One run for each seed; `None` if no spec is named.
    fn cell(
        &self,
        all: &RawTable,
        row: &PlannedRow,
        other: &RawItem,
        seeds: &[u64],
    ) -> Option<Vec<(u64, RunSpec)>> {
        let base = other.base.as_ref().or(row.item.base.as_ref());
        let mut base = base.or(all.base.as_ref());
        let mut set = Vec::new();
        for values in [&self.defaults.set, &all.set, &row.item.set] {
            set.extend(assignments(values));
        }
        for (path, value) in &row.set {
            match (path.as_str(), value) {
                ("base", Value::String(file)) => base = Some(file),
                _ => set.push(assignment(path, value)),
            }
        }
        set.extend(assignments(&other.set));
        let base = self.folder.join(base?);
        let run = |seed: &u64| {
            let mut set = set.clone();
            set.push(format!("seed={seed}"));
            let run = RunSpec {
                base: base.clone(),
                set,
                alone: all.alone.unwrap_or(false),
            };
            (*seed, run)
        };
        Some(seeds.iter().map(run).collect())
    }
}

/// The second direction; one item without a name if there is none.
fn across(raw: &RawTable) -> Vec<RawItem> {
    if raw.across.is_empty() {
        vec![RawItem::named("")]
    } else {
        raw.across.clone()
    }
}

fn list(names: &BTreeSet<String>) -> String {
    names
        .iter()
        .map(|n| format!("`{n}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn assignments(values: &Mapping) -> Vec<String> {
    let one = |(path, value): (&Value, &Value)| assignment(&inline(path), value);
    values.iter().map(one).collect()
}

/// Formats `path=value`; JSON is YAML on one line.
fn assignment(path: &str, value: &Value) -> String {
    let value = serde_json::to_string(value).unwrap_or_default();
    format!("{path}={value}")
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;

/// A table with what the study says of all.
fn with_defaults(raw: &RawTable, defaults: &RawTable) -> RawTable {
    let mut all = raw.clone();
    all.base = raw.base.clone().or(defaults.base.clone());
    all.seeds = raw.seeds.clone().or(defaults.seeds.clone());
    all.measure = raw.measure.clone().or(defaults.measure.clone());
    all.scale = raw.scale.or(defaults.scale);
    all.digits = raw.digits.or(defaults.digits);
    all.against = raw.against.clone().or(defaults.against.clone());
    all.hours = raw.hours.or(defaults.hours);
    all.alone = raw.alone.or(defaults.alone);
    all.into = raw.into.clone().or(defaults.into.clone());
    let first = |own: &[RawColumn], other: &[RawColumn]| {
        if own.is_empty() {
            other.to_vec()
        } else {
            own.to_vec()
        }
    };
    all.columns = first(&raw.columns, &defaults.columns);
    if all.columns.is_empty() {
        all.columns = vec![RawColumn::Known("mean".into())];
    }
    all.lead = first(&raw.lead, &defaults.lead);
    if all.plots.is_empty() {
        all.plots = defaults.plots.clone();
    }
    all
}
