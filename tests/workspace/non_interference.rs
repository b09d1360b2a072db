//! Non-interference: a run says against whom it guarantees something, and that must be so. One
//! party's data are replaced, every release through a mechanism becomes a constant, and every
//! stream stays: what an observer sees who is promised anything must then be the same bits. A flow
//! that a protocol forgot to declare turns this red; the flawed protocols at the end show that it
//! bites. What the journal's digests and byte counts tell is left out, see fl-core/PRIVACY.md.

use crate::federation::{part, protocol};
use fl_core::message::{ClassMeans, Counts, GradientSum, SoftLabels, Votes};
use fl_core::prelude::*;
use fl_core::privacy::{Observer, Unit};
use fl_core::{
    COUNTS, Examples, ExchangeSpec, Inputs, Labels, Parts, Public, Role, RunOptions,
    SlotAssignment, linked_parts,
};
use fl_plugin_class_distill::FeatureMeans;
use fl_plugins as _;
use fl_sim::{Execution, Outcome, Setup, Watch, run};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Says that it hides what it releases, and releases the same in any case.
/// Parameters are bounded by a norm of 1, as adaptive clipping requires; a constant needs no bound.
fn bound<M: Message>(m: &mut M) {
    let any: &mut dyn std::any::Any = m;
    if let Some(params) = any.downcast_mut::<Params>() {
        params.scale(1.0 / params.norm().max(1.0));
    }
}

macro_rules! constant {
    ($name:literal, $settings:ident, $part:ident, $on:ty, $perturb:expr) => {
        settings! {
            /// Releases a constant.
            struct $settings {}
        }
        struct $part;
        impl From<$settings> for $part {
            fn from(_: $settings) -> Self {
                Self
            }
        }
        impl PrivacyMechanism for $part {
            type On = $on;
            fn clip(&self, m: &mut $on) -> Result<()> {
                bound(m);
                Ok(())
            }
            fn price(&self, _: &$on, _: &Cohort) -> Result<PrivacyEvent> {
                Ok(PrivacyEvent::Laplace {
                    sensitivity: 1.0,
                    scale: 1.0,
                    unit: Unit::Party,
                })
            }
            fn perturb(&mut self, m: &mut $on, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
                // a price counts only if noise was drawn
                noise.draws();
                let perturb: fn(&mut $on) = $perturb;
                perturb(m);
                Ok(())
            }
        }
        plugin!(privacy $name => $settings as $part);
    };
}
constant!(
    "constant-gradients",
    GradientsSettings,
    ConstantGradients,
    GradientSum,
    |m| m.sum.0.values_mut().for_each(|t| t.fill(0.5))
);
constant!(
    "constant-logits",
    LogitsSettings,
    ConstantLogits,
    Logits,
    |m| { m.values.fill(0.5) }
);
constant!(
    "constant-soft-labels",
    SoftSettings,
    ConstantSoft,
    SoftLabels,
    |m| { m.values.fill(0.5) }
);
constant!("constant-votes", VotesSettings, ConstantVotes, Votes, |m| {
    m.labels.fill(1)
});
constant!(
    "constant-counts",
    CountsSettings,
    ConstantCounts,
    Counts,
    |m| { m.values.fill(1.0) }
);
constant!(
    "constant-means",
    MeansSettings,
    ConstantMeans,
    ClassMeans,
    |m| { m.values.fill(0.5) }
);
constant!(
    "constant-features",
    FeaturesSettings,
    ConstantFeatures,
    FeatureMeans,
    |m| { m.0.values.fill(0.5) }
);
constant!(
    "constant-params",
    ParamsSettings,
    ConstantParams,
    Params,
    |m| {
        for tensor in m.0.values_mut() {
            tensor.fill(0.25);
        }
    }
);
// of a client's own examples, those that are the same in both worlds
constant!("first-examples", FirstSettings, First, Ids, |m| m
    .0
    .truncate(SAME));

/// How many examples of the party that is replaced stay: those that a private sample lets through.
const SAME: usize = 4;

type Views = BTreeMap<Observer, Vec<(String, Vec<u8>)>>;

/// Examples of two classes, of all clients.
fn all() -> Examples {
    let mut draws = Stream::root(7).child("examples", 0).draws();
    let inputs = Inputs::Dense {
        shape: vec![2],
        data: (0..200).map(|_| draws.normal() as f32).collect(),
    };
    let labels = Labels::Classes {
        of: (0..100).map(|i| i % 2).collect(),
        classes: 2,
    };
    Examples::all(Arc::new(inputs), Arc::new(labels)).unwrap()
}

/// Those of client `k`. In the `other` world client 1 has the same at first and others behind them,
/// more of one class.
fn own(k: usize, other: bool) -> Vec<usize> {
    if !(other && k == 1) {
        (12 * k..12 * k + 12).collect()
    } else {
        (12..12 + SAME).chain((37..60).step_by(2)).collect()
    }
}

fn world(
    protocol: Arc<dyn Protocol>,
    parts: &[SlotAssignment],
    other: bool,
) -> Result<(Outcome, Views)> {
    let mut views = Views::new();
    let all = all();
    let public = all.pick(&(60..72).collect::<Vec<_>>());
    let outcome = run(Setup {
        execution: Execution {
            listeners: vec![Box::new(Watch(|observer, what: &str, bytes: &[u8]| {
                let seen = views.entry(observer).or_default();
                seen.push((what.to_string(), bytes.to_vec()));
            }))],
            ..Execution::default()
        },
        public: Some(Public::labelled(public)),
        ..Setup::new(
            protocol,
            Arc::new(Parts::new(parts.to_vec())),
            RunOptions::new(1, all.task()),
            (0..3).map(|k| all.pick(&own(k, other))).collect(),
            all.pick(&(80..92).collect::<Vec<_>>()),
        )
    })?;
    Ok((outcome, views))
}

/// Observers who are promised something and see another world than they should; and how many are
/// promised anything.
fn interference(
    protocol: &dyn Fn() -> Arc<dyn Protocol>,
    parts: &[SlotAssignment],
) -> Result<(Vec<String>, usize)> {
    let (outcome, here) = world(protocol(), parts, false)?;
    let (_, there) = world(protocol(), parts, true)?;
    let mut found = Vec::new();
    let promised = outcome.privacy.expect("somebody accounts").into_iter();
    let promised: Vec<Observer> = promised
        .filter(|(_, protection)| protection.guarantee().is_some())
        .map(|(observer, _)| observer)
        .collect();
    for observer in &promised {
        let (one, other) = (here.get(observer), there.get(observer));
        if one != other {
            let pairs = one.into_iter().flatten().zip(other.into_iter().flatten());
            let first = pairs
                .filter(|(a, b)| a != b)
                .map(|(a, _)| a.0.as_str())
                .next();
            found.push(format!("{observer}: {}", first.unwrap_or("more or less")));
        }
    }
    Ok((found, promised.len()))
}

/// A part that is always there, or (with `?`) may be left out: slot, role, name, settings.
type Row = (&'static str, Role, &'static str, &'static str);

/// Every set of optional parts, with the parts that are always there.
fn every(fixed: &[Row], optional: &[Row]) -> Vec<Vec<SlotAssignment>> {
    let made = |row: &Row| part(row.0, row.1, row.2, row.3);
    (0..1_u32 << optional.len())
        .map(|chosen| {
            let some = optional.iter().enumerate();
            let some = some
                .filter(|(at, _)| chosen >> at & 1 == 1)
                .map(|(_, row)| row);
            let mut parts: Vec<SlotAssignment> = fixed.iter().chain(some).map(made).collect();
            parts.push(part("accountant", Role::Accountant, "basic", "{}"));
            parts
        })
        .collect()
}

const LINEAR: (Role, &str, &str) = (Role::Trainer, "linear", "{}");

fn linear(slot: &'static str) -> Row {
    (slot, LINEAR.0, LINEAR.1, LINEAR.2)
}

/// A protocol with its settings, the parts that are always there, and those that may be left out.
type Case = (&'static str, String, Vec<Row>, Vec<Row>);

fn cases() -> Vec<Case> {
    use Role::{Aggregator as A, Privacy as P, Selector as S};
    let short = "{epochs: 1, batch: 4}";
    let distil = |more: &str| {
        format!(
            "{{rounds: 2, samples: 6, warm-up: {short}, local: {short}, distil: {short}{more}}}"
        )
    };
    let sampling: Row = ("sampling", P, "first-examples", "{}");
    let counts: Row = (COUNTS.name(), P, "constant-counts", "{}");
    let filter: Row = (
        "client-filter",
        S,
        "density-ratio",
        "{width: 2.0, uniform: 8, share: 0.5}",
    );
    let mut cases: Vec<Case> = Vec::new();
    for shown in ["true", "false"] {
        for ensemble in ["mean-logits", "class-weighted"] {
            cases.push((
                "one-shot-distill",
                format!(
                    "{{local: {short}, student: {short}, loss: mse, evaluate-clients: {shown}}}"
                ),
                vec![
                    linear("teacher"),
                    linear("student"),
                    ("ensemble", A, ensemble, "{}"),
                ],
                vec![
                    ("quantiser", P, "quantise", "{}"),
                    ("privacy", P, "constant-logits", "{}"),
                    counts,
                ],
            ));
        }
        cases.push((
            "one-shot-distill",
            format!("{{local: {short}, student: {short}, loss: mse, evaluate-clients: {shown}}}"),
            vec![
                linear("teacher"),
                linear("student"),
                ("ensemble", A, "mean-logits", "{}"),
                ("quantiser", P, "quantise", "{z-max: {fixed: 2.0}}"),
            ],
            vec![("privacy", P, "constant-logits", "{}")],
        ));
        for (noise, send) in [
            ("server", "models"),
            ("server", "votes"),
            ("party", "models"),
            ("party", "votes"),
        ] {
            cases.push((
                "two-tier-vote",
                format!("{{subsets: 2, noise: {noise}, send: {send}, teacher: {short}, student: {short}, final-model: {short}, evaluate-clients: {shown}}}"),
                vec![
                    linear("teacher"),
                    linear("student"),
                    linear("final"),
                    ("tier1", A, "majority-vote", "{}"),
                    ("tier2", A, "consistent-vote", "{}"),
                    ("privacy", P, "constant-counts", "{}"),
                ],
                Vec::new(),
            ));
        }
    }
    for (labels, mean, privacy) in [
        ("soft", "mean-labels", "constant-soft-labels"),
        ("hard", "mean-labels", "constant-votes"),
        ("scores", "mean-logits", "constant-logits"),
    ] {
        cases.push((
            "co-distill",
            distil(&format!(", labels: {labels}")),
            vec![linear("model"), ("ensemble", A, mean, "{}")],
            vec![
                ("privacy", P, privacy, "{}"),
                sampling,
                filter,
                linear("student"),
                counts,
            ],
        ));
    }
    for weigh in ["uniform", "samples"] {
        cases.push((
            "class-distill",
            format!("{{rounds: 2, warm-up: {short}, local: {short}}}"),
            vec![linear("model"), ("ensemble", A, "mean-of-classes", "{}")],
            vec![("privacy", P, "constant-means", "{}"), sampling, counts],
        ));
        let mean: &'static str = match weigh {
            "uniform" => "{weigh: uniform}",
            _ => "{weigh: samples}",
        };
        let cohort = ("cohort", S, "power-of-choice", "{size: 1, candidates: 2}");
        cases.push((
            "fedavg",
            format!("{{rounds: 2, local: {short}}}"),
            vec![linear("model"), ("aggregator", A, "mean", mean)],
            vec![("privacy", P, "constant-params", "{}"), cohort, counts],
        ));
        for more in ["", ", adaptive: {first: 0.5}"] {
            cases.push((
                "dp-fedavg",
                format!("{{rounds: 3, local: {short}{more}}}"),
                vec![
                    linear("model"),
                    ("aggregator", A, "mean", mean),
                    ("server-privacy", P, "constant-params", "{}"),
                ],
                vec![cohort, counts],
            ));
        }
    }
    for (protocol, settings) in [
        ("fedavg", "share: [weight]"),
        ("fedprox", "mu: 0.5, share: [-bias]"),
        (
            "fedavg",
            "share: [bias], freeze-rest: true, tune: {steps: 2, batch: 4}",
        ),
        ("fedrep", "share: [weight], head: {steps: 2, batch: 4}"),
        ("ditto", "lambda: 0.5"),
        ("apfl", "adaptive: true"),
        (
            "per-fedavg",
            "adapt: 0.1, learn: 0.1, tune: {steps: 1, batch: 4}",
        ),
        ("feddf", "training: {steps: 2, batch: 4}"),
        ("feddyn", "alpha: 0.5"),
        ("fedamp", "alpha: 0.2"),
    ] {
        cases.push((
            protocol,
            format!("{{rounds: 3, local: {short}, {settings}}}"),
            vec![
                linear("model"),
                ("aggregator", A, "mean", "{weigh: uniform}"),
                ("privacy", P, "constant-params", "{}"),
            ],
            vec![("cohort", S, "uniform", "{share: 0.7}"), counts],
        ));
    }
    let deep = (
        "model",
        Role::Trainer,
        "dfdx",
        "{net: [{linear: 3}, outputs]}",
    );
    cases.push((
        "moon",
        format!("{{rounds: 3, local: {short}}}"),
        vec![
            deep,
            ("aggregator", A, "mean", "{weigh: uniform}"),
            ("privacy", P, "constant-params", "{}"),
        ],
        vec![("cohort", S, "uniform", "{share: 0.7}"), counts],
    ));
    let features: Row = ("privacy", P, "constant-features", "{}");
    for (protocol, prototypes) in [
        ("fedproto", Some("mean-of-features")),
        ("fedproto", Some("trainable-prototypes")),
        ("fedgh", None),
    ] {
        let prototypes = prototypes.map(|name| ("prototypes", A, name, "{}"));
        cases.push((
            protocol,
            format!("{{rounds: 2, local: {short}}}"),
            [deep].into_iter().chain(prototypes).collect(),
            vec![features, counts],
        ));
    }
    for (protocol, settings) in [
        ("scaffold", "control: gradient"),
        ("fednova", "local: {steps: 2, batch: 4}"),
    ] {
        cases.push((
            protocol,
            format!("{{rounds: 2, {settings}}}"),
            vec![
                linear("model"),
                ("aggregator", A, "mean", "{weigh: uniform}"),
            ],
            vec![counts],
        ));
    }
    let net = |slot| (slot, Role::Trainer, "dfdx", "{net: logistic}");
    cases.push((
        "fedgen",
        format!("{{rounds: 2, local: {short}, features: 2, noise: 2, steps: 2, batch: 2}}"),
        vec![
            net("model"),
            net("generator"),
            ("aggregator", A, "mean", "{weigh: uniform}"),
        ],
        vec![("privacy", P, "constant-params", "{}"), counts],
    ));
    for (protocol, draw, more) in [
        ("fedavg", "poisson", ""),
        ("fedavg", "fixed", ""),
        ("feddf", "poisson", ", training: {steps: 2, batch: 4}"),
    ] {
        cases.push((
            protocol,
            format!("{{rounds: 2, local: {{steps: 2, batch: 4}}, sampling: {{rate: 0.5, draw: {draw}}}{more}}}"),
            vec![
                linear("model"),
                ("aggregator", A, "mean", "{weigh: uniform}"),
                ("example-privacy", P, "constant-gradients", "{}"),
            ],
            vec![],
        ));
    }
    cases.push((
        "pate",
        format!("{{teachers: 3, teacher: {short}, student: {short}}}"),
        vec![
            linear("teacher"),
            linear("student"),
            ("vote", A, "majority-vote", "{}"),
        ],
        vec![("privacy", P, "constant-counts", "{}"), counts],
    ));
    // what the server must know of a client's numbers of examples has no mechanism: only the first
    // can promise anything
    let few = "rounds: 2, steps: 2, batch: 4";
    for (how, judge) in [
        (
            "terms: {gan: 0, conf: 0, unique: 0}, weights: uniform, evaluate-clients: false",
            false,
        ),
        ("terms: {gan: 0}, weights: sizes", false),
        ("warm-up: 1", true),
    ] {
        let generator = "{net: affine, noise: 2}";
        let mut fixed = vec![
            net("teacher"),
            net("student"),
            ("generator", Role::Generator, "noise-to-input", generator),
        ];
        fixed.extend(judge.then(|| net("discriminator")));
        cases.push((
            "generate-and-distill",
            format!("{{local: {short}, {few}, {how}}}"),
            fixed,
            vec![
                ("answers-privacy", P, "constant-logits", "{}"),
                ("slopes-privacy", P, "constant-params", "{}"),
            ],
        ));
    }
    // teachers that learn by DP-SGD
    let steps = "local: {steps: 2, batch: 4}, sampling: {rate: 0.5}";
    let gradients = ("example-privacy", P, "constant-gradients", "{}");
    for shown in ["true", "false"] {
        for ensemble in ["mean-logits", "class-weighted"] {
            cases.push((
                "one-shot-distill",
                format!("{{{steps}, student: {short}, loss: mse, evaluate-clients: {shown}}}"),
                vec![
                    linear("teacher"),
                    linear("student"),
                    ("ensemble", A, ensemble, "{}"),
                    gradients,
                ],
                vec![("quantiser", P, "quantise", "{}"), counts],
            ));
        }
        for name in ["dense", "co-boosting"] {
            let server = format!("rounds: 2, steps: 1, batch: 4, student: {short}");
            cases.push((
                name,
                format!("{{{steps}, {server}, evaluate-clients: {shown}}}"),
                vec![
                    linear("teacher"),
                    linear("student"),
                    (
                        "generator",
                        Role::Generator,
                        "noise-to-input",
                        "{net: affine, noise: 2}",
                    ),
                ],
                vec![gradients],
            ));
        }
        for (how, judge) in [
            (
                "terms: {gan: 0}, weights: uniform, equal-weights: true",
                false,
            ),
            ("terms: {gan: 0}, weights: uniform", false),
            ("terms: {gan: 0}", true),
            ("weights: uniform, equal-weights: true", true),
        ] {
            let generator = "{net: affine, noise: 2}";
            let mut fixed = vec![
                net("teacher"),
                net("student"),
                ("generator", Role::Generator, "noise-to-input", generator),
                gradients,
            ];
            fixed.extend(judge.then(|| net("discriminator")));
            cases.push((
                "generate-and-distill",
                format!("{{{steps}, {few}, {how}, evaluate-clients: {shown}}}"),
                fixed,
                vec![("answers-privacy", P, "constant-logits", "{}")],
            ));
        }
    }
    cases
}

/// Protocols that promise nothing to anybody, and why: an answer of theirs has no price, whatever
/// slots are filled. Their mechanisms are for what remains.
const UNPROMISED: &[(&str, &str)] = &[
    ("asyn-dgan", "label maps leave the clients as they are"),
    ("fedproto", "no mechanism hides which classes a client has"),
    ("fedgh", "no mechanism hides which classes a client has"),
    ("scaffold", "no mechanism hides control variates"),
    ("fednova", "no mechanism hides how many steps a client took"),
];

fn unpromised(name: &str) -> bool {
    UNPROMISED.iter().any(|of| of.0 == name)
}

/// Slots that stay empty in every run, of these protocols; and what their check says of one that is
/// filled. If that is empty: that the protocol releases nothing through it.
const REFUSED: &[(&str, &[&str], &str)] = &[
    (
        "example-privacy",
        &[
            "apfl",
            "ditto",
            "fedamp",
            "feddyn",
            "fednova",
            "fedprox",
            "moon",
            "per-fedavg",
            "scaffold",
        ],
        "protects the gradients of each step and nothing else",
    ),
    (
        "example-privacy",
        &["fedgen"],
        "which `parts.example-privacy` does not hide",
    ),
    ("example-privacy", &["fedrep"], "clients share only a part"),
    ("example-privacy", &["dp-fedavg"], ""),
    ("privacy", &["dp-fedavg"], "leave one out"),
    ("privacy", &["fednova", "scaffold"], ""),
];

#[test]
fn every_slot_of_a_mechanism_has_a_case_or_is_refused() {
    let cases = cases();
    let (mut missing, mut refused) = (Vec::new(), 0);
    for decl in linked_parts() {
        if decl.role != Role::Protocol || decl.origin == env!("CARGO_PKG_NAME") {
            continue;
        }
        let tried: Vec<&Case> = cases.iter().filter(|case| case.0 == decl.name).collect();
        let settings = tried.first().map_or("{}", |case| &case.1);
        let protocol = protocol(decl.name, settings);
        if unpromised(decl.name) {
            let open =
                |of: &ExchangeSpec| of.flow.open(&|_| true, false).len() == Observer::ALL.len();
            assert!(protocol.declare().specs().any(open), "{}", decl.name);
        }
        for slot in protocol.declare().into_slots() {
            let mut rows = tried.iter().flat_map(|case| case.2.iter().chain(&case.3));
            if slot.role != Role::Privacy || rows.any(|row| row.0 == slot.name) {
                continue;
            }
            if unpromised(decl.name) && tried.is_empty() {
                continue;
            }
            let mut why = REFUSED.iter();
            let why = why.find(|of| of.0 == slot.name && of.1.contains(&decl.name));
            let Some((.., why)) = why else {
                missing.push(format!("{}: {}", decl.name, slot.name));
                continue;
            };
            let filled = |name: &str| name == slot.name;
            let said = protocol.conflicts(&filled);
            let unused = || {
                !protocol
                    .declare()
                    .specs()
                    .any(|of| of.goes_through(slot.name))
            };
            let conflict = || said.iter().any(|conflict| conflict.text.contains(why));
            let found = if why.is_empty() { unused() } else { conflict() };
            assert!(
                found,
                "{}: {} is not refused: {said:?}",
                decl.name, slot.name
            );
            refused += 1;
        }
    }
    assert!(missing.is_empty(), "no case: {missing:#?}");
    let listed: usize = REFUSED.iter().map(|of| of.1.len()).sum();
    assert_eq!(
        refused, listed,
        "a line of `REFUSED` is of no protocol or slot"
    );
}

#[test]
fn who_is_promised_something_sees_the_same_whatever_one_party_has() {
    let cases = cases();
    let (mut red, mut promises) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for (name, settings, fixed, optional) in &cases {
        for parts in every(fixed, optional) {
            let slots: Vec<String> = parts
                .iter()
                .map(|p| format!("{}: {}", p.slot, p.decl.name))
                .collect();
            let place = format!("{name} {settings} with {}", slots.join(", "));
            let (found, promised) = interference(&|| protocol(name, settings), &parts)
                .unwrap_or_else(|error| panic!("{place}: {error:#}"));
            red.extend(found.into_iter().map(|found| format!("{place}: {found}")));
            *promises.entry(name).or_default() += promised;
        }
    }
    assert!(red.is_empty(), "{}", red.join("\n"));
    // a test without promises would pass too
    promises.retain(|name, promised| (*promised == 0) != unpromised(name));
    assert!(promises.is_empty(), "{promises:?}");
}

/// What is wrong with a protocol, which says that all it does is released through `privacy`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    Nothing,
    /// A second exchange whose answer is declared public, and is not.
    Public,
    /// Something of the answer goes beside the mechanism.
    Beside,
    /// Data decide what is asked next.
    Order,
    /// Clients are sent something of the answers before the server releases it.
    Echo,
    /// The server records what it has not released.
    Record,
    /// The private sample is not all that is used.
    Around,
}

struct Flawed(Flaw);

const PRIVACY: MechanismSlot<Logits> = MechanismSlot::new("privacy", "");
const SAMPLING: MechanismSlot<Ids> = MechanismSlot::new("sampling", "");
const TELL: Exchange<Nothing, Logits> = Exchange::new("tell");
const MORE: Exchange<Params, Scalar> = Exchange::new("more");

impl Flawed {
    fn at_server(&self) -> bool {
        matches!(self.0, Flaw::Echo | Flaw::Record)
    }
}

impl Protocol for Flawed {
    fn declare(&self) -> Declaration<'_> {
        let tell = TELL.answered_by(|me, _| {
            let sum = me.own().samples.values().sum();
            let mut told = Logits::new(vec![0], ndarray::Array2::from_elem((1, 2), sum));
            if self.0 == Flaw::Beside {
                me.release(&PRIVACY, &mut told)?;
                told.values[[0, 0]] = sum;
            }
            Ok(told)
        });
        let more = MORE.answered_by(|me, _| {
            let n = me.own().len() as f32;
            Ok(Scalar::new(match self.0 {
                Flaw::Public => n,
                Flaw::Order => f32::from(u8::from(n > 12.0)),
                _ => 0.0,
            }))
        });
        Declaration::new()
            .rounds(2)
            .slot(&PRIVACY)
            .slot(&SAMPLING)
            .exchange(match self.0 {
                Flaw::Around => tell.draws(&SAMPLING),
                Flaw::Beside => tell.releases_within(&PRIVACY),
                _ if self.at_server() => tell.releases_at_server(&PRIVACY),
                _ => tell.releases(&PRIVACY),
            })
            .exchange(more.public())
    }
    fn lead(&self, fed: &mut Server<'_>) -> Result<()> {
        fed.rounds(&mut (), |fed, (), round| {
            let all = fed.everyone();
            let told = fed.collect(round, &TELL, |_| &Nothing)?;
            let mut first = told.iter().nth(1).context("client 1")?.body.clone();
            let raw = first.values.clone();
            if self.at_server() {
                fed.release(&TELL, round, &mut first, &all)?;
            }
            if self.0 == Flaw::Record {
                fed.record(round, "mean", f64::from(raw.sum()))?;
            }
            let sent = if self.0 == Flaw::Echo {
                &raw
            } else {
                &first.values
            };
            let sent = Params([("w".to_string(), sent.clone().into_dyn())].into());
            let more = fed.collect(round, &MORE, |_| &sent)?;
            if self.0 == Flaw::Order && more.iter().any(|m| m.body.value() > 0.0) {
                fed.collect(round, &MORE, |_| &sent)?;
            }
            Ok(())
        })
    }
}

#[test]
fn flows_that_are_declared_wrongly_are_found() {
    let rows: [Row; 2] = [
        ("privacy", Role::Privacy, "constant-logits", "{}"),
        ("sampling", Role::Privacy, "first-examples", "{}"),
    ];
    let parts = every(&rows, &[]).remove(0);
    for (flaw, wanted) in [
        (Flaw::Nothing, None),
        (Flaw::Public, Some("the server: answer of client 1")),
        (Flaw::Beside, Some("the server: answer of client 1")),
        (Flaw::Order, Some("the other clients: tell")),
        (Flaw::Echo, Some("the other clients: more")),
        (Flaw::Record, Some("readers of the results: mean")),
        (Flaw::Around, Some("the server: answer of client 1")),
    ] {
        let (found, promised) = interference(&|| Arc::new(Flawed(flaw)), &parts).unwrap();
        assert!(promised > 0, "{flaw:?} promises nothing");
        match wanted {
            None => assert_eq!(found, Vec::<String>::new(), "{flaw:?}"),
            Some(wanted) => assert!(found.iter().any(|f| f == wanted), "{flaw:?}: {found:?}"),
        }
    }
}
