//! Tables in Apache's column format.

use crate::content::{Budget, content};
use crate::table::{Table, from_rows};
use anyhow::{Context, Result, bail};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use std::path::Path;

pub(crate) fn read(path: &Path, budget: &mut Budget) -> Result<Table> {
    let name = || path.display().to_string();
    let bytes = content(path, budget)?;
    let packed = bytes.len() as u64;
    let file = SerializedFileReader::new(bytes::Bytes::from(bytes)).with_context(name)?;
    // pages are unpacked one after the other, each whole
    let unpacked = |group: &RowGroupMetaData| u64::try_from(group.total_byte_size()).unwrap_or(0);
    let groups = file.metadata().row_groups().iter().map(unpacked);
    if groups.max().is_some_and(|most| most > budget.left()) {
        return Err(budget.exceeded(path));
    }
    let schema = file.metadata().file_metadata().schema();
    let names: Vec<String> = schema
        .get_fields()
        .iter()
        .map(|field| field.name().to_string())
        .collect();
    let rows = file.get_row_iter(None).with_context(name)?;
    let table = from_rows(
        path,
        names,
        rows.map(|row| {
            row.map_err(anyhow::Error::from)
                .and_then(|row| fields(&row))
        }),
        budget,
    )?;
    drop(file);
    budget.give(packed);
    Ok(table)
}

fn fields(row: &Row) -> Result<Vec<String>> {
    let text = |(name, field): (&String, &Field)| match field {
        Field::Null => Ok(String::new()),
        Field::Str(text) => Ok(text.trim().to_string()),
        Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) | Field::Bytes(_) => {
            bail!("column `{name}`: must be a number, a text, true or false")
        }
        Field::Float(number) => Ok(format!("{number:?}")),
        Field::Double(number) => Ok(format!("{number:?}")),
        other => Ok(other.to_string()),
    };
    row.get_column_iter().map(text).collect()
}
