//! Tables of text: what `csv`, `jsonl` and `parquet` have in common.

use super::{Csv, Files, Format};
use crate::format::csv::{MAX_COLUMNS, records, utf8};
use anyhow::{Context, Result, bail, ensure};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// All fields of a file, in one text.
pub(super) struct Table {
    pub path: PathBuf,
    /// Names of the columns.
    pub names: Vec<String>,
    /// Where each column stands.
    index: BTreeMap<String, usize>,
    text: String,
    /// Where each field ends in the text, row after row.
    ends: Vec<u32>,
    /// Where each row stands in the file, from 1.
    lines: Vec<u32>,
}

impl Table {
    fn new(path: &Path, names: Vec<String>) -> Result<Self> {
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
                "{}:1: two columns are called `{name}`",
                path.display()
            );
        }
        if let Some(at) = names.iter().position(String::is_empty) {
            bail!(
                "{}:1: column {} has no name; every column needs one",
                path.display(),
                at + 1
            );
        }
        Ok(Self {
            path: path.into(),
            names,
            index,
            text: String::new(),
            ends: Vec::new(),
            lines: Vec::new(),
        })
    }

    fn field(&mut self, field: &str) {
        self.text.push_str(field);
        self.ends.push(self.text.len() as u32);
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

    /// `people.csv:17: column `age`: ..`
    pub fn wrong(&self, row: usize, column: usize, text: impl std::fmt::Display) -> anyhow::Error {
        let (path, line) = (self.path.display(), self.lines[row]);
        anyhow::anyhow!("{path}:{line}: column `{}`: {text}", self.names[column])
    }

    /// The position of a column.
    pub fn find(&self, name: &str) -> Result<usize> {
        self.index.get(name).copied().with_context(|| {
            let near = fl_core::settings::nearest(name, self.names.iter().map(String::as_str));
            let near = match near {
                Some(near) => format!("; did you mean `{near}`? It has"),
                None => "; it has".into(),
            };
            let names: Vec<&str> = self.names.iter().take(50).map(String::as_str).collect();
            format!(
                "{}: there is no column `{name}`{near}: {}",
                self.path.display(),
                names.join(", ")
            )
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

/// Reads one file, of at most `limit` bytes; takes what it holds away from `limit`.
pub(super) fn read(path: &Path, files: &Files, limit: &mut u64) -> Result<Table> {
    let bytes = super::arrays::content(path, limit)?;
    let table = match &files.format {
        Format::Csv(how) => csv(path, &bytes, how),
        Format::Jsonl => jsonl(path, &bytes),
        Format::Parquet => parquet(path, bytes, limit),
        _ => bail!("this format is no table"),
    }?;
    // a client may have none
    ensure!(!table.names.is_empty(), "{}: holds no rows", path.display());
    ensure!(
        u32::try_from(table.text.len()).is_ok(),
        "{}: holds more than 4 GiB of text; read it in several files",
        path.display()
    );
    Ok(table)
}

#[cfg(feature = "parquet")]
use super::parquet::read as parquet;

#[cfg(not(feature = "parquet"))]
fn parquet(path: &Path, _: Vec<u8>, _: &mut u64) -> Result<Table> {
    bail!(
        "{}: this program was built without parquet; build it with `cargo build --release --features parquet`, or write the \
         table as csv",
        path.display()
    )
}

fn csv(path: &Path, bytes: &[u8], how: &Csv) -> Result<Table> {
    let text = utf8(bytes).with_context(|| path.display().to_string())?;
    let text = text.trim_start_matches('\u{feff}'); // some programs begin a file with this mark
    let is_tsv = path.to_string_lossy().contains(".tsv");
    let own = if is_tsv { b'\t' } else { b',' };
    let separator = how
        .separator
        .as_ref()
        .map_or(own, |text| text.as_bytes()[0]);
    let reader = csv_core::ReaderBuilder::new().delimiter(separator).build();
    let mut table: Option<Table> = None;
    let at = |line| format!("{}:{line}", path.display());
    records(text, reader, at, |line, row| {
        let Some(table) = &mut table else {
            let names = match how.header {
                true => row.iter().map(ToString::to_string).collect(),
                false => (1..=row.len()).map(|at| at.to_string()).collect(),
            };
            let new = table.insert(Table::new(path, names)?);
            if !how.header {
                new.lines.push(line as u32);
                row.iter().for_each(|field| new.field(field));
            }
            return Ok(());
        };
        let (found, wanted) = (row.len(), table.names.len());
        if row == [""] {
            return Ok(()); // an empty line
        }
        ensure!(
            found == wanted,
            "{}:{line}: {found} fields; {} has {wanted} columns",
            path.display(),
            if how.header {
                "the header"
            } else {
                "the first row"
            }
        );
        table.lines.push(line as u32);
        row.iter().for_each(|field| table.field(field));
        Ok(())
    })?;
    table.with_context(|| format!("{}: the file is empty", path.display()))
}

/// A row of JSON: its keys, and what each field holds. No list or object in it is kept, and no more
/// fields than may be.
struct Row(Map<String, Json>);

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Row;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a row, which must be an object: {\"age\": 39, ..}")
            }
            fn visit_map<A: MapAccess<'de>>(
                self,
                mut all: A,
            ) -> std::result::Result<Row, A::Error> {
                let mut row = Map::new();
                while let Some((name, Cell(value))) = all.next_entry()? {
                    row.insert(name, value);
                    if row.len() > MAX_COLUMNS {
                        let text = format!(
                            "more than {MAX_COLUMNS} fields; at most {MAX_COLUMNS} columns can be read"
                        );
                        return Err(serde::de::Error::custom(text));
                    }
                }
                Ok(Row(row))
            }
        }
        from.deserialize_map(Fields)
    }
}

/// What a field holds; of a list or an object an empty list.
struct Cell(Json);

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Value;
        impl<'de> Visitor<'de> for Value {
            type Value = Cell;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value")
            }
            fn visit_unit<E>(self) -> std::result::Result<Cell, E> {
                Ok(Cell(Json::Null))
            }
            fn visit_bool<E>(self, value: bool) -> std::result::Result<Cell, E> {
                Ok(Cell(value.into()))
            }
            fn visit_i64<E>(self, value: i64) -> std::result::Result<Cell, E> {
                Ok(Cell(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> std::result::Result<Cell, E> {
                Ok(Cell(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> std::result::Result<Cell, E> {
                Ok(Cell(value.into()))
            }
            fn visit_str<E>(self, value: &str) -> std::result::Result<Cell, E> {
                Ok(Cell(value.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut all: A,
            ) -> std::result::Result<Cell, A::Error> {
                while all.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Cell(Json::Array(Vec::new())))
            }
            fn visit_map<A: MapAccess<'de>>(
                self,
                mut all: A,
            ) -> std::result::Result<Cell, A::Error> {
                while all.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Cell(Json::Array(Vec::new())))
            }
        }
        from.deserialize_any(Value)
    }
}

fn jsonl(path: &Path, bytes: &[u8]) -> Result<Table> {
    let text = utf8(bytes).with_context(|| path.display().to_string())?;
    let mut table: Option<Table> = None;
    for (at, line) in text.lines().enumerate() {
        let number = at as u32 + 1;
        let wrong = |text: String| anyhow::anyhow!("{}:{number}: {text}", path.display());
        if line.trim().is_empty() {
            continue;
        }
        let Row(row) = serde_json::from_str(line).map_err(|error| {
            wrong(match serde_json::from_str::<IgnoredAny>(line) {
                Err(error) => format!("not JSON: {error}"),
                Ok(_) if line.trim_start().starts_with('{') => error.to_string(),
                Ok(_) => "a row must be an object: {\"age\": 39, ..}".into(),
            })
        })?;
        let table = match &mut table {
            Some(table) => table,
            none => none.insert(Table::new(path, row.keys().cloned().collect())?),
        };
        let mut known = 0;
        for at in 0..table.names.len() {
            let name = &table.names[at];
            let value = row.get(name);
            known += usize::from(value.is_some());
            let field = match value {
                None | Some(Json::Null) => String::new(),
                Some(Json::String(text)) => text.trim().to_string(),
                Some(value @ (Json::Number(_) | Json::Bool(_))) => value.to_string(),
                Some(_) => {
                    let what = "must be a number, a text, true, false or null";
                    return Err(wrong(format!("column `{name}`: {what}")));
                }
            };
            table.field(&field);
        }
        if known < row.len() {
            let mut keys = row.keys().filter(|key| !table.index.contains_key(*key));
            let key = keys.next().map_or("", String::as_str);
            return Err(wrong(format!("column `{key}` is not in the first row")));
        }
        table.lines.push(number);
    }
    table.with_context(|| format!("{}: the file is empty", path.display()))
}

/// For readers of rows that are no lines.
#[cfg(feature = "parquet")]
pub(super) fn from_rows(
    path: &Path,
    names: Vec<String>,
    rows: impl Iterator<Item = Result<Vec<String>>>,
    limit: &mut u64,
) -> Result<Table> {
    let mut table = Table::new(path, names)?;
    for (at, row) in rows.enumerate() {
        let row = row.with_context(|| format!("{}: row {}", path.display(), at + 1))?;
        for field in row {
            // a compressed file may hold far more than its size
            let size = field.len() as u64 + 4;
            *limit = limit.checked_sub(size).with_context(|| {
                format!(
                    "{}: with it the files hold more than `max-bytes`, all together",
                    path.display()
                )
            })?;
            table.field(&field);
        }
        table.lines.push(at as u32 + 1);
    }
    Ok(table)
}
