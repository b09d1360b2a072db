//! Checks of a privacy mechanism.

use crate::broken::{Broken, Held, must, none, run};
use crate::compare::{difference, digits, floats, map};
use crate::sample::{CASES, Case, Values};
use crate::statistics::{ERROR_RATE, kolmogorov_smirnov, laplace_below, normal_below, same_sides};
use fl_core::message::{self, Erased, MessageType, SensitivityNorm};
use fl_core::privacy::{Noise, ReleaseNoise, VoteNoise, grid};
use fl_core::{AnyMechanism, Cohort, PrivacyEvent, Stream};

const BOUND: &str = "bounds any legal message";
const BOUND_SAME: &str = "bounds to the same bits";
const BOUND_TWICE: &str = "bounding twice is bounding once";
const NORM: &str = "bounds only the norm, if it says so";
const PRICE: &str = "prices a bounded message";
const PERTURB: &str = "perturbs a bounded message";
const SANE: &str = "gives a sane message";
const SAME: &str = "same stream, same noise";
const OTHER: &str = "other stream, other noise";
const FIRST: &str = "keeps the first queries";
const DRAW: &str = "its price assumes no sampling that did not take place";
const STATE: &str = "state survives save and load";
const GRID: &str = "noise of the system lies on its grid";
const HONEST: &str = "its noise is that of its price";
const SENSITIVITY: &str = "its sensitivity is that of its price";

/// Number of noise values that are compared with their distribution.
const NOISE: usize = 20_000;

/// The pairs of data sets that a mechanism's price covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// One unit is replaced by another: its message becomes any other.
    Replaced,
    /// One unit is added or removed: its message becomes all 0.
    Removed,
}

/// See [`crate::mechanism_for`].
///
/// # Errors
/// The first property that does not hold.
pub fn check(
    make: &dyn Fn() -> Box<dyn AnyMechanism>,
    neighbours: Neighbours,
) -> Result<(), Broken> {
    let bench = Bench {
        make,
        on: make().on(),
        neighbours,
    };
    // first, because lost noise among huge numbers would also reveal a bound that does not bound
    (0..CASES).try_for_each(|number| {
        bench.sensitivity(&Case {
            clients: 1,
            values: Values::Plain,
            ..Case::new(number)
        })
    })?;
    (0..CASES).try_for_each(|number| {
        bench.one(&Case {
            clients: 1,
            ..Case::new(number)
        })
    })?;
    [(1, Noise::Seeded), (10, Noise::Seeded), (1, Noise::System)]
        .into_iter()
        .try_for_each(|(clients, kind)| bench.distribution(clients, kind))
}

struct Bench<'a> {
    make: &'a dyn Fn() -> Box<dyn AnyMechanism>,
    /// The message that it protects.
    on: &'static MessageType,
    neighbours: Neighbours,
}

/// A distribution function.
type Cumulative = fn(f64) -> f64;

/// Returns the distribution of the noise at scale 1, and its scale, if the event declares it.
fn declared(event: &PrivacyEvent) -> Option<(Cumulative, f64)> {
    match event {
        PrivacyEvent::Laplace { scale, .. } => Some((laplace_below, *scale)),
        PrivacyEvent::Gaussian { sigma, .. } => Some((normal_below, *sigma)),
        PrivacyEvent::Votes(release) => match release.noise {
            VoteNoise::Laplace { gamma } => Some((laplace_below, 1.0 / gamma)),
            VoteNoise::Gaussian { sigma } => Some((normal_below, sigma)),
            VoteNoise::Confident { .. } => None,
        },
        _ => None,
    }
}

impl Bench<'_> {
    fn invent(&self, case: &Case) -> Erased {
        let mut draws = case.stream("message").draws();
        case.messages_of(self.on, &mut draws).swap_remove(0)
    }

    /// Returns a new instance that has agreed on the range of these messages, as hosts do.
    fn agreed(&self, messages: &[&Erased]) -> Box<dyn AnyMechanism> {
        let mut part = (self.make)();
        let range = messages
            .iter()
            .filter_map(|m| part.range(&***m))
            .reduce(f32::max);
        if let Some(range) = range {
            part.agree(range);
        }
        part
    }

    fn clip(
        &self,
        property: &'static str,
        place: &str,
        part: &dyn AnyMechanism,
        message: &Erased,
    ) -> Held<Erased> {
        let mut bounded = message.clone();
        run(property, place, || part.clip(&mut *bounded))?;
        Ok(bounded)
    }

    fn perturbed(
        &self,
        place: &str,
        message: &Erased,
        bounded: &Erased,
        stream: &Stream,
    ) -> Held<Erased> {
        let (mut part, mut out) = (self.agreed(&[message]), bounded.clone());
        run(PERTURB, place, || {
            part.perturb(&mut *out, &Cohort::all(1), &ReleaseNoise::seeded(stream))
        })?;
        Ok(out)
    }

    fn one(&self, case: &Case) -> Held {
        let place = case.place();
        let broken = |property, found| none(property, &place, found);
        let message = self.invent(case);
        let part = self.agreed(&[&message]);
        let bounded = self.clip(BOUND, &place, &*part, &message)?;
        broken(
            SANE,
            message::check(&*bounded).err().map(|e| format!("{e:#}")),
        )?;
        let again = self.clip(BOUND_SAME, &place, &*self.agreed(&[&message]), &message)?;
        broken(BOUND_SAME, difference(&*bounded, &*again, 0.0))?;

        if let Some(most) = part.norm_bound() {
            let squares = floats(&*message).into_iter().map(|x| x * x);
            let factor = (most / squares.sum::<f64>().sqrt()).min(1.0);
            let due = run(NORM, &place, || map(&*message, |x| factor * x))?;
            broken(NORM, difference(&*bounded, &*due, 1e-5 * most))?;
        }

        let event = run(PRICE, &place, || part.price(&*bounded, &Cohort::all(1)))?;
        let again = run(PRICE, &place, || part.price(&*bounded, &Cohort::all(1)))?;
        must(PRICE, event == again, || {
            format!("{event:?} once and {again:?} the other time ({place})")
        })?;
        let subsampled = matches!(
            event,
            PrivacyEvent::SubsampledGaussian { .. }
                | PrivacyEvent::PublicSizeGaussian { .. }
                | PrivacyEvent::FixedSizeGaussian { .. }
        );
        must(DRAW, !subsampled, || {
            format!("all clients took part, and the price is {event:?} ({place})")
        })?;
        let queries = part.queries(&*bounded);
        for n in (1..=queries).filter(|n| [1, queries / 2, queries].contains(n)) {
            let mut few = bounded.clone();
            run(FIRST, &place, || {
                part.truncate(&mut *few, n);
                Ok(())
            })?;
            let left = part.queries(&*few);
            must(FIRST, left == n, || {
                format!("{left} are left of {queries}, asked were {n} ({place})")
            })?;
        }
        let (a, b) = (case.stream("a"), case.stream("b"));
        let out = self.perturbed(&place, &message, &bounded, &a)?;
        broken(SANE, message::check(&*out).err().map(|e| format!("{e:#}")))?;
        broken(
            SAME,
            difference(
                &*out,
                &*self.perturbed(&place, &message, &bounded, &a)?,
                0.0,
            ),
        )?;
        self.state(&place, case, &message, &bounded)?;
        if matches!(event, PrivacyEvent::Unaccounted { .. }) {
            return Ok(());
        }
        let silent = difference(&*bounded, &*out, 0.0).is_none() && !floats(&*bounded).is_empty();
        must(HONEST, !silent, || {
            format!("there is none, and the price is {event:?} ({place})")
        })?;

        let most = floats(&*bounded)
            .into_iter()
            .fold(1.0, |m: f64, x| m.max(x.abs()));
        let twice = self.clip(BOUND_TWICE, &place, &*part, &bounded)?;
        broken(BOUND_TWICE, difference(&*bounded, &*twice, 1e-5 * most))?;
        let other = self.perturbed(&place, &message, &bounded, &b)?;
        let silent = difference(&*out, &*other, 0.0).is_none() && !floats(&*bounded).is_empty();
        must(OTHER, !silent, || {
            format!(
                "two streams, the same bits ({place}); draw from the noise that `perturb` is given"
            )
        })
    }

    /// Checks two releases by one instance, and by one that is saved and rebuilt between them.
    fn state(&self, place: &str, case: &Case, message: &Erased, bounded: &Erased) -> Held {
        let mut kept = self.agreed(&[message]);
        let (mut first, mut second, mut other) =
            (bounded.clone(), bounded.clone(), bounded.clone());
        run(STATE, place, || {
            let noise = |name| ReleaseNoise::seeded(&case.stream(name));
            kept.perturb(&mut *first, &Cohort::all(1), &noise("a"))?;
            let state = kept.save();
            kept.perturb(&mut *second, &Cohort::all(1), &noise("b"))?;
            let mut remade = self.agreed(&[message]);
            remade.load(&state)?;
            remade.perturb(&mut *other, &Cohort::all(1), &noise("b"))
        })?;
        none(STATE, place, difference(&*second, &*other, 0.0))
    }

    /// Searches for two bounded messages that differ by more than the price states. It tries
    /// opposites, from tiny to near the largest numbers, and messages that differ in single
    /// numbers.
    fn sensitivity(&self, case: &Case) -> Held {
        // counts of votes state their own sensitivity
        if self.on.reach == SensitivityNorm::Stated {
            return Ok(());
        }
        let message = self.invent(case);
        let numbers = floats(&*message).len();
        if numbers == 0 {
            return Ok(()); // labels and positions have no distance
        }
        let sizes = [0.01, 1.0, 30.0, 1e6, 1e30];
        for (trial, size) in sizes.into_iter().enumerate() {
            for lone in [false, true] {
                let mut draws = case
                    .stream("neighbours")
                    .child("trial", trial as u64)
                    .draws();
                let (chosen, mut at) = (draws.below(numbers), 0);
                let mut side = || if draws.below(2) == 0 { size } else { -size };
                let changed = |m: &Erased, f: &mut dyn FnMut(f64) -> f64| {
                    run(SENSITIVITY, &case.place(), || map(&**m, f))
                };
                let one = changed(&message, &mut |_| side())?;
                let other = changed(&one, &mut |x| {
                    at += 1;
                    if !lone || at - 1 == chosen { -x } else { x }
                })?;
                self.apart(case, &one, &other)?;
            }
        }
        Ok(())
    }

    fn apart(&self, case: &Case, one: &Erased, other: &Erased) -> Held {
        let place = case.place();
        let part = self.agreed(&[one, other]);
        let one = self.clip(BOUND, &place, &*part, one)?;
        let other = match self.neighbours {
            Neighbours::Replaced => self.clip(BOUND, &place, &*part, other)?,
            Neighbours::Removed => run(SENSITIVITY, &place, || map(&*one, |_| 0.0))?,
        };
        let moves = floats(&*one)
            .into_iter()
            .zip(floats(&*other))
            .map(|(x, y)| (x - y).abs());
        let (norm, moved, allowed) = match run(PRICE, &place, || {
            part.price(&*one, &Cohort::all(1))
        })? {
            PrivacyEvent::Laplace { sensitivity, .. } => ("L1", moves.sum::<f64>(), sensitivity),
            PrivacyEvent::Gaussian { sensitivity, .. } => {
                ("L2", moves.map(|d| d * d).sum::<f64>().sqrt(), sensitivity)
            }
            _ => return Ok(()),
        };
        // messages are f32, so a bound holds up to its last bits
        must(SENSITIVITY, moved <= allowed * (1.0 + 1e-5), || {
            format!(
                "two bounded messages are {} apart ({norm}), the price says at most {} ({place})",
                digits(moved),
                digits(allowed)
            )
        })
    }

    /// Checks the noise of many small messages, relative to the scale in the price.
    fn distribution(&self, n: usize, kind: Noise) -> Held {
        let kind_of = match kind {
            Noise::Seeded => "",
            Noise::System => ", noise of the system",
        };
        let place = format!("{n} client{}{kind_of}", if n == 1 { "" } else { "s" });
        let (mut noise, mut cdf) = (Vec::with_capacity(NOISE), None);
        for number in 0..NOISE as u64 {
            let case = Case {
                clients: 1,
                values: Values::Plain,
                ..Case::new(1000 + number)
            };
            let message = self.invent(&case);
            let mut part = self.agreed(&[&message]);
            let bounded = self.clip(BOUND, &place, &*part, &message)?;
            let event = run(PRICE, &place, || part.price(&*bounded, &Cohort::all(n)))?;
            let Some((below, scale)) = declared(&event) else {
                return Ok(());
            };
            must(HONEST, scale > 0.0 && scale.is_finite(), || {
                format!("the price is {event:?} ({place})")
            })?;
            cdf = Some((below, event));
            let mut out = bounded.clone();
            run(PERTURB, &place, || {
                let noise = ReleaseNoise::of(case.stream("noise"), kind);
                part.perturb(&mut *out, &Cohort::all(n), &noise)
            })?;
            let off = |y: &f64| (y / grid(scale)).fract() != 0.0;
            let beside = floats(&*out)
                .into_iter()
                .find(off)
                .filter(|_| kind == Noise::System);
            must(GRID, beside.is_none(), || {
                format!(
                    "{} is no multiple of {:e}; draw through the noise that `perturb` is given ({place})",
                    digits(beside.unwrap_or_default()),
                    grid(scale)
                )
            })?;
            noise.extend(
                floats(&*out)
                    .into_iter()
                    .zip(floats(&*bounded))
                    .map(|(y, x)| (y - x) / scale),
            );
            if noise.len() >= NOISE {
                break;
            }
        }
        let Some((below, event)) = cdf.filter(|_| !noise.is_empty()) else {
            return Ok(());
        };
        let (share, most) = same_sides(&noise);
        must(HONEST, (share - 0.5).abs() <= most, || {
            format!(
                "neighbouring numbers get noise of the same sign {:.0} times in 100; noise must be drawn for each alone ({place})",
                100.0 * share
            )
        })?;
        let n = noise.len() as f64;
        let mean = noise.iter().map(|x| x.abs()).sum::<f64>() / n;
        let (distance, most) = kolmogorov_smirnov(noise, below);
        must(HONEST, distance <= most, || {
            format!(
                "{n} values with a mean size of {mean:.3} scales are {distance:.3} (Kolmogorov-Smirnov) from {event:?}; by chance \
                 {most:.3} is exceeded once in {:.0e} times ({place})",
                1.0 / ERROR_RATE
            )
        })
    }
}
