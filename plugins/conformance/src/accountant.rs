//! Checks of an accountant.

use crate::broken::{Broken, Held, attempt, must, run};
use crate::compare::digits;
use fl_core::message::VoteSensitivity;
use fl_core::privacy::{Composition, Guarantee, Ledger, Unit, VoteNoise, VoteRelease};
use fl_core::{Accountant, PrivacyEvent, Problem};

const SOME: &str = "prices some event";
const SANE: &str = "gives a sane guarantee";
const GROWS: &str = "epsilon grows with events";
const NOISE: &str = "more noise costs less";
const ASKING: &str = "asking changes nothing";
const ASKED: &str = "an event has the requested cost";
const REFUSED: &str = "an event without a price is refused";
const SENSE: &str = "an impossible event is refused";
const ORDER: &str = "ledgers merge in any order";
const PARALLEL: &str = "parallel costs at most sequential";

type Make<'a> = &'a dyn Fn() -> Box<dyn Accountant>;

/// Makes an event of one kind from its sensitivity and the scale of its noise.
type Kind = fn(f64, f64) -> PrivacyEvent;

const KINDS: [Kind; 10] = [
    |sensitivity, scale| laplace(sensitivity, scale, Unit::Example),
    |sensitivity, scale| laplace(sensitivity, scale, Unit::Party),
    |sensitivity, sigma| gaussian(sensitivity, sigma, Unit::Example),
    |sensitivity, sigma| gaussian(sensitivity, sigma, Unit::Party),
    |sensitivity, sigma| PrivacyEvent::SubsampledGaussian {
        rate: 0.1,
        sensitivity,
        sigma,
        unit: Unit::Example,
    },
    |sensitivity, sigma| PrivacyEvent::PublicSizeGaussian {
        rate: 0.1,
        of: 100,
        sensitivity,
        sigma,
        unit: Unit::Party,
    },
    |sensitivity, sigma| PrivacyEvent::FixedSizeGaussian {
        k: 10,
        of: 100,
        sensitivity,
        sigma,
        unit: Unit::Example,
    },
    votes,
    |sensitivity, scale| PrivacyEvent::Pure {
        // a scale below 0 must not make a sensitivity below 0 valid
        epsilon: if scale > 0.0 {
            sensitivity / scale
        } else {
            f64::NAN
        },
        times: 3,
        unit: Unit::Party,
    },
    sample,
];

fn laplace(sensitivity: f64, scale: f64, unit: Unit) -> PrivacyEvent {
    PrivacyEvent::Laplace {
        sensitivity,
        scale,
        unit,
    }
}

fn gaussian(sensitivity: f64, sigma: f64, unit: Unit) -> PrivacyEvent {
    PrivacyEvent::Gaussian {
        sensitivity,
        sigma,
        unit,
    }
}

/// Returns votes on two queries with three classes; every unit changes one vote, for any
/// sensitivity.
fn votes(_: f64, scale: f64) -> PrivacyEvent {
    PrivacyEvent::Votes(VoteRelease {
        noise: VoteNoise::Laplace { gamma: 1.0 / scale },
        queries: 2,
        classes: 3,
        counts: Some(vec![vec![9, 2, 1], vec![4, 4, 4]]),
        answered: None,
        sensitivity: VoteSensitivity {
            example: Some(1),
            party: Some(1),
            ..VoteSensitivity::default()
        },
    })
}

/// Returns a sample of ten thousand examples; more than all of them for invalid numbers.
fn sample(sensitivity: f64, scale: f64) -> PrivacyEvent {
    let n = 10_000;
    let k = 20.0 * sensitivity / scale;
    let sound = k.is_finite() && k >= 0.0;
    PrivacyEvent::Sampled {
        k: if sound { k as usize } else { n + 1 },
        n,
        public: true,
        replacement: false,
    }
}

/// See [`crate::accountant`].
///
/// # Errors
/// The first property that does not hold.
pub fn check(make: Make<'_>) -> Result<(), Broken> {
    let mut priced = 0;
    for kind in KINDS {
        let event = kind(1.0, 2.0);
        if let Err(error) = attempt(SOME, "charge", || make().charge(&event))? {
            unpriced(REFUSED, &event, &error)?;
            continue;
        }
        priced += 1;
        grows(make, kind)?;
        asking(make, kind)?;
        refuses(make, kind)?;
        merges(make, kind)?;
    }
    must(SOME, priced > 0, || {
        "no event of the kit has a price".into()
    })
}

fn unpriced(property: &'static str, event: &PrivacyEvent, error: &anyhow::Error) -> Held {
    must(
        property,
        matches!(error.downcast_ref(), Some(Problem::Unpriced(_))),
        || format!("{event:?} gives `{error:#}`, which is not a `Problem::Unpriced`"),
    )
}

fn guarantee(part: &dyn Accountant, next: Option<&PrivacyEvent>) -> Held<Guarantee> {
    let given = run(SANE, "guarantee", || part.guarantee(next))?;
    must(
        SANE,
        given.epsilon >= 0.0 && (0.0..1.0).contains(&given.delta),
        || format!("{given:?}"),
    )?;
    Ok(given)
}

fn epsilon(part: &dyn Accountant) -> Held<f64> {
    guarantee(part, None).map(|g| g.epsilon)
}

fn charge(part: &mut dyn Accountant, event: &PrivacyEvent) -> Held {
    run(SOME, "charge", || part.charge(event))
}

fn close(x: f64, y: f64) -> bool {
    x == y || (x - y).abs() <= 1e-9 * x.abs().max(y.abs())
}

fn grows(make: Make<'_>, kind: Kind) -> Held {
    let event = kind(1.0, 2.0);
    let mut part = make();
    let mut before = epsilon(&*part)?;
    let nothing = before;
    for n in 1..=20 {
        charge(&mut *part, &event)?;
        let after = epsilon(&*part)?;
        must(GROWS, after >= before, || {
            format!(
                "{} after {} events, {} after {n}, each {event:?}",
                digits(before),
                n - 1,
                digits(after)
            )
        })?;
        before = after;
        let given = guarantee(&*part, None)?.unit;
        must(SANE, event.unit().is_none_or(|u| u == given), || {
            format!("a guarantee for an {given:?} from {event:?}")
        })?;
    }
    must(GROWS, before > nothing, || {
        format!(
            "{} before and {} after 20 times {event:?}",
            digits(nothing),
            digits(before)
        )
    })?;

    let of = |event: &PrivacyEvent| {
        let mut part = make();
        charge(&mut *part, event)?;
        epsilon(&*part)
    };
    for (loud, quiet) in [(kind(1.0, 4.0), event.clone()), (kind(0.5, 2.0), event)] {
        let (less, more) = (of(&loud)?, of(&quiet)?);
        must(NOISE, less <= more, || {
            format!(
                "{loud:?} costs {}, {quiet:?} costs {}",
                digits(less),
                digits(more)
            )
        })?;
    }
    Ok(())
}

fn asking(make: Make<'_>, kind: Kind) -> Held {
    let mut part = make();
    charge(&mut *part, &kind(1.0, 2.0))?;
    let before = guarantee(&*part, None)?;
    let next = kind(1.0, 3.0);
    let asked = guarantee(&*part, Some(&next))?;
    let again = guarantee(&*part, Some(&next))?;
    let after = guarantee(&*part, None)?;
    let both = |x: &Guarantee, y: &Guarantee| {
        format!(
            "{} once and {} the other time",
            digits(x.epsilon),
            digits(y.epsilon)
        )
    };
    must(ASKING, asked == again, || both(&asked, &again))?;
    must(ASKING, before == after, || both(&before, &after))?;
    charge(&mut *part, &next)?;
    let charged = guarantee(&*part, None)?;
    must(ASKED, close(asked.epsilon, charged.epsilon), || {
        format!(
            "epsilon was {} before {next:?} and is {} after",
            digits(asked.epsilon),
            digits(charged.epsilon)
        )
    })
}

fn refuses(make: Make<'_>, kind: Kind) -> Held {
    let why = || PrivacyEvent::Unaccounted {
        why: "the kit says so".into(),
    };
    // an accountant may refuse a sensitivity or scale of 0, or give epsilon 0 and infinity
    let senseless = [
        (-1.0, 2.0),
        (1.0, -2.0),
        (f64::NAN, 2.0),
        (1.0, f64::NAN),
        (f64::INFINITY, 2.0),
        (0.0, 0.0),
    ];
    // the sensitivity of votes is a number of votes, for which 0 is invalid
    let counted = kind(1.0, 2.0).unit().is_none();
    let senseless = senseless
        .into_iter()
        .filter(|(s, _)| !counted || *s == 1.0)
        .map(|(s, scale)| (SENSE, kind(s, scale)));
    for (property, event) in senseless.chain([(REFUSED, why())]) {
        let mut part = make();
        charge(&mut *part, &kind(1.0, 2.0))?;
        let before = epsilon(&*part)?;
        let ledger = [Ledger {
            client: Some(0),
            events: vec![kind(1.0, 2.0), event.clone()],
        }];
        let outcomes = [
            (
                "guarantee",
                attempt(property, "guarantee", || {
                    part.guarantee(Some(&event)).map(|_| ())
                })?,
            ),
            (
                "charge",
                attempt(property, "charge", || part.charge(&event))?,
            ),
            (
                "merge",
                attempt(property, "merge", || {
                    part.merge(&ledger, Composition::Parallel)
                })?,
            ),
        ];
        for (what, outcome) in outcomes {
            match outcome {
                Ok(()) => {
                    let after = epsilon(&*part)?;
                    let found = format!(
                        "`{what}` takes {event:?}; epsilon was {} and is {}",
                        digits(before),
                        digits(after)
                    );
                    return Err(Broken::new(property, found));
                }
                Err(error) => unpriced(property, &event, &error)?,
            }
        }
        let after = epsilon(&*part)?;
        must(property, before == after, || {
            format!(
                "epsilon was {} before and is {} after {event:?} was refused",
                digits(before),
                digits(after)
            )
        })?;
    }
    Ok(())
}

fn merges(make: Make<'_>, kind: Kind) -> Held {
    let ledger = |client, scales: &[f64]| Ledger {
        client: Some(client),
        events: scales.iter().map(|s| kind(1.0, *s)).collect(),
    };
    let all = [
        ledger(4, &[2.0, 3.0]),
        ledger(1, &[1.0]),
        ledger(9, &[]),
        ledger(2, &[5.0, 1.5, 4.0]),
    ];
    let merged = |parcels: &[&[Ledger]], how| {
        let mut part = make();
        for parcel in parcels {
            run(ORDER, "merge", || part.merge(parcel, how))?;
        }
        epsilon(&*part)
    };
    let mut turned = all.clone();
    turned.reverse();
    for how in [Composition::Parallel, Composition::Sequential] {
        let one = merged(&[&all], how)?;
        for other in [
            merged(&[&turned], how)?,
            merged(&[&all[..1], &all[1..]], how)?,
        ] {
            must(ORDER, close(one, other), || {
                format!(
                    "{how:?}: epsilon is {} once and {} the other time",
                    digits(one),
                    digits(other)
                )
            })?;
        }
    }
    let (parallel, sequential) = (
        merged(&[&all], Composition::Parallel)?,
        merged(&[&all], Composition::Sequential)?,
    );
    must(PARALLEL, parallel <= sequential, || {
        format!(
            "{} parallel, {} sequential",
            digits(parallel),
            digits(sequential)
        )
    })?;
    let each = all
        .iter()
        .map(|l| merged(&[std::slice::from_ref(l)], Composition::Parallel));
    let largest = each
        .collect::<Held<Vec<_>>>()?
        .into_iter()
        .fold(0.0, f64::max);
    must(
        PARALLEL,
        parallel >= largest || close(parallel, largest),
        || {
            format!(
                "{} for all clients, {} for the costliest alone",
                digits(parallel),
                digits(largest)
            )
        },
    )
}
