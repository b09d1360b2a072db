//! Reads files of tables.

use crate::classes::short;
use crate::content::content;
use crate::format::{Csv, Format};
use crate::parquet;
use crate::paths::has_ending;
use crate::settings::Files;
use crate::table::{Table, WrongRows, other_separator};
use anyhow::{Context, Result, bail, ensure};
use fl_data_kit::format::csv::{MAX_COLUMNS, records, utf8};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};
use std::path::Path;

/// Reads one file, of at most `limit` bytes; takes what it holds away from `limit`.
pub(crate) fn read(path: &Path, files: &Files, limit: &mut u64) -> Result<Table> {
    read_as(&files.format, path, limit)
}

/// As [`read`], a table whose format its name says: `csv` unless it ends otherwise.
pub(crate) fn by_ending(path: &Path, limit: &mut u64) -> Result<Table> {
    let formats = [Format::Jsonl, Format::Parquet];
    let format = formats.into_iter().find(|format| has_ending(path, format));
    let csv = Format::Csv(Csv {
        separator: None,
        header: true,
    });
    read_as(&format.unwrap_or(csv), path, limit)
}

fn read_as(format: &Format, path: &Path, limit: &mut u64) -> Result<Table> {
    let bytes = content(path, limit)?;
    let table = match format {
        Format::Csv(how) => csv(path, &bytes, how),
        Format::Jsonl => jsonl(path, &bytes),
        Format::Parquet => parquet::read(path, bytes, limit),
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

fn csv(path: &Path, bytes: &[u8], how: &Csv) -> Result<Table> {
    let text = utf8(bytes).with_context(|| path.display().to_string())?;
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
    records(text, reader, at, |line, row| {
        let Some(table) = &mut table else {
            let names = if how.header {
                row.iter().map(ToString::to_string).collect()
            } else {
                (1..=row.len()).map(|at| at.to_string()).collect()
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
        table.lines.push(line as u32);
        row.iter().for_each(|field| table.field(field));
        Ok(())
    })?;
    wrong.none()?;
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
                    if row.contains_key(&name) {
                        let text = format!("two fields of one row are called `{name}`");
                        return Err(serde::de::Error::custom(text));
                    }
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
