//! `fl check`, `fl list`, `fl inspect`, `fl data list`, `fl data show`.

use crate::{DataDir, Done, Failure, SpecDataArgs, either, get, inspect_topics, print, say, width};
use fl_cases::role;
#[cfg(feature = "plugins")]
use fl_core::PartDecl;
#[cfg(feature = "plugins")]
use fl_core::settings::{Reader, Setting as _};
use fl_data::{DataSpec, Overview};
use fl_data_kit::FileEntry;
use fl_engine::NotRun;
#[cfg(feature = "plugins")]
use fl_plugin_trainer_dfdx::Device;
use fl_registry::{Catalogue, Choice, Mistakes, Spec, columns, fill};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;

pub fn check(specs: &[PathBuf], set: &[String], json: bool, catalogue: &Catalogue) -> Done {
    let mut wrong = Vec::new();
    let (mut lines, mut notes) = (Vec::new(), Vec::new());
    let dir = fl_data_kit::data_dir(None);
    for path in specs {
        let document = fl_engine::parse(path)?.set(set);
        let checked = fl_engine::check(&document, catalogue)?;
        let checked = checked.and_then(|spec| {
            let mut of_data = fl_engine::noted_data(&document, &spec, &dir, catalogue)?;
            of_data.extend(missing_cards(&spec));
            Ok((spec.foreseen, of_data))
        });
        match checked {
            Ok((foreseen, of_data)) => {
                lines.push(format!("{}: fine", path.display()));
                let of_data = of_data
                    .iter()
                    .map(|text| format!("{}: {text}", path.display()));
                notes.extend(foreseen.into_iter().chain(of_data));
            }
            Err(Mistakes(mistakes)) => wrong.extend(mistakes),
        }
    }
    notes
        .iter()
        .for_each(|text| say(format_args!("note: {text}")));
    if json {
        let mistakes = Mistakes(wrong.clone()).json();
        print(json!({ "specs": specs.len(), "mistakes": mistakes, "notes": notes }))?;
    } else if !lines.is_empty() {
        print(lines.join("\n"))?;
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(NotRun::Mistakes(Mistakes(wrong)).into())
    }
}

/// Says which cards of a spec this machine lacks.
#[cfg(feature = "plugins")]
pub fn missing_cards(spec: &Spec<DataSpec>) -> BTreeSet<String> {
    let linked = fl_core::linked_parts();
    let own = |decl: &PartDecl| {
        decl.name == "dfdx" && linked.iter().any(|part| std::ptr::eq(*part, decl))
    };
    let of_card = spec.parts.iter().filter(|part| own(part.decl));
    let missing = of_card.filter_map(|part| {
        let device = part.settings.value.get("device")?;
        let device = Device::read(device, &mut Reader::default())?;
        let why = device.ensure_there().err()?;
        Some(format!(
            "parts.{}: {why:#}; so far this machine cannot do the run",
            part.slot
        ))
    });
    missing.collect()
}

/// No part that is linked uses a card.
#[cfg(not(feature = "plugins"))]
pub fn missing_cards(_: &Spec<DataSpec>) -> BTreeSet<String> {
    BTreeSet::new()
}

pub fn list(name: Option<&str>, json: bool, catalogue: &Catalogue) -> Done {
    let words = name.map_or(Vec::new(), |name| inspect_topics::words(name, catalogue));
    if !words.is_empty() {
        return list_words(&words, json);
    }
    let role = name.map(role).transpose().map_err(|text| {
        Failure::usage(format!(
            "{text}; or data, networks, splits, or a setting that is one of several words"
        ))
    })?;
    if json {
        print(json!({ "parts": catalogue.list_json(role) }))
    } else {
        print(catalogue.list(role, width()).trim_end())
    }
}

fn list_words(words: &[Choice], json: bool) -> Done {
    if json {
        let word = |word: &Choice| json!({ "name": word.name, "of": word.of, "doc": word.doc });
        let words: Vec<_> = words.iter().map(word).collect();
        return print(json!({ "choices": words }));
    }
    let mut rows: Vec<[String; 2]> = Vec::new();
    for word in words {
        let row = [word.name.clone(), word.doc.clone()];
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let mut of: Vec<&str> = words.iter().map(|word| word.of.as_str()).collect();
    of.dedup();
    let end = format!("choices of {}; `fl inspect NAME` shows one", of.join(", "));
    print(format!("{}{end}", columns(&rows, width())))
}

pub fn inspect(name: &str, input: Option<&[usize]>, json: bool, catalogue: &Catalogue) -> Done {
    let mut all = inspect_topics::names(catalogue);
    let parts = catalogue.parts().iter();
    all.extend(parts.flat_map(|p| p.names()).map(ToString::to_string));
    let known = || all.iter().map(String::as_str);
    let name = if known().any(|known| known == name) {
        name
    } else {
        fl_registry::as_in_papers(name, known()).unwrap_or(name)
    };
    let found = catalogue.named(name);
    let mut topics = inspect_topics::find(name, catalogue);
    if found.is_empty() && topics.is_empty() {
        let of_slot = catalogue.role_of_slot(name);
        let near = fl_registry::meant(name, known());
        let hint = match (of_slot.or(role(name).ok()), near) {
            (Some(of), _) => {
                let what = if of_slot.is_some() { "slot" } else { "role" };
                format!(
                    "it is a {what}, whose parts `fl list {}` shows",
                    fl_cases::word(of)
                )
            }
            (None, Some(near)) => {
                format!("did you mean `{near}`? `fl list` and `fl data list` show all")
            }
            (None, None) => {
                "`fl list` and `fl data list` show all; --plugin adds those of a library".into()
            }
        };
        let what = "no part, data set, message or choice is called";
        return Err(Failure::usage(format!("{what} `{name}`; {hint}")));
    }
    let mut networks = 0;
    for topic in &mut topics {
        let measured = topic.measure(input, catalogue);
        let wrong = |why| Failure::usage(format!("--input: {why:#}"));
        networks += match input {
            Some(_) => usize::from(measured.map_err(wrong)?),
            None => usize::from(measured?),
        };
    }
    if input.is_some() && networks == 0 {
        return Err(Failure::usage(format!(
            "`{name}` is no network, and --input is for networks: `fl list networks` shows all"
        )));
    }
    if json {
        let parts = found.iter().map(|p| catalogue.inspect_json(p, name));
        let parts: Vec<_> = parts.collect();
        let others: Vec<_> = topics.iter().map(inspect_topics::Topic::json).collect();
        return print(json!({ "parts": parts, "others": others }));
    }
    let width = width();
    // a part is meant more often than the words that happen to be called like it
    let mut also = String::new();
    if !found.is_empty() {
        let words = topics.iter().filter(|topic| topic.is_choice);
        let words: Vec<&str> = words.map(|topic| topic.what()).collect();
        if !words.is_empty() {
            also = format!("\n\n`{name}` is also {}", words.join(", and "));
            also = format!("{also}: `fl inspect --json {name}` shows these too");
        }
        topics.retain(|topic| !topic.is_choice);
    }
    let parts = found.iter().map(|p| catalogue.inspect(p, name, width));
    let all: Vec<String> = parts
        .chain(topics.iter().map(|topic| topic.text(width)))
        .collect();
    let also = fill(also.trim_start(), width);
    print(format!("{}\n\n{also}", all.join("\n").trim_end()).trim_end())
}

pub fn data(place: &DataDir, json: bool) -> Done {
    let dir = place.path();
    let sets = fl_data_kit::list(&dir);
    if json {
        let all: Vec<_> = sets
            .iter()
            .map(|s| {
                let file = |f: &FileEntry| {
                    let from = f.download;
                    json!({
                        "wanted": f.wanted, "found": f.found, "address": from.map(|d| get::address(&d)),
                        "bytes": from.map(|d| d.bytes), "sha256": from.map(|d| d.sha256),
                    })
                };
                let files: Vec<_> = s.files.iter().map(file).collect();
                json!({
                    "name": s.name, "about": s.doc, "present": s.present(), "train": s.rows.map(|r| r.0),
                    "test": s.rows.map(|r| r.1), "source": s.facts.source, "licence": s.facts.licence, "files": files,
                })
            })
            .collect();
        return print(json!({ "dir": dir, "sets": all }));
    }
    let mut rows = Vec::new();
    for s in sets {
        let there = match (s.files.is_empty(), s.present()) {
            (true, _) => "made by fl",
            (_, true) => "present",
            (_, false) => "missing",
        };
        let doc = s
            .doc
            .trim_start_matches("Made here: ")
            .trim_end_matches('.');
        let mut about = doc.to_string();
        if !s.files.is_empty() {
            about += &format!(" ({}; {})", s.facts.source, s.facts.licence);
        }
        for file in s.files.iter().filter(|f| f.found.is_none()) {
            about += &format!("\nlooked for {}", file.wanted.display());
            if let Some(from) = file.download {
                about += &format!(
                    "; `fl data get {}` fetches {} ({})",
                    s.name,
                    get::address(&from),
                    get::due(&from)
                );
            }
        }
        rows.push([s.name.to_string(), there.to_string(), about]);
    }
    rows.push(
        [
            "files",
            "your own",
            "csv, jsonl, npy and more: `fl inspect files`",
        ]
        .map(String::from),
    );
    let table = columns(&rows, width());
    print(format!(
        "data directory: {}\n{}",
        dir.display(),
        table.trim_end()
    ))
}

/// What each client gets.
pub fn split(args: &SpecDataArgs, catalogue: &Catalogue) -> Done {
    let spec = args.read(catalogue)?;
    let data = Overview::of(&args.data(&spec)?);
    let mut out = data.json();
    out["name"] = json!(spec.name);
    either(args.json, out, format!("{}: {data}", spec.name))
}
