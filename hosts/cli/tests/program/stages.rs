//! Runs of several protocols that follow one another.

use crate::common::{fails, fl, flat, json, out};
use serde_json::Value;
use std::path::Path;

const DATA: &str = "name: staged
seed: 3
data:
  set: { blobs: { classes: 4, features: 8, train: 400, test: 80 } }
  clients: 8
  split: { dirichlet: { alpha: 0.5, min-size: 4 } }
  test: { own: 0.25, of: all }
";

/// Clients remember control variates in the second stage, and one of them has an attacker; the last
/// has an aggregator of its own.
const STAGES: &str = "stages:
- protocol: { use: fedavg, rounds: 3, local: { epochs: 1, batch: 16 } }
- protocol: { use: scaffold, rounds: 4, local: { epochs: 1, batch: 16 } }
  parts:
    cohort: { use: uniform, share: 0.5 }
- protocol: { use: solo, from-server: true, local: { epochs: 2, batch: 16 } }
- protocol: { use: fedavg, rounds: 3, local: { epochs: 1, batch: 16 } }
  parts:
    aggregator: { use: fed-adam }
parts:
  model: { use: linear, lr: 0.1 }
  aggregator: { use: mean }
";

fn spec(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(name), text).unwrap();
}

/// The measurements called `name`, with the round of each.
fn measured(dir: &Path, run: &Value, name: &str) -> Vec<(u64, f64)> {
    let folder = dir.join(run["out"].as_str().unwrap());
    let lines = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let named = lines.filter(|line: &Value| line["name"] == name);
    let of = |line: Value| {
        (
            line["round"].as_u64().unwrap(),
            line["value"].as_f64().unwrap(),
        )
    };
    named.map(of).collect()
}

#[test]
fn exact_stages_have_one_digest_in_every_way_and_from_every_stop() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    spec(dir, "staged.yaml", &format!("{DATA}{STAGES}"));
    let run = ["run", "staged.yaml", "--json"];
    let plain = json(dir, &run);
    for how in [
        &["--threads", "1"][..],
        &["--threads", "3", "--wire"],
        &["--processes", "2"],
        &["--memory", "1KiB"],
    ] {
        let other = json(dir, &[&run[..], how].concat());
        assert_eq!(plain["digest"], other["digest"], "{how:?}");
        assert_eq!(plain["metrics"], other["metrics"], "{how:?}");
    }
    // 3 + 4 rounds, two steps and 3 rounds
    for done in 1..12 {
        let (done, folder) = (done.to_string(), format!("stopped-{done}"));
        let stop = ["--stop-after", &done, "--out", &folder];
        let stopped = json(dir, &[&run[..], &stop].concat());
        assert!(!stopped["stopped"].is_null(), "{done}");
        let resumed = json(dir, &["run", "--resume", &folder, "--json"]);
        assert_eq!(plain["digest"], resumed["digest"], "after {done}");
        assert_eq!(plain["metrics"], resumed["metrics"], "after {done}");
    }
    let rounds = measured(dir, &plain, "accuracy");
    let rounds: Vec<u64> = rounds.iter().map(|(round, _)| *round).collect();
    assert_eq!(rounds, (1..=10).collect::<Vec<_>>(), "rounds count on");
}

#[test]
fn exact_the_first_stage_is_the_protocol_alone_and_the_next_begins_with_its_model() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // one batch of all rows: nothing is drawn
    let fedavg = "{ use: fedavg, rounds: 3, local: { epochs: 1, batch: 1000 }TUNE }";
    let parts = "parts: { model: { use: linear, lr: 0.1 }, aggregator: { use: mean } }\n";
    let alone = |tune: &str| format!("{DATA}protocol: {}\n{parts}", fedavg.replace("TUNE", tune));
    spec(dir, "alone.yaml", &alone(""));
    spec(
        dir,
        "tuned.yaml",
        &alone(", tune: { epochs: 5, batch: 1000 }"),
    );
    let fedavg = fedavg.replace("TUNE", "");
    let solo = "{ use: solo, from-server: true, local: { epochs: 5, batch: 1000 } }";
    let stages =
        format!("{DATA}stages: [{{ protocol: {fedavg} }}, {{ protocol: {solo} }}]\n{parts}");
    spec(dir, "staged.yaml", &stages);
    let [alone, tuned, staged] = ["alone.yaml", "tuned.yaml", "staged.yaml"].map(|name| {
        json(
            dir,
            &["run", name, "--json", "--out", &name.replace(".yaml", "")],
        )
    });
    assert_eq!(
        measured(dir, &alone, "accuracy"),
        measured(dir, &staged, "accuracy")
    );
    let tuned = measured(dir, &tuned, "clients.accuracy");
    let staged = measured(dir, &staged, "clients.accuracy");
    assert_eq!(tuned[0].1, staged[0].1, "fine-tuning is the same");
    // and so is a run that begins with the model that another kept
    let text = format!("{DATA}protocol: {solo}\n{parts}");
    let text = text.replace("from-server: true", "initial: alone/models/model");
    spec(
        dir,
        "from.yaml",
        &text.replace(", aggregator: { use: mean }", ""),
    );
    let from = json(dir, &["run", "from.yaml", "--json", "--out", "from"]);
    assert_eq!(staged[0].1, measured(dir, &from, "clients.accuracy")[0].1);
}

#[test]
fn exact_stages_have_one_ledger_and_one_budget() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let data = DATA.replace("  test: { own: 0.25, of: all }\n", "");
    let parts = "parts:
  model: { use: linear, lr: 0.1 }
  aggregator: { use: mean, weigh: uniform }
  accountant: { use: analytic-gaussian, delta: 1e-5 }
";
    let noise = "privacy: { use: gaussian-update, clip: 0.5, noise-multiplier: 2.0 }";
    let fedavg = |rounds: usize| {
        format!("{{ use: fedavg, rounds: {rounds}, local: {{ epochs: 1, batch: 16 }} }}")
    };
    let stage = |rounds| format!("- protocol: {}\n", fedavg(rounds));
    let own = |rounds| format!("{}  parts: {{ {noise} }}\n", stage(rounds));
    let staged =
        |stages: &[String], more: &str| format!("{data}stages:\n{}{parts}{more}", stages.concat());
    spec(
        dir,
        "one.yaml",
        &format!("{data}protocol: {}\n{parts}  {noise}\n", fedavg(5)),
    );
    spec(
        dir,
        "shared.yaml",
        &staged(&[stage(2), stage(3)], &format!("  {noise}\n")),
    );
    spec(dir, "own.yaml", &staged(&[own(2), own(3)], ""));
    spec(dir, "bare.yaml", &staged(&[own(2), stage(3)], ""));
    let one = json(dir, &["run", "one.yaml", "--json"]);
    for name in ["shared.yaml", "own.yaml"] {
        let run = json(
            dir,
            &[
                "run",
                name,
                "--json",
                "--out",
                name.trim_end_matches(".yaml"),
            ],
        );
        assert_eq!(one["privacy"], run["privacy"], "{name}");
        let planned = out(dir, &["plan", name, "--json"]);
        let planned: Value = serde_json::from_str(&planned).unwrap();
        let (all, run) = (&planned["reached"], &run["privacy"]["server"]["epsilon"]);
        assert_eq!(&all[0][1]["epsilon"], run, "{name}");
    }
    let bare = json(dir, &["run", "bare.yaml", "--json"]);
    let said = bare["privacy"].to_string();
    assert!(
        said.contains("clients answer `parameters after local training of stage 2` without noise"),
        "{said}"
    );
    // what the budget does not pay for does not take place, in whichever stage it is
    let epsilon = one["privacy"]["server"]["epsilon"].as_f64().unwrap();
    let budget = format!(
        "budget: {{ epsilon: {}, against: server }}\n",
        epsilon * 0.9
    );
    spec(
        dir,
        "little.yaml",
        &staged(&[stage(2), stage(3)], &format!("  {noise}\n{budget}")),
    );
    let run = json(dir, &["run", "little.yaml", "--json"]);
    assert!(
        run["bytes"]["up"].as_u64() < one["bytes"]["up"].as_u64(),
        "{run}"
    );
    assert!(run["privacy"]["server"]["epsilon"].as_f64().unwrap() <= epsilon * 0.9);
}

#[test]
fn mistakes_in_stages_are_told_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let good = format!("{DATA}{STAGES}");
    for (from, to, said) in [
        (
            "stages:",
            "protocol: { use: solo }\nstages:",
            "stages: does not go with `protocol`",
        ),
        (
            "stages:",
            "stages: []\nstages_:",
            "stages: must have a stage",
        ),
        (
            "cohort: { use: uniform",
            "cohrt: { use: uniform",
            "stages[1].parts.cohrt: protocol `scaffold` has no slot `cohrt`; did you mean `cohort`?",
        ),
        (
            "use: scaffold, rounds",
            "use: scaffold, ronds",
            "stages[1].protocol (protocol `scaffold`): ronds: no such setting; did you mean `rounds`?",
        ),
        (
            "  parts:\n    cohort",
            "  prts:\n    cohort",
            "stages[1].prts: no such setting; did you mean `parts`?",
        ),
        (
            "    cohort: { use: uniform, share: 0.5 }",
            "    accountant: { use: rdp }",
            "stages[1].parts.accountant: is for the whole run",
        ),
        (
            "    cohort: { use: uniform, share: 0.5 }",
            "    accountant: null",
            "stages[1].parts.accountant: is for the whole run",
        ),
        (
            "    cohort: { use: uniform, share: 0.5 }",
            "    cohrt: null",
            "stages[1].parts.cohrt: protocol `scaffold` has no slot `cohrt`",
        ),
        (
            "    cohort: { use: uniform, share: 0.5 }",
            "    aggregator: null",
            "stages[1].parts.aggregator: is missing",
        ),
        (
            "  aggregator: { use: mean }\n",
            "  aggregator: { use: mean }\n  cohrt: null\n",
            "parts.cohrt: protocol `fedavg, then scaffold, then solo, then fedavg` has no slot",
        ),
        (
            "from-server: true",
            "initial: staged.yaml",
            "stages[2].protocol.initial: a later stage begins with what the one before it has learnt",
        ),
        (
            "parts:\n  model",
            "stop-when: { metric: accuracy, patience: 2 }\nparts:\n  model",
            "stop-when: ends the rounds of one protocol",
        ),
        (
            "use: solo, from-server: true",
            "use: centralised, from-server: true",
            "cannot be stages of one run",
        ),
        (
            "  aggregator: { use: mean }\n",
            "",
            "parts.aggregator: is missing",
        ),
        ("linear, lr: 0.1", "tree", "it has no parameters to combine"),
        (
            "stages:\n- protocol: { use: fedavg",
            "stages:\n- { use: fedavg",
            "stages[0].protocol: is missing",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        spec(dir, "wrong.yaml", &good.replacen(from, to, 1));
        let (code, text) = fails(dir, &["check", "wrong.yaml"]);
        assert_eq!(code, 2, "{to}: {text}");
        assert!(flat(&text).contains(said), "{to}: {text}");
    }
    let (_, text) = fails(dir, &["check", "wrong.yaml"]);
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn exact_a_stage_may_leave_a_slot_of_the_run_empty() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let stage = "- protocol: { use: fedavg, rounds: 2, local: { epochs: 1, batch: 16 } }\n";
    let parts = "parts:\n  model: { use: linear, lr: 0.1 }\n  aggregator: { use: mean }\n";
    let attack = "  attack: { use: sign-flip, scale: 3, clients: [0, 1] }\n";
    let of = |first: &str, second: &str, all: &str| {
        let text = format!("{DATA}stages:\n{stage}{first}{stage}{second}{parts}{all}");
        spec(dir, "some.yaml", &text);
        json(dir, &["run", "some.yaml", "--json"])
    };
    let emptied = of("", "  parts: { attack: null }\n", attack);
    let first = format!("  parts:\n  {attack}");
    let own = of(&first, "", "");
    let both = of("", "", attack);
    let accuracy = |run: &Value| run["metrics"]["accuracy"].as_f64().unwrap();
    assert_eq!(accuracy(&emptied), accuracy(&own));
    assert_ne!(emptied["digest"], both["digest"]);
    // the folder's spec says the same
    let kept = format!("{}/spec.yaml", emptied["out"].as_str().unwrap());
    assert_eq!(
        json(dir, &["run", &kept, "--json"])["digest"],
        emptied["digest"]
    );
    let says = "`sampling` has no effect while `parts.example-privacy` is empty";
    let sampled = stage.replace("local:", "sampling: { rate: 0.1 }, local:");
    let text = format!(
        "{DATA}stages:\n{sampled}{sampled}  parts: {{ example-privacy: null }}\n{parts}  \
         example-privacy: {{ use: dp-sgd }}\n"
    );
    spec(dir, "some.yaml", &text.replace("epochs: 1", "steps: 3"));
    let (_, said) = fails(dir, &["check", "some.yaml"]);
    assert!(flat(&said).contains(says), "{said}");
}

/// The later stages begin anew, so the sample of the first must change nothing of them. A fault
/// finds its round in the third.
#[test]
fn exact_a_private_sample_is_of_its_stage_and_faults_count_the_rounds_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let sampling = "  parts: { sampling: { use: sample-examples, k: 9 } }\n";
    let later = |first: &str, folder: &str| {
        let text = format!(
            "name: s
data: {{ set: {{ blobs: {{ train: 300, test: 60 }} }}, clients: 3, split: {{ size: {{ shares: [1, 3, 6] }} }} }}
stages:
- protocol: {{ use: class-distill, rounds: 1, local: {{ epochs: 1, batch: 16 }} }}
{first}- protocol: {{ use: class-distill, rounds: 1, local: {{ epochs: 1, batch: 16 }} }}
  parts: {{ model: {{ use: linear }} }}
- protocol: {{ use: fedavg, rounds: 1, local: {{ epochs: 1, batch: 16 }} }}
  parts: {{ model: {{ use: linear }}, aggregator: {{ use: mean }} }}
parts:
  model: {{ use: linear }}
  ensemble: {{ use: mean-of-classes }}
faults: {{ on-error: drop, inject: [{{ what: crash, clients: 0, rounds: 3 }}] }}
"
        );
        spec(dir, "s.yaml", &text);
        out(dir, &["run", "s.yaml", "--out", folder]);
        let lines = |name: &str| -> Vec<Value> {
            let text = std::fs::read_to_string(dir.join(folder).join(name)).unwrap();
            let lines = text.lines();
            lines
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        };
        let dropped = lines("journal.jsonl");
        let dropped = dropped.iter().filter(|line| {
            line["dropped"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
        });
        let steps: Vec<&Value> = dropped.map(|line| &line["step"]).collect();
        assert_eq!(steps, ["round 3"], "{folder}");
        let measured = lines("metrics.jsonl").into_iter();
        let later = measured.filter(|line| line["round"].as_u64() > Some(1));
        later.collect::<Vec<_>>()
    };
    let (plain, sampled) = (later("", "plain"), later(sampling, "sampled"));
    assert!(plain.len() >= 4, "{plain:?}");
    assert_eq!(plain, sampled);
}

#[test]
fn stages_whose_slots_of_one_name_differ_may_leave_them_empty() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = "name: x\ndata: { set: { blobs: { train: 80, test: 40 } }, clients: 2 }\nstages:\n\
        - protocol: { use: fedproto, rounds: 1 }\n  parts: { prototypes: { use: mean-of-features } }\n\
        - protocol: { use: fedavg, rounds: 1 }\n  parts: { aggregator: { use: mean } }\nparts:\n  \
        model: { use: dfdx, net: [{ linear: 8 }, relu, outputs], optimiser: { sgd: { lr: 0.1 } } }\n";
    spec(dir, "two.yaml", text);
    out(dir, &["run", "two.yaml"]);
    spec(
        dir,
        "two.yaml",
        &format!("{text}  privacy: {{ use: gaussian }}\n"),
    );
    let (_, said) = fails(dir, &["check", "two.yaml"]);
    let said = flat(&said);
    assert!(said.contains("its slot `privacy` takes"), "{said}");
}

#[test]
fn scores_of_an_earlier_stage_are_told_from_the_last_ones() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let end = "parts:\n  model: { use: linear, lr: 0.1 }\n";
    let mean = format!("{end}  aggregator: {{ use: mean }}\n");
    let stages = "stages:\n- protocol: { use: fedper, rounds: 3, share: [weight], local: { epochs: 2, batch: 16 } }\n\
        - protocol: { use: fedavg, rounds: 1, local: { steps: 1, batch: 16 } }\n";
    let solo = "protocol: { use: solo, local: { epochs: 3, batch: 16 } }\n";
    spec(dir, "two.yaml", &format!("{DATA}{stages}{mean}"));
    spec(dir, "solo.yaml", &format!("{DATA}{solo}{end}"));
    out(dir, &["run", "two.yaml", "--out", "two"]);
    out(dir, &["run", "solo.yaml", "--out", "solo"]);
    let report = std::fs::read_to_string(dir.join("two/report.md")).unwrap();
    let due = ": last measured in round 3, and the run went on to round 4";
    let note = report.lines().find(|line| line.ends_with(due));
    let note = note.unwrap_or_else(|| panic!("{report}"));
    assert!(
        note.contains("`clients.accuracy`") && !note.contains("`own."),
        "{note}"
    );
    let compared = fl(dir, &["compare", "solo", "two", "--json"]).stdout;
    let compared: Value = serde_json::from_slice(&compared).unwrap();
    assert_eq!(compared["alone"][0]["name"], "own.accuracy", "{compared}");
    // the file of results of a study has the same
    let study = "name: s\nresults: s.jsonl\ntables:\n- name: t\n  seeds: 3\n  measure: negative-transfer.rate\n  \
        rows: [{ name: two, base: two.yaml }, { name: solo, base: solo.yaml }]\n";
    spec(dir, "s.yaml", study);
    let first = out(dir, &["study", "s.yaml"]);
    let rate = 100.0 * compared["alone"][0]["rate"].as_f64().unwrap();
    assert!(rate > 0.0, "{compared}");
    std::fs::remove_dir_all(dir.join("runs")).unwrap();
    assert_eq!(out(dir, &["study", "s.yaml"]), first);
}

#[test]
fn a_run_of_stages_verifies_and_shows_its_protocols() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    spec(
        dir,
        "staged.yaml",
        &format!("{DATA}{STAGES}keep: messages\n"),
    );
    let run = json(dir, &["run", "staged.yaml", "--json", "--out", "kept"]);
    assert_eq!(
        run["protocol"],
        "fedavg, then scaffold, then solo, then fedavg"
    );
    let verified = out(dir, &["verify", "kept"]);
    assert!(flat(&verified).contains("nothing differs"), "{verified}");
    let page = out(dir, &["report", "kept"]);
    let page = std::fs::read_to_string(dir.join(page.trim())).unwrap_or(page);
    assert!(page.contains("fedavg, then scaffold, then solo"), "{page}");
}

/// A mechanism of a training covers what its model learns in it, and nothing that the model or its
/// optimiser had learnt in a stage before.
#[test]
fn what_an_earlier_stage_teaches_without_noise_leaves_no_guarantee() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let data = "name: s
noise: system
data: { set: { blobs: { train: 300, test: 30 } }, clients: 3, public: { from: { share: 0.3 }, labelled: true } }
";
    let solo = "{ use: solo, local: { epochs: 1, batch: 16 }, keep-clients: true }";
    let distil = "{ use: co-distill, rounds: 1, samples: 20, labels: scores, order: public-first, distil: { epochs: 1, batch: 32 }, local: { epochs: 1, batch: 16 } }";
    let steps = "use: fedavg, rounds: 1, local: { steps: 1, batch: 20 }, sampling: { rate: 0.5 }";
    let tuned = format!("{{ {steps}, tune: {{ steps: 2, batch: 20 }} }}");
    let steps = format!("{{ {steps} }}");
    let sampled = "  model: { use: linear }
  ensemble: { use: mean-logits }
  sampling: { use: sample-examples, k: 5, min-examples: 60 }
  accountant: { use: nfdp }
";
    let clipped =
        "  model: { use: dfdx, net: logistic, optimiser: { sgd: { lr: 0.1, momentum: 0.9 } } }
  aggregator: { use: mean, weigh: uniform }
  example-privacy: { use: gaussian-gradients, clip: 0.1, noise-multiplier: 10 }
  accountant: { use: rdp, delta: 1e-5 }
";
    let guaranteed = |stages: [&str; 2], parts: &str| {
        let stages = stages.map(|stage| format!("- {{ protocol: {stage} }}\n"));
        let text = format!("{data}stages:\n{}parts:\n{parts}", stages.concat());
        spec(dir, "s.yaml", &text);
        let planned = out(dir, &["plan", "s.yaml", "--json"]);
        let planned: Value = serde_json::from_str(&planned).unwrap();
        let ran = json(dir, &["run", "s.yaml", "--json", "--quiet"]);
        let holds = |of: &str| ran["privacy"][of]["epsilon"].is_f64();
        let holds = ["server", "clients", "readers"].map(holds);
        let promised = planned["reached"].as_array().unwrap().len();
        assert!(promised >= holds.iter().filter(|holds| **holds).count());
        (holds, ran["privacy"].to_string())
    };
    // the order counts for other clients; the server and readers see the models of `solo`
    let (holds, why) = guaranteed([solo, distil], sampled);
    assert_eq!(holds, [false; 3], "{why}");
    let text = "clients answer `scores of public samples of stage 2` by models that an earlier stage taught without noise";
    assert!(why.contains(text), "{why}");
    let (holds, why) = guaranteed([distil, solo], sampled);
    assert_eq!(holds, [false, true, false], "{why}");
    assert_eq!(guaranteed([distil, distil], sampled).0, [true; 3]);
    for stage in [solo, &tuned] {
        let (holds, why) = guaranteed([stage, &steps], clipped);
        assert_eq!(holds, [false; 3], "{stage}: {why}");
    }
    assert_eq!(guaranteed([&steps, &steps], clipped).0, [true; 3]);
}

#[test]
fn a_run_of_stages_says_why_it_gets_no_more_rounds() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    spec(dir, "staged.yaml", &format!("{DATA}{STAGES}"));
    let more = ["--set", "stages[3].protocol.rounds=9"];
    let stop = ["run", "staged.yaml", "--out", "part", "--stop-after", "2"];
    for (run, folder, why) in [
        (&stop[..], "part", "a run with `stages` gets no more rounds"),
        (
            &["run", "staged.yaml", "--out", "done"],
            "done",
            "a run keeps none if its protocol has no setting that only counts rounds, after a single round, if `stop-when` ended its rounds or a stop fell after the last one, with `stages`, ",
        ),
    ] {
        out(dir, run);
        let resume = ["run", "--resume", folder];
        let (_, said) = fails(dir, &[&resume[..], &more].concat());
        assert!(flat(&said).contains(why), "{said}");
    }
}

#[test]
fn exact_a_model_of_a_stage_alone_is_kept_under_its_stage_and_read_as_its_part() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let net = |of: &str| {
        format!(
            "{{ use: dfdx, net: [linear: 6, {of}, outputs], optimiser: {{ sgd: {{ lr: 0.5 }} }} }}"
        )
    };
    let stage = "- protocol: { use: fedavg, rounds: 2, local: { epochs: 5, batch: 8 } }\n";
    let data = DATA.replace("  test: { own: 0.25, of: all }\n", "");
    for (name, first) in [
        ("relu", net("relu")),
        ("tanh", net("tanh")),
        ("linear", "{ use: linear }".into()),
    ] {
        let text = format!(
            "{data}stages:\n{stage}{stage}  parts:\n    model: {}\nparts:\n  model: {first}\n  aggregator: {{ use: mean }}\n",
            net("tanh")
        );
        spec(dir, &format!("{name}.yaml"), &text);
        out(dir, &["run", &format!("{name}.yaml"), "--out", name]);
        let own = std::fs::read(dir.join(name).join("models/model of stage 2")).unwrap();
        let attack = ["attack", "membership", name, "--json"];
        let found: Value = serde_json::from_str(&out(dir, &attack)).unwrap();
        let found = found["attacks"].as_array().unwrap();
        let named: Vec<&str> = found.iter().filter_map(|of| of["model"].as_str()).collect();
        assert_eq!(named, ["model", "model of stage 2"], "{name}");
        out(
            dir,
            &["export", name, "--safetensors", &format!("{name}.out")],
        );
        std::fs::write(dir.join(format!("{name}.own")), own).unwrap();
        spec(dir, &format!("{name}.auc"), &found[1].to_string());
    }
    // the second stage begins anew in each: its part reads its model alike, whatever came before
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert_eq!(read("relu.own"), read("tanh.own"));
    assert_eq!(read("relu.auc"), read("tanh.auc"));
    assert_eq!(read("relu.auc"), read("linear.auc"));
    let text = "name: x\ndata:\n  set: { blobs: { classes: 4, features: 8, train: 80, test: 40 } }\n  clients: 2\n  features: { kept-model: { file: 'relu/models/model of stage 2', is-public: true } }\nprotocol: { use: fedavg, rounds: 1, local: { epochs: 1, batch: 16 } }\nparts: { model: { use: linear }, aggregator: { use: mean } }\n";
    spec(dir, "on.yaml", text);
    out(dir, &["run", "on.yaml"]);
}

#[test]
fn exact_a_budget_that_ends_with_a_stage_ends_the_run_there() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let two = |first: usize, second: usize| {
        let stage = |rounds: usize| {
            format!(
                "- protocol: {{ use: fedavg, rounds: {rounds}, local: {{ epochs: 1, batch: 16 }} }}\n"
            )
        };
        let text = format!(
            "name: b\ndata: {{ set: {{ blobs: {{ train: 80, test: 40 }} }}, clients: 8 }}\nstages:\n{}{}parts:\n  model: {{ use: linear, lr: 0.05 }}\n  aggregator: {{ use: mean, weigh: uniform }}\n  privacy: {{ use: gaussian-update, clip: 0.5, noise-multiplier: 2.0 }}\n  accountant: {{ use: analytic-gaussian, delta: 1e-5 }}\nbudget: {{ epsilon: 10 }}\n",
            stage(first),
            stage(second)
        );
        spec(dir, "b.yaml", &text);
        json(dir, &["run", "b.yaml", "--json"])
    };
    // four rounds are within the budget
    let (ends, within) = (two(4, 6), two(5, 5));
    for of in ["privacy", "metrics"] {
        assert_eq!(ends[of], within[of]);
    }
}

#[test]
fn a_stage_that_cannot_go_on_with_all_of_a_model_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let two = |first: &str, second: &str| {
        let text = format!(
            "stages:\n- protocol: {{ {first}, rounds: 2, local: {{ epochs: 1, batch: 16 }} }}\n- protocol: {{ {second}, rounds: 2, local: {{ epochs: 1, batch: 16 }} }}\nparts:\n  model: {{ use: dfdx, net: [linear: 6, relu, outputs], optimiser: {{ sgd: {{ lr: 0.1 }} }} }}\n  aggregator: {{ use: mean }}\n"
        );
        spec(dir, "two.yaml", &format!("{DATA}{text}"));
    };
    let lost = "begins with the server's model at all clients: what they kept of slot `model` in stage 1 is lost";
    for (first, second, says) in [
        ("use: fedper", "use: fedper", true),
        ("use: ditto", "use: ditto", true),
        ("use: fedper", "use: fedavg", false),
        ("use: fedavg", "use: fedper", false),
    ] {
        two(first, second);
        let told = fl(dir, &["check", "two.yaml"]);
        let told = String::from_utf8_lossy(&told.stderr).into_owned();
        assert_eq!(
            flat(&told).contains(lost),
            says,
            "{first}, {second}: {told}"
        );
    }
    let own = "`fedgh` does not begin with the server's model: a client goes on with its own last model of slot `model`, or with an untrained one";
    for (first, says) in [("use: fedavg", true), ("use: ditto", false)] {
        two(first, "use: fedgh");
        let told = fl(dir, &["check", "two.yaml"]).stderr;
        let told = flat(&String::from_utf8_lossy(&told));
        assert_eq!(told.contains(own), says, "{first}: {told}");
    }
    two("use: ifca, clusters: 2", "use: fedavg");
    let (_, error) = fails(dir, &["check", "two.yaml"]);
    let due =
        "stage 1 ends with several models of slot `model`, so this stage has none to go on with";
    assert!(flat(&error).contains(due), "{error}");
    two("use: ifca, clusters: 1", "use: fedavg");
    out(dir, &["check", "two.yaml"]);
}
