//! Parts with one planted flaw each: the conformance kit must name the property that the flaw
//! breaks, and must find nothing in the same part without the flaw.

mod accountants;
mod aggregators;
mod feature_order;
mod generators;
mod mechanisms;
mod selectors;
mod trainers;

use fl_conformance::Broken;

/// What is wrong with a part, the property that must break (none if nothing is wrong), and what the
/// kit found.
type Mutant = (&'static str, Option<&'static str>, Result<(), Broken>);

#[test]
fn every_mutant_is_caught_by_the_property_it_breaks() {
    let all: [(&str, Vec<Mutant>); 6] = [
        ("aggregator", aggregators::all()),
        ("selector", selectors::all()),
        (
            "trainer",
            trainers::all()
                .into_iter()
                .chain(feature_order::all())
                .collect(),
        ),
        ("mechanism", mechanisms::all()),
        ("accountant", accountants::all()),
        ("generator", generators::all()),
    ];
    let (mut lines, mut missed) = (Vec::new(), Vec::new());
    for (role, mutants) in all {
        for (flaw, wanted, outcome) in mutants {
            let found = outcome.as_ref().err().map(|broken| broken.property);
            if found != wanted {
                missed.push(format!(
                    "{role}, {flaw}: should break {wanted:?}, the kit says {outcome:?}"
                ));
            }
            let message = outcome.map_or_else(|broken| broken.to_string(), |()| "held".into());
            lines.push(format!("{role}, {flaw}\n  -> {message}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    fl_conformance::close().bind(|| insta::assert_snapshot!(lines.join("\n")));
}
