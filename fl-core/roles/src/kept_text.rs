//! Names that are made while a program runs, where declarations borrow theirs for ever.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

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
