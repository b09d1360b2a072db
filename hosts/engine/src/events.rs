//! Who takes the events of a run, and what they are not told.

use fl_data::DataSpec;
use fl_registry::Spec;
use fl_sim::Unpriced;
use serde_json::Value as Json;

/// Takes events, each a JSON object with `event`.
pub type TakeEvent = Box<dyn FnMut(&Json)>;

/// Returns what a run of this spec tells beside its accountant.
pub(crate) fn unpriced(spec: &Spec<DataSpec>) -> Unpriced {
    Unpriced::beside(spec.parts.has("accountant"))
}
