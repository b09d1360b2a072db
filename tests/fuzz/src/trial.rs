//! `fl try`: `role name`, settings in YAML and input in JSON, a line each; the input may go on.

use crate::spec::CATALOGUE;
use fl_core::settings::Value;
use serde_json::Value as Json;

/// An answer has numbers; a part that panics is reported, and that is a mistake here.
pub(crate) fn trial(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let mut lines = text.splitn(3, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (part, settings, input) = (line(), line(), line());
    let (Ok(settings), Ok(input)) = (
        serde_yaml::from_str::<Value>(settings),
        serde_json::from_str::<Json>(input),
    ) else {
        return;
    };
    if let Err(text) = fl_cases::answer_of(part, settings, input, 1, &CATALOGUE) {
        assert!(!text.is_empty(), "refused without a word");
        assert!(!text.contains("` panicked: "), "{text}");
    }
}
