//! Libraries of parts as specs and command lines name them.

use crate::sections::{Isolate, Plugin};
use fl_core::settings::{Setting, Value};
use std::fmt::{Display, Formatter};
use std::path::PathBuf;

/// A library or a Python module that the spec or the command line names.
#[derive(Clone, Debug, PartialEq)]
pub struct Library {
    /// Where it is; of a module, the folder in which it is looked for.
    pub path: PathBuf,
    /// The module's name.
    pub module: Option<String>,
    /// The SHA-256 that it must have, in hexadecimal.
    pub sha256: Option<String>,
    /// Has it processes of its own?
    pub isolate: Option<Isolate>,
}

impl Library {
    /// Whatever is at this place; a file that ends in `.py` is a module.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let python = path.extension().is_some_and(|ending| ending == "py");
        let module = path.file_stem().filter(|_| python);
        let module = module.map(|name| name.to_string_lossy().into_owned());
        Self {
            path: match (&module, path.parent()) {
                (Some(_), Some(folder)) => folder.into(),
                _ => path,
            },
            module,
            sha256: None,
            isolate: None,
        }
    }

    /// As it stands in a spec.
    pub(crate) fn write(&self) -> Value {
        let plugin = Plugin {
            path: Some(self.path.display().to_string()),
            module: self.module.clone(),
            sha256: self.sha256.clone(),
            isolate: self.isolate.clone(),
        };
        plugin.write()
    }
}

impl Display for Library {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match &self.module {
            Some(name) => write!(f, "module {name} in {}", self.path.display()),
            None => write!(f, "{}", self.path.display()),
        }
    }
}

/// A library that was not used, and why.
#[derive(Debug)]
pub struct Refusal {
    /// Where it is named, if that is in a spec: `mine.yaml:3:11  plugins[0].path`.
    pub place: Option<String>,
    /// The library.
    pub path: PathBuf,
    /// The reason.
    pub text: String,
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "plugin {}: {}", self.path.display(), self.text)
    }
}

impl std::error::Error for Refusal {}

pub(crate) fn other_hash(found: &str, wanted: &str) -> String {
    format!("its sha256 is {found}, and the spec requires {wanted}")
}
