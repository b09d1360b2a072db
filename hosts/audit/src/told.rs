//! What readers learn from the files of a run folder.

use anyhow::{Context, Result};
use fl_core::hex;
use fl_receipts::RECEIPTS;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

/// The longest text of a fact; a longer one is shortened and hashed.
const LONG: usize = 80;

/// Returns what each file of a run folder says, by file and place: the leaves of its JSON and the
/// lines of its reports, of other files the hash and the number of bytes. Of times it has only that
/// they are there, of `run.json` nothing that a key of the run's own hides. `text` may change the
/// text of a file, which it gets with its name, before it is read.
///
/// # Errors
/// If a file cannot be read, or is no JSON where it should be.
pub fn told(dir: &Path, text: impl Fn(&str, String) -> String) -> Result<BTreeMap<String, String>> {
    let mut facts = BTreeMap::new();
    for (name, bytes) in files(dir)? {
        let (stem, kind) = name.rsplit_once('.').unwrap_or((&name, ""));
        let read = || String::from_utf8(bytes.clone()).map(|read| text(&name, read));
        match kind {
            "json" => {
                let mut of = serde_json::from_str(&read()?).with_context(|| name.clone())?;
                if name == "run.json" {
                    hide_keyed(&mut of);
                }
                flatten(&mut facts, &name, &of);
            }
            "jsonl" => {
                for (at, line) in read()?.lines().enumerate() {
                    // a receipt stands behind its hash
                    let behind = line.split_once(' ').filter(|_| name == RECEIPTS);
                    let of = behind.map_or(line, |(_, record)| record);
                    let of: Value = serde_json::from_str(of).with_context(|| name.clone())?;
                    // the end of receipts has hashes of files, some with times
                    if of.get("end").is_none() {
                        flatten(&mut facts, &format!("{stem}[{at}]"), &of);
                    }
                }
            }
            "md" => {
                for (at, line) in read()?.lines().enumerate() {
                    if !line.is_empty() {
                        facts.insert(format!("{name}, line {}", at + 1), short(&timeless(line)));
                    }
                }
            }
            _ => {
                let content = read().map_or_else(|_| hash(&bytes), |text| hash(text.as_bytes()));
                facts.insert(format!("{name}: content"), content);
                facts.insert(format!("{name}: bytes"), bytes.len().to_string());
            }
        }
    }
    Ok(facts)
}

/// Takes out of `run.json` its times, and hashes under keys that each run draws anew.
fn hide_keyed(run: &mut Value) {
    for place in ["/keyed", "/started", "/book/time", "/book/id"] {
        if let Some(found) = run.pointer_mut(place) {
            found.take();
        }
    }
    if let Some(sealed) = run.pointer_mut("/book/data/sealed") {
        *sealed = sealed["text"].as_str().map_or(0, str::len).into();
    }
}

/// The files below a folder, by their paths in it; none if there is no folder.
///
/// # Errors
/// If one cannot be read.
pub fn files(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut all = BTreeMap::new();
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(all),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let below = files(&entry.path())?.into_iter();
            all.extend(below.map(|(path, bytes)| (format!("{name}/{path}"), bytes)));
        } else if kind.is_file() {
            all.insert(name, std::fs::read(entry.path())?);
        }
    }
    Ok(all)
}

/// Adds the leaves of a JSON value as facts, and the length of each list and object: of seconds
/// whether there are some, of paths nothing.
pub fn flatten(facts: &mut BTreeMap<String, String>, name: &str, value: &Value) {
    match value {
        Value::Object(of) => {
            facts.insert(format!("{name}: length"), of.len().to_string());
            for (key, value) in of {
                match &**key {
                    "out" => {}
                    "seconds" => {
                        let shown = if value.is_null() { "none" } else { "some" };
                        facts.insert(format!("{name}.seconds"), shown.into());
                    }
                    key => flatten(facts, &format!("{name}.{key}"), value),
                }
            }
        }
        Value::Array(of) => {
            facts.insert(format!("{name}: length"), of.len().to_string());
            for (at, value) in of.iter().enumerate() {
                flatten(facts, &format!("{name}[{at}]"), value);
            }
        }
        Value::String(text) => _ = facts.insert(name.into(), short(text)),
        leaf => _ = facts.insert(name.into(), leaf.to_string()),
    }
}

/// A text of one line; a long one is cut, with its hash.
pub fn short(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match line.char_indices().nth(LONG) {
        None => line,
        Some((at, _)) => format!("{} .. {}", &line[..at], hash(text.as_bytes())),
    }
}

/// The first half of a hash.
pub fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))[..16].into()
}

/// A line of a report without its times, which differ from run to run.
fn timeless(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    for at in 1..words.len() {
        let unit = words[at].trim_end_matches(['.', ',']);
        if unit == "s" && words[at - 1].parse::<f64>().is_ok() {
            words[at - 1] = "some";
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_object_is_not_the_same_as_none() {
        let facts = |text: &str| {
            let mut facts = BTreeMap::new();
            flatten(&mut facts, "a", &serde_json::from_str(text).unwrap());
            facts
        };
        let [none, empty] = [r#"{"x": 1}"#, r#"{"x": 1, "y": {}}"#].map(facts);
        assert_eq!(none["a.x"], empty["a.x"]);
        assert_ne!(none, empty);
        assert_eq!(empty["a.y: length"], "0");
        assert_eq!(facts(r#"{"seconds": 2, "out": "/b"}"#)["a.seconds"], "some");
    }

    #[test]
    fn a_line_of_a_report_keeps_all_but_its_times() {
        let line = "Checkpoints: 3, 0.1 s in all; the last has 2,065 bytes.";
        let due = "Checkpoints: 3, some s in all; the last has 2,065 bytes.";
        assert_eq!(timeless(line), due);
        assert_eq!(
            timeless("seed 1, 5 steps, 3.3 s."),
            "seed 1, 5 steps, some s."
        );
        assert_eq!(timeless("* 5 s of rows"), "* some s of rows");
        assert_eq!(timeless(""), "");
    }
}
