//! `fl new`, as a new user would try it: the transcript in `plugins/README.md`, and what else it writes.
mod common;
#[path = "common/library.rs"]
mod library;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder that cargo builds this test in, so that what is built already need not be built again.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_path_buf()
}

fn shell(dir: &Path, script: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_fl")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let out = Command::new("sh")
        .args(["-ec", script])
        .current_dir(dir)
        .env("PATH", format!("{}:{path}", program.display()))
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .unwrap();
    let text = [out.stdout, out.stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
    assert!(out.status.success(), "{script}\n{}\n{}", text[0], text[1]);
    text.concat()
}

#[test]
#[cfg(target_os = "linux")]
fn the_transcript_in_the_readme_works() {
    let readme = fs::read_to_string(common::root().join("plugins/README.md")).unwrap();
    let transcript = readme.split("```console\n").nth(1).unwrap();
    let transcript = transcript.split("```").next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let sources = common::root().display().to_string();
    let (commands, answers): (Vec<&str>, Vec<&str>) =
        transcript.lines().partition(|l| l.starts_with("$ "));
    // the crate's own target folder, but with what is there already
    let link = format!("ln -s {} target", target().display());
    let mut script: Vec<String> = commands
        .iter()
        .map(|c| c.trim_start_matches("$ ").replace("~/fl", &sources))
        .collect();
    script.insert(2, link);
    let said = shell(dir.path(), &script.join("\n"));
    assert!(answers.len() > 4);
    for line in answers {
        assert!(said.contains(line), "`{line}` is not in:\n{said}");
    }
}

#[test]
fn every_role_has_a_template_and_nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let core = common::root().display().to_string();
    for role in [
        "aggregator",
        "selector",
        "privacy",
        "trainer",
        "accountant",
        "generator",
        "protocol",
    ] {
        let name = format!("my-{role}");
        common::out(dir.path(), &["new", role, &name, "--core", &core]);
        for file in ["Cargo.toml", "src/lib.rs", "README.md"] {
            let text = fs::read_to_string(dir.path().join(&name).join(file)).unwrap();
            assert!(!text.contains("{{"), "{role}, {file}: {text}");
            assert!(text.contains(&name) || text.contains(&name.replace('-', "_")));
        }
    }
    let again = common::fails(
        dir.path(),
        &["new", "aggregator", "my-aggregator", "--core", &core],
    );
    assert!(
        again.0 == 2 && again.1.contains("already there"),
        "{again:?}"
    );
    for (name, says) in [
        ("Mine", "letters"),
        ("a--b", "letters"),
        ("9a", "letters"),
        ("self", "letters"),
        ("../a", "letters"),
    ] {
        let (code, error) =
            common::fails(dir.path(), &["new", "aggregator", name, "--core", &core]);
        assert!(code == 2 && error.contains(says), "{name}: {error}");
    }
    let (code, error) = common::fails(
        dir.path(),
        &["new", "aggregator", "mine", "--core", "nowhere"],
    );
    assert!(code == 2 && error.contains("nowhere"), "{error}");
    let (code, error) = common::fails(dir.path(), &["new", "trainer", "mine", "--lang", "c"]);
    assert!(code == 2 && error.contains("aggregators only"), "{error}");
}

#[test]
fn a_library_in_c_builds_and_answers_as_expected() {
    let made = Command::new("make").arg("--version").output();
    if !library::cc() || !made.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: `cc` and `make` are needed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    shell(
        dir.path(),
        "fl new aggregator c-mean --lang c && cd c-mean && make test CFLAGS=-Werror",
    );
    // the example of this workspace is what `fl new` writes
    for file in ["c_mean.c", "case.json", "expected.json"] {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        assert!(
            read(dir.path().join("c-mean").join(file))
                == read(common::root().join("plugins/example-c").join(file)),
            "plugins/example-c/{file} is not what `fl new` writes"
        );
    }
}
