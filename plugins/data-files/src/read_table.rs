//! Reads files of tables.

use crate::classes::short;
use crate::content::Budget;
use crate::format::{Csv, Format};
use crate::parquet;
use crate::paths::has_ending;
use crate::table::{Table, WrongRows, other_separator};
use anyhow::{Context, Result, bail, ensure};
use fl_data_kit::archive;
use fl_data_kit::format::csv::{MAX_COLUMNS, MAX_ROW, Utf8, records};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// As [`read`], a table whose format its name says: `csv` unless it ends otherwise.
pub(crate) fn by_ending(path: &Path, budget: &mut Budget) -> Result<Table> {
    let formats = [Format::Jsonl, Format::Parquet];
    let format = formats.into_iter().find(|format| has_ending(path, format));
    let csv = Format::Csv(Csv {
        separator: None,
        header: true,
    });
    read(&format.unwrap_or(csv), path, budget)
}

/// Reads one file, which counts against `budget`.
pub(crate) fn read(format: &Format, path: &Path, budget: &mut Budget) -> Result<Table> {
    let table = match format {
        Format::Csv(how) => csv(path, how, budget),
        Format::Jsonl => jsonl(path, budget),
        Format::Parquet => parquet::read(path, budget),
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

/// The text of a file, read piece by piece. It is not held, but a file with more text than there is
/// memory left ends with an error, so that a packed file without end does.
struct FileText {
    from: Utf8<Box<dyn Read>>,
    path: PathBuf,
    left: u64,
    exceeded: String,
}

impl FileText {
    fn open(path: &Path, budget: &Budget) -> Result<BufReader<Self>> {
        Ok(BufReader::with_capacity(
            1 << 16,
            Self {
                from: Utf8::new(archive::open(path)?),
                path: path.into(),
                left: budget.left(),
                exceeded: format!(
                    "{}: its text has more than {} bytes, and `max-bytes` leaves no more for it; \
                     raise `max-bytes` if this machine has more memory",
                    path.display(),
                    budget.left()
                ),
            },
        ))
    }
}

impl Read for FileText {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let error = match self.from.read(out) {
            Ok(n) => match self.left.checked_sub(n as u64) {
                Some(left) => {
                    self.left = left;
                    return Ok(n);
                }
                None => self.exceeded.clone(),
            },
            Err(why) if why.kind() == ErrorKind::Interrupted => return Err(why),
            Err(why) => format!("{}: {why}", self.path.display()),
        };
        Err(std::io::Error::other(error))
    }
}

fn csv(path: &Path, how: &Csv, budget: &mut Budget) -> Result<Table> {
    let is_tsv = path.to_string_lossy().contains(".tsv");
    let own = if is_tsv { b'\t' } else { b',' };
    let separator = how
        .separator
        .as_ref()
        .map_or(own, |text| text.as_bytes()[0]);
    let reader = csv_core::ReaderBuilder::new().delimiter(separator).build();
    let mut table: Option<Table> = None;
    let mut wrong = WrongRows::default();
    let at = |line| format!("{}:{line}", path.display());
    records(FileText::open(path, budget)?, reader, at, |line, row| {
        let Some(table) = &mut table else {
            let names = if how.header {
                row.iter().map(ToString::to_string).collect()
            } else {
                (1..=row.len()).map(|at| at.to_string()).collect()
            };
            let new = table.insert(Table::new(path, names)?);
            if !how.header {
                row.iter().for_each(|field| new.field(field));
                new.end_row(line as u32, budget)?;
            }
            return Ok(());
        };
        let (found, wanted) = (row.len(), table.names.len());
        // where there is one column, it is a row whose field is empty
        if row == [""] && wanted > 1 {
            return Ok(()); // an empty line
        }
        if found != wanted {
            let of = if how.header {
                "the header"
            } else {
                "the first row"
            };
            // a field with line breaks takes up rows that were meant to be others
            let quote = if row.iter().any(|field| field.contains('\n')) {
                "; a field goes over several lines: is its closing `\"` missing?"
            } else {
                ""
            };
            let column = match &table.names[..] {
                [only] => {
                    other_separator(only).map(|advice| format!(", `{}`: {advice}", short(only)))
                }
                _ => None,
            };
            let (path, column) = (path.display(), column.unwrap_or_default());
            let s = if wanted == 1 { "" } else { "s" };
            let error = format!(
                "{path}:{line}: {found} fields; {of} has {wanted} column{s}{column}{quote}"
            );
            wrong.take::<()>(Err(anyhow::Error::msg(error)));
            return Ok(());
        }
        row.iter().for_each(|field| table.field(field));
        table.end_row(line as u32, budget)
    })?;
    wrong.none()?;
    table.with_context(|| format!("{}: the file is empty", path.display()))
}

/// A row of JSON: its keys in their order, and what each field holds. No list or object in it is
/// kept, and no more fields than may be.
struct Row(Vec<String>, Map<String, Json>);

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
                let (mut names, mut row) = (Vec::new(), Map::new());
                while let Some((name, Cell(value))) = all.next_entry::<String, Cell>()? {
                    if row.contains_key(&name) {
                        let text = format!("two fields of one row are called `{name}`");
                        return Err(serde::de::Error::custom(text));
                    }
                    names.push(name.clone());
                    row.insert(name, value);
                    if row.len() > MAX_COLUMNS {
                        let text = format!(
                            "more than {MAX_COLUMNS} fields; at most {MAX_COLUMNS} columns can be read"
                        );
                        return Err(serde::de::Error::custom(text));
                    }
                }
                Ok(Row(names, row))
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

fn jsonl(path: &Path, budget: &mut Budget) -> Result<Table> {
    let mut text = FileText::open(path, budget)?;
    let mut table: Option<Table> = None;
    let mut line = Vec::new();
    for number in 1u32.. {
        line.clear();
        let mut row = text.by_ref().take(MAX_ROW as u64 + 1);
        row.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            break;
        }
        let wrong = |text: String| anyhow::anyhow!("{}:{number}: {text}", path.display());
        if line.len() > MAX_ROW {
            return Err(wrong(format!("a row of more than {MAX_ROW} bytes")));
        }
        let line = std::str::from_utf8(&line)?;
        if line.trim().is_empty() {
            continue;
        }
        let Row(names, row) = serde_json::from_str(line).map_err(|error| {
            wrong(match serde_json::from_str::<IgnoredAny>(line) {
                Err(error) => format!("not JSON: {error}"),
                Ok(_) if line.trim_start().starts_with('{') => error.to_string(),
                Ok(_) => "a row must be an object: {\"age\": 39, ..}".into(),
            })
        })?;
        let table = match &mut table {
            Some(table) => table,
            none => {
                // objects have no order, and nodes and public rows must agree on one
                let mut sorted = names.clone();
                sorted.sort();
                let new = none.insert(Table::new(path, sorted)?);
                new.written = names;
                new
            }
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
        table.end_row(number, budget)?;
    }
    table.with_context(|| format!("{}: the file is empty", path.display()))
}
