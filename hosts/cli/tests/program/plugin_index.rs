//! Plugins from an index: built, signed, added, verified, pinned and run; and what an index, a
//! mirror, a wheel or another user may try.

use crate::{common, library};
use minisign::KeyPair;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use zip::write::{SimpleFileOptions, ZipWriter};

/// A user, with a folder of plugins and an index.
struct User {
    home: tempfile::TempDir,
    keys: KeyPair,
}

impl User {
    /// Has an index whose key is configured.
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let keys = KeyPair::generate_unencrypted_keypair().unwrap();
        for folder in ["plugins", "index"] {
            fs::create_dir(home.path().join(folder)).unwrap();
        }
        let user = Self { home, keys };
        user.configure("any", &[("index", true)]);
        user
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn key(&self) -> String {
        self.keys.pk.to_base64()
    }

    /// Writes the configuration: the level, and indexes with or without the key.
    fn configure(&self, level: &str, indexes: &[(&str, bool)]) {
        let index = |(name, key): &(&str, bool)| match key {
            true => json!({ "at": self.at(name), "key": self.key() }),
            false => json!({ "at": self.at(name) }),
        };
        let indexes: Vec<Value> = indexes.iter().map(index).collect();
        let config = json!({ "plugins-trust": level, "indexes": indexes });
        fs::write(self.at("plugins/plugins.yaml"), config.to_string()).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut fl = Command::new(env!("CARGO_BIN_EXE_fl"));
        fl.args(args).current_dir(self.home.path());
        fl.env("FL_PLUGIN_DIR", self.at("plugins"));
        fl.env_remove("VIRTUAL_ENV").env_remove("FL_PLUGINS_TRUST");
        fl
    }

    fn fl(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn out(&self, args: &[&str]) -> String {
        let out = self.fl(args);
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{args:?}: {error}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// The error of a command that must fail with this exit code.
    fn fails(&self, code: i32, args: &[&str]) -> String {
        let out = self.fl(args);
        let text = [&out.stdout, &out.stderr].map(|o| String::from_utf8_lossy(o).into_owned());
        assert_eq!(out.status.code(), Some(code), "{args:?}: {text:?}");
        common::flat(&text.concat())
    }

    fn refuses(&self, code: i32, args: &[&str], says: &str) {
        let error = self.fails(code, args);
        assert!(error.contains(says), "{args:?}: {error}\nwanted: {says}");
    }

    fn sign(&self, text: &str) -> String {
        let signature = minisign::sign(None, &self.keys.sk, Cursor::new(text), None, None);
        signature.unwrap().into_string()
    }

    /// Writes an entry and its signature into a folder.
    fn publish(&self, index: &str, name: &str, text: &str) {
        let at = self.at(index).join(format!("{name}.yaml"));
        fs::write(&at, text).unwrap();
        fs::write(at.with_extension("yaml.minisig"), self.sign(text)).unwrap();
    }

    /// Builds the wheel of an aggregator in a module beside the index, and its whole entry.
    fn module(&self, index: &str, version: &str, source: &str) -> String {
        let wheel = wheel(
            &self.at(index),
            "fl-mine",
            version,
            "fl_mine",
            &[("fl_mine.py", source.as_bytes())],
        );
        let head = format!(
            "name: fl-mine\nversion: '{version}'\nabout: A mean.\nlicence: MIT\n\
             source: https://example.org/mine\ncommit: {}\n",
            "c".repeat(40)
        );
        head + &self.files(&wheel)
    }

    /// `files:` of an entry, as `fl plugin show` drafts it.
    fn files(&self, wheel: &Path) -> String {
        let draft = self.out(&["plugin", "show", wheel.to_str().unwrap()]);
        let at = draft.find("files:").unwrap();
        draft[at..].to_string()
    }

    /// A spec whose aggregator is of a package.
    fn spec(&self, package: &str, aggregator: &str) -> String {
        let quick = fs::read_to_string(common::quick("fedavg")).unwrap();
        let mut spec: serde_yaml::Value = serde_yaml::from_str(&quick).unwrap();
        let part: serde_yaml::Value =
            serde_yaml::from_str(&format!("{{ use: {aggregator} }}")).unwrap();
        spec["parts"]["aggregator"] = part;
        spec["plugins"] = serde_yaml::from_str(&format!("[{package}]")).unwrap();
        let path = self.at("spec.yaml");
        fs::write(&path, serde_yaml::to_string(&spec).unwrap()).unwrap();
        path.display().to_string()
    }
}

/// A wheel as pip makes it, as far as fl reads it.
fn wheel(dir: &Path, name: &str, version: &str, plugin: &str, files: &[(&str, &[u8])]) -> PathBuf {
    let file = name.replace('-', "_");
    let info = format!("{file}-{version}.dist-info");
    let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
    let points = format!("[fl.plugins]\nplugin = {plugin}\n");
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let plain = SimpleFileOptions::default();
    let named = |name: &str| format!("{info}/{name}");
    let about = [
        (named("METADATA"), metadata.as_bytes()),
        (named("entry_points.txt"), points.as_bytes()),
    ];
    let files = files.iter().map(|(name, bytes)| (name.to_string(), *bytes));
    for (name, bytes) in files.chain(about) {
        zip.start_file(name, plain).unwrap();
        zip.write_all(bytes).unwrap();
    }
    let path = dir.join(format!("{file}-{version}-py3-none-any.whl"));
    fs::write(&path, zip.finish().unwrap().into_inner()).unwrap();
    path
}

/// The library in C as a package of the folder of plugins.
fn c_mean(dir: &Path) -> Vec<u8> {
    let out = dir.join("c_mean.so");
    library::compile(
        &common::root().join("plugins/example-c/c_mean.c"),
        &out,
        &[],
    );
    fs::read(out).unwrap()
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_example_index_is_built_signed_added_verified_and_run() {
    if !library::cc() {
        return;
    }
    let user = User::new();
    let dynamic = fs::read(library::beside("fl_plugin_example_dynamic")).unwrap();
    let python = common::root().join("plugins/example-python/py_trimmed.py");
    let built: [(&str, &str, &str, Vec<u8>); 3] = [
        (
            "fl-example-c",
            "fl_example_c:plugin.so",
            "fl_example_c/plugin.so",
            c_mean(&user.at(".")),
        ),
        (
            "fl-example-dynamic",
            "fl_example_dynamic:plugin.so",
            "fl_example_dynamic/plugin.so",
            dynamic,
        ),
        (
            "fl-py-trimmed",
            "py_trimmed",
            "py_trimmed.py",
            fs::read(python).unwrap(),
        ),
    ];
    for (name, plugin, file, bytes) in &built {
        let entry = common::root().join(format!("plugins/index/{name}-0.1.0.yaml"));
        let mut entry = fs::read_to_string(entry).unwrap();
        let wheel = wheel(&user.at("index"), name, "0.1.0", plugin, &[(file, bytes)]);
        // a program without Python runs no module; `hosts/python/tests` does
        if file.ends_with(".so") {
            let library = user.at("built.so");
            fs::write(&library, bytes).unwrap();
            let written: serde_yaml::Value = serde_yaml::from_str(&entry).unwrap();
            let draft = user.out(&["plugin", "show", wheel.to_str().unwrap()]);
            let draft: serde_yaml::Value = serde_yaml::from_str(&draft).unwrap();
            assert_eq!(draft["interface"], written["interface"], "{name}");
            let [drafted, due] = [&draft, &written].map(|entry| {
                let parts = entry["parts"].as_sequence().unwrap().iter();
                parts
                    .map(|part| part.as_str().unwrap())
                    .collect::<BTreeSet<_>>()
            });
            assert_eq!(drafted, due, "{name}");
            for part in written["parts"].as_sequence().unwrap() {
                let (_, part) = part.as_str().unwrap().split_once(' ').unwrap();
                let library = library.to_str().unwrap();
                user.out(&["test", "--conformance", part, "--plugin", library]);
            }
            entry += "conformance: passed\n";
        }
        entry = entry.replace(&"0".repeat(40), &"a".repeat(40)) + &user.files(&wheel);
        user.publish("index", &format!("{name}-0.1.0"), &entry);
    }
    let found = user.out(&["plugin", "search", "aggregator"]);
    assert_eq!(found.matches("reviewed").count(), 3, "{found}");
    assert!(
        user.out(&["plugin", "search", "hsu", "momentum"])
            .contains("fl-example-dynamic")
    );
    assert!(
        user.out(&["plugin", "search", "nothing-like-it"])
            .contains("no plugin fits")
    );
    let shown = user.out(&["plugin", "show", "fl_example.C"]);
    assert!(
        shown.contains("# reviewed") && shown.contains("conformance: passed"),
        "{shown}"
    );
    let near = user.fails(2, &["plugin", "add", "fl-exampel-c"]);
    assert!(near.contains("did you mean `fl-example-c`?"), "{near}");

    let spec = user.spec("{ package: fl-example-c, version: '0.1' }", "c-mean");
    user.refuses(
        3,
        &["run", &spec],
        "`fl plugin add fl-example-c --version 0.1`",
    );
    for (name, parts) in [
        (
            "fl_example_c",
            "parts:\n- aggregator c-mean\ninterface: 3\n",
        ),
        (
            "fl_example_dynamic",
            "parts:\n- aggregator momentum-mean\n- selector by-size\n- privacy laplace-params\ninterface: 3\n",
        ),
        ("fl_py_trimmed", "parts: []\nlicence:"),
    ] {
        let wheel = user.at(&format!("index/{}-0.1.0-py3-none-any.whl", name));
        let draft = user.out(&["plugin", "show", wheel.to_str().unwrap()]);
        assert!(draft.contains(parts), "{draft}");
    }
    for (name, ..) in &built {
        let added = user.out(&["plugin", "add", name]);
        assert!(
            added.contains("plugins: [{ package: ") && added.contains("(reviewed, "),
            "{added}"
        );
        assert!(
            user.out(&["plugin", "add", name])
                .contains("is there already")
        );
    }
    let listed = user.out(&["plugin", "list"]);
    assert!(listed.contains("module py_trimmed") && listed.matches("reviewed").count() == 3);
    let verified = common::flat(&user.out(&["plugin", "verify", "--plugins-trust", "reviewed"]));
    assert_eq!(
        verified.matches("(reviewed there)").count(),
        3,
        "{verified}"
    );

    // the bits are those of the library that is named by its path
    let digest = |args: &[&str]| -> Value {
        let text = user.out(&[args, &["--json"]].concat());
        serde_json::from_str::<Value>(&text).unwrap()["digest"].clone()
    };
    user.refuses(3, &["run", &spec, "--locked"], "does not pin it");
    assert!(user.out(&["lock", &spec]).contains("1 plugin pinned"));
    let lock = fs::read_to_string(user.at("fl.lock")).unwrap();
    for text in [
        "package: fl-example-c",
        "version: 0.1.0",
        "interface: 3",
        "linux-x86_64",
    ] {
        let here = text != "linux-x86_64" || cfg!(all(target_os = "linux", target_arch = "x86_64"));
        assert!(!here || lock.contains(text), "{lock}");
    }
    let locked = digest(&[
        "run",
        &spec,
        "--locked",
        "--plugins-trust",
        "reviewed",
        "--out",
        "one",
    ]);
    let quick = common::quick("fedavg");
    let set = [
        "--set",
        "parts.aggregator.use=c-mean",
        "--plugin",
        "c_mean.so",
    ];
    assert_eq!(
        locked,
        digest(&[&["run", &quick, "--out", "two"], &set[..]].concat())
    );
    let run = read_json(&user.at("one/run.json"));
    assert_eq!(run["plugins_trust"], "reviewed");
    let name = run["libraries"][0]["path"].as_str().unwrap();
    assert!(
        name.starts_with("fl-example-c 0.1.0: ") && name.ends_with(" (reviewed)"),
        "{name}"
    );
    assert_eq!(read_json(&user.at("two/run.json"))["plugins_trust"], "any");
    let page = fs::read_to_string(user.at("one/report.html")).unwrap();
    assert!(page.contains("plugins-trust: reviewed") && page.contains("fl-example-c 0.1.0"));
    // the run folder names the package, and goes on from wherever it is
    let kept = fs::read_to_string(user.at("one/spec.yaml")).unwrap();
    assert!(
        kept.contains("package: fl-example-c") && !kept.contains("plugin.so"),
        "{kept}"
    );
    let stopped = ["run", &spec, "--out", "three", "--stop-after", "2"];
    user.out(&stopped);
    assert_eq!(locked, digest(&["run", "--resume", "three"]));

    // what needs Python says so
    let spec = user.spec("{ package: fl-py-trimmed }", "py-trimmed");
    user.refuses(3, &["run", &spec], "this program has no Python");
    // and what is of another package does not serve
    let spec = user.spec("{ package: fl-example-dynamic }", "momentum-mean");
    digest(&["run", &spec, "--plugins-trust", "published"]);
    user.refuses(
        3,
        &["check", &spec, "--plugins-trust", "linked"],
        "no plugin may be loaded",
    );
}

#[test]
fn an_index_in_one_file_gives_what_the_folder_gives() {
    let user = User::new();
    let entry = user.module("index", "1.0", "x = 1\n");
    let index = json!({ "entries": [{ "entry": entry, "signature": user.sign(&entry) }] });
    let at = user.at("index/index.json");
    fs::write(&at, index.to_string()).unwrap();
    user.configure("any", &[("index/index.json", true)]);
    assert!(user.out(&["plugin", "search"]).contains("published"));
    assert!(
        user.out(&["plugin", "add", "fl-mine"])
            .contains("(published, ")
    );
    // at an address, by curl
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let bin = user.at("bin");
        fs::create_dir(&bin).unwrap();
        let curl = "#!/bin/sh\nfor last; do :; done\ncase \"$*\" in *'--proto =https'*) ;; *) exit 9 ;; esac\n\
                    exec cat \"$(dirname \"$0\")/../index/${last##*/}\"\n";
        fs::write(bin.join("curl"), curl).unwrap();
        fs::set_permissions(bin.join("curl"), fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        fs::remove_dir_all(user.at("plugins/fl-mine-1.0")).unwrap();
        let add = |at: &str| {
            let mut fl = user.command(&["plugin", "add", "fl-mine", "--index", at]);
            let out = fl.env("PATH", &path).output().unwrap();
            [out.stdout, out.stderr]
                .map(|o| String::from_utf8_lossy(&o).into_owned())
                .concat()
        };
        let said = add("https://example.org/fl/index.json");
        assert!(said.contains("is installed (any, from https://"), "{said}");
        let said = add("https://example.org/fl/nothing.json");
        assert!(said.contains("curl could not read it"), "{said}");
        for other in ["http://example.org/index.json", "ftp://example.org/i"] {
            assert!(
                add(other).contains("or the https:// address of one"),
                "{other}"
            );
        }
    }
    for (text, says) in [
        ("", "EOF"),
        ("{}", "a list `entries`"),
        ("{\"entries\": 1}", "a list `entries`"),
        (&*"[".repeat(1 << 20), "recursion limit"),
    ] {
        fs::write(&at, text).unwrap();
        user.refuses(1, &["plugin", "search"], says);
    }
    let twice = [&index["entries"][0], &index["entries"][0]];
    fs::write(&at, json!({ "entries": twice }).to_string()).unwrap();
    user.refuses(
        1,
        &["plugin", "search"],
        "has fl-mine 1.0 twice; nothing of it is used",
    );
    let many = vec![json!({}); 10_001];
    fs::write(&at, json!({ "entries": many }).to_string()).unwrap();
    user.refuses(1, &["plugin", "search"], "more than 10000 entries");
    let huge = fs::File::create(&at).unwrap();
    huge.set_len((64 << 20) + 1).unwrap();
    user.refuses(1, &["plugin", "search"], "longer than");
}

#[test]
fn an_entry_counts_only_as_it_was_signed() {
    let user = User::new();
    let add = ["plugin", "add", "fl-mine"];
    let entry = user.module("index", "1.0", "x = 1\n");
    let file = user.at("index/fl-mine-1.0.yaml");
    let signature = user.at("index/fl-mine-1.0.yaml.minisig");
    // no signature; one over other bytes; one by another key; none that can be read
    fs::write(&file, &entry).unwrap();
    user.refuses(1, &add, "it has no signature, and its index has a key");
    assert!(user.out(&["plugin", "search"]).contains("refused"));
    fs::write(&signature, user.sign(&format!("{entry}\n"))).unwrap();
    user.refuses(1, &add, "its signature does not match these bytes");
    let other = User::new();
    fs::write(&signature, other.sign(&entry)).unwrap();
    user.refuses(
        1,
        &add,
        "its signature does not match these bytes and the index's key",
    );
    fs::write(&signature, "minisign").unwrap();
    user.refuses(1, &add, "its signature: ");
    // signed, and changed afterwards to say more
    user.publish("index", "fl-mine-1.0", &entry);
    fs::write(&file, format!("{entry}reviewed: nobody\n")).unwrap();
    user.refuses(1, &add, "its signature does not match these bytes");
    // an entry under another name or version
    user.publish("index", "fl-other-1.0", &entry);
    fs::remove_file(&file).unwrap();
    let notes = user.fails(2, &add);
    assert!(
        notes.contains("it is the entry fl-mine-1.0.yaml"),
        "{notes}"
    );
    assert!(!user.at("plugins/fl-mine-1.0").exists());
    // entries that would reach elsewhere, or are none
    for (from, to, says) in [
        ("name: fl-mine", "name: ../../mine", "cannot be called"),
        ("name: fl-mine", "name: FL_mine", "`name` must be `fl-mine`"),
        ("version: '1.0'", "version: ../1", "`version` must be one"),
        (
            "wheel: fl_mine",
            "wheel: ../fl_mine",
            "`wheel` must be the name of a file",
        ),
        (
            "wheel: fl_mine",
            "wheel: http://x/fl_mine",
            "`wheel` must be the name of a file",
        ),
        ("wheel-sha256: ", "wheel-sha256: 0", "64 hexadecimal digits"),
        ("commit: c", "commit: mainc", "40 to 64 hexadecimal digits"),
        ("about: ", "abuot: ", "did you mean `about`?"),
    ] {
        let wrong = entry.replace(from, to);
        user.publish("index", "fl-mine-1.0", &wrong);
        let notes = user.fails(2, &add);
        assert!(notes.contains(says), "{to}: {notes}");
    }
    let long = format!("{entry}# {}\n", "x".repeat(64 << 10));
    user.publish("index", "fl-mine-1.0", &long);
    assert!(user.fails(2, &add).contains("longer than"));
    // the wheel is not the one of the entry, or has another plugin in it
    user.publish("index", "fl-mine-1.0", &entry);
    user.module("index", "1.0", "x = 2\n");
    user.refuses(1, &add, "and its entry says");
    let changed = user.module("index", "1.0", "x = 2\n");
    let sum = |text: &str| text.split(" sha256: ").nth(1).unwrap()[..64].to_string();
    user.publish(
        "index",
        "fl-mine-1.0",
        &changed.replace(&sum(&changed), &sum(&entry)),
    );
    user.refuses(1, &add, "has a plugin with sha256");
    let index = user.at("index");
    let name = wheel(
        &index,
        "fl-wrong",
        "1.0",
        "fl_mine",
        &[("fl_mine.py", b"x = 1\n")],
    );
    fs::rename(&name, index.join("fl_mine-1.0-py3-none-any.whl")).unwrap();
    let files = user.files(&index.join("fl_mine-1.0-py3-none-any.whl"));
    let head = entry.split("files:").next().unwrap();
    user.publish("index", "fl-mine-1.0", &format!("{head}{files}"));
    user.refuses(1, &add, "has fl-wrong 1.0 in it");
    // nothing was left
    let left = fs::read_dir(user.at("plugins")).unwrap().count();
    assert_eq!(left, 1, "only plugins.yaml is there");
}

#[test]
fn a_version_stays_what_it_was_and_does_not_go_back() {
    if !library::cc() {
        return;
    }
    let user = User::new();
    let bytes = c_mean(&user.at("."));
    let publish = |version: &str, bytes: &[u8]| {
        let file: &[(&str, &[u8])] = &[("fl_mine/plugin.so", bytes)];
        let wheel = wheel(
            &user.at("index"),
            "fl-mine",
            version,
            "fl_mine:plugin.so",
            file,
        );
        let head = format!(
            "name: fl-mine\nversion: '{version}'\nabout: A mean.\nlicence: MIT\nsource: here\ninterface: 3\ncommit: {}\n",
            "c".repeat(40)
        );
        user.publish(
            "index",
            &format!("fl-mine-{version}"),
            &(head + &user.files(&wheel)),
        );
    };
    publish("1.1", &bytes);
    user.out(&["plugin", "add", "fl-mine"]);
    let spec = user.spec("{ package: fl-mine }", "c-mean");
    user.out(&["lock", &spec]);
    let lock = fs::read(user.at("fl.lock")).unwrap();
    // the index says something else of the same version
    let other = [&bytes[..], b"\n"].concat();
    publish("1.1", &other);
    user.refuses(
        1,
        &["plugin", "add", "fl-mine"],
        "a version must not change",
    );
    user.refuses(1, &["plugin", "verify"], "it is not what index");
    // and a user who removes the old one still has the pin
    fs::remove_dir_all(user.at("plugins/fl-mine-1.1")).unwrap();
    user.out(&["plugin", "add", "fl-mine"]);
    user.refuses(3, &["run", &spec, "--locked"], "its sha256 is");
    user.refuses(3, &["lock", &spec], "version 1.1 is pinned");
    // an older version is chosen only by removing the pin
    fs::remove_dir_all(user.at("plugins/fl-mine-1.1")).unwrap();
    publish("1.0", &bytes);
    user.out(&["plugin", "add", "fl-mine", "--version", "1.0"]);
    user.refuses(
        3,
        &["run", &spec, "--locked"],
        "version 1.1 is wanted, and 1.0 is installed",
    );
    user.refuses(3, &["lock", &spec], "would be older");
    assert_eq!(
        fs::read(user.at("fl.lock")).unwrap(),
        lock,
        "it was changed"
    );
    // a newer one is pinned by `fl lock` only
    publish("1.2", &bytes);
    user.out(&["plugin", "add", "fl-mine"]);
    user.refuses(3, &["run", &spec, "--locked"], "version 1.1 is wanted");
    user.out(&["lock", &spec]);
    user.out(&["run", &spec, "--locked", "--out", "run"]);
    // a spec that wants another version than the lock pins
    let other = user.spec("{ package: fl-mine, version: '1.3' }", "c-mean");
    let says = "the spec wants version 1.3, and";
    user.refuses(3, &["run", &other, "--locked"], says);
    let spec = user.spec("{ package: fl-mine }", "c-mean");
    // lock files with mistakes
    for (text, says) in [
        (
            "plugins: [{ package: fl-mine, hashes: [] }]",
            "must have a `package` with its `version`",
        ),
        ("plugins: 3", "plugins: "),
        ("pluggins: []", "did you mean `plugins`?"),
        (
            "plugins: [{ package: fl-mine, version: '1.2', interface: 99, hashes: [{ platform: any, sha256: a }] }]",
            "64 hexadecimal digits",
        ),
    ] {
        fs::write(user.at("fl.lock"), text).unwrap();
        user.refuses(2, &["run", &spec, "--locked"], says);
    }
    let zeros = "0".repeat(64);
    let pin = |more: &str| {
        let text = format!(
            "plugins: [{{ package: fl-mine, version: '1.2', {more}, sha256: '{zeros}' }}] }}]"
        );
        fs::write(user.at("fl.lock"), text).unwrap();
    };
    pin("interface: 99, hashes: [{ platform: any");
    user.refuses(3, &["run", &spec, "--locked"], "pins it with interface 99");
    pin("hashes: [{ platform: plan9-vax");
    user.refuses(3, &["run", &spec, "--locked"], "pins it for plan9-vax");
    let library = user.at("c_mean.so").display().to_string();
    user.refuses(
        2,
        &["lock", &spec, "--plugin", &library],
        "name it under `plugins`",
    );
}

#[test]
fn a_changed_package_is_named_as_changed_and_a_trusted_copy_is_preferred() {
    if !library::cc() {
        return;
    }
    let user = User::new();
    let bytes = c_mean(&user.at("."));
    let file: &[(&str, &[u8])] = &[("fl_mine/plugin.so", &bytes)];
    let (index, module) = (user.at("index"), "fl_mine:plugin.so");
    let wheel = wheel(&index, "fl-mine", "1.0", module, file);
    let head =
        "name: fl-mine\nversion: '1.0'\nabout: A mean.\nlicence: MIT\nsource: here\ninterface: 3\n";
    let head = format!("{head}commit: {}\n", "c".repeat(40));
    let entry = head + &user.files(&wheel);
    // the entry of a library says which interface it needs
    user.publish("index", "fl-mine-1.0", &entry.replace("interface: 3\n", ""));
    user.refuses(1, &["plugin", "add", "fl-mine"], "has no `interface`: ask");
    assert!(!user.at("plugins/fl-mine-1.0").exists());
    user.publish("index", "fl-mine-1.0", &entry);
    user.out(&["plugin", "add", "fl-mine"]);
    user.configure("published", &[("index", true)]);
    // a wheel that is trusted less than the user asks is not loaded to be described
    let other = user.at("other");
    fs::create_dir(&other).unwrap();
    let changed = [&bytes[..], b"\n"].concat();
    let changed: &[(&str, &[u8])] = &[("fl_mine/plugin.so", &changed)];
    let changed = self::wheel(&other, "fl-mine", "2.0", module, changed);
    let shown = user.fl(&["plugin", "show", changed.to_str().unwrap()]);
    let [draft, notes] = [&shown.stdout, &shown.stderr].map(|o| String::from_utf8_lossy(o));
    assert!(draft.contains("parts: []\nlicence:"), "{draft}");
    let why = "the parts are left out: plugins-trust is `published`";
    assert!(common::flat(&notes).contains(why), "{notes}");
    let spec = user.spec("{ package: fl-mine }", "c-mean");
    // another copy of the same version, which nothing vouches for, comes first
    let added = user.at("plugins/fl-mine-1.0");
    let site = user.at("env/lib/python3.12/site-packages");
    for folder in ["fl_mine", "fl_mine-1.0.dist-info"] {
        fs::create_dir_all(site.join(folder)).unwrap();
        for entry in fs::read_dir(added.join(folder)).unwrap() {
            let from = entry.unwrap().path();
            fs::copy(&from, site.join(folder).join(from.file_name().unwrap())).unwrap();
        }
    }
    let append = |library: &Path| {
        let bytes = [&fs::read(library).unwrap()[..], b"\n"].concat();
        fs::write(library, bytes).unwrap();
    };
    append(&site.join("fl_mine/plugin.so"));
    let mut both = user.command(&["check", &spec]);
    let both = both.env("VIRTUAL_ENV", user.at("env")).output().unwrap();
    let error = String::from_utf8_lossy(&both.stderr);
    assert!(both.status.success(), "{error}");
    user.refuses(
        3,
        &["check", &user.spec("{ package: fl-mime }", "c-mean")],
        "it is not installed; did you mean `fl-mine`?",
    );
    // the added one is changed too
    append(&added.join("fl_mine/plugin.so"));
    let spec = user.spec("{ package: fl-mine }", "c-mean");
    let remove = format!("remove {}", added.display());
    for (code, args) in [
        (3, &["check", &spec][..]),
        (1, &["plugin", "add", "fl-mine"]),
    ] {
        let error = user.fails(code, args);
        for said in ["was changed after it was installed", &remove] {
            assert!(error.contains(said), "{args:?}: {error}");
        }
    }
    user.refuses(
        1,
        &["plugin", "verify"],
        "if it was installed from there, it was changed",
    );
    fs::remove_dir_all(&added).unwrap();
    user.out(&["plugin", "add", "fl-mine"]);
    user.out(&["check", &spec]);
}

#[test]
fn trust_is_only_ever_tightened() {
    if !library::cc() {
        return;
    }
    let user = User::new();
    let bytes = c_mean(&user.at("."));
    let file: &[(&str, &[u8])] = &[("fl_mine/plugin.so", &bytes)];
    let wheel = wheel(
        &user.at("index"),
        "fl-mine",
        "1.0",
        "fl_mine:plugin.so",
        file,
    );
    let head =
        "name: fl-mine\nversion: '1.0'\nabout: A mean.\nlicence: MIT\nsource: here\ninterface: 3\n";
    let head = format!("{head}commit: {}\n", "c".repeat(40));
    user.publish("index", "fl-mine-1.0", &(head + &user.files(&wheel)));
    user.out(&["plugin", "add", "fl-mine"]);
    let spec = user.spec("{ package: fl-mine }", "c-mean");
    let check = ["check", &*spec];
    let low = "and this plugin is `published`";
    user.out(&check);
    user.out(&[&check[..], &["--plugins-trust", "published"]].concat());
    user.refuses(
        3,
        &[&check[..], &["--plugins-trust", "reviewed"]].concat(),
        low,
    );
    // the environment, the configuration and the spec ask for more, and nothing asks for less
    let env = |level: &str| {
        let out = user
            .command(&check)
            .env("FL_PLUGINS_TRUST", level)
            .output()
            .unwrap();
        (
            out.status.code(),
            common::flat(&String::from_utf8_lossy(&out.stderr)),
        )
    };
    assert_eq!(env("published").0, Some(0));
    assert!(env("reviewed").1.contains(low));
    assert!(
        env("al")
            .1
            .contains("FL_PLUGINS_TRUST: must be one of any, published")
    );
    let any = [&check[..], &["--plugins-trust", "any"]].concat();
    user.configure("reviewed", &[("index", true)]);
    user.refuses(3, &any, low);
    user.configure("published", &[("index", true)]);
    user.out(&any);
    let reviewed = [&any[..], &["--set", "plugins-trust=reviewed"]].concat();
    user.refuses(3, &reviewed, low);
    // a level that cannot be read loads nothing
    let wrong = [&any[..], &["--set", "plugins-trust=non"]].concat();
    user.refuses(2, &wrong, "plugins-trust: must be one of any");
    // a library by its path counts by its bytes, on the command line too
    let quick = common::quick("fedavg");
    let library = user.at("c_mean.so").display().to_string();
    user.out(&["check", &quick, "--plugin", &library]);
    let set = [
        "check",
        &*quick,
        "--plugin",
        &*library,
        "--set",
        "plugins-trust=reviewed",
    ];
    user.refuses(3, &set, low);
    fs::write(&library, [&bytes[..], b"\n"].concat()).unwrap();
    user.refuses(
        3,
        &["check", &quick, "--plugin", &library],
        "this plugin is `any`",
    );
    // without its key, or with a changed entry, a plugin has no level
    user.configure("published", &[("index", false)]);
    user.refuses(3, &check, "this plugin is `any`");
    user.configure("published", &[("index", true)]);
    user.out(&check);
    let entry = user.at("plugins/entries/fl-mine-1.0.yaml");
    let text = fs::read_to_string(&entry).unwrap();
    fs::write(&entry, format!("{text}reviewed: me\n")).unwrap();
    user.refuses(3, &check, "this plugin is `any`");
    // a configuration that cannot be read stops every command
    let config = user.at("plugins/plugins.yaml");
    fs::write(&config, "plugins-trust: non").unwrap();
    user.refuses(2, &["list"], "must be one of any");
    fs::write(&config, "indexes: [{ at: here, key: me }]").unwrap();
    user.refuses(2, &["list"], "is no public key of minisign");
}

#[test]
fn a_name_is_of_one_index_and_one_package() {
    let user = User::new();
    fs::create_dir(user.at("other")).unwrap();
    user.configure("any", &[("index", true), ("other", false)]);
    let entry = user.module("index", "1.0", "x = 1\n");
    user.publish("index", "fl-mine-1.0", &entry);
    // another index offers a newer one of the same name
    let newer = user.module("other", "9.0", "x = 2\n");
    fs::write(user.at("other/fl-mine-9.0.yaml"), newer).unwrap();
    let add = ["plugin", "add", "fl-mine"];
    user.refuses(2, &add, "is in several indexes");
    let at = user.at("index").display().to_string();
    user.out(&[&add[..], &["--index", &at]].concat());
    // a wheel that no index has
    let path = user
        .at("other/fl_mine-9.0-py3-none-any.whl")
        .display()
        .to_string();
    assert!(user.out(&["plugin", "add", &path]).contains("(any, from "));
    // an environment: the newest that fits is taken, and what is broken there is named
    let site = user.at("env/lib/python3.11/site-packages");
    fs::create_dir_all(site.join("fl_mine-9.0.dist-info")).unwrap();
    let metadata = "Metadata-Version: 2.1\nName: fl-yours\nVersion: 9.0\n";
    fs::write(site.join("fl_mine-9.0.dist-info/METADATA"), metadata).unwrap();
    let points = "[fl.plugins]\nx = fl_mine\n";
    fs::write(site.join("fl_mine-9.0.dist-info/entry_points.txt"), points).unwrap();
    let mut list = user.command(&["plugin", "list"]);
    let list = list.env("VIRTUAL_ENV", user.at("env")).output().unwrap();
    let notes = common::flat(&String::from_utf8_lossy(&list.stderr));
    assert!(
        notes.contains("its METADATA says that it is `fl-yours`"),
        "{notes}"
    );
    let spec = user.spec("{ package: fl-mine, version: '1' }", "mean");
    user.refuses(3, &["check", &spec], "this program has no Python");
    for (plugin, says) in [
        ("{ package: ../mine }", "cannot be called"),
        ("{ package: fl-mine, path: a.so }", "must have no `path`"),
        (
            "{ path: a.so, version: '1' }",
            "`version` is that of a `package`",
        ),
        (
            "{ package: fl-mine, version: '>=1' }",
            "`version` must be one such as",
        ),
    ] {
        let spec = user.spec(plugin, "mean");
        user.refuses(2, &["check", &spec], says);
    }
}

#[cfg(unix)]
#[test]
fn what_other_users_may_write_is_not_used() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    if !library::cc() {
        return;
    }
    let user = User::new();
    let bytes = c_mean(&user.at("."));
    let file: &[(&str, &[u8])] = &[("fl_mine/plugin.so", &bytes)];
    let path = wheel(&user.at("."), "fl-mine", "1.0", "fl_mine:plugin.so", file);
    user.out(&["plugin", "add", path.to_str().unwrap()]);
    let spec = user.spec("{ package: fl-mine }", "c-mean");
    let mode = |name: &str, mode| {
        fs::set_permissions(user.at(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    user.out(&["check", &spec]);
    user.out(&["lock", &spec]);
    mode("plugins/fl-mine-1.0", 0o777);
    user.refuses(3, &["check", &spec], "every user may write to its folder");
    // with the pinned bytes it does not matter who could have written them
    user.out(&["run", &spec, "--locked", "--out", "run"]);
    mode("plugins/fl-mine-1.0", 0o755);
    mode("plugins/plugins.yaml", 0o666);
    user.refuses(2, &["list"], "every user may write to it");
    mode("plugins/plugins.yaml", 0o644);
    // a link in place of the library leads to another folder, which counts too
    fs::create_dir(user.at("open")).unwrap();
    fs::write(user.at("open/plugin.so"), &bytes).unwrap();
    mode("open", 0o777);
    let library = user.at("plugins/fl-mine-1.0/fl_mine/plugin.so");
    fs::remove_file(&library).unwrap();
    symlink(user.at("open/plugin.so"), &library).unwrap();
    user.refuses(3, &["check", &spec], "so any user could replace it");
    // metadata that is a link is not read
    let points = user.at("plugins/fl-mine-1.0/fl_mine-1.0.dist-info/entry_points.txt");
    fs::rename(&points, user.at("points")).unwrap();
    symlink(user.at("points"), &points).unwrap();
    user.refuses(
        3,
        &["check", &spec],
        "entry_points.txt: it is no regular file",
    );
}
