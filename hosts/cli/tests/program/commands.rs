//! The command line: exit codes, what goes to stdout and what to stderr, and every command once.

use crate::common::{fails, fl, flat, json, out, quick, root};
use crate::library;
use std::fs;

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn wrong_usage_and_wrong_specs_exit_with_2_and_run_nothing() {
    let d = dir();
    assert_eq!(fails(d.path(), &["walk"]).0, 2);
    assert_eq!(fails(d.path(), &["run"]).0, 2);
    assert_eq!(fails(d.path(), &["run", "nowhere.yaml"]).0, 2);
    fs::write(d.path().join("bad.yaml"), "name: bad\nprotocol: {use: fedavg, rounds: 0}\ndata: {set: blobs}\nparts: {model: {use: linnear}}\n").unwrap();
    for command in ["run", "check", "plan"] {
        let (code, error) = fails(d.path(), &[command, "bad.yaml"]);
        assert_eq!(code, 2, "{error}");
        assert!(
            error.contains("bad.yaml:2:")
                && error.contains("bad.yaml:4:")
                && error.contains("did you mean `linear`?"),
            "{error}"
        );
    }
    assert!(!d.path().join("runs").exists(), "nothing was run");
}

#[test]
fn a_set_that_is_not_there_says_where_it_was_looked_for() {
    let d = dir();
    let spec =
        "name: m\ndata: {set: mnist}\nprotocol: {use: solo}\nparts: {model: {use: linear}}\n";
    fs::write(d.path().join("m.yaml"), spec).unwrap();
    let (code, error) = fails(d.path(), &["run", "m.yaml", "--data-dir", "here"]);
    assert_eq!(code, 1);
    assert!(
        error.contains("train-images-idx3-ubyte") && error.contains("here"),
        "{error}"
    );
}

#[test]
fn lists_and_descriptions_name_every_linked_part() {
    let d = dir();
    let list = json(d.path(), &["list", "--json"]);
    let names: Vec<&str> = list["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    for name in [
        "mean",
        "median",
        "trimmed-mean",
        "class-weighted",
        "quantise",
        "laplace-logits",
        "uniform",
        "fedavg",
        "one-shot-distill",
        "solo",
        "centralised",
        "linear",
        "dfdx",
        "basic",
    ] {
        assert!(
            names.contains(&name),
            "`{name}` is not linked: does plugins/bundle/src/lib.rs `use` its crate? there are {names:?}"
        );
        let text = out(d.path(), &["inspect", name]);
        assert!(text.contains(name) && text.lines().count() > 2, "{text}");
    }
    assert!(out(d.path(), &["list", "aggregator"]).contains("trimmed-mean"));
    assert!(!out(d.path(), &["list", "aggregator"]).contains("laplace-logits"));
    assert_eq!(fails(d.path(), &["inspect", "meen"]).0, 2);
    assert!(
        fails(d.path(), &["inspect", "meen"])
            .1
            .contains("did you mean `mean`?")
    );
}

#[test]
fn a_method_is_found_as_papers_write_it() {
    let d = tempfile::tempdir().unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (_, list) = readme.split_once("their papers' numbers**:").unwrap();
    let (list, _) = list.split_once(';').unwrap();
    let list = list.split_whitespace().collect::<Vec<_>>().join(" ");
    let names = list
        .split(", ")
        .map(|name| name.split(" (").next().unwrap());
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let text = out(d.path(), &["inspect", name]);
        let head = text
            .split_whitespace()
            .next()
            .unwrap()
            .replace(['-', ':'], "");
        assert_eq!(head, name.to_lowercase().replace('-', ""));
    }
    // check says the name that specs have
    let spec = fs::read_to_string(quick("fedavg")).unwrap();
    for (name, due) in [("FedPer", "fedper"), ("LGFedAvg", "lg-fedavg")] {
        let spec = spec.replace("use: fedavg", &format!("use: {name}"));
        fs::write(d.path().join("near.yaml"), spec).unwrap();
        let (_, error) = fails(d.path(), &["check", "near.yaml"]);
        let hint = format!("did you mean `{due}`?");
        assert!(error.contains(&hint), "{error}");
    }
}

#[test]
fn every_plugin_crate_is_in_the_bundle() {
    let bundle = fs::read_to_string(root().join("plugins/bundle/src/lib.rs")).unwrap();
    for entry in fs::read_dir(root().join("plugins")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else {
            continue;
        };
        let name = manifest
            .lines()
            .find_map(|l| l.strip_prefix("name = \""))
            .unwrap()
            .trim_end_matches('"')
            .replace('-', "_");
        assert!(
            // a crate of routines has no part, and what is there to be loaded is not linked
            !name.starts_with("fl_plugin_")
                || manifest.contains("cdylib")
                || bundle.contains(&format!("use {name} as _;")),
            "plugins/bundle/src/lib.rs lacks `use {name} as _;`"
        );
    }
}

#[test]
fn a_plugin_stands_on_no_host() {
    let all = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let hosts = all.lines().filter(|line| line.contains("path = \"hosts/"));
    let hosts: Vec<&str> = hosts.map(|line| line.split(' ').next().unwrap()).collect();
    assert!(hosts.contains(&"fl-data"), "{hosts:?}");
    for entry in fs::read_dir(root().join("plugins")).unwrap() {
        let path = entry.unwrap().path();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap_or_default();
        // its tests may: they read specs as users do
        let own = manifest.split("[dev-dependencies]").next().unwrap();
        for host in &hosts {
            let named = own
                .lines()
                .any(|line| line.starts_with(&format!("{host}.")));
            assert!(!named, "{} depends on {host}", path.display());
        }
    }
}

#[test]
fn exact_try_answers_for_one_part() {
    let d = dir();
    fs::write(d.path().join("in.json"), r#"{"messages": [{"from": 0, "weight": 1, "tensors": {"w": [1, 2]}}, {"from": 1, "weight": 3, "tensors": {"w": [3, 0.4]}}]}"#).unwrap();
    assert_eq!(
        out(
            d.path(),
            &["try", "aggregator", "mean", "--input", "in.json"]
        ),
        "{\"kind\":\"params\",\"tensors\":{\"w\":[2.5,0.8]}}\n"
    );
    assert_eq!(
        out(
            d.path(),
            &["try", "aggregator", "median", "--input", "in.json"]
        ),
        "{\"kind\":\"params\",\"note\":\"with 2 answers it withstands no bad client, as little as a mean does: it takes 3\",\"tensors\":{\"w\":[2,1.2]}}\n"
    );
    fs::write(d.path().join("z.json"), r#"{"messages": [{"from": 0, "class_counts": [3, 0], "tensors": {"rows": [5], "values": [[4, 4]]}}, {"from": 1, "class_counts": [1, 2], "tensors": {"rows": [5], "values": [[0, 8]]}}]}"#).unwrap();
    assert_eq!(
        out(
            d.path(),
            &["try", "aggregator", "class-weighted", "--input", "z.json"]
        ),
        "{\"kind\":\"logits\",\"tensors\":{\"rows\":[5],\"values\":[[3,8]]}}\n"
    );
    fs::write(
        d.path().join("bad.json"),
        r#"{"messages": [{"from": 0, "tensors": {"w": ["nan"]}}]}"#,
    )
    .unwrap();
    let (code, error) = fails(
        d.path(),
        &["try", "aggregator", "mean", "--input", "bad.json"],
    );
    assert!(
        code == 2 && error.contains("client 0") && error.contains("NaN"),
        "{error}"
    );
    let (code, error) = fails(
        d.path(),
        &[
            "try",
            "aggregator",
            "trimmed-mean",
            "--settings",
            "{trim: 0.7}",
            "--input",
            "in.json",
        ],
    );
    assert!(
        code == 2 && error.contains("trim: must be in 0.0..0.5, got 0.7"),
        "{error}"
    );
}

#[test]
fn results_go_to_stdout_and_progress_to_stderr() {
    let (d, spec) = (
        dir(),
        root().join("specs/quick/fedavg.yaml").display().to_string(),
    );
    let o = fl(d.path(), &["run", &spec]);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&o.stdout),
        String::from_utf8_lossy(&o.stderr),
    );
    assert!(
        stdout.contains("accuracy") && stdout.contains("digest"),
        "{stdout}"
    );
    assert!(
        !stderr.contains('\u{1b}') && !stdout.contains('\u{1b}'),
        "no colours without a terminal: {stderr}"
    );
    let result = json(d.path(), &["run", &spec, "--json"]);
    for key in [
        "name", "seed", "protocol", "rounds", "metrics", "bytes", "privacy", "digest", "seconds",
        "out",
    ] {
        assert!(result.get(key).is_some(), "no `{key}` in {result}");
    }
    assert!(
        result["metrics"]["accuracy"].as_f64().unwrap() > 0.6,
        "{result}"
    );
}

#[test]
fn data_list_says_what_is_there() {
    let d = dir();
    let sets = json(d.path(), &["data", "list", "--json", "--data-dir", "."]);
    let of = |name: &str| {
        sets["sets"]
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["name"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(of("mnist")["present"], false);
    assert_eq!(of("blobs")["present"], true);
    assert!(out(d.path(), &["data", "list", "--data-dir", "."]).contains("looked for"));
}

/// A spec that says `plugins`, and has an aggregator with these settings.
fn spec(plugins: &str, aggregator: &str) -> String {
    format!(
        "name: p\nplugins: {plugins}\ndata: {{set: blobs, clients: 3}}\nprotocol: {{use: fedavg, rounds: 1}}\n\
         parts: {{model: {{use: linear}}, aggregator: {{use: {aggregator}}}}}\n"
    )
}

#[test]
fn a_plugin_that_is_refused_exits_with_3_and_nothing_is_run() {
    let d = dir();
    fs::create_dir(d.path().join("specs")).unwrap();
    fs::create_dir(d.path().join("folder.so")).unwrap();
    fs::write(d.path().join("text.so"), "hello").unwrap();
    fs::write(d.path().join("empty.so"), "").unwrap();
    fs::write(d.path().join("fine.yaml"), spec("[]", "mean")).unwrap();
    fs::write(d.path().join("in.json"), "{}").unwrap();
    let commands: [&[&str]; 8] = [
        &["list"],
        &["inspect", "mean"],
        &["schema"],
        &["check", "fine.yaml"],
        &["plan", "fine.yaml"],
        &["run", "fine.yaml"],
        &["try", "aggregator", "mean", "--input", "in.json"],
        &["new", "aggregator", "mine"],
    ];
    for command in commands {
        let (code, error) = fails(d.path(), &[command, &["--plugin", "nowhere.so"]].concat());
        assert!(
            code == 3 && error.contains("plugin nowhere.so: "),
            "{command:?}: {code}, {error}"
        );
    }
    for (file, says) in [
        ("folder.so", "it is a directory"),
        #[cfg(target_os = "linux")]
        ("text.so", "it begins with \"hello\""),
        #[cfg(target_os = "linux")]
        ("empty.so", "it is empty"),
    ] {
        let (code, error) = fails(d.path(), &["run", "fine.yaml", "--plugin", file]);
        assert!(code == 3 && error.contains(says), "{file}: {code}, {error}");
        // a path in a spec is relative to the spec, wherever the program is called
        let named = spec(&format!("[{{path: ../{file}}}]"), "mean");
        fs::write(d.path().join("specs/named.yaml"), named).unwrap();
        for command in ["check", "plan", "run"] {
            let (code, error) = fails(d.path(), &[command, "specs/named.yaml"]);
            assert!(
                code == 3 && error.contains(says),
                "{command} {file}: {code}, {error}"
            );
        }
    }
    let library = library::beside("fl_plugin_example_dynamic");
    let hash = "0".repeat(64);
    let pinned = format!(
        "[{{path: {:?}, sha256: {hash}}}]",
        library.display().to_string()
    );
    fs::write(d.path().join("pinned.yaml"), spec(&pinned, "momentum-mean")).unwrap();
    let (code, error) = fails(d.path(), &["run", "pinned.yaml"]);
    assert!(
        code == 3 && error.contains("its sha256 is ") && error.contains(&hash),
        "{error}"
    );
    // a hash that cannot be read is a mistake of the spec, and nothing is loaded without one
    let unread = pinned.replace(&hash, "12");
    fs::write(d.path().join("unread.yaml"), spec(&unread, "momentum-mean")).unwrap();
    let (code, error) = fails(d.path(), &["run", "unread.yaml"]);
    assert!(
        code == 2 && error.contains("plugins[0].sha256: must be text"),
        "{error}"
    );
    // which parts it has is not known, so none is missed
    assert!(!error.contains("momentum-mean"), "{error}");
    assert!(!d.path().join("runs").exists() && !d.path().join("mine").exists());
}

#[test]
fn loaded_parts_appear_as_linked_ones_do() {
    let d = dir();
    let library = library::beside("fl_plugin_example_dynamic")
        .display()
        .to_string();
    let with = |args: &[&'static str]| -> Vec<&str> { [args, &["--plugin", &library]].concat() };
    let list = json(d.path(), &with(&["list", "--json"]));
    let parts = list["parts"].as_array().unwrap();
    let found = parts.iter().find(|p| p["name"] == "momentum-mean").unwrap();
    assert_eq!(found["origin"], library);
    assert_eq!(found["signature"], "params -> params");
    let text = flat(&out(d.path(), &with(&["inspect", "momentum-mean"])));
    for word in [
        "momentum-mean",
        "beta",
        "0.9",
        "0.0..1.0",
        "Hsu et al. 2019",
        &library,
    ] {
        assert!(text.contains(word), "no `{word}` in {text}");
    }
    let schema = out(d.path(), &with(&["schema"]));
    assert!(schema.contains("aggregator.momentum-mean"));
    // what is wrong with a loaded part's settings is found where it stands
    let wrong = spec("[]", "momentum-mean, beta: 1.5, bata: 1");
    fs::write(d.path().join("wrong.yaml"), wrong).unwrap();
    let (code, error) = fails(d.path(), &with(&["check", "wrong.yaml"]));
    assert!(
        code == 2
            && error.contains("wrong.yaml:5:")
            && error.contains("beta: must be in 0.0..1.0, got 1.5")
            && error.contains("did you mean `beta`?"),
        "{error}"
    );
    fs::write(d.path().join("fine.yaml"), spec("[]", "momentum-mean")).unwrap();
    assert!(out(d.path(), &with(&["check", "fine.yaml"])).contains("fine"));
    assert_eq!(fails(d.path(), &["check", "fine.yaml"]).0, 2);
    // a part that fails in the middle of a run ends the run, not the program
    let library = library::beside("fl_hostile").display().to_string();
    fs::write(
        d.path().join("panics.yaml"),
        spec("[]", "panics, place: aggregate"),
    )
    .unwrap();
    let (code, error) = fails(d.path(), &["run", "panics.yaml", "--plugin", &library]);
    assert!(
        code == 1 && error.contains("it panicked: in aggregate"),
        "{code}: {error}"
    );
}

/// No figure is a promise, so that nothing is asserted of one but that it is there.
#[test]
fn bench_measures_this_machine() {
    let d = dir();
    let measured = json(d.path(), &["bench", "--quick", "--json"]);
    let rows = measured["rows"].as_array().unwrap();
    assert!(measured["threads"].as_u64().unwrap() > 0 && rows.len() > 20);
    for row in rows {
        // all of it is linked here; other systems have no processes for libraries
        let millis = row["milliseconds"].as_f64();
        let linux = cfg!(target_os = "linux");
        assert!(millis.is_some_and(|m| m > 0.0) || !linux, "{row}");
        assert!(row["page"].is_null(), "the sizes are others: {row}");
    }
    let table = out(d.path(), &["bench", "--quick", "--dir", "."]);
    assert!(table.contains("mean of 1 x 10, in a process of its own"));
    assert_eq!(fs::read_dir(d.path()).unwrap().count(), 0, "nothing stays");
    let (code, error) = fails(d.path(), &["bench", "--quick", "--dir", "nowhere"]);
    assert!(code == 1 && error.contains("nowhere"), "{error}");
}

/// Tables take the width of the window; only a word that does not fit is longer than a line.
#[test]
fn tables_have_the_width_of_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let spec = root().join("specs/quick/fedavg.yaml").display().to_string();
    let commands = [
        &["list"][..],
        &["data", "list", "--data-dir", "."],
        &["inspect", "fedavg"],
        &["plan", &spec],
    ];
    for args in commands {
        let widest = |columns: &str| {
            let mut fl = std::process::Command::new(env!("CARGO_BIN_EXE_fl"));
            let done = fl
                .args(args)
                .current_dir(dir.path())
                .env("COLUMNS", columns);
            let text = String::from_utf8(done.output().unwrap().stdout).unwrap();
            text.lines().map(|line| line.chars().count()).max().unwrap()
        };
        let [narrow, usual, wide] = ["80", "100", "160"].map(widest);
        assert!(
            narrow <= 80 && usual <= 100 && wide <= 160,
            "{args:?}: {narrow} {usual} {wide}"
        );
        assert!(wide >= usual, "{args:?}: {usual} {wide}");
        assert!(
            args[0] == "plan" || wide > 120,
            "{args:?} leaves {wide} of 160 columns"
        );
    }
}
