//! Templates of files, and what is filled in.

/// The text of a template.
macro_rules! template {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/templates/",
            $name,
            ".in"
        ))
    };
}
pub(super) use template;

/// Files by their paths.
pub type Files = Vec<(String, String)>;

/// Further files of an aggregator's crate: cases for `fl test`.
pub const CASES: [(&str, &str); 2] = [
    ("aggregator.cases.yaml", template!("cases.yaml")),
    ("aggregator.cases.answers.json", template!("answers.json")),
];

/// What every Rust file means by these names.
const PRELUDE: [&str; 22] = [
    "AsMut", "AsRef", "Box", "Clone", "Copy", "Default", "Drop", "Eq", "Err", "From", "Into",
    "Iterator", "None", "Ok", "Option", "Ord", "Result", "Send", "Some", "String", "Sync", "Vec",
];

/// `TrimmedMean`; `MyParams` where the template means something else by `Params`.
pub fn type_name(name: &str, template: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    let plain: String = words.collect();
    let mut words = template.split(|c: char| !c.is_alphanumeric() && c != '_');
    if PRELUDE.contains(&plain.as_str()) || words.any(|word| word == plain) {
        format!("My{plain}")
    } else {
        plain
    }
}

/// Replaces each `{{key}}`.
pub fn fill(template: &str, values: &[(&str, String)]) -> String {
    values
        .iter()
        .fold(template.to_string(), |text, (key, value)| {
            text.replace(&format!("{{{{{key}}}}}"), value)
        })
}
