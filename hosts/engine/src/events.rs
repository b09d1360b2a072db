//! Who takes the events of a run, and what is said to everybody of one that failed.

use serde_json::Value as Json;

/// Takes events, each a JSON object with `event`.
pub type TakeEvent = Box<dyn FnMut(&Json)>;

/// What tables and sinks say of a failed run with an accountant.
pub(crate) const WITHHELD: &str = "with an accountant the text of an error stays at the terminal, because it may hold private values";
