//! Settings: one declaration generates a struct, its YAML reader, its checks, and a description
//! ([`ValueType`]) that tables, pages and the JSON Schema are made from.
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
//!     levels: is missing (whole number, at least 2)\n\
//!     lewels: no such setting; did you mean `levels`? known: gamma, share, levels");
//! assert_eq!(Noise::fields()[0].accepts.range().as_deref(), Some("above 0.0"));
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
mod value_type;
mod values;

pub use choices::{choice, keyed, no_such_choice};
pub use declare::{doc_text, spec_name};
pub use joined::Joined;
pub use ranges::{Range, Ranged, above, above_to, between, check_range};
pub use reader::{Mistake, Reader, Step, nearest, show, show_path};
pub use value_type::{Field, ValueType, Word};

/// A value as YAML has it.
pub type Value = serde_yaml::Value;

/// A type of setting.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of a setting",
    note = "a setting is `bool`, a number, `String`, `Option` or `Vec` of one, a `settings!` or `choices!` \
            type, or a type of your own that implements `Setting`"
)]
pub trait Setting: Sized {
    /// Reads it. Reports every mistake to `reader`, and then returns `None`.
    fn read(value: &Value, reader: &mut Reader) -> Option<Self>;
    /// Returns the value as YAML.
    fn write(&self) -> Value;
    /// Returns the values that it accepts.
    fn value_type() -> ValueType;
    /// Returns a short description for errors: `number`, `list of layer`.
    fn kind() -> String {
        Self::value_type().kind()
    }
}

/// A declared group of settings.
pub trait Settings: Setting {
    /// Returns the doc comment.
    fn doc() -> String;
    /// Returns the settings, in the order of the declaration.
    fn fields() -> Vec<Field>;
    /// Returns the name of each setting.
    fn names() -> Vec<String>;
    /// Returns the description of the group.
    fn group() -> ValueType {
        ValueType::Group {
            doc: Self::doc(),
            fields: Self::fields(),
        }
    }
}

/// Returns settings with every default.
///
/// # Panics
/// If a setting has no default: a bug of the program, which any test shows.
pub fn defaults<T: Setting>() -> T {
    T::read(&Value::Null, &mut Reader::default()).expect("every setting has a default")
}

/// Reads settings from a value. Reports all mistakes together, one per line.
///
/// # Errors
/// If `value` has any mistake.
pub fn read_value<T: Setting>(value: &Value) -> crate::Result<T> {
    collected(|reader| T::read(value, reader))
}

/// What `read` gives if it notes no mistake; otherwise all mistakes, one a line.
pub(crate) fn collected<T>(read: impl FnOnce(&mut Reader) -> Option<T>) -> crate::Result<T> {
    let mut reader = Reader::default();
    let read = read(&mut reader);
    let wrong: Vec<String> = reader.mistakes.iter().map(Mistake::to_string).collect();
    read.filter(|_| wrong.is_empty())
        .ok_or_else(|| anyhow::anyhow!(wrong.join("\n")))
}

/// As [`read_value`], from YAML (or JSON) text.
///
/// # Errors
/// If `text` is not YAML, or has any mistake.
pub fn read_yaml<T: Setting>(text: &str) -> crate::Result<T> {
    read_value(&serde_yaml::from_str(text)?)
}

/// Returns a value as YAML text. Numbers are written so that readers of YAML 1.1 (PyYAML among
/// them) read numbers too: `1.0e-3`, not `1e-3`.
///
/// # Errors
/// If the value cannot be written.
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

/// Returns `1.0e-3` for `1e-3`, and other words unchanged.
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

/// Returns a YAML value as JSON; NaN and infinities become `null`.
pub fn to_json(value: &Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}
