//! `fl new flower`: an app that `flwr run` takes.

use super::{Files, NewArgs, fill, python};
use crate::Failure;

const FILES: [(&str, &str); 5] = [
    (
        "pyproject.toml",
        include_str!("../../templates/flower/pyproject.toml.in"),
    ),
    (
        "README.md",
        include_str!("../../templates/flower/README.md.in"),
    ),
    (
        "{{file}}/app.py",
        include_str!("../../templates/flower/app.py.in"),
    ),
    (
        "{{file}}/spec.yaml",
        include_str!("../../templates/flower/spec.yaml.in"),
    ),
    ("{{file}}/__init__.py", ""),
];

pub fn files(args: &NewArgs) -> Result<Files, Failure> {
    python::check_name(&args.name)?;
    let values = [
        ("name", args.name.clone()),
        ("file", args.name.replace('-', "_")),
    ];
    let filled = FILES
        .iter()
        .map(|(path, text)| (fill(path, &values), fill(text, &values)));
    Ok(filled.collect())
}
