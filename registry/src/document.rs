//! The text of a spec, parsed once.

use crate::diagnostics::{Mistake, Mistakes, SourcePosition};
use crate::library::{Library, PackageRequest};
use crate::overrides;
use crate::package::normalised;
use crate::sections::Plugin;
use crate::spanned_value::{Body, Node, key};
use crate::trust::Trust;
use crate::yaml::{self, Wrong};
use fl_core::settings::{self, Reader, Setting, Step, Value, show, show_path};
use std::path::Path;

/// Where the values of a document stand.
pub struct Places {
    file: String,
    root: Node,
}

impl Places {
    /// Something wrong with the value at `path`.
    pub fn mistake(&self, path: &[Step], text: impl Into<String>) -> Mistake {
        Mistake {
            file: self.file.clone(),
            place: self.root.place(path, false),
            path: path.to_vec(),
            text: text.into(),
            part: None,
        }
    }

    /// What a [`Reader`] that began at the root found wrong.
    pub fn located(&self, mistakes: Vec<settings::Mistake>) -> impl Iterator<Item = Mistake> {
        mistakes.into_iter().map(|m| Mistake {
            place: self.root.place(&m.path, m.on_key),
            ..self.mistake(&m.path, m.text)
        })
    }
}

/// A parsed spec and the overrides that were applied to it. Cheap to clone.
#[derive(Clone)]
pub struct Document {
    /// What mistakes call the spec. Paths in the spec are relative to its folder.
    pub(crate) file: String,
    /// `None`: the text is no YAML.
    root: Option<Node>,
    wrong: Vec<Wrong>,
}

impl Document {
    /// Parses a spec. [`Document::read`] reports what is wrong with the text.
    pub fn parse(file: &str, text: &[u8]) -> Self {
        let (root, wrong) = yaml::parse(text);
        Self {
            file: file.into(),
            root,
            wrong,
        }
    }

    /// Applies overrides such as `protocol.rounds=5`. Later overrides win.
    pub fn set(mut self, overrides: &[String]) -> Self {
        // an empty file may be filled from outside
        let open =
            |root: &&mut Node| matches!(&*root.body, Body::Map(_) | Body::Scalar(Value::Null));
        if let Some(root) = self.root.as_mut().filter(open) {
            for set in overrides {
                self.wrong.extend(overrides::apply(root, set));
            }
        }
        self
    }

    /// What mistakes call the document.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Reads a document that is no spec as these settings. `what` says what such a document is.
    ///
    /// # Errors
    /// Every mistake at once.
    pub fn settings<T: Setting>(&self, what: &str) -> Result<(T, Places), Mistakes> {
        let (root, mut mistakes) = self.tree(what)?;
        let value = root.value();
        let places = Places {
            file: self.file.clone(),
            root,
        };
        if value.get("protocol").is_some() && value.get("data").is_some() {
            let text = format!("this is a spec, which `fl run` runs; {what}");
            return Err(Mistakes::sorted(vec![places.mistake(&[], text)]));
        }
        let mut reader = Reader::default();
        let read = T::read(&value, &mut reader);
        mistakes.extend(places.located(reader.mistakes));
        match read {
            Some(read) if mistakes.is_empty() => Ok((read, places)),
            _ => Err(Mistakes::sorted(mistakes)),
        }
    }

    /// The tree of values, and the mistakes that do not keep it from being checked. `what` says
    /// what such a document is.
    pub(crate) fn tree(&self, what: &str) -> Result<(Node, Vec<Mistake>), Mistakes> {
        let mut wrong = self.wrong.clone();
        if let Some(root) = &self.root {
            if matches!(&*root.body, Body::Map(_)) {
                let mistakes = wrong.into_iter().map(|wrong| self.mistake(wrong));
                return Ok((root.clone(), mistakes.collect()));
            }
            let found = match root.value() {
                Value::Null => "nothing is in this file".into(),
                other => format!("got {}", show(&other)),
            };
            wrong.push(Wrong {
                at: root.at.clone(),
                path: Vec::new(),
                text: format!("{what}; {found}"),
            });
        }
        let mistakes = wrong.into_iter().map(|wrong| self.mistake(wrong));
        Err(Mistakes::sorted(mistakes.collect()))
    }

    fn mistake(&self, wrong: Wrong) -> Mistake {
        Mistake {
            file: self.file.clone(),
            place: wrong.at,
            path: wrong.path,
            text: wrong.text,
            part: None,
        }
    }

    /// The libraries that the spec names.
    pub fn libraries(&self) -> Vec<Library> {
        self.plugins().into_iter().map(|(_, l)| l).collect()
    }

    /// How far the spec wants plugins to be trusted. `None` if it does not say so in words that
    /// can be read: [`Document::read`] says why.
    pub(crate) fn plugins_trust(&self) -> Option<Trust> {
        let named = self
            .root
            .as_ref()
            .and_then(|root| root.get("plugins-trust"));
        let named = named.map_or(Value::Null, Node::value);
        let read = <Option<Trust> as Setting>::read(&named, &mut Reader::default())?;
        Some(read.unwrap_or(Trust::Any))
    }

    /// The libraries that the spec names, each with the place of its path. Empty if `plugins`
    /// cannot be read: [`Document::read`] says why.
    pub(crate) fn plugins(&self) -> Vec<(String, Library)> {
        let Some(root) = &self.root else {
            return Vec::new();
        };
        let named = root.get("plugins").map_or(Value::Null, Node::value);
        let named: Vec<Plugin> = Setting::read(&named, &mut Reader::default()).unwrap_or_default();
        let folder = Path::new(&self.file).parent().unwrap_or(Path::new(""));
        let library = |(at, p): (usize, Plugin)| {
            let named = match (&p.package, &p.module) {
                (Some(_), _) => "package",
                (None, Some(_)) => "module",
                (None, None) => "path",
            };
            let path = [key("plugins"), Step::Item(at), key(named)];
            let place: SourcePosition = root.place(&path, false);
            let library = Library {
                path: folder.join(p.path.unwrap_or_default()),
                module: p.module,
                package: p.package.map(|name| PackageRequest {
                    name: normalised(&name).unwrap_or(name),
                    version: p.version,
                }),
                sha256: p.sha256,
                isolate: p.isolate.map(|isolation| isolation.read_from(folder)),
                trust: None,
                interface: None,
                isolated: None,
            };
            (
                format!("{}:{place}  {}", self.file, show_path(&path)),
                library,
            )
        };
        named.into_iter().enumerate().map(library).collect()
    }
}
