//! All error messages, in one list to read.

use super::{GOOD, read_with, wrong};
use std::fmt::Write;

const TINY: &str = "\
name: tiny
data: {}
protocol: { use: rounds, rounds: 1 }
parts:
  model: { use: net }
  aggregator: { use: mean }
";

/// Replaces some lines of [`TINY`].
fn edited(edits: &[(&str, &str)]) -> String {
    edits.iter().fold(TINY.to_string(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
fn every_mistake_says_what_would_be_right() {
    let model = "  model: { use: net }";
    let rounds = "{ use: rounds, rounds: 1 }";
    let mean = "  aggregator: { use: mean }";
    let cases: &[&[(&str, &str)]] = &[
        // names
        &[(mean, "  aggregator: { use: meen }")],
        &[(mean, "  aggregator: { use: rdp }")],
        &[(mean, "  aggregator: { use: krum }")],
        &[(mean, "  aggregator: { usw: mean }")],
        &[(mean, "  aggregator: { use: [mean] }")],
        &[(mean, "  aggregator: mean")],
        &[(rounds, "{ use: round, rounds: 1 }")],
        &[(rounds, "rounds")],
        // settings
        &[(
            rounds,
            "{ use: rounds, rounds: 0, local: { epoch: 5, batch: many } }",
        )],
        &[(rounds, "\n  use: rounds\n  local:\n    epochs: -1")],
        &[(
            model,
            "  model:\n    use: net\n    outputs:\n    optimiser: { sgd: { momentum: .nan } }",
        )],
        &[(
            model,
            "  model: { use: net, optimiser: { sdg: { lr: 1 } } }",
        )],
        &[(model, "  model: { use: net, outputs: 7 }")],
        // slots
        &[(mean, "  agregator: { use: mean, trim: 3 }")],
        &[(mean, "  aggregator: { use: mean-scores }")],
        &[(mean, "  aggregator:")],
        &[(mean, "  aggregator: []")],
        &[("parts:\n", "x-parts:\n")],
        &[
            (
                model,
                "  model: { use: net }\n  privacy: { use: gaussian, clip: 1 }",
            ),
            ("rounds: 1 }", "rounds: 1, noise: false }"),
        ],
        &[
            (rounds, "{ use: distil }"),
            (model, "  teacher: { use: net }"),
            (mean, "  ensemble: { use: mean-scores }"),
        ],
        // an unknown or wrong protocol hides nothing
        &[
            (rounds, "{ use: round, rounds: 1 }"),
            (
                mean,
                "  whatever: { use: mean, trim: 3 }\n  other: { use: nat }",
            ),
        ],
        &[
            (rounds, "{ use: rounds }"),
            (mean, "  whatever: { use: mean, trim: 3 }"),
        ],
        // groups of clients
        &[(
            model,
            "  model:\n    - { clients: 0-3, use: net }\n    - { clients: [3, 5-9], use: net }",
        )],
        &[(
            model,
            "  model:\n    - { clients: 8-12, use: net }\n    - { use: net }\n    - { use: net }",
        )],
        &[(model, "  model: { clients: 3-1, use: net }")],
        &[(mean, "  aggregator: { use: mean, clients: 0-9 }")],
        // sections
        &[("name: tiny\n", "name: ../tiny\nseed: -1\n")],
        &[(
            "name: tiny\n",
            "nmae: tiny\nevaluate: { every: 0 }\nfaults: { on-nan: ignore, max-wait: 1 }\n",
        )],
        &[(
            "data: {}",
            "data: { clients: 0, public: 5 }\nbudget: { epsilon: 0 }",
        )],
        &[(rounds, "{ use: distil }\nbudget: { epsilon: 1 }")],
        // YAML
        &[("data: {}", "data: {}\ndata: { clients: 3 }")],
        &[(
            "data: {}",
            "data: { clients: 3 }\nbase: &b { x: 1 }\n<<: *b\n7: x",
        )],
        &[(model, "  model: !mine { use: net }")],
        &[(mean, "\taggregator: { use: mean }")],
        &[(mean, "  aggregator: { use: mean")],
        &[(mean, "  aggregator: { use: mean }\n---\nname: two")],
    ];
    let mut out = String::new();
    for edits in cases {
        for (from, to) in *edits {
            let _ = writeln!(
                out,
                "{} => {}",
                from.trim(),
                to.replace('\t', "<tab>").trim_end()
            );
        }
        let _ = writeln!(out, "{}\n", wrong(&edited(edits)));
    }
    let outside = [
        "protocol.rounds=0",
        "protocol.rouns=5",
        "parts.model[0].net=x",
        "parts.model.use.x=1",
        "name.x=1",
        "seed",
        "a..b=1",
        "data={clients: [}",
        "data.clients[0]=3",
        "parts.cohort={use: unifrom}",
    ];
    for set in outside {
        let report = read_with(TINY, &[set]).err().map(|e| e.to_string());
        let _ = writeln!(out, "--set {set}\n{}\n", report.unwrap_or_default());
    }
    for text in [
        "",
        "# nothing here\n",
        "- a\n- list\n",
        "just text",
        "*x",
        "a: &x [*x]",
    ] {
        let _ = writeln!(out, "{text:?}\n{}\n", wrong(text));
    }
    insta::assert_snapshot!(out);
}

#[test]
fn what_stands_in_the_wrong_place_or_form_says_the_right_one() {
    let model = "  model: { use: net }";
    let mean = "  aggregator: { use: mean }";
    let cases = [
        // a slot, a setting of the protocol and one of the data, at the top
        (
            "data: {}",
            "data: {}\naggregator: mean",
            "; there is `parts.aggregator`",
        ),
        (
            "data: {}",
            "data: {}\nrounds: 5",
            "; there is `protocol.rounds`",
        ),
        (
            "data: {}",
            "data: {}\nsize: 5",
            "; there is `data.public.size`",
        ),
        // words of other frameworks
        (
            "data: {}",
            "data: {}\nnum_rounds: 5",
            "; there is `protocol.rounds`",
        ),
        (
            "data: {}",
            "data: {}\nfraction_fit: 0.5",
            "; there is `parts.cohort`",
        ),
        (
            "rounds: 1 }",
            "rounds: 1, Learning_Rate: 1 }",
            "; there is `parts.model.optimiser.sgd.lr`",
        ),
        (
            "data: {}",
            "data: {}\nglobal_rounds: 5",
            "; there is `protocol.rounds`",
        ),
        (
            "rounds: 1 }",
            "rounds: 1, local_learning_rate: 1 }",
            "; there is `parts.model.optimiser.sgd.lr`",
        ),
        (
            "rounds: 1 }",
            "rounds: 1, 01 }",
            "; a number has a decimal point: `0.01`, not `0,01`",
        ),
        // the protocol may be no more than a name
        (
            "{ use: rounds, rounds: 1 }",
            "rounds\naggregator: mean",
            "; there is `parts.aggregator`",
        ),
        // a part's name needs no list of all others
        (
            mean,
            "  aggregator: mean",
            "got `mean`; write `{ use: mean }`",
        ),
        // a choice of a trainer's setting, in the trainer's place
        (
            model,
            "  model: { use: frozen }",
            "no trainer is called `frozen`; write `{ use: net, optimiser: frozen }`",
        ),
        (
            mean,
            "  aggregator: { use: mean }\n  cohort: { use: all }",
            "no selector is called `all`; leave the slot out, and all are taken",
        ),
    ];
    for (from, to, says) in cases {
        let said = wrong(&edited(&[(from, to)]));
        assert!(
            said.lines().any(|line| line.ends_with(says)),
            "{to}: {said}"
        );
    }
}

#[test]
fn what_is_no_yaml_says_what_a_person_did() {
    for (text, says) in [
        (
            "a:\n  b: 1\n  c:6\n\n# later\nd: 1\n",
            "mine.yaml:3:3  not YAML: put a space after `c:`",
        ),
        (
            "a:\n  b: [-]\nc: 1\n",
            "mine.yaml:2:7  not YAML: a `-` alone is no value",
        ),
    ] {
        let said = wrong(text);
        assert!(said.starts_with(says), "{said}");
    }
}

#[test]
fn mistakes_of_all_parts_come_in_the_order_of_the_text() {
    let text = GOOD
        .replace("seed: 7", "seed: x")
        .replace("size: 5", "size: 0")
        .replace("rounds: 50", "rounds: 5000")
        .replace("lr: 0.1", "lr: 0, decay: 1")
        .replace("share: 0.5", "share: 1.5")
        .replace("use: mean", "use: mode")
        .replace("every: 10", "evry: 10");
    insta::assert_snapshot!(wrong(&text), @"
    mine.yaml:3:7  seed: must be a whole number, got `x`
    mine.yaml:6:19  data.public.size: must be at least 1, got 0
    mine.yaml:7:34  protocol `rounds`: rounds: must be in 1..=1000, got 5000
    mine.yaml:14:31  parts.model[1] (trainer `net`): optimiser.sgd.lr: must be above 0.0, got 0.0
    mine.yaml:14:34  parts.model[1] (trainer `net`): optimiser.sgd.decay: no such setting; known: lr, momentum
    mine.yaml:16:34  parts.cohort (selector `uniform`): share: must be in 0.0..=1.0, got 1.5
    mine.yaml:17:22  parts.aggregator: no aggregator is called `mode`; known: mean, trimmed-mean; if a library or a Python module has it, name that under `plugins` or with --plugin
    mine.yaml:20:13  evaluate.evry: no such setting; did you mean `every`? known: every
    ");
}

#[test]
fn programs_get_the_same() {
    let mistakes = read_with(TINY, &["protocol.rounds=0"]).err().unwrap();
    insta::assert_snapshot!(mistakes.json().to_string(), @r#"[{"column":null,"file":"mine.yaml","line":null,"part":"protocol `rounds`","path":"protocol.rounds","set":"protocol.rounds","text":"must be in 1..=1000, got 0"}]"#);
    let text = edited(&[("{ use: mean }", "{ use: mean, trim: 1 }")]);
    insta::assert_snapshot!(super::read(&text).err().unwrap().json().to_string(), @r#"[{"column":34,"file":"mine.yaml","line":6,"part":"aggregator `mean`","path":"parts.aggregator.trim","set":null,"text":"must be in 0.0..0.5, got 1.0"}]"#);
}

#[test]
fn a_mistake_in_an_entry_of_plugins_hides_the_parts_that_it_may_have() {
    let said = wrong(
        "name: mine
data: {}
protocol: { use: elsewhere }
parts: { model: { use: net } }
plugins: [{ path: libmine.so, sha: 12 }]
",
    );
    assert!(said.contains("plugins[0]"), "{said}");
    assert!(!said.contains("is called"), "{said}");
}
