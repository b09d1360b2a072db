//! `fl check`, `fl list`, `fl inspect`, `fl data list`, `fl data show`.

use crate::{DataDir, Done, Failure, SpecDataArgs, inspect_topics, print, say, width};
use fl_cases::role;
use fl_core::settings::Step;
use fl_data::Overview;
use fl_registry::{Catalogue, Mistakes, columns};
use serde_json::json;
use std::path::PathBuf;

pub fn check(specs: &[PathBuf], set: &[String], json: bool, catalogue: &Catalogue) -> Done {
    let mut wrong = Vec::new();
    let mut lines = Vec::new();
    for path in specs {
        let document = fl_engine::parse(path)?.set(set);
        match fl_engine::check(&document, catalogue)? {
            Ok(spec) => {
                let dir = fl_data_kit::data_dir(None);
                let mut note = |text: &str| say(format_args!("note: {}: {text}", path.display()));
                let noted = fl_engine::note_data(&spec, &dir, &mut note);
                let wrong_data = match noted.and_then(|()| fl_engine::check_with_data(&spec, &dir))
                {
                    Ok(notes) => {
                        notes.all().for_each(|text| note(text));
                        None
                    }
                    Err(error) => Some(format!("{error:#}")),
                };
                if let Some(text) = wrong_data {
                    let (at, text) = placed(&text);
                    wrong.push(Mistakes(vec![document.mistake_at(&at, text)]));
                    continue;
                }
                lines.push(format!("{}: fine", path.display()));
                for text in &spec.foreseen {
                    say(format_args!("note: {text}"));
                }
                if let Some(missing) = spec.data.missing(&dir) {
                    note(&missing);
                }
                if let Some(why) = fl_engine::ledger_fault(&spec) {
                    note(&why);
                }
            }
            Err(mistakes) => wrong.push(mistakes),
        }
    }
    if json {
        let all: Vec<_> = wrong
            .iter()
            .flat_map(|m| m.json().as_array().cloned().unwrap_or_default())
            .collect();
        print(json!({ "specs": specs.len(), "mistakes": all }))?;
    } else if !lines.is_empty() {
        print(lines.join("\n"))?;
    }
    let all: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    match all.is_empty() {
        true => Ok(()),
        false => Err(Failure::usage(all.join("\n"))),
    }
}

/// Splits an error such as `protocol.initial: ..` into the place in the spec and the text.
fn placed(error: &str) -> (Vec<Step>, &str) {
    let section = |path: &str| ["data", "protocol", "parts"].contains(&path);
    let split = error.split_once(": ");
    let split = split.filter(|(path, _)| path.split('.').next().is_some_and(section));
    split.map_or((Vec::new(), error), |(path, text)| {
        let keys = path.split('.').map(|key| Step::Key(key.into()));
        (keys.collect(), text)
    })
}

pub fn list(name: Option<&str>, json: bool, catalogue: &Catalogue) -> Done {
    let role = name.map(role).transpose().map_err(Failure::usage)?;
    if json {
        print(json!({ "parts": catalogue.list_json(role) }))
    } else {
        print(catalogue.list(role, width()).trim_end())
    }
}

pub fn inspect(name: &str, json: bool, catalogue: &Catalogue) -> Done {
    let found = catalogue.named(name);
    let topics = inspect_topics::find(name, catalogue);
    if found.is_empty() && topics.is_empty() {
        let mut all = inspect_topics::names(catalogue);
        all.extend(catalogue.parts().iter().map(|p| p.name.to_string()));
        let near = fl_core::settings::nearest(name, all.iter().map(String::as_str));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`? `fl list` and `fl data list` show all"),
            None => {
                "`fl list` and `fl data list` show all; --plugin adds those of a library".into()
            }
        };
        let what = "no part, data set, message or choice is called";
        return Err(Failure::usage(format!("{what} `{name}`; {hint}")));
    }
    if json {
        let parts = found.iter().map(|p| catalogue.inspect_json(p, name));
        let parts: Vec<_> = parts.collect();
        let others: Vec<_> = topics.iter().map(inspect_topics::Topic::json).collect();
        return print(json!({ "parts": parts, "others": others }));
    }
    let width = width();
    let parts = found.iter().map(|p| catalogue.inspect(p, name, width));
    let all: Vec<String> = parts
        .chain(topics.iter().map(|topic| topic.text(width)))
        .collect();
    print(all.join("\n").trim_end())
}

pub fn data(place: &DataDir, json: bool) -> Done {
    let dir = place.path();
    let sets = fl_data_kit::list(&dir);
    if json {
        let all: Vec<_> = sets
            .iter()
            .map(|s| {
                let files: Vec<_> = s.files.iter().map(|f| json!({ "wanted": f.wanted, "found": f.found })).collect();
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
    if args.json {
        let mut out = data.json();
        out["name"] = json!(spec.name);
        return print(out);
    }
    print(format!("{}: {data}", spec.name))
}
