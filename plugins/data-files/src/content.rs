//! The bytes of a file, within what a spec allows.

use anyhow::{Context, Result};
use fl_data_kit::archive;
use std::path::Path;

/// The content of a file, of which there may be `limit` bytes; takes what it holds away from
/// `limit`.
pub(crate) fn content(path: &Path, limit: &mut u64) -> Result<Vec<u8>> {
    let bytes = archive::read_start(path, limit.saturating_add(1))?;
    let left = limit.checked_sub(bytes.len() as u64);
    *limit = left.with_context(|| {
        format!(
            "{}: holds more than {limit} bytes when decompressed; all files together may not hold more than `max-bytes`",
            path.display()
        )
    })?;
    Ok(bytes)
}
