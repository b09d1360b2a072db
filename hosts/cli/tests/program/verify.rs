//! `fl verify`: runs that are as their receipts say, and runs that are not.

use crate::common::{fails, files, flat, json, out, quick, root, shorter, specs};
use crate::library;
use crate::nodes::{own, towns};
use fl_core::{AggregationContext, ReleaseContext, ServerStep, Stream};
use fl_files::chained_line;
use fl_receipts::{ReceiptRecord, StepReceipt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const KEEP: [&str; 2] = ["--set", "keep=messages"];

fn run(dir: &Path, spec: &str, out: &str, more: &[&str]) -> Value {
    json(
        dir,
        &[&["run", spec, "--json", "--out", out], more].concat(),
    )
}

fn verified(dir: &Path, folder: &str) -> Value {
    json(dir, &["verify", folder, "--json"])
}

/// Makes a key; its public part.
fn key(dir: &Path, name: &str) -> String {
    let said = out(dir, &["verify", "--new-key", name]);
    let key = said.trim().rsplit(' ').next().unwrap();
    key.into()
}

pub fn receipts(folder: &Path) -> Vec<ReceiptRecord> {
    let text = fs::read_to_string(folder.join("receipts.jsonl")).unwrap();
    let record = |line: &str| serde_json::from_str(&line[65..]).unwrap();
    text.lines().map(record).collect()
}

/// Writes receipts anew, as someone could who can write the folder and has no key.
pub fn forge(folder: &Path, records: &[ReceiptRecord]) {
    let (mut hash, mut text) = ([0; 32], Vec::new());
    for record in records {
        let (next, line) = chained_line(&hash, &serde_json::to_vec(record).unwrap());
        (hash, text) = (next, [text, line].concat());
    }
    fs::write(folder.join("receipts.jsonl"), text).unwrap();
}

#[test]
fn every_quick_spec_verifies_with_its_messages_and_without() {
    for path in specs("quick") {
        let d = tempfile::tempdir().unwrap();
        let (dir, spec) = (d.path(), shorter(d.path(), &path));
        let kept = run(dir, &spec, "kept", &KEEP);
        // in two pieces and signed
        key(dir, "k");
        let signed = ["--sign", "k"];
        let begun = ["--stop-after", "1"];
        let stopped = run(dir, &spec, "bare", &[&signed[..], &begun].concat());
        if stopped["stopped"].is_string() {
            let unfinished = verified(dir, "bare");
            assert_eq!(unfinished["done"], false, "{spec}");
            let resume = ["run", "--resume", "bare", "--json"];
            json(dir, &[&resume[..], &signed].concat());
        }
        let (with, without) = (verified(dir, "kept"), verified(dir, "bare"));
        assert_eq!(
            with["digest"], kept["digest"],
            "{spec}: messages change nothing"
        );
        assert_eq!(with["digest"], without["digest"], "{spec}");
        // every aggregation is repeated, or none
        assert_eq!(with["not_repeated"], 0, "{spec}");
        let at_server = ["server-privacy", "laplace-votes", "laplace-logits"];
        let text = fs::read_to_string(&spec).unwrap();
        let releases = at_server.iter().any(|part| text.contains(part));
        assert_eq!(with["releases"] != 0, releases, "{spec}");
        // the noise of quick specs is seeded, so every release is repeated, or none
        assert_eq!(with["releases_repeated"], with["releases"], "{spec}");
        assert_eq!(without["releases"], with["releases"], "{spec}");
        assert_eq!(without["releases_repeated"], 0, "{spec}");
        assert_eq!(with["repeated"], without["not_repeated"], "{spec}");
        assert_eq!(without["repeated"], 0, "{spec}");
        assert_eq!(with["keys"].as_array().unwrap().len(), 0, "{spec}");
        assert_eq!(without["keys"].as_array().unwrap().len(), 1, "{spec}");
    }
}

#[test]
fn wherever_clients_and_parts_are_runs_verify() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let library = library::beside("fl_plugin_example_dynamic");
    let loaded = ["--plugin", library.to_str().unwrap()];
    let part = ["--set", "parts.aggregator={use: momentum-mean}"];
    let here = [&loaded[..], &["--isolate=false"], &part].concat();
    let ways: [(&str, &str, &[&str]); 5] = [
        ("processes", "scaffold", &["--processes", "2"]),
        ("memory", "scaffold", &["--memory", "1MiB"]),
        ("loaded", "fedavg", &here),
        ("isolated", "fedavg", &[&loaded[..], &part].concat()),
        ("exact", "fedavg", &["--set", "parts.aggregator.sum=exact"]),
    ];
    for (name, spec, how) in ways {
        let begin = [&KEEP[..], how, &["--stop-after", "2"]].concat();
        run(dir, &quick(spec), name, &begin);
        // a second process goes on
        let resume = ["run", "--resume", name, "--json"];
        let again = match name {
            "processes" => &how[..2],
            "loaded" => &["--isolate=false"],
            _ => &[],
        };
        let ended = json(dir, &[&resume[..], again].concat());
        let found = verified(dir, name);
        assert_eq!(found["digest"], ended["digest"], "{name}");
        assert_eq!(found["repeated"], ended["rounds"], "{name}: {found}");
        let sessions = receipts(&dir.join(name));
        let sessions = sessions.iter().filter_map(|record| match record {
            ReceiptRecord::Session(session) => Some(session),
            _ => None,
        });
        let sessions: Vec<_> = sessions.collect();
        assert_eq!(sessions.len(), 2, "{name}");
        let loaded = matches!(name, "loaded" | "isolated");
        assert_eq!(sessions[0].libraries.len(), usize::from(loaded), "{name}");
        assert!(sessions[0].program.is_some(), "{name}");
    }
}

/// Runs with signatures, kept messages and releases at the server, and one with receipts alone.
/// FL_CHANGES=1000 makes as many changes in all, and prints how many were found in which files.
#[test]
fn a_byte_that_changes_in_any_file_is_found() {
    let changes = std::env::var("FL_CHANGES").ok();
    let changes = changes.map_or(120, |n| n.parse().unwrap());
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let public = key(dir, "k");
    let signed = [&KEEP[..], &["--sign", "k"]].concat();
    let runs = [
        ("fedavg", &signed[..]),
        ("dp-fedavg", &signed),
        ("fedkt-l1", &signed),
        ("dp-sgd", &[]),
    ];
    let mut draws = Stream::root(36).draws();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (at, (name, more)) in runs.into_iter().enumerate() {
        run(dir, &quick(name), name, more);
        let check = match more {
            [] => vec!["verify", name],
            _ => vec!["verify", name, "--key", &public],
        };
        let found = verified(dir, name);
        let names = |of: &str| -> Vec<String> {
            let all = found[of].as_array().unwrap().iter();
            all.map(|name| name.as_str().unwrap().into()).collect()
        };
        let (covered, not) = (names("covered"), names("not_covered"));
        // what the page says, and what only a run that goes on reads
        let others = |name: &String| {
            name == "report.html" || name == "state" || name.starts_with("clients-")
        };
        assert!(not.iter().all(others), "{not:?}");
        let mut there: Vec<String> = [covered.clone(), not].concat();
        there.sort();
        let folder = dir.join(name);
        let short = |path: &PathBuf| path.strip_prefix(&folder).unwrap().display().to_string();
        let mut all: Vec<String> = files(&folder).iter().map(short).collect();
        all.sort();
        assert_eq!(there, all, "every file of {name} is covered or not");
        let kept = found["releases_repeated"].as_u64().unwrap();
        assert_eq!(
            kept > 0,
            matches!(name, "dp-fedavg" | "fedkt-l1"),
            "{found}"
        );
        for change in 0..(changes + at) / 4 {
            let file = &covered[change % covered.len()];
            let path = folder.join(file);
            let whole = fs::read(&path).unwrap();
            let mut changed = whole.clone();
            let byte = draws.below(changed.len());
            changed[byte] ^= 1 + draws.below(255) as u8;
            fs::write(&path, &changed).unwrap();
            let (code, said) = fails(dir, &check);
            assert_eq!(code, 1, "{name}: {file}, byte {byte}: {said}");
            fs::write(&path, &whole).unwrap();
            let kind = file.split('/').next().unwrap_or_default();
            *places.entry(format!("{name}/{kind}")).or_default() += 1;
        }
        assert_eq!(verified(dir, name), found);
    }
    assert_eq!(places.values().sum::<usize>(), changes);
    eprintln!("{changes} changes, all found: {places:?}");
}

#[test]
fn what_a_forger_says_is_not_what_the_messages_say() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let (mine, other) = (key(dir, "mine"), key(dir, "other"));
    let more = [&KEEP[..], &["--sign", "mine"]].concat();
    run(dir, &quick("fedavg"), "r", &more);
    let folder = dir.join("r");
    let text = fs::read(folder.join("receipts.jsonl")).unwrap();
    let own = receipts(&folder);
    let check = |records: &[ReceiptRecord], args: &[&str]| {
        forge(&folder, records);
        let found = fails(dir, &[&["verify", "r"], args].concat());
        fs::write(folder.join("receipts.jsonl"), &text).unwrap();
        assert_eq!(found.0, 1, "{}", found.1);
        flat(&found.1)
    };
    // signed by someone else, or not at all
    let said = fails(dir, &["verify", "r", "--key", &other]).1;
    assert!(
        said.contains(&format!("found the key {mine}; expected the key {other}")),
        "{said}"
    );
    let unsigned: Vec<ReceiptRecord> = own
        .iter()
        .filter(|record| !matches!(record, ReceiptRecord::Signature(_)))
        .cloned()
        .map(|record| match record {
            ReceiptRecord::Session(mut session) => {
                session.key = None;
                ReceiptRecord::Session(session)
            }
            other => other,
        })
        .collect();
    let said = check(&unsigned, &["--key", &mine]);
    let due = format!("found no key; expected the key {mine}; this run is not signed");
    assert!(said.contains(&due), "{said}");
    // a receipt under the old signature
    let mut moved = own.clone();
    if let ReceiptRecord::Step(step) = &mut moved[2] {
        step.receipt.step = "round 9".into();
    }
    let said = check(&moved, &[]);
    assert!(said.contains("found a wrong signature"), "{said}");
    // another result, with a chain that fits
    let steps = unsigned.iter().positions();
    let third = steps[2];
    let mut wrong = unsigned.clone();
    if let ReceiptRecord::Step(step) = &mut wrong[third] {
        step.receipt.output = "00".repeat(32);
    }
    let said = check(&wrong, &[]);
    assert!(
        said.contains("(round 3, exchange `") && said.contains("found the result"),
        "{said}"
    );
    // another message, with the hash of its file
    let mut wrong = unsigned.clone();
    let ReceiptRecord::Step(step) = &mut wrong[third] else {
        unreachable!()
    };
    let kept = step.kept.as_mut().unwrap();
    let path = folder.join(&kept.path);
    let whole = fs::read(&path).unwrap();
    let mut changed = whole.clone();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    fs::write(&path, &changed).unwrap();
    let hash = fl_files::FileHash::of(&path).unwrap();
    kept.sha256 = hash.sha256;
    let said = check(&wrong, &[]);
    assert!(
        said.contains("client 4)") && said.contains("messages/"),
        "{said}"
    );
    fs::write(&path, &whole).unwrap();
    // a client that was left out
    let mut wrong = unsigned.clone();
    let ReceiptRecord::Step(step) = &mut wrong[third] else {
        unreachable!()
    };
    step.inputs.remove(1);
    step.inputs_sha256 = fl_receipts::inputs_hash(&step.inputs).unwrap();
    let said = check(&wrong, &[]);
    assert!(
        said.contains("client 1)") || said.contains("client 2)"),
        "{said}"
    );
    // the end is cut off
    let (_, cut) = unsigned.split_last().unwrap();
    let said = check(cut, &[]);
    assert!(said.contains("no end of the run"), "{said}");
    verified(dir, "r");
}

/// A run of three rounds that was stopped, with the key `k`; its folder and its public key.
fn stopped(dir: &Path) -> (PathBuf, String) {
    let public = key(dir, "k");
    let begin = ["--sign", "k", "--stop-after", "3"];
    run(dir, &quick("fedavg"), "r", &begin);
    (dir.join("r"), public)
}

/// Exit code, and all that is printed.
fn checked(dir: &Path, args: &[&str]) -> (i32, String) {
    let done = crate::common::fl(dir, &[&["verify"], args].concat());
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (done.status.code().unwrap(), flat(&text))
}

#[test]
fn a_key_has_signed_what_its_checked_signatures_cover_and_nothing_else() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let (folder, public) = stopped(dir);
    let text = fs::read(folder.join("receipts.jsonl")).unwrap();
    let own = receipts(&folder);
    assert_eq!(
        own.len(),
        8,
        "a session and three steps, each with its signature"
    );
    // a line that names another user's key, and no signature
    forge(&folder, &own[..1]);
    for pinned in [&[][..], &["--key", &public]] {
        let (code, said) = checked(dir, &[&["r"], pinned].concat());
        assert!(
            code == 1 && said.contains("line 1: found a last record without a signature"),
            "{said}"
        );
    }
    // a process that was killed between a record and its signature
    let ReceiptRecord::Session(session) = &own[0] else {
        unreachable!()
    };
    let record = serde_json::to_vec(&ReceiptRecord::Session(session.clone())).unwrap();
    let hash = |line: &[u8]| <[u8; 32]>::try_from(bytes(&line[..64])).unwrap();
    let last = text[..text.len() - 1]
        .rsplit(|byte| *byte == b'\n')
        .next()
        .unwrap();
    let (_, unsigned) = chained_line(&hash(last), &record);
    let killed = [&text[..], &unsigned].concat();
    fs::write(folder.join("receipts.jsonl"), &killed).unwrap();
    let found = verified(dir, "r");
    assert_eq!(
        (&found["receipts"], &found["keys"]),
        (&3.into(), &serde_json::json!([public]))
    );
    let (code, said) = checked(dir, &["r", "--key", &public]);
    let due = "line 9: the last record has no signature, and counts for nothing";
    assert!(code == 0 && said.contains(due), "{said}");
    // in another order, twice, and without one, each with a chain that fits
    let pair = |at: usize| own[at..at + 2].to_vec();
    for records in [
        [pair(0), pair(4), pair(2), pair(6)].concat(),
        [pair(0), pair(2), pair(2), pair(4)].concat(),
        [pair(0), pair(4), pair(6)].concat(),
    ] {
        forge(&folder, &records);
        let (code, said) = checked(dir, &["r", "--key", &public]);
        assert!(
            code == 1 && said.contains("found a wrong signature"),
            "{said}"
        );
    }
    // what follows without a key is no part of a signed run
    let bare = fl_receipts::ReceiptSession {
        key: None,
        ..session.clone()
    };
    let record = serde_json::to_vec(&ReceiptRecord::Session(bare)).unwrap();
    let (_, line) = chained_line(&hash(last), &record);
    fs::write(folder.join("receipts.jsonl"), [&text[..], &line].concat()).unwrap();
    for pinned in [&[][..], &["--key", &public]] {
        let (code, said) = checked(dir, &[&["r"], pinned].concat());
        assert!(code == 1 && said.contains("line 9: found no key"), "{said}");
    }
    // the receipts of another run by the same key
    let other = ["--sign", "k", "--set", "seed=2", "--stop-after", "3"];
    run(dir, &quick("fedavg"), "other", &other);
    fs::copy(
        dir.join("other/receipts.jsonl"),
        folder.join("receipts.jsonl"),
    )
    .unwrap();
    let (code, said) = checked(dir, &["r", "--key", &public]);
    assert!(code == 1 && said.contains("spec.yaml: found"), "{said}");
    // a run that goes on drops the unsigned line, and goes on with its key only
    fs::write(folder.join("receipts.jsonl"), &killed).unwrap();
    let second = key(dir, "k2");
    for (sign, due) in [
        (&[][..], "cannot go on without a key".to_string()),
        (
            &["--sign", "k2"],
            format!("cannot go on with the key {second}"),
        ),
    ] {
        let (code, said) = fails(dir, &[&["run", "--resume", "r"], sign].concat());
        assert!(code == 1 && said.contains(&due), "{said}");
        assert!(said.contains("give --sign FILE"), "{said}");
        let now = fs::read(folder.join("receipts.jsonl")).unwrap();
        assert_eq!(now, killed);
    }
    json(dir, &["run", "--resume", "r", "--json", "--sign", "k"]);
    let found = verified(dir, "r");
    assert_eq!(
        (&found["done"], &found["keys"]),
        (&true.into(), &serde_json::json!([public]))
    );
    // an end that another user adds, without a key or with another
    let mut own = receipts(&folder);
    let end = own.len() - 2;
    let ReceiptRecord::Session(session) = &mut own[0] else {
        unreachable!()
    };
    let whole = fs::read(folder.join("receipts.jsonl")).unwrap();
    let signed: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    for (other, due) in [(None, "found no key"), (Some(second), "found the key")] {
        session.key = other;
        let session = serde_json::to_vec(&ReceiptRecord::Session(session.clone())).unwrap();
        let (_, line) = chained_line(&hash(signed[end - 1]), &session);
        let forged = [signed[..end].concat(), line].concat();
        fs::write(folder.join("receipts.jsonl"), forged).unwrap();
        let (code, said) = checked(dir, &["r"]);
        assert!(code == 1 && said.contains(due), "{said}");
    }
}

#[test]
fn the_lines_of_a_journal_are_those_of_the_receipts() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let (folder, public) = stopped(dir);
    let path = folder.join("journal.jsonl");
    let own = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = own.split_inclusive('\n').collect();
    let other = |at: usize, change: &dyn Fn(&mut Value)| {
        let mut line = serde_json::from_str(lines[at]).unwrap();
        change(&mut line);
        format!("{line}\n")
    };
    let named = other(0, &|line| line["question"] = "another".into());
    let scalar = other(0, &|line| {
        line["question"] = "another".into();
        line["up"] = "scalar".into();
    });
    let empty = other(1, &|line| line["answers"] = serde_json::json!([]));
    let fewer = other(1, &|line| {
        line["answers"].as_array_mut().unwrap().pop();
    });
    let fourth = other(2, &|line| line["step"] = "round 4".into());
    let [first, second, third] = lines[..] else {
        panic!("{own}")
    };
    let without = "exchanges without a receipt";
    for (text, due, ends) in [
        ([first, &named, second, third].concat(), without, 1),
        ([first, &scalar, second, third].concat(), without, 1),
        ([first, first, second, third].concat(), without, 1),
        ([first, "{}\n", second, third].concat(), "line 2: found", 1),
        ([&own, "garbage\n"].concat(), "line 4: found", 1),
        ([first, second].concat(), "no such exchange", 1),
        ([first, &empty, third].concat(), "found an answer", 1),
        (
            [first, &fewer, third].concat(),
            "client 4): found an answer",
            1,
        ),
        (own.clone() + &fourth.repeat(10), "found 10 exchanges", 1),
        (own.clone() + &fourth, "line 4 (round 4", 0),
        (own.clone() + &fourth[..20], "line 4 is incomplete", 0),
    ] {
        fs::write(&path, &text).unwrap();
        let (code, said) = checked(dir, &["r", "--key", &public]);
        assert!(code == ends && said.contains(due), "{due}: {said}");
    }
}

#[test]
fn a_run_without_a_receipt_says_nothing_of_who_combines_the_answers() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let row = |folder: &str| {
        let said = flat(&out(dir, &["verify", folder]));
        let row = said.split(" aggregations ").nth(1).unwrap();
        row.split(" releases ").next().unwrap().to_string()
    };
    stopped(dir);
    let folder = dir.join("r");
    let own = receipts(&folder);
    forge(&folder, &own[..2]);
    fs::write(folder.join("journal.jsonl"), "").unwrap();
    assert_eq!(row("r"), "none yet");
    let personal = quick("solo");
    run(dir, &personal, "solo", &[]);
    assert!(row("solo").starts_with("none"), "{}", row("solo"));
    let found = verified(dir, "solo");
    let says = row("solo").contains("the protocol itself combines");
    assert_eq!(says, found["collections"] != 0, "{found}");
}

/// A step is done again for too few answers, and clients say how many examples they have.
#[test]
fn exchanges_that_have_no_receipt_are_those_of_the_spec() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let faults = "faults={on-error: drop, min-answers: 4, if-too-few: {repeat: 20}, inject: [{what: crash, share: 0.3}]}";
    let polls = "parts.cohort={use: power-of-choice, size: 2, candidates: 4}";
    for (name, set) in [("few", faults), ("polls", polls)] {
        run(dir, &quick("fedavg"), name, &["--set", set]);
        let journal = fs::read_to_string(dir.join(name).join("journal.jsonl")).unwrap();
        let found = verified(dir, name);
        let receipts = found["receipts"].as_u64().unwrap() as usize;
        assert!(journal.lines().count() > receipts, "{name}: {found}");
    }
}

#[test]
fn a_finished_run_does_not_pass_for_one_that_goes_on() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let public = key(dir, "k");
    let more = [&KEEP[..], &["--sign", "k"]].concat();
    run(dir, &quick("fedavg"), "r", &more);
    let folder = dir.join("r");
    let check = |due: &str| {
        let (code, said) = checked(dir, &["r", "--key", &public]);
        assert!(code == 1 && said.contains(due), "{due}: {said}");
    };
    let outcome = fs::read(folder.join("outcome.json")).unwrap();
    fs::remove_file(folder.join("outcome.json")).unwrap();
    fs::create_dir(folder.join("outcome.json")).unwrap();
    check("outcome.json");
    fs::remove_dir(folder.join("outcome.json")).unwrap();
    fs::write(folder.join("outcome.json"), outcome).unwrap();
    verified(dir, "r");
    // the chain is cut back to its first record
    fs::remove_file(folder.join("outcome.json")).unwrap();
    fs::write(folder.join("journal.jsonl"), "").unwrap();
    let text = fs::read_to_string(folder.join("receipts.jsonl")).unwrap();
    let first: String = text.split_inclusive('\n').take(2).collect();
    fs::write(folder.join("receipts.jsonl"), first).unwrap();
    check("report.md: found a result");
    fs::remove_file(folder.join("report.md")).unwrap();
    check("models: found a result");
    fs::remove_dir_all(folder.join("models")).unwrap();
    check("found messages of a step; expected none after line 2");
}

#[cfg(unix)]
#[test]
fn names_of_files_stay_on_their_line_and_are_hashed_once() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    run(dir, &quick("fedavg"), "r", &[]);
    let folder = dir.join("r");
    fs::write(folder.join("x\n  signatures  signed by me\u{1b}[2J"), "").unwrap();
    let said = out(dir, &["verify", "r"]);
    assert!(said.contains("x\\u000a"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
    let mut records = receipts(&folder);
    let Some(ReceiptRecord::End(end)) = records.last_mut() else {
        unreachable!()
    };
    end.files.push(end.files[0].clone());
    forge(&folder, &records);
    let (code, said) = checked(dir, &["r"]);
    assert!(code == 1 && said.contains("is named twice"), "{said}");
    let ReceiptRecord::Step(step) = &mut records[1] else {
        unreachable!()
    };
    step.receipt.step = "a\nb".into();
    forge(&folder, &records[..2]);
    let said = fails(dir, &["verify", "r"]).1;
    assert!(said.contains("no end of the run"), "{said}");
    fs::remove_file(folder.join("outcome.json")).unwrap();
    let said = fails(dir, &["verify", "r"]).1;
    assert!(said.contains("exchanges without a receipt"), "{said}");
    fs::write(folder.join("journal.jsonl"), "").unwrap();
    let said = fails(dir, &["verify", "r"]).1;
    assert!(said.contains("(a\\u000ab, exchange"), "{said}");
}

/// The bytes of hexadecimal digits.
fn bytes(hex: &[u8]) -> Vec<u8> {
    let pairs = hex.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

#[test]
fn receipts_that_were_cut_back_do_not_pass_beside_a_longer_journal() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let (folder, public) = stopped(dir);
    let own = receipts(&folder);
    let check = |records: &[ReceiptRecord]| {
        forge(&folder, records);
        checked(dir, &["r", "--key", &public])
    };
    // one exchange may lack its receipt: its process was killed
    let (code, said) = check(&own[..6]);
    assert!(
        code == 0 && said.contains("journal.jsonl, line 3 (round 3, exchange"),
        "{said}"
    );
    assert!(said.contains("has no receipt"), "{said}");
    let (code, said) = check(&own[..4]);
    assert!(
        code == 1 && said.contains("journal.jsonl, line 2 (round 2, exchange"),
        "{said}"
    );
    assert!(
        said.contains("found 2 exchanges without a receipt"),
        "{said}"
    );
    // made anew, without a key
    let mut anew = own[0].clone();
    if let ReceiptRecord::Session(session) = &mut anew {
        session.key = None;
    }
    forge(&folder, &[anew]);
    let (code, said) = checked(dir, &["r"]);
    assert!(
        code == 1 && said.contains("found 3 exchanges without a receipt"),
        "{said}"
    );
    // a file that nothing covers is named
    forge(&folder, &own);
    fs::write(folder.join("extra.txt"), "x").unwrap();
    let (code, said) = checked(dir, &["r", "--key", &public]);
    assert!(
        code == 0 && said.contains("extra.txt") && said.contains("journal.jsonl"),
        "{said}"
    );
}

/// A server that draws other noise than the seed's, or from other numbers, is found.
#[test]
fn a_release_is_repeated_from_the_numbers_before_its_noise() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    // the budget pays for some of the votes only
    let cut = [
        "budget.epsilon=6",
        "protocol.noise=server",
        "protocol.partitions=1",
    ];
    let cut = [
        &cut[..],
        &["parts.accountant.unit=example", "parts.privacy.gamma=0.1"],
    ]
    .concat();
    let cut: Vec<&str> = cut.iter().flat_map(|set| ["--set", *set]).collect();
    for (spec, more) in [
        ("dp-fedavg", &[][..]),
        ("fedkt-l1", &[]),
        ("fedkt-l1", &cut),
    ] {
        let _ = fs::remove_dir_all(dir.join("r"));
        run(dir, &quick(spec), "r", &[&KEEP[..], more].concat());
        let found = verified(dir, "r");
        let releases = found["releases"].as_u64().unwrap();
        assert!(
            releases > 0 && found["releases_repeated"] == releases,
            "{found}"
        );
        let folder = dir.join("r");
        let own = receipts(&folder);
        let released = |record: &&ReceiptRecord| match record {
            ReceiptRecord::Step(step) => step.receipt.did == ServerStep::Release,
            _ => false,
        };
        let at = own.iter().position(|record| released(&record)).unwrap();
        // another result, and another number before, each with a chain that fits
        for (other, due) in [
            ("output", "found the result"),
            ("before", "before the noise"),
        ] {
            let mut wrong = own.clone();
            if let ReceiptRecord::Step(step) = &mut wrong[at] {
                let receipt = &mut step.receipt;
                let hash = match other {
                    "output" => &mut receipt.output,
                    _ => &mut receipt.before,
                };
                assert!(!hash.is_empty());
                *hash = "00".repeat(32);
            }
            forge(&folder, &wrong);
            let (code, said) = fails(dir, &["verify", "r"]);
            assert!(code == 1 && flat(&said).contains(due), "{spec}: {said}");
        }
        // other numbers in the file, whose hash fits
        let mut wrong = own.clone();
        let ReceiptRecord::Step(step) = &mut wrong[at] else {
            unreachable!()
        };
        let kept = step.kept.as_mut().unwrap();
        let path = folder.join(&kept.path);
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).unwrap();
        kept.sha256 = fl_files::FileHash::of(&path).unwrap().sha256;
        forge(&folder, &wrong);
        let (code, said) = fails(dir, &["verify", "r"]);
        assert!(code == 1 && said.contains("messages/"), "{spec}: {said}");
    }
}

#[test]
fn nodes_with_data_of_their_own_sign_what_they_sent() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let nodes = towns(dir);
    key(dir, "k");
    let begin = ["--out", "r", "--stop-after", "1", "--sign", "k"];
    json(dir, &own(&nodes, &begin));
    let named = nodes.iter().map(String::as_str);
    let resume = ["run", "--resume", "r", "--json", "--sign", "k"].into_iter();
    json(dir, &resume.chain(named).collect::<Vec<_>>());
    let found = verified(dir, "r");
    let signed = found["countersigned"].as_object().unwrap();
    assert_eq!(signed.keys().collect::<Vec<_>>(), ["0", "1", "2"]);
    for (client, key) in signed {
        let public = dir.join(client).join("kept/signing-key.pub");
        let public = fs::read_to_string(public).unwrap();
        assert!(public.contains(key.as_str().unwrap()), "{client}: {public}");
    }
    let pin = |key: &str| checked(dir, &["r", "--client-key", &format!("0={key}")]);
    let (first, second) = (signed["0"].as_str().unwrap(), signed["1"].as_str().unwrap());
    assert_eq!(pin(first).0, 0);
    let (code, said) = pin(second);
    assert!(
        code == 1 && said.contains("the countersignature of client 0"),
        "{said}"
    );
    let (code, said) = checked(dir, &["r", "--client-key", &format!("7={first}")]);
    assert!(code == 1 && said.contains("client 7: found none"), "{said}");
    // the leader, who has a key of its own, cannot say that a client sent something else
    let folder = dir.join("r");
    let mut records = receipts(&folder);
    records.retain(|record| !matches!(record, ReceiptRecord::Signature(_)));
    for record in &mut records {
        match record {
            ReceiptRecord::Session(session) => session.key = None,
            ReceiptRecord::Step(step) if !step.inputs.is_empty() => {
                step.inputs[0].sha256 = "00".repeat(32);
                step.inputs_sha256 = fl_receipts::inputs_hash(&step.inputs).unwrap();
            }
            _ => {}
        }
    }
    forge(&folder, &records);
    let (code, said) = fails(dir, &["verify", "r"]);
    assert!(
        code == 1 && said.contains("(client 0): found a wrong signature"),
        "{said}"
    );
    let (code, said) = fails(dir, &["verify", "r", "--key", "k.pub"]);
    assert!(code == 1 && said.contains("found no key"), "{said}");
}

/// The leader's own key signs for no client, and a client without answers has nothing to sign. Two
/// nodes of one home share a key.
#[test]
fn a_countersignature_is_by_another_key_than_the_leaders_for_a_client_that_answered() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let (folder, public) = stopped(dir);
    key(dir, "other");
    let own = receipts(&folder);
    let text = fs::read(folder.join("receipts.jsonl")).unwrap();
    let last = text[..text.len() - 1].rsplit(|byte| *byte == b'\n');
    let head: [u8; 32] = bytes(&last.clone().next().unwrap()[..64])
        .try_into()
        .unwrap();
    let mut answers = BTreeMap::new();
    for record in &own {
        if let ReceiptRecord::Step(step) = record {
            fl_receipts::add_answers(&mut answers, step);
        }
    }
    let none = Vec::new();
    for (by, clients, due) in [
        ("k", &[0][..], "which signs the receipts"),
        ("other", &[77], "(client 77): found a countersignature"),
        // two nodes of one home
        ("other", &[0, 1], ""),
        ("other", &[0], ""),
    ] {
        let signer = fl_receipts::SigningKey::read(&dir.join(by)).unwrap();
        let (mut hash, mut all) = (head, text.clone());
        for client in clients {
            let of = answers.get(client).unwrap_or(&none);
            let signed = fl_receipts::countersigned_text(&head, *client, of);
            let record = ReceiptRecord::Countersignature(fl_receipts::Countersignature {
                client: *client,
                key: signer.public(),
                signature: signer.sign(&signed).unwrap(),
            });
            let (next, line) = chained_line(&hash, &serde_json::to_vec(&record).unwrap());
            hash = next;
            all.extend(line);
        }
        fs::write(folder.join("receipts.jsonl"), all).unwrap();
        let (code, said) = checked(dir, &["r", "--key", &public]);
        assert_eq!(code, i32::from(!due.is_empty()), "{said}");
        let compares = said.contains("compare these keys with those that the clients publish");
        assert!(
            said.contains(due) && compares == due.is_empty(),
            "{due}: {said}"
        );
    }
}

/// Receipts of a run that name another part, number or library than spec.yaml and the messages do.
#[test]
fn receipts_say_of_steps_what_the_spec_and_the_messages_say() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    type Edit = fn(&mut StepReceipt);
    let edits: [(&str, Edit); 7] = [
        ("found the part median", |step| {
            step.receipt.part = "median".into()
        }),
        ("libx.so", |step| step.receipt.origin = "libx.so".into()),
        ("found a list of 5 messages; expected one of 77", |step| {
            step.messages = Some(77);
        }),
        ("found no number of messages", |step| {
            (step.messages, step.inputs) = (None, Vec::new());
        }),
        ("found a step of another kind", |step| {
            step.receipt.did = ServerStep::Collection;
        }),
        ("found the slot other", |step| {
            step.receipt.slot = "other".into()
        }),
        ("messages with the hash", |step| step.inputs[0].weight = 1e9),
    ];
    for (name, more) in [("kept", &KEEP[..]), ("bare", &[])] {
        run(dir, &quick("fedavg"), name, more);
        let folder = dir.join(name);
        let own = receipts(&folder);
        let second = own.iter().positions()[1];
        let check = |records: &[ReceiptRecord], due: &str| {
            forge(&folder, records);
            let (code, said) = checked(dir, &[name]);
            assert!(code == 1 && said.contains(due), "{name}, {due}: {said}");
        };
        for (due, edit) in &edits {
            let mut wrong = own.clone();
            if let ReceiptRecord::Step(step) = &mut wrong[second] {
                edit(step);
            }
            check(&wrong, due);
        }
        let mut wrong = own.clone();
        if let ReceiptRecord::Step(step) = &mut wrong[second]
            && step.kept.take().is_some()
        {
            check(&wrong, "found no kept messages");
        }
        let mut wrong = own.clone();
        if let ReceiptRecord::Session(session) = &mut wrong[0] {
            session.libraries.push(fl_files::FileHash {
                path: "evil.so".into(),
                sha256: "00".repeat(32),
            });
        }
        check(&wrong, "found evil.so; expected only those of spec.yaml");
        forge(&folder, &own);
        verified(dir, name);
    }
}

/// Changes the file of a step's messages, and its hash in the receipts.
fn change(folder: &Path, record: &mut ReceiptRecord, from: &[u8], to: &[u8]) {
    let ReceiptRecord::Step(step) = record else {
        unreachable!()
    };
    let kept = step.kept.as_mut().unwrap();
    let path = folder.join(&kept.path);
    let mut all = fs::read(&path).unwrap();
    let at = all.windows(from.len()).position(|window| window == from);
    let at = at.unwrap();
    all[at..at + to.len()].copy_from_slice(to);
    fs::write(&path, all).unwrap();
    kept.sha256 = fl_files::FileHash::of(&path).unwrap().sha256;
}

/// The positions of receipts of this kind.
fn did(records: &[ReceiptRecord], step: ServerStep) -> Vec<usize> {
    let is = |at: &usize| match &records[*at] {
        ReceiptRecord::Step(found) => found.receipt.did == step,
        _ => false,
    };
    (0..records.len()).filter(is).collect()
}

fn kept_path(folder: &Path, record: &ReceiptRecord) -> PathBuf {
    match record {
        ReceiptRecord::Step(step) => folder.join(&step.kept.as_ref().unwrap().path),
        _ => unreachable!(),
    }
}

/// Who writes the folder chooses neither the noise nor the parts' random numbers.
#[test]
fn random_numbers_follow_from_the_seed_and_not_from_the_folder() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    run(dir, &quick("dp-fedavg"), "r", &KEEP);
    let folder = dir.join("r");
    let own = receipts(&folder);
    let release = did(&own, ServerStep::Release)[3];
    let aggregation = did(&own, ServerStep::Aggregation)[3];
    let noise =
        fl_receipts::KeptMessages::<ReleaseContext>::open(&kept_path(&folder, &own[release]));
    let noise = noise.unwrap().context;
    let step = kept_path(&folder, &own[aggregation]);
    let step = fl_receipts::KeptMessages::<AggregationContext>::open(&step);
    let step = step.unwrap().context;
    for (at, key, due) in [
        (release, noise.stream, "another stream of random numbers"),
        (aggregation, step.stream, "another stream of random numbers"),
        (release, noise.made.1, "a part made with another stream"),
        (aggregation, step.made.1, "a part made with another stream"),
    ] {
        let mut wrong = own.clone();
        change(&folder, &mut wrong[at], &key, &[0x42; 32]);
        forge(&folder, &wrong);
        let (code, said) = checked(dir, &["r"]);
        assert!(code == 1 && said.contains(due), "{due}: {said}");
        change(&folder, &mut wrong[at], &[0x42; 32], &key);
    }
    // another spec's noise: that of the step before
    let earlier = did(&own, ServerStep::Release)[2];
    let earlier =
        fl_receipts::KeptMessages::<ReleaseContext>::open(&kept_path(&folder, &own[earlier]));
    let mut wrong = own.clone();
    change(
        &folder,
        &mut wrong[release],
        &noise.stream,
        &earlier.unwrap().context.stream,
    );
    forge(&folder, &wrong);
    let (code, said) = checked(dir, &["r"]);
    assert!(
        code == 1 && said.contains("another stream of random numbers"),
        "{said}"
    );
}

/// A step is done again for too few answers: with other random numbers, from the state before it.
#[test]
fn a_state_is_what_the_steps_before_left() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let faults = "faults={on-error: drop, min-answers: 4, if-too-few: {repeat: 20}, inject: [{what: crash, share: 0.3}]}";
    let momentum = "parts.aggregator={use: fed-avg-m}";
    let set = ["--set", momentum, "--set", faults];
    run(dir, &quick("fedavg"), "r", &[&KEEP[..], &set].concat());
    let folder = dir.join("r");
    let journal = fs::read_to_string(folder.join("journal.jsonl")).unwrap();
    let found = verified(dir, "r");
    let repeated = found["repeated"].as_u64().unwrap() as usize;
    assert!(
        repeated == 5 && journal.lines().count() > repeated,
        "{found}"
    );
    // another state in the file changes nothing: the result is that of the steps before
    let own = receipts(&folder);
    let last = *did(&own, ServerStep::Aggregation).last().unwrap();
    let state = kept_path(&folder, &own[last]);
    let state = fl_receipts::KeptMessages::<AggregationContext>::open(&state);
    let state = state.unwrap().context.state;
    let mut other = state.clone();
    other[..8].copy_from_slice(&1000f64.to_le_bytes());
    let mut wrong = own.clone();
    change(&folder, &mut wrong[last], &state, &other);
    forge(&folder, &wrong);
    assert_eq!(verified(dir, "r")["repeated"], found["repeated"]);
}

/// The centres of FeSEM and IFCA have an aggregator each, in one slot.
#[test]
fn each_line_of_models_has_a_state_of_its_own() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let momentum = ["--set", "parts.aggregator={use: fed-avg-m, beta: 0.9}"];
    for spec in ["fesem", "ifca"] {
        let stop = [&KEEP[..], &momentum, &["--stop-after", "2"]].concat();
        run(dir, &quick(spec), spec, &stop);
        out(dir, &["run", "--resume", spec]);
        let found = verified(dir, spec);
        assert!(found["repeated"].as_u64() > Some(4), "{found}");
        assert_eq!(found["not_repeated"], 0, "{found}");
    }
}

/// The protocol changes nothing between an aggregation and its release.
#[test]
fn a_release_is_of_the_aggregation_before_it() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    run(dir, &quick("fedkd-priced"), "r", &KEEP);
    let folder = dir.join("r");
    let mut wrong = receipts(&folder);
    let release = did(&wrong, ServerStep::Release)[0];
    let path = kept_path(&folder, &wrong[release]);
    let message = fl_receipts::KeptMessages::<ReleaseContext>::open(&path);
    let message = message.unwrap().context.message;
    let mut other = message.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    change(&folder, &mut wrong[release], &message, &other);
    // the digests of the other numbers, as the errors say them
    for (what, before) in [("numbers before the noise ", true), ("the result ", false)] {
        forge(&folder, &wrong);
        let said = checked(dir, &["r"]).1;
        let Some((_, rest)) = said.split_once(&format!("found {what}")) else {
            continue;
        };
        if let ReceiptRecord::Step(step) = &mut wrong[release] {
            let receipt = &mut step.receipt;
            let hash = if before {
                &mut receipt.before
            } else {
                &mut receipt.output
            };
            *hash = rest[..64].into();
        }
    }
    forge(&folder, &wrong);
    let (code, said) = checked(dir, &["r"]);
    assert!(code == 1 && said.contains("found a release of "), "{said}");
}

#[test]
fn the_end_of_a_run_names_each_file_of_its_result() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    run(dir, &quick("fedavg"), "r", &[]);
    let folder = dir.join("r");
    let own = receipts(&folder);
    for name in [
        "models/model",
        "metrics.jsonl",
        "run.json",
        "report.md",
        "outcome.json",
    ] {
        let mut wrong = own.clone();
        let Some(ReceiptRecord::End(end)) = wrong.last_mut() else {
            unreachable!()
        };
        end.files.retain(|file| file.path != name);
        assert_eq!(
            end.files.len() + 1,
            match own.last() {
                Some(ReceiptRecord::End(end)) => end.files.len(),
                _ => 0,
            }
        );
        forge(&folder, &wrong);
        let (code, said) = checked(dir, &["r"]);
        assert!(
            code == 1 && said.contains(&format!("no hash of {name}")),
            "{said}"
        );
    }
}

/// The positions of steps among records.
trait Steps {
    fn positions(self) -> Vec<usize>;
}

impl<'r, I: Iterator<Item = &'r ReceiptRecord>> Steps for I {
    fn positions(self) -> Vec<usize> {
        let steps = self.enumerate();
        let steps = steps.filter(|(_, record)| matches!(record, ReceiptRecord::Step(_)));
        steps.map(|(at, _)| at).collect()
    }
}

/// Hashes of what clients sent would let a reader check a guess.
#[test]
fn receipts_of_private_runs_name_no_client_and_no_hash() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    for (name, more) in [("seeded", &[][..]), ("system", &["--set", "noise=system"])] {
        for (kept, keep) in [("bare", &[][..]), ("kept", &KEEP)] {
            let folder = format!("{name}-{kept}");
            run(dir, &quick("dp-fedavg"), &folder, &[more, keep].concat());
            let found = verified(dir, &folder);
            let path = dir.join(&folder);
            let text = fs::read_to_string(path.join("receipts.jsonl")).unwrap();
            assert!(!text.contains("\"client\""), "{folder}");
            for record in receipts(&path) {
                let ReceiptRecord::Step(step) = record else {
                    continue;
                };
                assert_eq!(step.messages, None, "{folder}");
                // the system's noise cannot be drawn again
                let release = step.receipt.did == ServerStep::Release;
                let again = !release || name == "seeded";
                let has = kept == "kept" && again && step.receipt.did != ServerStep::Collection;
                assert_eq!(step.salted, has, "{folder}");
                assert_eq!(!step.receipt.output.is_empty(), has, "{folder}");
                assert_eq!(!step.inputs_sha256.is_empty(), has && !release, "{folder}");
                assert_eq!(!step.receipt.before.is_empty(), has && release, "{folder}");
            }
            let number = |what: &str| found[what].as_u64().unwrap();
            assert_eq!(number("repeated") > 0, kept == "kept", "{folder}: {found}");
            let again = number("releases_repeated");
            let due = (kept == "kept" && name == "seeded").then(|| number("releases"));
            assert_eq!(again, due.unwrap_or(0), "{folder}: {found}");
            let said = flat(&out(dir, &["verify", &folder]));
            let why = match (name, kept) {
                ("system", _) => "20 not repeated: their noise is the system's",
                (_, "bare") => "20 not repeated: their numbers before the noise were not kept",
                _ => "20 repeated, all with the same result",
            };
            assert!(said.contains(why), "{folder}: {said}");
            let report = fs::read_to_string(path.join("report.md")).unwrap();
            assert_eq!(
                report.contains("`keep: messages`"),
                kept == "kept",
                "{folder}"
            );
            #[cfg(unix)]
            if kept == "kept" {
                use std::os::unix::fs::PermissionsExt;
                let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
                assert_eq!(mode(&path.join("messages")), 0o700);
                for file in files(&path.join("messages")) {
                    assert_eq!(mode(&file), 0o600);
                }
            }
        }
    }
}

/// A user may give the secret key by mistake.
#[test]
fn no_error_quotes_a_key_that_is_not_public() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let public = key(dir, "k");
    run(dir, &quick("fedavg"), "r", &["--sign", "k"]);
    let secret = fs::read_to_string(dir.join("k")).unwrap();
    let secret = secret.lines().last().unwrap();
    fs::write(dir.join("other"), "a private text").unwrap();
    let mut given = vec![
        (
            "k",
            "this is a secret key; give the public one, which is in k.pub",
        ),
        (secret, "there is no such file"),
        ("nofile.pub", "there is no such file"),
        ("other", "this file has no public key"),
    ];
    if cfg!(unix) {
        let mut pipe = std::process::Command::new("mkfifo");
        assert!(pipe.arg(dir.join("pipe")).status().unwrap().success());
        given.push(("pipe", "it is no regular file"));
    }
    for (given, due) in given {
        let (code, said) = checked(dir, &["r", "--key", given]);
        assert!(code == 2 && said.contains(due), "{said}");
        assert!(!said.contains(&secret[..20]) && !said.contains("private text"));
    }
    for given in [&public[..], "k.pub"] {
        let (code, said) = checked(dir, &["r", "--key", given]);
        assert!(code == 0, "{said}");
    }
}

#[test]
fn a_key_that_cannot_sign_is_refused_before_the_run() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    fs::write(dir.join("none"), "no key").unwrap();
    for name in ["none", "missing"] {
        let (code, said) = fails(
            dir,
            &["run", &quick("fedavg"), "--out", "r", "--sign", name],
        );
        assert!(code == 1 && said.contains("key"), "{name}: {said}");
        assert!(!dir.join("r").exists(), "{name}");
    }
    key(dir, "k");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::copy(dir.join("k"), dir.join("open")).unwrap();
        let mode = fs::Permissions::from_mode(0o644);
        fs::set_permissions(dir.join("open"), mode).unwrap();
        let sign = ["run", &quick("fedavg"), "--out", "r", "--sign", "open"];
        let (code, said) = fails(dir, &sign);
        let due = said.contains("has mode 644") && said.contains("`chmod 600`");
        assert!(code == 1 && due && !dir.join("r").exists(), "{said}");
    }
    let (code, said) = fails(dir, &["verify", "--new-key", "k"]);
    assert!(code == 1 && said.contains("is there already"), "{said}");
    let (code, said) = fails(dir, &["verify", "nothing"]);
    assert!(code == 1 && said.contains("is not a run folder"), "{said}");
    let empty = root().join("specs");
    let (code, said) = fails(dir, &["verify", empty.to_str().unwrap()]);
    assert!(code == 1 && said.contains("is not a run folder"), "{said}");
}
