//! Tables in Apache's column format.

use crate::table::{Table, from_rows};
use anyhow::{Context, Result, bail};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use std::path::Path;

pub(crate) fn read(path: &Path, bytes: Vec<u8>, limit: &mut u64) -> Result<Table> {
    let name = || path.display().to_string();
    let file = SerializedFileReader::new(parquet_bytes(bytes)).with_context(name)?;
    let schema = file.metadata().file_metadata().schema();
    let names: Vec<String> = schema
        .get_fields()
        .iter()
        .map(|field| field.name().to_string())
        .collect();
    let rows = file.get_row_iter(None).with_context(name)?;
    from_rows(
        path,
        names,
        rows.map(|row| {
            row.map_err(anyhow::Error::from)
                .and_then(|row| fields(&row))
        }),
        limit,
    )
}

fn parquet_bytes(bytes: Vec<u8>) -> bytes::Bytes {
    bytes.into()
}

fn fields(row: &Row) -> Result<Vec<String>> {
    let text = |(name, field): (&String, &Field)| match field {
        Field::Null => Ok(String::new()),
        Field::Str(text) => Ok(text.trim().to_string()),
        Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) | Field::Bytes(_) => {
            bail!("column `{name}`: must be a number, a text, true or false")
        }
        other => Ok(other.to_string()),
    };
    row.get_column_iter().map(text).collect()
}
