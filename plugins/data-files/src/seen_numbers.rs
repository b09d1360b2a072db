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

/// What the fields of numbers of one column hold.
pub(crate) struct SeenNumbers {
    all: usize,
    /// The numbers, as long as they are whole and all different.
    whole: Option<HashSet<i64>>,
    low: f64,
    high: f64,
    /// The least and largest of those that are no mark.
    rest: (f64, f64),
    /// How often each of [`MARKS`] occurs.
    marks: BTreeMap<usize, usize>,
    /// The first with a leading zero.
    padded: Option<String>,
    /// Those like `41.000`, the first, and how many end in zeros.
    grouped: usize,
    first_grouped: String,
    ends_in_zeros: usize,
    /// Others with a point, or without one.
    decimals: usize,
    plain: usize,
    /// The two largest sizes, and where the largest stands.
    largest: (f64, String),
    second: f64,
}

impl Default for SeenNumbers {
    fn default() -> Self {
        Self {
            all: 0,
            whole: Some(HashSet::new()),
            low: f64::INFINITY,
            high: f64::NEG_INFINITY,
            rest: (f64::INFINITY, f64::NEG_INFINITY),
            marks: BTreeMap::new(),
            padded: None,
            grouped: 0,
            first_grouped: String::new(),
            ends_in_zeros: 0,
            decimals: 0,
            plain: 0,
            largest: (0.0, String::new()),
            second: 0.0,
        }
    }
}

impl SeenNumbers {
    /// Takes a field that is a number; `place` is its file and line.
    pub fn see(&mut self, text: &str, place: impl Fn() -> String) {
        let Some(number) = text.parse::<f64>().ok().filter(|n| n.is_finite()) else {
            return;
        };
        self.all += 1;
        (self.low, self.high) = (self.low.min(number), self.high.max(number));
        self.whole = self.whole.take().filter(|_| number.fract() == 0.0);
        if let Some(known) = &mut self.whole
            && !known.insert(number as i64)
        {
            self.whole = None;
        }
        match MARKS.iter().position(|mark| *mark == number) {
            Some(mark) => *self.marks.entry(mark).or_default() += 1,
            None => self.rest = (self.rest.0.min(number), self.rest.1.max(number)),
        }
        let digits = text.trim_start_matches(['-', '+']);
        let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        match digits.split_once('.') {
            Some((whole, part))
                if (1..4).contains(&whole.len()) && part.len() == 3 && !whole.starts_with('0') =>
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
        let size = number.abs();
        if size > self.largest.0 {
            self.second = self.largest.0;
            self.largest = (size, place());
        } else {
            self.second = self.second.max(size);
        }
    }

    /// What the numbers of the column `name` may be instead of inputs.
    pub fn doubts_of_inputs(&self, name: &str) -> Vec<String> {
        let (all, mut found) = (self.all, Vec::new());
        let span = self.high - self.low;
        if all >= ROWS && self.whole.is_some() && span < 2.0 * all as f64 {
            found.push(format!(
                "column `{name}` has {all} different whole numbers from {} to {}: say `columns: {{{name}: skip}}` if it is \
                 an id",
                self.low, self.high
            ));
        }
        if let Some(padded) = &self.padded {
            found.push(format!(
                "column `{name}` has numbers with leading zeros, such as `{padded}`: say `columns: {{{name}: category}}` if \
                 it is a code"
            ));
        }
        found.extend(self.doubts(&format!("column `{name}`")));
        found
    }

    /// What numbers of `column`, which is a name for it, may mean.
    pub fn doubts(&self, column: &str) -> Vec<String> {
        let (all, mut found) = (self.all, Vec::new());
        let zeros = 2 * self.ends_in_zeros >= self.grouped;
        if self.grouped >= 3 && self.decimals == 0 && (self.plain > 0 || zeros) {
            let first = &self.first_grouped;
            found.push(format!(
                "{column} has {} numbers like `{first}`: if the point separates thousands, write {}",
                self.grouped,
                first.replace('.', "")
            ));
        }
        let (low, high) = self.rest;
        let far = |mark: f64| mark < low - (high - low) || mark > high + (high - low);
        if let Some((mark, times)) = self.marks.iter().max_by_key(|(_, times)| **times)
            && *times >= 3
            && 100 * times >= all
            && low < high
            && far(MARKS[*mark])
        {
            let mark = MARKS[*mark];
            found.push(format!(
                "{column} is {mark} in {times} of {all} rows, far from all others: add \"{mark}\" to `missing` if it \
                 means that the number is missing"
            ));
        }
        let (largest, place) = &self.largest;
        if all >= ROWS && self.second > 0.0 && *largest >= FAR * self.second {
            found.push(format!(
                "{column} holds {largest:e} at {place}, {FAR} times any other of its numbers or more"
            ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubts(numbers: impl IntoIterator<Item = String>) -> String {
        let mut seen = SeenNumbers::default();
        for (at, number) in numbers.into_iter().enumerate() {
            seen.see(&number, || format!("a.csv:{}", at + 2));
        }
        seen.doubts_of_inputs("x").join("; ")
    }

    #[test]
    fn numbers_that_may_be_something_else_are_named() {
        let number = |k: usize| k * 37 % 100 + 1000;
        assert_eq!(
            doubts((0..100).map(|k| number(k).to_string())),
            "column `x` has 100 different whole numbers from 1000 to 1099: say `columns: {x: skip}` if it is an id"
        );
        let codes = (0..30).map(|k| format!("{:05}", k * k % 7 * 1067));
        let said = doubts(codes);
        assert!(
            said.contains(
                "leading zeros, such as `00000`: say `columns: {x: category}` if it is a code"
            ),
            "{said}"
        );
        let mixed = (0..30).map(|k| {
            if k % 3 == 0 {
                "850".into()
            } else {
                format!("{}.2{k:02}", k % 5 + 1)
            }
        });
        let said = doubts(mixed);
        assert!(
            said.contains("20 numbers like `2.201`: if the point separates thousands, write 2201"),
            "{said}"
        );
        let rounded = (0..30).map(|k| format!("{}.000", k % 9 + 41));
        assert!(doubts(rounded).contains("like `41.000`"));
        let marked = (0..40).map(|k| {
            if k % 10 == 0 {
                "-999".into()
            } else {
                format!("{}.5", k % 7)
            }
        });
        let said = doubts(marked);
        assert!(
            said.contains(
                "is -999 in 4 of 40 rows, far from all others: add \"-999\" to `missing`"
            ),
            "{said}"
        );
        let large = (0..40).map(|k| {
            if k == 7 {
                "1e30".into()
            } else {
                format!("{}.5", k % 7)
            }
        });
        let said = doubts(large);
        assert_eq!(
            said,
            "column `x` holds 1e30 at a.csv:9, 1000 times any other of its numbers or more"
        );
    }

    #[test]
    fn plain_numbers_are_not_named() {
        for plain in [
            // ages, measures of three decimals, amounts, years, a small column, marks among their like
            (0..60)
                .map(|k| (k * 7 % 50).to_string())
                .collect::<Vec<_>>(),
            (0..60)
                .map(|k| format!("{}.{:03}", k % 5, k * 37 % 1000))
                .collect(),
            (0..60)
                .map(|k| (k * k * 7919 % 100_000).to_string())
                .collect(),
            (0..60).map(|k| (2000 + k % 20).to_string()).collect(),
            (0..10).map(|k| k.to_string()).collect(),
            (0..60).map(|k| ((k % 20) * 111).to_string()).collect(),
            (0..60).map(|_| "0".to_string()).collect(),
        ] {
            assert_eq!(doubts(plain.clone()), "", "{plain:?}");
        }
    }
}
