//! What `fl list` and `fl inspect` say of parts, as text and as JSON.

use crate::aliases;
use crate::catalogue::{Catalogue, any_make, example, sample, takes};
use crate::compatibility::release;
use crate::docs::columns::{columns, fill};
use crate::docs::table::yaml;
use crate::schema::any_slots;
use fl_core::settings::{Field, Value, ValueType, to_json};
use fl_core::{
    Alias, AnyAggregator, AnyMechanism, Cohort, ExchangeSpec, PartDecl, Protocol, Role, Round,
    SlotSpec,
};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The slots that a question's answers are released through.
fn releases(asked: &ExchangeSpec) -> Vec<&'static str> {
    asked.flow.slots().collect()
}

impl Catalogue {
    /// One row a part, by role: its name, what goes in and out, and what it does; at most `width`
    /// characters wide.
    pub fn list(&self, role: Option<Role>, width: usize) -> String {
        let mut out = String::new();
        for role in Role::ALL
            .into_iter()
            .filter(|r| role.is_none_or(|wanted| wanted == *r))
        {
            let rows: Vec<_> = self
                .of_role(role)
                .map(|p| (p, (p.describe)()))
                .map(|(p, about)| {
                    [
                        p.names().join(", "),
                        about.signature,
                        first_sentence(&about.doc),
                    ]
                })
                .collect();
            if !rows.is_empty() {
                let _ = writeln!(out, "{role}");
                out += &columns(&rows, width);
            }
        }
        out
    }

    /// [`Catalogue::inspect_json`] of every part of a role, or of all.
    pub fn list_json(&self, role: Option<Role>) -> Json {
        let wanted = |p: &&&PartDecl| role.is_none_or(|wanted| wanted == p.role);
        self.parts
            .iter()
            .filter(wanted)
            .map(|p| self.inspect_json(p, p.name))
            .collect()
    }

    /// The slots that accept this part, as `protocol.slot`, whatever the settings of the protocol.
    fn accepted_by(&self, part: &PartDecl) -> Vec<String> {
        let signature = (part.describe)().signature;
        let accepts = |slot: &SlotSpec| {
            slot.role == part.role && (slot.signature.is_empty() || slot.signature == signature)
        };
        let protocols = self.of_role(Role::Protocol);
        let slots = protocols.flat_map(|protocol| {
            let slots = any_slots(protocol).into_iter().filter(accepts);
            let names: BTreeSet<&str> = slots.map(|slot| slot.name).collect();
            names
                .into_iter()
                .map(|slot| format!("{}.{slot}", protocol.name))
        });
        slots.collect()
    }

    /// Describes one part by one of its names, as text at most `width` characters wide.
    pub fn inspect(&self, part: &PartDecl, name: &str, width: usize) -> String {
        let about = (part.describe)();
        let alias = part.alias(name);
        let fields = alias.map_or(about.fields, |alias| aliases::fields(part, alias));
        let mut head = format!("{name}: {}", part.role.with_article());
        if alias.is_some() {
            let _ = write!(head, ", another name of `{}`", part.name);
        } else if let [_, aliases @ ..] = &part.names()[..]
            && !aliases.is_empty()
        {
            let _ = write!(head, " (also called {})", aliases.join(", "));
        }
        if !about.signature.is_empty() {
            let _ = write!(head, ", {}", about.signature);
        }
        let _ = write!(head, ", from {}", part.origin);
        let mut out = format!("{}\n\n{}\n\n", fill(&head, width), fill(&about.doc, width));
        if let Some(alias) = alias {
            out += &differences(part, alias, width);
        }
        out += &settings_table(&fields, width);
        if part.role == Role::Protocol {
            match example_as(part, alias) {
                None => out += "\nIts slots and exchanges depend on its settings.\n",
                Some(protocol) => {
                    let mut rows = vec![["slot", "takes", "", "for"].map(String::from)];
                    rows.extend(protocol.slots().iter().map(|s| {
                        let optional = if s.optional { "optional" } else { "" };
                        [s.name.into(), takes(s), optional.to_string(), s.doc.into()]
                    }));
                    out += "\n";
                    out += &columns(&rows, width);
                    let heads = ["exchange", "payload", "times", "releases"];
                    let mut rows = vec![heads.map(String::from)];
                    rows.extend(protocol.exchanges().iter().map(|q| {
                        [
                            q.label.into(),
                            format!("{} -> {}", q.down, q.up),
                            q.times.to_string(),
                            releases(q).join(", "),
                        ]
                    }));
                    out += "\n";
                    out += &columns(&rows, width);
                }
            }
        }
        let mut facts: Vec<[String; 2]> = facts(part)
            .into_iter()
            .map(|(name, values)| {
                let none = || "none".to_string();
                let values = Some(values.join(", ")).filter(|v| !v.is_empty());
                [name.to_string(), values.unwrap_or_else(none)]
            })
            .collect();
        let slots = self.accepted_by(part);
        if !slots.is_empty() {
            facts.push(["accepted by".into(), slots.join(", ")]);
        }
        if !facts.is_empty() {
            out += "\n";
            out += &columns(&facts, width);
        }
        out
    }

    /// The same as [`Catalogue::inspect`], for programs.
    pub fn inspect_json(&self, part: &PartDecl, name: &str) -> Json {
        let about = (part.describe)();
        let alias = part.alias(name);
        let fields = alias.map_or(about.fields, |alias| aliases::fields(part, alias));
        let mut out = json!({
            "name": part.name, "role": part.role.name(), "origin": part.origin,
            "aliases": &part.names()[1..], "papers": part.papers, "signature": about.signature,
            "doc": about.doc, "settings": settings_json(&fields),
            "accepted-by": self.accepted_by(part),
        });
        if let Some(alias) = alias {
            let presets = to_json(&aliases::preset(alias).into());
            let parts = to_json(&aliases::parts(alias).into());
            out["alias"] = json!({ "name": alias.name, "presets": presets, "parts": parts });
        }
        for (name, values) in facts(part) {
            out[name] = json!(values);
        }
        if let Some(protocol) = (part.role == Role::Protocol)
            .then(|| example_as(part, alias))
            .flatten()
        {
            let slot = |s: &SlotSpec| {
                json!({
                    "name": s.name, "role": s.role.name(), "signature": s.signature, "optional": s.optional, "about": s.doc
                })
            };
            let question = |q: &ExchangeSpec| {
                json!({
                    "label": q.label, "down": q.down, "up": q.up, "times": q.times, "releases": releases(q)
                })
            };
            out["slots"] = protocol.slots().iter().map(slot).collect();
            out["questions"] = protocol.exchanges().iter().map(question).collect();
        }
        out
    }
}

/// The part with the settings that an alias stands for.
fn example_as(part: &PartDecl, alias: Option<&Alias>) -> Option<Box<dyn Protocol>> {
    let Some(alias) = alias else {
        return example(part);
    };
    let mut settings = aliases::preset(alias);
    if let Value::Mapping(must) = sample(&(part.describe)().group()) {
        for (key, value) in must {
            settings.entry(key).or_insert(value);
        }
    }
    let settings = part.read(&settings.into()).ok()?;
    fl_core::protocol(part, &settings, &any_make()).ok()
}

/// What an alias changes of its part: settings with another default, and the parts of the method.
fn differences(part: &PartDecl, alias: &Alias, width: usize) -> String {
    let given = aliases::preset(alias);
    let (own, base) = (aliases::fields(part, alias), (part.describe)().fields);
    let mut rows = vec![[
        "differs from".into(),
        part.name.to_string(),
        alias.name.into(),
    ]];
    let both = own.iter().zip(&base);
    let both = both.filter(|(own, _)| given.contains_key(&own.name));
    rows.extend(both.map(|(own, base)| [own.name.clone(), default(base), default(own)]));
    let parts = aliases::parts(alias);
    rows.extend(parts.iter().map(|(slot, due)| {
        let slot = slot.as_str().unwrap_or_default();
        let due = if due.as_mapping().is_some_and(|due| due.is_empty()) {
            "a part".into()
        } else {
            yaml(&to_json(due))
        };
        [format!("parts.{slot}"), "any".into(), due]
    }));
    match rows.len() {
        1 => format!("It has the settings of `{}`.\n\n", part.name),
        _ => columns(&rows, width) + "\n",
    }
}

/// What an aggregator or a mechanism says about itself when it is made with its defaults: each fact
/// with its values. Nothing of other roles, and of parts that need more than defaults.
fn facts(part: &PartDecl) -> Vec<(&'static str, Vec<String>)> {
    let settings = sample(&(part.describe)().group());
    let names = |all: &[(&str, bool)]| {
        let true_ones = all.iter().filter(|(_, is)| *is);
        true_ones.map(|(name, _)| name.to_string()).collect()
    };
    match part.role {
        Role::Aggregator => {
            let made = part.make::<Box<dyn AnyAggregator>>(&settings, &any_make());
            let Ok(aggregator) = made else {
                return Vec::new();
            };
            let (properties, needs) = (aggregator.claims(), aggregator.needs());
            let folds = aggregator.fold(&Round::first()).is_some();
            vec![
                (
                    "properties",
                    names(&[
                        ("order-free", properties.order_free),
                        ("weight-scale-free", properties.weight_scale_free),
                        ("weight-free", properties.weight_free),
                        ("within-hull", properties.within_hull),
                        ("of-mean", properties.of_mean),
                    ]),
                ),
                (
                    "needs",
                    names(&[
                        ("number of examples", needs.samples),
                        ("examples per class", needs.class_counts),
                        ("training loss", needs.training_loss),
                        ("message sent to clients", needs.sent),
                    ]),
                ),
                ("folds", vec![if folds { "yes" } else { "no" }.into()]),
            ]
        }
        Role::Privacy => {
            let made = part.make::<Box<dyn AnyMechanism>>(&settings, &any_make());
            let made = made
                .ok()
                .and_then(|mechanism| release(mechanism, &any_make().task, &Cohort::all(1), None));
            let event = made.and_then(Result::ok);
            event.map_or(Vec::new(), |event| {
                vec![("release", vec![event.to_string()])]
            })
        }
        _ => Vec::new(),
    }
}

/// A setting's default as text.
fn default(field: &Field) -> String {
    match &field.default {
        None => "must be given".into(),
        Some(default) if default.is_null() => "none".into(),
        Some(default) => yaml(&to_json(default)),
    }
}

/// One row a setting: its name, kind, default, range and meaning. Those of a mapping follow it, as
/// `local.epochs`, and those of a list of mappings, as `stages[].rounds`.
pub fn settings_table(fields: &[Field], width: usize) -> String {
    let mut rows = vec![["setting", "kind", "default", "range", "meaning"].map(String::from)];
    add_rows("", fields, &mut rows);
    if fields.is_empty() {
        "It has no settings.\n".into()
    } else {
        columns(&rows, width)
    }
}

fn add_rows(above: &str, fields: &[Field], rows: &mut Vec<[String; 5]>) {
    for f in fields {
        let name = format!("{above}{}", f.name);
        rows.push([
            name.clone(),
            f.accepts.kind(),
            default(f),
            f.accepts.range().unwrap_or_default(),
            f.doc.clone(),
        ]);
        if let Some((fields, dot)) = inner(&f.accepts) {
            add_rows(&format!("{name}{dot}"), fields, rows);
        }
    }
}

/// The settings of a mapping, or of the mappings in a list.
fn inner(of: &ValueType) -> Option<(&[Field], &'static str)> {
    match of.plain().0 {
        ValueType::Group { fields, .. } => Some((fields, ".")),
        ValueType::List { items, .. } => match items.plain().0 {
            ValueType::Group { fields, .. } => Some((fields, "[].")),
            _ => None,
        },
        _ => None,
    }
}

/// The same as [`settings_table`], for programs.
pub fn settings_json(fields: &[Field]) -> Json {
    let one = |f: &Field| {
        let mut one = json!({
            "name": f.name, "kind": f.accepts.kind(), "required": f.default.is_none(),
            "default": f.default.as_ref().map(to_json), "range": f.accepts.range(), "meaning": f.doc,
        });
        if let Some((fields, _)) = inner(&f.accepts) {
            one["settings"] = settings_json(fields);
        }
        one
    };
    fields.iter().map(one).collect()
}

fn first_sentence(text: &str) -> String {
    // a full stop in brackets ends no sentence: "(FedKD, Eq. 2)"
    let mut open = 0usize;
    let end = text.char_indices().find(|(at, c)| {
        match c {
            '(' => open += 1,
            ')' => open = open.saturating_sub(1),
            _ => {}
        }
        *c == '.' && open == 0 && text[at + 1..].starts_with(' ')
    });
    text[..end.map_or(text.len(), |(at, _)| at + 1)].to_string()
}
