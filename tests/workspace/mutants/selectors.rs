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

/// Draws as the function does, and says something of it.
#[derive(Clone, Copy)]
struct Says(fn(&Roster, &Stream) -> Vec<usize>, SamplingScheme);

impl Selector for Says {
    type Pool = Roster;
    fn select(&mut self, round: &Round, pool: &Roster) -> Result<Vec<usize>> {
        Ok((self.0)(pool, &round.stream))
    }
    fn draw(&self) -> SamplingScheme {
        self.1
    }
}

fn half(pool: &Roster, stream: &Stream) -> Vec<usize> {
    stream.draws().choose(pool.len(), pool.len() / 2)
}

fn each_at_half(pool: &Roster, stream: &Stream) -> Vec<usize> {
    let mut draws = stream.draws();
    let positions = (0..pool.len()).filter(|_| draws.uniform() < 0.5);
    positions.collect()
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

pub fn all() -> Vec<Mutant> {
    let kit = |select| check::selector::<Roster>(&move || Box::new(Made(select)), true);
    let says =
        |select, draw| check::selector::<Roster>(&move || Box::new(Says(select, draw)), true);
    let poisson = |rate| SamplingScheme::Poisson { rate };
    let claims = Some("draws as it says");
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
        ("each at half", None, says(each_at_half, poisson(0.5))),
        (
            "half of them sold as each at half",
            claims,
            says(half, poisson(0.5)),
        ),
        (
            "each at half sold as each at 0.45",
            claims,
            says(each_at_half, poisson(0.45)),
        ),
        (
            "each at half sold as half of them",
            claims,
            says(each_at_half, SamplingScheme::FixedSize),
        ),
        (
            "the first half sold as a draw",
            claims,
            says(
                |pool, s| {
                    let first = (0..pool.len() / 2).collect();
                    if s.draws().uniform() < 0.9 {
                        first
                    } else {
                        half(pool, s)
                    }
                },
                SamplingScheme::FixedSize,
            ),
        ),
        (
            "half sold as everybody",
            claims,
            says(half, SamplingScheme::Everyone),
        ),
    ]
}
