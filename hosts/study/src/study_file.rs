//! [`StudyFile`]: a study's text, its mistakes, and the places of its values.

use crate::expand::{missing, tables};
use crate::file::{File, Names, RawColumn, RawTable};
use crate::grid::{At, key};
use crate::model::Study;
use fl_core::settings::Step;
use fl_registry::{
    Document, Mistake, Mistakes, Places, ReadableSettings, SourcePosition, is_spec_key,
};
use serde_yaml::{Mapping, Value};
use std::path::Path;

/// A study's file, as far as it can be read.
pub struct StudyFile {
    /// The study. With mistakes, it has the tables and runs that can be known.
    pub study: Study,
    /// What is wrong with the file, apart from the specs of its runs.
    pub mistakes: Vec<Mistake>,
    name: String,
    raw: File,
    places: Places,
}

/// The position of a run in a study: the numbers of its table, its row and its column of `across`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The table.
    pub table: usize,
    /// The row.
    pub row: usize,
    /// The item of `across`; 0 without `across`.
    pub across: usize,
}

impl Study {
    /// Reads a study's file. The specs and READMEs that it names must exist.
    ///
    /// # Errors
    /// When the file cannot be read, or is no study: every mistake, and where.
    pub fn read(path: &Path) -> fl_core::Result<Self> {
        Ok(StudyFile::read(path)?.without_mistakes()?)
    }

    /// Reads a study's text; its files are relative to the document's folder.
    ///
    /// # Errors
    /// When it is no study: every mistake, and where.
    pub fn parse(document: &Document) -> Result<Self, Mistakes> {
        StudyFile::from(document, false)?.without_mistakes()
    }
}

impl StudyFile {
    /// Reads a study's file. Specs and READMEs that it names and that do not exist are mistakes.
    ///
    /// # Errors
    /// When the file cannot be read, or its text is no mapping.
    pub fn read(path: &Path) -> fl_core::Result<Self> {
        use std::io::Read;
        let name = path.display().to_string();
        let mut text = Vec::new();
        // `/dev/stdin`, and what a shell makes for a command, end
        let open = if path.starts_with("/dev") || path.starts_with("/proc") {
            std::fs::File::open
        } else {
            fl_core::regular_file::open_regular
        };
        let file = open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => anyhow::anyhow!(
                "{name}: there is no such file; give the path of a study, such as specs/studies/quick.yaml"
            ),
            _ => anyhow::anyhow!("{name}: {error}"),
        })?;
        let most = fl_registry::MAX_BYTES as u64 + 1;
        let read = file.take(most).read_to_end(&mut text);
        read.map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        Ok(Self::from(&Document::parse(&name, &text), true)?)
    }

    fn from(document: &Document, files: bool) -> Result<Self, Mistakes> {
        let what = "a study is a mapping with `name` and `tables`";
        let ReadableSettings {
            settings: raw,
            places,
            mut mistakes,
        } = document.readable_settings::<File>(what)?;
        mistakes.iter_mut().for_each(say_below_set);
        let folder = Path::new(document.file()).parent().unwrap_or(Path::new(""));
        let mut wrong: Vec<At> = if files {
            missing(&raw, folder)
        } else {
            Vec::new()
        };
        let tables = tables(&raw, folder, &places, &mut wrong);
        let results = raw.results.as_ref();
        if results.is_some_and(|file| !file.ends_with(".jsonl")) {
            let text = "must end in `.jsonl`, as `NAME.results.jsonl`".to_string();
            wrong.push((vec![key("results")], text));
        }
        // what follows from a value that was left out; a table looks at its own
        let follows = |path: &[Step]| {
            let table = path.len() == 2;
            places.left_out(path) || !table && places.left_out_in(path).next().is_some()
        };
        wrong.retain(|(path, _)| !follows(path));
        mistakes.extend(wrong.iter().map(|(path, text)| places.mistake(path, text)));
        Ok(Self {
            study: Study {
                name: raw.name.clone(),
                results: results.map(|file| folder.join(file)),
                tables,
            },
            mistakes,
            name: document.file().into(),
            raw,
            places,
        })
    }

    /// What its mistakes call the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn without_mistakes(self) -> Result<Study, Mistakes> {
        if self.mistakes.is_empty() {
            Ok(self.study)
        } else {
            Err(Mistakes::sorted(self.mistakes))
        }
    }

    /// The same mistake of a run's spec, at the place where the study sets the value. What stands
    /// in the spec's own text stays there.
    pub fn place(&self, cell: Cell, mistake: Mistake) -> Mistake {
        let SourcePosition::Set(set) = &mistake.place else {
            return mistake;
        };
        match self.change(cell, set) {
            Some(path) => self.places.of_change(&path, mistake),
            None => mistake,
        }
    }

    /// The path of the value that the study gives to `set` in this cell; the last one counts.
    fn change(&self, cell: Cell, set: &str) -> Option<Vec<Step>> {
        let raw = self.raw.tables.get(cell.table)?;
        let table = [key("tables"), Step::Item(cell.table)];
        let below = |steps: &[Step]| Some([&table[..], steps].concat());
        let has = |values: &Mapping| values.contains_key(set);
        let other = raw.across.get(cell.across);
        if other.is_some_and(|other| has(&other.set)) {
            let across = Step::Item(cell.across);
            return below(&[key("across"), across, key("set"), key(set)]);
        }
        if let Some(values) = raw.grid.get(set) {
            // the last path varies fastest
            let after = raw.grid.iter().skip_while(|(path, _)| *path != set).skip(1);
            let width: usize = after.map(|(_, values)| count(values)).product();
            let nth = cell.row / width % count(values);
            let value = match values {
                Value::Mapping(named) => key(&fl_report::inline(named.keys().nth(nth)?)),
                _ => Step::Item(nth),
            };
            return below(&[key("grid"), key(set), value]);
        }
        if raw.rows.get(cell.row).is_some_and(|row| has(&row.set)) {
            return below(&[key("rows"), Step::Item(cell.row), key("set"), key(set)]);
        }
        if has(&raw.set) {
            return below(&[key("set"), key(set)]);
        }
        has(&self.raw.defaults.set).then(|| vec![key("defaults"), key("set"), key(set)])
    }

    /// A mistake of a row, or of its table if the table has a grid.
    pub fn of_row(&self, cell: Cell, text: String) -> Mistake {
        let mut path = vec![key("tables"), Step::Item(cell.table)];
        let rows = self.raw.tables.get(cell.table).map_or(0, |t| t.rows.len());
        if cell.row < rows {
            path.extend([key("rows"), Step::Item(cell.row)]);
        }
        self.places.mistake(&path, text)
    }

    /// A mistake about the README that a table goes into.
    pub fn of_readme(&self, table: usize, text: String) -> Mistake {
        let own = self.raw.tables.get(table).is_some_and(|t| t.into.is_some());
        let path = if own {
            vec![key("tables"), Step::Item(table), key("into")]
        } else {
            vec![key("defaults"), key("into")]
        };
        self.places.mistake(&path, text)
    }

    /// A mistake about a measure with these names, at its place in the table or in the defaults; at
    /// the table if nothing names it.
    pub fn of_measure(&self, table: usize, names: &[String], text: String) -> Mistake {
        let here = vec![key("tables"), Step::Item(table)];
        let own = self.raw.tables.get(table).map(|raw| (here.clone(), raw));
        let usual = (vec![key("defaults")], &self.raw.defaults);
        let mut all = own.into_iter().chain([usual]).flat_map(|(here, raw)| {
            let of = |(path, Names(of)): (Vec<Step>, &Names)| {
                (*of == names).then(|| [&here[..], &path].concat())
            };
            measures(raw).into_iter().filter_map(of).collect::<Vec<_>>()
        });
        let path = all.next().unwrap_or(here);
        self.places.mistake(&path, text)
    }
}

/// The number of values of a path of a grid; 1 if it is wrong, and so left out.
fn count(values: &Value) -> usize {
    let count = match values {
        Value::Sequence(values) => values.len(),
        Value::Mapping(values) => values.len(),
        _ => 1,
    };
    count.max(1)
}

/// The measures that a table names, each with its path below the table.
fn measures(raw: &RawTable) -> Vec<(Vec<Step>, &Names)> {
    let measure = || key("measure");
    let mut all: Vec<_> = raw.measure.iter().map(|of| (vec![measure()], of)).collect();
    for (list, columns) in [("columns", &raw.columns), ("lead", &raw.lead)] {
        for (nth, column) in columns.iter().enumerate() {
            if let RawColumn::Own(own) = column
                && let Some(of) = &own.measure
            {
                all.push((vec![key(list), Step::Item(nth), measure()], of));
            }
        }
    }
    for (nth, plot) in raw.plots.iter().enumerate() {
        let path = vec![key("plots"), Step::Item(nth), measure()];
        all.extend(plot.measure.iter().map(|of| (path.clone(), of)));
    }
    all
}

/// Adds to a key of a spec that stands in a table, or in a row, where it belongs.
fn say_below_set(mistake: &mut Mistake) {
    let Some(Step::Key(name)) = mistake.path.last().filter(|_| mistake.path.len() > 1) else {
        return;
    };
    if mistake.text.starts_with("no such setting") && is_spec_key(name) {
        mistake.text = format!(
            "is of the spec of a run: write it below `set`, as `set: {{ {name}.NAME: .. }}`"
        );
    }
}
