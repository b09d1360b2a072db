//! The classes of rows, as they are found.

use crate::settings::Files;
use anyhow::{Result, bail, ensure};
use fl_core::settings::show;
use std::collections::BTreeMap;

/// More classes than this are numbers to be predicted, or ids.
const MAX_CLASSES: usize = 10_000;

/// The classes, as they are found.
pub(crate) struct Classes {
    index: BTreeMap<String, u32>,
    /// No class is added any more.
    pub(crate) closed: bool,
    pub(crate) given: bool,
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
            given: files.classes.is_some(),
        }
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

    /// Names in order (numbers by size, others by letters), and the place of each found class in
    /// it.
    pub(crate) fn finish(&self) -> (Vec<String>, Vec<u32>) {
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
        (
            names.into_iter().map(|(name, _)| name.clone()).collect(),
            place,
        )
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
