//! `fl new --lang python`.

use super::template::{CASES, Files, fill, template, type_name};
use crate::Failure;
use fl_core::Role;

/// Sources without and with the option of the role (`--stateful`, or `--numpy` for trainers), and
/// the parts of the spec.
const PARTS: [(Role, [&str; 2], &str); 6] = [
    (
        Role::Aggregator,
        [
            template!("aggregator.py"),
            template!("aggregator.stateful.py"),
        ],
        "  model: { use: linear, lr: 0.1 }\n  aggregator: { use: {{name}} }",
    ),
    (
        Role::Selector,
        [template!("selector.py"), template!("selector.stateful.py")],
        "  model: { use: linear, lr: 0.1 }\n  aggregator: { use: mean }\n  cohort: { use: {{name}} }",
    ),
    (
        Role::Privacy,
        [template!("privacy.py"), template!("privacy.stateful.py")],
        "  model: { use: linear, lr: 0.1 }\n  aggregator: { use: mean }\n  privacy: { use: {{name}} }",
    ),
    (
        Role::Attack,
        [template!("attack.py"); 2],
        "  model: { use: linear, lr: 0.1 }\n  aggregator: { use: mean }\n  attack: [{ use: {{name}}, clients: [0] }]",
    ),
    (
        Role::Trainer,
        [template!("trainer.py"), template!("trainer.numpy.py")],
        "  model: { use: {{name}} }\n  aggregator: { use: mean }",
    ),
    (
        Role::Protocol,
        [template!("protocol.py"); 2],
        "  model: { use: linear, lr: 0.1 }\n  aggregator: { use: mean }",
    ),
];
const TEST: &str = template!("test.py");
const TEST_PROTOCOL: &str = template!("test.protocol.py");
const README: &str = template!("README.py.md");
const SPEC: &str = template!("spec.py.yaml");

/// Names that a module cannot have, or that would hide what it imports.
const TAKEN: &str = "and as assert async await break class continue def del elif else except finally fl flwr for from global if import \
    in is lambda nonlocal not numpy or pass pytest raise return torch try typing while with yield";

/// Can a module be called so?
pub fn check_name(name: &str) -> Result<(), Failure> {
    if TAKEN.split_whitespace().any(|word| word == name) {
        Err(Failure::usage(format!(
            "a module of Python cannot be called `{name}`; try my-{name}"
        )))
    } else {
        Ok(())
    }
}

pub fn files(role: Role, name: &str, option: bool) -> Result<Files, Failure> {
    let Some((_, sources, parts)) = PARTS.iter().find(|(r, ..)| *r == role) else {
        return Err(Failure::usage(format!(
            "--lang python writes all roles but generators and accountants; {} is written in Rust",
            role.with_article()
        )));
    };
    let source = sources[usize::from(option)];
    let needs = if role == Role::Trainer && !option {
        ", and PyTorch (`pip install torch`)"
    } else {
        ""
    };
    check_name(name)?;
    let file = name.replace('-', "_");
    let article = role.with_article();
    let (protocol, test, tests) = match role {
        Role::Protocol => (
            "{ use: {{name}}, rounds: 5, local: { epochs: 2, batch: 16 } }",
            TEST_PROTOCOL,
            "one digest for every way of running, and what observers see",
        ),
        _ => (
            "{ use: fedavg, rounds: 5, local: { epochs: 2, batch: 16 } }",
            TEST,
            "the conformance kit, and the same run twice",
        ),
    };
    let values = [
        // first, for there are names in it
        ("parts", parts.to_string()),
        ("protocol", protocol.into()),
        ("tests", tests.into()),
        ("name", name.into()),
        ("Type", type_name(name, source)),
        ("Article", article.replacen('a', "A", 1)),
        ("needs", needs.to_string()),
        ("plugin", format!("{{ module: {file} }}")),
        ("refused", "trim: must be in 0..0.5".into()),
        ("file", file.clone()),
    ];
    let mut files = vec![
        (format!("{file}.py"), source),
        (format!("test_{file}.py"), test),
        ("README.md".into(), README),
        ("spec.yaml".into(), SPEC),
        (".gitignore".into(), "__pycache__/\nruns/\n"),
    ];
    if role == Role::Aggregator && !option {
        files.extend(CASES.map(|(path, text)| (path.into(), text)));
    }
    let filled = files
        .into_iter()
        .map(|(path, text)| (path, fill(text, &values)));
    Ok(filled.collect())
}
