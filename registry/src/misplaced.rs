//! Where a setting is that a spec has in a place that does not know it.

use crate::catalogue::example;
use crate::check::Checker;
use crate::diagnostics::Mistake;
use fl_core::settings::{Step, Value, ValueType};
use fl_core::{PartDecl, Role};

/// More places than this are noise.
const SHOWN: usize = 4;

/// Of more mistakes, or parts, none is looked for: a spec of a person has fewer.
const MOST: usize = 20;

/// Words of papers and of other frameworks, in small letters with `-`, and ours for a setting or a
/// slot. The book's page of words has more.
const WORDS: [(&str, &str); 15] = [
    ("batch-size", "batch"),
    ("clients-per-round", "cohort"),
    ("fraction", "cohort"),
    ("fraction-fit", "cohort"),
    ("join-ratio", "cohort"),
    ("learning-rate", "lr"),
    ("local-epochs", "epochs"),
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
            let theirs = name.to_lowercase().replace('_', "-");
            let ours = WORDS.iter().find(|(word, _)| *word == theirs);
            let in_slots = mistake.path.contains(&Step::Key("parts".into()));
            let places = |name: &str| {
                let mut found = Vec::new();
                for (place, part) in parts.iter().take(MOST) {
                    let paths = setting_paths(&(part.describe)().group(), name);
                    found.extend(paths.iter().map(|path| format!("`{place}.{path}`")));
                    let slots = example(part).map_or(Vec::new(), |protocol| protocol.slots());
                    if !in_slots && slots.iter().any(|slot| slot.name == name) {
                        found.push(format!("`parts.{name}`"));
                    }
                }
                let of_data = setting_paths(data, name);
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

/// Where settings of this name stand below a value, in mappings and under words: `sgd.lr`.
fn setting_paths(of: &ValueType, name: &str) -> Vec<String> {
    let below = |key: &str, inner: &ValueType| -> Vec<String> {
        let paths = setting_paths(inner, name).into_iter();
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
            let words = words
                .iter()
                .filter_map(|w| Some((&w.name, w.value.as_ref()?)));
            words.flat_map(|(word, inner)| below(word, inner)).collect()
        }
        _ => Vec::new(),
    }
}
