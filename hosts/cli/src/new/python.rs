//! `fl new --lang python`.

use super::{CASES, Files, NewArgs, fill, type_name};
use crate::Failure;
use fl_core::Role;

/// Source, what the spec has in the slot where it goes, and what the package needs.
const PARTS: [(Role, &str, &str, &str); 4] = [
    (
        Role::Aggregator,
        include_str!("../../templates/aggregator.py.in"),
        "  model: { use: linear, lr: 0.1 }\n  aggregator: { use: {{name}} }",
        "",
    ),
    (
        Role::Selector,
        include_str!("../../templates/selector.py.in"),
        "  model: { use: linear, lr: 0.1 }\n  aggregator: { use: mean }\n  cohort: { use: {{name}} }",
        "",
    ),
    (
        Role::Privacy,
        include_str!("../../templates/privacy.py.in"),
        "  model: { use: linear, lr: 0.1 }\n  aggregator: { use: mean }\n  privacy: { use: {{name}} }",
        "",
    ),
    (
        Role::Trainer,
        include_str!("../../templates/trainer.py.in"),
        "  model: { use: {{name}} }\n  aggregator: { use: mean }",
        ", and PyTorch (`pip install torch`)",
    ),
];
const TEST: &str = include_str!("../../templates/test.py.in");
const README: &str = include_str!("../../templates/README.py.md.in");
const SPEC: &str = include_str!("../../templates/spec.py.yaml.in");

/// Names that a module cannot have, or that would hide what it imports.
const TAKEN: &str = "and as assert async await break class continue def del elif else except finally fl flwr for from global if import \
    in is lambda nonlocal not numpy or pass pytest raise return torch try typing while with yield";

/// Can a module be called so?
pub fn check_name(name: &str) -> Result<(), Failure> {
    match TAKEN.split_whitespace().any(|word| word == name) {
        true => Err(Failure::usage(format!(
            "a module of Python cannot be called `{name}`; try my-{name}"
        ))),
        false => Ok(()),
    }
}

pub fn files(role: Role, args: &NewArgs) -> Result<Files, Failure> {
    let Some((_, source, parts, needs)) = PARTS.iter().find(|(r, ..)| *r == role) else {
        return Err(Failure::usage(format!(
            "--lang python writes aggregators, selectors, privacy mechanisms and trainers; {} is written in Rust",
            role.with_article()
        )));
    };
    check_name(&args.name)?;
    let file = args.name.replace('-', "_");
    let article = role.with_article();
    let values = [
        // first, for there are names in it
        ("parts", parts.to_string()),
        ("name", args.name.clone()),
        ("Type", type_name(&args.name, source)),
        ("Article", article.replacen('a', "A", 1)),
        ("needs", needs.to_string()),
        ("plugin", format!("{{ module: {file} }}")),
        ("refused", "trim: must be below 0.5".into()),
        ("file", file.clone()),
    ];
    let mut files = vec![
        (format!("{file}.py"), *source),
        (format!("test_{file}.py"), TEST),
        ("README.md".into(), README),
        ("spec.yaml".into(), SPEC),
        (".gitignore".into(), "__pycache__/\nruns/\n"),
    ];
    if role == Role::Aggregator {
        files.extend(CASES.map(|(path, text)| (path.into(), text)));
    }
    let filled = files
        .into_iter()
        .map(|(path, text)| (path, fill(text, &values)));
    Ok(filled.collect())
}
