//! FedGEN as a user runs it: its cost beside FedAvg, its guarantees, and clear messages about
//! mistakes.

use crate::common::{fails, flat, json, out, quick};
use std::path::Path;

/// FedAvg on the same clients and network.
const PLAIN: [&str; 4] = [
    "--set",
    "protocol={use: fedavg, rounds: 4, local: {epochs: 2, batch: 32}}",
    "--set",
    "parts.generator=null",
];

/// Numbers in the generator of `quick/fedgen.yaml`: 16 of noise and 10 of classes to 64 to 32.
const GENERATOR: u64 = (26 * 64 + 64) + (64 * 32 + 32);
const CLIENTS: u64 = 4;
const CLASSES: u64 = 10;

fn bytes(dir: &Path, more: &[&str]) -> (u64, u64) {
    let spec = quick("fedgen");
    let _ = std::fs::remove_dir_all(dir.join("out"));
    let ran = json(
        dir,
        &[&["run", &spec, "--json", "--out", "out"], more].concat(),
    );
    let of = |way: &str| ran["bytes"][way].as_u64().unwrap();
    (of("up"), of("down"))
}

#[test]
fn exact_it_costs_fedavg_and_the_generator_down() {
    let dir = tempfile::tempdir().unwrap();
    let (up, down) = bytes(dir.path(), &[]);
    let (plain_up, plain_down) = bytes(dir.path(), &PLAIN);
    // from the second of four rounds on, with the number by which its terms are multiplied
    assert_eq!(down - plain_down, 3 * CLIENTS * (4 * GENERATOR + 4));
    // the counts that weigh what clients say of a class, with every answer
    assert_eq!(up - plain_up, 4 * CLIENTS * CLASSES * 4);
    let planned = json(dir.path(), &["plan", &quick("fedgen"), "--json"]);
    assert_eq!(planned["bytes"]["down"].as_u64(), Some(down));
}

#[test]
fn bounded_what_clients_tell_of_classes_has_a_price_or_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let spec = quick("fedgen");
    let set = |counts: &str| {
        let more = [
            "parts.privacy={use: gaussian-update, clip: 1.0, noise-multiplier: 8.0}",
            "parts.aggregator={use: mean, weigh: uniform}",
            "parts.accountant={use: rdp}",
            counts,
        ];
        let more = more.iter().flat_map(|set| ["--set", set]);
        let all: Vec<&str> = ["plan", &spec].into_iter().chain(more).collect();
        flat(&out(dir.path(), &all))
    };
    let open = set("name=open");
    let told = "a client sends its number of examples of each class";
    assert!(open.contains(told), "{open}");
    let hidden = set("parts.counts-privacy={use: laplace-counts, scale: 5.0, max-count: 100}");
    assert!(!hidden.contains(told), "{hidden}");
    assert!(hidden.contains("counts-privacy"), "{hidden}");
}

#[test]
fn exact_mistakes_are_named_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let spec = quick("fedgen");
    let cases: [(&[&str], &str); 12] = [
        (
            &["protocol.features=31"],
            "its last layer takes 32 numbers of an input, and protocol `fedgen` is set for 31: set `protocol.features: 32`",
        ),
        (&["parts.generator=null"], "parts.generator: is missing"),
        (
            &["parts.model={use: forest}"],
            "no linear last layer that maps features to scores",
        ),
        (
            &["parts.model={use: linear}"],
            "no linear last layer that maps features to scores",
        ),
        (
            &["parts.generator={use: forest}"],
            "no parameters to combine",
        ),
        (
            &[
                "parts.example-privacy={use: gaussian-gradients}",
                "parts.accountant={use: pld}",
            ],
            "which `parts.example-privacy` does not hide",
        ),
        (&["protocol.rounds=1"], "`rounds` must be 2 or more"),
        (
            &["protocol.cross-entropy=0", "protocol.kl=0"],
            "`cross-entropy` and `kl` are both 0",
        ),
        (&["protocol={use: fedgen}"], "features"),
        (&["protocol.batch=1"], "must be in 2..=4096, got 1"),
        (
            &[
                "data.set={multi-label: {}}",
                "data.split=iid",
                "parts.model.net=[{linear: 32}, relu, outputs]",
            ],
            "generates features of one class each: use another protocol",
        ),
        (
            &[
                "data.set={cells: {}}",
                "data.split=iid",
                "parts.model.net=unet",
            ],
            "FedGEN makes features of one class each; use `fedavg`",
        ),
    ];
    for (set, says) in cases {
        let more = set.iter().flat_map(|set| ["--set", set]);
        let all: Vec<&str> = ["check", &spec].into_iter().chain(more).collect();
        let (code, said) = fails(dir.path(), &all);
        assert_eq!(code, 2, "{set:?}: {said}");
        assert!(said.contains(says), "{set:?}: {said}");
    }
}

#[test]
fn bounded_the_ends_of_its_settings_run() {
    let dir = tempfile::tempdir().unwrap();
    for (at, set) in [
        "protocol.batch=2",
        "protocol.noise=1",
        "protocol.decay=1.0",
        "protocol.diversity=0",
        "protocol.kl=0",
        "protocol.cross-entropy=0",
        "data.clients=1",
        "parts.cohort={use: poisson, rate: 0.3}",
        "parts.generator.net=[{linear: 16}, batch-norm, relu, {dropout: 0.5}, outputs]",
        "parts.generator={use: linear}",
        "protocol.fresh=false",
        "faults={on-error: drop, inject: [{what: crash, share: 0.3}]}",
        "faults={on-error: {retry: 5}, inject: [{what: crash, share: 0.3}]}",
    ]
    .iter()
    .enumerate()
    {
        let spec = quick("fedgen");
        let out = at.to_string();
        let more = ["--set", "protocol.rounds=2", "--set", set];
        let ran = json(
            dir.path(),
            &[&["run", &spec, "--json", "--out", &out], &more[..]].concat(),
        );
        assert!(ran["digest"].is_string(), "{set}: {ran}");
    }
}
