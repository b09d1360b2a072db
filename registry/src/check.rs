//! Checks a spec and notes every mistake with its place.

use crate::catalogue::{Catalogue, any_make, example, fits, names, takes};
use crate::groups;
use crate::mistakes::{Mistake, Mistakes, Place};
use crate::overrides;
use crate::sections::{Clients, DataSection};
use crate::yaml::{self, Node, Wrong};
use fl_core::message::{Ids, Message};
use fl_core::settings::{Reader, Setting, Step, Value, nearest, show};
use fl_core::{Asked, Filled, Make, PartDecl, Role, Slot, Stream, Task, TaskKind};
use std::collections::HashSet;

/// A part that a spec names, with settings that have been checked.
pub(crate) struct Chosen {
    pub decl: &'static PartDecl,
    /// Every default filled in.
    pub settings: Value,
}

impl Chosen {
    /// As it stands in a spec.
    pub fn write(&self) -> Value {
        let mut map = serde_yaml::Mapping::new();
        map.insert("use".into(), self.decl.name.into());
        map.extend(self.settings.as_mapping().cloned().unwrap_or_default());
        map.into()
    }
}

/// What is known of the spec's protocol.
pub(crate) struct Conversation {
    decl: &'static PartDecl,
    /// `None` if its settings are wrong.
    pub part: Option<Chosen>,
    slots: Vec<Slot>,
    asked: Vec<Asked>,
}

/// A part in a slot.
pub(crate) struct Fill {
    slot: String,
    path: Vec<Step>,
    clients: Option<Clients>,
    part: Chosen,
}

/// The state of a check.
pub(crate) struct Checker<'a> {
    file: &'a str,
    catalogue: &'a Catalogue,
    /// The text, overrides applied.
    pub root: Node,
    mistakes: Vec<Mistake>,
}

/// A step to `name`.
pub(crate) fn key(name: &str) -> Step {
    Step::Key(name.into())
}

fn below(path: &[Step], step: Step) -> Vec<Step> {
    path.iter().cloned().chain([step]).collect()
}

/// `selector `uniform``
fn label(part: &PartDecl) -> String {
    format!("{} `{}`", part.role, part.name)
}

impl<'a> Checker<'a> {
    /// Parses the text and applies what is set from outside.
    pub fn new(
        file: &'a str,
        text: &[u8],
        set: &[String],
        catalogue: &'a Catalogue,
    ) -> Result<Self, Mistakes> {
        let mistake = |wrong: Wrong| Mistake {
            file: file.into(),
            place: wrong.at,
            path: wrong.path,
            text: wrong.text,
            part: None,
        };
        let (root, mut wrong) = yaml::parse(text);
        let Some(mut root) = root else {
            return Err(sorted(wrong.into_iter().map(mistake).collect()));
        };
        if root.value().is_mapping() || !set.is_empty() && root.value().is_null() {
            for set in set {
                wrong.extend(overrides::apply(&mut root, set));
            }
        } else {
            let found = match root.value() {
                Value::Null => "nothing is in this file".into(),
                other => format!("got {}", show(&other)),
            };
            wrong.push(Wrong {
                at: root.at.clone(),
                path: Vec::new(),
                text: format!(
                    "a spec is a mapping with `name`, `data`, `protocol` and `parts`; {found}"
                ),
            });
            return Err(sorted(wrong.into_iter().map(mistake).collect()));
        }
        Ok(Self {
            file,
            catalogue,
            root,
            mistakes: wrong.into_iter().map(mistake).collect(),
        })
    }

    /// Everything that was noted, or `done`.
    pub fn finish<T>(mut self, done: Option<T>) -> Result<T, Mistakes> {
        match done {
            Some(done) if self.mistakes.is_empty() => Ok(done),
            _ => {
                if self.mistakes.is_empty() {
                    self.note(
                        &[],
                        "the spec cannot be read, and the part at fault does not say why",
                    );
                }
                Err(sorted(self.mistakes))
            }
        }
    }

    fn push(&mut self, place: Place, path: &[Step], text: String, part: Option<(usize, String)>) {
        self.mistakes.push(Mistake {
            file: self.file.into(),
            place,
            path: path.to_vec(),
            text: text.replace('\n', "; "),
            part,
        });
    }

    /// The value at `path` is wrong, or missing.
    pub fn note(&mut self, path: &[Step], text: impl Into<String>) {
        self.push(self.root.place(path, false), path, text.into(), None);
    }

    /// The key at `path` is wrong.
    fn note_key(&mut self, path: &[Step], text: impl Into<String>) {
        self.push(self.root.place(path, true), path, text.into(), None);
    }

    /// The part chosen at `path` is wrong: its `use` is to blame.
    fn note_use(&mut self, path: &[Step], text: impl Into<String>, part: Option<&PartDecl>) {
        let place = self.root.place(&below(path, key("use")), false);
        self.push(
            place,
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
            let place = self.root.place(&m.path, m.on_key);
            self.push(place, &m.path, m.text, part.map(|p| (path.len(), label(p))));
        }
        read
    }

    /// The part that `use` names, and its settings if they are right. Without a role, any part will do.
    fn choose(
        &mut self,
        value: &Value,
        path: &[Step],
        role: Option<Role>,
        not_settings: &[&str],
    ) -> Option<(&'static PartDecl, Option<Value>)> {
        let what = role.map_or("a part".into(), Role::with_article);
        let known = match role {
            Some(role) => names(self.catalogue.of_role(role)),
            None => names(self.catalogue.parts().iter().copied()),
        };
        let Value::Mapping(map) = value else {
            let text = format!(
                "must be a mapping whose `use` names {what}, got {}; known: {known}",
                show(value)
            );
            self.note(path, text);
            return None;
        };
        let Some(name) = map.get("use") else {
            let text = format!("`use` is missing: it names {what}; known: {known}");
            self.push(
                self.root.place(&below(path, key("use")), false),
                path,
                text,
                None,
            );
            return None;
        };
        let Some(name) = name.as_str() else {
            let text = format!(
                "must be the name of {what}, got {}; known: {known}",
                show(name)
            );
            self.note(&below(path, key("use")), text);
            return None;
        };
        let found = match role {
            Some(role) => self.catalogue.find(role, name),
            None => match self.catalogue.named(name).as_slice() {
                [] => {
                    let all = self.catalogue.parts().iter().map(|p| p.name);
                    let near = nearest(name, all).map(|near| format!("; did you mean `{near}`?"));
                    Err(format!(
                        "no part is called {}{}",
                        show(&name.into()),
                        near.unwrap_or_default()
                    ))
                }
                [one] => Ok(*one),
                _ => return None, // which of them is meant depends on a protocol that is not known
            },
        };
        let decl = match found {
            Ok(decl) => decl,
            Err(text) => {
                self.note_use(path, text, None);
                return None;
            }
        };
        let settings = map
            .iter()
            .filter(|(k, _)| k.as_str().is_none_or(|k| !not_settings.contains(&k)))
            .map(|(k, v)| (k.clone(), v.clone()));
        let settings = Value::Mapping(settings.collect());
        let settings = self.settings(path, Some(decl), |r| (decl.check)(&settings, r));
        Some((decl, settings))
    }

    /// The protocol: its settings, slots and questions.
    pub fn protocol<D: DataSection>(
        &mut self,
        value: &Value,
        data: Option<&D>,
    ) -> Option<Conversation> {
        let path = [key("protocol")];
        let (decl, settings) = self.choose(value, &path, Some(Role::Protocol), &["use"])?;
        let Some(settings) = settings else {
            // its slots hardly depend on the wrong setting, and mistakes in the parts shall be told too
            let protocol = example(decl)?;
            return Some(Conversation {
                decl,
                part: None,
                slots: protocol.slots(),
                asked: Vec::new(),
            });
        };
        let protocol = match fl_core::protocol(decl, &settings, &any_make()) {
            Ok(protocol) => protocol,
            Err(error) => {
                self.note_use(&path, format!("{:#}", error.root_cause()), Some(decl));
                return None;
            }
        };
        let asked = protocol.questions();
        let about_public = |q: &&Asked| q.rows == usize::MAX || q.down == Ids::KIND;
        if let (Some(data), Some(q)) = (data, asked.iter().find(about_public)) {
            if !data.has_public() {
                let text = format!(
                    "is missing: protocol `{}` asks about public samples (`{}`)",
                    decl.name, q.label
                );
                self.note(&[key("data"), key("public")], text);
            }
        }
        Some(Conversation {
            decl,
            part: Some(Chosen { decl, settings }),
            slots: protocol.slots(),
            asked,
        })
    }

    /// The parts in the protocol's slots, in the order of the spec.
    pub fn parts<D: DataSection>(
        &mut self,
        value: Option<&Value>,
        protocol: Option<&Conversation>,
        data: Option<&D>,
    ) -> Vec<Fill> {
        let path = [key("parts")];
        let mut filled = Vec::new();
        let empty = serde_yaml::Mapping::new();
        let map = match value {
            None | Some(Value::Null) => &empty,
            Some(Value::Mapping(map)) => map,
            Some(other) => {
                let text = format!("must be a mapping from slots to parts, got {}", show(other));
                self.note(&path, text);
                return filled;
            }
        };
        for (name, value) in map {
            let Some(name) = name.as_str() else { continue };
            let slot = protocol.and_then(|p| p.slots.iter().find(|s| s.name == name));
            if let (Some(protocol), None) = (protocol, slot) {
                self.unknown_slot(&below(&path, key(name)), name, protocol);
            }
            self.slot(
                &below(&path, key(name)),
                name,
                value,
                slot,
                data,
                &mut filled,
            );
        }
        let Some(protocol) = protocol else {
            return filled;
        };
        for slot in &protocol.slots {
            let path = below(&path, key(slot.name));
            if !map.contains_key(slot.name) && !slot.optional {
                let fit = names(self.catalogue.fitting(slot));
                let text = format!(
                    "is missing ({}): {} These fit: {fit}",
                    takes(slot),
                    slot.about
                );
                self.note(&path, text);
            }
            let released = |q: &Asked| q.releases.contains(&slot.name);
            if map.contains_key(slot.name)
                && slot.role == Role::Privacy
                && protocol.part.is_some()
                && !protocol.asked.iter().any(released)
            {
                let text = format!(
                    "protocol `{}`, set as it is, releases nothing through this slot: a mechanism here would protect nothing",
                    protocol.decl.name
                );
                self.note_key(&path, text);
            }
        }
        filled
    }

    fn unknown_slot(&mut self, path: &[Step], name: &str, protocol: &Conversation) {
        let slots = || protocol.slots.iter().map(|s| s.name);
        let hint = match nearest(name, slots()) {
            Some(near) => format!("did you mean `{near}`? its"),
            None => "its".into(),
        };
        let text = format!(
            "protocol `{}` has no slot {}; {hint} slots: {}",
            protocol.decl.name,
            show(&name.into()),
            slots().collect::<Vec<_>>().join(", ")
        );
        self.note_key(path, text);
    }

    /// What stands in one slot: a part, or a list of parts for groups of clients.
    fn slot<D: DataSection>(
        &mut self,
        path: &[Step],
        name: &str,
        value: &Value,
        slot: Option<&Slot>,
        data: Option<&D>,
        filled: &mut Vec<Fill>,
    ) {
        let items: Vec<(Vec<Step>, &Value)> = match value {
            Value::Sequence(list) if !list.is_empty() => list
                .iter()
                .enumerate()
                .map(|(at, item)| (below(path, Step::Item(at)), item))
                .collect(),
            other => vec![(path.to_vec(), other)],
        };
        let mut shares = Vec::new();
        for (path, item) in items {
            let clients = match item.get("clients") {
                None => Some(None),
                Some(value) => self
                    .settings(&below(&path, key("clients")), None, |r| {
                        Clients::read(value, r)
                    })
                    .map(Some),
            };
            shares.push((path.clone(), clients.clone()));
            let chosen = self.choose(item, &path, slot.map(|s| s.role), &["use", "clients"]);
            let Some((decl, settings)) = chosen else {
                continue;
            };
            if let Some(slot) = slot.filter(|slot| !fits(decl, slot)) {
                let text = format!(
                    "must be {}, but `{}` is {}; these fit: {}",
                    slot.signature,
                    decl.name,
                    (decl.about)().signature,
                    names(self.catalogue.fitting(slot))
                );
                self.note_use(&path, text, None);
                continue;
            }
            if let (Some(_), Some(clients), Some(settings)) = (slot, clients, settings) {
                filled.push(Fill {
                    slot: name.into(),
                    path,
                    clients,
                    part: Chosen { decl, settings },
                });
            }
        }
        if let Some(slot) = slot {
            for (path, text) in groups::check(slot, path, &shares, data.map(D::clients)) {
                self.note(&path, text);
            }
        }
    }

    /// A budget needs somebody who counts.
    pub fn budget(&mut self, spec: &Value, protocol: Option<&Conversation>) {
        let accountant = spec.get("parts").and_then(|p| p.get("accountant"));
        let budget = spec.get("budget").is_some_and(|b| !b.is_null());
        let Some(protocol) = protocol.filter(|_| budget && accountant.is_none()) else {
            return;
        };
        let text = match protocol.slots.iter().find(|s| s.role == Role::Accountant) {
            Some(slot) => format!(
                "a privacy budget needs an accountant: fill parts.{}; these fit: {}",
                slot.name,
                names(self.catalogue.fitting(slot))
            ),
            None => format!(
                "a privacy budget needs an accountant, and protocol `{}` has no slot for one",
                protocol.decl.name
            ),
        };
        self.note_key(&[key("budget")], text);
    }

    /// Makes every part once, to see whether it fits the task.
    pub fn build(&mut self, filled: &[Fill], task: &Task, seed: u64) {
        let make = Make {
            task: task.clone(),
            stream: Stream::root(seed).child("check", 0),
        };
        let mut made = HashSet::new();
        for fill in filled {
            if !made.insert((
                fill.part.decl.role,
                fill.part.decl.name,
                &fill.part.settings,
            )) {
                continue;
            }
            if let Err(error) = (fill.part.decl.build)(&fill.part.settings, &make) {
                let text = format!("cannot be made for {}: {error:#}", describe(task));
                self.note_use(&fill.path, text, Some(fill.part.decl));
            }
        }
    }
}

/// `inputs of 1x28x28 and 10 classes`
fn describe(task: &Task) -> String {
    let shape: Vec<String> = task.input.iter().map(usize::to_string).collect();
    let outputs = match task.kind {
        TaskKind::Classes(n) => format!("{n} classes"),
        TaskKind::Findings(n) => format!("{n} findings"),
    };
    format!("inputs of {} and {outputs}", shape.join("x"))
}

fn sorted(mut mistakes: Vec<Mistake>) -> Mistakes {
    mistakes.sort_by(|a, b| a.place.cmp(&b.place));
    Mistakes(mistakes)
}

/// The `parts` section with every default filled in.
pub(crate) fn written(filled: &[Fill]) -> Value {
    let mut slots = serde_yaml::Mapping::new();
    for fill in filled {
        let mut part = serde_yaml::Mapping::new();
        if let Some(clients) = &fill.clients {
            part.insert("clients".into(), clients.write());
        }
        part.extend(fill.part.write().as_mapping().cloned().unwrap_or_default());
        match (fill.path.last(), slots.get_mut(fill.slot.as_str())) {
            (_, Some(Value::Sequence(list))) => list.push(part.into()),
            (Some(Step::Item(_)), _) => {
                slots.insert(fill.slot.as_str().into(), vec![Value::from(part)].into());
            }
            _ => {
                slots.insert(fill.slot.as_str().into(), part.into());
            }
        }
    }
    slots.into()
}

/// As a run looks them up: the first that fits a client is taken, so what is for all comes last in its slot.
pub(crate) fn in_order(filled: Vec<Fill>) -> Vec<Filled> {
    let (groups, rest): (Vec<_>, Vec<_>) = filled.into_iter().partition(|f| f.clients.is_some());
    groups
        .into_iter()
        .chain(rest)
        .map(|fill| Filled {
            slot: fill.slot,
            clients: fill.clients.map(|c| c.0),
            decl: fill.part.decl,
            settings: fill.part.settings,
        })
        .collect()
}
