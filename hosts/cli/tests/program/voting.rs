//! FedKT and PATE as a user runs them: results, budgets, and clear messages about mistakes.

use crate::common::{fails, fl, json, out, root};
use std::fs;
use std::path::Path;

fn quick(name: &str) -> String {
    root().join("specs/quick").join(name).display().to_string()
}

/// FedKT-L1.
fn fedkt() -> String {
    quick("fedkt-l1.yaml")
}

/// Arguments that run a spec with some values changed.
fn with<'a>(spec: &'a str, out: &'a str, set: &[&'a str]) -> Vec<&'a str> {
    let set = set.iter().flat_map(|s| ["--set", *s]);
    ["run", spec, "--json", "--out", out]
        .into_iter()
        .chain(set)
        .collect()
}

#[test]
fn bounded_students_of_voting_teachers_learn_without_and_with_noise() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), fedkt());
    let plain = json(dir.path(), &with(&quick("fedkt.yaml"), "plain", &[]));
    assert!(
        plain["metrics"]["accuracy"].as_f64().unwrap() > 0.75,
        "{plain}"
    );
    assert!(plain["privacy"].is_null());
    let server = json(dir.path(), &with(&spec, "server", &[]));
    let privacy = &server["privacy"]["readers"];
    assert!(privacy["epsilon"].as_f64().unwrap() > 0.0, "{server}");
    assert_eq!(
        (&privacy["unit"], &privacy["data_dependent"]),
        (&"party".into(), &false.into())
    );
    // what these votes cost tells something about them: it is for research, and guarantees nothing
    let votes = ["parts.privacy.data-dependent=true"];
    let votes = json(dir.path(), &with(&spec, "votes", &votes));
    for observer in ["clients", "readers"] {
        let told = &votes["privacy"][observer];
        assert!(told["epsilon"].is_null(), "{told}");
        assert_eq!(
            told["nothing"][0],
            "its price depends on the data, and so discloses something about them"
        );
        let of_these = &told["of_these_data"]["epsilon"];
        assert!(of_these.as_f64() <= privacy["epsilon"].as_f64(), "{told}");
    }
    let party = ["protocol.noise=party", "parts.accountant.unit=example"];
    let party = json(dir.path(), &with(&spec, "party", &party));
    assert_eq!(party["privacy"]["readers"]["unit"], "example", "{party}");
    assert!(dir.path().join("party/models/final").exists());
}

#[test]
fn exact_what_parties_send_does_not_change_what_is_learnt() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), quick("fedkt.yaml"));
    let run = |out: &str, send: &str| {
        let answer = json(dir.path(), &with(&spec, out, &[send]));
        (
            fs::read(dir.path().join(out).join("models/final")).unwrap(),
            answer,
        )
    };
    let (models, votes) = (
        run("models", "protocol.send=models"),
        run("votes", "protocol.send=votes"),
    );
    assert!(models.0 == votes.0, "the final models differ");
    let up = |answer: &serde_json::Value| answer["bytes"]["up"].as_u64().unwrap();
    assert!(up(&votes.1) != up(&models.1));
}

#[test]
fn a_budget_pays_for_the_first_queries_only_and_says_so() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), fedkt());
    for (noise, partitions) in [("server", 1), ("party", 2)] {
        let noise = format!("protocol.noise={noise}");
        let partitions = format!("protocol.partitions={partitions}");
        let args = with(
            &spec,
            "cut",
            &[
                &noise,
                "budget.epsilon=6",
                &partitions,
                "parts.accountant.unit=example",
                // of any votes a query costs more
                "parts.privacy.gamma=0.1",
            ],
        );
        let run = fl(dir.path(), &args);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{said}");
        let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
        let epsilon = answer["privacy"]["readers"]["epsilon"].as_f64().unwrap();
        assert!(epsilon > 3.0 && epsilon <= 6.0, "{answer}");
        assert!(
            said.contains("queries were released; one more would bring epsilon to"),
            "{said}"
        );
        fs::remove_dir_all(dir.path().join("cut")).unwrap();
    }
    let (code, said) = fails(
        dir.path(),
        &with(&spec, "nothing", &["budget.epsilon=0.001"]),
    );
    assert_eq!(code, 1);
    assert!(
        said.contains("refused before anything was spent: its first query would bring epsilon to"),
        "{said}"
    );
}

#[test]
fn the_other_mechanisms_and_accountants_fit() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), fedkt());
    let gnmax = "parts.accountant={use: pate-gnmax, unit: party}";
    for (out, privacy, accountant) in [
        (
            "gaussian",
            "parts.privacy={use: gaussian-votes, sigma: 2, data-dependent: false}",
            gnmax,
        ),
        (
            "confident",
            "parts.privacy={use: confident-votes, threshold: 6, check: 1, sigma: 1, data-dependent: false}",
            gnmax,
        ),
        (
            "advanced",
            "parts.privacy={use: laplace-votes, gamma: 0.5, data-dependent: false}",
            "parts.accountant={use: advanced-composition, unit: party}",
        ),
    ] {
        let answer = json(dir.path(), &with(&spec, out, &[privacy, accountant]));
        assert!(
            answer["privacy"]["readers"]["epsilon"].as_f64().unwrap() > 0.0,
            "{answer}"
        );
        assert_eq!(answer["privacy"]["readers"]["data_dependent"], false);
    }
    let (code, said) = fails(
        dir.path(),
        &with(&spec, "wrong", &["parts.accountant={use: rdp}"]),
    );
    assert_eq!(code, 2);
    assert!(
        said.contains("for votes use `pate-moments` or `pate-gnmax`"),
        "{said}"
    );
}

#[test]
fn plain_voting_asks_how_many_students_one_example_can_change() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), fedkt());
    let set = [
        "parts.tier2={use: majority-vote}",
        "parts.accountant.unit=example",
    ];
    let answer = json(dir.path(), &with(&spec, "plain", &set));
    assert_eq!(answer["privacy"]["readers"]["unit"], "example", "{answer}");
    let consistent = json(dir.path(), &with(&spec, "consistent", &set[1..]));
    let epsilon = |a: &serde_json::Value| a["privacy"]["readers"]["epsilon"].as_f64().unwrap();
    assert!(epsilon(&answer) <= epsilon(&consistent));
}

const SHORT: &str = "
name: short
seed: 1
data:
  set: { blobs: { train: 60, test: 20 } }
  clients: 3
  split: { size: { shares: [1, 12, 12] } }
  public: { from: { share: 0.3 } }
protocol: { use: two-tier-vote, subsets: 5, teacher: {epochs: 2}, student: {epochs: 2}, final-model: {epochs: 2} }
parts: { teacher: {use: linear}, student: {use: linear}, final: {use: linear}, tier1: {use: majority-vote}, tier2: {use: consistent-vote} }
";

#[test]
fn a_party_with_too_few_examples_is_named_or_skipped() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("short.yaml"), SHORT).unwrap();
    let (code, said) = fails(dir.path(), &with("short.yaml", "fails", &[]));
    assert_eq!(code, 2);
    let why = "is 5, and there are too few examples (each needs one at least): client 0; use fewer";
    assert!(
        said.contains(&format!("protocol.subsets: `subsets` {why}")),
        "{said}"
    );
    let skip = fl(
        dir.path(),
        &with("short.yaml", "skips", &["protocol.short-party=skip"]),
    );
    let said = String::from_utf8_lossy(&skip.stderr).into_owned();
    assert!(
        skip.status.success() && said.contains("they take no part"),
        "{said}"
    );
    // where an accountant works it takes part, whatever the spec says: who does must not tell how
    // much it has
    let priced = "parts.accountant={use: pate-moments, delta: 1e-5, unit: party}";
    let noise = "parts.privacy={use: laplace-votes, gamma: 0.5, data-dependent: false}";
    for short in ["fail", "skip"] {
        let short_party = format!("protocol.short-party={short}");
        let of = [
            &short_party,
            priced,
            noise,
            "protocol.noise=server",
            "protocol.evaluate-clients=false",
        ];
        let done = fl(dir.path(), &with("short.yaml", short, &of));
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() && !said.contains("too few"), "{said}");
        let answer: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        assert!(answer["privacy"]["readers"]["epsilon"].is_f64(), "{answer}");
        let journal = fs::read_to_string(dir.path().join(short).join("journal.jsonl")).unwrap();
        assert!(journal.contains("\"clients\":3"), "{journal}");
    }
}

#[test]
fn parties_may_have_students_of_different_kinds() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), quick("fedkt.yaml"));
    let students = "parts.student=[{clients: 0-1, use: linear, lr: 0.05}, {clients: 2-4, use: dfdx, net: [linear: 8, relu, linear: 4]}]";
    let answer = json(dir.path(), &with(&spec, "kinds", &[students]));
    assert!(
        answer["metrics"]["accuracy"].as_f64().unwrap() > 0.5,
        "{answer}"
    );
}

#[test]
fn what_cannot_be_voted_on_is_said() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("short.yaml"), SHORT).unwrap();
    let skip = "protocol.short-party=skip";
    let said = |out: &str, set: &[&str]| fails(dir.path(), &with("short.yaml", out, set));
    let (code, text) = said("none", &[skip, "data.public=null"]);
    assert!(code == 2 && text.contains("set `data.public`"), "{text}");
    let (_, text) = said(
        "gamma",
        &[
            "parts.privacy={use: laplace-votes, gamma: 0}",
            "protocol.noise=server",
        ],
    );
    assert!(
        text.contains("gamma") && text.contains("must be at least 1e-6, got 0"),
        "{text}"
    );
    let (code, text) = said("unused", &["parts.privacy={use: laplace-votes, gamma: 1}"]);
    assert_eq!(
        code, 2,
        "a mechanism that nothing is released through: {text}"
    );
    let (code, text) = said("missing", &["protocol.noise=server"]);
    assert_eq!(code, 2, "noise without a mechanism: {text}");
    let other =
        "data={set: {glyphs: {train: 90, test: 30}}, public: {from: {set: blobs}, size: 20}}";
    let (code, text) = said("width", &[skip, other]);
    assert!(code == 2 && text.contains("they must be equal"), "{text}");
    let (_, text) = said(
        "zero",
        &[skip, "data.public={from: {share: 0.3}, queries: 0.0}"],
    );
    assert!(
        text.contains("a share of 0 (`public.queries`) of"),
        "{text}"
    );
    let (code, text) = said("queries", &[skip, "protocol.server-queries=9999"]);
    assert!(
        code == 2 && text.contains("`server-queries` is 9999, and there are at most 60 public"),
        "{text}"
    );
    // what fails before it does anything leaves nothing behind
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn each_tier_may_be_asked_about_the_first_samples_only() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), fedkt());
    let one = ["protocol.partitions=1", "parts.accountant.unit=party"];
    let epsilon = |out: &str, set: &[&str]| {
        let answer = json(dir.path(), &with(&spec, out, &[&one[..], set].concat()));
        (
            answer["privacy"]["readers"]["epsilon"].as_f64().unwrap(),
            answer["bytes"]["up"].as_u64().unwrap(),
        )
    };
    let votes = "protocol.send=votes";
    let all = epsilon("all", &[votes]);
    let few = epsilon("few", &[votes, "protocol.server-queries=5"]);
    // five answers of 2 gamma = 1 each, and votes about five samples only
    assert!(
        few.0 <= 5.0 && few.0 < all.0 && few.1 < all.1,
        "{few:?} {all:?}"
    );
    let same = epsilon("same", &[votes, "protocol.party-queries=20"]);
    assert_eq!(same.1, all.1, "the server asks about all of them still");
    let party = ["protocol.noise=party", "protocol.party-queries=5"];
    let party = epsilon("party", &party);
    // three teachers' votes may change with a party
    assert!(party.0 <= 15.0, "{party:?}");
}

#[test]
fn teachers_and_parties_of_one_class_are_listed_in_the_report() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), quick("fedkt.yaml"));
    json(
        dir.path(),
        &with(&spec, "one", &["data.clients=4", "data.split={classes: 1}"]),
    );
    let report = fs::read_to_string(dir.path().join("one/report.md")).unwrap();
    for line in [
        "4 of 4 clients hold examples of one class only: 0, 1, 2, 3",
        "clients 0, 1, 2, 3: 6 of 6 teachers saw one class only",
    ] {
        assert!(report.contains(line), "{report}");
    }
    // a million clients are counted
    let many = [
        "data.clients=60",
        "data.split={classes: 1}",
        "protocol.rounds=1",
    ];
    json(dir.path(), &with(&quick("fedavg.yaml"), "many", &many));
    let report = fs::read_to_string(dir.path().join("many/report.md")).unwrap();
    let line = "60 of 60 clients hold examples of one class only: 0, 1, 2";
    assert!(report.contains(line), "{report}");
    assert!(report.contains("48, 49 and 10 more\n"), "{report}");
}

#[test]
fn a_budget_says_at_which_delta() {
    let (dir, spec) = (tempfile::tempdir().unwrap(), fedkt());
    let (_, text) = fails(
        dir.path(),
        &with(&spec, "delta", &["budget={epsilon: 6, delta: 1e-6}"]),
    );
    assert!(
        text.contains("budget.delta: is 1e-6, but the accountant guarantees at 1e-5"),
        "{text}"
    );
}

/// Two tiers whose counts get noise that is priced for one example.
const NOISY_COUNTS: &str = "
name: counts
seed: 1
data: { set: { blobs: { train: 1000, test: 200, spread: 3 } }, clients: 5, public: { from: { count: 40 } } }
protocol: { use: two-tier-vote, partitions: 3, subsets: 5, noise: server, evaluate-clients: false,
  teacher: { epochs: 1, batch: 16 }, student: { epochs: 1, batch: 16 }, final-model: { epochs: 1, batch: 16 } }
parts: { teacher: { use: linear }, student: { use: linear }, final: { use: linear },
  tier1: { use: majority-vote }, tier2: { use: majority-vote },
  privacy: { use: laplace-counts, scale: 20 }, accountant: { use: basic } }
";

const POOLED_COUNTS: &str = "
name: pooled
seed: 1
data: { set: { blobs: { train: 1000, test: 200 } }, clients: 5, public: { from: { count: 40 } } }
protocol: { use: pate, teachers: 10, teacher: { epochs: 1 }, student: { epochs: 1 } }
parts: { teacher: { use: linear }, student: { use: linear }, vote: { use: consistent-vote },
  privacy: { use: laplace-counts, scale: 20 }, accountant: { use: basic } }
";

#[test]
fn a_plan_of_noisy_votes_is_never_below_what_the_run_costs() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path();
    fs::write(dir.join("two.yaml"), NOISY_COUNTS).unwrap();
    fs::write(dir.join("pate.yaml"), POOLED_COUNTS).unwrap();
    let capped = "parts.privacy.max-count=20";
    let cases: [(&str, &[&str]); 7] = [
        ("two.yaml", &[]),
        ("two.yaml", &["parts.tier2={use: consistent-vote}"]),
        ("two.yaml", &[capped]),
        ("two.yaml", &["protocol.noise=party"]),
        (
            "two.yaml",
            &["protocol.noise=party", "protocol.send=votes", capped],
        ),
        ("two.yaml", &["protocol.send=votes"]),
        ("pate.yaml", &[]),
    ];
    for (at, (spec, set)) in cases.into_iter().enumerate() {
        let ran = json(dir, &with(spec, &at.to_string(), set));
        let cost = ran["privacy"]["readers"]["epsilon"].as_f64().unwrap();
        let set = set.iter().flat_map(|s| ["--set", *s]);
        let args: Vec<&str> = ["plan", spec, "--json"].into_iter().chain(set).collect();
        let planned = json(dir, &args);
        let reached = planned["reached"].as_array().unwrap().iter();
        for (observer, most) in reached.map(|told| (&told[0], &told[1])) {
            let most = most["epsilon"].as_f64();
            assert!(
                most.is_none_or(|most| most >= cost),
                "{args:?}: {most:?} for {cost} against {observer}"
            );
        }
    }
    // a bound on every count is a price before the run
    let known = json(dir, &["plan", "pate.yaml", "--json", "--set", capped]);
    let known = known["reached"].to_string();
    assert!(known.contains("\"epsilon\":"), "{known}");
}

#[test]
fn pate_is_one_tier_on_all_data() {
    let dir = tempfile::tempdir().unwrap();
    let spec = "
name: pate
seed: 1
data: { set: blobs, clients: 5, public: { from: { share: 0.2 } } }
protocol: { use: pate, teachers: 10, teacher: {epochs: 5}, student: {epochs: 5} }
parts: { teacher: {use: linear}, student: {use: linear}, vote: {use: majority-vote},
  privacy: {use: laplace-votes, gamma: 0.5, data-dependent: false}, accountant: {use: pate-moments} }
";
    fs::write(dir.path().join("pate.yaml"), spec).unwrap();
    let answer = json(dir.path(), &with("pate.yaml", "out", &[]));
    assert!(
        answer["metrics"]["accuracy"].as_f64().unwrap() > 0.75,
        "{answer}"
    );
    assert_eq!(answer["privacy"]["readers"]["unit"], "example");
    let (_, said) = fails(
        dir.path(),
        &with("pate.yaml", "many", &["protocol.teachers=99999"]),
    );
    assert!(
        said.contains("examples are too few for 99999 teachers"),
        "{said}"
    );
}

#[test]
fn a_run_may_start_from_a_model_that_another_kept() {
    let dir = tempfile::tempdir().unwrap();
    json(dir.path(), &with(&quick("fedkt.yaml"), "fedkt", &[]));
    let fedavg = quick("fedavg.yaml");
    let initial = "protocol.initial=fedkt/models/final";
    let one = ["protocol.rounds=1", "protocol.use=fedprox"];
    let from = json(
        dir.path(),
        &with(&fedavg, "from", &[&one[..], &[initial]].concat()),
    );
    let new = json(dir.path(), &with(&fedavg, "new", &one));
    assert_ne!(from["digest"], new["digest"]);
    let (code, said) = fails(
        dir.path(),
        &with(&fedavg, "gone", &["protocol.initial=nowhere"]),
    );
    assert!(
        code != 0
            && said.contains("protocol.initial: `initial` names a model")
            && said.contains("nowhere"),
        "{said}"
    );
    fs::write(dir.path().join("junk"), "no model").unwrap();
    let (_, said) = fails(
        dir.path(),
        &with(&fedavg, "junk-run", &["protocol.initial=junk"]),
    );
    assert!(
        said.contains("protocol.initial: junk does not fit parts.model"),
        "{said}"
    );
}

fn account(dir: &Path, more: &[&str]) -> Vec<String> {
    let votes = dir.join("votes.csv").display().to_string();
    let head = ["account", "pate", "--votes", &votes].map(String::from);
    head.into_iter()
        .chain(more.iter().map(|s| s.to_string()))
        .collect()
}

#[test]
fn votes_in_a_file_have_a_price() {
    let dir = tempfile::tempdir().unwrap();
    // vector L1_party_s1_binary: 0.64 is eight times eps0, less than 0.7315 by moments
    fs::write(
        dir.path().join("votes.csv"),
        "47,3\n50,0\n26,24\n10,40\n49,1\n44,6\n38,12\n50,0\n",
    )
    .unwrap();
    let args = account(dir.path(), &["--gamma", "0.04", "--json"]);
    let answer = json(
        dir.path(),
        &args.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    assert_eq!(
        (&answer["queries"], &answer["unit"]),
        (&8.into(), &"party".into())
    );
    assert!(
        (answer["epsilon"].as_f64().unwrap() - 0.64).abs() < 1e-12,
        "{answer}"
    );
    let args = account(
        dir.path(),
        &[
            "--gamma", "0.04", "--s", "2", "--orders", "8", "--level", "example",
        ],
    );
    let table = out(
        dir.path(),
        &args.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    assert!(
        table.contains("epsilon for one example at delta 1e-5, moments 1 to 8"),
        "{table}"
    );
    for (flags, said) in [
        (
            vec!["--gamma", "0"],
            "--gamma: must be a finite number above 0, got 0",
        ),
        (
            vec!["--gamma", "-1"],
            "--gamma: must be a finite number above 0, got -1",
        ),
        (
            vec!["--gamma", "1", "--delta", "1"],
            "--delta: must be above 0 and below 1, got 1",
        ),
    ] {
        let args = account(dir.path(), &flags);
        let (code, text) = fails(
            dir.path(),
            &args.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        assert!(code == 2 && text.contains(said), "{text}");
    }
}
