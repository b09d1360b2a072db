//! The accepted answers: a file beside the cases.

use anyhow::Result;
use fl_engine::NotRun;
use serde_json::{Map, Value as Json, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Answers by the names of their cases.
#[derive(Clone)]
pub struct Answers {
    pub path: PathBuf,
    held: Map<String, Json>,
}

impl Answers {
    /// Those in a file; none if there is no file.
    pub fn open(path: &Path) -> Result<Self> {
        let wrong = |text: String| usage(format!("{}: {text}", path.display()));
        let held = match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|e| wrong(format!("it has no answers: {e}; delete it, or restore it")))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Map::new(),
            Err(error) => return Err(wrong(error.to_string())),
        };
        Ok(Self {
            path: path.into(),
            held,
        })
    }

    /// The file of the answers to the cases in this file.
    pub fn beside(cases: &Path) -> PathBuf {
        cases.with_extension("answers.json")
    }

    /// The accepted answer to a case, and with what it was made, if that is known.
    pub fn get(&self, name: &str) -> Option<(&Json, Option<&str>)> {
        let held = self.held.get(name)?;
        // earlier versions of fl wrote the answer alone
        match (held.get("made-with"), held.get("answer")) {
            (Some(Json::String(made)), Some(answer)) => Some((answer, Some(made))),
            _ => Some((held, None)),
        }
    }

    pub fn accept(&mut self, name: &str, answer: Json) {
        let held = json!({ "made-with": made_here(), "answer": answer });
        self.held.insert(name.into(), held);
    }

    pub fn remove(&mut self, name: &str) {
        self.held.remove(name);
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.held.keys()
    }

    /// Writes the file as a whole; without answers there is none.
    pub fn write(&self) -> Result<()> {
        if self.held.is_empty() {
            return remove(&self.path);
        }
        let mut text = String::new();
        pretty(&Json::Object(self.held.clone()), 0, &mut text);
        text.push('\n');
        fl_files::write(&self.path, text.as_bytes())
    }
}

pub fn usage(text: String) -> anyhow::Error {
    NotRun::Usage(text).into()
}

/// Removes a file that may be there.
pub fn remove(path: &Path) -> Result<()> {
    fl_files::remove(path).map_err(|error| usage(format!("{}: {error}", path.display())))
}

/// What this program and machine put beside an answer.
pub fn made_here() -> String {
    format!(
        "fl {}, interface {}, {}-{}",
        env!("CARGO_PKG_VERSION"),
        fl_core::abi::raw::FL_VERSION,
        std::env::consts::ARCH,
        std::env::consts::OS
    )
}

/// Writes JSON, indented by `depth` steps. A list of single values has one line, so that a changed
/// row is a changed line.
pub fn pretty(value: &Json, depth: usize, out: &mut String) {
    let inner = |value: &Json| value.is_array() || value.is_object();
    let mut all = |open: char, close: char, items: Vec<(String, &Json)>| {
        out.push(open);
        for (at, (key, item)) in items.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(out, "{comma}\n{:1$}{key}", "", 2 * depth + 2);
            pretty(item, depth + 1, out);
        }
        let _ = write!(out, "\n{:1$}{close}", "", 2 * depth);
    };
    match value {
        Json::Object(map) if !map.is_empty() => {
            let key = |key: &String| format!("{}: ", Json::String(key.clone()));
            all('{', '}', map.iter().map(|(k, v)| (key(k), v)).collect());
        }
        Json::Array(items) if items.iter().any(inner) => {
            let items = items.iter().map(|item| (String::new(), item));
            all('[', ']', items.collect());
        }
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(Json::to_string).collect();
            let _ = write!(out, "[{}]", items.join(", "));
        }
        value => {
            let _ = write!(out, "{value}");
        }
    }
}
