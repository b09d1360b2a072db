//! Libraries of parts as specs and command lines name them.

use crate::sections::{Isolate, Isolation, Plugin, Replaces};
use fl_core::Role;
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
    /// The package that it is of.
    pub package: Option<PackageRequest>,
    /// The SHA-256 that it must have, in hexadecimal.
    pub sha256: Option<String>,
    /// Is it to have processes of its own? `None`: as the command line says.
    pub isolate: Option<Isolation>,
    /// The folder of the spec that names it.
    pub folder: PathBuf,
    /// Do its parts take the place of linked ones?
    pub replaces: bool,
    /// Once it is loaded: the linked parts whose place its parts take.
    pub replaced: Vec<(Role, &'static str)>,
    /// Once it is loaded: the platform that its hash is for, such as `linux-x86_64`. `None`: not
    /// all that is run was hashed.
    pub platform: Option<String>,
    /// Once it is loaded: the interface that a library was built for.
    pub interface: Option<u32>,
    /// Once it is loaded: the limits of its processes, if it has processes of its own.
    pub isolated: Option<Isolate>,
}

/// A package as a spec names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageRequest {
    /// Its normalised name.
    pub name: String,
    /// The wanted version; once it is loaded, its version.
    pub version: Option<String>,
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
            package: None,
            sha256: None,
            isolate: None,
            folder: PathBuf::new(),
            replaces: false,
            replaced: Vec::new(),
            platform: None,
            interface: None,
            isolated: None,
        }
    }

    /// The name that errors call it by.
    pub(crate) fn named(&self) -> PathBuf {
        let package = self.package.as_ref().map(|package| &package.name);
        let name = package.or(self.module.as_ref());
        name.map_or_else(|| self.path.clone(), PathBuf::from)
    }

    /// As it stands in a spec.
    pub(crate) fn write(&self) -> Value {
        // a package is found by its name, wherever the run goes on
        let package = self.package.as_ref();
        let plugin = Plugin {
            package: package.map(|package| package.name.clone()),
            version: package.and_then(|package| package.version.clone()),
            path: Some(self.path.display().to_string()).filter(|_| package.is_none()),
            module: self.module.clone().filter(|_| package.is_none()),
            sha256: self.sha256.clone(),
            isolate: self.isolate.clone(),
            replaces: self.replaces.then_some(Replaces::Linked),
        };
        let mut value = plugin.write();
        if let (Value::Mapping(map), false) = (&mut value, self.replaces) {
            map.remove("replaces"); // as in the keys of kept runs
        }
        if let (Value::Mapping(map), None) = (&mut value, package) {
            // as earlier versions wrote it
            map.remove("package");
            map.remove("version");
        }
        value
    }
}

/// What a user should know of libraries whose parts take the place of linked ones.
pub fn replacement_notes(libraries: &[Library]) -> Vec<String> {
    let replacing = libraries
        .iter()
        .filter(|library| !library.replaced.is_empty());
    let note = |library: &Library| {
        let parts = library.replaced.iter();
        let parts = parts.map(|(role, name)| format!("{role} `{name}`"));
        let parts = parts.collect::<Vec<_>>().join(", ");
        format!("{library} takes the place of what the program links: {parts}")
    };
    replacing.map(note).collect()
}

impl Display for Library {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if let Some(package) = &self.package {
            let version = package.version.as_deref().unwrap_or_default();
            write!(f, "{} {version}: ", package.name)?;
        }
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

impl Refusal {
    /// Of a library that no spec names.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self {
            place: None,
            path: path.into(),
            text: text.into(),
        }
    }
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
    format!("its sha256 is {found}, and the pinned one is {wanted}")
}
