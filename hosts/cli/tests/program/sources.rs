//! Every number has one source: text, outcome, report, page, pictures, comparison, study and export
//! of a run agree.
use crate::common::{fl, out, shorter, specs};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const OBSERVERS: [(&str, &str); 3] = [
    ("server", "the server"),
    ("clients", "the other clients"),
    ("readers", "readers of the results"),
];

/// The noise of every quick spec is seeded. Text, page and CSV say so where they show an epsilon.
const SEEDED: &str = "noise from the run's seed (reproducible, for research: not a guarantee)";

/// Tables and comparisons say it in a line below.
const ESTIMATE: &str = "an estimate, and no guarantee: who knows the seed can remove the noise";

/// A run that is done, and what was printed of it.
struct Done {
    name: String,
    folder: PathBuf,
    printed: String,
    outcome: Value,
}

impl Done {
    fn read(&self, file: &str) -> String {
        let path = self.folder.join(file);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// What it had cost after each step.
    fn costs(&self) -> Vec<Value> {
        let text = self.read("costs.jsonl");
        let lines = text.lines().map(serde_json::from_str);
        lines.map(Result::unwrap).collect()
    }

    /// The last measurement of each name, deviations over clients as `NAME.std`; `None`: not
    /// finite.
    fn metrics(&self) -> BTreeMap<String, Option<f64>> {
        let all = self.outcome["metrics"].as_object().unwrap().iter();
        all.map(|(name, v)| (name.clone(), v.as_f64())).collect()
    }

    fn epsilon(&self, observer: &str) -> Option<f64> {
        self.outcome["privacy"][observer]["epsilon"].as_f64()
    }

    fn bytes(&self, side: &str) -> f64 {
        self.outcome["bytes"][side].as_f64().unwrap()
    }

    /// The guarantee against an observer, as the run printed it.
    fn guarantee(&self, words: &str) -> &str {
        let said = between(&self.printed, &format!("against {words}: "), "\n");
        said.unwrap_or_else(|| panic!("{}: no guarantee against {words}", self.name))
    }

    /// `shown` is this number, to as many digits as it has; of a bound, rounded up.
    fn same(&self, what: &str, shown: &str, number: Option<f64>) {
        let Some(number) = number else {
            let none = ["NaN", "inf", "not finite", "no guarantee", ""];
            assert!(none.contains(&shown), "{}: {what} is {shown}", self.name);
            return;
        };
        let plain = shown.replace(',', "");
        let found: f64 = plain
            .parse()
            .unwrap_or_else(|_| panic!("{}: {what} is `{shown}`, not {number}", self.name));
        let (digits, power) = plain.split_once('e').unwrap_or((&plain, "0"));
        let places = digits.split_once('.').map_or(0, |(_, d)| d.len() as i32);
        let half = 0.500_001 * 10_f64.powi(power.parse::<i32>().unwrap() - places);
        // bounds are rounded up
        let bound = what.contains("epsilon") || what.contains("delta");
        let right = if bound {
            (0.0..=2.0 * half).contains(&(found - number))
        } else {
            (found - number).abs() <= half
        };
        assert!(
            right,
            "{}: {what} is {shown}, and the outcome says {number}",
            self.name
        );
    }
}

/// What follows `before` in `text`, up to `after`.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// Rows of the tables in `page`, each as its cells.
fn rows(page: &str) -> Vec<Vec<String>> {
    let cell = |cell: &str| Some(cell.rsplit_once('>')?.1.to_string());
    let row = |row: &str| row.split("</td>").filter_map(cell).collect();
    page.split("<tr>")
        .skip(1)
        .filter_map(|row_| row_.split_once("</tr>"))
        .map(|(cells, _)| row(cells))
        .filter(|cells: &Vec<String>| !cells.is_empty())
        .collect()
}

/// `0.8123 ± 0.0100` as two.
fn with_deviation(text: &str, sign: &str) -> (String, Option<String>) {
    match text.split_once(sign) {
        Some((value, std)) => (value.into(), Some(std.into())),
        None => (text.into(), None),
    }
}

fn text_says_what_the_outcome_does(run: &Done) {
    let of = |name: &str| {
        let begins = format!("  {name} ");
        let mut lines = run.printed.lines().filter_map(|l| l.strip_prefix(&begins));
        lines
            .next()
            .unwrap_or_else(|| panic!("{}: no {name}", run.name))
            .trim_start()
            .to_string()
    };
    let report = run.read("report.md");
    let results = between(&report, "## Results", "## Measured").unwrap();
    for (name, number) in run.metrics() {
        let row = between(results, &format!("| {name} | "), " |").unwrap();
        run.same(&format!("{name} in report.md"), row, number);
        if name.ends_with(".std") {
            continue;
        }
        let (value, std) = with_deviation(&of(&name), " +- ");
        run.same(&format!("{name} in the text"), &value, number);
        if let Some(std) = std {
            let number = run.metrics()[&format!("{name}.std")];
            run.same(&format!("deviation of {name} in the text"), &std, number);
        }
    }
    let (up, down) = (run.bytes("up"), run.bytes("down"));
    let bytes = of("bytes");
    let (shown_up, shown_down) = bytes.split_once(" up, ").unwrap();
    let shown = |text: &str| text.split(' ').next().unwrap().to_string();
    let shown = (shown(shown_up), shown(shown_down));
    assert_eq!(shown, (up.to_string(), down.to_string()), "{}", run.name);
    let all = between(&report, "| all | | | ", " |\n").unwrap();
    let (in_down, in_up) = all.split_once(" | ").unwrap();
    run.same("bytes down in report.md", in_down, Some(down));
    run.same("bytes up in report.md", in_up, Some(up));
    if run.outcome["privacy"].is_null() {
        return;
    }
    for (observer, words) in OBSERVERS {
        for (where_, text) in [("the text", &run.printed), ("report.md", &report)] {
            let what = format!("epsilon against {observer} in {where_}");
            let said = between(text, &format!("against {words}: "), "\n").unwrap();
            match run.epsilon(observer) {
                Some(epsilon) => {
                    let shown = between(said, "epsilon ", " at delta").unwrap();
                    run.same(&what, shown, Some(epsilon));
                    assert!(said.contains(SEEDED), "{what}: {said}");
                }
                None => assert!(said.starts_with("nothing: "), "{what}: {said}"),
            }
        }
    }
}

fn page_says_what_the_outcome_does(run: &Done) {
    let page = run.read("report.html");
    let results = rows(between(&page, "<h2>Results</h2>", "</table>").unwrap());
    let result = |name: &str| {
        let mut found = results.iter().filter(|row| row[0] == name);
        found
            .next()
            .unwrap_or_else(|| panic!("{}: no row {name}", run.name))[1]
            .clone()
    };
    for (name, number) in run.metrics() {
        if !name.ends_with(".std") {
            let (value, std) = with_deviation(&result(&name), " ± ");
            run.same(&format!("{name} on the page"), &value, number);
            if let Some(std) = std {
                let number = run.metrics()[&format!("{name}.std")];
                run.same(&format!("deviation of {name} on the page"), &std, number);
            }
            // of what is drawn by round, the last mark, or that of a later stage
            let figure = between(&page, &format!("<h3>{name}</h3>"), "</figure>");
            if let Some(last) = figure
                .and_then(|f| f.split_once("<svg"))
                .and_then(|(_, f)| {
                    let later = |mark: &str| {
                        mark.split_once(": ")
                            .is_some_and(|(step, _)| step.contains(" of stage "))
                    };
                    let mut marks = f.rsplit("<title>");
                    let mark = marks.find(|mark| mark.starts_with("round ") || later(mark))?;
                    between(mark, ": ", "</title>")
                })
            {
                let (value, _) = with_deviation(last, " ± ");
                run.same(&format!("the last mark of {name}"), &value, number);
            }
        }
    }
    run.same(
        "bytes up on the page",
        &result("bytes up"),
        Some(run.bytes("up")),
    );
    run.same(
        "bytes down on the page",
        &result("bytes down"),
        Some(run.bytes("down")),
    );
    let privacy = between(&page, "<h2>Privacy</h2>", "<h2>").unwrap();
    let accounts = !run.outcome["privacy"].is_null();
    for (observer, words) in OBSERVERS {
        if accounts {
            let said = format!("against {words}: {}", run.guarantee(words));
            let said = said.replace('"', "&quot;");
            assert!(
                privacy.contains(&said),
                "{}: no {said} in {privacy}",
                run.name
            );
        }
        let what = |place: &str| format!("epsilon against {observer} in {place} of the page");
        let Some(epsilon) = run.epsilon(observer) else {
            // nothing is guaranteed at the end, so no line reaches it
            let row = rows(privacy).into_iter().rfind(|row| row[1] == words);
            let last = row.map_or("no guarantee".into(), |row| row[2].clone());
            assert_eq!(last, "no guarantee", "{}", what("the table"));
            continue;
        };
        let said = between(privacy, &format!("against {words}: epsilon "), " at delta");
        run.same(&what("the words"), said.unwrap(), Some(epsilon));
        let marks = privacy
            .split("<title>")
            .filter_map(|t| t.split_once("</title>"));
        let before = format!("against {words}: epsilon ");
        let marks = marks.filter_map(|(t, _)| Some(t.split_once(&before)?.1));
        let last = marks
            .last()
            .unwrap_or_else(|| panic!("{}: no mark", run.name));
        run.same(&what("the picture"), last, Some(epsilon));
        let row = rows(privacy)
            .into_iter()
            .rfind(|row| row[1] == words)
            .unwrap();
        run.same(&what("the table"), &row[2], Some(epsilon));
    }
}

fn comparison_says_what_the_outcomes_do(dir: &Path, runs: &[Done]) {
    let mut marks = 0;
    // as many comparisons as it takes, of nearly equal sizes: one run alone makes none
    let size = runs.len().div_ceil(runs.len().div_ceil(7));
    for some in runs.chunks(size) {
        assert!(some.len() > 1, "{} runs in chunks of {size}", runs.len());
        let folders = some.iter().map(|run| run.folder.to_str().unwrap());
        out(
            dir,
            &["report"].into_iter().chain(folders).collect::<Vec<_>>(),
        );
        let page = fs::read_to_string(some[0].folder.join("comparison.html")).unwrap();
        let results = rows(between(&page, "<h2>Results</h2>", "</table>").unwrap());
        let rows: BTreeMap<&str, &[String]> =
            results.iter().map(|row| (&row[0][..], &row[1..])).collect();
        for (at, run) in some.iter().enumerate() {
            for (name, number) in run.metrics() {
                if !name.ends_with(".std") {
                    let (value, _) = with_deviation(&rows[&name[..]][at], " ± ");
                    run.same(&format!("{name} in the comparison"), &value, number);
                }
            }
            for side in ["up", "down"] {
                let shown = &rows[&format!("bytes {side}")[..]][at];
                run.same(
                    &format!("bytes {side} in the comparison"),
                    shown,
                    Some(run.bytes(side)),
                );
            }
            for (observer, words) in OBSERVERS {
                let what = format!("epsilon against {observer} in the comparison");
                let shown = rows.get(&format!("epsilon, against {words}")[..]);
                let shown = shown.map_or("", |row| &row[at]);
                run.same(&what, shown, run.epsilon(observer));
                let caveat = format!("Epsilon of {} against {words} is {ESTIMATE}.", run.name);
                let has = page.contains(&caveat);
                assert_eq!(has, run.epsilon(observer).is_some(), "{caveat}");
                // where models are drawn against epsilon, they stand at that of their step
                let costs = run.costs();
                let begins = format!("<title>{}, ", run.name);
                let ends = format!(" epsilon, against {words}</title>");
                for mark in page.split(&begins).skip(1) {
                    let Some((mark, _)) = mark.split_once(&ends) else {
                        continue;
                    };
                    if mark.contains('<') {
                        continue;
                    }
                    let (step, _) = mark.split_once(": ").unwrap();
                    let cost = costs.iter().rfind(|cost| cost["step"] == step).unwrap();
                    let shown = mark.rsplit(' ').next().unwrap();
                    let epsilon = cost["privacy"][observer].as_f64();
                    run.same(&format!("a mark of {what}, {step}"), shown, epsilon);
                    marks += 1;
                }
            }
        }
    }
    assert!(marks > 10, "only {marks} models are drawn against epsilon");
}

/// A study of these runs, which it finds done.
fn study_says_what_the_outcomes_do(dir: &Path, runs: &[Done]) {
    let mut study = String::from("name: s\ntables:\n");
    for run in runs {
        let manifest: Value = serde_json::from_str(&run.read("run.json")).unwrap();
        let key = &manifest["spec_sha256"].as_str().unwrap()[..24];
        let kept = dir.join("runs/studies/kept").join(key);
        fs::create_dir_all(kept.parent().unwrap()).unwrap();
        assert!(
            std::process::Command::new("cp")
                .args(["-r", run.folder.to_str().unwrap(), kept.to_str().unwrap()])
                .status()
                .unwrap()
                .success()
        );
        let guaranteed = OBSERVERS.iter().filter(|(o, _)| run.epsilon(o).is_some());
        let columns: String = guaranteed
            .map(|(o, _)| format!(", {{ measure: epsilon.{o}, digits: 6 }}"))
            .collect();
        let seed = &run.outcome["seed"];
        study += &format!(
            "- name: {0}\n  base: '{1}'\n  seeds: {seed}\n  rows: [{{ name: {0} }}]\n  \
             columns: [{{ measure: bytes.up, digits: 0 }}, {{ measure: bytes.down, digits: 0 }}{columns}]\n",
            run.name,
            dir.join(format!("{}.yaml", run.name)).display()
        );
    }
    fs::write(dir.join("s.yaml"), study).unwrap();
    let open = out(dir, &["study", "s.yaml", "--dry-run"]);
    assert!(open.starts_with("0 of "), "the runs are there: {open}");
    let done = fl(dir, &["study", "s.yaml"]);
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let printed = String::from_utf8(done.stdout).unwrap();
    let csv = fs::read_to_string(dir.join("runs/studies/s-runs.csv")).unwrap();
    let tables = fs::read_to_string(dir.join("runs/studies/s.csv")).unwrap();
    let page = fs::read_to_string(dir.join("runs/studies/s.html")).unwrap();
    for run in runs {
        let line = |text: &str, cells: &[&str]| {
            let begins = |line: &&str| {
                let mut found = line.split(',');
                cells.iter().all(|due| found.next() == Some(due))
            };
            text.lines().find(begins).map(String::from)
        };
        let accounts = !run.outcome["privacy"].is_null();
        let (mut priced, seed) = (false, run.outcome["seed"].to_string());
        for (observer, words) in OBSERVERS.iter().filter(|_| accounts) {
            let (name, measure) = (&run.name[..], format!("epsilon.{observer}"));
            let manifest: Value = serde_json::from_str(&run.read("run.json")).unwrap();
            let key = &manifest["spec_sha256"].as_str().unwrap()[..24];
            let digest = run.outcome["digest"].as_str().unwrap();
            // with its number, or with the reason that there is none
            let of_run = [name, name, "", &seed, key, digest, &measure];
            let of_run = line(&csv, &of_run).unwrap_or_else(|| panic!("no {of_run:?} in {csv}"));
            let said = run.guarantee(words);
            assert!(of_run.contains(said), "{of_run}: no {said}");
            if run.epsilon(observer).is_some() {
                let of_row = line(&tables, &[name, name, "", &measure]).unwrap();
                assert!(of_row.trim_end_matches('"').ends_with(ESTIMATE), "{of_row}");
                priced = true;
            }
        }
        // text and page have it below the table
        let below = |text: &str, heading: &str| {
            let mut parts = text.split(heading).skip(1);
            let title = format!("{}, seed {seed}", run.name);
            // the page gives headings an id
            let named = |part: &&str| match part.strip_prefix("table-") {
                Some(rest) => rest
                    .split_once('>')
                    .is_some_and(|(_, of)| of.starts_with(&title)),
                None => part.starts_with(&title),
            };
            let part = parts.find(named);
            part.unwrap_or_else(|| panic!("no table {title}"))
                .contains(ESTIMATE)
        };
        assert_eq!(below(&printed, "### "), priced, "{}", run.name);
        assert_eq!(below(&page, "<h2 id=\""), priced, "{}", run.name);
        let mut all: BTreeMap<&str, &str> = BTreeMap::new();
        for line in csv.lines() {
            let cells: Vec<&str> = line.split(',').collect();
            if cells[0] == run.name && !cells[7].is_empty() {
                assert_eq!(cells[5], run.outcome["digest"].as_str().unwrap());
                all.insert(cells[6], cells[7]);
            }
        }
        let of = |name: &str| all.get(name).map(|v| v.parse::<f64>().unwrap());
        for (name, number) in run.metrics() {
            assert_eq!(of(&name), number, "{}: {name} in the study", run.name);
        }
        let row = printed
            .lines()
            .find(|l| l.starts_with(&format!("| {} | ", run.name)));
        let cells: Vec<&str> = row.unwrap().split('|').skip(2).map(str::trim).collect();
        let mut numbers = vec![run.bytes("up"), run.bytes("down")];
        for side in ["up", "down"] {
            assert_eq!(
                of(&format!("bytes.{side}")),
                Some(run.bytes(side)),
                "{}",
                run.name
            );
        }
        for (observer, _) in OBSERVERS {
            let epsilon = run.epsilon(observer);
            assert_eq!(of(&format!("epsilon.{observer}")), epsilon, "{}", run.name);
            numbers.extend(epsilon);
        }
        for (at, (cell, number)) in cells.iter().zip(numbers).enumerate() {
            let what = if at < 2 { "bytes" } else { "epsilon" };
            run.same(&format!("{what} in the study"), cell, Some(number));
        }
    }
}

/// Tag, step, value and description of everything in an event file of TensorBoard.
fn events(bytes: &[u8]) -> Vec<(String, u64, f32, String)> {
    /// Fields of a message: number, wire type 0 as a number, others as bytes.
    fn fields(mut rest: &[u8]) -> Vec<(u64, u64, &[u8])> {
        fn varint(rest: &mut &[u8]) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = rest[0];
                *rest = &rest[1..];
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        }
        let mut all = Vec::new();
        while !rest.is_empty() {
            let key = varint(&mut rest);
            let (number, length) = match key & 7 {
                0 => (varint(&mut rest), 0),
                1 => (0, 8),
                2 => (0, varint(&mut rest) as usize),
                5 => (0, 4),
                other => panic!("wire type {other}"),
            };
            all.push((key >> 3, number, &rest[..length]));
            rest = &rest[length..];
        }
        all
    }
    let (mut rest, mut all) = (bytes, Vec::new());
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        let event = fields(&rest[12..12 + length]);
        let step = event.iter().find(|f| f.0 == 2).map_or(0, |f| f.1);
        for (_, _, summary) in event.iter().filter(|f| f.0 == 5) {
            for (_, _, value) in fields(summary) {
                let value = fields(value);
                let tag = String::from_utf8(value[0].2.to_vec()).unwrap();
                let number = f32::from_le_bytes(value[1].2.try_into().unwrap());
                let about = value.iter().find(|field| field.0 == 9);
                let about = about.and_then(|of| fields(of.2).into_iter().find(|f| f.0 == 3));
                let about = about.map_or("", |text| std::str::from_utf8(text.2).unwrap());
                all.push((tag, step, number, about.into()));
            }
        }
        rest = &rest[16 + length..];
    }
    all
}

fn export_says_what_the_outcomes_do(dir: &Path, runs: &[Done]) {
    let folders: Vec<&str> = runs
        .iter()
        .map(|run| run.folder.to_str().unwrap())
        .collect();
    let to = ["--csv", "m.csv", "--tensorboard", "tb"];
    let written = out(dir, &[&["export"], &folders[..], &to].concat());
    let csv = fs::read_to_string(dir.join("m.csv")).unwrap();
    for run in runs {
        let mut table: BTreeMap<String, Option<f64>> = BTreeMap::new();
        for line in csv.lines() {
            let cells: Vec<&str> = line.split(',').collect();
            if cells[0] == run.name && cells[4].is_empty() {
                table.insert(cells[3].into(), cells[5].parse().ok());
                if let Ok(std) = cells[6].parse() {
                    table.insert(format!("{}.std", cells[3]), Some(std));
                }
            }
        }
        for line in csv.lines() {
            let cells: Vec<&str> = line.split(',').collect();
            let words = OBSERVERS
                .iter()
                .find(|(o, _)| cells[3] == format!("epsilon.{o}"));
            if let (Some((_, words)), true) = (words, cells[0] == run.name) {
                assert!(line.contains(run.guarantee(words)), "{line}");
            }
        }
        let begins = format!("tb/{}/", run.name);
        let file = written.lines().find(|l| l.starts_with(&begins)).unwrap();
        let all = events(&fs::read(dir.join(file)).unwrap());
        let mut board: BTreeMap<String, f32> = BTreeMap::new();
        for (tag, _, value, about) in all {
            assert_eq!(
                about == ESTIMATE,
                tag.starts_with("epsilon."),
                "{tag}: {about}"
            );
            board.insert(tag, value);
        }
        let mut expected = run.metrics();
        for side in ["up", "down"] {
            expected.insert(format!("bytes.{side}"), Some(run.bytes(side)));
        }
        for (observer, _) in OBSERVERS {
            let name = format!("epsilon.{observer}");
            match run.epsilon(observer) {
                Some(epsilon) => drop(expected.insert(name, Some(epsilon))),
                None => {
                    assert_eq!(
                        table.get(&name).copied().flatten(),
                        None,
                        "{}: {name}",
                        run.name
                    );
                    assert_eq!(board.get(&name), None, "{}: {name}", run.name);
                }
            }
        }
        for (name, number) in expected {
            assert_eq!(
                table.get(&name),
                Some(&number),
                "{}: {name} in the CSV",
                run.name
            );
            // bounds are rounded up
            let up = |n: f64| {
                if name.starts_with("epsilon.") && f64::from(n as f32) < n {
                    (n as f32).next_up()
                } else {
                    n as f32
                }
            };
            let single = number.map(up);
            assert_eq!(
                board.get(&name).copied(),
                single,
                "{}: {name} on the board",
                run.name
            );
        }
    }
}

#[test]
fn every_number_of_every_quick_spec_has_one_source() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut runs = Vec::new();
    for spec in specs("quick") {
        let name = spec.file_stem().unwrap().to_str().unwrap().to_string();
        let printed = out(dir, &["run", &shorter(dir, &spec), "--out", &name]);
        let folder = PathBuf::from(&name);
        let summary = fs::read_to_string(dir.join(&name).join("outcome.json")).unwrap();
        let summary: Value = serde_json::from_str(&summary).unwrap();
        runs.push(Done {
            folder: dir.join(folder),
            outcome: summary["outcome"].clone(),
            name,
            printed,
        });
    }
    let guaranteed = |run: &&Done| OBSERVERS.iter().any(|(o, _)| run.epsilon(o).is_some());
    assert!(
        runs.iter().filter(guaranteed).count() > 5,
        "some have a price"
    );
    for run in &runs {
        text_says_what_the_outcome_does(run);
        page_says_what_the_outcome_does(run);
    }
    comparison_says_what_the_outcomes_do(dir, &runs);
    study_says_what_the_outcomes_do(dir, &runs);
    export_says_what_the_outcomes_do(dir, &runs);
}
