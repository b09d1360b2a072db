//! `fl new`: a crate, a C library, or a module of Python, with one part that builds and passes its
//! tests at once; a protocol with a program of its own; an app for Flower.

mod flower;
mod python;

use crate::{Done, Failure, print};
use anyhow::Context;
use clap::{Args, ValueEnum};
use fl_core::{PartDecl, Role};
use fl_registry::Catalogue;
use std::path::{Path, PathBuf};

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
    (
        Role::Aggregator,
        include_str!("../templates/aggregator.rs.in"),
    ),
    (Role::Selector, include_str!("../templates/selector.rs.in")),
    (Role::Privacy, include_str!("../templates/privacy.rs.in")),
    (Role::Trainer, include_str!("../templates/trainer.rs.in")),
    (
        Role::Accountant,
        include_str!("../templates/accountant.rs.in"),
    ),
    (
        Role::Generator,
        include_str!("../templates/generator.rs.in"),
    ),
    (Role::Attack, include_str!("../templates/attack.rs.in")),
    (Role::Protocol, include_str!("../templates/protocol.rs.in")),
];
const MANIFEST: &str = include_str!("../templates/Cargo.toml.in");
/// What a protocol's crate has besides: a program.
const PROGRAM: [(&str, &str); 5] = [
    (
        "Cargo.toml",
        include_str!("../templates/Cargo.protocol.toml.in"),
    ),
    (
        "README.md",
        include_str!("../templates/README.protocol.md.in"),
    ),
    ("quick.yaml", include_str!("../templates/quick.yaml.in")),
    ("src/main.rs", include_str!("../templates/main.rs.in")),
    ("tests/same.rs", include_str!("../templates/same.rs.in")),
];
/// What an aggregator's crate has besides: cases for `fl test`.
const CASES: [(&str, &str); 2] = [
    (
        "aggregator.cases.yaml",
        include_str!("../templates/cases.yaml.in"),
    ),
    (
        "aggregator.cases.answers.json",
        include_str!("../templates/answers.json.in"),
    ),
];
const README: &str = include_str!("../templates/README.md.in");
const C: &str = include_str!("../templates/aggregator.c.in");
const MAKEFILE: &str = include_str!("../templates/Makefile.in");
const README_C: &str = include_str!("../templates/README.c.md.in");
const HEADER: &str = include_str!("../../../fl-core/include/fl_plugin.h");
const CASE: &str = r#"{"messages": [{"from": 0, "weight": 1, "tensors": {"w": [1, 2]}},
              {"from": 1, "weight": 3, "tensors": {"w": [3, 0.4]}}]}
"#;
const EXPECTED: &str = "{\"kind\":\"params\",\"tensors\":{\"w\":[2.5,0.8]}}\n";

/// What every Rust file means by these names.
const PRELUDE: [&str; 22] = [
    "AsMut", "AsRef", "Box", "Clone", "Copy", "Default", "Drop", "Eq", "Err", "From", "Into",
    "Iterator", "None", "Ok", "Option", "Ord", "Result", "Send", "Some", "String", "Sync", "Vec",
];

/// `TrimmedMean`; `MyParams` where the template means something else by `Params`.
fn type_name(name: &str, template: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    let plain: String = words.collect();
    let mut words = template.split(|c: char| !c.is_alphanumeric() && c != '_');
    match PRELUDE.contains(&plain.as_str()) || words.any(|word| word == plain) {
        true => format!("My{plain}"),
        false => plain,
    }
}

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
            "a part cannot be called `{name}`: a name begins with a letter and has at most 64 small letters, digits and single `-`, \
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

/// The checkout of fl: `--core`, or the nearest folder above here or above this program that has
/// one. Nothing about the machine that fl was built on is in the program.
fn sources(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let whole = |dir: &Path| {
        dir.join("fl-core/Cargo.toml").is_file()
            && dir.join("tests/conformance/Cargo.toml").is_file()
    };
    if let Some(dir) = given {
        return match dir.canonicalize() {
            Ok(dir) if whole(&dir) => Ok(dir),
            _ => Err(Failure::usage(format!(
                "--core {}: there is no fl-core/Cargo.toml and tests/conformance/Cargo.toml below it; give the folder of fl's sources",
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
    let role = match args.role == "flower" {
        true => None,
        false => Some(crate::show::role(&args.role)?),
    };
    check_name(&args.name)?;
    if let Some(role) = role {
        check_new(role, &args.name, catalogue)?;
    }
    let dir = args.out.clone().unwrap_or_else(|| (&args.name).into());
    if dir.exists() {
        return Err(Failure::usage(format!(
            "{} is already there",
            dir.display()
        )));
    }
    let files = match (role, args.lang) {
        (None, _) => flower::files(args)?,
        (Some(role), Language::Rust) => rust(role, args)?,
        (Some(role), Language::C) => c(role, args)?,
        (Some(role), Language::Python) => python::files(role, args)?,
    };
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
    let what = role.map_or("an app of Flower".into(), Role::with_article);
    print(format!(
        "{}: {what} called `{}`; next: cd {} && {next}",
        dir.display(),
        args.name,
        dir.display()
    ))
}

type Files = Vec<(String, String)>;

fn rust(role: Role, args: &NewArgs) -> Result<Files, Failure> {
    let core = sources(args.core.as_deref())?;
    let path = core
        .to_str()
        .with_context(|| format!("{}: cargo reads UTF-8 only", core.display()))?;
    // the same versions as fl itself: they are known to work, and are there without a network
    let lock = std::fs::read_to_string(core.join("Cargo.lock")).ok();
    let named = format!("\nname = \"{}\"\n", args.name);
    if lock.as_ref().is_some_and(|lock| lock.contains(&named)) {
        return Err(Failure::usage(format!(
            "there is a crate `{0}` already among those that fl is made of; try my-{0}",
            args.name
        )));
    }
    let source = RUST.iter().find(|(r, _)| *r == role).map_or("", |(_, t)| t);
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
        // as a TOML string
        ("core", path.replace('\\', "\\\\").replace('"', "\\\"")),
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
    if role == Role::Aggregator {
        files.extend(CASES);
    }
    let filled = files
        .into_iter()
        .map(|(path, text)| (path.into(), fill(text, &values)));
    Ok(filled
        .chain(lock.map(|lock| ("Cargo.lock".into(), lock)))
        .collect())
}

fn c(role: Role, args: &NewArgs) -> Result<Files, Failure> {
    if role != Role::Aggregator {
        return Err(Failure::usage(format!(
            "--lang c writes aggregators only; for {} see the operations in fl_plugin.h",
            role.with_article()
        )));
    }
    let file = args.name.replace('-', "_");
    let values = [
        ("name", args.name.clone()),
        ("file", file.clone()),
        ("include", ".".into()),
    ];
    Ok(vec![
        (format!("{file}.c"), fill(C, &values)),
        ("Makefile".into(), fill(MAKEFILE, &values)),
        ("README.md".into(), fill(README_C, &values)),
        ("fl_plugin.h".into(), HEADER.into()),
        ("case.json".into(), CASE.into()),
        ("expected.json".into(), EXPECTED.into()),
    ])
}

fn fill(template: &str, values: &[(&str, String)]) -> String {
    values
        .iter()
        .fold(template.to_string(), |text, (key, value)| {
            text.replace(&format!("{{{{{key}}}}}"), value)
        })
}
