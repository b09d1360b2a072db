//! `fl plugin` and `fl lock`.

use crate::{Done, Overrides, print, say, width};
use clap::{Args, Subcommand};
use fl_engine::NotRun;
use fl_registry::{Announced, Catalogue, columns};
use serde_json::json;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum PluginCommand {
    /// List installed packages with a plugin: in Python's folders, or the active environment.
    #[command(after_help = "Example:\n  fl plugin list")]
    List {
        /// Print one JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
    #[command(external_subcommand)]
    Unknown(Vec<String>),
}

#[derive(Args)]
pub struct LockArgs {
    /// Specs of one folder.
    #[arg(required = true)]
    specs: Vec<PathBuf>,
    #[command(flatten)]
    set: Overrides,
}

pub fn plugin(command: PluginCommand) -> Done {
    match command {
        PluginCommand::List { json } => list(json),
        PluginCommand::Unknown(words) => Err(NotRun::Usage(format!(
            "`fl plugin {}`: there is only `fl plugin list`; `pip install` installs a package, and \
             `fl lock SPEC` pins it",
            words.join(" ")
        ))
        .into()),
    }
}

fn list(json: bool) -> Done {
    let note = |why: String| say(format_args!("note: {why}"));
    let mut all = Vec::new();
    for package in fl_registry::packages() {
        let hashed = package.and_then(|package| {
            let named = |why| format!("{} {}: {why}", package.name, package.version);
            let sha256 = package.sha256().map_err(named)?;
            Ok((package, sha256))
        });
        match hashed {
            Ok(one) => all.push(one),
            Err(why) => note(why),
        }
    }
    // of one name the first stays first: it is the one that Python finds
    all.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    let what = |plugin: &Announced| match plugin {
        Announced::Module(name) => format!("module {name}"),
        Announced::Library(path) => format!("library {}", path.display()),
    };
    if json {
        let one = all.iter().map(|(p, sha256)| {
            json!({
                "name": p.name, "version": p.version, "plugin": what(&p.plugin),
                "folder": p.folder, "sha256": sha256,
            })
        });
        return print(json!({ "plugins": one.collect::<Vec<_>>() }));
    }
    let rows = all.iter().map(|(p, _)| {
        [
            format!("{} {}", p.name, p.version),
            what(&p.plugin),
            p.folder.display().to_string(),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        print("no plugin is installed")
    } else {
        print(columns(&rows, width()).trim_end())
    }
}

pub fn lock(args: &LockArgs, catalogue: &Catalogue) -> Done {
    let (path, count) = fl_engine::lock(&args.specs, &args.set.set, catalogue)?;
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
