//! Checks of a selector.

use crate::broken::{Broken, Held, must, run};
use crate::sample::{CASES, Case, PoolSample};
use fl_core::{BoxedSelector, Examples, Inputs, Labels, Round, SamplingScheme, Serial, Stream};
use std::borrow::Borrow;
use std::sync::Arc;

const LEGAL: &str = "never fails on a legal pool";
const RANGE: &str = "chooses from the pool";
const ASCENDING: &str = "ascends without repeats";
const SAME: &str = "same stream, same choice";
const STATE: &str = "state survives save and load";
const RANDOM: &str = "draws from its stream";
const POLL: &str = "asks of the pool";
const DRAW: &str = "draws as it says";

/// The most requests in one round; no selector needs as many.
const POLLS: usize = 16;

/// See [`crate::selector`]; if it `draws`, as [`crate::random_selector`].
///
/// # Errors
/// The first property that does not hold.
pub fn check<P: PoolSample + ?Sized>(
    make: &dyn Fn() -> BoxedSelector<P>,
    draws: bool,
) -> Result<(), Broken> {
    let mut differed = false;
    for number in 0..CASES {
        differed |= one(make, &Case::new(number))?;
    }
    draw(make)?;
    must(RANDOM, differed || !draws, || {
        format!(
            "{CASES} cases, two streams each, and never another choice; draw from the stream of the round"
        )
    })
}

/// Checks one case. Returns whether another stream selected other positions.
fn one<P: PoolSample + ?Sized>(make: &dyn Fn() -> BoxedSelector<P>, case: &Case) -> Held<bool> {
    let mut draws = case.stream("pool").draws();
    let n = match case.number {
        0 => P::SMALLEST,
        1 => 1,
        _ => 1 + draws.below(40),
    };
    let pools = [0; 4].map(|_| P::invent(n, &mut draws));
    let pool = &pools[0];
    let (own, place) = (
        own(case),
        format!("case {}, {n} to choose from", case.number),
    );
    let (a, b) = (case.stream("a"), case.stream("b"));
    let fitted = || -> Held<BoxedSelector<P>> {
        let mut part = make();
        run(LEGAL, &place, || part.fit(&own, &case.stream("fit")))?;
        Ok(part)
    };
    let select = |part: &mut BoxedSelector<P>, pool: &P::Owned, number: usize, stream: &Stream| {
        let round = round(number, stream);
        let pool = polled(part, &round, pool, &place)?;
        let chosen = run(LEGAL, &place, || part.select(&round, pool.borrow()))?;
        must(RANGE, chosen.iter().all(|at| *at < n), || {
            format!("{chosen:?} ({place})")
        })?;
        must(ASCENDING, chosen.is_sorted_by(|x, y| x < y), || {
            format!("{chosen:?} ({place})")
        })?;
        Held::Ok(chosen)
    };
    let twice = |property, one: &[usize], other: &[usize]| {
        must(property, one == other, || {
            format!("{one:?} once and {other:?} the other time ({place})")
        })
    };

    let mut part = fitted()?;
    let chosen = select(&mut part, pool, 1, &a)?;
    twice(SAME, &chosen, &select(&mut fitted()?, pool, 1, &a)?)?;
    // four rounds with one instance, and with one that is saved and rebuilt after each
    let remake = |part: &BoxedSelector<P>| -> Held<BoxedSelector<P>> {
        let mut again = make();
        run(STATE, &place, || again.load(&part.save()))?;
        Ok(again)
    };
    let mut remade = remake(&part)?;
    for (number, pool) in (2..).zip(&pools[1..]) {
        let stream = b.child("round", number as u64);
        let kept = select(&mut part, pool, number, &stream)?;
        twice(STATE, &kept, &select(&mut remade, pool, number, &stream)?)?;
        remade = remake(&remade)?;
    }
    Ok(chosen != select(&mut fitted()?, pool, 1, &b)?)
}

fn round(number: usize, stream: &Stream) -> Round {
    let name = format!("round {number}");
    Round::new(name, number, false, stream.clone(), Arc::new(Serial))
}

/// Returns the pool with every statistic that a selector has requested, as a server does.
fn polled<P: PoolSample + ?Sized>(
    part: &mut BoxedSelector<P>,
    round: &Round,
    pool: &P::Owned,
    place: &str,
) -> Held<P::Owned> {
    let mut known = P::unknown(pool);
    for _ in 0..POLLS {
        let size = P::size(&known);
        match run(LEGAL, place, || part.poll(round, known.borrow()))? {
            None => return Ok(known),
            Some(poll) => {
                let sound =
                    poll.of.iter().all(|at| *at < size) && poll.of.is_sorted_by(|x, y| x < y);
                must(POLL, sound, || format!("{poll:?} of {size} ({place})"))?;
                P::tell(&mut known, pool, &poll);
            }
        }
    }
    Err(Broken::new(
        POLL,
        format!("it has asked {POLLS} times and asks again ({place})"),
    ))
}

/// Number of clients in the pool for draws, and number of draws.
const POOL: usize = 12;
const DRAWS: u64 = 2000;

/// Checks that it draws as it claims. Five standard deviations of each count are allowed.
fn draw<P: PoolSample + ?Sized>(make: &dyn Fn() -> BoxedSelector<P>) -> Held {
    let (mut part, home) = (make(), Stream::root(11));
    let rate = match part.draw() {
        SamplingScheme::Unknown => return Ok(()),
        SamplingScheme::Poisson { rate } => Some(rate),
        SamplingScheme::Everyone | SamplingScheme::FixedSize => None,
    };
    let (draw, pool) = (part.draw(), P::invent(POOL, &mut home.draws()));
    let (mut sizes, mut each, mut pair) = (Vec::new(), [0usize; POOL], 0usize);
    for number in 0..DRAWS {
        let round = round(number as usize + 1, &home.child("round", number));
        let known = polled(&mut part, &round, &pool, "draws")?;
        let chosen = run(LEGAL, "draws", || part.select(&round, known.borrow()))?;
        sizes.push(chosen.len());
        pair += usize::from(chosen.contains(&0) && chosen.contains(&1));
        chosen.iter().for_each(|at| each[*at] += 1);
    }
    let same_size = sizes.iter().all(|n| *n == sizes[0]);
    if draw == SamplingScheme::Everyone {
        return must(DRAW, same_size && sizes[0] == POOL, || {
            format!(
                "it says {draw:?}, and once {} of {POOL} were chosen",
                sizes[0]
            )
        });
    }
    must(DRAW, rate.is_some() || same_size, || {
        format!("it says {draw:?}, and chose {} and {}", sizes[0], sizes[1])
    })?;
    if let Some(rate) = rate {
        spread(&sizes, rate)?;
    }
    let n = DRAWS as f64;
    let share = rate.unwrap_or(sizes[0] as f64 / POOL as f64);
    // for two clients together: independently, or as two of a set
    let both = match rate {
        Some(rate) => rate * rate,
        None => share * (sizes[0] as f64 - 1.0) / (POOL as f64 - 1.0),
    };
    let counts = each
        .iter()
        .map(|count| (*count, share))
        .chain([(pair, both)]);
    for (count, p) in counts {
        let (due, slack) = (n * p, 5.0 * (n * p * (1.0 - p)).max(0.0).sqrt() + 1e-9);
        must(DRAW, (count as f64 - due).abs() <= slack, || {
            format!("it says {draw:?}: in {DRAWS} rounds {due:.0} were due, and {count} found")
        })?;
    }
    Ok(())
}

/// Checks that the sizes of the selected sets vary as for independent draws of each client. At a
/// rate of a half, sets of a fixed size have nearly the same pairs. Five standard deviations of the
/// variance are allowed.
fn spread(sizes: &[usize], rate: f64) -> Held {
    let (n, of) = (sizes.len() as f64, POOL as f64);
    let due = of * rate * (1.0 - rate);
    let squares = sizes.iter().map(|size| (*size as f64 - of * rate).powi(2));
    let found = squares.sum::<f64>() / n;
    // the fourth central moment of a binomial variable, minus the variance's square
    let slack = 5.0 * ((due * (1.0 + (3.0 - 6.0 / of) * due) - due * due) / n).sqrt() + 1e-9;
    must(DRAW, (found - due).abs() <= slack, || {
        format!(
            "it says that each is drawn by itself at {rate}: the number of the chosen should have a variance of {due:.3}, and has \
             {found:.3}"
        )
    })
}

/// Returns a client's own examples, of the shape of sample pools: with as many values as classes,
/// so that they may be scores too. One class occurs nowhere.
fn own(case: &Case) -> Examples {
    let (mut draws, rows) = (case.stream("own").draws(), 30);
    let data = (0..4 * rows).map(|_| draws.normal() as f32).collect();
    let of = (0..rows).map(|_| draws.below(3) as u32).collect();
    let inputs = Inputs::Dense {
        shape: vec![4],
        data,
    };
    Examples::all(
        Arc::new(inputs),
        Arc::new(Labels::Classes { of, classes: 4 }),
    )
    .expect("a label for each row")
}
