//! LIBSVM: one row a line, `label index:value index:value ..`; indices begin at 1 and ascend,
//! others are 0.

use anyhow::{Context, Result, ensure};
use fl_core::Inputs;

/// The rows of a file, compressed: row `i` is `columns[starts[i]..starts[i + 1]]`. Columns begin at
/// 0 here.
#[derive(Debug, PartialEq)]
pub struct Rows {
    /// The class of each row.
    pub labels: Vec<u32>,
    /// One longer than there are rows.
    pub starts: Vec<usize>,
    /// Ascending within a row, each below the width.
    pub columns: Vec<u32>,
    /// One for each column named.
    pub values: Vec<f32>,
}

impl Rows {
    /// As they are, mostly 0.
    pub fn sparse(self, width: usize) -> Inputs {
        Inputs::Sparse {
            width,
            starts: self.starts,
            columns: self.columns,
            values: self.values,
        }
    }

    /// As numbers, zeros and all.
    pub fn dense(&self, width: usize) -> Inputs {
        let mut data = vec![0.0; (self.starts.len() - 1) * width];
        for (out, ends) in data.chunks_mut(width).zip(self.starts.windows(2)) {
            for at in ends[0]..ends[1] {
                out[self.columns[at] as usize] = self.values[at];
            }
        }
        Inputs::Dense {
            shape: vec![width],
            data,
        }
    }
}

/// The class of a label of -1 (0) or +1 (1).
///
/// # Errors
/// If it is neither.
pub fn sign(label: &str) -> Result<u32> {
    match label {
        "-1" => Ok(0),
        "1" | "+1" => Ok(1),
        other => anyhow::bail!("the label is `{other}`; it must be -1 or +1"),
    }
}

/// Reads the rows of a file with features `1..=width`; `class` says which class a label is. A file
/// may name fewer features than `width`: the test part of a set often does.
///
/// # Errors
/// If it is empty or not text, or a line has a label that `class` refuses, an index that is 0,
/// above `width` or not above the one before it, or a value that is not a finite number; says which
/// line.
pub fn rows(bytes: &[u8], width: u32, mut class: impl FnMut(&str) -> Result<u32>) -> Result<Rows> {
    let text = super::csv::known(bytes)?;
    let mut rows = Rows {
        labels: vec![],
        starts: vec![0],
        columns: vec![],
        values: vec![],
    };
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        super::csv::few_enough(rows.labels.len() + 1)?;
        add(line, width, &mut class, &mut rows).with_context(|| format!("line {}", at + 1))?;
    }
    ensure!(!rows.labels.is_empty(), "the file holds no rows");
    Ok(rows)
}

fn add(
    line: &str,
    width: u32,
    class: &mut impl FnMut(&str) -> Result<u32>,
    rows: &mut Rows,
) -> Result<()> {
    let mut fields = line.split_ascii_whitespace();
    rows.labels.push(class(fields.next().unwrap_or_default())?);
    let mut last = 0;
    for field in fields {
        let (index, value) = field
            .split_once(':')
            .with_context(|| format!("found `{field}`; a feature is index:value"))?;
        let index: u32 = index
            .parse()
            .ok()
            .with_context(|| format!("the index in `{field}` is not a whole number"))?;
        ensure!(
            (1..=width).contains(&index),
            "the index in `{field}` must be in 1..={width}"
        );
        ensure!(
            index > last,
            "the index in `{field}` comes after {last}; indices must ascend"
        );
        rows.columns.push(index - 1);
        rows.values
            .push(super::csv::number(value).with_context(|| format!("feature {index}"))?);
        last = index;
    }
    rows.starts.push(rows.columns.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_name_fewer_features_than_there_are() {
        let got = rows(b"-1 1:1 3:0.5 \n+1 2:-2e1\n1\n", 123, sign).unwrap();
        assert_eq!(got.labels, [0, 1, 1]);
        assert_eq!(got.starts, [0, 2, 3, 3]);
        assert_eq!(
            (got.columns, got.values),
            (vec![0, 2, 1], vec![1.0, 0.5, -20.0])
        );
    }

    #[test]
    fn wrong_files_say_which_line_and_why() {
        let wrong = |text: &[u8], part: &str| {
            let error = format!("{:#}", rows(text, 8, sign).unwrap_err());
            assert!(error.contains(part), "{error}");
        };
        wrong(b"", "no rows");
        wrong(b"\n \n", "no rows");
        wrong(
            b"-1 1:1\n2 1:1\n",
            "line 2: the label is `2`; it must be -1 or +1",
        );
        wrong(b"+1 0:1", "line 1: the index in `0:1` must be in 1..=8");
        wrong(b"+1 9:1", "must be in 1..=8");
        wrong(b"+1 99999999999:1", "not a whole number");
        wrong(b"+1 2:1 2:1", "comes after 2; indices must ascend");
        wrong(b"+1 3:1 2:1", "comes after 3");
        wrong(b"+1 3", "found `3`; a feature is index:value");
        wrong(
            b"+1 3:nan",
            "feature 3: found `nan`; a value must be a finite number",
        );
        wrong(b"+1 3:-inf", "feature 3: found `-inf`");
        wrong(b"+1 3:1e39", "feature 3: found `1e39`");
        wrong(b"+1 3:", "feature 3: found ``");
        wrong(b"+1 3:1\n+1 \xff:1", "not UTF-8 text: byte 10");
    }
}
