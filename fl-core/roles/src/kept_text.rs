//! Names that are made while a program runs, where declarations borrow theirs for ever.

use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// A name in a declaration. (serde would borrow a reference from what it reads.)
pub type Name = &'static str;

/// Returns this text for ever; equal texts are kept once.
pub fn kept(text: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(text) {
        return known;
    }
    let kept: &'static str = text.to_owned().leak();
    all.insert(kept);
    kept
}

/// Returns a text of a library to be shown: no control characters, which a terminal would obey, but
/// line ends.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
    }
    out
}

/// Reads a name of a declaration that a library makes.
pub(crate) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    String::deserialize(from).map(|text| kept(&plain(&text)))
}

/// Reads a name that may be missing.
pub(crate) fn no_name<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<&'static str>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(|text| kept(&plain(&text))))
}

/// Reads names.
pub(crate) fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<&'static str>, D::Error> {
    let all = Vec::<String>::deserialize(from)?;
    Ok(all.iter().map(|text| kept(&plain(text))).collect())
}

/// Reads a name, and what goes with it.
pub(crate) fn name_with<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<(&'static str, T)>, D::Error> {
    let both = Option::<(String, T)>::deserialize(from)?;
    Ok(both.map(|(text, more)| (kept(&plain(&text)), more)))
}
