//! `adult-raw`: UCI's own table of Adult; numbers stay numbers, a category becomes a column.

use crate::adult::LICENCE;
use crate::scale::{Scale, standard};
use anyhow::{Context, Result, bail, ensure};
use fl_core::{Inputs, Labels, Task};
use fl_data_kit::{
    DataSet, DataSetFacts, Download, Folder, Normalise, Rows, class_task, dataset::Part,
    format::csv,
};
use std::collections::{BTreeMap, BTreeSet};

/// The fields of a row that are numbers; they are the first columns of an input.
const NUMBERS: [usize; 6] = [0, 2, 4, 10, 11, 12];
/// The fields that are categories; each has a column for every category in the training rows, in
/// alphabetical order.
const CATEGORIES: [usize; 8] = [1, 3, 5, 6, 7, 8, 9, 13];
const LABEL: usize = 14;

fl_core::settings! {
    /// Census rows from UCI's own table, income above 50,000 or not: numbers, and one column per
    /// category; an unknown category is all 0.
    pub struct AdultRaw {
        /// Scaling of the columns of numbers.
        scale: Scale = Scale::Standard;
    }
}
fl_data_kit::data_set!("adult-raw" => AdultRaw);

impl DataSet for AdultRaw {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            folder: "adult",
            files: &[&["adult.data"], &["adult.test"]],
            source: "Adult, UCI Machine Learning Repository",
            licence: LICENCE,
            rows: Some((32_561, 16_281)),
            statistics: None,
            sparse: false,
        }
    }

    fn task(&self) -> Option<Task> {
        class_task(&[105], 2)
    }

    fn downloads(&self) -> &'static [Download] {
        &[
            Download {
                folder: "https://archive.ics.uci.edu/ml/machine-learning-databases/adult",
                file: "adult.data",
                bytes: 3_974_305,
                sha256: "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            },
            Download {
                folder: "https://archive.ics.uci.edu/ml/machine-learning-databases/adult",
                file: "adult.test",
                bytes: 2_003_153,
                sha256: "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            },
        ]
    }

    /// Rows that are not scaled hold whole numbers, which an embedding can look up.
    fn vocabulary(&self) -> Option<usize> {
        (self.scale == Scale::Standard).then_some(0)
    }

    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        let [train, test] = parts(folder)?;
        Ok(Rows::new(train, test))
    }

    /// The columns of categories stay 0 and 1.
    fn scale(&self, train: &Inputs) -> Option<Normalise> {
        (self.scale == Scale::Standard).then(|| standard(train, NUMBERS.len()))
    }
}

struct Row {
    numbers: [f32; NUMBERS.len()],
    categories: [String; CATEGORIES.len()],
    label: u32,
}

/// Training and test rows. `?` (unknown) and categories that no training row has are 0 in all their
/// columns.
fn parts(folder: &Folder<'_>) -> Result<[Part; 2]> {
    let train = folder.read("adult.data", |bytes| rows(&bytes))?;
    let test = folder.read("adult.test", |bytes| rows(&bytes))?;
    let seen: BTreeSet<(usize, &str)> = train.iter().flat_map(named).collect();
    let columns: BTreeMap<(usize, &str), usize> = seen
        .into_iter()
        .enumerate()
        .map(|(at, key)| (key, NUMBERS.len() + at))
        .collect();
    Ok([encode(&train, &columns), encode(&test, &columns)])
}

fn named(row: &Row) -> impl Iterator<Item = (usize, &str)> {
    row.categories
        .iter()
        .map(String::as_str)
        .enumerate()
        .filter(|(_, name)| *name != "?")
}

fn encode(rows: &[Row], columns: &BTreeMap<(usize, &str), usize>) -> Part {
    let width = NUMBERS.len() + columns.len();
    let mut data = vec![0.0; rows.len() * width];
    for (out, row) in data.chunks_mut(width).zip(rows) {
        out[..NUMBERS.len()].copy_from_slice(&row.numbers);
        named(row)
            .filter_map(|key| columns.get(&key))
            .for_each(|column| out[*column] = 1.0);
    }
    let of = rows.iter().map(|row| row.label).collect();
    (
        Inputs::Dense {
            shape: vec![width],
            data,
        },
        Labels::Classes { of, classes: 2 },
    )
}

fn rows(bytes: &[u8]) -> Result<Vec<Row>> {
    // the test file begins with the line `|1x3 Cross validator`
    let table = csv::Table {
        separator: b',',
        quotes: false,
        comment: Some(b'|'),
        header: false,
        columns: 15,
    };
    let mut rows = vec![];
    table.rows(bytes, |fields| {
        let mut numbers = [0.0; NUMBERS.len()];
        for (number, at) in numbers.iter_mut().zip(NUMBERS) {
            *number = csv::number(fields[at]).with_context(|| format!("field {}", at + 1))?;
        }
        let categories = CATEGORIES.map(|at| fields[at].to_string());
        ensure!(
            categories.iter().all(|c| !c.is_empty()),
            "an empty field; an unknown one is `?`"
        );
        // labels of the test file end in a dot
        let label = match fields[LABEL].trim_end_matches('.') {
            "<=50K" => 0,
            ">50K" => 1,
            other => bail!("the label is `{other}`; it must be <=50K or >50K"),
        };
        rows.push(Row {
            numbers,
            categories,
            label,
        });
        Ok(())
    })?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Not-in-family, White, Male, 2174, 0, 40, ?";

    #[test]
    fn categories_become_columns_and_unknown_ones_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let facts = AdultRaw { scale: Scale::None }.facts();
        std::fs::create_dir(dir.path().join("adult")).unwrap();
        let private = ROW.replace("State-gov", "Private");
        std::fs::write(
            dir.path().join("adult/adult.data"),
            format!("{ROW}, <=50K\n{private}, >50K\n\n"),
        )
        .unwrap();
        let new = ROW.replace("State-gov", "Federal-gov");
        std::fs::write(
            dir.path().join("adult/adult.test"),
            format!("|1x3 Cross validator\n{new}, >50K.\n"),
        )
        .unwrap();
        let parts = parts(&Folder::new("adult-raw", facts, dir.path())).unwrap();
        // two kinds of work, and one each of education, marriage, relation, race and sex
        assert_eq!(
            (parts[0].0.width(), parts[0].0.len(), parts[1].0.len()),
            (13, 2, 1)
        );
        let row = |part: usize, at| {
            let mut out = vec![0.0; 13];
            parts[part].0.write_row(at, &mut out);
            out
        };
        assert_eq!(
            row(0, 0),
            [
                39.0, 77516.0, 13.0, 2174.0, 0.0, 40.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0
            ]
        );
        assert_eq!(row(0, 1)[6..8], [1.0, 0.0]);
        assert_eq!(row(1, 0)[6..8], [0.0, 0.0]);
        assert_eq!(
            parts[1].1,
            Labels::Classes {
                of: vec![1],
                classes: 2
            }
        );
    }

    #[test]
    fn rows_that_are_not_scaled_may_be_looked_up() {
        let words = |scale| AdultRaw { scale }.vocabulary();
        assert_eq!([Scale::Standard, Scale::None].map(words), [Some(0), None]);
    }

    #[test]
    fn wrong_rows_say_why() {
        let wrong = |text: String, part: &str| {
            let error = format!("{:#}", rows(text.as_bytes()).map(drop).unwrap_err());
            assert!(error.contains(part), "{error}");
        };
        wrong(format!("{ROW}, maybe"), "line 1: the label is `maybe`");
        wrong(
            format!("{}, >50K", ROW.replace("39", "nan")),
            "line 1: field 1: found `nan`",
        );
        wrong(
            format!("{}, >50K", ROW.replace("White", "")),
            "an empty field",
        );
        wrong(ROW.to_string(), "14 fields; a row has 15");
    }
}
