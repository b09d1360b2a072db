//! What `fl study` says of all runs on the same rows.
use crate::common::{fl, json, out, root};
use fl_core::privacy::UpperBound;
use std::fs;
use std::process::Output;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn runs_on_the_same_rows_have_a_total() {
    let dir = tempfile::tempdir().unwrap();
    let base = root()
        .join("specs/quick/dp-fedavg.yaml")
        .display()
        .to_string();
    let study_of = |seeds: &str, rows: &str| {
        let text = format!(
            "name: s\ntables:\n- name: t\n  base: '{base}'\n  seeds: {seeds}\n  columns: [{{ measure: epsilon.readers, digits: 4 }}]\n{rows}"
        );
        fs::write(dir.path().join("s.yaml"), text).unwrap();
        let done = fl(dir.path(), &["study", "s.yaml"]);
        assert!(done.status.success(), "{}", text_of(&done));
        let csv = fs::read_to_string(dir.path().join("runs/studies/s-runs.csv")).unwrap();
        let page = fs::read_to_string(dir.path().join("runs/studies/s.html")).unwrap();
        (String::from_utf8(done.stdout).unwrap(), csv, page)
    };
    let study = |rows: &str| study_of("1", rows);
    let (printed, csv, page) = study("  grid: { protocol.rounds: [2, 3, 4] }\n");
    // the releases of all of them are those of one run of nine rounds
    let nine = [
        "run",
        &base,
        "--json",
        "--out",
        "nine",
        "--set",
        "protocol.rounds=9",
    ];
    let nine = json(dir.path(), &nine);
    let nine = nine["privacy"]["readers"]["epsilon"].as_f64().unwrap();
    let tables = fs::read_to_string(dir.path().join("runs/studies/s.csv")).unwrap();
    let cells = |line: &str| line.split(',').map(String::from).collect::<Vec<_>>();
    let all = csv.lines().map(cells).filter(|c| c[3] == "1");
    let readers = all.filter(|c| c[6] == "epsilon.readers");
    let epsilons: Vec<f64> = readers.map(|c| c[7].parse().unwrap()).collect();
    assert_eq!(epsilons.len(), 3, "{csv}");
    assert!(
        nine < epsilons.iter().sum::<f64>(),
        "composed, and not added"
    );
    let total = format!("epsilon {} at delta 1e-3 ", UpperBound(nine));
    let line = format!("| blobs, seed 1 | 3 | readers of the results | {total}");
    assert!(printed.contains(&line), "no {line} in\n{printed}");
    assert!(printed.contains("composes all releases |"), "{printed}");
    // against the server there is nothing to add
    assert!(!printed.contains("| the server |"), "{printed}");
    assert!(page.contains(&total), "{page}");
    let begin = "\"blobs, seed 1\",all,epsilon.readers,3,";
    let (_, number) = tables.split_once(begin).expect("the total");
    let number: f64 = number.split(',').next().unwrap().parse().unwrap();
    assert!((number / nine - 1.0).abs() < 1e-12, "{number} {nine}");
    // two accountants: their results add
    let rows = "  rows: [{ name: one }, { name: other, set: { parts.accountant: { use: pld, delta: 1e-4 } } }]\n";
    let (printed, csv, _) = study(rows);
    let line = |line: &&str| line.contains(",,1,") && line.contains("epsilon.readers");
    let value = |line: &str| line.split(',').nth(7).unwrap().parse::<f64>().unwrap();
    let both: f64 = csv.lines().filter(line).map(value).sum();
    let told = format!(
        "| 2 | readers of the results | epsilon {} at delta 1.1e-3 ",
        UpperBound(both)
    );
    assert!(printed.contains(&told), "no {told} in\n{printed}");
    assert!(
        printed.contains("their epsilons and deltas add"),
        "{printed}"
    );
    // a run that failed may have released something, in each of its rounds
    let text = fs::read_to_string(dir.path().join("s.yaml")).unwrap();
    let fails = "{ name: failing, set: { faults.inject: [{ what: nan, share: 0.1 }] } }";
    let text = text.replace("rows: [", &format!("rows: [{fails}, "));
    fs::write(dir.path().join("s.yaml"), text).unwrap();
    let done = fl(dir.path(), &["study", "s.yaml"]);
    assert_eq!(done.status.code(), Some(1), "{}", text_of(&done));
    let printed = String::from_utf8(done.stdout).unwrap();
    // its book says what that is at most
    let due = "; one run failed, and nothing covers that a row may be why";
    assert!(printed.contains(due), "{printed}");
    let tables = fs::read_to_string(dir.path().join("runs/studies/s.csv")).unwrap();
    let mut totals = tables.lines();
    let total = totals.find(|line| line.contains("all,epsilon.readers"));
    assert!(total.unwrap().contains(due), "{tables}");
    let begin = "| 3 | readers of the results | epsilon ";
    let (_, total) = printed.split_once(begin).expect("a total");
    let total = total.split(' ').next().unwrap().parse::<f64>().unwrap();
    assert!(total > both, "{total} {both}");
    let kept = fs::read_dir(dir.path().join("runs/studies/kept")).unwrap();
    let folders = kept.map(|folder| folder.unwrap().path());
    let failed =
        folders.filter(|at| at.join("run.json").exists() && !at.join("outcome.json").exists());
    failed.for_each(|folder| fs::write(folder.join("run.json"), "").unwrap());
    let printed = fl(dir.path(), &["study", "s.yaml", "--no-runs"]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    let told = "| 2 | readers of the results | nothing: a failed run may have released more";
    assert!(printed.contains(told), "{printed}");
    let tables = fs::read_to_string(dir.path().join("runs/studies/s.csv")).unwrap();
    let total = tables
        .lines()
        .find(|line| line.contains("all,epsilon.readers"));
    assert!(total.unwrap().contains("a failed run may have"), "{tables}");
    // a run that guarantees nothing takes the guarantee of the others with it
    let rows = "  rows: [{ name: private }, { name: bare, set: { protocol.use: fedavg, parts.server-privacy: null, parts.accountant: null } }]\n";
    let open = rows.replace("epsilon.readers", "bytes.up");
    let (printed, ..) = study(&open);
    assert!(
        printed
            .contains("| 2 | readers of the results | nothing: the run has no accountant (in t, bare (seed 1))"),
        "{printed}"
    );
    // each seed deals the rows of a file to other parties
    fs::write(dir.path().join("all.csv"), crate::neighbours::rows(0..120)).unwrap();
    fs::write(
        dir.path().join("test.csv"),
        crate::neighbours::rows(500..540),
    )
    .unwrap();
    let data = "data: { set: { files: { format: csv, train: all.csv, test: test.csv, label: class, classes: [low, high], columns: { a: { number: { range: [0, 1000] } }, b: { number: { range: [0, 1000] } } } } }, clients: 100 }";
    let file = |name: &str, data: &str| {
        let text = fs::read_to_string(&base).unwrap();
        let (before, rest) = text.split_once("\ndata:").unwrap();
        let (_, after) = rest.split_once("\nprotocol:").unwrap();
        let text = format!("{before}\n{data}\nprotocol:{after}");
        fs::write(dir.path().join(name), text).unwrap();
    };
    file("dealt.yaml", data);
    let (printed, ..) = study_of("1-2", "  rows: [{ name: dealt, base: dealt.yaml }]\n");
    assert!(
        printed.contains(
            "| 2 | readers of the results | nothing: the runs share the rows out to parties differently"
        ),
        "{printed}"
    );
    // the same rows in another file and in another order
    let mut turned: Vec<usize> = (0..120).collect();
    turned.reverse();
    fs::write(
        dir.path().join("turned.csv"),
        crate::neighbours::rows(turned),
    )
    .unwrap();
    file("turned.yaml", &data.replace("all.csv", "turned.csv"));
    let both = "  rows: [{ name: first, base: dealt.yaml }, { name: turned, base: turned.yaml }]\n";
    let (printed, ..) = study(both);
    assert!(
        printed.contains("| files | 2 | readers of the results |"),
        "{printed}"
    );
    // single runs on rows of their own have nothing to add
    let (printed, ..) = study("  rows: [{ name: private }]\n");
    assert!(!printed.contains("Privacy of all runs"), "{printed}");
}

#[test]
fn totals_are_those_that_a_hand_computes() {
    let dir = tempfile::tempdir().unwrap();
    let study = |base: &str, set: [&str; 2]| {
        let base = root().join(format!("specs/quick/{base}.yaml"));
        let [one, two] = set;
        let text = format!(
            "name: s\ntables:\n- name: t\n  base: '{}'\n  seeds: 1\n  columns: [{{ measure: epsilon.readers }}]\n  rows: [{{ name: one, set: {{ {one} }} }}, {{ name: two, set: {{ {two} }} }}]\n",
            base.display()
        );
        fs::write(dir.path().join("s.yaml"), text).unwrap();
        out(dir.path(), &["study", "s.yaml"])
    };
    // Ten rounds each, and clients whose rows are others: of one client the sum of 20 releases has
    // mu = sqrt(20) 2 clip / sigma = 2 sqrt(20). Balle and Wang 2018: Phi(mu/2 - e/mu) - exp(e)
    // Phi(-mu/2 - e/mu) = 1e-5 for e = 77.3301; alone 46.2112 each.
    let gaussian = study(
        "fedavg-private",
        ["parts.model.lr: 0.05", "parts.model.lr: 0.04"],
    );
    for observer in ["the server", "the other clients", "readers of the results"] {
        let total = format!("| 2 | {observer} | epsilon 77.3301 at delta 1e-5 for each party ");
        assert!(gaussian.contains(&total), "no {total} in\n{gaussian}");
    }
    // pure guarantees add: 20 samples, 4 scores, sensitivity 2 clip each, scale 1: 640 and 320
    let laplace = study(
        "fedkd-priced",
        ["budget.epsilon: 1000", "parts.privacy.clip: 2.0"],
    );
    let total = "| 2 | readers of the results | epsilon 960.0000 at delta 0 for each party ";
    assert!(laplace.contains(total), "no {total} in\n{laplace}");
    assert!(!laplace.contains("| 2 | the server |"), "{laplace}");
    // the noise of these specs is seeded, and the table says so below
    assert!(
        laplace.contains("Epsilon is an estimate, and no guarantee"),
        "{laplace}"
    );
    // an example that is added or removed is not one that is replaced
    let draws = study(
        "dp-sgd",
        [
            "protocol.sampling.draw: poisson",
            "protocol.sampling.draw: fixed",
        ],
    );
    let none = "| 2 | readers of the results | nothing: guarantees for an example that is added or removed, and for one that is replaced, do not add up |";
    assert!(draws.contains(none), "no {none} in\n{draws}");
    // a party is not an example
    let units = study(
        "fedkt-l1",
        [
            "parts.accountant.unit: party",
            "parts.accountant.unit: example",
        ],
    );
    let none = "| 2 | readers of the results | nothing: guarantees for one example and for one party do not add up |";
    assert!(units.contains(none), "no {none} in\n{units}");
}

fn text_of(done: &Output) -> String {
    text(&done.stderr)
}

#[test]
fn a_run_of_a_study_that_is_not_done_counts_in_its_total() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let base = root().join("specs/quick/dp-fedavg.yaml");
    let base = base.display();
    let text = format!(
        "name: s\ntables:\n- name: t\n  base: '{base}'\n  seeds: 1\n  columns: [mean]\n  grid: {{ protocol.rounds: [2, 3] }}\n"
    );
    fs::write(dir.join("s.yaml"), text).unwrap();
    let base = base.to_string();
    let longer = [
        "--set",
        "protocol.rounds=3",
        "--stop-after",
        "1",
        "--out",
        "r",
    ];
    out(dir, &[&["run", &base], &longer[..]].concat());
    let manifest = fs::read_to_string(dir.join("r/run.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let key = &manifest["spec_sha256"].as_str().unwrap()[..24];
    let kept = dir.join("runs/studies/kept");
    fs::create_dir_all(&kept).unwrap();
    out(dir, &["study", "s.yaml", "--only", "t/rounds = 2"]);
    fs::rename(dir.join("r"), kept.join(key)).unwrap();
    let five = ["--set", "protocol.rounds=5", "--json", "--out", "five"];
    let five = json(dir, &[&["run", &base], &five[..]].concat());
    let five = five["privacy"]["readers"]["epsilon"].as_f64().unwrap();
    // the exit code says that a table lacks a run
    let shown = fl(dir, &["study", "s.yaml", "--no-runs"]).stdout;
    let printed = String::from_utf8(shown).unwrap();
    let total = format!(
        "| 2 | readers of the results | epsilon {} at",
        UpperBound(five)
    );
    assert!(printed.contains(&total), "no {total} in {printed}");
    assert!(
        printed.contains("; one run is not done, and if it failed"),
        "{printed}"
    );
}
