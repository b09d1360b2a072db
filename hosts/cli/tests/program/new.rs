//! `fl new`, as a new user would try it: the transcript in `plugins/README.md`, every role, and C.
//!
//! What `fl new` writes is a workspace of its own, so nothing that is built for this one serves it.
//! The crates written here share one target folder inside this one's, so that their dependencies
//! are built once and stay.

use crate::{common, library};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where the written crates are built.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap().join("scaffold");
    fs::create_dir_all(&target).unwrap();
    target
}

/// What compiles soonest: it is the same code, and these crates are built to be tried once.
const QUICK: [(&str, &str); 4] = [
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_INCREMENTAL", "0"),
    ("CARGO_TERM_COLOR", "never"),
];

fn root() -> String {
    common::root().display().to_string()
}

fn shell(dir: &Path, script: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_fl")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let out = Command::new("sh")
        .args(["-ec", script])
        .current_dir(dir)
        .env("PATH", format!("{}:{path}", program.display()))
        .envs(QUICK)
        .env("XDG_DATA_HOME", common::user_dir())
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .unwrap();
    let text = [out.stdout, out.stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
    assert!(out.status.success(), "{script}\n{}\n{}", text[0], text[1]);
    text.concat()
}

#[test]
#[cfg(target_os = "linux")]
fn the_transcript_of_a_loaded_part_works() {
    let page = fs::read_to_string(common::root().join("plugins/LOADED.md")).unwrap();
    let transcript = page.split("```console\n").nth(1).unwrap();
    let transcript = transcript.split("```").next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (commands, answers): (Vec<&str>, Vec<&str>) =
        transcript.lines().partition(|l| l.starts_with("$ "));
    let mut script: Vec<String> = commands
        .iter()
        .map(|c| c.trim_start_matches("$ ").replace("~/fl", &root()))
        .collect();
    // the crate's own target folder, but with what is there already
    assert!(script[1].starts_with("cd "), "{script:?}");
    script.insert(2, format!("ln -s {} target", target().display()));
    let said = shell(dir.path(), &script.join("\n"));
    assert!(answers.len() > 4);
    // columns are as wide as the longest name there is
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let said: Vec<String> = said.lines().map(words).collect();
    for line in answers {
        let known = said.iter().any(|said| said.contains(&words(line)));
        assert!(known, "`{line}` is not in:\n{}", said.join("\n"));
    }
}

/// Every role, under names that mean something else in Rust or in the template; a `+` stands for
/// `--stateful`.
const ROLES: [(&str, &str); 11] = [
    ("aggregator", "params"),
    ("aggregator+", "mixed"),
    ("selector", "option"),
    ("selector+", "turns"),
    ("privacy", "default"),
    ("privacy+", "decaying"),
    ("trainer", "model"),
    ("accountant", "books"),
    ("generator", "around"),
    ("attack", "round"),
    ("protocol", "two-words"),
];

#[test]
fn every_role_passes_its_tests_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for (role, name) in ROLES {
        let core = root();
        let mut args = vec!["new", role.trim_end_matches('+'), name, "--core", &core];
        args.extend(role.ends_with('+').then_some("--stateful"));
        common::out(dir.path(), &args);
        let role = role.trim_end_matches('+');
        let made = dir.path().join(name);
        let mut files = vec!["Cargo.toml", "src/lib.rs", "README.md"];
        if role == "protocol" {
            files.extend(["src/main.rs", "tests/same.rs", "quick.yaml"]);
        }
        for file in files {
            let text = fs::read_to_string(made.join(file)).unwrap();
            assert!(!text.contains("{{"), "{role}, {file}: {text}");
            assert!(text.contains(name) || text.contains(&name.replace('-', "_")));
        }
        let out = Command::new(env!("CARGO"))
            .args(["test", "--offline", "--quiet"])
            .current_dir(&made)
            .envs(QUICK)
            .env("CARGO_TARGET_DIR", target())
            .output()
            .unwrap();
        let text = [&out.stdout, &out.stderr].map(|o| String::from_utf8_lossy(o).into_owned());
        assert!(out.status.success(), "{role}\n{}\n{}", text[0], text[1]);
        let passed = text[0].split("test result: ok. ").skip(1);
        let passed = passed.map(|n| n.split(' ').next().unwrap().parse::<usize>().unwrap());
        let least = if role == "protocol" { 3 } else { 2 };
        assert!(passed.sum::<usize>() >= least, "{role}: {}", text[0]);
        assert!(!text[1].contains("warning:"), "{role}: {}", text[1]);
        if role == "protocol" {
            runs_by_itself(&made, name);
            continue;
        }
        // cargo made the library too, for the tests in its docs
        let library = target().join("debug/deps").join(format!(
            "{}{}{}",
            std::env::consts::DLL_PREFIX,
            name.replace('-', "_"),
            std::env::consts::DLL_SUFFIX
        ));
        let library = library.display().to_string();
        let text = common::out(dir.path(), &["inspect", name, "--plugin", &library]);
        assert!(
            text.contains(role) && common::flat(&text).contains("(What `fl inspect` shows.)"),
            "{text}"
        );
    }
}

/// A protocol's crate is a program: all of `fl`, and the protocol.
fn runs_by_itself(made: &Path, name: &str) {
    let cargo = |args: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["run", "--offline", "--quiet", "--"]).args(args);
        cargo.current_dir(made).envs(QUICK);
        let out = cargo.env("CARGO_TARGET_DIR", target()).output().unwrap();
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{args:?}: {error}");
        String::from_utf8(out.stdout).unwrap()
    };
    assert!(common::flat(&cargo(&["inspect", name])).contains("(What `fl inspect` shows.)"));
    assert!(cargo(&["check", "quick.yaml"]).contains("fine"));
    assert!(cargo(&["plan", "quick.yaml"]).contains("parameters after local training"));
    let said = cargo(&["run", "quick.yaml"]);
    assert!(said.contains("accuracy") && said.contains("digest"));
    let journal = format!("runs/{name}-quick-1/journal.jsonl");
    let journal = fs::read_to_string(made.join(journal)).unwrap();
    assert_eq!(journal.lines().count(), 3, "one question in each round");
}

#[test]
fn what_cannot_be_made_is_refused_and_nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], says: &str| {
        let args = [&["new"], args].concat();
        let (code, error) = common::fails(dir.path(), &args);
        assert!(code == 2 && error.contains(says), "{args:?}: {error}");
    };
    let core = root();
    common::out(dir.path(), &["new", "aggregator", "mine", "--core", &core]);
    let written = fs::read(dir.path().join("mine/src/lib.rs")).unwrap();
    refused(&["aggregator", "mine", "--core", &core], "exists already");
    assert_eq!(
        fs::read(dir.path().join("mine/src/lib.rs")).unwrap(),
        written
    );
    for (name, says) in [
        ("Mine", "lowercase letters"),
        ("a--b", "lowercase letters"),
        ("9a", "lowercase letters"),
        ("../a", "lowercase letters"),
        ("a/b", "lowercase letters"),
        ("", "lowercase letters"),
        (&*"a".repeat(65), "at most 64"),
        ("self", "a word of Rust; try my-self"),
        ("match", "a word of Rust"),
        ("deps", "a folder of cargo's"),
        (
            "median",
            "an aggregator `median` already, from fl-plugin-averaging",
        ),
        ("insta", "a crate `insta` already"),
    ] {
        refused(&["aggregator", name, "--core", &core], says);
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "`{name}` left something behind");
    }
    refused(
        &["dictator", "mine2", "--core", &core],
        "no role is called `dictator`; known: ",
    );
    refused(
        &["aggregator", "mine2", "--core", "nowhere"],
        "--core nowhere: there is no fl-core",
    );
    refused(
        &["trainer", "mine2", "--lang", "c"],
        "--lang c writes aggregators, selectors and privacy mechanisms; for a trainer see",
    );
    refused(
        &["trainer", "mine2", "--stateful"],
        "--stateful: for aggregators, selectors and privacy mechanisms; leave it out for a trainer",
    );
    for lang in ["rust", "python"] {
        let args = ["aggregator", "mine2", "--numpy", "--lang", lang];
        refused(&args, "--numpy: for a trainer with --lang python");
    }
}

/// `fl new` finds the sources above the working folder or above the program, and says so if they
/// are not there.
#[test]
fn the_sources_are_found_upwards() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, empty) = (dir.path().join("a \"tree\""), dir.path().join("empty"));
    for file in ["fl-core/Cargo.toml", "plugins/conformance/Cargo.toml"] {
        fs::create_dir_all(tree.join(file).parent().unwrap()).unwrap();
        fs::write(tree.join(file), "").unwrap();
    }
    let deep = tree.join("some/where");
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(&empty).unwrap();
    let program = |place: &Path| {
        let program = place.join("fl");
        fs::copy(env!("CARGO_BIN_EXE_fl"), &program).unwrap();
        program
    };
    let new = |program: &Path, name: &str, here: &Path| -> Output {
        let mut fl = Command::new(program);
        fl.args(["new", "aggregator", name]).current_dir(here);
        fl.output().unwrap()
    };
    // a copy of the program that is in no tree, and one that is
    let (outside, inside) = (program(dir.path()), program(&deep));
    for (program, name, here) in [(&outside, "one", &deep), (&inside, "two", &empty)] {
        let out = new(program, name, here);
        assert!(out.status.success(), "{out:?}");
        let manifest = fs::read_to_string(here.join(name).join("Cargo.toml")).unwrap();
        let core = tree.canonicalize().unwrap().display().to_string();
        let path = format!("{}/fl-core\"", core.replace('"', "\\\""));
        assert!(manifest.contains(&path), "{path} is not in {manifest}");
    }
    let out = new(&outside, "three", &empty);
    let error = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{error}");
    assert!(error.contains("--core DIR"), "{error}");
    assert!(!empty.join("three").exists());
}

#[test]
fn a_library_in_c_builds_and_answers_as_expected() {
    let made = Command::new("make").arg("--version").output();
    if !library::cc() || !made.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: `cc` and `make` are needed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let said = shell(
        dir.path(),
        &format!(
            "fl new aggregator c-mean --lang c && cd c-mean && make test CFLAGS=-Werror\n\
             fl run {}/specs/quick/fedavg.yaml --set parts.aggregator.use=c-mean --plugin ./c_mean.so",
            root()
        ),
    );
    assert!(said.contains("digest"), "{said}");
    // the example of this workspace is what `fl new` writes
    for file in ["c_mean.c", "case.json", "expected.json"] {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        assert!(
            read(dir.path().join("c-mean").join(file))
                == read(common::root().join("plugins/example-c").join(file)),
            "plugins/example-c/{file} is not what `fl new` writes"
        );
    }
    // the other roles, with and without state, each in a run that is stopped and resumed
    for (role, slot) in [
        ("aggregator", "aggregator"),
        ("selector", "cohort"),
        ("privacy", "privacy"),
    ] {
        for (state, option) in [("plain", ""), ("stateful", "--stateful")] {
            let name = format!("{role}-{state}");
            let spec = format!(
                "{}/specs/quick/fedavg.yaml --quiet --set 'parts.{slot}={{use: {name}}}' \
                 --plugin ./{}.so",
                root(),
                name.replace('-', "_")
            );
            let said = shell(
                dir.path(),
                &format!(
                    "fl new {role} {name} --lang c {option} && cd {name}\n\
                     make test CFLAGS=-Werror\n\
                     fl run {spec} --out whole | grep digest\n\
                     fl run {spec} --out parts --stop-after 2 > /dev/null\n\
                     fl run --resume parts --quiet --plugin ./{}.so | grep digest",
                    name.replace('-', "_")
                ),
            );
            let digests: Vec<&str> = said.lines().filter(|l| l.contains("digest")).collect();
            assert_eq!(digests.len(), 2, "{name}: {said}");
            assert_eq!(digests[0], digests[1], "{name}");
        }
    }
    // a test that fails must fail
    let expected = dir.path().join("c-mean/expected.json");
    fs::write(&expected, "{}\n").unwrap();
    let again = Command::new("make")
        .args(["test", &format!("FL={}", env!("CARGO_BIN_EXE_fl"))])
        .env("XDG_DATA_HOME", common::user_dir())
        .current_dir(dir.path().join("c-mean"))
        .output();
    assert!(!again.unwrap().status.success());
}
