//! `fl new flower`: an app that `flwr run` takes.

use super::python;
use super::template::{Files, fill};
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

pub fn files(name: &str) -> Result<Files, Failure> {
    python::check_name(name)?;
    let values = [("name", name.into()), ("file", name.replace('-', "_"))];
    let filled = FILES
        .iter()
        .map(|(path, text)| (fill(path, &values), fill(text, &values)));
    Ok(filled.collect())
}
