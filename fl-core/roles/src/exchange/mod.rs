//! Exchanges: their declarations, requests, answers and faults.

mod conflict;
mod declaration;
pub(crate) mod faults;
mod measurement;
pub(crate) mod request;
pub(crate) mod shape_check;
pub(crate) mod spec;
mod stages;

pub use conflict::Conflict;
pub use declaration::{Declaration, Declared, InitialModel};
pub use faults::{Fault, FaultKind, Faults, IdRanges, InjectedFault, QuorumPolicy};
pub(crate) use measurement::OWN_STATISTICS;
pub use measurement::{Certainty, Measured, Measurement, MeasurementOf, TRAINING_LOSS};
pub use request::*;
pub use spec::*;
pub use stages::{SLOTS_OF_RUN, Stage, Stages};
pub(crate) use stages::{label_in, of_stage};
