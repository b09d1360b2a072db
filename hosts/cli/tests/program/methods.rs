//! Methods by the names of their papers: protocols of their own, and aliases.

use crate::common::{fails, json, out, quick, root};
use std::fs;

#[test]
fn a_name_that_is_gone_names_its_successors() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(quick("fedavg")).unwrap();
    let path = dir.path().join("old.yaml");
    for (gone, first) in [
        ("param-rounds", "`fedavg`, `fedprox` (`mu`), `scaffold`"),
        ("clustered-rounds", "`fesem` (`assign: distance`), `ifca`"),
    ] {
        fs::write(&path, text.replace("use: fedavg", &format!("use: {gone}"))).unwrap();
        let (code, error) = fails(dir.path(), &["check", path.to_str().unwrap()]);
        assert_eq!(code, 2, "{error}");
        let told = format!(
            "`{gone}` is not a protocol any more: each of its methods is a protocol of its own, with the same settings: {first}"
        );
        assert!(error.contains(&told), "{error}");
    }
}

#[test]
fn an_alias_stands_for_its_protocol_and_for_settings() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(quick("fedmd-nfdp")).unwrap();
    let resolved = |text: &str, name: &str| {
        let path = dir.path().join(format!("{name}.yaml"));
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        json(dir.path(), &["run", path, "--json", "--out", name]);
        fs::read_to_string(dir.path().join(name).join("spec.yaml")).unwrap()
    };
    let plain = resolved(&text, "plain");
    assert!(text.contains("  labels: scores\n"));
    let short = text.replace("  labels: scores\n", "");
    let short = short.replace("use: co-distill", "use: fedmd");
    assert_eq!(plain, resolved(&short, "alias"));
    // what a spec says comes before what the name stands for
    let soft = short.replace("use: fedmd\n", "use: fedmd\n  labels: soft\n");
    let soft = soft.replace("use: mean-logits", "use: mean-labels");
    assert!(resolved(&soft, "soft").contains("labels: soft"));
}

#[test]
fn a_name_that_is_nearly_an_alias_is_suggested() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(quick("fedkd")).unwrap();
    let path = dir.path().join("near.yaml");
    fs::write(&path, text.replace("use: one-shot-distill", "use: fed-kd")).unwrap();
    let (_, error) = fails(dir.path(), &["check", path.to_str().unwrap()]);
    assert!(error.contains("did you mean `fedkd`?"), "{error}");
}

#[test]
fn an_attack_fits_the_slots_of_attacks_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(quick("attacked")).unwrap();
    let at = |part: &str| text.lines().position(|line| line.contains(part)).unwrap() + 1;
    let checked = |from: &str, to: &str| {
        assert!(text.contains(from));
        fs::write(dir.path().join("spec.yaml"), text.replace(from, to)).unwrap();
        let (code, error) = fails(dir.path(), &["check", "spec.yaml"]);
        assert_eq!(code, 2, "{error}");
        error
    };

    let error = checked(
        "aggregator: { use: multi-krum",
        "aggregator: { use: sign-flip",
    );
    let line = format!("spec.yaml:{}:", at("aggregator:"));
    assert!(error.contains(&line), "{error}");
    let why = "no aggregator is called `sign-flip`: that is an attack; known: ";
    assert!(error.contains(why), "{error}");
    let error = checked(
        "aggregator: { use: multi-krum",
        "aggregator: { use: mean-labels",
    );
    assert!(
        error.contains("these fit: agnostic-mean, bulyan,"),
        "{error}"
    );
    let attacks = out(&root(), &["list", "attack"]);
    let attacks: Vec<_> = attacks.lines().skip(1).collect();
    assert!(attacks.len() >= 6, "{attacks:?}");
    for attack in attacks {
        let name = attack.split_whitespace().next().unwrap();
        assert!(!error.contains(name), "{name}: {error}");
    }

    let error = checked("attack: { use: sign-flip", "attack: { use: mean");
    let why = "no attack is called `mean`: that is an aggregator; known: gaussian, ";
    assert!(error.contains(why), "{error}");
    let error = checked("attack: { use: sign-flip", "attack: { use: label-flip");
    let why =
        "must be params, but `label-flip` is votes; it fits parts.labels; these fit: gaussian, ";
    assert!(error.contains(why), "{error}");
}
