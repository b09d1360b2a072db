//! Rows of one file, and how they are put together.

use anyhow::{Context, Result, bail};
use fl_core::Inputs;

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

    /// Memory of the inputs.
    pub fn bytes(&self) -> u64 {
        match &self.inputs {
            Inputs::Bytes { data, .. } => data.len() as u64,
            Inputs::Dense { data, .. } => data.len() as u64 * 4,
            Inputs::Sparse { values, .. } => values.len() as u64 * 8,
        }
    }

    pub fn append(&mut self, other: Self) -> Result<()> {
        let (own, new) = (self.inputs.shape(), other.inputs.shape());
        match (&mut self.inputs, other.inputs) {
            (
                Inputs::Sparse {
                    width,
                    starts,
                    columns,
                    values,
                },
                Inputs::Sparse {
                    width: w,
                    starts: s,
                    columns: c,
                    values: v,
                },
            ) => {
                let base = columns.len();
                *width = (*width).max(w);
                starts.extend(s[1..].iter().map(|end| base + end));
                columns.extend(c);
                values.extend(v);
            }
            (Inputs::Dense { data, .. }, Inputs::Dense { data: more, .. }) if own == new => {
                data.extend(more);
            }
            (Inputs::Bytes { data, .. }, Inputs::Bytes { data: more, .. }) if own == new => {
                data.extend(more);
            }
            _ => bail!(
                "rows of one file have shape {own:?}, those of another {new:?}, or another kind of numbers"
            ),
        }
        self.of.extend(other.of);
        Ok(())
    }

    /// Only these rows.
    pub fn pick(&self, rows: &[usize]) -> Self {
        let width = self.inputs.width();
        let inputs = match &self.inputs {
            Inputs::Bytes {
                shape,
                data,
                mean,
                std,
            } => Inputs::Bytes {
                shape: *shape,
                data: of_rows(data, width, rows),
                mean: mean.clone(),
                std: std.clone(),
            },
            Inputs::Dense { shape, data } => Inputs::Dense {
                shape: shape.clone(),
                data: of_rows(data, width, rows),
            },
            Inputs::Sparse {
                starts,
                columns,
                values,
                ..
            } => {
                let (mut s, mut c, mut v) = (vec![0], Vec::new(), Vec::new());
                for row in rows {
                    let range = starts[*row]..starts[row + 1];
                    c.extend_from_slice(&columns[range.clone()]);
                    v.extend_from_slice(&values[range]);
                    s.push(c.len());
                }
                Inputs::Sparse {
                    width,
                    starts: s,
                    columns: c,
                    values: v,
                }
            }
        };
        Self {
            inputs,
            of: rows.iter().map(|row| self.of[*row]).collect(),
        }
    }
}

/// Is it a whole number that a 32-bit number cannot hold? Above 2^24 some are rounded to their
/// neighbours, so that times in seconds and ids become equal. Numbers above 2^53 are no ids: 64 bits
/// do not hold them either.
pub(crate) fn loses_digits(value: f64) -> bool {
    const EXACT: f64 = (1u64 << 53) as f64;
    value.fract() == 0.0 && value.abs() <= EXACT && f64::from(value as f32) != value
}

/// Says so of `count` values, of which `first` is one.
pub(crate) fn rounded(count: usize, first: f64) -> String {
    format!(
        "{count} whole numbers lose digits as 32-bit numbers, such as {first}, which becomes {}; subtract a constant, or divide",
        first as f32 as f64
    )
}

fn of_rows<T: Copy>(data: &[T], width: usize, rows: &[usize]) -> Vec<T> {
    let row = |row: &usize| &data[row * width..(row + 1) * width];
    rows.iter().flat_map(row).copied().collect()
}
