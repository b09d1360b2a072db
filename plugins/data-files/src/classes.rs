//! The classes of rows, as they are found.

use crate::class_key::key;
use crate::seen_numbers::SeenNumbers;
use crate::settings::Files;
use anyhow::{Context, Result, bail, ensure};
use fl_core::settings::show;
use fl_core::{LabelScale, Labels, Loss, Numbers, first_names, metrics};
use fl_data_kit::NumberLabel;
use ndarray::Array2;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// More classes than this are numbers to be predicted, or ids.
const MAX_CLASSES: usize = 10_000;
/// More different numbers with decimals than this are numbers to be predicted.
const MAX_DECIMALS: usize = 20;
/// Numbers to predict may be off by this share of their deviation.
const LOST: f64 = 1e-3;

/// The classes, as they are found.
pub(crate) struct Classes {
    /// The number of each spelling: `1.0` has that of `1`.
    spelled: BTreeMap<String, u32>,
    /// The number of each key.
    index: BTreeMap<String, u32>,
    /// The name of each number: that of the spec, or the plainest spelling in the training rows.
    names: Vec<String>,
    /// No class is added any more.
    pub(crate) closed: bool,
    pub(crate) given: bool,
    /// They are those of the format and not of the rows.
    pub(crate) given_by_format: bool,
    /// Labels of which a row can have several; then what stands in place of a class is the number of
    /// a combination of them.
    findings: Option<Findings>,
    /// Numbers to predict; then what stands in place of a class is the place of a row's number.
    numbers: Option<FoundNumbers>,
}

/// Numbers to predict, as they are found.
struct FoundNumbers {
    how: NumberLabel,
    of: Vec<f64>,
    seen: SeenNumbers,
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
    /// All numbers to predict, their scale if it is known, and the loss of models that learn them.
    Numbers(Vec<f64>, Option<LabelScale>, Loss),
}

impl Meaning {
    /// Finds the scale of numbers to predict in these training rows, if the spec does not state it.
    /// Gives the note on that; `label` is what holds the numbers.
    pub(crate) fn find_scale(&mut self, own: &[u32], label: &str) -> Option<String> {
        let Self::Numbers(all, scale @ None, _) = self else {
            return None;
        };
        let own: Vec<f64> = own.iter().map(|at| all[*at as usize]).collect();
        let LabelScale { centre, spread } = *scale.insert(LabelScale::of(&own));
        Some(format!(
            "fl scales {label} by the mean {centre:.4} and the deviation {spread:.4} of the clients' {} rows; if they are \
             private, state the scale: `kind: {{ number: {{ centre: .., spread: .. }} }}` in `label`",
            own.len()
        ))
    }

    /// Says that numbers to predict lose digits, which tell these training rows apart: a model
    /// learns them on their scale with 32 bits.
    pub(crate) fn rounded(&self, own: &[u32], label: &str) -> Option<String> {
        let Self::Numbers(all, Some(LabelScale { centre, spread }), _) = self else {
            return None;
        };
        let own: Vec<f64> = own.iter().map(|at| all[*at as usize]).collect();
        let off = |number: &f64| {
            let kept = f64::from(((number - centre) / spread) as f32) * spread + centre;
            let many = number.abs() >= INEXACT;
            let read = Some(number.abs() * f64::EPSILON).filter(|_| many);
            (kept - number).abs().max(read.unwrap_or(0.0))
        };
        let squares = own.iter().map(|number| off(number).powi(2));
        let off = (squares.sum::<f64>() / own.len() as f64).sqrt();
        let (_, deviation) = metrics::mean_std(&own);
        let vary = |number: &f64| *number != own[0] || number.abs() >= INEXACT;
        (own.iter().any(vary) && off > LOST * deviation).then(|| {
            format!(
                "{label}: numbers lose digits on their scale (centre {centre:e}, spread {spread:e}, 32 bits): they are off by \
                 {off:.2e}, beside a deviation of {deviation:.2e}; state a `centre` near their mean and a `spread` near their \
                 deviation, or subtract a constant in the files"
            )
        })
    }

    /// The labels of rows with these numbers.
    pub(crate) fn of(&self, numbers: &[u32]) -> Result<Labels> {
        Ok(match self {
            Self::Numbers(all, scale, loss) => {
                let of: Vec<f64> = numbers.iter().map(|at| all[*at as usize]).collect();
                let scale = scale.context("the label has no scale yet")?;
                Labels::Numbers(Numbers::one(&of, scale, *loss)?)
            }
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
        })
    }
}

impl Classes {
    pub(crate) fn new(files: &Files) -> Self {
        let mut new = Self {
            spelled: BTreeMap::new(),
            index: BTreeMap::new(),
            names: Vec::new(),
            closed: files.classes.is_some(),
            given: files.classes.is_some() || files.findings.is_some() || files.number().is_some(),
            given_by_format: false,
            findings: files.findings.as_ref().map(|names| Findings {
                names: names.iter().map(|name| name.0.clone()).collect(),
                number: BTreeMap::new(),
            }),
            numbers: files.number().map(|how| FoundNumbers {
                how: how.clone(),
                of: Vec::new(),
                seen: SeenNumbers::default(),
            }),
        };
        for name in files.classes.iter().flatten() {
            new.add(&name.0);
        }
        new
    }

    /// A new class of this name.
    fn add(&mut self, name: &str) -> u32 {
        let at = self.names.len() as u32;
        self.spelled.insert(name.into(), at);
        self.index.insert(key(name).into(), at);
        self.names.push(name.into());
        at
    }

    /// The names of the labels of which a row can have several.
    pub(crate) fn findings(&self) -> Option<&[String]> {
        self.findings.as_ref().map(|findings| &findings.names[..])
    }

    /// What numbers to predict may mean, each in a text; `label` is what holds them.
    pub(crate) fn doubts(&self, label: &str) -> Vec<String> {
        let numbers = self.numbers.iter();
        numbers
            .flat_map(|found| found.seen.doubts_of_labels(label))
            .collect()
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
        names.for_each(|name| _ = self.add(&name));
        (self.closed, self.given) = (true, true);
    }

    /// The number of a class, however it is spelled, or the place of a number to predict.
    pub(crate) fn of(&mut self, name: &str) -> Result<u32> {
        if let Some(found) = &mut self.numbers {
            let number = name.trim().parse::<f64>().ok();
            let Some(number) = number.filter(|number| number.is_finite()) else {
                bail!("`{}` is not a number", short(name));
            };
            found.seen.see(name.trim(), (0, found.of.len()));
            found.of.push(number);
            return Ok(found.of.len() as u32 - 1);
        }
        if let Some(at) = self.spelled.get(name) {
            return Ok(*at);
        }
        if let Some(at) = self.index.get(&*key(name)) {
            let at = *at;
            self.spelled.insert(name.into(), at);
            let known = &mut self.names[at as usize];
            if !self.closed && plainness(name) < plainness(known) {
                *known = name.into();
            }
            return Ok(at);
        }
        if self.closed {
            let mut known: Vec<&str> = self.names.iter().map(String::as_str).collect();
            known.sort_unstable();
            known.truncate(20);
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
            self.names.len() < MAX_CLASSES,
            "more than {MAX_CLASSES} classes; if the label is a number to predict, say `kind: number` in `label`"
        );
        Ok(self.add(name))
    }

    /// As [`Self::of`], of a number.
    pub(crate) fn of_number(&mut self, number: f64) -> Result<u32> {
        match self.numbers {
            Some(_) => self.of(&number.to_string()),
            None => self.of(&class_name(number)?),
        }
    }

    /// Spellings that were read as a class of another spelling: `` `1.0` and `01` as `1` ``.
    pub(crate) fn respelled(&self) -> Option<String> {
        let mut of: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (spelling, at) in &self.spelled {
            if *spelling != self.names[*at as usize] {
                let spelling = format!("`{}`", short(spelling));
                of.entry(*at).or_default().push(spelling);
            }
        }
        let mut all: Vec<String> = of
            .iter()
            .map(|(at, all)| {
                let name = short(&self.names[*at as usize]);
                format!("{} as `{name}`", all[..all.len().min(3)].join(" and "))
            })
            .collect();
        all.sort();
        (!all.is_empty()).then(|| first_names(&all, 5))
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
        if let Some(FoundNumbers { how, of, .. }) = &self.numbers {
            let meaning = Meaning::Numbers(of.clone(), how.scale(), how.loss.loss());
            return (Vec::new(), meaning);
        }
        let known = &self.names;
        let mut order: Vec<usize> = (0..known.len()).collect();
        if !self.given {
            order.sort_by(|a, b| known[*a].cmp(&known[*b]));
            if let Some(numbers) = numbers(known) {
                order.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
            }
        }
        let mut place = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = new as u32;
        }
        let names: Vec<String> = order.iter().map(|at| known[*at].clone()).collect();
        let meaning = Meaning::Classes(place, names.len());
        (names, meaning)
    }
}

/// The classes as numbers, if all are.
fn numbers(names: &[String]) -> Option<Vec<f64>> {
    let number = |name: &String| name.trim().parse::<f64>().ok().filter(|n| n.is_finite());
    names.iter().map(number).collect()
}

/// What fl found of classes that the spec does not list, with the evidence: `rows` of each class
/// are in the clients' files that `files` names.
///
/// # Errors
/// If the classes are numbers to be predicted, or nearly every row has a class of its own.
pub(crate) fn found(
    names: &[String],
    rows: &[usize],
    respelled: Option<String>,
    files: &Files,
) -> Result<String> {
    let (label, number) = (files.label_name(), files.as_number());
    let (classes, all) = (names.len(), rows.iter().sum::<usize>());
    let numbers = numbers(names);
    let decimals = numbers.iter().flatten().find(|n| n.fract() != 0.0);
    let each_its_own = all >= 20 && 2 * classes > all;
    if each_its_own || (decimals.is_some() && classes > MAX_DECIMALS) {
        let example = match decimals {
            Some(number) => show(&(*number).into()),
            None => short(&names[0]),
        };
        bail!(
            "{label} has {classes} values in {all} rows, such as `{example}`: a class needs several rows each; if they are \
             numbers to predict, say `{number}`, and if they are classes, list them in `classes`"
        );
    }
    let mut text = format!(
        "fl found the {classes} classes in the clients' {all} rows: {}",
        first_names(
            &names.iter().map(|name| short(name)).collect::<Vec<_>>(),
            10
        )
    );
    if let Some(respelled) = respelled {
        text += &format!("; it reads {respelled}");
    }
    if numbers.is_some() && classes > MAX_DECIMALS && all < 10 * classes {
        text += &format!("; if {label} is a number to predict, say `{number}`");
    }
    let rare = names.iter().zip(rows).filter(|(_, rows)| **rows == 1);
    let rare: Vec<String> = rare.map(|(name, _)| format!("`{}`", short(name))).collect();
    if !rare.is_empty() && all >= 10 * classes {
        text += &format!("; of one row only: {}", first_names(&rare, 3));
    }
    // classes `a` and `A` are letters
    let words = names.iter().filter(|name| name.chars().count() > 1);
    if let Some(alike) = alike(words.map(String::as_str)) {
        text += &format!("; {alike}");
    }
    Ok(text + "; if they are private, list them in `classes`")
}

/// Says which of these names look alike to a reader, if any do.
pub(crate) fn alike<'n>(names: impl Iterator<Item = &'n str>) -> Option<String> {
    let mut known: BTreeMap<String, &str> = BTreeMap::new();
    let (mut capitals, mut hidden) = (Vec::new(), Vec::new());
    for name in names {
        let seen = name.chars().filter(|c| !has_no_width(*c));
        let seen = seen.map(|c| if is_hidden(c) { ' ' } else { c });
        let plain = seen.collect::<String>().trim().to_lowercase();
        let Some(first) = known.insert(plain, name) else {
            continue;
        };
        let pair = format!("`{}` and `{}`", short(first), short(name));
        if first.contains(is_hidden) || name.contains(is_hidden) {
            hidden.push(pair);
        } else {
            capitals.push(pair);
        }
    }
    let said = [("capital letters", capitals), ("hidden characters", hidden)];
    let said = said.into_iter().filter(|(_, pairs)| !pairs.is_empty());
    let said: Vec<String> = said
        .map(|(by, pairs)| format!("only {by} tell {} apart", first_names(&pairs, 3)))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Does a reader not see it?
fn has_no_width(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

/// Does a reader not see it, or take it for a blank?
fn is_hidden(c: char) -> bool {
    has_no_width(c) || c.is_control() || (c != ' ' && c.is_whitespace())
}

/// The shorter spelling is plainer; of `true` and `TRUE` the one in small letters.
pub(crate) fn plainness(name: &str) -> (usize, Reverse<&str>) {
    (name.len(), Reverse(name))
}

/// From here on not every whole number has a double of its own.
const INEXACT: f64 = 9_007_199_254_740_992.0;

/// The text of a number as a class: `1` for 1.0.
///
/// # Errors
/// If it is not finite, or other whole numbers may have been read as the same.
fn class_name(number: f64) -> Result<String> {
    ensure!(number.is_finite(), "the label is {number}");
    ensure!(
        number.abs() < INEXACT,
        "the label {number} is one of several whole numbers that are read alike (from 2^53 on): number the classes from 0, or name them by texts"
    );
    Ok(if number.fract() == 0.0 {
        format!("{}", number as i64)
    } else {
        show(&number.into())
    })
}

/// What an error quotes of a text: 40 of its characters at most; those that a reader does not see
/// are escaped.
pub(crate) fn short(text: &str) -> String {
    let all = text.chars().count();
    let shown = text.chars().take(if all > 40 { 37 } else { all });
    let mut out = String::new();
    for c in shown {
        if is_hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out + if all > 40 { "..." } else { "" }
}
