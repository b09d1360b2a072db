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

/// A draw that claims to be another.
struct Claims(Draw, fn(usize, &Stream) -> Vec<usize>);

impl Selector for Claims {
    type Pool = Roster;
    fn select(&mut self, round: &Round, pool: &Roster) -> Result<Vec<usize>> {
        Ok((self.1)(pool.len(), &round.stream))
    }
    fn draw(&self) -> Draw {
        self.0
    }
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

pub fn all() -> Vec<Mutant> {
    let kit = |select| check::selector::<Roster>(&move || Box::new(Made(select)), true);
    let claims =
        |draw, select| check::selector::<Roster>(&move || Box::new(Claims(draw, select)), true);
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
            "a fixed number that passes as Poisson",
            Some("draws as it says"),
            claims(Draw::Poisson { rate: 0.5 }, |n, s| {
                s.draws().choose(n, n.div_ceil(2))
            }),
        ),
        (
            "more often than it says",
            Some("draws as it says"),
            claims(Draw::Poisson { rate: 0.1 }, |n, s| {
                let mut draws = s.draws();
                (0..n).filter(|_| draws.uniform() < 0.15).collect()
            }),
        ),
        (
            "all or nobody",
            Some("draws as it says"),
            claims(Draw::Poisson { rate: 0.5 }, |n, s| {
                (0..n).filter(|_| s.draws().uniform() < 0.5).collect()
            }),
        ),
        (
            "half, called everybody",
            Some("draws as it says"),
            claims(Draw::Everyone, |n, s| s.draws().choose(n, n.div_ceil(2))),
        ),
        (
            "turns in no state",
            Some("state survives save and load"),
            check::selector(&|| Box::<Turns>::default(), false),
        ),
    ]
}
