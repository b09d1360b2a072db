//! What a guarantee compares: two runs whose data are neighbours differ in nothing that has no noise.

use crate::common::{fl, out};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Rows of two numbers and a class; no two have the same numbers.
pub fn rows(of: impl IntoIterator<Item = usize>) -> String {
    let row = |i: usize| {
        let (a, b) = ((i * 37 % 101) as f64 / 50.0, (i * 61 % 103) as f64 / 50.0);
        let class = if a > b { "high" } else { "low" };
        format!("{a:.2}{i:03},{b:.2}{i:03},{class}\n")
    };
    let rows: String = of.into_iter().map(row).collect();
    format!("a,b,class\n{rows}")
}

/// Six clients with a file of 20 rows each, and a file of test rows.
fn six(dir: &Path) {
    for k in 0..6 {
        fs::write(dir.join(format!("{k}.csv")), rows(20 * k..20 * k + 20)).unwrap();
    }
    fs::write(dir.join("test.csv"), rows(500..540)).unwrap();
}

fn spec(more: &str) -> String {
    let files: Vec<String> = (0..6).map(|k| format!("{k}.csv")).collect();
    format!(
        "name: six
seed: 1
data:
  set: {{ files: {{ format: csv, train: [{}], test: test.csv, label: class, classes: [low, high],
    columns: {{ a: {{ number: {{ range: [0, 1000] }} }}, b: {{ number: {{ range: [0, 1000] }} }} }} }} }}
{more}",
        files.join(", ")
    )
}

const SERVER: &str = "protocol: { use: dp-fedavg, rounds: 3, local: { epochs: 1, batch: 8 } }
parts:
  model: { use: linear }
  cohort: { use: poisson, rate: 0.5 }
  aggregator: { use: mean, weigh: uniform }
  server-privacy: { use: gaussian-update, clip: 1.0, noise-multiplier: 1.0 }
  accountant: { use: rdp, delta: 1e-3 }
";
const CLIENT: &str = "protocol: { use: fedavg, rounds: 3, local: { epochs: 1, batch: 8 } }
parts:
  model: { use: linear }
  aggregator: { use: mean, weigh: uniform }
  privacy: { use: gaussian-update, clip: 0.5, noise-multiplier: 1.0 }
  accountant: { use: analytic-gaussian, delta: 1e-5 }
";
const EXAMPLE: &str =
    "protocol: { use: param-rounds, rounds: 3, local: { steps: 5, batch: 4 }, sampling: { rate: 0.2 } }
parts:
  model: { use: linear }
  aggregator: { use: mean, weigh: uniform }
  example-privacy: { use: gaussian-gradients, clip: 1.0, noise-multiplier: 2.0 }
  accountant: { use: pld }
";

/// What observers see of a run beside numbers with noise: the notes, the guarantee, and the journal
/// without digests.
fn seen(dir: &Path, spec: &str, out: &str, more: &[&str]) -> (String, Value, Vec<Value>) {
    let args = [&["run", spec, "--out", out, "--json"], more].concat();
    let o = fl(dir, &args);
    let said = String::from_utf8(o.stderr).unwrap();
    assert!(o.status.success(), "{args:?}: {said}");
    let notes: String = said.lines().filter(|l| l.contains("note: ")).collect();
    let answer: Value = serde_json::from_slice(&o.stdout).unwrap();
    let journal = fs::read_to_string(dir.join(out).join("journal.jsonl")).unwrap();
    let entry = |line: &str| {
        let mut entry: Value = serde_json::from_str(line).unwrap();
        let all = entry.as_object_mut().unwrap();
        all.remove("digest");
        all.remove("answers");
        entry
    };
    (
        notes,
        answer["privacy"].clone(),
        journal.lines().map(entry).collect(),
    )
}

#[test]
fn a_client_without_examples_is_seen_by_no_one_where_a_guarantee_hides_it() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    for (name, parts) in [("server", SERVER), ("client", CLIENT), ("example", EXAMPLE)] {
        let yaml = format!("{name}.yaml");
        fs::write(dir.join(&yaml), spec(parts)).unwrap();
        let two = ["--processes", "2"];
        for (how, more) in [("here", &[][..]), ("apart", &two[..])] {
            six(dir);
            let full = seen(dir, &yaml, &format!("{name}-{how}-full"), more);
            assert!(full.1["readers"]["epsilon"].is_f64(), "{name}: {}", full.1);
            fs::write(dir.join("2.csv"), rows(0..0)).unwrap();
            let less = seen(dir, &yaml, &format!("{name}-{how}-less"), more);
            assert_eq!(full, less, "{name}, {how}");
        }
        let plan = out(dir, &["plan", &yaml]);
        assert!(plan.contains(", 6 clients"), "{plan}");
    }
    // where nothing is accounted for it stays away, as before
    let free = CLIENT
        .lines()
        .filter(|l| !l.contains("privacy") && !l.contains("accountant"));
    let free: Vec<&str> = free.collect();
    fs::write(dir.join("free.yaml"), spec(&(free.join("\n") + "\n"))).unwrap();
    let (notes, _, journal) = seen(dir, "free.yaml", "free", &[]);
    assert!(
        notes.contains("clients without examples take no part: 2"),
        "{notes}"
    );
    assert_eq!(journal[0]["clients"], 5);
}
