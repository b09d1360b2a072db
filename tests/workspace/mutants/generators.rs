//! Flawed generators: normal inputs around a mean that is learnt, and what can be wrong with that.

use super::Mutant;
use fl_conformance::check;
use fl_core::prelude::*;
use ndarray::{Array2, ArrayView2};

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    Nothing,
    RowsOnly,
    OneTooMany,
    Flat,
    Infinite,
    OwnSeed,
    OneSeed,
    Deaf,
    Forgets,
    HidesSpeed,
    TakesAnySlope,
    TakesAnyState,
}

struct Around {
    flaw: Flaw,
    shape: Vec<usize>,
    mean: f32,
    /// Part of the state: later steps are shorter.
    steps: f32,
    calls: u64,
}

impl Generator for Around {
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples> {
        self.calls += 1;
        let stream = match self.flaw {
            Flaw::OwnSeed => &Stream::root(self.calls),
            Flaw::OneSeed => &Stream::root(0),
            _ => stream,
        };
        let n = n + usize::from(self.flaw == Flaw::OneTooMany);
        let width = self.shape.iter().product();
        let shape = match self.flaw {
            Flaw::Flat => vec![1, width],
            _ => self.shape.clone(),
        };
        let mut draws = stream.draws();
        let mut draw = || match self.flaw {
            Flaw::Infinite if draws.below(10) == 0 => f32::INFINITY,
            _ => draws.normal() as f32 + self.mean,
        };
        Samples::fresh(Array2::from_shape_simple_fn((n, width), &mut draw), shape)
    }

    fn learn(&mut self, made: &Samples, slope: ArrayView2<'_, f32>) -> Result<()> {
        let fits = slope.dim() == (made.len(), made.width());
        ensure!(fits || self.flaw == Flaw::TakesAnySlope, "another slope");
        self.steps += 1.0;
        if self.flaw != Flaw::Deaf {
            self.mean -= slope.mean().unwrap_or_default() / self.steps;
        }
        Ok(())
    }

    fn save(&self) -> Result<Vec<u8>> {
        let steps = match self.flaw {
            Flaw::HidesSpeed => 0.0,
            _ => self.steps,
        };
        Ok([self.mean.to_le_bytes(), steps.to_le_bytes()].concat())
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        let ([mean, steps], []) = state.as_chunks::<4>() else {
            ensure!(self.flaw == Flaw::TakesAnyState, "another state");
            return Ok(());
        };
        if self.flaw != Flaw::Forgets {
            self.mean = f32::from_le_bytes(*mean);
        }
        self.steps = f32::from_le_bytes(*steps);
        Ok(())
    }
}

pub fn all() -> Vec<Mutant> {
    let kit = |flaw: Flaw| {
        check::generator(&fl_conformance::tasks(), &move |make| {
            let images = make.task.input.len() > 1;
            ensure!(flaw != Flaw::RowsOnly || !images, "rows of numbers only");
            Ok(Box::new(Around {
                flaw,
                shape: make.task.input.clone(),
                mean: 0.0,
                steps: 0.0,
                calls: 0,
            }))
        })
    };
    [
        ("without a flaw", None, Flaw::Nothing),
        (
            "for one kind of input",
            Some("can be made for any task"),
            Flaw::RowsOnly,
        ),
        (
            "one too many",
            Some("gives as many inputs as were asked for"),
            Flaw::OneTooMany,
        ),
        (
            "flat inputs",
            Some("gives inputs of the task's shape"),
            Flaw::Flat,
        ),
        (
            "sometimes infinite",
            Some("gives finite numbers"),
            Flaw::Infinite,
        ),
        (
            "a seed of its own",
            Some("same stream, same inputs"),
            Flaw::OwnSeed,
        ),
        (
            "one seed for all",
            Some("other stream, other inputs"),
            Flaw::OneSeed,
        ),
        ("does not learn", Some("learns from a slope"), Flaw::Deaf),
        (
            "forgets what it learnt",
            Some("state survives save and load"),
            Flaw::Forgets,
        ),
        (
            "saves half its state",
            Some("goes on after a stop"),
            Flaw::HidesSpeed,
        ),
        (
            "takes any slope",
            Some("refuses a slope that does not fit"),
            Flaw::TakesAnySlope,
        ),
        (
            "takes any state",
            Some("state survives save and load"),
            Flaw::TakesAnyState,
        ),
    ]
    .map(|(flaw, breaks, of)| (flaw, breaks, kit(of)))
    .to_vec()
}
