//! Reading cases, and comparing what an operation gives with what is expected.

use anyhow::{Context, Result};
use ndarray::Array2;
use serde_json::{Map, Value, json};
use std::path::Path;

/// An operation by its name.
pub type Op = (&'static str, Run);

/// From a case's inputs to what it gives. It may give more than is expected, not less.
pub type Run = fn(&Inputs<'_>) -> Result<Value>;

/// The operation of this name.
pub fn implemented(ops: &[&[Op]], name: &str) -> Option<Run> {
    let mut all = ops.iter().flat_map(|ops| ops.iter());
    all.find(|(known, _)| *known == name).map(|(_, run)| *run)
}

/// One case.
pub struct Case {
    pub file: String,
    pub name: String,
    pub op: String,
    pub inputs: Value,
    pub expected: Value,
    /// Absolute and relative.
    pub tolerance: (f64, f64),
}

/// All cases of a folder.
pub fn cases(folder: &Path) -> Vec<Case> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "json"));
    files.sort();
    assert!(
        !files.is_empty(),
        "{} holds no reference cases (*.json)",
        folder.display()
    );
    let of_file = |path: &std::path::PathBuf| {
        let file = path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        read(path, &file).unwrap_or_else(|e| panic!("{}: {e:#}", path.display()))
    };
    files.iter().flat_map(of_file).collect()
}

fn read(path: &Path, file: &str) -> Result<Vec<Case>> {
    let parsed: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let all = parsed["cases"]
        .as_array()
        .context("a list of `cases` is missing")?;
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let size = |case: &Value, key: &str| {
        case["tolerance"][key]
            .as_f64()
            .with_context(|| format!("`{}` has no tolerance `{key}`", case["name"]))
    };
    let case = |case: &Value| {
        Ok(Case {
            file: file.to_string(),
            name: text(&case["name"]),
            op: text(&case["op"]),
            inputs: case["inputs"].clone(),
            expected: case["expected"].clone(),
            tolerance: (size(case, "abs")?, size(case, "rel")?),
        })
    };
    all.iter().map(case).collect()
}

/// The inputs of a case.
pub struct Inputs<'a>(pub &'a Value);

impl Inputs<'_> {
    /// Whatever stands under `key`, as a `T`: `u64`, `Vec<Vec<f64>>`, `String`.
    pub fn get<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<T> {
        serde_json::from_value(self.0[key].clone())
            .with_context(|| format!("input `{key}`: {}", self.0[key]))
    }

    /// Is there anything under `key`?
    pub fn has(&self, key: &str) -> bool {
        !self.0[key].is_null()
    }

    /// As [`Inputs::get`], as a table; every row must have the same length.
    pub fn table<T: serde::de::DeserializeOwned + Clone>(&self, key: &str) -> Result<Array2<T>> {
        table(&self.get::<Vec<Vec<T>>>(key)?).with_context(|| format!("input `{key}`"))
    }
}

/// A table from its rows.
pub fn table<T: Clone>(rows: &[Vec<T>]) -> Result<Array2<T>> {
    let shape = (rows.len(), rows.first().map_or(0, Vec::len));
    Ok(Array2::from_shape_vec(shape, rows.concat())?)
}

/// The rows of a table.
pub fn rows(table: &Array2<f64>) -> Value {
    table
        .rows()
        .into_iter()
        .map(|row| row.iter().map(|v| number(*v)).collect::<Value>())
        .collect()
}

/// A number as the cases write it: infinities and NaN are words.
pub fn number(x: f64) -> Value {
    match x {
        f64::INFINITY => json!("inf"),
        f64::NEG_INFINITY => json!("-inf"),
        _ if x.is_nan() => json!("nan"),
        _ => json!(x),
    }
}

/// A number, or null where it is undefined.
pub fn maybe(x: Option<f64>) -> Value {
    x.map_or(Value::Null, number)
}

/// Where `got` is not what is expected: the path, what there is, and what should be.
pub fn mismatches(got: &Value, expected: &Value, tolerance: (f64, f64)) -> Vec<String> {
    let mut out = Vec::new();
    compare("", got, expected, tolerance, &mut out);
    out
}

/// Keys that stand beside what is expected and are no result of the operation: the number a paper
/// printed, a remark.
const COMMENTS: [&str; 2] = ["published", "note_number"];

fn compare(
    path: &str,
    got: &Value,
    expected: &Value,
    tolerance: (f64, f64),
    out: &mut Vec<String>,
) {
    let mut differs = |what: String| out.push(format!("expected{path}: {what}"));
    match (got, expected) {
        (Value::Object(got), Value::Object(expected)) => {
            for (key, wanted) in expected
                .iter()
                .filter(|(key, _)| !COMMENTS.contains(&key.as_str()))
            {
                compare(
                    &format!("{path}.{key}"),
                    member(got, key),
                    wanted,
                    tolerance,
                    out,
                );
            }
        }
        (Value::Array(got), Value::Array(expected)) if got.len() == expected.len() => {
            for (i, (got, wanted)) in got.iter().zip(expected).enumerate() {
                compare(&format!("{path}[{i}]"), got, wanted, tolerance, out);
            }
        }
        (Value::Array(got), Value::Array(expected)) => differs(format!(
            "{} entries, expected {}",
            got.len(),
            expected.len()
        )),
        (Value::Number(g), Value::Number(e)) => {
            let (g, e) = (
                g.as_f64().unwrap_or(f64::NAN),
                e.as_f64().unwrap_or(f64::NAN),
            );
            let allowed = tolerance.0 + tolerance.1 * e.abs();
            let apart = (g - e).abs();
            if apart.is_nan() || apart > allowed {
                differs(format!(
                    "got {got}, expected {expected}, allowed {allowed:e}"
                ));
            }
        }
        _ if got == expected => {}
        _ => differs(format!("got {got}, expected {expected}")),
    }
}

/// A missing member differs from null, which means undefined.
fn member<'a>(object: &'a Map<String, Value>, key: &str) -> &'a Value {
    static MISSING: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| json!("(nothing)"));
    object.get(key).unwrap_or(&MISSING)
}
