//! Installed packages: found, pinned, run and resumed; and what another file or user may try.

use crate::{common, library};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A user with an environment of Python.
struct User {
    home: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("env/lib/python3.11/site-packages")).unwrap();
        Self { home }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn site(&self, name: &str) -> PathBuf {
        self.at("env/lib/python3.11/site-packages").join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut fl = crate::common::program();
        fl.args(args).current_dir(self.home.path());
        fl.env("VIRTUAL_ENV", self.at("env"));
        fl.env_remove("PYTHONPATH").env_remove("FL_PLUGINS_TRUST");
        fl
    }

    fn out(&self, args: &[&str]) -> String {
        let out = self.command(args).output().unwrap();
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{args:?}: {error}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// The error of a command that must fail with this exit code and say this.
    fn refuses(&self, code: i32, args: &[&str], says: &str) {
        refused(&self.command(args).output().unwrap(), code, says);
    }

    /// Installs `fl-mine` as pip does, as far as fl reads it.
    fn install(&self, version: &str, plugin: &str, file: &str, bytes: &[u8]) {
        let info = self.site(&format!("fl_mine-{version}.dist-info"));
        fs::create_dir_all(&info).unwrap();
        let metadata = format!("Metadata-Version: 2.1\nName: fl-mine\nVersion: {version}\n");
        fs::write(info.join("METADATA"), metadata).unwrap();
        let points = format!("[fl.plugins]\nplugin = {plugin}\n");
        fs::write(info.join("entry_points.txt"), points).unwrap();
        let file = self.site(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }

    fn install_library(&self, version: &str, bytes: &[u8]) {
        self.install(version, "fl_mine:plugin.so", "fl_mine/plugin.so", bytes);
    }

    fn remove(&self, version: &str) {
        fs::remove_dir_all(self.site(&format!("fl_mine-{version}.dist-info"))).unwrap();
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

fn refused(out: &Output, code: i32, says: &str) {
    let text = [&out.stdout, &out.stderr].map(|o| String::from_utf8_lossy(o).into_owned());
    assert_eq!(out.status.code(), Some(code), "{text:?}");
    let error = common::flat(&text.concat());
    assert!(error.contains(says), "{error}\nwanted: {says}");
}

/// The example in C, compiled; `None` without a compiler.
fn c_mean(user: &User) -> Option<Vec<u8>> {
    if !library::cc() {
        return None;
    }
    let out = user.at("c_mean.so");
    let source = common::root().join("plugins/example-c/c_mean.c");
    library::compile(&source, &out, &[]);
    Some(fs::read(out).unwrap())
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn exact_a_package_is_found_pinned_and_resumed() {
    let user = User::new();
    let Some(bytes) = c_mean(&user) else { return };
    let spec = user.spec("{ package: fl-mine, version: '0.1' }", "c-mean");
    user.refuses(
        3,
        &["run", &spec],
        "`pip install 'fl-mine==0.1.*'` in the active environment",
    );
    user.install_library("0.1.0", &bytes);
    let listed = user.out(&["plugin", "list"]);
    assert!(
        listed.contains("fl-mine 0.1.0") && listed.contains("library fl_mine/plugin.so"),
        "{listed}"
    );
    let listed: Value = serde_json::from_str(&user.out(&["plugin", "list", "--json"])).unwrap();
    let sha256 = listed["plugins"][0]["sha256"].as_str().unwrap().to_string();

    // the bits are those of the library that is named by its path
    let digest = |args: &[&str]| -> Value {
        let text = user.out(&[args, &["--json"]].concat());
        serde_json::from_str::<Value>(&text).unwrap()["digest"].clone()
    };
    user.refuses(3, &["run", &spec, "--locked"], "does not pin it");
    assert!(user.out(&["lock", &spec]).contains("1 plugin pinned"));
    let lock = fs::read_to_string(user.at("fl.lock")).unwrap();
    for text in [
        "package: fl-mine",
        "version: 0.1.0",
        "interface: 1",
        &sha256,
    ] {
        assert!(lock.contains(text), "{lock}");
    }
    let locked = digest(&["run", &spec, "--locked", "--out", "one"]);
    let quick = common::quick("fedavg");
    let by_path = [
        "run",
        &quick,
        "--set",
        "parts.aggregator.use=c-mean",
        "--plugin",
        "c_mean.so",
        "--out",
        "two",
    ];
    assert_eq!(locked, digest(&by_path));
    let run = read_json(&user.at("one/run.json"));
    let name = run["libraries"][0]["path"].as_str().unwrap();
    assert!(name.starts_with("fl-mine 0.1.0: "), "{name}");
    let page = fs::read_to_string(user.at("one/report.html")).unwrap();
    assert!(page.contains("fl-mine 0.1.0"));
    // the run folder names the package, and goes on from wherever it is
    let kept = fs::read_to_string(user.at("one/spec.yaml")).unwrap();
    assert!(
        kept.contains("package: fl-mine") && !kept.contains("plugin.so"),
        "{kept}"
    );
    user.out(&["run", &spec, "--out", "three", "--stop-after", "2"]);
    let site = user.site("");
    fs::rename(&site, user.at("elsewhere")).unwrap();
    let resume = |path: &Path| {
        let mut fl = user.command(&["run", "--resume", "three", "--json"]);
        fl.env("PYTHONPATH", path).output().unwrap()
    };
    let changed = user.at("changed");
    fs::rename(user.at("elsewhere"), &changed).unwrap();
    fs::write(
        changed.join("fl_mine/plugin.so"),
        [&bytes[..], b"\n"].concat(),
    )
    .unwrap();
    refused(&resume(&changed), 3, "and the pinned one is");
    fs::write(changed.join("fl_mine/plugin.so"), &bytes).unwrap();
    let resumed = resume(&changed);
    let resumed: Value = serde_json::from_slice(&resumed.stdout).unwrap();
    assert_eq!(locked, resumed["digest"]);
}

#[test]
fn a_version_stays_what_it_was_and_does_not_go_back() {
    let user = User::new();
    let Some(bytes) = c_mean(&user) else { return };
    user.install_library("1.1", &bytes);
    let spec = user.spec("{ package: fl-mine }", "c-mean");
    user.out(&["lock", &spec]);
    let lock = fs::read(user.at("fl.lock")).unwrap();
    // the same version with other bytes
    user.install_library("1.1", &[&bytes[..], b"\n"].concat());
    user.refuses(3, &["run", &spec, "--locked"], "its sha256 is");
    user.refuses(3, &["lock", &spec], "version 1.1 is pinned");
    // an older version is chosen only by removing the pin
    user.remove("1.1");
    user.install_library("1.0", &bytes);
    let older = "version 1.1 is wanted, and 1.0 is installed; install it, as by `pip install 'fl-mine==1.1.*'`";
    user.refuses(3, &["run", &spec, "--locked"], older);
    user.refuses(3, &["lock", &spec], "would be older");
    assert_eq!(
        fs::read(user.at("fl.lock")).unwrap(),
        lock,
        "it was changed"
    );
    // a newer one is pinned by `fl lock` only
    user.remove("1.0");
    user.install_library("1.2", &bytes);
    user.refuses(3, &["run", &spec, "--locked"], "version 1.1 is wanted");
    user.out(&["lock", &spec]);
    user.out(&["run", &spec, "--locked", "--out", "run"]);
    // a spec that wants another version than the lock pins
    let other = user.spec("{ package: fl-mine, version: '1.3' }", "c-mean");
    user.refuses(
        3,
        &["run", &other, "--locked"],
        "the spec wants version 1.3, and",
    );
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
    let locked = ["run", &spec, "--locked", "--plugin", &library];
    user.refuses(3, &locked, "--locked loads the plugins that the spec names");
}

#[test]
fn a_name_is_of_one_package() {
    let user = User::new();
    user.install("9.0", "fl_mine", "fl_mine.py", b"x = 1\n");
    let check = |plugin: &str, code, says: &str| {
        let spec = user.spec(plugin, "mean");
        user.refuses(code, &["check", &spec], says);
    };
    check(
        "{ package: fl-mime }",
        3,
        "it is not installed; did you mean `fl-mine`?",
    );
    check("{ package: fl-mine }", 3, "this program has no Python");
    check("{ package: ../mine }", 2, "cannot be called");
    check("{ package: fl-mine, path: a.so }", 2, "must have no `path`");
    check(
        "{ path: a.so, version: '1' }",
        2,
        "`version` is that of a `package`",
    );
    check(
        "{ package: fl-mine, version: '>=1' }",
        2,
        "`version` must be one such as",
    );
    user.install("8.0", "fl_mine", "fl_mine.py", b"x = 1\n");
    check(
        "{ package: fl-mine }",
        3,
        "has 2 packages called `fl-mine`; remove all but one",
    );
    user.remove("8.0");
    // what is broken is named
    let metadata = "Metadata-Version: 2.1\nName: fl-yours\nVersion: 9.0\n";
    fs::write(user.site("fl_mine-9.0.dist-info/METADATA"), metadata).unwrap();
    let list = user.command(&["plugin", "list"]).output().unwrap();
    refused(&list, 0, "its METADATA says that it is `fl-yours`");
    check(
        "{ package: fl-mine }",
        3,
        "its METADATA says that it is `fl-yours`",
    );
}

#[cfg(unix)]
#[test]
fn what_other_users_may_write_is_not_used() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let user = User::new();
    let Some(bytes) = c_mean(&user) else { return };
    user.install_library("1.0", &bytes);
    let spec = user.spec("{ package: fl-mine }", "c-mean");
    let mode = |path: PathBuf, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    user.out(&["check", &spec]);
    user.out(&["lock", &spec]);
    mode(user.site(""), 0o777);
    user.refuses(3, &["check", &spec], "every user may write to its folder");
    // with the pinned bytes it does not matter who could have written them
    user.out(&["run", &spec, "--locked", "--out", "run"]);
    mode(user.site(""), 0o755);
    // a link in place of the library leads to another folder, which counts too
    fs::create_dir(user.at("open")).unwrap();
    fs::write(user.at("open/plugin.so"), &bytes).unwrap();
    mode(user.at("open"), 0o777);
    let library = user.site("fl_mine/plugin.so");
    fs::remove_file(&library).unwrap();
    symlink(user.at("open/plugin.so"), &library).unwrap();
    user.refuses(3, &["check", &spec], "and could replace it");
    // metadata that is a link is not read
    let points = user.site("fl_mine-1.0.dist-info/entry_points.txt");
    fs::rename(&points, user.at("points")).unwrap();
    symlink(user.at("points"), &points).unwrap();
    user.refuses(
        3,
        &["check", &spec],
        "entry_points.txt: it is no regular file",
    );
}

/// A guard that a user asks for and fl does not have is never passed over.
#[test]
fn levels_of_trust_are_refused_before_anything_is_loaded() {
    let user = User::new();
    let says = "fl has no index of plugins and no levels of trust; leave this out, and pin each plugin by `sha256`";
    let none = user.spec("{ package: fl-mine }", "mean");
    let set = ["check", &none, "--set", "plugins-trust=published"];
    user.refuses(2, &set, &format!("plugins-trust: {says}"));
    let spec = common::quick("fedavg");
    user.refuses(2, &["check", &spec, "--plugins-trust", "any"], says);
    let env = user
        .command(&["check", &spec])
        .env("FL_PLUGINS_TRUST", "reviewed")
        .output();
    refused(&env.unwrap(), 2, &format!("FL_PLUGINS_TRUST: {says}"));
    user.refuses(
        2,
        &["plugin", "add", "fl-mine"],
        "`pip install` installs a package",
    );
}
