//! What a selector must do.

use crate::broken::{Broken, Held, must, run};
use crate::sample::{CASES, Case, PoolSample};
use fl_core::{BoxedSelector, Examples, Inputs, Labels, Stream};
use std::borrow::Borrow;
use std::sync::Arc;

const LEGAL: &str = "never fails on a legal pool";
const RANGE: &str = "chooses from the pool";
const ASCENDING: &str = "ascends without repeats";
const SAME: &str = "same stream, same choice";
const STATE: &str = "state survives save and load";
const RANDOM: &str = "draws from its stream";

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
    must(RANDOM, differed || !draws, || {
        format!(
            "{CASES} cases, two streams each, and never another choice; draw from the stream that `select` is given"
        )
    })
}

/// One case; did another stream choose otherwise?
fn one<P: PoolSample + ?Sized>(make: &dyn Fn() -> BoxedSelector<P>, case: &Case) -> Held<bool> {
    let mut draws = case.stream("pool").draws();
    let n = match case.number {
        0 => P::SMALLEST,
        1 => 1,
        _ => 1 + draws.below(40),
    };
    let (pool, next) = (P::invent(n, &mut draws), P::invent(n, &mut draws));
    let (pool, next): (&P, &P) = (pool.borrow(), next.borrow());
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
    let select = |part: &mut BoxedSelector<P>, pool: &P, stream: &Stream| -> Held<Vec<usize>> {
        let chosen = run(LEGAL, &place, || part.select(pool, stream))?;
        must(RANGE, chosen.iter().all(|at| *at < n), || {
            format!("{chosen:?} ({place})")
        })?;
        must(ASCENDING, chosen.is_sorted_by(|x, y| x < y), || {
            format!("{chosen:?} ({place})")
        })?;
        Ok(chosen)
    };
    let twice = |property, one: &[usize], other: &[usize]| {
        must(property, one == other, || {
            format!("{one:?} once and {other:?} the other time ({place})")
        })
    };

    let mut part = fitted()?;
    let chosen = select(&mut part, pool, &a)?;
    twice(SAME, &chosen, &select(&mut fitted()?, pool, &a)?)?;
    let mut loaded = make();
    let state = part.save();
    run(STATE, &place, || loaded.load(&state))?;
    twice(
        STATE,
        &select(&mut part, next, &b)?,
        &select(&mut loaded, next, &b)?,
    )?;
    Ok(chosen != select(&mut fitted()?, pool, &b)?)
}

/// A client's own examples, of the shape that invented samples have: as many values as classes, so that they may be scores
/// too. One class nobody has.
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
