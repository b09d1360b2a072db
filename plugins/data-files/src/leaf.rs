//! Rows of users by name, as LEAF (Caldas et al. 2018) writes them in JSON.

use crate::classes::{Classes, short};
use crate::content::{Budget, content};
use crate::format::Leaf;
use crate::paths::Paths;
use crate::rows::Part;
use crate::settings::Files;
use crate::train_test::{All, Notes};
use anyhow::{Context, Result, bail, ensure};
use fl_core::Inputs;
use fl_data_kit::column_match::TEXT;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The characters of LEAF's model of Shakespeare's plays, in its order.
const ALPHABET: &str =
    "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}";

/// What a file holds, as far as it is read.
#[derive(serde::Deserialize)]
struct Content {
    users: Vec<String>,
    num_samples: Vec<usize>,
    user_data: BTreeMap<String, Columns>,
}

#[derive(serde::Deserialize)]
struct Columns {
    x: Vec<Row>,
    y: Vec<Json>,
}

enum Row {
    Numbers(Vec<f32>),
    Text(String),
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Row;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a row: a list of numbers, or a text")
            }
            fn visit_str<E: Error>(self, text: &str) -> std::result::Result<Row, E> {
                Ok(Row::Text(text.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut all: A,
            ) -> std::result::Result<Row, A::Error> {
                let mut row = Vec::new();
                while let Some(number) = all.next_element::<f64>()? {
                    let number = number as f32;
                    if !number.is_finite() {
                        return Err(A::Error::custom("a number is too large"));
                    }
                    row.push(number);
                }
                Ok(Row::Numbers(row))
            }
        }
        from.deserialize_any(Either)
    }
}

impl Leaf {
    /// The characters, in order.
    pub(crate) fn characters(&self) -> std::str::Chars<'_> {
        self.alphabet.as_deref().unwrap_or(ALPHABET).chars()
    }
}

/// A user, and where it was found.
struct User {
    path: PathBuf,
    name: String,
    columns: Columns,
}

impl User {
    /// The bytes that it takes.
    fn memory(&self) -> u64 {
        let of = |row: &Row| match row {
            Row::Numbers(row) => size_of_val(&row[..]),
            Row::Text(text) => text.len(),
        };
        let Columns { x, y } = &self.columns;
        let rows = x.iter().map(of).sum::<usize>();
        (rows + size_of_val(&x[..]) + size_of_val(&y[..])) as u64
    }

    fn at(&self, row: usize) -> String {
        let Self { path, name, .. } = self;
        format!("{}: user `{}`, row {row}", path.display(), short(name))
    }
}

/// The users of a file in its order.
fn users(path: &Path, budget: &mut Budget) -> Result<Vec<User>> {
    let bytes = content(path, budget)?;
    let at = || path.display().to_string();
    let found: Content = serde_json::from_slice(&bytes).map_err(|error| {
        anyhow::anyhow!(
            "{}: {error}; LEAF's files are `{{\"users\": [..], \"num_samples\": [..], \"user_data\": {{USER: {{\"x\": [..], \"y\": [..]}}}}}}`",
            path.display()
        )
    })?;
    let Content {
        users,
        num_samples,
        mut user_data,
    } = found;
    let (named, counted) = (users.len(), num_samples.len());
    ensure!(
        named == counted,
        "{}: {named} `users`, and {counted} `num_samples`; there must be one for each user",
        at()
    );
    let mut all = Vec::with_capacity(named);
    for (name, samples) in users.into_iter().zip(num_samples) {
        let shown = short(&name);
        let columns = user_data.remove(&name).with_context(|| {
            format!(
                "{}: `user_data` has no user `{shown}`, or `users` names it twice",
                at()
            )
        })?;
        let (x, y) = (columns.x.len(), columns.y.len());
        ensure!(
            x == samples && y == samples,
            "{}: user `{shown}` has {x} rows in `x` and {y} in `y`, and `num_samples` says {samples}",
            at()
        );
        all.push(User {
            path: path.into(),
            name,
            columns,
        });
    }
    budget.give(bytes.len() as u64);
    for user in &all {
        budget.take(user.memory(), path)?;
    }
    match user_data.keys().next() {
        None => Ok(all),
        Some(name) => bail!(
            "{}: `user_data` has the user `{}`, which `users` does not name",
            at(),
            short(name)
        ),
    }
}

/// What all rows have in common.
struct Form {
    shape: Vec<usize>,
    /// The number of each character, from 1; `None` where rows are numbers.
    characters: Option<BTreeMap<char, usize>>,
}

impl Form {
    /// That of the first row.
    fn of(users: &[User], how: &Leaf) -> Result<Self> {
        let user = users.iter().find(|user| !user.columns.x.is_empty());
        let user = user.context("there are no training rows")?;
        let width: usize = how.shape.iter().product();
        match &user.columns.x[0] {
            Row::Numbers(row) => {
                let found = row.len();
                ensure!(found > 0, "{}: it is empty", user.at(0));
                ensure!(
                    how.shape.is_empty() || width == found,
                    "{}: {found} numbers, and the `shape` {:?} of the spec has {width}",
                    user.at(0),
                    how.shape
                );
                Ok(Self {
                    shape: if how.shape.is_empty() {
                        vec![found]
                    } else {
                        how.shape.clone()
                    },
                    characters: None,
                })
            }
            Row::Text(text) => {
                ensure!(!text.is_empty(), "{}: it is empty", user.at(0));
                ensure!(
                    how.shape.is_empty(),
                    "{}: a text, and `shape` is for rows of numbers; leave it out",
                    user.at(0)
                );
                Ok(Self {
                    shape: vec![text.chars().count()],
                    characters: Some(how.characters().zip(1..).collect()),
                })
            }
        }
    }

    /// A user's rows.
    fn part(&self, user: &User, classes: &mut Classes) -> Result<Part> {
        let width: usize = self.shape.iter().product();
        let mut data = Vec::with_capacity(width * user.columns.x.len());
        for (at, row) in user.columns.x.iter().enumerate() {
            let before = data.len();
            match (row, &self.characters) {
                (Row::Numbers(row), None) => data.extend(row),
                (Row::Text(text), Some(known)) => {
                    let number = |c| known.get(&c).copied().unwrap_or(0) as f32;
                    data.extend(text.chars().map(number));
                }
                (Row::Numbers(_), Some(_)) => {
                    bail!("{}: numbers, and others are texts", user.at(at))
                }
                (Row::Text(_), None) => bail!("{}: a text, and others are numbers", user.at(at)),
            }
            let found = data.len() - before;
            let what = ["numbers", "characters"][usize::from(self.characters.is_some())];
            ensure!(
                found == width,
                "{}: {found} {what}, and the first row has {width}",
                user.at(at)
            );
        }
        let class = |(at, y): (usize, &Json)| self.class(y, classes).with_context(|| user.at(at));
        let of = user
            .columns
            .y
            .iter()
            .enumerate()
            .map(class)
            .collect::<Result<_>>()?;
        let shape = self.shape.clone();
        let inputs = Inputs::Dense { shape, data };
        Ok(Part { inputs, of })
    }

    fn class(&self, y: &Json, classes: &mut Classes) -> Result<u32> {
        match (y, &self.characters) {
            (Json::Number(number), _) => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                classes.of_number(number)
            }
            (Json::String(text), Some(known)) if classes.given_by_format => {
                let mut characters = text.chars();
                let (Some(one), None) = (characters.next(), characters.next()) else {
                    bail!("`y` is `{}`; it must be one character", short(text));
                };
                // LEAF's own code gives what it does not know the last class
                Ok(known.get(&one).map_or(known.len(), |at| *at) as u32 - 1)
            }
            (Json::String(text), _) => classes.of(text),
            (other, _) => bail!(
                "`y` is `{}`; it must be a number or a text",
                short(&other.to_string())
            ),
        }
    }
}

/// How a character is called as a class.
fn named(character: char) -> String {
    match character {
        '\n' => "newline".into(),
        ' ' => "space".into(),
        other => other.into(),
    }
}

pub(crate) fn read(files: &Files, how: &Leaf, classes: &mut Classes) -> Result<All> {
    let mut budget = Budget::new(files.max_bytes);
    let mut all = |paths: &Paths| -> Result<Vec<User>> {
        let mut found = Vec::new();
        let sources = paths.sources().iter();
        for path in sources.flat_map(|source| source.files(&files.format)) {
            found.extend(users(&path, &mut budget)?);
        }
        Ok(found)
    };
    let own = all(&files.train)?;
    let mut seen = BTreeSet::new();
    if let Some(twice) = own.iter().find(|user| !seen.insert(&user.name)) {
        bail!(
            "{}: user `{}` is in a file before it too; a user's rows must be in one file",
            twice.path.display(),
            short(&twice.name)
        );
    }
    let tested = files.test.as_ref().map(&mut all).transpose()?;
    let tested = tested.unwrap_or_default();
    let form = Form::of(&own, how)?;
    let of_texts = own
        .iter()
        .flat_map(|user| user.columns.y.first())
        .any(Json::is_string);
    if form.characters.is_some() && of_texts && !classes.given {
        classes.give(how.characters().map(named));
        classes.given_by_format = true;
    }
    let mut parts = |users: Vec<User>, classes: &mut Classes| -> Result<Vec<_>> {
        let part = |user: User| {
            let part = form.part(&user, classes)?;
            budget.give(user.memory());
            budget.take(part.bytes(), &user.path)?;
            Ok((user.name, part))
        };
        users.into_iter().map(part).collect()
    };
    let train = parts(own, classes)?;
    classes.closed = true;
    let test = parts(tested, classes)?;
    let described = match &form.characters {
        Some(known) => format!(
            "{TEXT}{} characters, numbers of {}",
            form.shape[0],
            known.len()
        ),
        None => format!("shape {:?}", form.shape),
    };
    Ok(All {
        train,
        test,
        columns: vec![("inputs".into(), described)],
        notes: Notes::default(),
    })
}
