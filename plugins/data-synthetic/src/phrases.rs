//! `phrases`: texts of an invented language, whose next letter is the class.

use crate::synthetic::check_rows;
use anyhow::{Context, Result};
use fl_core::{Inputs, Labels, Stream, Task};
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, check_ranges, class_task};

fl_core::settings! {
    /// Made here: texts of numbered letters, and the letter that comes next, as rows of LEAF's
    /// Shakespeare are. The first letter says how far each letter of the text is from the one before
    /// it; the letters form a ring. Some letters are random.
    #[check(Phrases::fits)]
    pub struct Phrases {
        /// Letters of the language, numbered from 1; as many classes.
        letters: usize = 8, in 2..=10_000;
        /// Letters in a row.
        length: usize = 12, in 2..=100_000;
        /// Distances between neighbours: 1 up to this number, below `letters`.
        distances: usize = 3, in 1..;
        /// Share of letters inside a row that are random.
        noise: f64 = 0.3, in 0.0..=1.0;
        /// Training rows.
        train: usize = 1000, in 1..=10_000_000;
        /// Test rows.
        test: usize = 500, in 1..=10_000_000;
        /// The set with another seed is another set.
        seed: u64 = 0;
    }
}

fl_data_kit::data_set!("phrases" => Phrases);

impl DataSet for Phrases {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts::made(self.train, self.test)
    }

    fn task(&self) -> Option<Task> {
        class_task(&[self.length], self.letters)
    }

    fn vocabulary(&self) -> Option<usize> {
        Some(self.letters)
    }

    fn load(&self, _: &Folder<'_>) -> Result<Rows> {
        check_ranges(self).context("phrases")?;
        let stream = Stream::root(self.seed).child("phrases", 0);
        let part = |name: &str, rows: usize| {
            let mut data = Vec::with_capacity(rows * self.length);
            let mut of = Vec::with_capacity(rows);
            for row in 0..rows {
                let mut draws = stream.child(name, row as u64).draws();
                let first = draws.below(self.letters);
                let step = 1 + first % self.distances;
                let mut letter = first;
                data.push((first + 1) as f32);
                for _ in 1..self.length {
                    letter = if draws.uniform() < self.noise {
                        draws.below(self.letters)
                    } else {
                        (letter + step) % self.letters
                    };
                    data.push((letter + 1) as f32);
                }
                of.push(((letter + step) % self.letters) as u32);
            }
            let (shape, classes) = (vec![self.length], self.letters);
            (
                Inputs::Dense { shape, data },
                Labels::Classes { of, classes },
            )
        };
        Ok(Rows::new(
            part("train", self.train),
            part("test", self.test),
        ))
    }
}

impl Phrases {
    fn fits(&self) -> Result<(), String> {
        if self.distances >= self.letters {
            return Err(format!(
                "`distances` must be below `letters` ({}), got {}",
                self.letters, self.distances
            ));
        }
        check_rows(&[self.letters, self.train, self.test], self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Make;
    use fl_core::settings::defaults;

    #[test]
    fn exact_the_first_letter_says_how_far_the_class_is_from_the_last() {
        let [(inputs, labels), (test, _)] = defaults::<Phrases>().make().unwrap();
        let (Inputs::Dense { data, .. }, Labels::Classes { of, .. }) = (&inputs, &labels) else {
            panic!("letters and classes")
        };
        assert_eq!((inputs.len(), test.len(), labels.classes()), (1000, 500, 8));
        let mut regular = 0;
        for (row, class) in data.chunks_exact(12).zip(of) {
            let letters: Vec<u32> = row.iter().map(|n| *n as u32 - 1).collect();
            let step = 1 + letters[0] % 3;
            assert_eq!(*class, (letters[11] + step) % 8);
            let pairs = letters.windows(2);
            regular += pairs.filter(|pair| pair[1] == (pair[0] + step) % 8).count();
        }
        // a random letter is the regular one by chance, one time in eight
        let share = regular as f64 / 11_000.0;
        assert!((share - (0.7 + 0.3 / 8.0)).abs() < 0.02, "{share}");
    }

    #[test]
    fn exact_the_set_never_changes() {
        let few = Phrases {
            train: 20,
            ..defaults()
        };
        let [(inputs, _), _] = few.make().unwrap();
        let Inputs::Dense { data, .. } = inputs else {
            panic!("phrases are dense")
        };
        assert_eq!(
            crate::synthetic::hash(data.iter().flat_map(|v| v.to_le_bytes())),
            "5de54a669953f858"
        );
    }

    #[test]
    fn settings_are_checked() {
        let far = Phrases {
            distances: 8,
            ..defaults()
        };
        assert_eq!(
            format!("{:#}", far.make().unwrap_err()),
            "phrases: `distances` must be below `letters` (8), got 8"
        );
    }
}
