//! `fl audit`: it finds planted faults without a hint, and honest claims hold.

use crate::common::{fails, fl, out, quick, specs, start};
use crate::library;
use crate::neighbours::rows;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// An audit and its exit code.
fn audit(dir: &Path, args: &[&str]) -> (i32, Value) {
    let o = fl(dir, &[&["audit", "--json"], args].concat());
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    let answer = serde_json::from_slice(&o.stdout);
    let answer = answer.unwrap_or_else(|error| panic!("{args:?}: {error}: {said}"));
    (o.status.code().unwrap_or(-1), answer)
}

/// The finding about an observer: of the strongest evidence, if there are several.
fn against<'a>(answer: &'a Value, observer: &str) -> &'a Value {
    let all = answer["findings"].as_array().unwrap().iter();
    let rank = |f: &&Value| (f["verdict"] == "broken", f["shown"]["different"].as_u64());
    all.filter(|f| f["observer"] == observer)
        .max_by_key(rank)
        .unwrap()
}

fn fields(finding: &Value) -> Vec<&str> {
    let all = finding["shown"]["differs"].as_array().unwrap().iter();
    all.map(|d| d["field"].as_str().unwrap()).collect()
}

/// Six clients with their own files.
fn six(dir: &Path, name: &str, protocol: &str, parts: &str) -> String {
    for k in 0..6 {
        fs::write(dir.join(format!("{k}.csv")), rows(20 * k..20 * k + 20)).unwrap();
    }
    fs::write(dir.join("test.csv"), rows(500..540)).unwrap();
    let text = format!(
        "name: {name}
data:
  set: {{ files: {{ format: csv, train: [0.csv, 1.csv, 2.csv, 3.csv, 4.csv, 5.csv], test: test.csv,
    label: class, classes: [low, high],
    columns: {{ a: {{ number: {{ range: [0, 1000] }} }}, b: {{ number: {{ range: [0, 1000] }} }} }} }} }}
protocol: {{ {protocol} }}
parts: {{ model: {{ use: linear }}, {parts} }}
"
    );
    let yaml = format!("{name}.yaml");
    fs::write(dir.join(&yaml), text).unwrap();
    yaml
}

#[test]
fn a_part_that_claims_noise_and_adds_none_is_found() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let hostile = library::beside("fl_hostile").display().to_string();
    let parts = "aggregator: { use: mean, weigh: uniform }, accountant: { use: basic }, \
                 privacy: { use: lies, draws: true }";
    let spec = six(dir, "lies", "use: fedavg, rounds: 1", parts);
    // a dozen runs prove nothing, but what they show looks like no noise
    let few = ["--runs", "12", "--out", "few"];
    let (code, answer) = audit(dir, &[&[&spec, "--plugin", &hostile], &few[..]].concat());
    assert_eq!(code, 0, "{answer}");
    for (observer, due) in [
        ("server", "suspect"),
        ("clients", "not-refuted"),
        ("readers", "suspect"),
    ] {
        assert_eq!(against(&answer, observer)["verdict"], due, "{answer}");
    }
    let text = fs::read_to_string(dir.join("few/audit.md")).unwrap();
    for said in [
        "suspect: noise of the claimed epsilon may look like this too",
        "of 12 runs",
        "--runs",
    ] {
        assert!(text.contains(said), "{text}");
    }
    let (code, answer) = audit(dir, &[&spec, "--plugin", &hostile, "--runs", "30"]);
    assert_eq!(code, 1, "{answer}");
    for observer in ["server", "clients", "readers"] {
        let finding = against(&answer, observer);
        assert_eq!(finding["claim"]["epsilon"], 0.001, "{finding}");
        // of one round the clients see the first model only
        let due = ["broken", "not-refuted"][usize::from(observer == "clients")];
        assert_eq!(finding["verdict"], due, "{finding}");
    }
    // the bound of the runs is above the claim
    let (server, page) = (against(&answer, "server"), dir.join("audits/lies/audit.md"));
    assert_eq!(
        server["shown"]["epsilon"], server["shown"]["most"],
        "{server}"
    );
    let text = fs::read_to_string(page).unwrap();
    assert!(
        text.contains("claim broken: differs in every run"),
        "{text}"
    );
    assert!(text.contains("of 30 runs"), "{text}");
    let claimed = format!("the guarantee is as claimed by {hostile}");
    assert!(text.contains(&claimed), "{text}");
}

#[test]
fn a_client_that_stays_away_and_a_number_of_rows_are_found() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let [hostile, example] = ["fl_hostile", "fl_plugin_example_dynamic"]
        .map(|name| library::beside(name).display().to_string());
    let parts = "accountant: { use: basic }, \
                 privacy: { use: laplace-params, clip: 1.0, scale: 4.0 }";
    let run = |how: &str| {
        let spec = six(
            dir,
            &format!("t-{how}"),
            &format!("use: tattles, how: '{how}'"),
            parts,
        );
        let args = [
            &spec, "--runs", "30", "--plugin", &hostile, "--plugin", &example,
        ];
        audit(dir, &args)
    };
    let (code, honest) = run("");
    assert_eq!(code, 0, "{honest}");
    assert_eq!(against(&honest, "server")["verdict"], "not-refuted");
    // the claim is for a party that is replaced, and the other has another number of rows
    let (code, told) = run("rows");
    assert_eq!(code, 1, "{told}");
    let server = fields(against(&told, "server"));
    assert!(
        server
            .iter()
            .any(|field| field.starts_with("answer of client")),
        "{server:?}"
    );
    let readers = fields(against(&told, "readers"));
    assert!(
        readers.contains(&"outcome.json.outcome.metrics.told"),
        "{readers:?}"
    );
    // a party that is replaced may be replaced by one without data
    let (code, absent) = run("absent");
    assert_eq!(code, 1, "{absent}");
    for observer in ["server", "readers"] {
        let finding = against(&absent, observer);
        let found = fields(finding);
        assert_eq!(finding["verdict"], "broken", "{finding}");
        assert_eq!(finding["change"], "removed", "{finding}");
        assert!(
            found.iter().any(|f| f.starts_with("journal[1]")),
            "{found:?}"
        );
    }
}

const DP: &str = "aggregator: { use: mean, weigh: uniform }, \
    server-privacy: { use: gaussian-update, clip: 1.0, noise-multiplier: 4.0 }, \
    accountant: { use: rdp, delta: 1.0e-5 }";

#[test]
fn honest_claims_hold_and_the_neighbour_may_be_the_users() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let spec = six(dir, "dp", "use: dp-fedavg, rounds: 2", DP);
    let (code, answer) = audit(dir, &[&spec, "--runs", "20"]);
    assert_eq!(code, 0, "{answer}");
    for observer in ["clients", "readers"] {
        let finding = against(&answer, observer);
        assert_eq!(finding["verdict"], "not-refuted", "{finding}");
        let [shown, claim] = ["/shown/epsilon", "/claim/epsilon"]
            .map(|at| finding.pointer(at).unwrap().as_f64().unwrap());
        assert!(shown < claim, "{finding}");
    }
    // without noise at the server no claim is made against it, and it sees the answers
    let server = against(&answer, "server");
    assert_eq!(server["verdict"], "no-claim");
    assert_eq!(
        server["shown"]["epsilon"], server["shown"]["most"],
        "{server}"
    );

    // another file for client 2, by the user
    fs::write(dir.join("other.csv"), rows(700..703)).unwrap();
    let text = fs::read_to_string(dir.join(&spec)).unwrap();
    fs::write(dir.join("other.yaml"), text.replace("2.csv", "other.csv")).unwrap();
    let given = [
        &spec[..],
        "--runs",
        "10",
        "--neighbour",
        "other.yaml",
        "--out",
        "given",
    ];
    let (code, answer) = audit(dir, &given);
    assert_eq!(code, 0, "{answer}");
    assert!(
        answer["compared"][0]
            .as_str()
            .unwrap()
            .contains("other.yaml"),
        "{answer}"
    );
    let set = "data.set.files.train=[0.csv, 1.csv, other.csv, 3.csv, 4.csv, 5.csv]";
    let given = [
        &spec[..],
        "--runs",
        "10",
        "--neighbour-set",
        set,
        "--out",
        "set",
    ];
    let (_, same) = audit(dir, &given);
    assert_eq!(same["findings"], answer["findings"]);
    // more than the data differs
    fs::write(
        dir.join("other.yaml"),
        text.replace("rounds: 2", "rounds: 3"),
    )
    .unwrap();
    let args = [
        "audit",
        &spec,
        "--neighbour",
        "other.yaml",
        "--out",
        "wrong",
    ];
    let (code, said) = fails(dir, &args);
    assert!(
        code == 2 && said.contains("neighbours differ in `data` only"),
        "{said}"
    );
}

/// The quick specs with an accountant.
fn accounted() -> Vec<String> {
    let accounts = |path: &PathBuf| fs::read_to_string(path).unwrap().contains("accountant:");
    let mut found = specs("quick");
    found.retain(accounts);
    assert!(found.len() >= 8, "{found:?}");
    found.iter().map(|p| p.to_str().unwrap().into()).collect()
}

/// No file, count, size or text may differ in every run.
#[test]
fn no_quick_spec_with_a_guarantee_tells_its_neighbours_apart() {
    let d = tempfile::tempdir().unwrap();
    let mut claims = 0;
    for spec in accounted() {
        let name = Path::new(&spec).file_stem().unwrap().to_str().unwrap();
        // sampling alone needs rows to hide among
        let rows = if name == "fedmd-nfdp" { "1000" } else { "12" };
        let args = [&spec[..], "--runs", "10", "--rows", rows, "--out", name];
        let (code, answer) = audit(d.path(), &args);
        assert_eq!(code, 0, "{name}: {answer}");
        for finding in answer["findings"].as_array().unwrap() {
            if finding["claim"].is_object() {
                claims += 1;
                assert_eq!(fields(finding), [""; 0], "{name}: {finding}");
            }
        }
    }
    assert!(claims >= 12, "{claims}");
}

#[test]
fn exact_an_audit_goes_on_after_a_kill_and_does_not_depend_on_threads() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let spec = six(dir, "dp", "use: dp-fedavg, rounds: 2", DP);
    let run = |to: &str, more: &[&str]| {
        audit(dir, &[&[&spec, "--runs", "12", "--out", to], more].concat()).1
    };
    let whole = run("whole", &["--threads", "1"]);
    // killed after some runs, with half a line
    let args = ["audit", &spec, "--runs", "12", "--out", "killed"];
    let mut child = start(dir, &args);
    let records = dir.join("killed/runs.jsonl");
    let count = || fs::read_to_string(&records).map_or(0, |text| text.lines().count());
    while count() < 3 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let text = fs::read_to_string(&records).unwrap();
    fs::write(&records, &text[..text.len() - 7]).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // it has what the server saw
        let mode = fs::metadata(&records).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
    assert_eq!(run("killed", &[]), whole);
    assert!(!dir.join("killed/work").exists());
    // a finished audit is not done again, and another one is not mixed with it
    let before = fs::read(&records).unwrap();
    assert_eq!(run("killed", &[]), whole);
    assert_eq!(fs::read(&records).unwrap(), before);
    let other = ["audit", &spec, "--runs", "13", "--out", "killed"];
    let (code, said) = fails(dir, &other);
    assert!(code == 2 && said.contains("has another audit"), "{said}");
    assert_ne!(run("seed", &["--seed", "1"])["digest"], whole["digest"]);
}

#[test]
fn canaries_in_one_run_show_what_its_models_have_learnt() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    // twenty clients with four rows each, which they learn by heart
    let spec = quick("fedavg");
    let args = [
        "--rows",
        "4",
        "--unit",
        "example",
        "--set",
        "protocol.local.epochs=30",
        "--set",
        "data.clients=20",
    ];
    let args = [&[&spec[..], "--canaries", "60"], &args[..]].concat();
    let (code, answer) = audit(dir, &args);
    assert_eq!(code, 0, "{answer}");
    let shown = |answer: &Value, observer: &str| {
        against(answer, observer)["shown"]["epsilon"]
            .as_f64()
            .unwrap()
    };
    assert!(shown(&answer, "server") > 0.5, "{answer}");
    let much = six(
        dir,
        "noisy",
        "use: dp-fedavg, rounds: 2",
        &DP.replace("4.0", "100.0"),
    );
    let (code, noisy) = audit(dir, &[&much, "--canaries", "50", "--unit", "example"]);
    assert_eq!(code, 0, "{noisy}");
    assert_eq!(shown(&noisy, "readers"), 0.0, "{noisy}");
    let (code, said) = fails(dir, &["audit", &much, "--canaries", "8", "--out", "few"]);
    assert!(
        code == 2 && said.contains("each canary is a client"),
        "{said}"
    );
}

#[test]
fn a_ledger_of_the_spec_stays_as_it_is() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let spec = six(dir, "dp", "use: dp-fedavg, rounds: 1", DP);
    out(
        dir,
        &[
            "ledger",
            "init",
            "six.ledger",
            "--epsilon",
            "3",
            "--delta",
            "1e-4",
        ],
    );
    let before = fs::read(dir.join("six.ledger")).unwrap();
    let set = ["--set", "ledger=six.ledger"];
    let (code, answer) = audit(dir, &[&[&spec[..], "--runs", "10"], &set[..]].concat());
    assert_eq!(code, 0, "{answer}");
    assert_eq!(fs::read(dir.join("six.ledger")).unwrap(), before);
    let notes = answer["notes"].to_string();
    assert!(notes.contains("not in the ledger"), "{notes}");
    let wrong = [quick("fedavg"), "--client".into(), "99".into()];
    let args: Vec<&str> = wrong.iter().map(String::as_str).collect();
    let (code, said) = fails(dir, &[&["audit"], &args[..]].concat());
    assert!(code == 2 && said.contains("the clients are 0 to"), "{said}");
}
