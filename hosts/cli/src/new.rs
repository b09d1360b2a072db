//! `fl new`: a crate, a C library, or a module of Python, with one part that builds and passes its
//! tests at once; a protocol with a program of its own; an app for Flower.

mod flower;
mod python;
mod template;
mod wheel;

use crate::{Done, Failure, print};
use anyhow::Context;
use clap::{Args, ValueEnum};
use fl_core::{PartDecl, Role};
use fl_registry::Catalogue;
use std::path::{Path, PathBuf};
use template::{CASES, Files, fill, template, type_name};

#[derive(Args)]
pub struct NewArgs {
    /// aggregator, selector, privacy, trainer, accountant, generator, attack or protocol; or
    /// flower, an app that runs a spec there.
    role: String,
    /// Its name, that of the part in specs: letters, digits and `-`, such as `trimmed-mean`.
    name: String,
    /// The folder to make; otherwise NAME.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The language.
    #[arg(long, value_enum, default_value = "rust")]
    lang: Language,
    /// The part keeps state from round to round (aggregator, selector, privacy). The other roles
    /// always do.
    #[arg(long)]
    stateful: bool,
    /// A Python trainer in NumPy instead of PyTorch.
    #[arg(long)]
    numpy: bool,
    /// Also write what makes a wheel of it, which others install and name in specs.
    #[arg(long)]
    wheel: bool,
    /// fl's sources, with `fl-core` in them; otherwise looked for upwards from here, and from this
    /// program.
    #[arg(long, value_name = "DIR")]
    core: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Language {
    Rust,
    C,
    Python,
}

const RUST: [(Role, &str); 8] = [
    (Role::Aggregator, template!("aggregator.rs")),
    (Role::Selector, template!("selector.rs")),
    (Role::Privacy, template!("privacy.rs")),
    (Role::Trainer, template!("trainer.rs")),
    (Role::Accountant, template!("accountant.rs")),
    (Role::Generator, template!("generator.rs")),
    (Role::Attack, template!("attack.rs")),
    (Role::Protocol, template!("protocol.rs")),
];
/// The same with state.
const STATEFUL: [(Role, &str); 3] = [
    (Role::Aggregator, template!("aggregator.stateful.rs")),
    (Role::Selector, template!("selector.stateful.rs")),
    (Role::Privacy, template!("privacy.stateful.rs")),
];
const MANIFEST: &str = template!("Cargo.toml");
/// Further files of a protocol's crate: a program.
const PROGRAM: [(&str, &str); 5] = [
    ("Cargo.toml", template!("Cargo.protocol.toml")),
    ("README.md", template!("README.protocol.md")),
    ("quick.yaml", template!("quick.yaml")),
    ("src/main.rs", template!("main.rs")),
    ("tests/same.rs", template!("same.rs")),
];
const README: &str = template!("README.md");
const MAKEFILE: &str = template!("Makefile");
const README_C: &str = template!("README.c.md");

/// A part in C: its source, and an input with the answers without and with state. The answer of a
/// mechanism is random.
struct InC {
    role: Role,
    source: &'static str,
    input: &'static str,
    answers: [&'static str; 2],
}

const C: [InC; 3] = [
    InC {
        role: Role::Aggregator,
        source: template!("aggregator.c"),
        input: r#"{"messages": [{"from": 0, "weight": 1, "tensors": {"w": [1, 2]}},
              {"from": 1, "weight": 3, "tensors": {"w": [3, 0.4]}}]}
"#,
        answers: ["{\"kind\":\"params\",\"tensors\":{\"w\":[2.5,0.8]}}\n"; 2],
    },
    InC {
        role: Role::Selector,
        source: template!("selector.c"),
        input: "{\"clients\": [{\"id\": 0}, {\"id\": 1}, {\"id\": 2}, {\"id\": 3}]}\n",
        answers: ["{\"positions\":[2,3]}\n", "{\"positions\":[0,1]}\n"],
    },
    InC {
        role: Role::Privacy,
        source: template!("privacy.c"),
        input: "",
        answers: ["", ""],
    },
];

/// As a file of a crate is called on this system.
fn library(name: &str) -> String {
    let file = name.replace('-', "_");
    format!(
        "target/release/{}{file}{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    )
}

/// Words that are no name of a crate: Rust's own, and what every crate knows already.
const TAKEN: &str = "abstract alloc as async await become box break build const continue core crate do dyn else enum extern \
    false final fn for gen if impl in let loop macro match mod move mut override priv proc-macro pub ref return self static \
    std struct super test trait true try type typeof unsafe unsized use virtual where while yield";

/// Folders that cargo makes beside a crate's program.
const FOLDERS: [&str; 3] = ["deps", "examples", "incremental"];

fn check_name(name: &str) -> Result<(), Failure> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    let whole = name.split('-').all(|word| !word.is_empty());
    if !(starts && whole && name.len() <= 64 && name.chars().all(fine)) {
        return Err(Failure::usage(format!(
            "a part cannot be called `{name}`: a name begins with a letter and has at most 64 lowercase letters, digits and single `-`, \
             such as trimmed-mean"
        )));
    }
    if TAKEN.split_whitespace().any(|word| word == name) {
        return Err(Failure::usage(format!(
            "a crate cannot be called `{name}`, which is a word of Rust; try my-{name}"
        )));
    }
    if FOLDERS.contains(&name) {
        return Err(Failure::usage(format!(
            "a crate cannot be called `{name}`, which is a folder of cargo's; try my-{name}"
        )));
    }
    Ok(())
}

/// `name` must be new among the parts of this program, or the library would be refused.
fn check_new(role: Role, name: &str, catalogue: &Catalogue) -> Result<(), Failure> {
    let twin = |p: &&&PartDecl| (p.role, p.name) == (role, name);
    match catalogue.parts().iter().find(twin) {
        Some(other) => Err(Failure::usage(format!(
            "there is {} `{name}` already, from {}; try my-{name}",
            role.with_article(),
            other.origin
        ))),
        None => Ok(()),
    }
}

/// Are `--stateful` and `--numpy` for this role?
fn check_options(role: Option<Role>, args: &NewArgs) -> Result<(), Failure> {
    let stateful = role.is_some_and(|role| STATEFUL.iter().any(|(r, _)| *r == role));
    if args.stateful && !stateful {
        return Err(Failure::usage(format!(
            "--stateful: for aggregators, selectors and privacy mechanisms; leave it out for {}",
            role.map_or("an app".into(), Role::with_article)
        )));
    }
    if args.numpy && (role, args.lang) != (Some(Role::Trainer), Language::Python) {
        return Err(Failure::usage(
            "--numpy: for a trainer with --lang python; leave it out",
        ));
    }
    Ok(())
}

/// The checkout of fl: `--core`, or the nearest folder above here or above this program that has
/// one. Nothing about the machine that fl was built on is in the program.
fn sources(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let whole = |dir: &Path| {
        dir.join("fl-core/Cargo.toml").is_file()
            && dir.join("plugins/conformance/Cargo.toml").is_file()
    };
    if let Some(dir) = given {
        return match dir.canonicalize() {
            Ok(dir) if whole(&dir) => Ok(dir),
            _ => Err(Failure::usage(format!(
                "--core {}: there is no fl-core/Cargo.toml and plugins/conformance/Cargo.toml below it; give the folder of fl's sources",
                dir.display()
            ))),
        };
    }
    let here = std::env::current_dir().ok();
    let program = std::env::current_exe().ok();
    let starts = here.into_iter().chain(program);
    starts
        .filter_map(|start| {
            let found = start.ancestors().find(|dir| whole(dir));
            found.map(Path::to_path_buf)
        })
        .next()
        .ok_or_else(|| {
            Failure::usage(
                "fl's sources were not found above this folder or above this program; say where they are with --core DIR",
            )
        })
}

pub fn new(args: &NewArgs, catalogue: &Catalogue) -> Done {
    let role = if args.role == "flower" {
        None
    } else {
        Some(fl_cases::role(&args.role).map_err(Failure::usage)?)
    };
    check_name(&args.name)?;
    check_options(role, args)?;
    if let Some(role) = role {
        check_new(role, &args.name, catalogue)?;
    }
    let dir = args.out.clone().unwrap_or_else(|| (&args.name).into());
    if dir.exists() {
        return Err(Failure::usage(format!(
            "{} exists already; name another folder with --out",
            dir.display()
        )));
    }
    let mut files = match (role, args.lang) {
        (None, _) => flower::files(&args.name)?,
        (Some(role), Language::Rust) => {
            let published = cfg!(published) && args.core.is_none();
            let core = (!published).then(|| sources(args.core.as_deref()));
            rust(role, args, core.transpose()?.as_deref())?
        }
        (Some(role), Language::C) => c(role, args)?,
        (Some(role), Language::Python) => {
            python::files(role, &args.name, args.stateful || args.numpy)?
        }
    };
    if args.wheel {
        files.extend(wheel::files(role, args)?);
        if let Some((_, text)) = files.iter_mut().find(|(path, _)| path == "README.md") {
            text.push_str(&fill(wheel::README, &[("name", args.name.clone())]));
        }
        let ignored = "build/\ndist/\n*.egg-info/\n";
        match files.iter_mut().find(|(path, _)| path == ".gitignore") {
            Some((_, text)) => text.push_str(ignored),
            None => files.push((".gitignore".into(), ignored.into())),
        }
    }
    for (path, text) in files {
        let path = dir.join(path);
        let folder = path.parent().unwrap_or(&dir);
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    let next = match (args.lang, role) {
        (_, None) => "flwr run .",
        (Language::C, _) => "make && make test",
        (Language::Python, _) => "pytest",
        (_, Some(Role::Protocol)) => "cargo test && cargo run --release -- run quick.yaml",
        _ => "cargo test && cargo build --release",
    };
    let next = if args.wheel {
        format!("{next} && pip wheel . --no-deps -w dist")
    } else {
        next.into()
    };
    let what = role.map_or("an app of Flower".into(), Role::with_article);
    print(format!(
        "{}: {what} called `{}`; next: cd {} && {next}",
        dir.display(),
        args.name,
        dir.display()
    ))
}

/// A crate that depends on fl's sources in `core`, or on its published version.
fn rust(role: Role, args: &NewArgs, core: Option<&Path>) -> Result<Files, Failure> {
    let from = |folder: &str| match core {
        Some(core) => {
            let path = core.join(folder);
            let utf8 = || format!("{}: cargo reads UTF-8 only", path.display());
            let path = path.to_str().with_context(utf8)?;
            // as a TOML string
            let path = path.replace('\\', "\\\\").replace('"', "\\\"");
            Ok(format!("path = \"{path}\""))
        }
        None => Ok::<_, Failure>(format!("version = \"{}\"", env!("CARGO_PKG_VERSION"))),
    };
    // the same versions as fl itself: they are known to work, and are there without a network
    let lock = core.and_then(|core| std::fs::read_to_string(core.join("Cargo.lock")).ok());
    let named = format!("\nname = \"{}\"\n", args.name);
    if lock.as_ref().is_some_and(|lock| lock.contains(&named)) {
        return Err(Failure::usage(format!(
            "there is a crate `{0}` already among those that fl is made of; try my-{0}",
            args.name
        )));
    }
    let templates = if args.stateful { &STATEFUL[..] } else { &RUST };
    let source = templates.iter().find(|(r, _)| *r == role);
    let source = source.map_or("", |(_, t)| t);
    let arrays = match role {
        Role::Trainer | Role::Generator => "ndarray = \"0.17\"\n",
        _ => "",
    };
    let article = role.with_article();
    let values = [
        ("name", args.name.clone()),
        ("crate", args.name.replace('-', "_")),
        ("Type", type_name(&args.name, source)),
        ("article", article.clone()),
        ("Article", article.replacen('a', "A", 1)),
        ("fl-core", from("fl-core")?),
        ("fl-conformance", from("plugins/conformance")?),
        ("fl-cli", from("hosts/cli")?),
        ("fl-plugins", from("plugins/bundle")?),
        ("library", library(&args.name)),
        ("plugin", format!("{{ path: {} }}", library(&args.name))),
        ("refused", "trim: must be in".into()),
        ("ndarray", arrays.into()),
    ];
    let mut files = vec![("src/lib.rs", source), (".gitignore", "/target\n/runs\n")];
    match role {
        Role::Protocol => files.extend(PROGRAM),
        _ => files.extend([("Cargo.toml", MANIFEST), ("README.md", README)]),
    }
    let cases = role == Role::Aggregator && !args.stateful;
    if cases {
        files.extend(CASES);
    }
    let filled = files.into_iter().map(|(path, text)| {
        let text = section(text, "sources", core.is_some());
        let text = section(&text, "cases", cases);
        (path.into(), fill(&text, &values))
    });
    Ok(filled
        .chain(lock.map(|lock| ("Cargo.lock".into(), lock)))
        .collect())
}

fn c(role: Role, args: &NewArgs) -> Result<Files, Failure> {
    let Some(part) = C.iter().find(|part| part.role == role) else {
        return Err(Failure::usage(format!(
            "--lang c writes aggregators, selectors and privacy mechanisms; for {} see the operations in fl_plugin.h",
            role.with_article()
        )));
    };
    let file = args.name.replace('-', "_");
    let random = part.input.is_empty();
    let values = [
        ("role", role.to_string()),
        ("name", args.name.clone()),
        ("Article", role.with_article().replacen('a', "A", 1)),
        ("file", file.clone()),
        ("include", ".".into()),
        (
            "tests",
            if random {
                "the conformance kit"
            } else {
                "its answer to case.json, and the conformance kit"
            }
            .into(),
        ),
    ];
    let filled = |template: &str| {
        let text = section(template, "stateful", args.stateful);
        fill(&section(&text, "random", random), &values)
    };
    let mut files = vec![
        (format!("{file}.c"), filled(part.source)),
        ("Makefile".into(), filled(MAKEFILE)),
        ("README.md".into(), filled(README_C)),
        ("fl_plugin.h".into(), fl_core::abi::HEADER.into()),
    ];
    if !random {
        let answer = part.answers[usize::from(args.stateful)];
        files.extend([
            ("case.json".into(), part.input.into()),
            ("expected.json".into(), answer.into()),
        ]);
    }
    Ok(files)
}

/// Keeps the lines from `{{#name}}` to `{{/name}}` if `on`, and those from `{{^name}}` otherwise.
fn section(template: &str, name: &str, on: bool) -> String {
    let [begin, otherwise, end] = ["#", "^", "/"].map(|mark| format!("{{{{{mark}{name}}}}}"));
    let (mut kept, mut text) = (true, String::new());
    for line in template.lines() {
        match line {
            line if line == begin => kept = on,
            line if line == otherwise => kept = !on,
            line if line == end => kept = true,
            line if kept => text.extend([line, "\n"]),
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program from the registry writes its version, and no path or lock.
    #[test]
    fn exact_a_published_program_writes_its_version() {
        let args = NewArgs {
            role: String::new(),
            name: "mine".into(),
            out: None,
            lang: Language::Rust,
            stateful: false,
            numpy: false,
            wheel: false,
            core: None,
        };
        let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
        for role in [Role::Aggregator, Role::Protocol] {
            let files = rust(role, &args, None).ok().unwrap();
            let text = |file: &str| &files.iter().find(|(path, _)| path == file).unwrap().1;
            let manifest = text("Cargo.toml");
            assert!(
                manifest.contains(&format!("fl-core = {{ {version} }}")),
                "{manifest}"
            );
            assert!(!manifest.contains("path ="), "{manifest}");
            assert!(!text("README.md").contains("the path of fl's sources"));
            let cases = files
                .iter()
                .any(|(path, _)| path == "aggregator.cases.yaml");
            assert_eq!(text("README.md").contains("fl test ."), cases);
            assert!(!files.iter().any(|(path, _)| path == "Cargo.lock"));
        }
    }
}
