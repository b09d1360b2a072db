//! Every mechanism is audited: what its releases show epsilon to be must not exceed what the
//! accountants claim. The long form, with 100,000 draws:
//! `FL_AUDIT_DRAWS=100000 cargo test --release -p fl-tests --test workspace audit -- --nocapture`.

use crate::federation::part;
use fl_conformance::{Audit, audit};
use fl_core::message::{Counts, GradientSum, Message, SoftLabels, VoteSensitivity, Votes};
use fl_core::prelude::*;
use fl_core::privacy::{Guarantee, Noise, Unit};
use fl_core::{BoxedMechanism, Parts, Role, TaskKind, linked_parts};
use ndarray::{Array2, array};
use std::collections::BTreeSet;

const KINDS: [Noise; 2] = [Noise::Seeded, Noise::System];

fn draws() -> usize {
    let asked = std::env::var("FL_AUDIT_DRAWS").ok();
    asked.map_or(20_000, |n| n.parse().expect("a number of draws"))
}

fn context() -> BuildContext {
    BuildContext {
        task: Task {
            input: vec![1],
            kind: TaskKind::Classes(2),
        },
        stream: Stream::root(0),
    }
}

/// The least that any accountant claims for one release, at delta 1e-3: of a smaller one so few
/// draws show nothing.
fn claim(event: &PrivacyEvent) -> Result<Guarantee> {
    let accountants = [
        ("basic", "{}"),
        ("nfdp", "{}"),
        ("analytic-gaussian", "{delta: 1e-3}"),
        ("pld", "{delta: 1e-3}"),
        ("pate-gnmax", "{delta: 1e-3, unit: party}"),
    ];
    let mut claims = Vec::new();
    for (name, settings) in accountants {
        let part = part("accountant", Role::Accountant, name, settings);
        let parts = Parts::new(vec![part]);
        let mut accountant: Box<dyn Accountant> =
            parts.build(Role::Accountant, "accountant", None, &context())?;
        if accountant.charge(event).is_ok() {
            claims.push(accountant.guarantee(None)?);
        }
    }
    let best = claims
        .into_iter()
        .min_by(|a, b| a.epsilon.total_cmp(&b.epsilon));
    best.with_context(|| format!("nobody has a price for {event}"))
}

#[expect(
    clippy::print_stdout,
    reason = "what was shown is the point of the long form"
)]
/// A mechanism on two neighbours; `sharp`: the audit must show more than half of the claim.
fn one<M: Message>(name: &str, settings: &str, neighbours: (&M, &M), sharp: bool) {
    let parts = Parts::new(vec![part("privacy", Role::Privacy, name, settings)]);
    let make = || -> BoxedMechanism<M> {
        let made = parts.build(Role::Privacy, "privacy", None, &context());
        made.unwrap()
    };
    for kind in KINDS {
        let found = audit(&make, neighbours, &claim, draws(), kind).unwrap();
        println!("{name:<20} {kind:?}: {found}");
        let Audit { claim, shown, .. } = found;
        assert!(shown <= claim, "`{name}`, {kind:?}: {found}");
        assert!(!sharp || shown > claim / 2.0, "`{name}`, {kind:?}: {found}");
    }
}

fn logits(value: f32) -> Logits {
    Logits::new(vec![7], array![[value]])
}

fn labels(row: [f32; 2]) -> SoftLabels {
    SoftLabels::new(vec![7], array![row])
}

fn counts(row: [f64; 2]) -> Counts {
    let mut counts = Counts::new(vec![7], array![row]);
    counts.set_sensitivity(VoteSensitivity {
        example: Some(1),
        party: Some(1),
        also_removed: true,
        ..VoteSensitivity::default()
    });
    counts
}

fn vote(label: u32) -> Votes {
    Votes::new(vec![7], Array2::from_elem((1, 1), label), 4)
}

#[test]
fn no_mechanism_shows_more_than_is_claimed_and_the_audit_is_not_blind() {
    let mut left: BTreeSet<&str> = linked_parts()
        .iter()
        .filter(|p| p.role == Role::Privacy && p.origin != env!("CARGO_PKG_NAME"))
        .map(|p| p.name)
        .collect();
    // it draws nothing and has no price
    left.remove("quantise");
    let mut of = |name: &'static str| {
        assert!(left.remove(name), "`{name}` is not linked");
        name
    };
    let (one_class, other) = (labels([1.0, 0.0]), labels([0.0, 1.0]));
    one(
        of("laplace-logits"),
        "{gamma: 1.5, clip: 0.5}",
        (&logits(-0.5), &logits(0.5)),
        true,
    );
    one(
        of("laplace-labels"),
        "{scale: 1.5}",
        (&one_class, &other),
        true,
    );
    one(
        of("laplace-counts"),
        "{scale: 1.5}",
        (&counts([3.0, 2.0]), &counts([2.0, 3.0])),
        true,
    );
    let update = |value: f32| {
        let inbox = fl_conformance::params(&[&[value]]);
        inbox.iter().next().unwrap().body.clone()
    };
    one(
        of("gaussian-update"),
        "{clip: 0.5, noise-multiplier: 1.7}",
        (&update(-0.5), &update(0.5)),
        true,
    );
    let gradient = |value: f32| GradientSum { sum: update(value) };
    one(
        of("gaussian-gradients"),
        "{clip: 0.5, noise-multiplier: 1.7}",
        (&gradient(-0.5), &gradient(0.5)),
        true,
    );
    one(
        of("gaussian-labels"),
        "{sigma: 1.2}",
        (&one_class, &other),
        true,
    );
    one(
        of("randomised-response"),
        "{epsilon: 1.5}",
        (&vote(0), &vote(1)),
        true,
    );
    let votes = (&counts([3.0, 2.0]), &counts([2.0, 3.0]));
    let quiet = "data-dependent: false";
    // of votes only the winner is let go, and the price is for all counts
    let of_votes = [
        ("laplace-votes", format!("{{gamma: 1.0, {quiet}}}")),
        ("gaussian-votes", format!("{{sigma: 1.0, {quiet}}}")),
        (
            "confident-votes",
            format!("{{threshold: 2.5, check: 1.0, sigma: 1.0, {quiet}}}"),
        ),
    ];
    for (name, settings) in &of_votes {
        one(of(name), settings, votes, false);
    }
    // without one example; its delta alone explains whatever is seen of the sample
    let (all, fewer) = (Ids((0..10).collect()), Ids((0..9).collect()));
    one(of("sample-examples"), "{k: 3}", (&all, &fewer), false);
    assert!(left.is_empty(), "nobody audits {left:?}");
}

/// Laplace noise of a scale that it does not have.
struct Boasts(f64);

impl PrivacyMechanism for Boasts {
    type On = Logits;
    fn clip(&self, z: &mut Logits) -> Result<()> {
        z.values.mapv_inplace(|v| v.clamp(-0.5, 0.5));
        Ok(())
    }
    fn price(&self, _: &Logits, _: &Cohort) -> Result<PrivacyEvent> {
        Ok(PrivacyEvent::Laplace {
            sensitivity: 1.0,
            scale: 1.0,
            unit: Unit::Party,
        })
    }
    fn perturb(&mut self, z: &mut Logits, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        let mut draws = noise.draws();
        z.values
            .mapv_inplace(|v| draws.laplace(f64::from(v), self.0) as f32);
        Ok(())
    }
}

#[test]
fn a_mechanism_that_boasts_is_found_out() {
    let found = |scale: f64| {
        let make = || -> BoxedMechanism<Logits> { Box::new(Boasts(scale)) };
        audit(
            &make,
            (&logits(-1.0), &logits(1.0)),
            &claim,
            10_000,
            Noise::Seeded,
        )
        .unwrap()
    };
    let (honest, boasting) = (found(1.0), found(0.8));
    assert!(honest.shown <= honest.claim, "{honest}");
    assert!(boasting.shown > boasting.claim, "{boasting}");
}
