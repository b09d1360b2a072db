//! Every part of the bundle keeps the promises of its role: the conformance kit tries each with its
//! default settings, or with those that stand here.

use fl_conformance::check;
use fl_core::settings::{Reader, Value};
use fl_core::{Role, linked_parts};
use fl_plugins as _;

/// Settings for parts that have none by default, or that are slow with them; a part may stand here
/// several times.
const SETTINGS: &[(&str, &str)] = &[
    ("dfdx", "{net: [linear: 8, tanh, outputs]}"),
    (
        "dfdx",
        "{net: [linear: 8, relu, outputs], optimiser: {sgd: {lr: 0.05, momentum: 0.9}}}",
    ),
    (
        "dfdx",
        "{net: [{conv: {out: 4, kernel: 3, pad: 1}}, tanh, {conv: {out: 2, kernel: 1}}]}",
    ),
    ("density-ratio", "{}"),
    ("density-ratio", "{variant: landmarks, landmarks: 50}"),
    ("laplace-counts", "{scale: 4}"),
    ("q-fair-mean", "{lr: 0.1}"),
    ("confident-votes", "{threshold: 1, check: 0.5, sigma: 0.5}"),
    ("laplace-votes", "{gamma: 0.5}"),
    ("gaussian-votes", "{sigma: 2.0}"),
    ("gaussian-labels", "{sigma: 2.0}"),
    ("laplace-labels", "{scale: 0.5}"),
    ("sample-examples", "{share: 0.5}"),
    ("sample-examples", "{k: 20, replacement: true}"),
];

#[test]
fn every_linked_part_is_conformant() {
    let mut failures = Vec::new();
    for decl in linked_parts() {
        // the parts that these tests make themselves are tried where they are made
        let own = decl.origin == env!("CARGO_PKG_NAME");
        if own || decl.role == Role::Protocol {
            continue;
        }
        let own: Vec<&str> = SETTINGS
            .iter()
            .filter(|(name, _)| *name == decl.name)
            .map(|(_, yaml)| *yaml)
            .collect();
        for yaml in if own.is_empty() { vec!["{}"] } else { own } {
            let value: Value = serde_yaml::from_str(yaml).expect("settings in YAML");
            let mut reader = Reader::default();
            let Some(settings) = (decl.check)(&value, &mut reader) else {
                failures.push(format!(
                    "{} `{}` {yaml}: {:?}; give it settings here",
                    decl.role, decl.name, reader.mistakes
                ));
                continue;
            };
            let broken = match check::declared(decl, &settings.value) {
                Some(Ok(())) => continue,
                Some(Err(broken)) => broken.to_string(),
                None => format!("the kit has nothing for {}", (decl.describe)().signature),
            };
            failures.push(format!("{} `{}` {yaml}: {broken}", decl.role, decl.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
