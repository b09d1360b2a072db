//! The classes of rows, as they are found.

use crate::settings::Files;
use anyhow::{Result, bail, ensure};
use fl_core::Labels;
use fl_core::settings::show;
use ndarray::Array2;
use std::collections::BTreeMap;

/// More classes than this are numbers to be predicted, or ids.
const MAX_CLASSES: usize = 10_000;

/// The classes, as they are found.
pub(crate) struct Classes {
    index: BTreeMap<String, u32>,
    /// No class is added any more.
    pub(crate) closed: bool,
    pub(crate) given: bool,
    /// They are those of the format and not of the rows.
    pub(crate) given_by_format: bool,
    /// Labels of which a row can have several; then what stands in place of a class is the number of
    /// a combination of them.
    findings: Option<Findings>,
}

/// Combinations of labels: 1 present, 0 absent, -1 unknown.
struct Findings {
    names: Vec<String>,
    number: BTreeMap<Vec<i8>, u32>,
}

/// What numbers in place of classes stand for.
pub(crate) enum Meaning {
    /// The place of each found class among all.
    Classes(Vec<u32>, usize),
    /// The labels of each combination.
    Findings(Vec<Vec<i8>>, usize),
}

impl Meaning {
    /// The labels of rows with these numbers.
    pub(crate) fn of(&self, numbers: &[u32]) -> Labels {
        match self {
            // rows without a label are all of class 0, which is never read
            Self::Classes(place, classes) => Labels::Classes {
                of: numbers
                    .iter()
                    .map(|at| place.get(*at as usize).copied().unwrap_or(0))
                    .collect(),
                classes: (*classes).max(1),
            },
            Self::Findings(all, width) => Labels::Multi(Array2::from_shape_fn(
                (numbers.len(), *width),
                |(row, at)| all[numbers[row] as usize][at],
            )),
        }
    }
}

impl Classes {
    pub(crate) fn new(files: &Files) -> Self {
        let given = files.classes.iter().flatten();
        Self {
            index: given
                .zip(0..)
                .map(|(word, at)| (word.0.clone(), at))
                .collect(),
            closed: files.classes.is_some(),
            given: files.classes.is_some() || files.findings.is_some(),
            given_by_format: false,
            findings: files.findings.as_ref().map(|names| Findings {
                names: names.iter().map(|name| name.0.clone()).collect(),
                number: BTreeMap::new(),
            }),
        }
    }

    /// The names of the labels of which a row can have several.
    pub(crate) fn findings(&self) -> Option<&[String]> {
        self.findings.as_ref().map(|findings| &findings.names[..])
    }

    /// The number of the combination of labels with these values, `None` where one is unknown.
    pub(crate) fn combination(
        &mut self,
        of: impl Iterator<Item = Result<Option<bool>>>,
    ) -> Result<u32> {
        let value = |label: Result<Option<bool>>| label.map(|label| label.map_or(-1, i8::from));
        let found = of.map(value).collect::<Result<Vec<i8>>>()?;
        let Some(known) = self.findings.as_mut().map(|findings| &mut findings.number) else {
            bail!("the rows have classes");
        };
        let next = known.len() as u32;
        Ok(*known.entry(found).or_insert(next))
    }

    /// These are the classes, in their order.
    pub(crate) fn give(&mut self, names: impl Iterator<Item = String>) {
        self.index = names.zip(0..).collect();
        (self.closed, self.given) = (true, true);
    }

    /// The number of a class.
    pub(crate) fn of(&mut self, name: &str) -> Result<u32> {
        if let Some(at) = self.index.get(name) {
            return Ok(*at);
        }
        if self.closed {
            let known: Vec<&str> = self.index.keys().take(20).map(String::as_str).collect();
            let whose = if self.given {
                "of the spec"
            } else {
                "of the training rows"
            };
            bail!(
                "`{}` is none of the classes {whose}: {}",
                short(name),
                known.join(", ")
            );
        }
        ensure!(
            self.index.len() < MAX_CLASSES,
            "more than {MAX_CLASSES} classes: only classes can be learnt, not numbers"
        );
        let at = self.index.len() as u32;
        self.index.insert(name.into(), at);
        Ok(at)
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Names in order (numbers by size, others by letters), and what the numbers of rows stand for.
    pub(crate) fn finish(&self) -> (Vec<String>, Meaning) {
        if let Some(Findings { names, number }) = &self.findings {
            let mut all = vec![Vec::new(); number.len()];
            for (labels, at) in number {
                all[*at as usize].clone_from(labels);
            }
            return (names.clone(), Meaning::Findings(all, names.len()));
        }
        let mut names: Vec<(&String, &u32)> = self.index.iter().collect();
        let as_number = |name: &str| name.parse::<f64>().ok().filter(|n| n.is_finite());
        if self.given {
            names.sort_by_key(|(_, at)| **at);
        } else if names.iter().all(|(name, _)| as_number(name).is_some()) {
            names.sort_by(|a, b| {
                let number = |name: &str| as_number(name).unwrap_or(0.0);
                number(a.0).total_cmp(&number(b.0)).then(a.0.cmp(b.0))
            });
        }
        let mut place = vec![0; names.len()];
        for (new, (_, old)) in names.iter().enumerate() {
            place[**old as usize] = new as u32;
        }
        let names: Vec<String> = names.into_iter().map(|(name, _)| name.clone()).collect();
        let meaning = Meaning::Classes(place, names.len());
        (names, meaning)
    }
}

/// The text of a number as a class: `1` for 1.0.
pub(crate) fn class_name(number: f64) -> String {
    match number.fract() == 0.0 && number.abs() < 1e15 {
        true => format!("{}", number as i64),
        false => show(&number.into()),
    }
}

/// What an error quotes.
pub(crate) fn short(text: &str) -> String {
    match text.chars().count() {
        0..=40 => text.to_string(),
        _ => text.chars().take(37).chain("...".chars()).collect(),
    }
}
