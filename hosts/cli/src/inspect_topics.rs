//! `fl inspect` of what is no part: data sets, kinds of messages, and words such as splits,
//! networks and layers.

use crate::get::{address, due};
use crate::network_facts::NetworkFacts;
use anyhow::Result;
use fl_core::message::{MessageType, message_type, message_types};
use fl_core::settings::Field;
use fl_data::DataSpec;
use fl_data_kit::{SetSpec, linked_sets};
use fl_registry::{Catalogue, Choice, columns, fill, settings_json, settings_table};
use serde_json::{Value as Json, json};

/// The networks of `dfdx`, as a choice of one says.
const NETWORKS: &str = "`net` of trainer `dfdx`";

/// What is known of one name.
pub struct Topic {
    name: String,
    /// Is it a word of a setting?
    pub is_choice: bool,
    /// `a data set, from fl-data`
    what: String,
    doc: String,
    fields: Vec<Field>,
    /// Where the data of a data set come from; the tensors of a message.
    facts: Vec<(&'static str, String)>,
    /// Of a network.
    network: Option<NetworkFacts>,
}

impl Topic {
    /// `a choice of `net` of trainer `dfdx``
    pub fn what(&self) -> &str {
        &self.what
    }

    pub fn text(&self, width: usize) -> String {
        let head = fill(&format!("{}: {}", self.name, self.what), width);
        let mut out = format!("{head}\n\n{}\n\n", fill(&self.doc, width));
        match &self.network {
            Some(network) => out += &network.text(width),
            None => out += &settings_table(&self.fields, width),
        }
        let facts = self.facts.iter();
        let facts: Vec<_> = facts
            .map(|(key, value)| [key.to_string(), value.clone()])
            .collect();
        if !facts.is_empty() {
            out.push('\n');
            out += &columns(&facts, width);
        }
        out
    }

    pub fn json(&self) -> Json {
        let facts = self
            .facts
            .iter()
            .map(|(key, value)| (key.to_string(), json!(value)));
        let mut out = json!({
            "name": self.name, "role": self.what, "doc": self.doc, "settings": settings_json(&self.fields),
            "facts": facts.collect::<serde_json::Map<_, _>>(),
        });
        if let Some(network) = &self.network {
            out["network"] = network.json();
        }
        out
    }

    /// Builds and measures a network for samples of this shape; gives whether the topic is one.
    ///
    /// # Errors
    /// As [`NetworkFacts::of`].
    pub fn measure(&mut self, input: Option<&[usize]>, catalogue: &Catalogue) -> Result<bool> {
        if self.what.contains(NETWORKS) {
            self.network = Some(NetworkFacts::of(&self.name, input, catalogue)?);
        }
        Ok(self.network.is_some())
    }
}

/// Everything of this name: data sets first, then kinds of messages, and words in settings.
pub fn find(name: &str, catalogue: &Catalogue) -> Vec<Topic> {
    let mut topics = sets(name);
    topics.extend(message_type(name).map(kind));
    for choice in catalogue.choices::<DataSpec>() {
        // a word of several parts (`sgd`) often means the same everywhere
        let known = |topic: &&mut Topic| topic.doc == choice.doc && topic.fields == choice.fields;
        if choice.name != name {
            continue;
        }
        if let Some(topic) = topics.iter_mut().find(known) {
            topic.what += &format!(", and of {}", choice.of);
            continue;
        }
        topics.push(Topic {
            name: choice.name,
            is_choice: true,
            what: format!("a choice of {}", choice.of),
            doc: choice.doc,
            fields: choice.fields,
            facts: Vec::new(),
            network: None,
        });
    }
    topics
}

/// The words of a setting, or of what people call it: networks are those of `net`.
pub fn words(name: &str, catalogue: &Catalogue) -> Vec<Choice> {
    let plain = name.strip_suffix('s').unwrap_or(name);
    let setting = match plain {
        "network" => "net",
        other => other,
    };
    let mut all = catalogue.choices::<DataSpec>();
    all.retain(|choice| {
        choice
            .setting
            .as_deref()
            .is_some_and(|of| of == setting || of == name)
    });
    all
}

/// All names that [`find`] knows.
pub fn names(catalogue: &Catalogue) -> Vec<String> {
    let sets = linked_sets().into_iter().map(|set| set.name.to_string());
    let words = catalogue
        .choices::<DataSpec>()
        .into_iter()
        .map(|choice| choice.name);
    let kinds = message_types().into_iter().map(|of| of.kind.to_string());
    sets.chain(kinds).chain(words).collect()
}

fn kind(of: &'static MessageType) -> Topic {
    let tensor = |c: &fl_core::message::Column| {
        let text = format!("{} [{}]: {}", c.dtype, c.shape, c.doc);
        (c.name, text)
    };
    let parts = of.fields.iter();
    let parts = parts.map(|(name, kind)| (*name, format!("a {kind} message")));
    Topic {
        name: of.kind.into(),
        is_choice: false,
        what: format!("a kind of message, from {}", of.origin()),
        doc: of.doc.into(),
        fields: Vec::new(),
        facts: of.columns.iter().map(tensor).chain(parts).collect(),
        network: None,
    }
}

fn sets(name: &str) -> Vec<Topic> {
    let of_name = linked_sets().into_iter().filter(|set| set.name == name);
    let topic = |decl: &fl_data_kit::SetDecl| {
        let about = (decl.describe)();
        let mut facts = Vec::new();
        if let Ok(set) = SetSpec::named(decl.name) {
            let known = set.facts();
            if let Some(task) = set.task() {
                facts.push((
                    "task",
                    format!("{:?} -> {} outputs", task.input, task.kind.outputs()),
                ));
            }
            if let Some((train, test)) = known.rows {
                facts.push((
                    "rows",
                    format!("{train} to learn from, {test} to test with"),
                ));
            }
            if !known.files.is_empty() {
                let files: Vec<&str> = known.files.iter().map(|names| names[0]).collect();
                facts.push((
                    "files",
                    format!("{} in the folder {}", files.join(", "), known.folder),
                ));
                facts.push(("terms", known.licence.to_string()));
            }
            let fetched = set.downloads().iter();
            let fetched: Vec<_> = fetched
                .map(|file| format!("{}: {}", address(file), due(file)))
                .collect();
            if !fetched.is_empty() {
                let files = fetched.join("\n");
                facts.push((
                    "fetched",
                    format!("by `fl data get {}` from\n{files}", decl.name),
                ));
            }
            facts.push(("source", known.source.to_string()));
        }
        Topic {
            name: decl.name.into(),
            is_choice: false,
            what: format!("a data set, from {}", decl.origin),
            doc: about.doc,
            fields: about.fields,
            facts,
            network: None,
        }
    };
    of_name.map(topic).collect()
}
