//! BibTeX of the papers whose methods runs have used.

use fl_core::PartDecl;
use serde_yaml::Value;
use std::collections::BTreeSet;

/// The papers of fl's parts.
const PAPERS: &str = include_str!("papers.bib");

/// A paper of [`PAPERS`].
struct Paper<'a> {
    /// As parts name it, with the names of these parts: `Li et al. 2021: fedbn`.
    labels: Vec<(&'a str, Vec<&'a str>)>,
    /// Its entry.
    entry: String,
}

fn papers() -> Vec<Paper<'static>> {
    let blocks = PAPERS.split("\n\n").skip(1);
    let paper = |block: &'static str| {
        let labels = block.lines().filter_map(|line| line.strip_prefix("% "));
        let labels = labels.filter_map(|line| line.split_once(": "));
        let entry = block.lines().filter(|line| !line.starts_with('%'));
        Paper {
            labels: labels
                .map(|(label, parts)| (label, parts.split(", ").collect()))
                .collect(),
            entry: entry.collect::<Vec<_>>().join("\n"),
        }
    };
    blocks.map(paper).collect()
}

/// Returns a BibTeX file of the papers of all parts that runs with these resolved specs use. A
/// paper that fl has no entry for is a comment. `parts` are those of the program and its libraries.
pub fn bibliography<'s>(specs: impl Iterator<Item = &'s Value>, parts: &[&PartDecl]) -> String {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let mut open: BTreeSet<(&str, &str)> = BTreeSet::new();
    let known = papers();
    for (name, settings) in specs.flat_map(named_parts) {
        for part in parts.iter().filter(|part| part.name == name) {
            let names = names(part, settings);
            let of = |name: &str| {
                let has = |paper: &&Paper<'static>| {
                    let mut labels = paper.labels.iter();
                    labels.any(|(label, of)| part.papers.contains(label) && of.contains(&name))
                };
                known.iter().filter(has).collect::<Vec<_>>()
            };
            let mut found: Vec<&Paper<'_>> = names.iter().flat_map(|name| of(name)).collect();
            if found.is_empty() {
                // a variant of no paper in particular has all of its part
                found = part.names().iter().flat_map(|name| of(name)).collect();
            }
            if found.is_empty() {
                open.extend(part.papers.iter().map(|paper| (*paper, part.name)))
            } else {
                used.extend(found.iter().map(|paper| &*paper.entry))
            }
        }
    }
    let mut out = String::from("% made by fl: the papers of the methods that the runs use\n");
    for (paper, part) in open {
        out += &format!("% `{part}` implements {paper}; fl has no entry for it\n");
    }
    for entry in used {
        out += &format!("\n{entry}\n");
    }
    out
}

/// The parts that a resolved spec names, with their settings.
fn named_parts(spec: &Value) -> Vec<(&str, &Value)> {
    let slots = spec.get("parts").and_then(Value::as_mapping);
    let slots = slots.into_iter().flatten().map(|(_, filled)| filled);
    let each = slots.flat_map(|filled| match filled.as_sequence() {
        Some(several) => several.iter().collect(),
        None => vec![filled],
    });
    let all = spec.get("protocol").into_iter().chain(each);
    all.filter_map(|part| Some((part.get("use")?.as_str()?, part)))
        .collect()
}

/// The name of a part and, of its aliases, the one whose preset settings these are; of several the
/// one that presets most.
fn names(part: &PartDecl, settings: &Value) -> Vec<&'static str> {
    let preset = |text: &str| serde_yaml::from_str::<Value>(text).ok();
    let aliases = part.aliases.iter().filter(|alias| !alias.preset.is_empty());
    let fitting = aliases.filter(|alias| {
        let preset = preset(alias.preset);
        preset.is_some_and(|preset| has(settings, &preset))
    });
    let most = fitting.max_by_key(|alias| alias.preset.len());
    [part.name]
        .into_iter()
        .chain(most.map(|alias| alias.name))
        .collect()
}

/// Whether `settings` have all that `preset` has.
fn has(settings: &Value, preset: &Value) -> bool {
    match (settings, preset) {
        (Value::Mapping(of), Value::Mapping(preset)) => preset
            .iter()
            .all(|(key, value)| of.get(key).is_some_and(|found| has(found, value))),
        (found, preset) => found == preset,
    }
}

/// Returns label, part and title of every paper that fl has an entry for.
pub fn known_papers() -> Vec<(&'static str, &'static str, String)> {
    let title = |entry: &str| {
        let (_, rest) = entry.split_once("title = {").unwrap_or_default();
        let (title, _) = rest.split_once("},\n").unwrap_or_default();
        let plain: String = title.chars().filter(|c| !"{}".contains(*c)).collect();
        plain.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let all = papers().into_iter().flat_map(|paper| {
        let title = title(&paper.entry);
        let labels = paper.labels.into_iter();
        let each =
            labels.flat_map(|(label, parts)| parts.into_iter().map(move |part| (label, part)));
        let each: Vec<_> = each.collect();
        each.into_iter()
            .map(move |(label, part)| (label, part, title.clone()))
    });
    all.collect()
}
