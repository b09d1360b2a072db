//! [`Reader`]: reads settings and collects every mistake.

use super::{Range, Setting, Value, ValueType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// One step of the path to a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Step {
    /// Under this key.
    Key(String),
    /// At this position of a list.
    Item(usize),
}

/// Formats a path as `parts.model[0].net`.
pub fn show_path(path: &[Step]) -> String {
    path.iter().fold(String::new(), |mut out, step| {
        match step {
            Step::Key(key) if out.is_empty() => out.push_str(key),
            Step::Key(key) => {
                let _ = write!(out, ".{key}");
            }
            Step::Item(at) => {
                let _ = write!(out, "[{at}]");
            }
        }
        out
    })
}

/// A mistake at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mistake {
    /// The place.
    pub path: Vec<Step>,
    /// The value found, and the expected one.
    pub text: String,
    /// Whether the last key of the path is wrong, and not the value under it.
    #[serde(default)]
    pub on_key: bool,
}

impl Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match show_path(&self.path).as_str() {
            "" => f.write_str(&self.text),
            path => write!(f, "{path}: {}", self.text),
        }
    }
}

/// Reads settings and collects every mistake.
#[derive(Debug, Default)]
pub struct Reader {
    path: Vec<Step>,
    /// The mistakes, in the order of the declaration.
    pub mistakes: Vec<Mistake>,
}

impl Reader {
    /// Returns a reader for the value at `path`.
    pub fn at(path: Vec<Step>) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }

    /// Records a mistake here.
    pub fn wrong<T>(&mut self, text: impl Into<String>) -> Option<T> {
        self.mistakes.push(Mistake {
            path: self.path.clone(),
            text: text.into(),
            on_key: false,
        });
        None
    }

    /// Records a mistake below here.
    pub fn add(&mut self, below: Mistake) {
        let path = [&self.path[..], &below.path].concat();
        self.mistakes.push(Mistake { path, ..below });
    }

    /// Records `must be <wanted>, got <value>`.
    pub fn unlike<T>(&mut self, wanted: &str, value: &Value) -> Option<T> {
        self.wrong(format!("must be {wanted}, got {}", show(value)))
    }

    /// Runs `f` one step further down.
    pub fn below<T>(&mut self, step: Step, f: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let out = f(self);
        self.path.pop();
        out
    }

    /// Returns the entries of a mapping; `null` counts as an empty one.
    pub fn keys<'v>(
        &mut self,
        value: &'v Value,
        names: &[String],
    ) -> Option<BTreeMap<String, &'v Value>> {
        let map = match value {
            Value::Mapping(map) => map,
            Value::Null => return Some(BTreeMap::new()),
            other => {
                let form = match names {
                    [] => String::new(),
                    [only] => format!(" such as `{{ {only}: .. }}`"),
                    [first, ..] => {
                        format!(" such as `{{ {first}: .. }}` (known: {})", names.join(", "))
                    }
                };
                return self.unlike(&format!("a mapping of settings{form}"), other);
            }
        };
        let mut found = BTreeMap::new();
        for (key, value) in map {
            match key.as_str() {
                Some(key) => {
                    found.insert(key.to_string(), value);
                }
                None => {
                    self.wrong::<()>(format!(
                        "a setting's name must be text, got {}; known: {}",
                        show(key),
                        names.join(", ")
                    ));
                }
            }
        }
        Some(found)
    }

    /// Records every key that was not read.
    pub fn unknown(&mut self, left: &BTreeMap<String, &Value>, names: &[String]) {
        for key in left.keys() {
            let hint = match nearest(key, names.iter().map(String::as_str)) {
                _ if names.is_empty() => "; there are no settings here".to_string(),
                Some(near) => format!("; did you mean `{near}`? known: {}", names.join(", ")),
                None => format!("; known: {}", names.join(", ")),
            };
            self.below(Step::Key(key.clone()), |r| {
                r.wrong::<()>(format!("no such setting{hint}"));
                if let Some(mistake) = r.mistakes.last_mut() {
                    mistake.on_key = true;
                }
            });
        }
    }

    /// Reads one setting of a mapping; `check` compares it with `range`.
    pub fn field<T: Setting>(
        &mut self,
        found: &mut BTreeMap<String, &Value>,
        name: &str,
        default: Option<T>,
        check: impl FnOnce(&T) -> Result<(), String>,
        range: Option<Range>,
    ) -> Option<T> {
        match found.remove(name) {
            Some(value) => self.below(Step::Key(name.into()), |r| r.checked(value, check, range)),
            None if default.is_some() => default,
            None => self.missing(name, &T::kind(), range.map(|r| r.to_string())),
        }
    }

    /// Reads a value that `check` compares with `range`.
    pub fn checked<T: Setting>(
        &mut self,
        value: &Value,
        check: impl FnOnce(&T) -> Result<(), String>,
        range: Option<Range>,
    ) -> Option<T> {
        let before = self.mistakes.len();
        let Some(read) = T::read(value, self) else {
            self.add_range(before, value, &T::value_type(), range);
            return None;
        };
        match check(&read) {
            Ok(()) => Some(read),
            Err(text) => self.wrong(text),
        }
    }

    /// Records that a setting is missing.
    #[doc(hidden)]
    pub fn missing<T>(&mut self, name: &str, kind: &str, range: Option<String>) -> Option<T> {
        let range = range.map(|r| format!(", {r}")).unwrap_or_default();
        self.below(Step::Key(name.into()), |r| {
            r.wrong(format!("is missing ({kind}{range})"))
        })
    }

    /// Adds the range to a mistake about a number that the type cannot hold, such as -1 or 1.5.
    fn add_range(&mut self, before: usize, value: &Value, of: &ValueType, range: Option<Range>) {
        if let (Some(range), Some(wrong)) = (range, self.mistakes.get_mut(before))
            && value.as_f64().is_some_and(f64::is_finite)
            && wrong.path == self.path
        {
            let whole = value.is_i64() || value.is_u64();
            let what = match of.plain().0 {
                ValueType::Whole(_) if !whole => "a whole number ",
                _ => "",
            };
            wrong.text = format!("must be {what}{range}, got {}", show(value));
        }
    }
}

/// Formats a value in one line, shortened.
pub fn show(value: &Value) -> String {
    let text = match value {
        Value::Null => "nothing".to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => match n.as_f64() {
            Some(x) if x.is_nan() => ".nan".into(),
            Some(x) if x.is_infinite() => {
                if x > 0.0 {
                    ".inf".into()
                } else {
                    "-.inf".into()
                }
            }
            _ => n.to_string(),
        },
        Value::String(s) => format!("`{s}`"),
        Value::Sequence(s) => format!("a list of {}", s.len()),
        Value::Mapping(m) => match m.keys().next().and_then(Value::as_str) {
            Some(key) => format!("a mapping with `{key}`"),
            None => format!("a mapping of {}", m.len()),
        },
        Value::Tagged(t) => format!("a value tagged `{}`", t.tag),
    };
    if text.chars().count() > 60 {
        text.chars().take(57).chain("...".chars()).collect()
    } else {
        text
    }
}

/// Returns the known name nearest to `name`, if it is near enough: the same in other cases, or a slip
/// of one key in three. Of a single letter no other is near.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    if length > 64 {
        return None; // no name is that long, and comparing takes time and memory
    }
    let far = match length {
        0 | 1 => 0,
        2 | 3 => 1,
        _ => (length / 3).max(2),
    };
    let name = name.to_lowercase();
    let close = known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(&name, &k.to_lowercase()), k));
    close
        .filter(|(d, _)| *d <= far)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}
