//! Run folders: several runs at once, what a run was begun with, and going on after whatever
//! happened.
use crate::common::{fails, json, out, quick as spec, start, user_dir};
use crate::library;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Everything in a folder, by name.
fn content(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(content(&path))
        } else {
            all.push((path.display().to_string(), fs::read(path).unwrap()))
        }
    }
    all.sort();
    all
}

/// Each file of a run folder, in the place of a link to a device, of a pipe, and of a file that
/// says it has a terabyte: commands say what is wrong, wait for nothing, and stay small.
#[cfg(target_os = "linux")]
#[test]
fn no_file_of_a_folder_makes_a_command_wait_or_take_memory_without_bound() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    out(
        dir,
        &[
            "run",
            &spec("fedavg"),
            "--out",
            "good",
            "--set",
            "keep=messages",
        ],
    );
    out(
        dir,
        &["run", &spec("fedavg"), "--out", "open", "--stop-after", "2"],
    );
    let commands = [
        "verify t",
        "report t --out page.html",
        "compare good t",
        "export t --csv x.csv --safetensors models",
        "attack membership t",
        // it may change the folder, so it comes last
        "run --resume t",
    ];
    let mut refused = 0;
    for (from, name) in [
        ("good", "receipts.jsonl"),
        ("good", "journal.jsonl"),
        ("good", "metrics.jsonl"),
        ("good", "costs.jsonl"),
        ("good", "run.json"),
        ("good", "outcome.json"),
        ("good", "report.md"),
        ("good", "report.html"),
        ("good", "spec.yaml"),
        ("good", "models/model"),
        ("good", "messages/000002"),
        ("good", "state"),
        ("good", "pictures/a.png"),
        ("open", "state"),
        ("open", "receipts.jsonl"),
        ("open", "lock"),
        ("open", "answers"),
        ("open", "models/model"),
        ("open", "watch.html"),
    ] {
        for what in ["zero", "pipe", "hole"] {
            let path = dir.join("t").join(name);
            let place = format!(
                "rm -rf t && cp -r {from} t && mkdir -p {0} && rm -f {1}",
                path.parent().unwrap().display(),
                path.display()
            );
            let make = match what {
                "zero" => format!("ln -s /dev/zero {}", path.display()),
                "pipe" => format!("mkfifo {}", path.display()),
                _ => format!("truncate -s 1T {}", path.display()),
            };
            let bash = |text: &str| {
                let mut bash = Command::new("bash");
                bash.args(["-c", text]).current_dir(dir);
                bash.env("XDG_DATA_HOME", user_dir()).output().unwrap()
            };
            let placed = bash(&format!("{place} && {make}"));
            assert!(placed.status.success(), "{placed:?}");
            let all = ["spec.yaml", "run.json", "models/model"].contains(&name);
            for command in commands {
                if command.starts_with("attack") && !all {
                    continue;
                }
                let done = bash(&format!(
                    "ulimit -v 4000000 && exec timeout -s KILL 60 {} {command}",
                    env!("CARGO_BIN_EXE_fl")
                ));
                let said = String::from_utf8_lossy(&done.stderr);
                let code = done.status.code();
                assert!(
                    matches!(code, Some(0..=2)),
                    "{from}/{name}, {what}, {command}: {code:?} {said}"
                );
                // no run makes such a file
                let reads = ["verify", "report", "compare", "export"];
                if what != "hole"
                    && reads.iter().any(|read| command.starts_with(read))
                    && from == "good"
                {
                    // nothing covers these: they are named
                    let named =
                        command.starts_with("verify") && ["report.html", "state"].contains(&name);
                    assert_eq!(
                        code,
                        Some(i32::from(!named)),
                        "{name}, {what}, {command}: {said}"
                    );
                    assert!(
                        named
                            || said.contains("it is no regular file")
                            || said.contains("found no file")
                            || said.contains("found no hash of pictures/a.png"),
                        "{said}"
                    );
                }
                refused += usize::from(code != Some(0));
            }
        }
    }
    assert!(refused > 60, "{refused}");
}

/// A folder that another user made may have links in it. What a run writes or removes there stays
/// there, and a command that reads a folder removes nothing.
#[cfg(unix)]
#[test]
fn nothing_outside_of_a_run_folder_changes_through_a_link_in_it() {
    use std::os::unix::fs::symlink;
    const FOLDERS: [&str; 3] = ["models", "messages", "pictures"];
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let begin = ["run", &spec("fedavg"), "--set", "keep=messages", "--out"];
    out(dir, &[&begin[..], &["open", "--stop-after", "2"]].concat());
    out(dir, &[&begin[..], &["good"]].concat());
    let victim = dir.join("victim");
    let linked = |from: &str, name: &str, alone: bool| {
        for old in ["t", "victim"] {
            fl_files::remove(&dir.join(old)).unwrap();
        }
        fs::create_dir(&victim).unwrap();
        if !alone {
            let mut copy = Command::new("cp");
            copy.args(["-r", from, "t"]).current_dir(dir);
            assert!(copy.status().unwrap().success());
        }
        for mine in ["mine", "000999", ".tmpMine"] {
            fs::write(victim.join(mine), "mine").unwrap();
        }
        let path = dir.join("t").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = victim.join("mine");
        let to = if FOLDERS.contains(&name) {
            &victim
        } else {
            &file
        };
        if path.is_file() {
            fs::copy(&path, &file).unwrap();
        }
        fl_files::remove(&path).unwrap();
        symlink(to, &path).unwrap();
        if alone {
            fs::write(dir.join("t/lock"), "").unwrap();
        }
        content(&victim)
    };
    let names = [
        "journal.jsonl",
        "metrics.jsonl",
        "costs.jsonl",
        "receipts.jsonl",
        "run.json",
        "spec.yaml",
        "answers",
        "models/model",
        "watch.html",
        "report.html",
        "clients-3",
        "elsewhere/leader",
    ];
    for name in [&names[..], &FOLDERS].concat() {
        let before = linked("open", name, false);
        let (code, said) = fails(dir, &["run", "--resume", "t"]);
        let due = format!("t/{name}: it is a link");
        assert!(code == 1 && said.contains(&due), "{name}: {said}");
        assert_eq!(content(&victim), before, "{name}");
        let before = linked("open", name, true);
        let (code, said) = fails(dir, &["run", &spec("fedavg"), "--out", "t"]);
        let due = match name {
            "spec.yaml" => "t/spec.yaml: it is a link",
            _ => "is not empty",
        };
        assert!(code == 1 && said.contains(due), "{name}: {said}");
        assert_eq!(content(&victim), before, "{name}");
    }
    for name in [&FOLDERS[..], &["report.html"]].concat() {
        let before = linked("good", name, false);
        for command in [&["report", "t"][..], &["run", "--resume", "t"]] {
            crate::common::fl(dir, command);
            assert_eq!(content(&victim), before, "{name}, {command:?}");
        }
    }
    assert!(!dir.join("t/report.html").is_symlink());
    // the user's own link to a folder is followed
    fs::create_dir(dir.join("real")).unwrap();
    symlink(dir.join("real"), dir.join("own")).unwrap();
    out(dir, &["run", &spec("fedavg"), "--out", "own"]);
    assert!(dir.join("real/outcome.json").is_file());
}

/// Files that a user names: each is a pipe here, without a writer or a reader.
#[cfg(unix)]
#[test]
fn a_file_that_a_user_names_and_that_is_a_pipe_is_refused() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    fs::copy(spec("fedavg"), dir.join("s.yaml")).unwrap();
    let study = "name: s\nresults: p.jsonl\ndefaults: {seeds: 1-2, measure: accuracy}\n";
    let study = format!("{study}tables: [{{name: t, base: s.yaml, rows: [{{name: a}}]}}]\n");
    fs::write(dir.join("study.yaml"), study).unwrap();
    for (pipe, command) in [
        ("fl.lock", "run s.yaml --locked --out r"),
        ("p.yaml", "study p.yaml"),
        ("p.jsonl", "study study.yaml --dry-run"),
        ("p.log", "run s.yaml --out r --log p.log"),
    ] {
        let mut make = Command::new("mkfifo");
        assert!(make.arg(dir.join(pipe)).status().unwrap().success());
        let mut timeout = Command::new("timeout");
        let program = env!("CARGO_BIN_EXE_fl");
        timeout.args(["-s", "KILL", "60", program]).current_dir(dir);
        timeout.env("XDG_DATA_HOME", user_dir());
        let done = timeout.args(command.split(' ')).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        let refused = matches!(done.status.code(), Some(1 | 2));
        assert!(
            refused && said.contains("it is no regular file"),
            "{command}: {:?} {said}",
            done.status
        );
        fs::remove_file(dir.join(pipe)).unwrap();
    }
}

#[test]
fn runs_that_begin_together_get_folders_of_their_own() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let begun: Vec<(String, Child)> = (1..=12)
        .map(|seed| {
            let seed = format!("seed={seed}");
            let args = ["run", &spec, "--json", "--threads", "1", "--set", &seed];
            let child = start(dir.path(), &args);
            (seed, child)
        })
        .collect();
    let mut folders = Vec::new();
    for (seed, child) in begun {
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let outcome: Value = serde_json::from_slice(&done.stdout).unwrap();
        let folder = outcome["out"].as_str().unwrap().to_string();
        let alone = format!("alone-{}", outcome["seed"]);
        let args = ["run", &spec, "--set", &seed, "--out", &alone];
        out(dir.path(), &args);
        for file in ["spec.yaml", "journal.jsonl", "metrics.jsonl", "costs.jsonl"] {
            let of = |folder: &str| fs::read_to_string(dir.path().join(folder).join(file)).unwrap();
            assert_eq!(of(&folder), of(&alone), "{folder}/{file}, {seed}");
        }
        folders.push(folder);
    }
    folders.sort();
    folders.dedup();
    assert_eq!(folders.len(), 12, "{folders:?}");
}

#[test]
fn a_run_is_one_process_s_until_it_ends_however_it_ends() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let long = ["--set", "protocol.rounds=1000000", "--stop-after", "1"];
    out(
        dir.path(),
        &[&["run", &spec, "--out", "r"], &long[..]].concat(),
    );
    let mut first = start(dir.path(), &["run", "--resume", "r"]);
    let manifest = dir.path().join("r/run.json");
    while read(&manifest)["resumed"].as_array().unwrap().is_empty() {
        assert_eq!(first.try_wait().unwrap(), None, "it is to run for long");
        std::thread::yield_now();
    }
    let (code, error) = fails(dir.path(), &["run", "--resume", "r"]);
    let holder = format!("the run in r is in use by process {}", first.id());
    assert!(code == 1 && error.contains(&holder), "{code}: {error}");
    // as a crash would end it
    first.kill().unwrap();
    first.wait().unwrap();
    out(dir.path(), &["run", "--resume", "r", "--stop-after", "2"]);
}

#[test]
fn a_stop_that_cannot_be_is_refused() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    for wrong in ["0", "-1", "many"] {
        let stop = format!("--stop-after={wrong}");
        let (code, error) = fails(dir.path(), &["run", &spec, "--out", "r", &stop]);
        assert!(
            code == 2 && error.contains("must be a whole number, at least 1"),
            "{code}: {error}"
        );
    }
    assert!(!dir.path().join("r").exists());
    out(
        dir.path(),
        &["run", &spec, "--out", "r", "--stop-after", "3"],
    );
    for past in ["1", "3"] {
        let args = ["run", "--resume", "r", "--stop-after", past];
        let (code, error) = fails(dir.path(), &args);
        assert!(
            code == 2 && error.contains("the run in r has done 3 steps already"),
            "{code}: {error}"
        );
    }
    let next = json(
        dir.path(),
        &["run", "--resume", "r", "--stop-after", "4", "--json"],
    );
    assert_eq!(next["stopped"], "round 4");
}

#[test]
#[cfg(unix)]
fn who_may_read_a_file_is_what_the_umask_says() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, spec) = (tempfile::tempdir().unwrap(), spec("scaffold"));
    let mut secrets = 0;
    for (umask, mode) in [("022", 0o644), ("027", 0o640)] {
        for more in ["", "--stop-after 2"] {
            let folder = format!("r{umask}{}", more.len());
            let script = format!("umask {umask}; exec \"$0\" run \"$1\" --out {folder} {more}");
            let mut sh = Command::new("sh");
            sh.args(["-c", &script, env!("CARGO_BIN_EXE_fl"), &spec]);
            sh.env("XDG_DATA_HOME", user_dir());
            let done = sh.current_dir(dir.path()).output().unwrap();
            assert!(done.status.success(), "{done:?}");
            let files = content(&dir.path().join(folder));
            assert!(files.len() >= 5, "{files:?}");
            for (file, _) in files {
                let found = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
                // what clients are, and what they answered before any noise, is their owner's alone
                let name = file.rsplit('/').next().unwrap();
                let secret = name == "state" || name == "answers" || name.starts_with("clients-");
                let mode = if secret { 0o600 } else { mode };
                secrets += usize::from(secret);
                assert_eq!(found, mode, "{file} is {found:o} under umask {umask}");
            }
        }
    }
    assert!(secrets >= 6, "states and clients of stopped and kept runs");
}

/// 30 rows of the set `cod-rna`.
fn cod_rna(dir: &Path, first: u8) {
    let folder = dir.join("data/cod-rna");
    fs::create_dir_all(&folder).unwrap();
    for name in ["cod-rna", "cod-rna.t"] {
        let rows = (0..30).map(|i| {
            let label = if i % 2 == 0 { "1" } else { "-1" };
            let values: Vec<String> = (1..=8).map(|k| format!("{k}:{}", (i * k) % 7)).collect();
            format!("{label} {}\n", values.join(" "))
        });
        let text: String = rows.collect();
        let text = text.replacen("1:0", &format!("1:{first}"), 1);
        fs::write(folder.join(name), text).unwrap();
    }
}

#[test]
fn a_run_goes_on_only_with_what_it_was_begun_with() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let library = dir.join("mine.so");
    fs::copy(library::beside("fl_plugin_example_dynamic"), &library).unwrap();
    cod_rna(dir, 0);
    let text = "name: own\nplugins: [{path: mine.so}]\ndata: {set: cod-rna, clients: 3}\n\
        protocol: {use: fedavg, rounds: 3}\nparts: {model: {use: linear}, aggregator: {use: momentum-mean}}\n";
    fs::write(dir.join("own.yaml"), text).unwrap();
    let run = ["run", "own.yaml", "--data-dir", "data"];
    let whole = json(dir, &[&run[..], &["--out", "whole", "--json"]].concat());
    out(
        dir,
        &[&run[..], &["--out", "r", "--stop-after", "1"]].concat(),
    );
    let manifest = read(&dir.join("r/run.json"));
    assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    let command = manifest["command"].as_array().unwrap();
    assert_eq!(command[1..3], ["run", "own.yaml"]);
    let started = manifest["started"].as_str().unwrap();
    assert!(
        started.len() == 20 && started.ends_with('Z'),
        "{started} is no RFC 3339 in UTC"
    );
    let sha = |path: &Path| {
        use sha2::{Digest, Sha256};
        fl_core::hex(&Sha256::digest(fs::read(path).unwrap()))
    };
    assert_eq!(manifest["spec_sha256"], sha(&dir.join("r/spec.yaml")));
    assert_eq!(manifest["libraries"][0]["sha256"], sha(&library));
    assert_eq!(manifest["data"].as_array().unwrap().len(), 2);
    let data = manifest["data"][0].clone();
    assert_eq!(
        data["sha256"],
        sha(&dir.join(data["path"].as_str().unwrap()))
    );

    let resume = ["run", "--resume", "r", "--data-dir", "data"];
    let refused = |code: i32, says: &[&str]| {
        let before = content(&dir.join("r"));
        let (found, error) = fails(dir, &resume);
        assert_eq!(found, code, "{error}");
        for says in says {
            assert!(error.contains(says), "no `{says}` in {error}");
        }
        let unchanged = |(path, _): &(String, Vec<u8>)| !path.ends_with("/lock");
        let after = content(&dir.join("r")).into_iter().filter(unchanged);
        assert!(
            after.eq(before.into_iter().filter(unchanged)),
            "{says:?}: something was changed"
        );
    };
    let good = fs::read(&library).unwrap();
    fs::write(&library, [&good[..], b"x"].concat()).unwrap();
    let begun_with = "the run in r was begun with";
    refused(3, &["mine.so: its sha256 is", &sha(&library), begun_with]);
    fs::write(&library, &good).unwrap();
    cod_rna(dir, 3);
    let other = sha(&dir.join("data/cod-rna/cod-rna"));
    refused(1, &[begun_with, "cod-rna/cod-rna has sha256", &other]);
    cod_rna(dir, 0);
    let path = dir.join("r/run.json");
    let text = fs::read_to_string(&path).unwrap();
    let of = |version: &str| {
        let line = format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"));
        text.replacen(&line, &format!("\"version\": \"{version}\""), 1)
    };
    fs::write(&path, of("0.999.0")).unwrap();
    refused(1, &["was begun by fl 0.999.0, and this is fl "]);
    fs::remove_file(&path).unwrap();
    refused(1, &["the run in r does not record what it began with"]);
    fs::write(&path, text).unwrap();
    let resumed = json(dir, &[&resume[..], &["--json"]].concat());
    assert_eq!(resumed["digest"], whole["digest"]);
    assert_eq!(read(&path)["resumed"].as_array().unwrap().len(), 1);
    assert!(!dir.join("r/lock").exists());
}

#[test]
fn what_is_cut_short_is_refused_and_what_is_too_much_is_taken_back() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let dir = d.path();
    let whole = json(dir, &["run", &spec, "--out", "whole", "--json"]);
    out(dir, &["run", &spec, "--out", "r", "--stop-after", "2"]);
    for file in ["journal.jsonl", "metrics.jsonl", "costs.jsonl"] {
        let path = dir.join("r").join(file);
        let good = fs::read(&path).unwrap();
        for cut in [0, good.len() - 1] {
            fs::write(&path, &good[..cut]).unwrap();
            let before = content(&dir.join("r"));
            let (code, error) = fails(dir, &["run", "--resume", "r"]);
            let says = format!(
                "{file} is cut short: it has {cut} bytes, and had {}",
                good.len()
            );
            assert!(code == 1 && error.contains(&says), "{code}: {error}");
            let names = |all: &[(String, Vec<u8>)]| {
                let kept = all.iter().filter(|(path, _)| !path.ends_with("/lock"));
                kept.cloned().collect::<Vec<_>>()
            };
            assert_eq!(names(&content(&dir.join("r"))), names(&before));
        }
        // lines that were changed are not passed on beside the true digest
        let other = String::from_utf8(good.clone()).unwrap();
        let other = other.replacen("\"step", "\"stop", 1);
        fs::write(&path, other).unwrap();
        let (code, error) = fails(dir, &["run", "--resume", "r"]);
        let says = format!("{file} has changed since the run stopped");
        assert!(code == 1 && error.contains(&says), "{code}: {error}");
        assert!(!error.contains("resume with"), "{error}");
        fs::write(&path, [&good[..], b"{\"half a li"].concat()).unwrap();
    }
    for left in ["r/.tmpAbCdEf", "r/models/.tmpAbCdEf"] {
        fs::write(dir.join(left), "half").unwrap();
    }
    let resumed = json(dir, &["run", "--resume", "r", "--json"]);
    assert_eq!(resumed["digest"], whole["digest"]);
    let left = content(&dir.join("r"));
    assert!(
        // the folder that holds them is itself called so
        left.iter().all(|(path, _)| !path.contains("/.tmpAbCdEf")),
        "a file that a crash left half written"
    );
    for file in ["journal.jsonl", "metrics.jsonl", "costs.jsonl"] {
        let of = |folder: &str| fs::read_to_string(dir.join(folder).join(file)).unwrap();
        assert_eq!(of("r"), of("whole"));
    }
}

/// `fedkd` has a note to say.
#[test]
fn nobody_has_to_look_at_a_run() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedkd"));
    let dir = d.path();
    // the reader leaves before anything is printed
    let mut child = start(dir, &["run", &spec, "--out", "closed"]);
    drop((child.stdout.take(), child.stderr.take()));
    assert!(child.wait().unwrap().success());
    assert!(dir.join("closed/report.md").is_file());
    let stop = ["run", &spec, "--out", "stopped", "--stop-after", "1"];
    let mut child = start(dir, &stop);
    drop((child.stdout.take(), child.stderr.take()));
    assert!(child.wait().unwrap().success());
    if Path::new("/dev/full").exists() {
        // results that cannot be written are no success, for they are what a script reads
        for (full, code) in [
            ("2>/dev/full", 0),
            (">/dev/full", 1),
            (">/dev/full 2>&1", 1),
        ] {
            let folder = format!("full{}", full.len());
            let script = format!("exec \"$0\" run \"$1\" --out {folder} {full}");
            let mut sh = Command::new("sh");
            sh.args(["-c", &script, env!("CARGO_BIN_EXE_fl"), &spec]);
            sh.env("XDG_DATA_HOME", user_dir());
            let done = sh.current_dir(dir).output().unwrap();
            assert_eq!(done.status.code(), Some(code), "{full}: {done:?}");
            assert!(dir.join(folder).join("report.md").is_file(), "{full}");
        }
    }
    // an error stays one, printed or not
    let mut child = start(dir, &["run", "nowhere.yaml"]);
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn a_plan_knows_cohorts_empty_slots_and_the_bytes_of_models() {
    let dir = tempfile::tempdir().unwrap();
    let plan = |spec: &str, more: &[&str]| out(dir.path(), &[&["plan", spec], more].concat());
    let robust = plan(&spec("robust"), &[]);
    assert!(
        robust.contains("4 of 8") && robust.contains("at most 7488 up and 7488 down,"),
        "{robust}"
    );
    let long = plan(&spec("robust"), &["--set", "protocol.rounds=1000"]);
    let due = "at most 1248000 (1.2 MB) up and 1248000 (1.2 MB) down,";
    assert!(long.contains(due), "{long}");
    let text = fs::read_to_string(spec("fedkd")).unwrap();
    let filled = plan(&spec("fedkd"), &[]);
    assert!(
        filled.contains("released through")
            && filled.contains("quantiser, privacy")
            && filled.contains("largest score of the public"),
        "{filled}"
    );
    let slots = ["  quantiser:", "  privacy:", "  accountant:"];
    let kept = |line: &&str| !slots.iter().any(|slot| line.starts_with(slot));
    let empty: Vec<&str> = text.lines().filter(kept).collect();
    fs::write(dir.path().join("empty.yaml"), empty.join("\n")).unwrap();
    let empty = plan("empty.yaml", &[]);
    assert!(
        !empty.contains("released through") && !empty.contains("largest score"),
        "{empty}"
    );
    // linear models are as large as they will be, forests are not
    let linear = plan(&spec("fedkt"), &[]);
    assert!(!linear.contains('?'), "{linear}");
    let trees = plan(&spec("fedkt"), &["--set", "parts.student.use=forest"]);
    assert!(trees.contains("models ?"), "{trees}");
}

/// As a process leaves it that is killed when `report.md` and `outcome.json` are there, and nothing
/// after them.
#[cfg(unix)]
fn killed_at_its_end(dir: &Path, folder: &str) {
    let folder = dir.join(folder);
    fs::remove_file(folder.join("report.html")).unwrap();
    let left = [
        "lock",
        "answers",
        "noise-key",
        ".tmpHalf",
        "models/.tmpHalf",
    ];
    for name in left {
        fs::write(folder.join(name), "").unwrap();
    }
    let state = ["state", "clients-0"];
    for name in state {
        fs::write(folder.join(name), "of the run").unwrap();
    }
    fs::create_dir_all(folder.join("elsewhere/home")).unwrap();
}

#[test]
#[cfg(unix)]
fn a_run_that_is_killed_while_its_report_is_written_is_completed() {
    let (d, spec) = (tempfile::tempdir().unwrap(), spec("fedavg"));
    let dir = d.path();
    let keep = ["--set", "checkpoint.keep=false"];
    let run = |folder: &str| {
        let args = ["run", &spec, "--json", "--out", folder];
        json(dir, &[&args[..], &keep].concat())
    };
    let names = |folder: &str| -> Vec<String> {
        let all = content(&dir.join(folder));
        let name = |path: String| {
            path.split_once(&format!("/{folder}/"))
                .unwrap()
                .1
                .to_string()
        };
        all.into_iter().map(|(path, _)| name(path)).collect()
    };
    let (whole, kept) = (run("r"), run("r2"));
    let files = names("r");
    for folder in ["r", "r2"] {
        killed_at_its_end(dir, folder);
    }
    let resumed = json(dir, &["run", "--resume", "r", "--json"]);
    assert_eq!(resumed, whole);
    assert_eq!(names("r"), files);
    let (code, error) = fails(dir, &["run", "--resume", "r"]);
    assert!(code == 1 && error.contains("is done"), "{code}: {error}");
    // a command that reads a folder removes nothing there
    out(dir, &["report", "r2"]);
    assert!(names("r2").iter().any(|name| name == ".tmpHalf"));
    out(dir, &["run", "--resume", "r2"]);
    assert_eq!(names("r2"), files);
    assert_eq!(kept["digest"], whole["digest"]);
    // what is left of a state is not gone on from
    killed_at_its_end(dir, "r");
    let more = ["run", "--resume", "r", "--set", "protocol.rounds=9"];
    let (code, error) = fails(dir, &more);
    assert!(code == 1 && error.contains("keeps no state"), "{error}");
    // a page of fewer rounds does not stand for one of more
    out(dir, &["run", &spec, "--out", "more"]);
    let args = ["run", "--resume", "more", "--set", "protocol.rounds=9"];
    out(dir, &[&args[..], &["--stop-after", "6"]].concat());
    assert!(!dir.join("more/report.html").exists());
    // before `outcome.json` a run is not done, and is brought to its end
    out(dir, &["run", &spec, "--out", "s", "--stop-after", "3"]);
    fs::write(dir.join("s/report.md"), "# half").unwrap();
    let resumed = json(dir, &["run", "--resume", "s", "--json"]);
    assert_eq!(resumed["digest"], whole["digest"]);
}
