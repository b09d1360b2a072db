//! `fl new flower`: an app that `flwr run` takes.

use super::python;
use super::template::{Files, fill, template};
use crate::Failure;

const FILES: [(&str, &str); 5] = [
    ("pyproject.toml", template!("flower/pyproject.toml")),
    ("README.md", template!("flower/README.md")),
    ("{{file}}/app.py", template!("flower/app.py")),
    ("{{file}}/spec.yaml", template!("flower/spec.yaml")),
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
