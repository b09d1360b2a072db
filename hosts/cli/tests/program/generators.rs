//! Distillation on made inputs as a user runs it: bytes, what crosses, terms that are switched off,
//! and clear messages about mistakes.

use crate::common::{fails, json, out, quick};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const TEACHER: &str = "  teacher: { use: dfdx, net: [{ linear: 8 }, relu, outputs], optimiser: { adam: { lr: 0.01 } } }";
const JUDGE: &str = "  discriminator: { use: dfdx, net: [{ linear: 8 }, relu, outputs], optimiser: { adam: { lr: 0.01 } } }";

/// Four clients, blobs of 8 numbers in 4 classes, batches of 16; `protocol` and `parts` are added
/// to.
fn spec(dir: &Path, train: usize, protocol: &str, parts: &str) -> String {
    let text = format!(
        "name: made
seed: 1
data:
  set: {{ blobs: {{ classes: 4, features: 8, train: {train} }} }}
  clients: 4
  split: {{ dirichlet: {{ alpha: 1.0, reading: floor }} }}
protocol:
  use: generate-and-distill
  local: {{ epochs: 4, batch: 16 }}
  rounds: 2
  steps: 3
  batch: 16
{protocol}
parts:
  student: {{ use: dfdx, net: [{{ linear: 8 }}, relu, outputs], optimiser: {{ adam: {{ lr: 0.01 }} }} }}
  generator: {{ use: noise-to-input, net: affine, noise: 4 }}
{parts}
"
    );
    let path = dir.join("spec.yaml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn run(dir: &Path, train: usize, protocol: &str, parts: &str) -> Value {
    let spec = spec(dir, train, protocol, parts);
    let _ = fs::remove_dir_all(dir.join("out"));
    json(dir, &["run", &spec, "--json", "--out", "out"])
}

fn journal(dir: &Path) -> Vec<Value> {
    let journal = fs::read_to_string(dir.join("out/journal.jsonl")).unwrap();
    let lines = journal.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

/// Bytes of all answers, and of all that was sent, to one question in one step of the generator.
fn bytes(dir: &Path, question: &str) -> (u64, u64) {
    let of = |entry: &Value, way: &str| entry[way]["values"].as_u64().unwrap();
    let journal = journal(dir);
    let entry = journal.iter().rfind(|entry| entry["question"] == question);
    let entry = entry.unwrap();
    (of(entry, "bytes_up"), of(entry, "bytes_down"))
}

const CLIENTS: u64 = 4;
const BATCH: u64 = 16;
const INPUT: u64 = 8;
const CLASSES: u64 = 4;

#[test]
fn exact_bytes_are_those_of_the_paper() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let parts = format!("{TEACHER}\n{JUDGE}");
    run(dir, 400, "", &parts);
    let (answers, shown) = bytes(dir, "scores of made inputs");
    let (slopes, wanted) = bytes(dir, "slopes by made inputs");
    // METHODS: down the batch, up its scores and the slope by each of its numbers
    let (up, down) = (BATCH * (CLASSES + INPUT) * 4, BATCH * INPUT * 4);
    // the discriminator's two numbers of Eq. 8 are added, and the slopes by the answers are sent
    // down
    let odds = BATCH * 4;
    assert_eq!(answers + slopes, CLIENTS * (up + odds + 4));
    assert_eq!(
        shown + wanted,
        CLIENTS * (down + BATCH * CLASSES * 4 + odds)
    );
    // without discriminators nothing comes on top of what goes up
    run(dir, 400, "  terms: { gan: 0 }\n  weights: sizes", TEACHER);
    let (answers, shown) = bytes(dir, "scores of made inputs");
    let (slopes, wanted) = bytes(dir, "slopes by made inputs");
    assert_eq!(answers + slopes, CLIENTS * up);
    assert_eq!(shown + wanted, CLIENTS * (down + BATCH * CLASSES * 4));
    // a plan knows as much beforehand
    let spec = spec(dir, 400, "", &parts);
    let plan = json(dir, &["plan", &spec, "--json"]);
    let of = |at: usize, way: &str| plan["questions"][at][way]["bytes"].as_u64().unwrap();
    assert_eq!(
        CLIENTS * (of(1, "up") + of(2, "up")),
        CLIENTS * (up + odds + 4)
    );
    assert_eq!(CLIENTS * of(1, "down"), CLIENTS * down);
}

/// No message grows with a model or with what a client owns, and there are no others than these.
#[test]
fn exact_no_model_and_no_private_input_crosses() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let sizes = |train: usize, width: usize| {
        let wide = |part: &str| part.replace("linear: 8", &format!("linear: {width}"));
        run(
            dir,
            train,
            "",
            &format!("{}\n{}", wide(TEACHER), wide(JUDGE)),
        );
        let line = |entry: &Value| {
            let kinds = format!("{} -> {}", entry["down"], entry["up"]);
            (
                kinds,
                entry["bytes_up"].to_string(),
                entry["bytes_down"].to_string(),
            )
        };
        journal(dir).iter().map(line).collect::<BTreeSet<_>>()
    };
    let small = sizes(200, 4);
    assert_eq!(small, sizes(200, 40), "larger models");
    assert_eq!(small, sizes(900, 4), "more private inputs");
    let kinds: Vec<String> = small
        .into_iter()
        .map(|(kinds, ..)| kinds.replace('"', ""))
        .collect();
    let all = [
        "input-values -> answers-on-made-inputs",
        "nothing -> class-counts",
        "slopes-by-answers -> input-values",
    ];
    assert_eq!(kinds, all);
}

/// Label maps leave a client once; after them no message grows with a model or with what a client
/// owns.
#[test]
fn exact_label_maps_cross_and_no_image_does() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let crossed = |train: usize, width: usize| {
        let spec = fs::read_to_string(quick("asyn-dgan")).unwrap();
        let spec = spec.replace("train: 90", &format!("train: {train}"));
        let spec = spec.replace(
            "conv: { out: 8, kernel: 3",
            &format!("conv: {{ out: {width}, kernel: 3"),
        );
        let less = "rounds: 1, steps: 2, batch: 5";
        let spec = spec.replace("rounds: 3, steps: 20, batch: 8", less);
        let spec = spec.replace("epochs: 8", "epochs: 1");
        fs::write(dir.join("spec.yaml"), spec).unwrap();
        let _ = fs::remove_dir_all(dir.join("out"));
        json(dir, &["run", "spec.yaml", "--json", "--out", "out"]);
        let all = journal(dir);
        let line = |entry: &Value| {
            let of = |way: &str| entry[way]["values"].as_u64().unwrap();
            let kinds = format!("{} -> {}", entry["down"], entry["up"]).replace('"', "");
            (kinds, of("bytes_up"), of("bytes_down"))
        };
        all.iter().map(line).collect::<Vec<_>>()
    };
    let (pixels, width) = (32 * 32, 3 * 32 * 32);
    let judged = (
        "made-of-label-maps -> input-values".to_string(),
        3 * 5 * 4 * width,
        3 * 5 * (4 * width + 4),
    );
    let due = |train: usize| {
        let maps = (
            "nothing -> label-maps".to_string(),
            train as u64 * pixels,
            0,
        );
        vec![maps, judged.clone(), judged.clone()]
    };
    assert_eq!(crossed(12, 8), due(12));
    assert_eq!(crossed(12, 16), due(12), "larger models");
    assert_eq!(crossed(24, 8), due(24), "more private images");
}

#[test]
fn exact_what_is_switched_off_is_not_measured_and_needs_no_part() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let both = format!("{TEACHER}\n{JUDGE}");
    for (protocol, parts, terms) in [
        ("", &both, &["gan", "conf", "unique", "mimic"][..]),
        ("  terms: { gan: 0, conf: 0 }", &both, &["unique", "mimic"]),
        (
            "  terms: { gan: 0, mimic: 0, balance: 10 }\n  weights: uniform",
            &TEACHER.to_string(),
            &["conf", "unique", "balance"],
        ),
    ] {
        let answer = run(dir, 400, protocol, parts);
        let measured: BTreeSet<&str> = answer["metrics"]
            .as_object()
            .unwrap()
            .keys()
            .filter_map(|k| k.strip_prefix("generator."))
            .collect();
        let wanted: BTreeSet<&str> = terms.iter().copied().chain(["inception"]).collect();
        assert_eq!(measured, wanted, "{protocol}");
    }
    // no other client is asked
    let spec = spec(dir, 400, "  terms: { gan: 0 }\n  weights: uniform", &both);
    let (code, said) = fails(dir, &["check", &spec]);
    assert!(code == 2 && said.contains("discriminator"), "{code} {said}");
}

#[test]
fn bounded_every_reading_runs_and_the_student_learns() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let parts = format!("{TEACHER}\n{JUDGE}");
    let answer = run(
        dir,
        600,
        "  student-steps: 3",
        &parts.replace("lr: 0.01", "lr: 0.02"),
    );
    let first = answer["metrics"]["accuracy"].as_f64().unwrap();
    assert!(first > 0.3, "6 steps: {first}, and 0.25 is chance");
    for protocol in [
        "  mimic: kl\n  tau: 2.0\n  game: linear\n  discriminators: mean",
        "  mimic: absolute\n  divergence: published\n  weights: { importance: { classes: counts, discriminator: false } }",
        "  warm-up: 1\n  discriminator-steps: 2\n  discriminators: sizes\n  weights: sizes",
    ] {
        let accuracy = run(dir, 400, protocol, &parts)["metrics"]["accuracy"]
            .as_f64()
            .unwrap();
        assert!((0.0..=1.0).contains(&accuracy), "{protocol}");
    }
}

#[test]
fn mistakes_say_what_would_be_right() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let refused = |protocol: &str, parts: &str| {
        let spec = spec(dir, 400, protocol, parts);
        let (code, said) = fails(dir, &["run", &spec, "--out", "wrong"]);
        assert_ne!(code, 0);
        said
    };
    let both = format!("{TEACHER}\n{JUDGE}");
    let said = refused("  terms: { gan: 0, conf: 0, unique: 0, mimic: 0 }", &both);
    assert!(said.contains("at least one must be above 0"), "{said}");
    let said = refused(
        "",
        &both.replacen(
            "use: dfdx, net: [{ linear: 8 }, relu, outputs], optimiser: { adam: { lr: 0.01 } }",
            "use: forest",
            1,
        ),
    );
    assert!(said.contains("teacher"), "{said}");
    // one judgement of the whole is due, and it gives one for each of 16 parts
    let said = refused(
        "",
        &both.replace(
            "discriminator: { use: dfdx, net: [{ linear: 8 }, relu, outputs]",
            "discriminator: { use: dfdx, net: [{ linear: 16 }]",
        ),
    );
    assert!(
        said.contains("the task has 1 outputs, but the last layer has 16"),
        "{said}"
    );
}

/// A budget holds only where everything that leaves a client goes through a mechanism.
#[test]
fn a_budget_needs_both_mechanisms_and_no_discriminator() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let priced = |protocol: &str, parts: &str| {
        let path = spec(dir, 400, protocol, parts);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}\nbudget: {{ epsilon: 1 }}\n")).unwrap();
        fails(dir, &["run", &path, "--out", "priced"]).1
    };
    let noise = "  answers-privacy: { use: laplace-logits, gamma: 1, clip: 2 }\n  accountant: { use: basic }";
    let said = priced("", &format!("{TEACHER}\n{JUDGE}\n{noise}"));
    assert!(
        said.contains("`training`"),
        "class counts are told as they are: {said}"
    );
    let said = priced(
        "  terms: { gan: 0, conf: 0, unique: 0 }\n  weights: uniform\n  evaluate-clients: false",
        &format!("{TEACHER}\n{noise}"),
    );
    assert!(said.contains("`slopes by made inputs`"), "{said}");
}

#[test]
fn models_that_normalise_batches_are_refused_before_they_train() {
    let dir = tempfile::tempdir().unwrap();
    let net = "parts.teacher={use: dfdx, net: [{linear: 8}, batch-norm, relu, outputs]}";
    for name in ["dense", "co-boosting"] {
        let spec = quick(name);
        let (code, error) = fails(dir.path(), &["check", &spec, "--set", net]);
        let why = "it has batch normalisation, and the loss has no term";
        assert!(code == 2 && error.contains(why), "{code} {error}");
        // the student may have it
        let net = net.replace("teacher", "student");
        let few = ["--set", "protocol.rounds=1", "--set", "protocol.steps=1"];
        let to = format!("{name}-student");
        let args = ["run", &spec, "--quiet", "--out", &to, "--set", &net];
        out(dir.path(), &[&args[..], &few].concat());
    }
}

#[test]
fn rounds_that_a_budget_ends_leave_a_picture_too() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let spec = "name: ended
seed: 1
data: { set: { glyphs: { train: 200, test: 40 } }, clients: 2 }
protocol: { use: generate-and-distill, rounds: 6, steps: 2, batch: 8, local: { steps: 10, batch: 10 }, terms: { gan: 0, conf: 0, unique: 0, balance: 1 }, weights: uniform, equal-weights: true, evaluate-clients: false }
parts:
  teacher: { use: linear, lr: 0.5 }
  student: { use: linear, lr: 0.5 }
  generator: { use: noise-to-input, noise: 2, net: affine }
  answers-privacy: { use: laplace-logits, gamma: 0.05, clip: 2 }
  slopes-privacy: { use: gaussian-update, noise-multiplier: 40, clip: 1 }
  accountant: { use: pld }
budget: { epsilon: 100, delta: 1e-5 }
";
    fs::write(dir.join("ended.yaml"), spec).unwrap();
    out(dir, &["run", "ended.yaml", "--quiet", "--out", "ended"]);
    let notes = fs::read_to_string(dir.join("ended/outcome.json")).unwrap();
    assert!(notes.contains("before round 4 is paid for"), "{notes}");
    assert!(dir.join("ended/pictures/made.png").exists());
}

#[test]
fn exact_made_images_are_kept_as_a_picture_and_shown_in_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let outcome = json(dir, &["run", &quick("fediod"), "--json", "--out", "whole"]);
    let stop = ["run", &quick("fediod"), "--quiet", "--out", "parts"];
    out(dir, &[&stop[..], &["--stop-after", "2"]].concat());
    assert!(!dir.join("parts/pictures").exists());
    let resumed = json(dir, &["run", "--resume", "parts", "--json", "--wire"]);
    assert_eq!(outcome["digest"], resumed["digest"]);
    let picture = |run: &str| fs::read(dir.join(run).join("pictures/made.png")).unwrap();
    assert_eq!(picture("whole"), picture("parts"));
    let text = fs::read_to_string(dir.join("whole/report.md")).unwrap();
    assert!(text.contains("![made.png](pictures/made.png)"), "{text}");
    out(dir, &["report", "whole", "--out", "page.html"]);
    let page = fs::read_to_string(dir.join("page.html")).unwrap();
    assert!(page.contains("<img class=\"made\" alt=\"made\" src=\"data:image/png;base64,iVBOR"));
    // a file that is no picture is named, not shown
    fs::write(dir.join("whole/pictures/made.png"), "<svg onload=x>").unwrap();
    out(dir, &["report", "whole", "--out", "page.html"]);
    let page = fs::read_to_string(dir.join("page.html")).unwrap();
    assert!(page.contains("pictures/made.png is no PNG file") && !page.contains("<img"));
}
