//! The text of a request that a protocol makes in the middle of its calls.

use crate::ask::ErrorText;
use crate::context_json::RoundText;
use crate::marshal_data::SamplesText;
use anyhow::Context;
use fl_roles::{ClientId, Cohort, Result};
use serde::{Deserialize, Serialize};

/// Declares [`RequestText`]: what an operation may need, and what it may go without.
macro_rules! request_text {
    ($($name:ident: $of:ty,)* ; $($(#[$doc:meta])* $free:ident: $at:ty,)*) => {
        /// The text of a request. An operation takes those of these that `raw.rs` names.
        #[derive(Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct RequestText {
            $(#[serde(skip_serializing_if = "Option::is_none")] $name: Option<$of>,)*
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] $free: Option<$at>,)*
        }

        impl RequestText {
            $(pub fn $name(self, $name: impl Into<$of>) -> Self {
                Self { $name: Some($name.into()), ..self }
            })*
            $(pub fn $free(self, $free: Option<$at>) -> Self {
                Self { $free, ..self }
            })*
        }

        impl Request {
            $(pub fn $name(&self) -> Result<&$of> {
                let missing = concat!("the request states no `", stringify!($name), "`");
                self.0.$name.as_ref().context(missing)
            })*
            $(pub fn $free(&self) -> Option<$at> {
                self.0.$free.clone()
            })*
        }
    };
}

/// A request as it came, whose operation says what it needs.
pub(super) struct Request(pub(super) RequestText);

request_text! {
    slot: String,
    label: String,
    name: String,
    kind: String,
    text: String,
    pool: String,
    round: RoundText,
    cohort: Cohort,
    to: Vec<ClientId>,
    which: Vec<usize>,
    whose: Vec<usize>,
    each: Vec<Option<f64>>,
    number: usize,
    of: usize,
    at: usize,
    at_least: usize,
    index: u64,
    part: u64,
    set: u64,
    client: ClientId,
    forms: bool,
    clip: bool,
    samples: SamplesText,
    ;
    /// The kind of the message that the round shows, which comes last.
    shown: String,
    agreed: f64,
    /// JSON has no number for one that is not finite.
    value: f64,
    failed: ErrorText,
}

/// The text of a request that states nothing yet.
pub(crate) fn stating() -> RequestText {
    RequestText::default()
}
