//! Settings: one declaration gives a struct, its reading from YAML, its checks, its JSON Schema and its table.
//!
//! ```
//! use fl_core::settings::{above, read_yaml, Settings};
//! fl_core::settings! {
//!     /// Adds noise.
//!     pub struct Noise {
//!         /// Inverse scale of the noise.
//!         gamma: f64 = 1.0, in above(0.0);
//!         /// Share of clients.
//!         share: f64 = 1.0, in 0.0..=1.0;
//!         /// No default: must be given.
//!         levels: usize, in 2..;
//!     }
//! }
//! assert_eq!(read_yaml::<Noise>("{levels: 200}").unwrap().gamma, 1.0);
//! let all = read_yaml::<Noise>("{gamma: 0, share: .nan, lewels: 3}").unwrap_err().to_string();
//! assert_eq!(all, "gamma: must be above 0.0, got 0.0\nshare: must be a finite number, got .nan\n\
//!     levels: is missing (whole number, at least 2)\nlewels: no such setting; did you mean `levels`? known: gamma, share, levels");
//! assert_eq!(Noise::fields()[0].range.as_deref(), Some("above 0.0"));
//! ```
//! A setting without a doc comment does not compile:
//! ```compile_fail
//! fl_core::settings! {
//!     /// Adds noise.
//!     pub struct Noise { gamma: f64 = 1.0; }
//! }
//! ```

mod choices;
mod declare;
mod joined;
mod ranges;
mod reader;
#[cfg(test)]
mod tests;
mod values;

pub use choices::{choice, choice_schema, choice_words, keyed, no_such_choice};
pub use declare::{doc_text, field, object_schema, old_names};
pub use joined::Joined;
pub use ranges::{Ranged, above, above_to, between, check_range, range_schema, show_range};
pub use reader::{Mistake, Reader, Step, nearest, show, show_path};

/// A value as YAML has it.
pub type Value = serde_yaml::Value;

/// What can stand in a settings declaration.
pub trait Setting: Sized {
    /// Reads it; every mistake goes to `reader`, and then the answer is `None`.
    fn read(value: &Value, reader: &mut Reader) -> Option<Self>;
    /// The value as YAML.
    fn write(&self) -> Value;
    /// JSON Schema (draft 2020-12).
    fn schema() -> serde_json::Value;
    /// A short word for tables and errors: `number`, `list of layer`.
    fn kind() -> String;
}

/// A declared group of settings.
pub trait Settings: Setting {
    /// The doc comment.
    fn doc() -> String;
    /// One row per setting.
    fn fields() -> Vec<Field>;
    /// Names that settings had in earlier versions, each with the name of today.
    fn old_names() -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// One row of `fl inspect`.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// As it stands in a spec.
    pub name: String,
    /// The doc comment.
    pub doc: String,
    /// Kind of value.
    pub kind: String,
    /// `None`: must be given.
    pub default: Option<Value>,
    /// `in 0.0..0.5`, `above 0.0`, ...
    pub range: Option<String>,
    /// JSON Schema of the value, with description, default and range.
    pub schema: serde_json::Value,
}

/// Settings of which every one has its default.
///
/// # Panics
/// When a setting has no default: a mistake of the program, which any test shows.
pub fn defaults<T: Setting>() -> T {
    T::read(&Value::Null, &mut Reader::default()).expect("every setting has a default")
}

/// Reads settings from a value; all mistakes together, one a line.
///
/// # Errors
/// When anything is wrong with `value`.
pub fn read_value<T: Setting>(value: &Value) -> crate::Result<T> {
    let mut reader = Reader::default();
    let read = T::read(value, &mut reader);
    match read {
        Some(read) if reader.mistakes.is_empty() => Ok(read),
        _ => Err(anyhow::anyhow!(
            reader
                .mistakes
                .iter()
                .map(Mistake::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        )),
    }
}

/// As [`read_value`], from YAML (or JSON) text.
///
/// # Errors
/// When `text` is not YAML, or anything is wrong with it.
pub fn read_yaml<T: Setting>(text: &str) -> crate::Result<T> {
    read_value(&serde_yaml::from_str(text)?)
}

/// A value as YAML text. Numbers are written so that readers of YAML 1.1 (PyYAML among them) read
/// numbers too: `1.0e-3`, not `1e-3`.
///
/// # Errors
/// When the value cannot be written.
pub fn to_yaml(value: &Value) -> crate::Result<String> {
    let text = serde_yaml::to_string(value)?;
    let lines = text.lines().map(|line| {
        let at = line.rfind([' ', '[']).map_or(0, |at| at + 1);
        format!("{}{}\n", &line[..at], with_point(&line[at..]))
    });
    let pointed: String = lines.collect();
    // a text of several lines may look like a number in one of them
    match serde_yaml::from_str::<Value>(&pointed) {
        Ok(read) if read == *value => Ok(pointed),
        _ => Ok(text),
    }
}

/// `1.0e-3` of `1e-3`; other words stay.
fn with_point(word: &str) -> String {
    let number = word.parse::<f64>().is_ok_and(f64::is_finite);
    match word.split_once('e').filter(|_| number) {
        Some((digits, power)) => {
            let point = if digits.contains('.') { "" } else { ".0" };
            let sign = if power.starts_with(['-', '+']) {
                ""
            } else {
                "+"
            };
            format!("{digits}{point}e{sign}{power}")
        }
        None => word.into(),
    }
}

/// A YAML value as JSON; NaN and infinities become `null`.
pub fn to_json(value: &Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}
