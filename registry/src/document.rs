//! The text of a spec, parsed once.

use crate::diagnostics::{Mistake, Mistakes, SourcePosition};
use crate::library::{Library, PackageRequest};
use crate::overrides;
use crate::package::normalised;
use crate::sections::Plugin;
use crate::spanned_value::{Body, Node, key};
use crate::yaml::{self, Wrong};
use fl_core::settings::{self, Reader, Setting, Step, Value, show, show_path};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where the values of a document stand.
pub struct Places {
    file: String,
    root: Node,
    /// Values that could not be read.
    left_out: BTreeSet<Vec<Step>>,
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
            at: (path.to_vec(), false),
        }
    }

    /// The same mistake of a spec, at the place where this document changes the spec: `at` is the
    /// path of the new value here. A mistake in the spec's own text stays where it is.
    pub fn of_change(&self, at: &[Step], mistake: Mistake) -> Mistake {
        let SourcePosition::Set(set) = &mistake.place else {
            return mistake;
        };
        let (path, on_key) = &mistake.at;
        let inside = overrides::steps(set).ok();
        let place = match inside.and_then(|set| path.strip_prefix(&set[..])) {
            Some(inside) => self.root.place(&[at, inside].concat(), *on_key),
            None => self.root.place(at, true),
        };
        Mistake {
            file: self.file.clone(),
            place,
            ..mistake
        }
    }

    /// Is the value at `path`, or one that it is in, left out because it could not be read?
    pub fn left_out(&self, path: &[Step]) -> bool {
        (1..=path.len()).any(|steps| self.left_out.contains(&path[..steps]))
    }

    /// The paths that were left out inside the value at `path`, from there.
    pub fn left_out_in<'p>(&'p self, path: &'p [Step]) -> impl Iterator<Item = &'p [Step]> {
        let after = self.left_out.range(path.to_vec()..);
        after.map_while(|out| out.strip_prefix(path).filter(|inside| !inside.is_empty()))
    }

    /// What a [`Reader`] that began at the root found wrong.
    pub fn located(&self, mistakes: Vec<settings::Mistake>) -> impl Iterator<Item = Mistake> {
        mistakes.into_iter().map(|m| Mistake {
            place: self.root.place(&m.path, m.on_key),
            ..self.mistake(&m.path, m.text)
        })
    }
}

/// A document that has been read as far as it can be.
pub struct ReadableSettings<T> {
    /// Its settings. A setting that cannot be read has its default, or is an empty text.
    pub settings: T,
    /// Where they stand.
    pub places: Places,
    /// What is wrong with it.
    pub mistakes: Vec<Mistake>,
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

    /// Something wrong with the value at `path`, found after the document was read.
    pub fn mistake_at(&self, path: &[Step], text: impl Into<String>) -> Mistake {
        let start = SourcePosition::Text { line: 1, column: 1 };
        Mistake {
            file: self.file.clone(),
            place: self
                .root
                .as_ref()
                .map_or(start, |root| root.place(path, false)),
            path: path.to_vec(),
            text: text.into(),
            part: None,
            at: (path.to_vec(), false),
        }
    }

    /// Returns the values of the document, with its overrides and without defaults; `null` if the
    /// text is no YAML.
    pub fn values(&self) -> Value {
        self.root.as_ref().map_or(Value::Null, Node::value)
    }

    /// As [`Document::values`], of a text that another user may have written: what is too large or
    /// too deep is an error, in little time and memory.
    ///
    /// # Errors
    /// Every mistake of the text at once.
    pub fn values_of(file: &str, text: &[u8]) -> Result<Value, Mistakes> {
        let (root, mistakes) = Self::parse(file, text).tree("a spec is a mapping")?;
        if mistakes.is_empty() {
            Ok(root.value())
        } else {
            Err(Mistakes::sorted(mistakes))
        }
    }

    /// Reads a document that is no spec as these settings. `what` says what such a document is.
    ///
    /// # Errors
    /// Every mistake at once.
    pub fn settings<T: Setting>(&self, what: &str) -> Result<(T, Places), Mistakes> {
        let read = self.readable_settings(what)?;
        if read.mistakes.is_empty() {
            Ok((read.settings, read.places))
        } else {
            Err(Mistakes::sorted(read.mistakes))
        }
    }

    /// As [`Document::settings`], but reads the rest if some values are wrong, so that it can be
    /// checked too.
    ///
    /// # Errors
    /// If the text is no mapping, or its values cannot be told apart from a spec's.
    pub fn readable_settings<T: Setting>(
        &self,
        what: &str,
    ) -> Result<ReadableSettings<T>, Mistakes> {
        let (root, mut mistakes) = self.tree(what)?;
        let mut value = root.value();
        let mut places = Places {
            file: self.file.clone(),
            root,
            left_out: BTreeSet::new(),
        };
        if ["protocol", "stages"]
            .iter()
            .any(|of| value.get(of).is_some())
            && value.get("data").is_some()
        {
            let text = format!("this is a spec, which `fl run` runs; {what}");
            return Err(Mistakes::sorted(vec![places.mistake(&[], text)]));
        }
        let mut tried = BTreeMap::new();
        loop {
            let mut reader = Reader::default();
            let read = T::read(&value, &mut reader);
            if let Some(settings) = read.filter(|_| reader.mistakes.is_empty()) {
                return Ok(ReadableSettings {
                    settings,
                    places,
                    mistakes,
                });
            }
            let wrong: Vec<Vec<Step>> = reader.mistakes.iter().map(|m| m.path.clone()).collect();
            // the rest is there because of what was left out before
            let new = reader.mistakes.into_iter();
            let follows = |m: &settings::Mistake| {
                places.left_out(&m.path) || places.left_out_in(&m.path).next().is_some()
            };
            let new: Vec<_> = new.filter(|m| !follows(m)).collect();
            mistakes.extend(places.located(new));
            let left = wrong
                .iter()
                .all(|path| leave_out(&mut value, path, &mut tried));
            if wrong.is_empty() || !left {
                return Err(Mistakes::sorted(mistakes));
            }
            places.left_out.extend(wrong);
        }
    }

    /// As [`Document::tree`] of a spec; an error says so if this is a study.
    pub(crate) fn spec_tree(&self, what: &str) -> Result<(Node, Vec<Mistake>), Mistakes> {
        let (root, mistakes) = self.tree(what)?;
        if root.get("tables").is_some() && root.get("protocol").is_none() {
            let text = format!("this is a study, which `fl study` runs; {what}");
            return Err(Mistakes::sorted(vec![self.mistake_at(&[], text)]));
        }
        Ok((root, mistakes))
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
            at: (Vec::new(), false),
        }
    }

    /// The libraries that the spec names.
    pub fn libraries(&self) -> Vec<Library> {
        self.plugins().into_iter().map(|(_, l)| l).collect()
    }

    /// Does the spec have this key?
    pub(crate) fn has(&self, key: &str) -> bool {
        self.root
            .as_ref()
            .is_some_and(|root| root.get(key).is_some())
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
                folder: folder.join("."),
                replaces: p.replaces.is_some(),
                ..Library::at("")
            };
            (
                format!("{}:{place}  {}", self.file, show_path(&path)),
                library,
            )
        };
        named.into_iter().enumerate().map(library).collect()
    }
}

/// Makes `value` readable at `path`: takes the value there away; if one must be there, puts an
/// empty text in its place; and if that does not help, does the same one step up. Returns false at
/// the root. `tried` counts what was done before.
fn leave_out(value: &mut Value, path: &[Step], tried: &mut BTreeMap<Vec<Step>, usize>) -> bool {
    let Some((last, above)) = path.split_last() else {
        return false;
    };
    let tries = tried.entry(path.to_vec()).or_default();
    *tries += 1;
    let new = match *tries {
        1 => Value::Null,
        2 => "".into(),
        _ => return leave_out(value, above, tried),
    };
    let mut inside = Some(value);
    for step in above {
        inside = inside.and_then(|value| match step {
            Step::Key(key) => value.get_mut(key.as_str()),
            Step::Item(at) => value.get_mut(at),
        });
    }
    match (inside, last) {
        (Some(Value::Mapping(map)), Step::Key(key)) => {
            let taken = new.is_null() && map.shift_remove(key.as_str()).is_some();
            // what is missing is not taken away
            let new = if new.is_null() { "".into() } else { new };
            if !taken {
                map.insert(key.as_str().into(), new);
            }
        }
        (Some(Value::Sequence(list)), Step::Item(at)) => {
            if let Some(item) = list.get_mut(*at) {
                *item = new;
            }
        }
        // taken away with something around it
        _ => {}
    }
    true
}
