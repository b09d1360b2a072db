//! `fl report` and `fl compare`: what a page shows is what the journal has.
use crate::common::{fails, fl, flat, json, out, quick, root};
use fl_core::privacy::UpperBound;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

fn spec(name: &str) -> String {
    root()
        .join(format!("specs/quick/{name}.yaml"))
        .display()
        .to_string()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Rows of every table, each as its cells with a bar between them.
fn rows(page: &str) -> Vec<String> {
    let row = |row: &str| {
        let cells = row
            .split("</td>")
            .filter_map(|cell| Some(cell.rsplit_once('>')?.1.to_string()));
        cells.collect::<Vec<_>>().join("|")
    };
    page.split("<tr>")
        .skip(1)
        .filter_map(|r| r.split_once("</tr>"))
        .map(|(r, _)| row(r))
        .collect()
}

/// As the page writes numbers that are not whole.
fn shown(value: &Value) -> String {
    let value = value.as_f64().unwrap();
    if value.fract() == 0.0 {
        format!("{value}")
    } else {
        format!("{value:.4}")
    }
}

/// A value and its deviation, with two significant digits of the deviation.
fn with_spread(value: &Value, std: &Value) -> String {
    let of = std.as_f64().unwrap();
    if of == 0.0 {
        return format!("{} ± 0", shown(value));
    }
    let digits = (1.0 - libm::log10(of).floor()).max(0.0) as usize;
    format!("{:.digits$} ± {of:.digits$}", value.as_f64().unwrap())
}

fn grouped(n: u64) -> String {
    match n {
        0..1000 => n.to_string(),
        _ => format!("{},{:03}", grouped(n / 1000), n % 1000),
    }
}

fn sent(e: &Value) -> u64 {
    e["bytes_down"]["values"].as_u64().unwrap() + e["bytes_down"]["keys"].as_u64().unwrap()
}

fn received(e: &Value) -> u64 {
    let up = &e["bytes_up"];
    up["values"].as_u64().unwrap()
        + up["keys"].as_u64().unwrap()
        + e["bytes_envelope"].as_u64().unwrap()
}

#[test]
fn every_fact_on_a_page_is_one_of_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    for (name, evaluations) in [("selective-fd", "6"), ("fedavg", "1"), ("fedkt-l1", "1")] {
        out(
            dir.path(),
            &[
                "run",
                &spec(name),
                "--out",
                name,
                "--set",
                &format!("evaluate.every={evaluations}"),
            ],
        );
        let folder = dir.path().join(name);
        let page = fs::read_to_string(folder.join("report.html")).expect("a run leaves its page");
        let rows = rows(&page);
        let has = |row: &str| {
            assert!(
                rows.iter().any(|r| r == row),
                "{name}: no row `{row}` in\n{}",
                rows.join("\n")
            )
        };
        let (journal, metrics) = (
            lines(&folder.join("journal.jsonl")),
            lines(&folder.join("metrics.jsonl")),
        );

        for m in &metrics {
            let step = m["step"].as_str().unwrap();
            let std = if m["std"].is_null() {
                String::new()
            } else {
                shown(&m["std"])
            };
            let of_name: Vec<&Value> = metrics.iter().filter(|o| o["name"] == m["name"]).collect();
            if of_name.len() > 1 {
                // what had crossed up to the last question of the step
                let last = journal
                    .iter()
                    .rposition(|e| e["step"] == m["step"])
                    .unwrap();
                let bytes: u64 = journal[..=last].iter().map(|e| sent(e) + received(e)).sum();
                has(&format!(
                    "{step}|{}|{std}|{}",
                    shown(&m["value"]),
                    grouped(bytes)
                ));
            }
            if of_name.last() == Some(&m) {
                let value = if std.is_empty() {
                    shown(&m["value"])
                } else {
                    with_spread(&m["value"], &m["std"])
                };
                let row = format!("{}|{value}|{step}|", m["name"].as_str().unwrap());
                assert!(
                    rows.iter().any(|r| r.starts_with(&row)),
                    "{name}: no row `{row}`"
                );
                for (client, value) in m["each"].as_array().into_iter().flatten().enumerate() {
                    has(&format!("{client}|{}", shown(value)));
                }
                for (r, row) in m["confusion"].as_array().into_iter().flatten().enumerate() {
                    for (c, count) in row.as_array().unwrap().iter().enumerate() {
                        assert!(
                            page.contains(&format!(
                                "true class {r}, predicted class {c}: {count}<"
                            )),
                            "{name}: {r}, {c}"
                        );
                    }
                }
            }
        }
        let mut questions: Vec<&Value> = journal.iter().map(|e| &e["question"]).collect();
        questions.dedup();
        for question in questions {
            let of: Vec<&Value> = journal
                .iter()
                .filter(|e| e["question"] == *question)
                .collect();
            let answers: u64 = of
                .iter()
                .map(|e| {
                    e["clients"].as_u64().unwrap() - e["dropped"].as_array().unwrap().len() as u64
                })
                .sum();
            let (down, up) = (
                of.iter().map(|e| sent(e)).sum(),
                of.iter().map(|e| received(e)).sum(),
            );
            let text = |v: &Value| v.as_str().unwrap().to_string();
            has(&[
                text(question),
                grouped(of.len() as u64),
                grouped(answers),
                grouped(down),
                text(&of[0]["down"]),
                grouped(up),
                text(&of[0]["up"]),
            ]
            .join("|"));
        }
        let costs = lines(&folder.join("costs.jsonl"));
        for cost in costs.iter().filter(|cost| cost["privacy"].is_object()) {
            let epsilon = match &cost["privacy"]["readers"] {
                Value::Null => "nothing is guaranteed".to_string(),
                epsilon => shown(epsilon),
            };
            has(&format!(
                "{}|readers of the results|{epsilon}",
                cost["step"].as_str().unwrap()
            ));
        }
        let steps = |all: &[Value]| {
            let mut steps: Vec<Value> = all.iter().map(|line| line["step"].clone()).collect();
            steps.dedup();
            steps
        };
        let asking = steps(&journal);
        let complete = steps(&costs);
        assert!(
            asking.iter().all(|step| complete.contains(step)),
            "{name}: {complete:?}"
        );
        let report = fs::read_to_string(folder.join("report.md")).unwrap();
        let digest = report.rsplit('`').nth(1).unwrap();
        assert_eq!(digest.len(), 64);
        assert!(page.contains(digest), "{name}: the digest");
        let held = report
            .split("| client | examples per class |")
            .nth(1)
            .unwrap_or("");
        for row in held.lines().filter(|l| l.starts_with("| ")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            for (class, count) in cells[2].split(' ').enumerate() {
                assert!(
                    page.contains(&format!("class {class}, client {}: {count}<", cells[1])),
                    "{name}: {row}"
                );
            }
        }
        let spec = fs::read_to_string(folder.join("spec.yaml")).unwrap();
        assert!(
            page.contains(
                &spec
                    .replace('&', "&amp;")
                    .replace('<', "&lt;")
                    .replace('>', "&gt;")
                    .replace('"', "&quot;")
            )
        );
    }
}

#[test]
fn a_client_that_is_missing_is_not_another() {
    let dir = tempfile::tempdir().unwrap();
    let faults = "faults={on-error: drop, inject: [{what: straggle, clients: 1, rounds: 1}, \
                  {what: straggle, clients: 3, rounds: 2}]}";
    let sets = [
        "parts.attack={use: sign-flip}",
        "protocol.rounds=2",
        "evaluate.every=1",
        faults,
    ];
    let spec = spec("attacked");
    let mut args = vec!["run", &spec, "--out", "r"];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    out(dir.path(), &args);
    out(dir.path(), &["export", "r", "--csv", "m.csv"]);
    let csv = fs::read_to_string(dir.path().join("m.csv")).unwrap();
    let page = fs::read_to_string(dir.path().join("r/report.html")).unwrap();
    let (_, bars) = page.split_once("<h2>Metrics by client</h2>").unwrap();
    let (_, bars) = bars.split_once("<h3>attack.shift</h3>").unwrap();
    let (bars, _) = bars.split_once("</figure>").unwrap();
    let metrics = lines(&dir.path().join("r/metrics.jsonl"));
    for (round, absent) in [(1, 1), (2, 3)] {
        let is = |m: &&Value| m["name"] == "attack.shift" && m["round"] == round;
        let m = metrics.iter().find(is).unwrap();
        let present: Vec<u64> = (0..10).filter(|id| *id != absent).collect();
        let each = m["each"].as_array().unwrap();
        assert_eq!(each.len(), present.len());
        for (client, value) in present.iter().zip(each) {
            let row = format!("r,round {round},{round},attack.shift,{client},{value},,");
            assert!(csv.lines().any(|line| line == row), "no {row} in\n{csv}");
            if round == 2 {
                let bar = format!("client {client}: {}<", shown(value));
                assert!(bars.contains(&bar), "no `{bar}` in\n{bars}");
            }
        }
        assert_eq!(m["clients"], Value::from(present));
    }
    assert!(!bars.contains("client 3: "));
}

#[test]
fn runs_are_compared_on_a_page_and_in_words() {
    let dir = tempfile::tempdir().unwrap();
    for (out_, seed) in [("a", "1"), ("again", "1"), ("b", "2")] {
        out(
            dir.path(),
            &[
                "run",
                &spec("fedavg"),
                "--out",
                out_,
                "--set",
                &format!("seed={seed}"),
            ],
        );
    }
    let same = fl(dir.path(), &["compare", "a", "again"]);
    let text = String::from_utf8(same.stdout).unwrap();
    assert!(same.status.success() && text.contains("alike"), "{text}");
    let other = fl(dir.path(), &["compare", "a", "b"]);
    let text = String::from_utf8(other.stdout).unwrap();
    assert_eq!(other.status.code(), Some(1), "{text}");
    assert!(
        text.contains("seed  1 -> 2") && text.contains("round 1"),
        "{text}"
    );
    let json = fl(dir.path(), &["compare", "a", "b", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["alike"], &json["specs"][0]["path"]),
        (&false.into(), &"seed".into())
    );
    assert_eq!(json["parts"]["steps"][0], "round 1", "{json}");

    assert_eq!(
        out(dir.path(), &["report", "a", "again", "b"]).trim(),
        "a/comparison.html"
    );
    let page = fs::read_to_string(dir.path().join("a/comparison.html")).unwrap();
    assert!(
        rows(&page).contains(&"seed|1|1|2".to_string()),
        "{:?}",
        rows(&page)
    );
    let (code, error) = fails(dir.path(), &["report", "nowhere"]);
    assert!(code == 2 && error.contains("nowhere"), "{code}: {error}");
    let (code, error) = fails(dir.path(), &["compare", "a", "nowhere"]);
    assert!(code == 2 && error.contains("nowhere"), "{code}: {error}");
}

/// Changes a field of a JSON file.
fn change(path: &Path, by: impl Fn(&mut Value)) {
    let mut text: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    by(&mut text);
    fs::write(path, text.to_string()).unwrap();
}

#[test]
fn runs_of_one_spec_that_differ_have_a_reason() {
    let d = tempfile::tempdir().unwrap();
    let (dir, spec) = (d.path(), spec("fedavg"));
    let short = ["--set", "protocol.rounds=2"];
    for name in ["a", "b"] {
        out(dir, &[&["run", &spec, "--out", name][..], &short].concat());
    }
    let processor = |name: &str| {
        let text = fs::read(dir.join(name).join("run.json")).unwrap();
        let run: Value = serde_json::from_slice(&text).unwrap();
        run["processor"].as_str().unwrap().to_string()
    };
    assert!(processor("a").starts_with(std::env::consts::ARCH));
    let alike = json(dir, &["compare", "a", "b", "--json"]);
    assert_eq!(alike["reasons"].as_array().unwrap().len(), 0, "{alike}");
    // another processor alone is no difference
    change(&dir.join("b/run.json"), |run| {
        run["processor"] = "z80".into()
    });
    assert!(out(dir, &["compare", "a", "b"]).contains("a and b: alike"));
    // as if that processor had trained otherwise in round 2
    let journal = dir.join("b/journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let (first, last) = text.trim_end().rsplit_once('\n').unwrap();
    let mut last: Value = serde_json::from_str(last).unwrap();
    last["digest"] = "0".repeat(64).into();
    fs::write(&journal, format!("{first}\n{last}\n")).unwrap();
    change(&dir.join("b/outcome.json"), |all| {
        all["outcome"]["digest"] = "0".repeat(64).into();
    });
    let said = fl(dir, &["compare", "a", "b"]);
    let said = String::from_utf8(said.stdout).unwrap();
    let reason = format!(
        "possible reason: another processor: {} -> z80",
        processor("a")
    );
    assert!(
        said.contains("step     round 2") && said.contains(&reason),
        "{said}"
    );
    let said = fl(dir, &["compare", "a", "b", "--json"]);
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(said["reasons"][0]["what"], "processor", "{said}");
    assert_eq!(said["reasons"].as_array().unwrap().len(), 1, "{said}");
    // a stopped run that goes on says so, and keeps its digest
    let stop = ["--stop-after", "1", "--out", "c"];
    out(dir, &[&["run", &spec][..], &short, &stop].concat());
    change(&dir.join("c/run.json"), |run| {
        run["processor"] = "z80".into()
    });
    let resumed = fl(dir, &["run", "--resume", "c", "--json"]);
    let note = String::from_utf8(resumed.stderr).unwrap();
    assert!(
        note.contains("goes on on another processor") && note.contains("z80"),
        "{note}"
    );
    let resumed: Value = serde_json::from_slice(&resumed.stdout).unwrap();
    let whole = json(dir, &["compare", "a", "c", "--json"]);
    assert_eq!(resumed["digest"], whole["digests"][0], "{whole}");
    let page = out(dir, &["report", "c"]);
    let page = fs::read_to_string(page.trim())
        .unwrap_or_else(|_| fs::read_to_string(dir.join("c/report.html")).unwrap());
    assert!(page.contains("on z80, then "), "the page names both");
}

#[test]
fn a_page_of_several_runs_has_their_total() {
    let d = tempfile::tempdir().unwrap();
    let (dir, spec) = (d.path(), spec("dp-sgd"));
    for (name, lr) in [("a", "0.5"), ("b", "0.4")] {
        let lr = format!("parts.model.lr={lr}");
        out(dir, &["run", &spec, "--out", name, "--set", &lr]);
    }
    let twice = ["run", &spec, "--json", "--set", "protocol.rounds=10"];
    let twice = json(dir, &twice)["privacy"]["server"]["epsilon"].as_f64();
    let total = format!("epsilon {} at delta 1e-5", UpperBound(twice.unwrap()));
    out(dir, &["report", "a", "b", "--out", "both.html"]);
    let page = fs::read_to_string(dir.join("both.html")).unwrap();
    assert!(
        page.contains("Privacy of all runs on the same rows"),
        "no total"
    );
    assert_eq!(page.matches(&total).count(), 3, "no {total} in\n{page}");
    // without its releases a run's price is not known
    for name in ["a", "b"] {
        change(&dir.join(name).join("outcome.json"), |all| {
            all.as_object_mut().unwrap().remove("releases").unwrap();
        });
    }
    out(dir, &["report", "a", "b", "--out", "both.html"]);
    let page = fs::read_to_string(dir.join("both.html")).unwrap();
    assert_eq!(page.matches("nothing: the price of").count(), 3, "{page}");
}

#[test]
fn a_run_whose_page_cannot_be_written_is_done_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    out(
        dir.path(),
        &["run", &spec("fedavg"), "--out", "r", "--stop-after", "2"],
    );
    // where the page would go, there is a folder
    fs::create_dir_all(dir.path().join("r/report.html/in-the-way")).unwrap();
    let done = fl(dir.path(), &["run", "--resume", "r"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success() && said.contains("note: the run's page could not be written"),
        "{said}"
    );
    assert!(dir.path().join("r/outcome.json").exists());
}

#[test]
fn pages_are_looked_at_in_two_widths() {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = names.iter().find(|n| {
        Command::new(n)
            .arg("--version")
            .output()
            .is_ok_and(|o| o.status.success())
    });
    let Some(chromium) = found else {
        eprintln!("skipped: no Chromium on this machine, so nobody looks at the pages");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for (out_, seed) in [("one", "1"), ("two", "2"), ("three", "3")] {
        let rounds = format!("seed={seed}");
        out(
            dir.path(),
            &[
                "run",
                &spec("selective-fd"),
                "--out",
                out_,
                "--set",
                &rounds,
                "--set",
                "evaluate.every=2",
            ],
        );
    }
    out(dir.path(), &["report", "one", "two", "three"]);
    for (name, page) in [("run", "one/report.html"), ("three", "one/comparison.html")] {
        for width in [420, 1280] {
            let picture =
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}-{width}.png"));
            let _ = fs::remove_file(&picture);
            let url = format!("file://{}", dir.path().join(page).display());
            let (window, shot) = (
                format!("--window-size={width},5000"),
                format!("--screenshot={}", picture.display()),
            );
            let done = Command::new(chromium)
                .args([
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--hide-scrollbars",
                    &window,
                    &shot,
                    &url,
                ])
                .output()
                .unwrap();
            assert!(done.status.success(), "{done:?}");
            let png = fs::read(&picture).expect("a picture");
            assert!(
                png.starts_with(b"\x89PNG") && png.len() > 20_000,
                "{} bytes in {}",
                png.len(),
                picture.display()
            );
        }
    }
}

#[test]
fn a_report_for_a_paper_has_tables_pictures_and_references() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let median = "parts.aggregator={use: trimmed-mean, trim: 0.2}";
    out(d, &["run", &spec("fedavg"), "--out", "a", "--set", median]);
    out(d, &["run", &spec("fedper"), "--out", "b"]);
    let said = out(d, &["report", "a", "b", "--paper", "paper"]);
    let read = |name: &str| fs::read_to_string(d.join("paper").join(name)).unwrap();
    for name in ["results.csv", "results.tex", "methods.bib", "accuracy.svg"] {
        assert!(said.contains(name) && !read(name).is_empty(), "{said}");
    }
    // of several runs the page stands there too, and not in one of them
    assert!(said.contains("paper/comparison.html") && !d.join("a/comparison.html").exists());
    let pdf = fs::read(d.join("paper/accuracy.pdf")).unwrap();
    assert!(said.contains("accuracy.pdf") && pdf.starts_with(b"%PDF-"));
    let csv = read("results.csv");
    // scores come before losses
    assert!(csv.starts_with(",a,b\naccuracy,0."), "{csv}");
    assert!(read("results.tex").contains("\\begin{tabular}{lrr}"));
    // each method's own paper, and no other of the same part
    let bib = read("methods.bib");
    for (title, there) in [
        ("Communication-efficient learning of deep networks", true),
        ("{Byzantine}-robust distributed learning", true),
        ("local batch", false),
        ("personalization layers", true),
    ] {
        assert_eq!(bib.contains(title), there, "{title}: {bib}");
    }
}

#[test]
fn what_readers_must_know_of_an_epsilon_stands_in_tables_for_a_paper() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    for (name, noise) in [("a", "noise=seeded"), ("b", "noise=system")] {
        let short = ["--set", "protocol.rounds=2", "--set", noise];
        let spec = spec("dp-fedavg");
        out(d, &[&["run", &spec, "--out", name], &short[..]].concat());
    }
    out(d, &["report", "a", "b", "--paper", "paper"]);
    let read = |name: &str| fs::read_to_string(d.join("paper").join(name)).unwrap();
    let estimate = "Epsilon of a against readers of the results is an estimate";
    let tex = read("results.tex");
    let printed: Vec<&str> = tex.lines().filter(|line| !line.starts_with('%')).collect();
    let printed = printed.join("\n");
    let (csv, notes) = (read("results.csv"), read("notes.txt"));
    assert!(csv.starts_with(",a,b\n"), "{csv}");
    assert!(
        notes.contains(estimate) && !csv.contains(estimate),
        "{notes}"
    );
    assert!(printed.contains(estimate), "{tex}");
    let picture = read("accuracy-against-epsilon-against-readers-of-the-results.svg");

    assert!(picture.contains(estimate), "{picture}");
    // what both say of the same rows
    for said in [&printed, &notes] {
        assert!(said.contains("sees all their releases"), "{said}");
    }
    for said in [&printed, &read("privacy.csv")] {
        assert!(said.contains("readers of the results"), "{said}");
    }
}

/// Titles stand in the READMEs of the parts' crates; the file for BibTeX has the same.
#[test]
fn every_paper_of_a_part_has_an_entry_with_the_title_of_its_page() {
    let known = fl_report::known_papers();
    for part in fl_core::linked_parts() {
        for paper in part.papers {
            let names = part.names();
            let mut entries = known.iter();
            let found = entries.any(|(label, of, _)| label == paper && names.contains(of));
            assert!(
                found,
                "papers.bib lacks `{paper}` of {} `{}`",
                part.role, part.name
            );
        }
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let pages = fs::read_dir(root().join("plugins")).unwrap();
    let pages = pages.filter_map(|dir| fs::read_to_string(dir.ok()?.path().join("README.md")).ok());
    let pages: String = pages.map(|page| words(&page)).collect();
    // two that pages name by author and year only
    let elsewhere = [
        "Gaussian differential privacy",
        "Learning differentially private recurrent",
    ];
    for (paper, _, title) in known {
        let there = pages.contains(&title) || elsewhere.iter().any(|of| title.starts_with(of));
        assert!(there, "no page has the title of {paper}: {title}");
    }
}

#[test]
fn a_watched_run_has_a_page_that_stops_renewing_itself() {
    let dir = tempfile::tempdir().unwrap();
    let watched = fl(
        dir.path(),
        &["run", &spec("fedavg"), "--out", "a", "--watch"],
    );
    let said = String::from_utf8_lossy(&watched.stderr);
    assert!(watched.status.success(), "{said}");
    assert!(
        said.contains("watch it in a browser: a/watch.html"),
        "{said}"
    );
    let page = fs::read_to_string(dir.path().join("a/watch.html")).unwrap();
    assert!(page.contains("\"renew\":0"), "the run is done");
    assert!(
        page.contains("\"axes\":[\"round\",\"seconds\",\"bytes\"]"),
        "{page}"
    );
    assert!(page.contains("\"name\":\"accuracy\""));
    let plain = fl(dir.path(), &["run", &spec("fedavg"), "--out", "b"]);
    assert!(plain.status.success() && !dir.path().join("b/watch.html").exists());
    let digest = |name: &str| {
        let outcome = fs::read_to_string(dir.path().join(name).join("outcome.json")).unwrap();
        serde_json::from_str::<Value>(&outcome).unwrap()["outcome"]["digest"].clone()
    };
    assert_eq!(digest("a"), digest("b"));
    // clients with more data take longer: with an accountant the page states no time
    let private = fl(
        dir.path(),
        &["run", &spec("dp-fedavg"), "--out", "c", "--watch"],
    );
    assert!(
        private.status.success(),
        "{}",
        String::from_utf8_lossy(&private.stderr)
    );
    let page = fs::read_to_string(dir.path().join("c/watch.html")).unwrap();
    assert!(
        !page.contains("\"seconds\"") && page.contains("\"epsilon against"),
        "{page}"
    );
}

/// Results that take a guarantee away say which setting hides them.
#[test]
fn plan_run_and_page_name_the_setting_that_hides_the_clients_models() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let hint = "`evaluate-clients: false` of the protocol hides the clients' own models";
    let shown = [
        "--set",
        "protocol.evaluate-clients=true",
        "--set",
        "budget=null",
    ];
    let spec = spec("fedkd-priced");
    for (set, there) in [(&shown[..], true), (&[][..], false)] {
        let plan = flat(&out(d, &[&["plan", &spec], set].concat()));
        assert_eq!(plan.contains(hint), there, "{plan}");
        let folder = if there { "shown" } else { "hidden" };
        let run = fl(d, &[&["run", &spec, "--out", folder], set].concat());
        let said = flat(&String::from_utf8_lossy(&run.stderr));
        assert_eq!(said.contains(&format!("note: {hint}")), there, "{said}");
        let page = fs::read_to_string(d.join(folder).join("report.html")).unwrap();
        let hint = hint.replace(
            "`evaluate-clients: false`",
            "<code>evaluate-clients: false</code>",
        );
        assert_eq!(page.contains(&hint), there, "{folder}");
    }
}

#[test]
fn a_method_has_the_name_that_the_spec_uses() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let page = |folder: &str| fs::read_to_string(dir.join(folder).join("report.html")).unwrap();
    let spec = quick("fedper");
    out(dir, &["run", &spec, "--stop-after", "1", "--out", "p"]);
    out(dir, &["run", "--resume", "p"]);
    let named = "Method <code>fedper</code>, protocol <code>fedavg</code>, seed 1";
    assert!(page("p").contains(named), "a resumed run keeps the name");
    out(dir, &["run", &quick("fedavg"), "--out", "f"]);
    assert!(page("f").contains("Protocol <code>fedavg</code>, seed 1"));
    let plan = |spec: &str| out(dir, &["plan", &quick(spec)]);
    assert!(plan("fedper").contains("quick-fedper: method `fedper`, protocol `fedavg`, 6"));
    assert!(plan("fedavg").contains("quick-fedavg: protocol `fedavg`, 5"));
}
