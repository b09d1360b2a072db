//! Numbers that look like something else: ids, codes, thousands, marks of a missing number.

use std::collections::{BTreeMap, HashSet};

/// Numbers that often stand for a missing one.
const MARKS: [f64; 12] = [
    -9.0,
    -99.0,
    -999.0,
    -9999.0,
    -99_999.0,
    -999_999.0,
    999.0,
    9999.0,
    99_999.0,
    999_999.0,
    9_999_999.0,
    99_999_999.0,
];
/// Fewer rows than this tell nothing.
const ROWS: usize = 20;
/// A number this many times as large as any other is a mistake, or ruins a model.
const FAR: f64 = 1000.0;
/// No more ids are looked for in one file.
const MOST_IDS: usize = 1 << 20;

/// The table and the row of a field.
pub(crate) type Place = (usize, usize);

/// What the fields of numbers of one column hold.
pub(crate) struct SeenNumbers {
    all: usize,
    /// The file that is read, and its numbers, as long as they may be ids.
    file: (usize, Option<HashSet<i64>>),
    /// The least and largest number of that file.
    ends: (f64, f64),
    /// Those of the first file, and its number of rows.
    first: Option<(f64, f64, usize)>,
    /// Whether each file so far may hold ids.
    ids: bool,
    /// The least and largest number that is no mark.
    rest: (f64, f64),
    /// How often each of [`MARKS`] occurs, and its first text.
    marks: BTreeMap<usize, (usize, String)>,
    /// The first with a leading zero.
    padded: Option<String>,
    /// Those like `41.000`, the first, and how many end in zeros.
    grouped: usize,
    first_grouped: String,
    ends_in_zeros: usize,
    /// Others with a point, or without one.
    decimals: usize,
    plain: usize,
    /// The number of the largest size, where it stands, and the next size.
    largest: Option<(f64, Place)>,
    second: f64,
}

/// No number is within these ends.
const NO_ENDS: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);

impl Default for SeenNumbers {
    fn default() -> Self {
        Self {
            all: 0,
            file: (0, Some(HashSet::new())),
            ends: NO_ENDS,
            first: None,
            ids: true,
            rest: NO_ENDS,
            marks: BTreeMap::new(),
            padded: None,
            grouped: 0,
            first_grouped: String::new(),
            ends_in_zeros: 0,
            decimals: 0,
            plain: 0,
            largest: None,
            second: 0.0,
        }
    }
}

fn with(ends: (f64, f64), number: f64) -> (f64, f64) {
    (ends.0.min(number), ends.1.max(number))
}

impl SeenNumbers {
    /// Takes a field that is a number. The rows of a table come one after the other.
    pub fn see(&mut self, text: &str, place: Place) {
        let Some(number) = text.parse::<f64>().ok().filter(|n| n.is_finite()) else {
            return;
        };
        if place.0 != self.file.0 {
            self.end_file(place.0);
        }
        self.all += 1;
        self.ends = with(self.ends, number);
        let known = self.file.1.take();
        self.file.1 = known.filter(|known| number.fract() == 0.0 && known.len() < MOST_IDS);
        if let Some(known) = &mut self.file.1
            && !known.insert(number as i64)
        {
            self.file.1 = None;
        }
        match MARKS.iter().position(|mark| *mark == number) {
            Some(mark) => self.marks.entry(mark).or_insert((0, text.into())).0 += 1,
            None => self.rest = with(self.rest, number),
        }
        let digits = text.trim_start_matches(['-', '+']);
        let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        match digits.split_once('.') {
            Some((whole, part))
                if (1..4).contains(&whole.len())
                    && part.len() == 3
                    && !whole.starts_with('0')
                    && all_digits(whole)
                    && all_digits(part) =>
            {
                self.grouped += 1;
                self.ends_in_zeros += usize::from(part.ends_with("00"));
                if self.first_grouped.is_empty() {
                    self.first_grouped = text.into();
                }
            }
            None if all_digits(digits) => {
                self.plain += 1;
                if digits.len() > 1 && digits.starts_with('0') {
                    self.padded.get_or_insert_with(|| text.into());
                }
            }
            _ => self.decimals += 1,
        }
        let size = self.largest.map_or(0.0, |(largest, _)| largest.abs());
        if number.abs() > size {
            self.second = size;
            self.largest = Some((number, place));
        } else {
            self.second = self.second.max(number.abs());
        }
    }

    /// Looks at the ids of the file that ends, and begins another. Those of few rows tell nothing.
    fn end_file(&mut self, next: usize) {
        self.ids &= self.may_be_ids();
        let (low, high) = self.ends;
        let rows = self.file.1.as_ref().map_or(0, HashSet::len);
        self.first.get_or_insert((low, high, rows));
        (self.file, self.ends) = ((next, Some(HashSet::new())), NO_ENDS);
    }

    /// Are the numbers of the file that is read whole, all different and close together?
    fn may_be_ids(&self) -> bool {
        let span = self.ends.1 - self.ends.0;
        let close = |known: &HashSet<i64>| known.len() < ROWS || span < 2.0 * known.len() as f64;
        self.file.1.as_ref().is_some_and(close)
    }

    /// What the numbers of the column `name` may be instead of inputs, each in a text; `place`
    /// gives a file and line.
    pub fn doubts_of_inputs(&self, name: &str, place: impl Fn(Place) -> String) -> Vec<String> {
        let mut found = Vec::new();
        let rows = self.file.1.as_ref().map_or(0, HashSet::len);
        let (low, high, rows) = self.first.unwrap_or((self.ends.0, self.ends.1, rows));
        if rows >= ROWS && self.ids && self.may_be_ids() {
            found.push(format!(
                "column `{name}` has a number of its own in each row of a file, such as {low} to {high} in {rows} rows: \
                 say `columns: {{{name}: skip}}` if it is an id"
            ));
        }
        if let Some(padded) = &self.padded {
            found.push(format!(
                "column `{name}` has numbers with leading zeros, such as `{padded}`: say `columns: {{{name}: category}}` if \
                 it is a code"
            ));
        }
        let missing = |mark: &str| format!("add \"{mark}\" to `missing`");
        found.extend(self.doubts(&format!("column `{name}`"), missing, |at| {
            format!(" at {}", place(at))
        }));
        found
    }

    /// What the numbers of `label`, which are to be predicted, may mean, each in a text.
    pub fn doubts_of_labels(&self, label: &str) -> Vec<String> {
        self.doubts(label, |_| "leave these rows out".into(), |_| String::new())
    }

    fn doubts(
        &self,
        column: &str,
        missing: impl Fn(&str) -> String,
        place: impl Fn(Place) -> String,
    ) -> Vec<String> {
        let (all, mut found) = (self.all, Vec::new());
        let zeros = 2 * self.ends_in_zeros >= self.grouped;
        if self.grouped >= 3 && self.decimals == 0 && (self.plain > 0 || zeros) {
            let first = &self.first_grouped;
            found.push(format!(
                "{column} has {} numbers like `{first}`: write {} if the point separates thousands",
                self.grouped,
                first.replace('.', "")
            ));
        }
        let (low, high) = self.rest;
        let far = |mark: f64| low < high && (mark < 2.0 * low - high || mark > 2.0 * high - low);
        let often = |times: usize| times >= 3 && 100 * times >= all;
        let marks = self.marks.iter();
        let marks = marks.filter(|(mark, (times, _))| often(*times) && far(MARKS[**mark]));
        if let Some((_, (times, mark))) = marks.max_by_key(|(_, (times, _))| *times) {
            found.push(format!(
                "{column} is {mark} in {times} of {all} rows, far from its other numbers: {} if it means that the number \
                 is missing",
                missing(mark)
            ));
        }
        if let Some((largest, at)) = self.largest
            && all >= ROWS
            && self.second > 0.0
            && largest.abs() >= FAR * self.second
        {
            found.push(format!(
                "{column} holds {largest:e}{}, {FAR} times as large as any other of its numbers, or more",
                place(at)
            ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubts_of(files: &[Vec<String>]) -> String {
        let mut seen = SeenNumbers::default();
        for (file, numbers) in files.iter().enumerate() {
            for (row, number) in numbers.iter().enumerate() {
                seen.see(number, (file, row));
            }
        }
        let place = |(file, row)| format!("{file}.csv:{}", row + 2);
        seen.doubts_of_inputs("x", place).join("; ")
    }

    fn doubts(numbers: impl IntoIterator<Item = String>) -> String {
        doubts_of(&[numbers.into_iter().collect()])
    }

    #[test]
    fn numbers_that_may_be_something_else_are_named() {
        let id = |k: usize| (k * 37 % 100 + 1000).to_string();
        let due = "column `x` has a number of its own in each row of a file, such as 1000 to 1099 in 100 rows: say \
                   `columns: {x: skip}` if it is an id";
        assert_eq!(doubts((0..100).map(id)), due);
        // each file may begin anew
        let files: Vec<Vec<String>> = (0..3).map(|_| (0..100).map(id).collect()).collect();
        assert_eq!(doubts_of(&files), due);
        let one_with_others = [files[0].clone(), vec!["7".into(), "7".into()]];
        assert_eq!(doubts_of(&one_with_others), "");

        let codes = (0..30).map(|k| format!("{:05}", k * k % 7 * 1067));
        let due = "leading zeros, such as `00000`: say `columns: {x: category}` if it is a code";
        assert!(doubts(codes).contains(due));

        let mixed = (0..30).map(|k| match k % 3 {
            0 => "850".into(),
            _ => format!("{}.2{k:02}", k % 5 + 1),
        });
        let due = "20 numbers like `2.201`: write 2201 if the point separates thousands";
        assert!(doubts(mixed).contains(due));
        let rounded = (0..30).map(|k| format!("{}.000", k % 9 + 41));
        assert!(doubts(rounded).contains("like `41.000`"));

        // of two numbers that may be marks the one that is far
        let marked = (0..40).map(|k| match k % 10 {
            0 => "-999.0".into(),
            1 | 2 => "-9".into(),
            _ => format!("{}.5", k % 7 * 10 - 20),
        });
        let due =
            "is -999.0 in 4 of 40 rows, far from its other numbers: add \"-999.0\" to `missing` if";
        assert!(doubts(marked).contains(due));

        let large = (0..40).map(|k| match k {
            7 => "-1e30".into(),
            _ => format!("{}.5", k % 7),
        });
        let due = "column `x` holds -1e30 at 0.csv:9, 1000 times as large as any other of its numbers, or more";
        assert_eq!(doubts(large), due);
    }

    #[test]
    fn labels_have_their_own_advice() {
        let mut seen = SeenNumbers::default();
        for k in 0..40 {
            let text = if k % 10 == 0 {
                "-999".into()
            } else {
                format!("{}.5", k % 7)
            };
            seen.see(&text, (0, k));
        }
        let said = seen.doubts_of_labels("label `y`").join("; ");
        assert!(said.contains("leave these rows out if it means"), "{said}");
    }

    #[test]
    fn plain_numbers_are_not_named() {
        let of = |number: fn(u64) -> String| (0..60).map(number).collect::<Vec<_>>();
        for plain in [
            // ages, measures of three decimals, amounts, years, marks among their like
            of(|k| (k * 7 % 50).to_string()),
            of(|k| format!("{}.{:03}", k % 5, k * 37 % 1000)),
            of(|k| format!("{}.{}e3", k % 5 + 1, k % 10)),
            of(|k| (k * k * 7919 % 100_000).to_string()),
            of(|k| (2000 + k % 20).to_string()),
            of(|k| ((k % 20) * 111).to_string()),
            of(|_| "0".into()),
            // a small column
            of(|k| k.to_string())[..10].to_vec(),
        ] {
            assert_eq!(doubts(plain.clone()), "", "{plain:?}");
        }
    }
}
