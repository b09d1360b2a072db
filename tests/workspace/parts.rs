//! Every part of the bundle keeps the promises of its role: the conformance kit tries each with its default settings, or
//! with those that stand here.

use fl_conformance::{Broken, Neighbours, check, tasks};
use fl_core::message::{
    ClassMeans, Counts, Logits, Message, Params, SoftLabels, Visitor, Votes, visit,
};
use fl_core::settings::{Reader, Value};
use fl_core::{
    Accountant, BoxedAggregator, BoxedMechanism, BoxedSelector, BuildContext, PartDecl, Result,
    Role, Roster, Samples, Stream, TaskKind, Trainer, linked_parts,
};
use fl_plugins as _;

/// Settings for parts that have none by default, or that are slow with them; a part may stand here several times.
const SETTINGS: &[(&str, &str)] = &[
    ("dfdx", "{net: [linear: 8, tanh, outputs]}"),
    (
        "dfdx",
        "{net: [linear: 8, relu, outputs], optimiser: {sgd: {lr: 0.05, momentum: 0.9}}}",
    ),
    ("density-ratio", "{}"),
    ("density-ratio", "{variant: landmarks, landmarks: 50}"),
    ("laplace-counts", "{scale: 4}"),
    ("laplace-votes", "{gamma: 0.5}"),
    ("gaussian-votes", "{sigma: 2.0}"),
    ("gaussian-labels", "{sigma: 2.0}"),
    ("laplace-labels", "{scale: 0.5}"),
    ("sample-examples", "{share: 0.5}"),
    ("sample-examples", "{k: 20, replacement: true}"),
];

/// Trainers of classes only; the kit gives the others findings too.
const CLASSES_ONLY: &[&str] = &["tree", "forest", "boosting"];

/// Parts that the kit cannot hold to what it asks of their role, and why. This list only shrinks.
const SPECIAL: &[(&str, &str)] = &[(
    "confident-votes",
    "leaves rows out at random, so its noise has no fixed shape to measure",
)];

/// Signatures that the kit cannot make up input for yet. This list only shrinks: write `Message::sample`, or implement
/// `fl_conformance::PoolSample`, and strike it here.
const NOT_SAMPLED: &[&str] = &[];

fn make() -> BuildContext {
    BuildContext {
        task: tasks().swap_remove(0),
        stream: Stream::root(1),
    }
}

fn built<P: 'static>(decl: &PartDecl, settings: &Value, make: &BuildContext) -> Result<P> {
    let part = (decl.build)(settings, make)?;
    part.downcast::<P>()
        .map(|p| *p)
        .map_err(|_| anyhow::anyhow!("`{}` is not of its signature", decl.name))
}

fn part<P: 'static>(decl: &PartDecl, settings: &Value) -> P {
    built(decl, settings, &make())
        .unwrap_or_else(|e| panic!("{} `{}`: {e:#}", decl.role, decl.name))
}

/// A mechanism on some message.
struct Mechanism<'a>(&'a PartDecl, &'a Value);

impl Visitor for Mechanism<'_> {
    type Out = Result<(), Broken>;
    fn visit<M: Message>(self) -> Result<(), Broken> {
        let make = || part::<BoxedMechanism<M>>(self.0, self.1);
        check::mechanism(&make, Neighbours::Replaced)
    }
}

/// What the kit says of a part; `None` if it cannot try parts of this role or signature.
fn tried(decl: &PartDecl, settings: &Value) -> Option<Result<(), Broken>> {
    let signature = (decl.describe)().signature;
    Some(match (decl.role, signature.as_str()) {
        (Role::Aggregator, "params -> params") => {
            check::aggregator(&|| part::<BoxedAggregator<Params, Params>>(decl, settings))
        }
        (Role::Aggregator, "logits -> logits") => {
            check::aggregator(&|| part::<BoxedAggregator<Logits, Logits>>(decl, settings))
        }
        (Role::Aggregator, "soft-labels -> soft-labels") => {
            check::aggregator(&|| part::<BoxedAggregator<SoftLabels, SoftLabels>>(decl, settings))
        }
        (Role::Aggregator, "class-means -> class-means") => {
            check::aggregator(&|| part::<BoxedAggregator<ClassMeans, ClassMeans>>(decl, settings))
        }
        (Role::Aggregator, "votes -> counts") => {
            check::aggregator(&|| part::<BoxedAggregator<Votes, Counts>>(decl, settings))
        }
        (Role::Aggregator, "votes -> votes") => {
            check::aggregator(&|| part::<BoxedAggregator<Votes, Votes>>(decl, settings))
        }
        (Role::Selector, "clients") => {
            check::selector(&|| part::<BoxedSelector<Roster>>(decl, settings), false)
        }
        (Role::Selector, "samples") => {
            check::selector(&|| part::<BoxedSelector<Samples>>(decl, settings), false)
        }
        (Role::Selector, "soft-labels") => {
            check::selector(&|| part::<BoxedSelector<SoftLabels>>(decl, settings), false)
        }
        (Role::Privacy, kind) => visit(kind, Mechanism(decl, settings))?,
        (Role::Trainer, _) => {
            let mut tasks = tasks();
            if CLASSES_ONLY.contains(&decl.name) {
                tasks.retain(|t| matches!(t.kind, TaskKind::Classes(_)));
            }
            check::trainer(&tasks, &|make| {
                built::<Box<dyn Trainer>>(decl, settings, make)
            })
        }
        (Role::Accountant, _) => check::accountant(&|| part::<Box<dyn Accountant>>(decl, settings)),
        _ => return None,
    })
}

#[test]
fn every_linked_part_is_conformant() {
    let mut failures = Vec::new();
    for decl in linked_parts() {
        let special = SPECIAL.iter().any(|(name, _)| *name == decl.name);
        // the parts that these tests make themselves are tried where they are made
        let own = decl.origin == env!("CARGO_PKG_NAME");
        if own || matches!(decl.role, Role::Protocol | Role::Generator) || special {
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
            let signature = (decl.describe)().signature;
            match tried(decl, &settings) {
                Some(Ok(())) => {}
                Some(Err(broken)) => {
                    failures.push(format!("{} `{}` {yaml}: {broken}", decl.role, decl.name))
                }
                None if NOT_SAMPLED.contains(&signature.as_str()) => {}
                None => failures.push(format!(
                    "{} `{}`: the kit cannot try `{signature}` yet",
                    decl.role, decl.name
                )),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
