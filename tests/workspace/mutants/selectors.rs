//! Flawed selectors.

use super::Mutant;
use fl_conformance::check;
use fl_core::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A selector made of a function.
#[derive(Clone, Copy)]
struct Made(fn(&Roster, &Stream) -> Vec<usize>);

impl Selector for Made {
    type Pool = Roster;
    fn select(&mut self, round: &Round, pool: &Roster) -> Result<Vec<usize>> {
        let stream = &round.stream;
        Ok((self.0)(pool, stream))
    }
}

/// Takes turns, and forgets whose turn it is.
#[derive(Default)]
struct Turns(usize);

impl Selector for Turns {
    type Pool = Roster;
    fn select(&mut self, _: &Round, pool: &Roster) -> Result<Vec<usize>> {
        self.0 += 1;
        Ok(vec![self.0 % pool.len()])
    }
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

pub fn all() -> Vec<Mutant> {
    let kit = |select| check::selector::<Roster>(&move || Box::new(Made(select)), true);
    vec![
        (
            "without a flaw",
            None,
            kit(|pool, s| s.draws().choose(pool.len(), pool.len().div_ceil(2))),
        ),
        (
            "some twice",
            Some("ascends without repeats"),
            kit(|pool, s| {
                let mut chosen = s.draws().choose(pool.len(), 2);
                chosen.push(chosen[chosen.len() - 1]);
                chosen
            }),
        ),
        (
            "unsorted",
            Some("ascends without repeats"),
            kit(|pool, s| s.draws().permutation(pool.len())),
        ),
        (
            "ids instead of positions",
            Some("chooses from the pool"),
            kit(|pool, _| vec![pool[0].id as usize]),
        ),
        (
            "one beyond the end",
            Some("never fails on a legal pool"),
            kit(|pool, _| vec![pool[pool.len()].id as usize]),
        ),
        (
            "always the same",
            Some("draws from its stream"),
            kit(|pool, _| Stream::root(1).draws().choose(pool.len(), 3)),
        ),
        (
            "randomness of the process",
            Some("same stream, same choice"),
            kit(|pool, _| vec![CALLS.fetch_add(1, Ordering::Relaxed) % pool.len()]),
        ),
        (
            "turns in no state",
            Some("state survives save and load"),
            check::selector(&|| Box::<Turns>::default(), false),
        ),
    ]
}
