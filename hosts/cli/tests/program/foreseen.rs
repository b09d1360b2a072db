//! What `fl check` tells of a run before it begins: parts that cannot do what their names promise,
//! settings that need more than there is, and names of methods.

use crate::common::{alike_in_five_ways, fails, fl, flat, json, out, quick, root};
use std::collections::BTreeMap;
use std::path::Path;

/// Exit code, and stderr in one line, of `fl COMMAND` of a quick spec with these values.
fn tells(dir: &Path, command: &str, spec: &str, set: &[&str]) -> (Option<i32>, String) {
    let spec = quick(spec);
    let mut args = vec![command, &spec];
    set.iter().for_each(|set| args.extend(["--set", set]));
    let done = fl(dir, &args);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.code(), flat(&said))
}

fn checked(spec: &str, set: &[&str]) -> (Option<i32>, String) {
    tells(&root(), "check", spec, set)
}

#[test]
fn an_aggregator_of_single_answers_is_refused_where_the_server_adds_them_up() {
    let single = [
        "median",
        "trimmed-mean",
        "krum",
        "multi-krum",
        "bulyan",
        "geometric-median",
        "norm-bounding",
        "centred-clipping",
        "fltrust",
        "loss-weighted-mean",
    ];
    for spec in ["dp-fedavg", "dp-fedavg-adaptive"] {
        for part in single {
            let (code, said) = checked(spec, &[&format!("parts.aggregator={{use: {part}}}")]);
            assert_eq!(code, Some(2), "{spec} {part}: {said}");
            let why = format!(
                "parts.aggregator (aggregator `{part}`): it combines single answers, and protocol `dp-fedavg` adds"
            );
            assert!(said.contains(&why), "{said}");
            let fits = "use a part that claims `of_mean` (fed-adagrad, fed-adam, fed-avg-m, fed-yogi, mean)";
            assert!(said.contains(fits), "{said}");
        }
        for part in ["mean", "fed-adam", "fed-avg-m"] {
            let set = format!("parts.aggregator={{use: {part}}}");
            assert_eq!(checked(spec, &[&set]).0, Some(0), "{spec} {part}");
        }
        // this is the mean
        let none = "parts.aggregator={use: trimmed-mean, trim: 0}";
        assert_eq!(checked(spec, &[none]).0, Some(0));
    }
    let without = [
        "protocol.use=fedavg",
        "parts.server-privacy=null",
        "parts.accountant=null",
        "parts.aggregator={use: median}",
    ];
    assert_eq!(checked("dp-fedavg", &without).0, Some(0));
}

#[test]
fn too_few_answers_for_a_robust_rule_are_told_before_the_run_and_once_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let few = |set: &[&str]| {
        let (code, said) = checked("robust", set);
        assert_eq!(code, Some(0), "{said}");
        said
    };
    // half of eight clients
    assert_eq!(few(&[]), "");
    let trimmed = "parts.aggregator={use: trimmed-mean, trim: 0.2}";
    let told = "with 4 answers it withstands no bad client, as little as a mean does: it takes 5";
    let said = few(&[trimmed]);
    let of_part = format!("parts.aggregator (aggregator `trimmed-mean`): {told}");
    assert!(
        said.starts_with("note: ") && said.contains(&of_part),
        "{said}"
    );
    assert_eq!(few(&[trimmed, "parts.cohort.share=0.75"]), "");
    let krum = "parts.aggregator={use: krum, byzantine-share: 0.25}";
    assert!(
        few(&[krum]).contains("with 4 answers it withstands"),
        "{krum}"
    );
    let median = "parts.aggregator={use: median}";
    assert!(few(&[median, "parts.cohort.share=0.25"]).contains("with 2 answers it"));
    // what faults take out counts at worst
    let faults = "faults={on-error: drop, inject: [{what: never-answers, clients: 0-2}]}";
    let said = few(&[faults]);
    assert!(
        said.contains("at worst, with 1 answer it withstands no bad client"),
        "{said}"
    );
    let least = "faults={on-error: drop, min-answers: 4, inject: [{what: crash, share: 0.1}]}";
    assert_eq!(few(&[least]), "");
    let stops = "faults={inject: [{what: crash, clients: 0-2}]}";
    assert!(!few(&[stops]).contains("withstands"));

    let (code, said) = tells(dir.path(), "run", "robust", &[trimmed]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches(told).count(), 1, "{said}");
    assert!(
        said.contains(&format!("round 1: parts.aggregator: {told}")),
        "{said}"
    );
    let report = std::fs::read_to_string(dir.path().join("runs/quick-robust-1/report.md"));
    assert_eq!(flat(&report.unwrap()).matches(told).count(), 1);
}

#[test]
fn more_attackers_than_a_rule_withstands_are_told_before_the_run() {
    let with = |set: &[&str]| checked("attacked", set);
    // two flip signs and one learns from wrong labels, of ten answers of which three may be bad
    assert_eq!(with(&[]), (Some(0), String::new()));
    let more = ["parts.attack.clients=[0, 1, 4-5]"];
    let told = "parts.aggregator (aggregator `multi-krum`): of 10 answers it withstands 3 bad ones, and 5 clients attack";
    let (code, said) = with(&more);
    assert!(code == Some(0) && said.contains(told), "{said}");
    // by a share of buckets, and not where a rule claims no share
    let trimmed = ["parts.aggregator={use: trimmed-mean, trim: 0.2}"];
    assert!(
        with(&trimmed)
            .1
            .contains("withstands 2 bad ones, and 3 clients")
    );
    let mean = ["parts.aggregator={use: mean}"];
    assert_eq!(with(&mean), (Some(0), String::new()));
    let trusted =
        |id: &str| with(&[&format!("parts.aggregator={{use: fltrust, trusted: {id}}}")]).1;
    let told = "it relies on client 0, which attacks";
    assert!(trusted("0").contains(told), "{}", trusted("0"));
    assert!(!trusted("9").contains("relies on"), "{}", trusted("9"));
}

#[test]
fn a_delta_that_lets_an_example_be_published_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let due = "delta 1e-3 is not below one in 2000 examples, and a run that published one example";
    for command in ["check", "plan"] {
        let said = |delta: &str| {
            let set = format!("parts.accountant.delta={delta}");
            let (code, said) = tells(dir.path(), command, "dp-sgd", &[&set]);
            assert_eq!(code, Some(0), "{said}");
            said
        };
        let told = said("1e-3");
        assert!(told.contains(due), "{told}");
        assert!(!said("4e-4").contains("is not below"));
    }
}

#[test]
fn settings_that_need_more_clients_or_samples_are_found_before_the_run() {
    let cases: [(&str, &[&str], &str); 12] = [
        (
            "fesem",
            &["protocol.layers=[wei, nonsense]"],
            "parts.model (trainer `linear`): protocol `fesem` is set for parameters whose names begin with `nonsense`, and it has `bias`, `weight`",
        ),
        (
            "centralised",
            &[
                "protocol={use: pate, teachers: 951}",
                "data.public={from: {count: 50}}",
                "data.split=iid",
                "parts={teacher: {use: tree}, student: {use: tree}, vote: {use: majority-vote}}",
            ],
            "protocol.teachers: `teachers` is 951, and there are 950 examples: each needs one at least",
        ),
        (
            "ifca",
            &["protocol.rounds=1"],
            "protocol.warm-up: `warm-up` is 0, and a client belongs to one of 2 centres from round 2 on",
        ),
        (
            "fesem",
            &["protocol.rounds=2", "protocol.warm-up=2"],
            "centres from round 3 on at the earliest: `rounds` must be at least that",
        ),
        (
            "ifca",
            &["protocol.clusters=99"],
            "protocol.clusters: `clusters` is 99: centres begin with the parameters of as many clients, and there are",
        ),
        (
            "fesem",
            &["parts.cohort={use: uniform, share: 0.1}"],
            "begin with the parameters of as many clients, and a round has at most 1",
        ),
        (
            "fedkt",
            &["protocol.server-queries=100000"],
            "protocol.server-queries: `server-queries` is 100000, and there are at most 1000 public samples",
        ),
        (
            "fedavg",
            &["parts.aggregator={use: fltrust, trusted: 9}"],
            "it relies on client 9, and there are 5, from 0",
        ),
        (
            "fesem",
            &["parts.cohort={use: power-of-choice}"],
            "it chooses by the clients' losses, and protocol `fesem` has no global model",
        ),
        (
            "fedavg",
            &["stop-when={metric: acuracy, patience: 2}"],
            "stop-when.metric: nothing in this run measures `acuracy`; did you mean `accuracy`?",
        ),
        (
            "selective-fd",
            &["stop-when={metric: auc, patience: 2}"],
            "nothing in this run measures `auc`; it measures: clients.accuracy, ",
        ),
        (
            "fedavg",
            &["stop-when={metric: attack.shift, patience: 2}"],
            "nothing in this run measures `attack.shift`",
        ),
    ];
    for (spec, set, says) in cases {
        let (code, said) = checked(spec, set);
        assert!(
            code == Some(2) && said.contains(says),
            "{spec} {set:?}: {said}"
        );
    }
    // these do less than their numbers say
    for (cohort, says) in [
        (
            "{use: cyclic, size: 99}",
            "`size` is 99, and there are 5 clients: it means all of them",
        ),
        (
            "{use: power-of-choice, size: 2, candidates: 99}",
            "`candidates` is 99, and there are 5 clients: it means all of them",
        ),
        (
            "{use: uniform, share: 0.01}",
            "`share` 0.01 of 5 clients is 0.05: 1 of them take part",
        ),
    ] {
        let (code, said) = checked("fedavg", &[&format!("parts.cohort={cohort}")]);
        let told = said.contains("parts.cohort (selector `") && said.contains(says);
        assert!(code == Some(0) && told, "{said}");
    }
    let dir = tempfile::tempdir().unwrap();
    let more = ["protocol.samples=4000", "protocol.rounds=1"];
    let (code, said) = tells(dir.path(), "run", "cronus", &more);
    let all =
        "protocol.samples is 4000, and there are 300 public samples: every round has all of them";
    assert!(code == Some(0) && said.contains(all), "{said}");
    // a Poisson draw may take fewer clients than there are centres, and in another round all
    let poisson = "parts.cohort={use: poisson, rate: 0.3}";
    for (spec, clusters) in [("fesem", 8), ("ifca", 2)] {
        let centres = format!("protocol.clusters={clusters}");
        let (code, said) = tells(dir.path(), "run", spec, &[poisson, &centres]);
        let due = format!(
            "round 1: {clusters} centres begin with the parameters of as many clients, and 1 have answered: one centre goes on"
        );
        assert!(code == Some(0) && said.contains(&due), "{spec}: {said}");
    }
    // a part may leave the trusted client out
    let trusted = "parts.aggregator={use: fltrust}";
    let (code, said) = checked("robust", &[trusted]);
    let may = "it relies on client 0, which `parts.cohort` may leave out of a round";
    assert!(code == Some(0) && said.contains(may), "{said}");
}

#[test]
fn a_measure_that_a_part_may_record_is_a_note() {
    let cases = [
        (
            "robust",
            "aggregator.left-out",
            "nothing declares that it measures `aggregator.left-out`",
        ),
        ("robust", "accuracy", ""),
        ("robust", "training-loss", ""),
        ("selective-fd", "filter.recall", ""),
        (
            "fesem",
            "cluster.moved",
            "fl does not know which values of `cluster.moved` are better, and takes larger ones; say",
        ),
    ];
    for (spec, metric, note) in cases {
        let rule = format!("stop-when={{metric: {metric}, patience: 1}}");
        let (code, said) = checked(spec, &["evaluate.every=1", &rule]);
        assert!(
            code == Some(0) && said.contains(note),
            "{spec} {metric}: {said}"
        );
        assert_eq!(said.is_empty(), note.is_empty(), "{spec} {metric}: {said}");
    }
}

/// The rows of the tables of aliases in the plugins' READMEs: settings and parts by name.
fn on_pages() -> BTreeMap<String, (String, String)> {
    let mut found = BTreeMap::new();
    for plugin in std::fs::read_dir(root().join("plugins")).unwrap() {
        let page = plugin.unwrap().path().join("README.md");
        let Ok(text) = std::fs::read_to_string(page) else {
            continue;
        };
        let of_table = text
            .lines()
            .skip_while(|line| *line != "| name | settings | parts |");
        for line in of_table.skip(2).take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let plain = |cell: &str| cell.replace('`', "");
            found.insert(plain(cells[0]), (plain(cells[1]), plain(cells[2])));
        }
    }
    found
}

#[test]
fn an_alias_has_the_settings_and_parts_that_its_page_states() {
    let pages = on_pages();
    let mut known = Vec::new();
    for part in fl_core::linked_parts() {
        for alias in part
            .aliases
            .iter()
            .filter(|a| !(a.preset.is_empty() && a.parts.is_empty()))
        {
            let page = pages.get(alias.name);
            let (settings, parts) =
                page.unwrap_or_else(|| panic!("no page has a row `{}`", alias.name));
            let of = |text: &str| match text {
                "" => yaml_of(""),
                text => serde_yaml::from_str(text).unwrap(),
            };
            let preset = of(alias.preset);
            assert_eq!(preset, yaml_of(settings), "{}", alias.name);
            assert_eq!(of(alias.parts), yaml_of(parts), "{}", alias.name);
            part.read(&preset).unwrap();
            known.push(alias.name);
        }
    }
    let rows: Vec<&String> = pages
        .keys()
        .filter(|name| !known.contains(&name.as_str()))
        .collect();
    assert!(rows.is_empty(), "no alias is called {rows:?}");
}

/// Settings as a page has them: `a: 1, b: 2`.
fn yaml_of(text: &str) -> serde_yaml::Value {
    serde_yaml::from_str(&format!("{{{text}}}")).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn an_alias_is_shown_with_its_own_defaults_and_what_differs() {
    let shown = out(&root(), &["inspect", "fedmd"]);
    let text = flat(&shown);
    for due in [
        "fedmd: a protocol, another name of `co-distill`",
        "differs from co-distill fedmd",
        "order own-first public-first",
        "samples none 5000",
        "parts.ensemble any { use: mean-logits }",
        "scores of public samples ids -> logits 20",
        "ensemble an aggregator, logits -> logits",
    ] {
        assert!(text.contains(due), "{due}\n{shown}");
    }
    assert!(!text.contains("soft labels of public samples"), "{shown}");
    let shown = crate::common::json(&root(), &["inspect", "fedmd", "--json"]);
    let part = &shown["parts"][0];
    assert_eq!(part["alias"]["presets"]["rounds"], 20);
    let settings = part["settings"].as_array().unwrap();
    let rounds = settings.iter().find(|s| s["name"] == "rounds").unwrap();
    assert_eq!(rounds["default"], 20);
    let shown = flat(&out(&root(), &["inspect", "fedkd"]));
    assert!(
        shown.contains("It has the settings of `one-shot-distill`."),
        "{shown}"
    );
}

#[test]
fn a_name_of_a_method_with_other_parts_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(quick("fkd")).unwrap();
    let check = |name: &str, ensemble: &str| {
        let text = text.replace("use: class-distill", &format!("use: {name}"));
        let text = text.replace("{ use: mean-of-classes }", ensemble);
        std::fs::write(dir.path().join("s.yaml"), text).unwrap();
        let (code, said) = fails_or_not(dir.path());
        assert_eq!(code, Some(0), "{said}");
        said
    };
    assert_eq!(check("fkd", "{ use: mean-of-classes }"), "");
    assert_eq!(
        check("pls", "{ use: mean-of-classes, which: agreeing }"),
        ""
    );
    let said = check("pls", "{ use: mean-of-classes }");
    let why = "`pls` is a method with `parts.ensemble: { use: mean-of-classes, which: agreeing }`, and this spec has another part there: the run is `class-distill` with the settings of `pls`";
    assert!(said.contains(why), "{said}");
    // FedMD learns from labelled public samples first
    let text = std::fs::read_to_string(quick("selective-fd")).unwrap();
    let text = text.replace("use: co-distill", "use: fedmd");
    std::fs::write(dir.path().join("s.yaml"), text).unwrap();
    let (code, said) = fails(dir.path(), &["check", "s.yaml"]);
    let why = "`pretrain` learns from labelled public samples: set `data.public.labelled: true`, or `pretrain: null`";
    assert!(code == 2 && said.contains(why), "{said}");
}

#[test]
fn a_simulated_cohort_without_a_draw_of_clients_is_refused() {
    let why = "`noise-cohort` simulates a larger draw of clients: fill `parts.cohort`, and use the mechanism in `parts.server-privacy`; or leave it out";
    let refused = |spec: &str, set: &[&str], slot: &str| {
        let (code, said) = checked(spec, set);
        assert_eq!(code, Some(2), "{set:?}: {said}");
        let due = format!("parts.{slot} (privacy mechanism `gaussian-update`): {why}");
        assert!(said.contains(&due), "{set:?}: {said}");
    };
    let local = "parts.privacy.noise-cohort=100";
    let unpriced = "parts.accountant=null";
    refused("fedavg-private", &[local], "privacy");
    refused("fedavg-private", &[local, unpriced], "privacy");
    let central = "parts.server-privacy.noise-cohort=1000";
    let everyone = "parts.cohort=null";
    refused("dp-fedavg", &[central, everyone], "server-privacy");
    assert_eq!(checked("dp-fedavg", &[central]).0, Some(0));
}

#[test]
fn a_loaded_trainer_is_refused_what_it_does_not_learn() {
    let library = crate::library::beside("fl_stateful");
    let plugins = format!("plugins=[{{path: {}}}]", library.display());
    let model = |slot: &str| format!("parts.{slot}={{use: rs-trainer}}");
    for (spec, slot) in [("feddf", "model"), ("ds-fl", "student"), ("fkd", "model")] {
        let (code, said) = checked(spec, &[&plugins, &model(slot)]);
        let due =
            format!("parts.{slot} (trainer `rs-trainer`): it learns no class probabilities (");
        assert_eq!(code, Some(2), "{spec}: {said}");
        let why = "it learns classes only), which protocol ";
        assert!(said.contains(&due) && said.contains(why), "{spec}: {said}");
    }
    // the labels are numbers
    let (code, said) = checked("regression", &[&plugins, &model("model")]);
    let why =
        "(trainer `rs-trainer`): it cannot minimise the loss of the labels, mse, which protocol";
    assert!(code == Some(2) && said.contains(why), "{said}");
    // one class for each sample it learns
    let alone = checked("solo", &[&plugins, &model("model")]);
    assert_eq!(alone.0, Some(0), "{}", alone.1);
}

fn fails_or_not(dir: &Path) -> (Option<i32>, String) {
    let done = fl(dir, &["check", "s.yaml"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.code(), flat(&said))
}

#[test]
fn a_step_before_an_aggregator_is_refused_where_it_has_no_meaning() {
    let bucketing = "parts.before-aggregator={use: bucketing, size: 2}";
    let refused = |spec: &str, set: &[&str], why: &str| {
        let (code, said) = checked(spec, set);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    };
    refused(
        "dp-fedavg",
        &[bucketing],
        "parts.before-aggregator (aggregator `bucketing`): it changes single answers, and protocol `dp-fedavg` adds",
    );
    let trusted = "parts.aggregator={use: fltrust}";
    refused(
        "robust",
        &[bucketing, trusted],
        "parts.before-aggregator (aggregator `bucketing`): the aggregator needs the answer of one named client",
    );
    let losses = "parts.aggregator={use: q-fair-mean, q: 1.0, lr: 0.5}";
    refused(
        "robust",
        &[bucketing, losses],
        "the aggregator needs the training loss of each client",
    );
    refused(
        "robust",
        &["parts.before-aggregator={use: krum}"],
        "must be params -> params-list, but `krum` is params -> params; it fits parts.aggregator",
    );
    // four answers are two buckets, of which none may be bad
    let told = |set: &[&str]| {
        let (code, said) = checked("robust", set);
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let median = "parts.aggregator={use: median}";
    let few = told(&[bucketing, median]);
    assert!(
        few.contains(
            "with 4 answers it withstands no bad client, as little as a mean does: it takes 5"
        ),
        "{few}"
    );
    let all = "parts.cohort=null";
    assert_eq!(told(&[bucketing, median, all]), "");
    let large = "parts.before-aggregator={use: bucketing, size: 4}";
    assert!(told(&[large, median, all]).contains("with 8 answers it withstands no bad client"));
    let mean = "parts.aggregator={use: mean}";
    assert_eq!(told(&[bucketing, mean]), "");
}

#[test]
fn exact_a_step_before_an_aggregator_gives_one_digest() {
    let dir = tempfile::tempdir().unwrap();
    let spec = quick("robust");
    // its state is that of both: the rule's is the model's last change
    let rule = "parts.aggregator={use: centred-clipping}";
    let mut all = std::collections::BTreeSet::new();
    for step in [
        "{use: bucketing}",
        "{use: nnm, byzantine-share: 0.3}",
        "{use: update-clipping, radius: 0.5}",
        "{use: adaptive-clipping, byzantine-share: 0.3}",
        "{use: sketching, columns: 2}",
    ] {
        let set = format!("parts.before-aggregator={step}");
        let spec = [&*spec, "--set", &set, "--set", rule];
        let plain = alike_in_five_ways(dir.path(), &spec, "2");
        let folder = format!("kept-{}", all.len());
        let kept = ["--json", "--set", "keep=messages", "--out", &folder];
        let kept = [&["run"], &spec[..], &kept].concat();
        assert_eq!(json(dir.path(), &kept)["digest"], plain["digest"], "{step}");
        out(dir.path(), &["verify", &folder]);
        all.insert(plain["digest"].as_str().unwrap().to_string());
    }
    assert_eq!(all.len(), 5);
}

#[test]
fn exact_clients_draw_their_numbers_of_epochs() {
    let refused = |spec: &str, set: &[&str], why: &str| {
        let (code, said) = checked(spec, set);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains("least-epochs") && said.contains(why),
            "{said}"
        );
    };
    let (two, five) = (
        "protocol.least-epochs=2",
        "protocol.local={epochs: 5, batch: 8}",
    );
    refused(
        "fednova",
        &[two, "protocol.local={epochs: 2, batch: 8}"],
        "must be below",
    );
    refused(
        "fednova",
        &[two, "protocol.local={steps: 9, batch: 8}"],
        "give `local.epochs`",
    );
    refused("dp-sgd", &[two], "DP-SGD");
    refused("ditto", &[two, five], "several parts");
    let dir = tempfile::tempdir().unwrap();
    let digest = |spec: &str, out_dir: &str, more: &[&str]| -> String {
        let spec = quick(spec);
        let args = ["run", &spec, "--json", "--out", out_dir, "--set", five];
        let said = out(dir.path(), &[&args[..], more].concat());
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        said["digest"].as_str().unwrap().into()
    };
    for spec in ["fedavg", "fednova", "scaffold"] {
        let drawn = digest(spec, &format!("drawn-{spec}"), &["--set", two]);
        assert_ne!(drawn, digest(spec, &format!("all-{spec}"), &[]));
        let more = ["--set", two, "--processes", "2"];
        assert_eq!(drawn, digest(spec, &format!("apart-{spec}"), &more));
    }
}

#[test]
fn faults_of_clients_and_rounds_that_the_run_lacks_are_refused() {
    let clients = "data.clients=6";
    let inject = |fault: &str| format!("faults={{on-nan: drop, inject: [{{what: nan, {fault}}}]}}");
    for (fault, why) in [
        (
            "clients: 9",
            "faults.inject[0].clients: there is no client 9; the spec has 6: 0-5",
        ),
        (
            "clients: [0, 4-6]",
            "faults.inject[0].clients: there is no client 6; the spec has 6: 0-5",
        ),
        (
            "rounds: 4-9",
            "faults.inject[0].rounds: has no effect: there is no round 4, since the run has 3",
        ),
    ] {
        let (code, said) = checked("fedavg", &[clients, "protocol.rounds=3", &inject(fault)]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
    for fault in ["clients: 0-5", "rounds: 3-9", "rounds: 0"] {
        let (code, said) = checked("fedavg", &[clients, "protocol.rounds=3", &inject(fault)]);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{fault}");
    }
    // nobody knows the rounds of a protocol that is not there
    let misspelt = "protocol={use: fedavgg, rounds: 9}";
    let (code, said) = checked("fedavg", &[misspelt, &inject("rounds: 4-9")]);
    assert!(code == Some(2) && !said.contains("no round"), "{said}");
}

#[test]
fn faults_that_are_sure_to_end_the_run_are_found() {
    let inject = |policy: &str, lines: &str| format!("faults={{{policy}inject: [{lines}]}}");
    let set = |faults: &str| checked("fedavg", &["data.clients=6", faults]);
    for lines in [
        "{what: crash}",
        "{what: crash, clients: 0-3}, {what: never-answers, clients: [4, 5]}",
    ] {
        let (code, said) = set(&inject("on-error: drop, ", lines));
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains("faults.inject: no client ever answers"),
            "{said}"
        );
    }
    // bytes of models and whole numbers hold no NaN
    let bare = ["parts.privacy=null", "parts.accountant=null"];
    let soft = ["protocol.labels=soft", bare[0], bare[1]];
    let cases: [(&str, &[&str], &str, &str); 6] = [
        ("dense", &[], "nan", "`models`"),
        ("dense", &[], "shape", "`models`"),
        ("fedkt", &[], "huge", "`models`, `nothing`"),
        ("ds-fl", &bare, "nan", "`nothing`, `votes`"),
        ("ds-fl", &bare, "shape", ""),
        ("ds-fl", &soft, "nan", ""),
    ];
    for (spec, more, what, kinds) in cases {
        let faults = inject(
            "on-nan: drop, on-shape: drop, ",
            &format!("{{what: {what}}}"),
        );
        let (_, said) = checked(spec, &[more, &[&faults]].concat());
        let idle = "faults.inject[0]: has no effect: it leaves answers of these kinds as they are";
        assert_eq!(said.contains(idle), !kinds.is_empty(), "{spec}: {said}");
        assert!(said.contains(kinds), "{spec}: {said}");
    }
    let (code, said) = set(&inject("", "{what: nan, clients: 2}"));
    let due = "faults.inject[0]: the first client that it hits ends the run, since `faults.on-nan` is `fail`";
    assert!(code == Some(0) && said.contains(due), "{said}");
    let four = "min-answers: 4, on-error: drop, ";
    for (lines, due) in [
        (
            "{what: never-answers, clients: 0-2}",
            "at most 3 of 6 clients ever answer",
        ),
        (
            "{what: crash, clients: 0-2, rounds: 2}",
            "at most 3 of 6 clients answer in round 2",
        ),
    ] {
        let (code, said) = set(&inject(four, lines));
        let due = format!("faults.inject: {due}, below `faults.min-answers` (4)");
        assert!(code == Some(0) && said.contains(&due), "{said}");
    }
    for faults in [
        inject(four, "{what: crash, clients: 0-1}"),
        inject("on-error: drop, ", "{what: crash, share: 0.9}"),
        inject("on-error: drop, ", "{what: crash, clients: 0-4}"),
        inject("on-error: drop, ", "{what: huge}, {what: crash}"),
        inject("", "{what: crash, share: 0.9}"),
    ] {
        assert_eq!(set(&faults), (Some(0), String::new()), "{faults}");
    }
}

#[test]
fn a_rule_that_cannot_end_the_rounds_early_is_told() {
    let rule = |patience: usize| format!("stop-when={{metric: accuracy, patience: {patience}}}");
    for (rounds, every, patience, before) in
        [(3, 1, 50, 2), (3, 1, 2, 2), (3, 100, 1, 0), (9, 4, 3, 2)]
    {
        let rounds = format!("protocol.rounds={rounds}");
        let set = [&rounds, &format!("evaluate.every={every}"), &rule(patience)];
        let (code, said) = checked("fedavg", &set.map(String::as_str));
        assert_eq!(code, Some(0), "{said}");
        let why = format!("has {before} evaluations before its last round");
        assert!(
            said.contains("stop-when.patience: has no effect: a run of ") && said.contains(&why),
            "{said}"
        );
    }
    let acts = ["protocol.rounds=9", "evaluate.every=4", &rule(1)];
    assert_eq!(checked("fedavg", &acts), (Some(0), String::new()));
}

#[test]
fn a_split_that_cannot_be_is_found_before_the_run_and_has_its_place() {
    let set = "data.set={blobs: {train: 300, test: 60}}";
    for (split, why) in [
        (
            "{dirichlet: {alpha: 0.5, min-size: 100}}",
            "data.split: 6 clients with at least 100 samples each need more than the 300 samples",
        ),
        (
            "{dirichlet: {alpha: 0.0001, min-size: 40}}",
            "data.split: splitting `blobs`: no Dirichlet split with alpha 0.0001 of 1000 drawn",
        ),
        (
            "{size: {shares: [1, 2]}}",
            "data.split: 2 shares for 6 clients; there must be one for each",
        ),
    ] {
        let split = format!("data.split={split}");
        let (code, said) = checked("fedavg", &[set, "data.clients=6", &split]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

/// The mark of a mistake in the data is below the key that it is about.
#[test]
fn a_mistake_in_the_data_is_at_its_own_line() {
    let dir = tempfile::tempdir().unwrap();
    for (set, line, why) in [
        (
            "blobs\n  clients: 5\n  label-groups: 4\n",
            5,
            "data.label-groups: labels of `blobs` are no numbers",
        ),
        (
            "{ blobs: { train: 20 } }\n  clients: 15\n  test: { own: 0.5 }\n",
            5,
            "data.test.own: client 5 owns 1 of the rows",
        ),
    ] {
        let text = format!(
            "name: a\ndata:\n  set: {set}protocol: {{ use: fedavg, rounds: 2, local: {{ epochs: 1, batch: 8 }} }}\n\
             parts: {{ model: {{ use: linear, lr: 0.1 }}, aggregator: {{ use: mean }} }}\n"
        );
        std::fs::write(dir.path().join("a.yaml"), text).unwrap();
        let (code, said) = fails(dir.path(), &["check", "a.yaml"]);
        assert_eq!(code, 2, "{said}");
        assert!(said.starts_with(&format!("a.yaml:{line}:")), "{said}");
        assert!(flat(&said).contains(why), "{said}");
    }
}

#[test]
fn sinks_are_refused_where_there_are_none() {
    let sinks = ["sinks=[tensorboard]"];
    for command in ["check", "run"] {
        let dir = tempfile::tempdir().unwrap();
        let (code, said) = tells(dir.path(), command, "fedavg", &sinks);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("sinks: needs the Python package"), "{said}");
        assert!(said.contains("--set sinks"), "{said}");
        assert!(!dir.path().join("runs").exists());
    }
}

#[test]
fn what_a_run_does_not_use_is_named() {
    let public = "data.public={from: {share: 0.3}}";
    let idle: [(&str, &[&str], &str); 14] = [
        (
            "fedavg",
            &[public],
            "data.public: takes 300 training rows away, and `fedavg` uses no public samples: leave it out",
        ),
        (
            "fedavg",
            &["data.public={from: {count: 40}, size: 10}"],
            "data.public: takes 40 training rows away",
        ),
        (
            "fedavg",
            &["data.public={from: half-of-test}"],
            "data.public: takes 250 test rows away",
        ),
        (
            "fedavg",
            &["data.public={from: tabular}"],
            "data.public: takes 125 training rows away",
        ),
        (
            "fine-tuned",
            &[public],
            "and `fedavg`, then `solo` uses no public samples",
        ),
        (
            "fedavg",
            &["data.validation=0.3"],
            "data.validation: sets 0.3 of each client's rows aside, and no part uses them",
        ),
        (
            "ds-fl",
            &[
                "protocol.evaluate-clients=false",
                "parts.student=null",
                "parts.accountant=null",
            ],
            "tests no model, so the run measures no score: set `evaluate-clients: true`",
        ),
        (
            "fkd",
            &["protocol.evaluate-clients=false"],
            "protocol `class-distill` tests no model, so the run measures no score",
        ),
        (
            "fedavg",
            &["faults={min-answers: 3}"],
            "faults.min-answers: has no effect: the first answer that cannot be used ends the run",
        ),
        (
            "fedavg",
            &["faults={min-answers: 300, on-error: drop}"],
            "faults.min-answers: is 300, above the number of clients, 5: it counts as 5",
        ),
        (
            "fedper",
            &["protocol.share=[0-9]"],
            "`0-9` names all of its parameters, so clients keep none of their own: name fewer",
        ),
        (
            "solo",
            &["keep=messages"],
            "keep: has no effect: protocol `solo` combines answers itself, or asks for none",
        ),
        (
            "dp-fedavg",
            &["parts.aggregator.weigh=samples"],
            "parts.aggregator.weigh: `samples` has no effect: protocol `dp-fedavg` adds",
        ),
        (
            "dp-fedavg-adaptive",
            &["parts.aggregator={use: fed-adam, weigh: samples}"],
            "gives their sum as one message: write `uniform`",
        ),
    ];
    for (spec, set, due) in idle {
        let (code, said) = checked(spec, set);
        assert!(
            code == Some(0) && said.contains(due),
            "{spec} {set:?}: {said}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = tells(dir.path(), "run", "fedavg", &[public, "protocol.rounds=1"]);
    assert!(code == Some(0) && said.contains(idle[0].2), "{said}");
    // the spec of a run has every default, also one without effect, and is fine
    let (spec, mean) = (quick("dp-fedavg"), "parts.aggregator={use: mean}");
    let set = ["--set", mean, "--set", "protocol.rounds=1"];
    let run = [&["run", &spec, "--out", "resolved"], &set[..]].concat();
    assert!(fl(dir.path(), &run).status.success());
    let resolved = fl(dir.path(), &["check", "resolved/spec.yaml"]);
    let said = flat(&String::from_utf8_lossy(&resolved.stderr));
    assert!(
        resolved.status.success() && said.contains("`samples` has no effect"),
        "{said}"
    );

    let refused: [(&str, &[&str], &str); 3] = [
        (
            "fedkt",
            &["data.public=null"],
            "teachers label public samples, and there are none: set `data.public`",
        ),
        (
            "fedavg",
            &["protocol.initial-is-public=true"],
            "`initial-is-public` has no effect without `initial`: leave it out",
        ),
        (
            "solo",
            &["protocol.initial-is-public=true"],
            "`initial-is-public` has no effect without `initial`: leave it out",
        ),
    ];
    for (spec, set, due) in refused {
        let (code, said) = checked(spec, set);
        assert!(
            code == Some(2) && said.contains(due),
            "{spec} {set:?}: {said}"
        );
    }
    // what is used, or left out, is not named
    let fine: [(&str, &[&str]); 6] = [
        ("fedkd", &[]),
        ("dp-fedavg", &["parts.aggregator={use: mean}"]),
        ("feddf", &[]),
        ("fedkt", &[]),
        (
            "fedavg",
            &[
                "data.public={from: {share: 0.3}}",
                "data.features={principal-components: {width: 3}}",
                "data.normalise=null",
            ],
        ),
        ("fedavg", &["faults={min-answers: 3, on-error: drop}"]),
    ];
    for (spec, set) in fine {
        assert_eq!(
            checked(spec, set),
            (Some(0), String::new()),
            "{spec} {set:?}"
        );
    }
}

#[test]
fn public_samples_that_cannot_be_are_refused_by_a_check() {
    let set = "data.set={blobs: {train: 300, test: 50}}";
    for (public, more, due) in [
        (
            "{from: {share: 0.0001}}",
            "name=f",
            "there are no public samples",
        ),
        (
            "{from: {count: 100}, mix: {set: {blobs: {train: 10, test: 5}}, share: 0.5}}",
            "name=f",
            "public.mix: 50 samples of `blobs`, which has only 10",
        ),
        (
            "{from: {count: 3}}",
            "data.features={principal-components: {width: 5}}",
            "principal",
        ),
    ] {
        let public = format!("data.public={public}");
        let models = ["parts.teacher={use: linear}", "parts.student={use: linear}"];
        let (code, said) = checked("fedkd", &[set, &public, more, models[0], models[1]]);
        assert!(code == Some(2) && said.contains(due), "{due}: {said}");
    }
}

#[test]
fn labels_that_an_attack_cannot_flip_are_refused() {
    let (classes, flip) = (
        "data.set={blobs: {classes: 3}}",
        "parts.labels={use: label-flip, clients: 1}",
    );
    let pair = |from, to| format!("parts.labels.flip={{pair: {{from: {from}, to: {to}}}}}");
    let of = |more: &str| checked("fedavg", &["data.split=iid", classes, flip, more]);
    let (code, said) = of(&pair(1, 7));
    assert_eq!(code, Some(2), "{said}");
    let why = "parts.labels (attack `label-flip`): flip: there is no class 7; there are 3, from 0";
    assert!(said.contains(why), "{said}");
    let (code, said) = of(&pair(1, 1));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("`from` and `to` are one class"), "{said}");
    let (code, said) = of("parts.labels.flip=opposite");
    let why = "of 3 classes the middle one, 1, is its own opposite and stays right";
    assert!(code == Some(0) && said.contains(why), "{said}");
    assert!(!of("parts.labels.flip=next").1.contains("middle"));
    // one number to predict has no other place
    for way in ["next", "opposite"] {
        let attack = format!("parts.attack={{use: score-flip, flip: {way}, clients: 0}}");
        let bare = ["parts.sampling=null", "parts.accountant=null"];
        let set = ["data.set=friedman", bare[0], bare[1], &attack];
        let (code, said) = checked("fedmd-nfdp", &set);
        let why = "parts.attack (attack `score-flip`): it changes nothing where";
        assert!(code == Some(2) && said.contains(why), "{said}");
    }
    let several = "data.set={multi-label: {train: 100, test: 50}}";
    let (code, said) = checked("fedavg", &["data.split=iid", several, flip]);
    assert_eq!(code, Some(2), "{said}");
    let why = "parts.labels changes the class of a whole input";
    assert!(said.contains(why), "{said}");
}

#[test]
fn probabilities_of_several_labels_are_refused() {
    let set = "data.set={multi-label: {train: 150, test: 60}}";
    let (code, said) = checked("feddf", &[set, "data.split=iid"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("it learns no class probabilities"), "{said}");
}

#[test]
fn a_crop_of_noisy_images_is_noted_where_a_part_crops() {
    for (change, crops) in [("{crop: 1}", true), ("flip", false)] {
        let model = format!(
            "parts.model={{use: dfdx, net: [{{linear: 4}}, outputs], augment: [{change}]}}"
        );
        let set = [
            "data.set={glyphs: {train: 200, test: 20}}",
            "data.split=iid",
            "data.test={own: 0.3}",
            "data.feature-noise={variance: 0.1}",
            &model,
        ];
        let (code, said) = checked("fedavg", &set);
        assert_eq!(code, Some(0), "{said}");
        let due = "where `augment` has `crop`, the border is 0, the mean, and not black";
        assert_eq!(said.contains(due), crops, "{said}");
    }
}

#[test]
fn rows_that_a_network_of_words_cannot_look_up_are_refused() {
    let table = "its first layer looks up the numbers of words, and the rows hold other numbers";
    let few = "its first layer knows words up to number 8, and the rows hold numbers up to 9: \
               it must know numbers up to 9 (`dfdx`: `vocabulary: 9`; a network of PyTorch: \
               10 rows)";
    for (set, why) in [
        ("data.features={random-relu: {width: 12}}", table),
        ("data.set={blobs: {classes: 8}}", table),
        ("data.set={phrases: {letters: 9}}", few),
        ("data.set={phrases: {letters: 8}}", ""),
    ] {
        let (code, said) = checked("next-letter", &[set, "data.split=iid"]);
        assert_eq!(
            code,
            Some(if why.is_empty() { 0 } else { 2 }),
            "{set}: {said}"
        );
        assert!(said.contains(why), "{said}");
    }
}
