//! Checks a spec and notes every mistake with its place.

use crate::aliases;
use crate::catalogue::{Catalogue, any_make, example, names};
use crate::data_section::DataSection;
use crate::diagnostics::{Mistake, Mistakes};
use crate::document::Document;
use crate::sections::Clients;
use crate::spanned_value::{Node, below, key};
use fl_core::message::{Ids, Message};
use fl_core::settings::{Reader, Step, Value, ValueType, show};
use fl_core::{
    CheckedSettings, ExchangeSpec, Measurement, MeasurementOf, PartDecl, Protocol, Role, SlotSpec,
    metrics,
};
use std::path::Path;

/// A part that a spec names, with settings that have been checked.
#[derive(Clone)]
pub(crate) struct CheckedPart {
    pub decl: &'static PartDecl,
    pub settings: CheckedSettings,
}

impl CheckedPart {
    /// As it stands in a spec.
    pub fn write(&self) -> Value {
        let mut map = serde_yaml::Mapping::new();
        map.insert("use".into(), self.decl.name.into());
        let settings = self.settings.value.as_mapping();
        map.extend(settings.cloned().unwrap_or_default());
        map.into()
    }
}

/// A part in a slot.
#[derive(Clone)]
pub(crate) struct Fill {
    pub slot: String,
    pub path: Vec<Step>,
    pub clients: Option<Clients>,
    pub part: CheckedPart,
}

/// What is known of the spec's protocol.
pub(crate) struct CheckedProtocol {
    /// Where it stands in the spec.
    pub path: Vec<Step>,
    /// What messages call it.
    pub name: String,
    /// The name that the spec uses for it, such as an alias.
    pub used: String,
    pub decl: &'static PartDecl,
    /// `None` if its settings are wrong.
    pub part: Option<CheckedPart>,
    pub slots: Vec<SlotSpec>,
    /// `None` if its settings are wrong.
    pub protocol: Option<Box<dyn Protocol>>,
    pub asked: Vec<ExchangeSpec>,
}

impl CheckedProtocol {
    /// Does the server, by the protocol set as it is, release anything through this slot?
    pub fn releases_at_server(&self, slot: &str) -> bool {
        self.asked.iter().any(|q| q.flow.at_server.contains(&slot))
    }
}

/// The state of a check.
pub(crate) struct Checker<'a> {
    file: &'a str,
    pub catalogue: &'a Catalogue,
    /// The text, overrides applied.
    pub root: Node,
    pub mistakes: Vec<Mistake>,
    /// Whether an entry of `plugins` is wrong.
    pub wrong_plugins: bool,
    /// What a user should know although it is no mistake.
    pub notes: Vec<String>,
    /// As [`Checker::notes`]; the run tells the user too.
    pub foreseen: Vec<String>,
}

/// Is this exchange about public samples?
pub(crate) fn is_about_public(asked: &ExchangeSpec) -> bool {
    asked.rows == usize::MAX || asked.down == Ids::KIND
}

/// What a spec is.
const SPEC: &str = "a spec is a mapping with `name`, `data`, `protocol` (or `stages`) and `parts`";

/// `selector `uniform``
fn label(part: &PartDecl) -> String {
    format!("{} `{}`", part.role, part.name)
}

impl<'a> Checker<'a> {
    /// Begins a check of a spec.
    ///
    /// # Errors
    /// When the text is no mapping.
    pub fn new(document: &'a Document, catalogue: &'a Catalogue) -> Result<Self, Mistakes> {
        let (root, mistakes) = document.spec_tree(SPEC)?;
        Ok(Self {
            file: &document.file,
            catalogue,
            root,
            mistakes,
            wrong_plugins: false,
            notes: Vec::new(),
            foreseen: Vec::new(),
        })
    }

    /// Everything that was noted, or `done`; `data` describes the section of this name.
    pub fn finish<T>(mut self, done: Option<T>, data: &ValueType) -> Result<T, Mistakes> {
        match done {
            Some(done) if self.mistakes.is_empty() => Ok(done),
            _ => {
                // two stages may say the same of a part that they share
                let mut told = Vec::new();
                self.mistakes.retain(|mistake| {
                    let new = !told.contains(mistake);
                    told.extend(new.then(|| mistake.clone()));
                    new
                });
                self.say_where_settings_are(data);
                if self.mistakes.is_empty() {
                    self.note(
                        &[],
                        "invalid spec: a part rejected its settings without a reason, which is a bug in that part",
                    );
                }
                Err(Mistakes::sorted(self.mistakes))
            }
        }
    }

    fn at(
        &self,
        at: (Vec<Step>, bool),
        path: &[Step],
        text: String,
        part: Option<(usize, String)>,
    ) -> Mistake {
        Mistake {
            file: self.file.into(),
            place: self.root.place(&at.0, at.1),
            path: path.to_vec(),
            text: text.replace('\n', "; "),
            part,
            at,
        }
    }

    /// Something wrong with the value at `at`, or with its key.
    fn push(
        &mut self,
        at: (Vec<Step>, bool),
        path: &[Step],
        text: String,
        part: Option<(usize, String)>,
    ) {
        let mistake = self.at(at, path, text, part);
        self.mistakes.push(mistake);
    }

    /// What the run will tell the user of the part chosen at `path`.
    pub fn remark(&mut self, path: &[Step], text: String, part: &PartDecl) {
        let at = (below(path, key("use")), false);
        let remark = self.at(at, path, text, Some((path.len(), label(part))));
        self.foreseen.push(remark.to_string());
    }

    /// What a user should know of the value at `path`.
    pub fn tell(&mut self, path: &[Step], text: String) {
        let note = self.at((path.to_vec(), false), path, text, None);
        self.notes.push(note.to_string());
    }

    /// The value at `path` is wrong, or missing.
    pub fn note(&mut self, path: &[Step], text: impl Into<String>) {
        self.push((path.to_vec(), false), path, text.into(), None);
    }

    /// The key at `path` is wrong.
    pub fn note_key(&mut self, path: &[Step], text: impl Into<String>) {
        self.push((path.to_vec(), true), path, text.into(), None);
    }

    /// The part chosen at `path` is wrong: its `use` is to blame.
    pub fn note_use(&mut self, path: &[Step], text: impl Into<String>, part: Option<&PartDecl>) {
        self.push(
            (below(path, key("use")), false),
            path,
            text.into(),
            part.map(|p| (path.len(), label(p))),
        );
    }

    /// Reads settings at `path`, and notes what is wrong with them.
    pub fn settings<T>(
        &mut self,
        path: &[Step],
        part: Option<&PartDecl>,
        read: impl FnOnce(&mut Reader) -> Option<T>,
    ) -> Option<T> {
        let mut reader = Reader::at(path.to_vec());
        let read = read(&mut reader).filter(|_| reader.mistakes.is_empty());
        for m in reader.mistakes {
            let at = (m.path.clone(), m.on_key);
            self.push(at, &m.path, m.text, part.map(|p| (path.len(), label(p))));
        }
        read
    }

    /// The data section, once the files that it names are known to be there.
    pub fn files<D: DataSection>(&mut self, mut data: D) -> Option<D> {
        let folder = Path::new(self.file).parent().unwrap_or(Path::new(""));
        let problems = data.resolve(folder, self.catalogue);
        for (path, text) in &problems {
            let path: Vec<Step> = [key("data")].iter().chain(path).cloned().collect();
            self.note(&path, text);
        }
        problems.is_empty().then_some(data)
    }

    /// The part that `use` names, and its settings if they are right. It has a role, and mistakes
    /// list the parts that fit; without them any part will do.
    pub fn choose(
        &mut self,
        value: &Value,
        path: &[Step],
        of: Option<(Role, &[&'static PartDecl])>,
        not_settings: &[&str],
    ) -> Option<(&'static PartDecl, Option<CheckedSettings>)> {
        let what = of.map_or("a part".into(), |(role, _)| role.with_article());
        let catalogue = self.catalogue;
        let known = || match of {
            Some((_, fitting)) => names(fitting.iter().copied()),
            None => names(catalogue.parts().iter().copied()),
        };
        let Value::Mapping(map) = value else {
            let of_name = value.as_str().map(|name| (name, catalogue.named(name)));
            let then = match of_name {
                Some((name, parts)) if !parts.is_empty() => format!("write `{{ use: {name} }}`"),
                _ => format!("known: {}", known()),
            };
            let got = show(value);
            let text = format!("must be a mapping whose `use` names {what}, got {got}; {then}");
            self.note(path, text);
            return None;
        };
        let Some(name) = map.get("use") else {
            let text = format!("`use` is missing: it names {what}; known: {}", known());
            self.note_use(path, text, None);
            return None;
        };
        let Some(name) = name.as_str() else {
            let text = format!(
                "must be the name of {what}, got {}; known: {}",
                show(name),
                known()
            );
            self.note(&below(path, key("use")), text);
            return None;
        };
        let found = match of {
            Some((role, fitting)) => self.catalogue.find_among(role, name, fitting),
            None => match self.catalogue.named(name).as_slice() {
                [] => Err(self.catalogue.unknown(name)),
                [one] => Ok(*one),
                _ => return None, // which of them is meant depends on a protocol that is not known
            },
        };
        let decl = match found {
            Ok(decl) => decl,
            Err(text) => {
                // a plugin whose entry is wrong may have it
                if !self.wrong_plugins {
                    self.note_use(path, text, None);
                }
                return None;
            }
        };
        let settings = map
            .iter()
            .filter(|(k, _)| k.as_str().is_none_or(|k| !not_settings.contains(&k)))
            .map(|(k, v)| (k.clone(), v.clone()));
        let mut settings: serde_yaml::Mapping = settings.collect();
        if let Some(alias) = decl.alias(name) {
            // what the spec says comes before what the name stands for
            for (key, value) in aliases::preset(alias) {
                settings.entry(key).or_insert(value);
            }
        }
        let settings = Value::Mapping(settings);
        let settings = self.settings(path, Some(decl), |r| (decl.check)(&settings, r));
        Some((decl, settings))
    }

    /// The protocol: its settings, slots and questions.
    pub fn protocol<D: DataSection>(
        &mut self,
        value: &Value,
        path: &[Step],
        data: Option<&D>,
    ) -> Option<CheckedProtocol> {
        let all: Vec<_> = self.catalogue.of_role(Role::Protocol).collect();
        let of = Some((Role::Protocol, &all[..]));
        let (decl, settings) = self.choose(value, path, of, &["use"])?;
        let used = value.get("use").and_then(Value::as_str);
        let used = used.unwrap_or_default().to_string();
        let Some(settings) = settings else {
            // its slots hardly depend on the wrong setting, and mistakes in the parts are to be
            // reported too
            let protocol = example(decl)?;
            return Some(CheckedProtocol {
                path: path.to_vec(),
                name: decl.name.into(),
                used,
                decl,
                part: None,
                slots: protocol.slots(),
                protocol: None,
                asked: Vec::new(),
            });
        };
        let protocol = match fl_core::protocol(decl, &settings, &any_make()) {
            Ok(protocol) => protocol,
            Err(error) => {
                // the first of the chain names the protocol, and so does the note
                let why: Vec<_> = error.chain().skip(1).map(ToString::to_string).collect();
                self.note_use(path, why.join(": "), Some(decl));
                return None;
            }
        };
        let measures = protocol.declare().measures.unwrap_or_default();
        let own = |m: &&Measurement| matches!(m.of, MeasurementOf::Number | MeasurementOf::Each);
        let taken = |m: &Measurement| metrics::ensure_free(&m.name).err();
        if let Some(error) = measures.iter().filter(own).find_map(taken) {
            self.note_use(path, error.to_string(), Some(decl));
        }
        let asked = protocol.exchanges();
        if let (Some(data), Some(q)) = (data, asked.iter().find(|asked| is_about_public(asked)))
            && !data.has_public()
        {
            let text = format!(
                "is missing: protocol `{}` asks about public samples (`{}`)",
                decl.name, q.label
            );
            self.note(&[key("data"), key("public")], text);
        }
        if let (Some(data), Some(q)) = (data, asked.iter().find(|asked| asked.held_out))
            && !data.own_tests()
        {
            let text = format!(
                "is missing: protocol `{}` asks clients about rows that they have held back (`{}`): set it to their share, such as 0.25",
                decl.name, q.label
            );
            self.note(&[key("data"), key("test"), key("own")], text);
        }
        Some(CheckedProtocol {
            path: path.to_vec(),
            name: decl.name.into(),
            used,
            decl,
            part: Some(CheckedPart { decl, settings }),
            slots: protocol.slots(),
            protocol: Some(protocol),
            asked,
        })
    }
}
