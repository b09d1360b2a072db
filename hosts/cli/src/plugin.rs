//! `fl plugin` and `fl lock`.

use crate::{Done, Failure, Overrides, print, say, width};
use clap::{Args, Subcommand};
use fl_engine::plugins::{self, Found};
use fl_registry::{Announced, Catalogue, TrustPolicy, columns};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub enum PluginCommand {
    /// Find plugins in the configured indexes.
    #[command(after_help = "Example:\n  fl plugin search median")]
    Search {
        /// Words that the name, the description, the parts or the paper must have.
        words: Vec<String>,
        #[command(flatten)]
        index: IndexArg,
        /// Print one JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Print the index entry of a plugin; of a wheel, the beginning of one. A library in a wheel is
    /// loaded in a sandbox to list its parts.
    #[command(
        after_help = "Examples:\n  fl plugin show fl-trimmed\n  fl plugin show dist/fl_trimmed-1.2.0-py3-none-any.whl"
    )]
    Show {
        /// The plugin's name, or the path of a wheel.
        name: String,
        /// Its version: `1.2` means the newest 1.2.x.
        #[arg(long)]
        version: Option<String>,
        #[command(flatten)]
        index: IndexArg,
    },
    /// Install a plugin from an index, or a wheel, for this user. Checks the signature of its
    /// entry, and the SHA-256 of the wheel and of the plugin in it. Loads nothing.
    #[command(after_help = "Example:\n  fl plugin add fl-trimmed --version 1.2")]
    Add {
        /// The plugin's name, or the path of a wheel.
        name: String,
        /// Its version: `1.2` means the newest 1.2.x.
        #[arg(long)]
        version: Option<String>,
        #[command(flatten)]
        index: IndexArg,
    },
    /// Compare installed plugins with the indexes. Exit code 1 if one is not what its entry says,
    /// or is trusted less than `--plugins-trust` asks.
    #[command(after_help = "Example:\n  fl plugin verify fl-trimmed")]
    Verify {
        /// Names of plugins; otherwise all.
        names: Vec<String>,
        #[command(flatten)]
        index: IndexArg,
    },
    /// List installed plugins: in Python's folders or the active environment, and added ones.
    #[command(after_help = "Example:\n  fl plugin list")]
    List {
        /// Print one JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub struct IndexArg {
    /// The index: a folder, a JSON file, or its https:// address; otherwise those of
    /// `plugins.yaml`.
    #[arg(long = "index", value_name = "AT")]
    at: Option<String>,
}

impl IndexArg {
    fn entries(&self) -> Result<Vec<Found>, Failure> {
        Ok(plugins::entries(self.at.as_deref(), &mut note)?)
    }
}

#[derive(Args)]
pub struct LockArgs {
    /// Specs of one folder.
    #[arg(required = true)]
    specs: Vec<PathBuf>,
    #[command(flatten)]
    set: Overrides,
}

fn note(why: String) {
    say(format_args!("note: {why}"));
}

pub fn plugin(command: &PluginCommand, policy: &TrustPolicy) -> Done {
    match command {
        PluginCommand::Search { words, index, json } => search(words, index, *json),
        PluginCommand::Show {
            name,
            version,
            index,
        } => show(name, version.as_deref(), index, policy),
        PluginCommand::Add {
            name,
            version,
            index,
        } => {
            let at = index.at.as_deref();
            print(plugins::add(name, version.as_deref(), at, &mut note)?)
        }
        PluginCommand::Verify { names, index } => {
            let at = index.at.as_deref();
            let (text, fine) = plugins::verify_installed(names, at, &policy.level, &mut note)?;
            print(text)?;
            match fine {
                true => Ok(()),
                false => Err(Failure::Differs),
            }
        }
        PluginCommand::List { json } => list(*json),
    }
}

fn level(found: &Found) -> String {
    match &found.level {
        Ok(level) => level.to_string(),
        Err(_) => "refused".into(),
    }
}

fn search(words: &[String], index: &IndexArg, json: bool) -> Done {
    let mut all = index.entries()?;
    let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    all.retain(|found| {
        let e = &found.entry;
        let paper = e.paper.as_deref().unwrap_or_default();
        let text = format!("{} {} {} {paper}", e.name, e.about, e.parts.join(" "));
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word))
    });
    if json {
        let one = |found: &Found| {
            let e = &found.entry;
            json!({
                "name": e.name, "version": e.version, "about": e.about, "parts": e.parts,
                "level": level(found), "index": found.index,
                "why": found.level.as_ref().err(),
            })
        };
        return print(json!({ "plugins": all.iter().map(one).collect::<Vec<_>>() }));
    }
    let row = |found: &Found| {
        let e = &found.entry;
        [
            format!("{} {}", e.name, e.version),
            level(found),
            e.parts.join(", "),
            e.about.clone(),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    match rows.is_empty() {
        true => print("no plugin fits"),
        false => print(columns(&rows, width()).trim_end()),
    }
}

fn show(name: &str, version: Option<&str>, index: &IndexArg, policy: &TrustPolicy) -> Done {
    if name.ends_with(".whl") {
        let draft = plugins::draft(Path::new(name), policy, &mut note)?;
        return print(draft.trim_end());
    }
    let found = plugins::choose(index.entries()?, name, version)?;
    let level = match &found.level {
        Ok(level) => level.to_string(),
        Err(why) => format!("refused: {why}"),
    };
    print(format_args!(
        "# {level}, in index {}\n{}",
        found.index,
        found.text.trim_end()
    ))
}

fn list(json: bool) -> Done {
    let all = plugins::installed(&mut note)?;
    let what = |plugin: &Announced| match plugin {
        Announced::Module(name) => format!("module {name}"),
        Announced::Library(path) => format!("library {}", path.display()),
    };
    if json {
        let one = |one: &plugins::Installed| {
            let p = &one.package;
            json!({
                "name": p.name, "version": p.version, "plugin": what(&p.plugin),
                "folder": p.folder, "sha256": one.sha256, "level": one.level.to_string(),
            })
        };
        return print(json!({ "plugins": all.iter().map(one).collect::<Vec<_>>() }));
    }
    let row = |one: &plugins::Installed| {
        let p = &one.package;
        [
            format!("{} {}", p.name, p.version),
            one.level.to_string(),
            what(&p.plugin),
            p.folder.display().to_string(),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    match rows.is_empty() {
        true => print("no plugin is installed"),
        false => print(columns(&rows, width()).trim_end()),
    }
}

pub fn lock(args: &LockArgs, catalogue: &Catalogue) -> Done {
    let (path, count) = plugins::lock(&args.specs, &args.set.set, catalogue)?;
    let plugins = if count == 1 { "plugin" } else { "plugins" };
    let why = match count {
        0 => "; the spec names none, and parts of the program itself need no pin",
        _ => "",
    };
    print(format_args!(
        "{}: {count} {plugins} pinned{why}",
        path.display()
    ))
}
