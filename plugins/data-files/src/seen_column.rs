//! How a column looks whose kind the spec does not state.

use crate::classes::{alike, short};
use crate::column_kinds::Column;
use crate::seen_numbers::{Place, SeenNumbers};
use crate::table::Table;
use anyhow::{Result, bail, ensure};
use fl_core::first_names;
use std::collections::{BTreeMap, BTreeSet};

/// A column with more categories than this is text, or an id.
pub(crate) const MAX_CATEGORIES: usize = 1000;

/// What stands in the fields of a column of all training files.
pub(crate) struct SeenColumn<'t> {
    name: &'t str,
    tables: &'t [Table],
    /// Fields that are not missing.
    present: usize,
    missing: usize,
    /// Fields that are numbers.
    numbers: usize,
    seen: SeenNumbers,
    /// Fields that are not, but are numbers to a reader: `1,200`, `$5`, `6 kg`.
    written: usize,
    /// The units of those in letters, as far as they are few.
    units: BTreeSet<&'t str>,
    /// Texts that are not numbers, as far as they are few, and how often each occurs.
    others: BTreeMap<&'t str, usize>,
    /// Where the first of them is: the field, and its file and line.
    other: Option<(&'t str, String)>,
    /// A file in which every field is a number, and another one in which some are not.
    files: [Option<&'t Table>; 2],
}

impl<'t> SeenColumn<'t> {
    /// Looks at column `column` of the first table; `orders` has its place in each table.
    pub fn of(
        tables: &'t [Table],
        orders: &[Vec<usize>],
        column: usize,
        is_missing: impl Fn(&str) -> bool,
    ) -> Self {
        let mut seen = Self {
            name: &tables[0].names[column],
            tables,
            present: 0,
            missing: 0,
            numbers: 0,
            seen: SeenNumbers::default(),
            written: 0,
            units: BTreeSet::new(),
            others: BTreeMap::new(),
            other: None,
            files: [None, None],
        };
        for (at, (table, order)) in tables.iter().zip(orders).enumerate() {
            let (mut here, mut numbers) = (0, 0);
            for row in 0..table.len() {
                let cell = table.cell(row, order[column]);
                if is_missing(cell) {
                    seen.missing += 1;
                    continue;
                }
                here += 1;
                if number(cell).is_some() {
                    numbers += 1;
                    seen.seen.see(cell, (at, row));
                    continue;
                }
                if let Some(unit) = written_number(cell) {
                    seen.written += 1;
                    if !unit.is_empty() && seen.units.len() <= UNITS {
                        seen.units.insert(unit);
                    }
                }
                seen.other.get_or_insert_with(|| (cell, table.place(row)));
                // enough to know what the column is
                if seen.others.len() <= MAX_CATEGORIES {
                    *seen.others.entry(cell).or_default() += 1;
                }
            }
            seen.present += here;
            seen.numbers += numbers;
            if here > 0 {
                seen.files[usize::from(numbers < here)].get_or_insert(table);
            }
        }
        seen
    }

    /// Numbers if every field is one, categories otherwise.
    ///
    /// # Errors
    /// If no field is there, or the column is one of numbers with some that fl cannot read.
    pub fn kind(&self) -> Result<Column> {
        let (name, present) = (self.name, self.present);
        ensure!(
            present > 0,
            "{}: column `{name}` is missing in every row; say `columns: {{{name}: skip}}`",
            self.tables[0].path.display()
        );
        let Some((cell, line)) = &self.other else {
            return Ok(Column::Number(fl_core::settings::defaults()));
        };
        let mostly = 2 * self.numbers >= present || self.files.iter().all(Option::is_some);
        let all = self.numbers + self.written == present;
        let one_unit = self.units.len() <= UNITS && self.others.len() > FEW;
        let written = all && (self.units.is_empty() || one_unit);
        if !(written || (self.numbers > 0 && mostly)) {
            return Ok(Column::Category(fl_core::settings::defaults()));
        }
        let mut others = match self.others.len() {
            1 => String::new(),
            _ => format!("; others are {}", self.most_others()),
        };
        if let [Some(file), Some(_)] = self.files {
            others += &format!("; in {} all are", file.path.display());
        }
        bail!(
            "{line}: column `{name}`: {} of {present} values are numbers, and `{}` is not{others}; write plain numbers \
             (`1234.5`, without unit or `,`), or add texts that mean a missing number to `missing`, or say \
             `columns: {{{name}: category}}`",
            self.numbers,
            short(cell)
        )
    }

    /// Why a column of categories may be something else, and how many of its fields are missing.
    pub fn doubt(&self) -> Option<String> {
        let name = self.name;
        let (cell, _) = self.other.as_ref()?;
        let mut all = Vec::new();
        let (present, texts) = (self.present, self.others.len());
        if self.missing > 0 {
            let rows = present + self.missing;
            all.push(format!(
                "column `{name}` is missing in {} of {rows} rows",
                self.missing
            ));
        }
        if self.numbers > 0 {
            let numbers = self.numbers;
            all.push(format!(
                "column `{name}` has categories, though {numbers} of {present} fields are numbers; others are {}",
                self.most_others()
            ));
        } else if self.written == present && self.units.len() <= UNITS {
            all.push(format!(
                "the fields of column `{name}` look like numbers with a unit (`{}`)",
                short(cell)
            ));
        } else if present >= 10 && 10 * texts > 9 * present {
            all.push(format!(
                "column `{name}` has {texts} different texts in {present} rows: say `columns: {{{name}: skip}}` if it is an id"
            ));
        } else if texts > 2 * FEW
            && self
                .others
                .keys()
                .all(|text| text.contains(char::is_numeric))
        {
            all.push(format!(
                "column `{name}` has {texts} categories, each with a digit, such as `{}`: write plain numbers if they are numbers",
                short(cell)
            ));
        }
        if let Some(alike) = alike(self.others.keys().copied()) {
            all.push(format!("in column `{name}` {alike}"));
        }
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Why the numbers of a column of numbers may be something else, each in a text.
    pub fn doubts_of_numbers(&self) -> Vec<String> {
        if self.other.is_some() {
            return Vec::new();
        }
        let place = |(table, row): Place| self.tables[table].place(row);
        self.seen.doubts_of_inputs(self.name, place)
    }

    /// The most frequent texts that are not numbers.
    fn most_others(&self) -> String {
        let mut most: Vec<(&&str, &usize)> = self.others.iter().collect();
        most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shown = most
            .iter()
            .map(|(cell, n)| format!("`{}` ({n})", short(cell)));
        first_names(&shown.collect::<Vec<_>>(), 3)
    }
}

/// No more different texts than these are categories, even if each is a number with a unit.
const FEW: usize = 10;
/// More different letters behind numbers than these are no units: seats 12A, 12B, 14C.
const UNITS: usize = 2;

pub(crate) fn number(text: &str) -> Option<f32> {
    text.parse::<f32>().ok().filter(|value| value.is_finite())
}

/// Is it a number to a reader, though not to a program? Gives its unit in letters, or an empty text.
fn written_number(text: &str) -> Option<&str> {
    let sign = |c: char| ['+', '-', '$', '€', '£', ' '].contains(&c);
    // a spreadsheet's text
    let inner = text
        .strip_prefix("=\"")
        .and_then(|text| text.strip_suffix('"'));
    let text = inner.unwrap_or(text).trim_start_matches(sign);
    let end = text.rfind(|c: char| c.is_ascii_digit())? + 1;
    let (body, unit) = text.split_at(end);
    let unit = unit.trim_matches(['%', '$', '€', '£', '°', ' ', '.', '-']);
    if !unit.chars().all(char::is_alphabetic) {
        return None;
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let grouped = |separator: char| {
        let (whole, rest) = match separator {
            '.' => body.split_once(',').unwrap_or((body, "0")),
            ',' => body.split_once('.').unwrap_or((body, "0")),
            _ => body.split_once(['.', ',']).unwrap_or((body, "0")),
        };
        let mut groups = whole.split(separator);
        let first = groups
            .next()
            .is_some_and(|first| digits(first) && first.len() < 4);
        first && groups.all(|group| digits(group) && group.len() == 3) && digits(rest)
    };
    let plain = number(body).is_some();
    let comma = body
        .split_once(',')
        .is_some_and(|(whole, part)| digits(whole) && digits(part));
    let separators = [',', '.', '\'', '’', '_', ' ', '\u{a0}', '\u{202f}'];
    (plain || comma || separators.into_iter().any(grouped)).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_a_program_cannot_read_are_known() {
        for bare in [
            "1,200",
            "12,5",
            "$5",
            "1'000",
            "1 000",
            "40 %",
            "-3,1",
            "3€",
            "1.200.000",
            "1,200.50",
            "=\"41\"",
        ] {
            assert_eq!(written_number(bare), Some(""), "{bare}");
        }
        for unit in ["6 kg", "6kg", "1,5 m", "20µg", "37°C"] {
            assert!(number(unit).is_none());
            assert!(
                written_number(unit).is_some_and(|unit| !unit.is_empty()),
                "{unit}"
            );
        }
        for other in [
            "",
            "kg",
            "18-25",
            "2024-01-05",
            "1.2.2024",
            "1/2",
            "10:30",
            "a1",
            "n/a",
            "<50",
            "2a3",
        ] {
            assert_eq!(written_number(other), None, "{other}");
        }
    }
}
