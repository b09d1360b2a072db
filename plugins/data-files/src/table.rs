//! Tables of text: what files of `csv`, `jsonl` and `parquet` become.

use crate::content::Budget;
use anyhow::{Context, Result, bail, ensure};
use fl_data_kit::format::csv::MAX_COLUMNS;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a table without names of columns needs.
const HEADERLESS: &str =
    "; if it has no line of names, say so by `format: { csv: { header: false } }`";

/// All fields of a file, in one text.
pub(crate) struct Table {
    pub path: PathBuf,
    /// Names of the columns.
    pub names: Vec<String>,
    /// Those of JSON as the first row has them; else empty.
    pub written: Vec<String>,
    /// Where each column stands.
    pub index: BTreeMap<String, usize>,
    pub text: String,
    /// Where each field ends in the text, row after row.
    pub ends: Vec<u32>,
    /// Where each row stands in the file, from 1.
    pub lines: Vec<u32>,
    /// How much of the text is counted.
    counted: usize,
}

impl Table {
    pub fn new(path: &Path, names: Vec<String>) -> Result<Self> {
        ensure!(
            names.len() <= MAX_COLUMNS,
            "{}: {} columns; at most {MAX_COLUMNS} can be read",
            path.display(),
            names.len()
        );
        let mut index = BTreeMap::new();
        for (at, name) in names.iter().enumerate() {
            ensure!(
                index.insert(name.clone(), at).is_none(),
                "{}:1: two columns are called `{name}`{HEADERLESS}",
                path.display()
            );
        }
        if let Some(at) = names.iter().position(String::is_empty) {
            bail!(
                "{}:1: column {} has no name; every column needs one{HEADERLESS}",
                path.display(),
                at + 1
            );
        }
        Ok(Self {
            path: path.into(),
            names,
            written: Vec::new(),
            index,
            text: String::new(),
            ends: Vec::new(),
            lines: Vec::new(),
            counted: 0,
        })
    }

    pub fn field(&mut self, field: &str) {
        self.text.push_str(field);
        self.ends.push(self.text.len() as u32);
    }

    /// The fields since the last were a row, which counts against `budget`.
    pub fn end_row(&mut self, line: u32, budget: &mut Budget) -> Result<()> {
        let text = self.text.len() - self.counted;
        self.counted = self.text.len();
        self.lines.push(line);
        let places = (self.names.len() + 1) * size_of::<u32>();
        budget.take((text + places) as u64, &self.path)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn cell(&self, row: usize, column: usize) -> &str {
        let at = row * self.names.len() + column;
        let from = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.text[from as usize..self.ends[at] as usize]
    }

    /// `people.csv:17`
    pub fn place(&self, row: usize) -> String {
        format!("{}:{}", self.path.display(), self.lines[row])
    }

    /// `people.csv:17: column `age`: ..`
    pub fn wrong(&self, row: usize, column: usize, text: impl std::fmt::Display) -> anyhow::Error {
        anyhow::anyhow!(
            "{}: column `{}`: {text}",
            self.place(row),
            self.names[column]
        )
    }

    /// The position of a column.
    pub fn find(&self, name: &str) -> Result<usize> {
        self.index.get(name).copied().with_context(|| {
            // one column with the names of several
            if let [only] = &self.names[..]
                && let Some(advice) = other_separator(only)
            {
                return format!(
                    "{}: there is no column `{name}`; the header has one column, `{only}`: {advice}",
                    self.path.display()
                );
            }
            let near = fl_core::settings::nearest(name, self.names.iter().map(String::as_str));
            let near = match near {
                Some(near) => format!("; did you mean `{near}`? It has"),
                None => "; it has".into(),
            };
            let names: Vec<&str> = self.names.iter().take(50).map(String::as_str).collect();
            let row = self.headless().map(|text| format!("; {text}"));
            format!(
                "{}: there is no column `{name}`{near}: {}{}",
                self.path.display(),
                names.join(", "),
                row.unwrap_or_default()
            )
        })
    }

    /// Says that the names of the columns look like a row: several are values of their columns, or
    /// all are numbers that count nothing.
    pub fn headless(&self) -> Option<String> {
        const ROWS: usize = 1000;
        const SEVERAL: usize = 2;
        let is_value = |column: &usize| {
            let mut rows = 0..self.len().min(ROWS);
            rows.any(|row| self.cell(row, *column).trim() == self.names[*column].trim())
        };
        let number = |name: &String| name.trim().parse::<f64>().ok();
        let numbers: Vec<f64> = self.names.iter().filter_map(number).collect();
        let counts = numbers.windows(2).all(|two| two[1] == two[0] + 1.0);
        let all_numbers = numbers.len() == self.names.len() && !counts;
        let looks = all_numbers || (0..self.names.len()).filter(is_value).count() >= SEVERAL;
        looks.then(|| {
            format!("its first line looks like a row{HEADERLESS}, and columns are called by their numbers, from 1")
        })
    }

    /// Where each of the columns `names` stands; both must have the same ones.
    pub fn order(&self, first: &Self) -> Result<Vec<usize>> {
        let mut missing = first
            .names
            .iter()
            .filter(|name| !self.index.contains_key(*name));
        let mut more = self
            .names
            .iter()
            .filter(|name| !first.index.contains_key(*name));
        let (path, other) = (self.path.display(), first.path.display());
        match (missing.next(), more.next()) {
            (Some(name), _) => bail!("{path}:1: there is no column `{name}`, which {other} has"),
            (_, Some(name)) => bail!("{path}:1: column `{name}` is not in {other}"),
            _ => first.names.iter().map(|name| self.find(name)).collect(),
        }
    }
}

/// Mistakes in rows: the first are named, the others counted. One that many rows have is named
/// once, with their number.
#[derive(Default)]
pub(crate) struct WrongRows {
    /// A mistake, where it stands first, and how often it is elsewhere.
    first: Vec<(String, String, usize)>,
    more: usize,
}

impl WrongRows {
    const NAMED: usize = 5;

    /// Keeps the error, if it is one.
    pub fn take<T>(&mut self, read: Result<T>) -> Option<T> {
        let error = match read {
            Ok(read) => return Some(read),
            Err(error) => error,
        };
        let text = format!("{error:#}");
        // `FILE:LINE: mistake`
        let (place, mistake) = text.split_once(": ").unwrap_or(("", &text));
        let named = self.first.len() < Self::NAMED;
        match self.first.iter_mut().find(|(of, ..)| of == mistake) {
            Some((_, _, elsewhere)) => *elsewhere += 1,
            None if named => self.first.push((mistake.into(), place.into(), 0)),
            None => self.more += 1,
        }
        None
    }

    /// Fails if there is a mistake.
    pub fn none(self) -> Result<()> {
        let more = match self.more {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let said = |(mistake, place, elsewhere): &(String, String, usize)| {
            let sign = if place.is_empty() { "" } else { ": " };
            let elsewhere = match elsewhere {
                0 => String::new(),
                1 => " (and in 1 more row)".into(),
                n => format!(" (and in {n} more rows)"),
            };
            format!("{place}{sign}{mistake}{elsewhere}")
        };
        let all: Vec<String> = self.first.iter().map(said).collect();
        if all.is_empty() {
            Ok(())
        } else {
            bail!("{}{more}", all.join("; "))
        }
    }
}

/// For readers of rows that are no lines.
pub(crate) fn from_rows(
    path: &Path,
    names: Vec<String>,
    rows: impl Iterator<Item = Result<Vec<String>>>,
    budget: &mut Budget,
) -> Result<Table> {
    let mut table = Table::new(path, names)?;
    for (at, row) in rows.enumerate() {
        let row = row.with_context(|| format!("{}: row {}", path.display(), at + 1))?;
        row.iter().for_each(|field| table.field(field));
        table.end_row(at as u32 + 1, budget)?;
    }
    Ok(table)
}

/// What to do about a header of one column, if it may have another separator.
pub(crate) fn other_separator(header: &str) -> Option<String> {
    let other = header.chars().find(|c| ",;\t|".contains(*c))?;
    Some(format!(
        "if {other:?} separates its columns, say `format: {{ csv: {{ separator: {other:?} }} }}`"
    ))
}
