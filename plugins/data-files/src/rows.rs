//! Rows of one file, and how they are put together.

use anyhow::{Context, Result, ensure};
use fl_core::Inputs;
use fl_data_kit::format::append;

/// Rows, and the class of each in the order in which classes were found.
pub(crate) struct Part {
    pub inputs: Inputs,
    pub of: Vec<u32>,
}

/// All parts, one after the other.
pub(crate) fn joined(parts: Vec<Part>) -> Result<Part> {
    let mut parts = parts.into_iter();
    let mut all = parts.next().context("there are none")?;
    for part in parts {
        all.append(part)?;
    }
    Ok(all)
}

impl Part {
    /// Rows without labels.
    pub fn unlabelled(inputs: Inputs) -> Self {
        Self {
            of: vec![0; inputs.len()],
            inputs,
        }
    }

    /// The bytes that they take.
    pub fn bytes(&self) -> u64 {
        let inputs = match &self.inputs {
            Inputs::Bytes { data, .. } => data.len(),
            Inputs::Dense { data, .. } => data.len() * 4,
            Inputs::Sparse { starts, values, .. } => values.len() * 8 + starts.len() * 8,
        };
        (inputs + self.of.len() * 4) as u64
    }

    pub fn append(&mut self, other: Self) -> Result<()> {
        let (own, new) = (self.inputs.shape(), other.inputs.shape());
        ensure!(
            append(&mut self.inputs, other.inputs).is_ok(),
            "rows of one file have shape {own:?}, those of another {new:?}, or another kind of numbers"
        );
        self.of.extend(other.of);
        Ok(())
    }

    /// Only these rows.
    pub fn pick(&self, rows: &[usize]) -> Self {
        Self {
            inputs: self.inputs.select(rows),
            of: rows.iter().map(|row| self.of[*row]).collect(),
        }
    }
}

/// Is it a whole number of 64 bits that a 32-bit number cannot hold? Above 2^24 some are rounded to
/// their neighbours, so that times and ids become equal. Beyond 64 bits there are measures only.
pub(crate) fn loses_digits(value: f64) -> bool {
    const END: f64 = u64::MAX as f64;
    value.fract() == 0.0 && value.abs() <= END && f64::from(value as f32) != value
}

/// Says so of `count` values, of which `first` is one.
pub(crate) fn rounded(count: usize, first: f64) -> String {
    format!(
        "{count} whole numbers lose digits as 32-bit numbers, such as {first}, which becomes {}; subtract a constant, or divide",
        first as f32 as f64
    )
}
