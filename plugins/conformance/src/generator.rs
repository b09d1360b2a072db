//! Checks of a generator.

use crate::broken::{Broken, Held, attempt, must, run};
use fl_core::{BuildContext, Generator, Result, Samples, Stream, Task};
use ndarray::Array2;

const MADE: &str = "can be made for any task";
const COUNT: &str = "gives as many inputs as were asked for";
const SHAPE: &str = "gives inputs of the task's shape";
const FINITE: &str = "gives finite numbers";
const SAME: &str = "same stream, same inputs";
const OTHER: &str = "other stream, other inputs";
const LEARNS: &str = "learns from a slope";
const STATE: &str = "state survives save and load";
const STOP: &str = "goes on after a stop";
const REFUSES: &str = "refuses a slope that does not fit";

type Maker<'a> = &'a dyn Fn(&BuildContext) -> Result<Box<dyn Generator>>;

/// See [`crate::generator`].
///
/// # Errors
/// The first property that does not hold.
pub fn check(tasks: &[Task], make: Maker<'_>) -> Result<(), Broken> {
    tasks.iter().try_for_each(|task| one(make, task))
}

fn one(make: Maker<'_>, task: &Task) -> Held {
    let place = format!("inputs of {:?}", task.input);
    let made = || {
        let make_for = BuildContext::new(task.clone(), Stream::root(0).child("make", 0));
        run(MADE, &place, || make(&make_for))
    };
    let stream = |name: &str| Stream::root(0).child(name, 1);
    let draw = |part: &mut Box<dyn Generator>, n: usize, name: &str| -> Held<Samples> {
        let x = run(COUNT, &place, || part.sample(n, &stream(name)))?;
        must(COUNT, x.len() == n, || {
            format!("{} where {n} were due ({place})", x.len())
        })?;
        must(SHAPE, x.shape() == task.input, || {
            format!("{:?} ({place})", x.shape())
        })?;
        must(FINITE, x.values().iter().all(|v| v.is_finite()), || {
            place.clone()
        })?;
        Ok(x)
    };
    let same = |property, one: &Samples, other: &Samples, wanted: bool| {
        let bits = |x: &Samples| -> Vec<u32> { x.values().iter().map(|v| v.to_bits()).collect() };
        must(property, (bits(one) == bits(other)) == wanted, || {
            let how = if wanted { "differ" } else { "are the same" };
            format!("two times 5 inputs {how} ({place})")
        })
    };

    let mut part = made()?;
    draw(&mut part, 1, "a")?;
    draw(&mut part, 0, "a")?;
    let first = draw(&mut part, 5, "a")?;
    same(SAME, &first, &draw(&mut made()?, 5, "a")?, true)?;
    same(OTHER, &first, &draw(&mut part, 5, "b")?, false)?;

    let made_last = draw(&mut part, 5, "a")?;
    let ones = Array2::ones((5, task.width()));
    run(LEARNS, &place, || part.learn(&made_last, ones.view()))?;
    let after = draw(&mut part, 5, "a")?;
    same(LEARNS, &made_last, &after, false)?;

    let state = run(STATE, &place, || part.save())?;
    let mut loaded = made()?;
    run(STATE, &place, || loaded.load(&state))?;
    let again = draw(&mut loaded, 5, "a")?;
    same(STATE, &after, &again, true)?;
    run(STOP, &place, || part.learn(&after, ones.view()))?;
    run(STOP, &place, || loaded.learn(&again, ones.view()))?;
    same(
        STOP,
        &draw(&mut part, 5, "b")?,
        &draw(&mut loaded, 5, "b")?,
        true,
    )?;

    let made_last = draw(&mut part, 5, "a")?;
    let narrow = Array2::ones((4, task.width()));
    let taken = attempt(REFUSES, &place, || part.learn(&made_last, narrow.view()))?;
    must(REFUSES, taken.is_err(), || {
        format!("a slope of 4 rows for 5 inputs was taken ({place})")
    })?;
    let cut = &state[..state.len().saturating_sub(1)];
    let taken = attempt(STATE, &place, || part.load(cut))?;
    must(STATE, taken.is_err(), || {
        format!(
            "it takes {} of the {} bytes of a state ({place})",
            cut.len(),
            state.len()
        )
    })
}
