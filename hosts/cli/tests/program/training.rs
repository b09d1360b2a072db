//! What the training of clients cannot do: found before a run, named, and survived.
use crate::common::{fails, fl, flat, json, out, quick};
use crate::library;
use crate::state::ways;
use serde_json::Value;
use std::fs;
use std::path::Path;

const NORM: &str = "{ use: dfdx, net: [{ linear: 4 }, batch-norm, relu, outputs], \
                    optimiser: { sgd: { lr: 0.1 } } }";

/// Three clients with rows of their own; the last has one.
fn spec(dir: &Path, protocol: &str, parts: &str) -> String {
    let row = |i: usize| {
        let [a, b] = [
            (i * 7 % 11) as f64 / 5.0 - 1.0,
            (i * 5 % 13) as f64 / 6.0 - 1.0,
        ];
        format!("{a},{b},{}\n", usize::from(a > b))
    };
    for (name, rows) in [("a", 0..17), ("b", 20..41), ("c", 50..51)] {
        let rows: String = rows.map(row).collect();
        fs::write(dir.join(format!("{name}.csv")), format!("a,b,y\n{rows}")).unwrap();
    }
    let text = format!(
        "name: few
seed: 1
data:
  set:
    files: {{ format: csv, train: [a.csv, b.csv, c.csv], test: b.csv, label: y, classes: [0, 1] }}
protocol: {{ {protocol} }}
parts: {{ {parts} }}
"
    );
    fs::write(dir.join("spec.yaml"), text).unwrap();
    "spec.yaml".into()
}

const LOCAL: &str = "rounds: 3, local: { epochs: 2, batch: 8 }";

/// Runs the spec with these arguments; returns its digest, and its notes on stderr.
fn ran(dir: &Path, args: &[&str]) -> (Value, String) {
    let done = fl(dir, &[&["run", "--json"], args].concat());
    let notes = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{args:?}: {notes}");
    let text = String::from_utf8(done.stdout).unwrap();
    (serde_json::from_str(&text).unwrap(), notes)
}

const NO_STEP: &str = "client 2: parts.model took no training step: no mini-batch has the 2 \
                       examples that its batch normalisation needs";

#[test]
fn a_client_of_one_row_takes_no_step_and_is_named_once() {
    let d = tempfile::tempdir().unwrap();
    let d = d.path();
    let aggregator = "aggregator: { use: mean }";
    let protocols = [
        ("use: fedavg", aggregator),
        ("use: fedprox, mu: 0.1", "aggregator: { use: fed-adam }"),
        (
            "use: fedavg, fresh: false",
            "aggregator: { use: q-fair-mean, lr: 0.1 }",
        ),
        ("use: scaffold", aggregator),
        ("use: scaffold, control: gradient", aggregator),
        ("use: fednova", aggregator),
        ("use: fednova, mu: 0.1", aggregator),
    ];
    for (at, (protocol, parts)) in protocols.into_iter().enumerate() {
        let spec = spec(
            d,
            &format!("{protocol}, {LOCAL}"),
            &format!("model: {NORM}, {parts}"),
        );
        let (done, notes) = ran(d, &[&spec, "--out", &format!("run-{at}")]);
        assert_eq!(notes.matches(NO_STEP).count(), 1, "{protocol}: {notes}");
        assert!(
            done["metrics"]["accuracy"].as_f64().is_some(),
            "{protocol}: {done}"
        );
        assert!(!notes.contains("NaN"), "{protocol}: {notes}");
    }
    let alone = spec(
        d,
        "use: solo, local: { epochs: 2, batch: 8 }",
        &format!("model: {NORM}"),
    );
    let (_, notes) = ran(d, &[&alone, "--out", "solo"]);
    assert_eq!(notes.matches(NO_STEP).count(), 1, "{notes}");
}

#[test]
fn exact_a_client_of_one_row_changes_nothing_in_any_engine() {
    let d = tempfile::tempdir().unwrap();
    let d = d.path();
    let spec = spec(
        d,
        &format!("use: scaffold, {LOCAL}"),
        &format!("model: {NORM}, aggregator: {{ use: mean }}"),
    );
    let digest = |args: &[&str]| ran(d, args).0["digest"].as_str().unwrap().to_string();
    let due = digest(&[&spec, "--out", "one", "--threads", "1"]);
    assert_eq!(digest(&[&spec, "--out", "wire", "--wire"]), due);
    assert_eq!(
        digest(&[&spec, "--out", "processes", "--processes", "2"]),
        due
    );
    fl(
        d,
        &[
            "run",
            &spec,
            "--out",
            "stopped",
            "--stop-after",
            "1",
            "--quiet",
        ],
    );
    assert_eq!(digest(&["--resume", "stopped"]), due);
}

#[test]
fn exact_a_client_whose_training_diverges_is_left_out_in_processes_too() {
    let d = tempfile::tempdir().unwrap();
    let d = d.path();
    let wild = "use: dfdx, net: logistic, optimiser: { sgd: { lr: 1e39 } }";
    let model = "model: [{ clients: [0, 2], use: dfdx, net: logistic }, { clients: 1, WILD }]";
    let spec = spec(
        d,
        "use: solo, local: { epochs: 4, batch: 4 }",
        &model.replace("WILD", wild),
    );
    let (code, error) = fails(d, &["run", &spec, "--out", "fails"]);
    assert!(code == 1 && error.contains("client 1: "), "{error}");
    let drop = ["--set", "faults.on-nan=drop"];
    let digest = |more: &[&str]| {
        let (done, notes) = ran(d, &[&[&*spec][..], &drop, more].concat());
        assert_eq!(
            notes.matches("left out: client 1 (1: ").count(),
            1,
            "{notes}"
        );
        done["digest"].as_str().unwrap().to_string()
    };
    let due = digest(&["--out", "one"]);
    assert_eq!(digest(&["--out", "wire", "--wire"]), due);
    assert_eq!(digest(&["--out", "processes", "--processes", "2"]), due);
}

#[test]
fn check_names_clients_that_cannot_train() {
    let d = tempfile::tempdir().unwrap();
    let d = d.path();
    let norm = format!("model: {NORM}, aggregator: {{ use: mean }}");
    let spec_of = |protocol: &str| spec(d, protocol, &norm);
    let said = fl(d, &["check", &spec_of(&format!("use: fedavg, {LOCAL}"))]);
    let notes = flat(&String::from_utf8_lossy(&said.stderr));
    let due = "client 2 has fewer than the 2 examples that batch normalisation needs in a mini-batch, and will take no training step";
    assert!(said.status.success() && notes.contains(due), "{notes}");
    for protocol in ["fedavg", "per-fedavg"] {
        let one = format!("use: {protocol}, local: {{ epochs: 1, batch: 1 }}");
        let (code, error) = fails(d, &["check", &spec_of(&one)]);
        let due = "its batch normalisation needs 2 examples in a mini-batch, and `protocol.local.batch` is 1, so it would take no step";
        assert!(code == 2 && error.contains(due), "{error}");
    }
    // gradients of single examples normalise no batch
    let dp = "use: fedavg, rounds: 1, local: { steps: 2, batch: 1 }, sampling: { rate: 0.5 }";
    let privacy = "example-privacy: { use: gaussian-gradients }";
    let said = fl(d, &["check", &spec(d, dp, &format!("{norm}, {privacy}"))]);
    let notes = flat(&String::from_utf8_lossy(&said.stderr));
    let due = "its training leaves out batch normalisation: the steps of DP-SGD";
    let none = !notes.contains("in a mini-batch");
    assert!(
        said.status.success() && none && notes.contains(due),
        "{notes}"
    );
    let beside = "model: { use: dfdx, net: [{ linear: 4 }, relu, { dropout: 0.5 }, outputs] }, aggregator: { use: mean }";
    let said = fl(d, &["check", &spec(d, dp, &format!("{beside}, {privacy}"))]);
    let notes = flat(&String::from_utf8_lossy(&said.stderr));
    let due = "its training leaves out dropout: the steps of DP-SGD follow the gradients of single examples";
    assert!(said.status.success() && notes.contains(due), "{notes}");
    let privacy = "privacy: { use: gaussian-update }";
    let noisy = spec(
        d,
        &format!("use: fedavg, {LOCAL}"),
        &format!("{norm}, {privacy}"),
    );
    let said = fl(d, &["check", &noisy]);
    let notes = flat(&String::from_utf8_lossy(&said.stderr));
    let due = "parts.privacy adds noise to its 2 buffers too";
    assert!(said.status.success() && notes.contains(due), "{notes}");
    // a server whose student has one row to learn from
    let public = "protocol={use: one-shot-distill, local: {epochs: 1, batch: 8}, student: {epochs: 2, batch: 8}}";
    let parts =
        format!("parts={{teacher: {NORM}, student: {NORM}, ensemble: {{use: mean-logits}}}}");
    let one = [
        "--set",
        public,
        "--set",
        &parts,
        "--set",
        "data.public={from: {count: 1}}",
    ];
    let (_, notes) = ran(d, &[&[&noisy[..], "--out", "one"][..], &one].concat());
    let due = "parts.student took no training step";
    assert!(flat(&notes).contains(due), "{notes}");
    // images have more than one number in a channel
    let images = "name: images
data: { set: glyphs, clients: 3, limit: { train: 3, test: 4 } }
protocol: { use: fedavg, rounds: 1, local: { epochs: 1, batch: 1 } }
parts: { model: { use: dfdx, net: [{ conv: { out: 2, kernel: 3 } }, batch-norm, outputs] }, aggregator: { use: mean } }
";
    fs::write(d.join("images.yaml"), images).unwrap();
    let (_, notes) = ran(d, &["images.yaml", "--out", "images"]);
    assert!(!notes.contains("no training step"), "{notes}");
}

#[test]
fn clients_with_too_few_examples_for_a_sample_are_named_by_a_check() {
    let d = tempfile::tempdir().unwrap();
    let d = d.path();
    let checked = |k: usize, set: &str| {
        let sampling = format!("sampling: {{ use: sample-examples, k: {k} }}");
        let parts = format!(
            "model: {{ use: dfdx, net: logistic }}, ensemble: {{ use: mean-of-classes }}, {sampling}"
        );
        let protocol = "use: class-distill, rounds: 1, local: { steps: 1, batch: 4 }";
        let said = fl(d, &["check", &spec(d, protocol, &parts), "--set", set]);
        let text = flat(&String::from_utf8_lossy(&said.stderr));
        (said.status.code(), text)
    };
    let [fail, drop] = ["fail", "drop"].map(|policy| format!("faults.on-error={policy}"));
    let (code, said) = checked(5, &fail);
    let due = "it cannot draw at client 2: `sample-examples` draws 5 of a client's examples, and the client has too few: draw fewer; the smallest has 1";
    assert!(code == Some(2) && said.contains(due), "{said}");
    let (code, said) = checked(5, &drop);
    assert!(code == Some(0) && said.contains(due), "{said}");
    let (code, said) = checked(30, &drop);
    let due = "it cannot draw at clients 0, 1 and 2";
    assert!(code == Some(2) && said.contains(due), "{said}");
    let (code, said) = checked(1, &fail);
    assert!(code == Some(0) && !said.contains("cannot draw"), "{said}");
    // an accountant keeps it secret which clients these are
    let (code, said) = checked(5, "parts.accountant={use: nfdp}");
    let due = "it cannot draw at every client: `sample-examples` draws 5 of a client's examples";
    assert!(code == Some(2) && said.contains(due), "{said}");
    assert!(!said.contains("smallest"), "{said}");
}

#[test]
fn a_schedule_that_never_falls_is_refused() {
    let d = tempfile::tempdir().unwrap();
    let d = d.path();
    let spec_of = |schedule: &str, protocol: &str| {
        let model = format!("model: {{ use: dfdx, net: logistic, schedule: {{ {schedule} }} }}");
        spec(
            d,
            protocol,
            &format!("{model}, aggregator: {{ use: mean }}"),
        )
    };
    // the largest client has 21 rows: three mini-batches an epoch
    let rounds = "use: fedavg, rounds: 4, local: { epochs: 2, batch: 8 }";
    let anew = "never has them: it begins anew in each round (`protocol.fresh: true`), so one training has 6 mini-batches of a client at most: shorten the schedule, set `protocol.fresh: false`, so that each client counts its own over the run, let `protocol.local.rate` follow the round, or train longer";
    let refused = [
        ("step: { every: 6, factor: 0.1 }", rounds.to_string(), anew),
        ("cosine: { steps: 7 }", rounds.to_string(), anew),
        (
            "step: { every: 24, factor: 0.1 }",
            format!("{rounds}, fresh: false"),
            "a client has 24 mini-batches at most in the whole run: shorten the schedule, or train longer",
        ),
        (
            "step: { every: 9, factor: 0.1 }",
            rounds.replace("epochs: 2", "steps: 9"),
            "one training has 9 mini-batches of a client at most",
        ),
    ];
    for (schedule, protocol, due) in refused {
        let (code, error) = fails(d, &["check", &spec_of(schedule, &protocol)]);
        assert!(code == 2 && error.contains(due), "{schedule}: {error}");
    }
    let solo = "model: { use: dfdx, net: logistic, schedule: { step: { every: 6, factor: 0.1 } } }";
    let (_, error) = fails(
        d,
        &[
            "check",
            &spec(d, "use: solo, local: { epochs: 2, batch: 8 }", solo),
        ],
    );
    let due =
        "a client's training has 6 mini-batches at most: shorten the schedule, or train longer";
    assert!(error.contains(due), "{error}");
    for (schedule, protocol) in [
        ("step: { every: 5, factor: 0.1 }", rounds.to_string()),
        ("cosine: { steps: 6 }", rounds.to_string()),
        ("cosine: {}", rounds.to_string()),
        (
            "step: { every: 23, factor: 0.1 }",
            format!("{rounds}, fresh: false"),
        ),
        (
            "step: { every: 8, factor: 0.1 }",
            rounds.replace("epochs: 2", "steps: 9"),
        ),
    ] {
        out(d, &["check", &spec_of(schedule, &protocol)]);
    }
}

#[test]
fn a_schedule_that_ends_long_before_the_training_is_told() {
    let d = tempfile::tempdir().unwrap();
    let d = d.path();
    let notes = |schedule: &str, more: &str, parts: &str| {
        let model = format!("model: {{ use: dfdx, net: logistic, schedule: {{ {schedule} }} }}");
        let protocol = format!("use: fedavg, rounds: 4, local: {{ epochs: 2, batch: 8 }}{more}");
        let parts = format!("{model}, aggregator: {{ use: mean }}{parts}");
        let said = fl(d, &["check", &spec(d, &protocol, &parts)]);
        let text = flat(&String::from_utf8_lossy(&said.stderr));
        assert!(said.status.success(), "{text}");
        text
    };
    // the largest client has 21 rows: three mini-batches an epoch
    let said = notes("cosine: { steps: 5 }", ", fresh: false", "");
    let due = "its learning-rate schedule ends after 5 mini-batches, and the rate stays 0: a client has 24 mini-batches at most in the whole run, so up to 19 of 24 are at that rate: let the schedule end later, or train less";
    assert!(said.contains(due), "{said}");
    let said = notes("cosine: { steps: 3, to: 0.01 }", "", "");
    let due = "the rate stays 0.01: it begins anew in each round (`protocol.fresh: true`), so one training has 6 mini-batches of a client at most, so up to 3 of 6 are at that rate";
    assert!(said.contains(due), "{said}");
    let some = ", cohort: { use: uniform, share: 0.5 }";
    for (schedule, more, parts) in [
        ("cosine: { steps: 22 }", ", fresh: false", ""),
        ("cosine: { steps: 5 }", ", fresh: false", some),
        ("step: { every: 5, factor: 0.1 }", ", fresh: false", ""),
        ("cosine: {}", "", ""),
    ] {
        let said = notes(schedule, more, parts);
        assert!(!said.contains("and the rate stays"), "{schedule}: {said}");
    }
}

#[test]
fn a_schedule_that_never_falls_is_told_of_every_model() {
    let d = tempfile::tempdir().unwrap();
    let model = |slot: &str, every: usize| {
        let schedule = format!("schedule: {{ step: {{ every: {every}, factor: 0.1 }} }}");
        format!("parts.{slot}={{ use: dfdx, net: [outputs], {schedule} }}")
    };
    let due = "mini-batches to fall and never has them";
    // FedKD's student has 30 epochs of 1200 public samples
    for (name, slot, most) in [
        ("fedkd", "student", 30 * 1200usize.div_ceil(32)),
        ("fedkt", "teacher", 1000),
        ("selective-fd", "model", 12 * 11),
        ("fediod", "teacher", 1500),
        ("feddf", "model", 400),
    ] {
        let set = model(slot, most);
        let said = fl(d.path(), &["check", &quick(name), "--set", &set]);
        let text = flat(&String::from_utf8_lossy(&said.stderr));
        assert!(text.contains(due), "{name}: {text}");
        // a round of a client's is told apart from what else a protocol trains
        assert_eq!(said.status.success(), name != "feddf", "{name}: {text}");
    }
    for (name, slot, most) in [
        ("fedkd", "student", 30 * 1200usize.div_ceil(32)),
        ("selective-fd", "model", 12 * 11),
    ] {
        let set = model(slot, most - 1);
        let said = fl(d.path(), &["check", &quick(name), "--set", &set]).stderr;
        let said = flat(&String::from_utf8_lossy(&said));
        assert!(!said.contains(due), "{name}: {said}");
    }
    // the painter of AsynDGAN has 3 rounds of 20 steps
    for (every, never) in [(60, true), (59, false)] {
        let falls = format!("{{ step: {{ every: {every}, factor: 0.1 }} }}");
        let set = format!("parts.generator.schedule={falls}");
        let said = fl(d.path(), &["check", &quick("asyn-dgan"), "--set", &set]).stderr;
        let said = flat(&String::from_utf8_lossy(&said));
        assert_eq!(said.contains(due), never, "{every}: {said}");
    }
}

/// Clients with two networks, one of which keeps its optimiser's moments; three of five a round.
fn rates(protocol: &str, parts: &str) -> String {
    format!(
        "name: rates\nseed: 1\ndata: {{ set: blobs, clients: 5 }}\nprotocol: {{ {protocol} }}\n\
         parts:\n  aggregator: {{ use: mean }}\n  cohort: {{ use: uniform, share: 0.6 }}\n{parts}"
    )
}

const ADAM: &str = "  model: { use: dfdx, net: [{ linear: 4 }, relu, outputs], optimiser: { adam: { lr: 0.01 } } }\n";
const FALLING: &str =
    "rate: { by-round: { factor: 0.5, warm-up: 2, steps: [{ from: 3, factor: 0.1 }] } }";

#[test]
fn exact_rates_by_round_are_the_same_in_every_way_of_running() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let of = |protocol: &str, rate: &str, parts: &str| {
        let local = format!("rounds: 5, local: {{ steps: 3, batch: 8, {rate} }}");
        fs::write(
            dir.join("spec.yaml"),
            rates(&format!("{protocol}, {local}"), parts),
        )
        .unwrap();
        ways(dir, "spec.yaml")
    };
    let gradient = "  model: { use: linear, lr: 0.1 }\n";
    let noise = format!(
        "{gradient}  example-privacy: {{ use: gaussian-gradients }}\n  accountant: {{ use: rdp, delta: 1e-5 }}\n"
    );
    for (protocol, parts) in [
        ("use: fedavg, fresh: false", ADAM),
        ("use: fedprox, mu: 0.1", ADAM),
        ("use: scaffold", gradient),
        ("use: fedavg, sampling: { rate: 0.1 }", &noise),
    ] {
        let falling = of(protocol, FALLING, parts);
        assert!(
            falling.iter().all(|(_, result)| *result == falling[0].1),
            "{protocol}: {falling:?}"
        );
        assert_ne!(of(protocol, "clip: null", parts)[0].1, falling[0].1);
    }
}

#[test]
fn rates_that_cannot_be_are_refused_by_check() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let error = |protocol: &str, rate: &str, parts: &str| {
        let local = format!("rounds: 5, local: {{ steps: 3, batch: 8, {rate} }}");
        let text = rates(&format!("{protocol}, {local}"), parts);
        fs::write(dir.join("spec.yaml"), text).unwrap();
        let (code, said) = fails(dir, &["check", "spec.yaml"]);
        assert_eq!(code, 2, "{said}");
        said
    };
    for (rate, due) in [
        (
            "rate: { by-round: { cosine: { over: 4 } } }",
            "`local.rate.by-round` gives round 5 the rate 0, so nothing is learnt in it",
        ),
        (
            "rate: { by-round: { steps: [{ from: 6, factor: 0.1 }] } }",
            "`local.rate.by-round` has a step from round 6, and the last is 5",
        ),
        (
            "rate: { by-round: { factor: 1 } }",
            "`local.rate.by-round` changes the rate in none of 5 rounds",
        ),
        (
            "rate: { by-round: { factor: 0 } }",
            "factor: must be above 0",
        ),
    ] {
        let said = error("use: fedavg", rate, ADAM);
        assert!(said.contains(due), "{rate}: {said}");
    }
    // a part that does not say that passes have rates
    let library = library::beside("fl_stateful");
    let loaded = format!(
        "  model: {{ use: rs-trainer }}\nplugins: [{{ path: {} }}]\n",
        library.display()
    );
    let said = error("use: fedavg", FALLING, &loaded);
    let due =
        "no round can scale its learning rate, which protocol `fedavg` needs with these settings";
    assert!(said.contains(due), "{said}");
    // `together` takes its steps at one rate
    let said = error("use: co-distill, order: { together: 0.5 }", FALLING, ADAM);
    assert!(said.contains("give `rate` there"), "{said}");
}

/// An aggregation is repeated with the buffers that the run knew.
#[test]
fn exact_a_step_that_leaves_buffers_alone_is_verified() {
    let d = tempfile::tempdir().unwrap();
    let d = d.path();
    let spec = spec(
        d,
        &format!("use: fedavg, {LOCAL}"),
        &format!("model: {NORM}, aggregator: {{ use: fed-avg-m }}"),
    );
    json(
        d,
        &[
            "run",
            &spec,
            "--json",
            "--out",
            "kept",
            "--set",
            "keep=messages",
        ],
    );
    out(d, &["verify", "kept"]);
}
