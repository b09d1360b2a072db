//! A spec: text to what a run needs.

use fl_data::DataSpec;
use fl_plugins as _;
use fl_registry::{Catalogue, Document, Spec};
use std::sync::LazyLock;

pub(crate) static CATALOGUE: LazyLock<Catalogue> =
    LazyLock::new(|| Catalogue::linked().expect("the linked parts have different names"));

/// What is refused is refused with places; what is taken, taken again as it was resolved, is the
/// same spec.
pub(crate) fn spec(text: &[u8]) {
    let read = |text: &[u8]| Document::parse("spec.yaml", text).read(&CATALOGUE);
    let spec: Spec<DataSpec> = match read(text) {
        Ok(spec) => spec,
        Err(mistakes) => {
            assert!(!mistakes.to_string().is_empty(), "refused without a word");
            return;
        }
    };
    let resolved = spec.yaml().expect("a spec can be written");
    match read(resolved.as_bytes()) {
        Ok(again) => assert_eq!(
            again.yaml().unwrap(),
            resolved,
            "not the same when read again"
        ),
        Err(mistakes) => panic!("refused when read again: {mistakes}\n{resolved}"),
    }
}
