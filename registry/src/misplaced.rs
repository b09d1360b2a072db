//! Where a setting is that a spec has in a place that does not know it.

use crate::catalogue::example;
use crate::check::Checker;
use crate::diagnostics::Mistake;
use fl_core::settings::{Step, Value, ValueType};
use fl_core::{PartDecl, Role};

/// The word of a set that a person's own files make.
const OWN_ROWS: &str = "files";

/// More places than this are noise.
const SHOWN: usize = 4;

/// Of more mistakes, or parts, none is looked for: a spec of a person has fewer.
const MOST: usize = 20;

/// Words of papers and of other frameworks, in small letters with `-`, and ours for a setting or a
/// slot. The book's page of words has more.
const WORDS: [(&str, &str); 18] = [
    ("batch-size", "batch"),
    ("clients-per-round", "cohort"),
    ("fraction", "cohort"),
    ("fraction-fit", "cohort"),
    ("global-epochs", "rounds"),
    ("global-rounds", "rounds"),
    ("join-ratio", "cohort"),
    ("learning-rate", "lr"),
    ("local-epochs", "epochs"),
    ("local-learning-rate", "lr"),
    ("local-steps", "steps"),
    ("max-grad-norm", "clip"),
    ("network", "net"),
    ("num-clients", "clients"),
    ("num-rounds", "rounds"),
    ("participation", "cohort"),
    ("sigma", "noise-multiplier"),
    ("strategy", "aggregator"),
];

impl Checker<'_> {
    /// Adds to each setting that is nowhere known where the spec's parts, or its `data`, have one
    /// of its name, or that it is a slot.
    pub fn say_where_settings_are(&mut self, data: &ValueType) {
        // the key is wrong, and not the value under it
        let unknown = |m: &Mistake| m.at.1;
        if !self.mistakes.iter().any(unknown) {
            return;
        }
        let spec = self.root.value();
        let parts = self.parts_by_place(&spec);
        for mistake in self.mistakes.iter_mut().filter(|m| unknown(m)).take(MOST) {
            let Some(Step::Key(name)) = mistake.path.last() else {
                continue;
            };
            if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
                mistake.text += "; a number has a decimal point: `0.01`, not `0,01`";
                continue;
            }
            let theirs = name.to_lowercase().replace('_', "-");
            let ours = WORDS.iter().find(|(word, _)| *word == theirs);
            let in_slots = mistake.path.contains(&Step::Key("parts".into()));
            let places = |name: &str| {
                let mut found = Vec::new();
                for (place, part) in parts.iter().take(MOST) {
                    let paths = setting_paths(&(part.describe)().group(), name, None);
                    found.extend(paths.iter().map(|path| format!("`{place}.{path}`")));
                    let slots = example(part).map_or(Vec::new(), |protocol| protocol.slots());
                    if !in_slots && slots.iter().any(|slot| slot.name == name) {
                        found.push(format!("`parts.{name}`"));
                    }
                }
                let of_data = setting_paths(data, name, spec.get("data"));
                // what the spec has, or must have, comes before what it may have
                let near = |path: &&String| {
                    let first = path.split('.').next().unwrap_or_default();
                    let there = spec.get("data").is_some_and(|of| of.get(first).is_some());
                    there || must_be_given(data, first)
                };
                let here: Vec<&String> = of_data.iter().filter(near).collect();
                let of_data = if here.is_empty() {
                    of_data.iter().collect()
                } else {
                    here
                };
                found.extend(of_data.iter().map(|path| format!("`data.{path}`")));
                found
            };
            // a part may have the very word
            let mut found = places(name);
            if let Some((_, ours)) = ours.filter(|_| found.is_empty()) {
                found = places(ours);
            }
            found.truncate(SHOWN);
            if !found.is_empty() {
                mistake.text += &format!("; there is {}", found.join(" and "));
            }
        }
    }

    /// The parts of a spec, by where they stand in it.
    fn parts_by_place(&self, spec: &Value) -> Vec<(String, &'static PartDecl)> {
        let mut all = Vec::new();
        let mut add = |place: String, value: &Value, role: Option<Role>| {
            let name = value.get("use").unwrap_or(value).as_str();
            let found = name.and_then(|name| match role {
                Some(role) => self.catalogue.find(role, name).ok(),
                None => self.catalogue.named(name).first().copied(),
            });
            all.extend(found.map(|part| (place, part)));
        };
        let mut section = |before: &str, section: &Value| {
            if let Some(protocol) = section.get("protocol") {
                add(format!("{before}protocol"), protocol, Some(Role::Protocol));
            }
            let slots = section.get("parts").and_then(Value::as_mapping);
            for (slot, value) in slots.into_iter().flatten() {
                let place = format!("{before}parts.{}", slot.as_str().unwrap_or_default());
                match value {
                    Value::Sequence(list) => (0..).zip(list).for_each(|(at, value): (usize, _)| {
                        add(format!("{place}[{at}]"), value, None);
                    }),
                    value => add(place, value, None),
                }
            }
        };
        section("", spec);
        let stages = spec.get("stages").and_then(Value::as_sequence);
        for (at, stage) in stages.into_iter().flatten().enumerate() {
            section(&format!("stages[{at}]."), stage);
        }
        all
    }
}

fn must_be_given(of: &ValueType, name: &str) -> bool {
    match of.plain().0 {
        ValueType::Group { fields, .. } => fields
            .iter()
            .any(|field| field.name == name && field.default.is_none()),
        _ => false,
    }
}

/// Where settings of this name stand below a value, in mappings and under words: `sgd.lr`. Where
/// the spec (`chosen`) has a word, it is that alone. Where it has none, a person's own `files` come
/// before the words of sets and parts that come with fl.
fn setting_paths(of: &ValueType, name: &str, chosen: Option<&Value>) -> Vec<String> {
    let below = |key: &str, inner: &ValueType| -> Vec<String> {
        let chosen = chosen.and_then(|value| value.get(key));
        let paths = setting_paths(inner, name, chosen).into_iter();
        paths.map(|path| format!("{key}.{path}")).collect()
    };
    match of.plain().0 {
        ValueType::Group { fields, .. } => {
            let own = fields.iter().filter(|f| f.name == name);
            let own = own.map(|f| f.name.clone());
            let inner = fields.iter().flat_map(|f| below(&f.name, &f.accepts));
            own.chain(inner).collect()
        }
        ValueType::Choice { words, .. } => {
            let inner: Vec<(&str, &ValueType)> = words
                .iter()
                .filter_map(|w| Some((&*w.name, w.value.as_ref()?)))
                .collect();
            let is_chosen = |word: &str| {
                let here =
                    |value: &Value| value.as_str() == Some(word) || value.get(word).is_some();
                chosen.is_some_and(here)
            };
            let of_word = inner.iter().find(|(word, _)| is_chosen(word));
            let own = || inner.iter().find(|(word, _)| *word == OWN_ROWS);
            let only = of_word.or_else(|| own().filter(|(_, of)| !below(OWN_ROWS, of).is_empty()));
            let all = only.map_or(&inner[..], std::slice::from_ref);
            all.iter()
                .flat_map(|(word, inner)| below(word, inner))
                .collect()
        }
        _ => Vec::new(),
    }
}
