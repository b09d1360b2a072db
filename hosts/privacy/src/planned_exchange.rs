//! [`PlannedExchange`]: one exchange of a plan, and the size of its cohorts.

use fl_core::{ExchangeSpec, SamplingScheme};

/// How many clients are asked in one round.
#[derive(Clone, Copy, PartialEq)]
pub enum PlannedCohort {
    /// Always this number.
    Fixed(usize),
    /// Between these numbers, in the rounds that were drawn.
    Drawn(usize, usize),
    /// The selector must see more than there is before a run.
    Unknown,
}

/// One exchange of the plan.
#[derive(Clone)]
pub struct PlannedExchange {
    /// Its declaration.
    pub asked: ExchangeSpec,
    /// The size of its cohorts.
    pub cohort: PlannedCohort,
    /// How they are drawn.
    pub draw: SamplingScheme,
    /// Clients asked each time, at most.
    pub clients: usize,
    /// Bytes to one client, at most.
    pub down: Option<u64>,
    /// Bytes of one answer, at most.
    pub up: Option<u64>,
    /// Samples that it is about, at most.
    pub rows: usize,
    /// Filled slots through which it is released.
    pub releases: Vec<&'static str>,
}
