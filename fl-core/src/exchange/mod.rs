//! Exchanges: their declarations, requests, answers and faults.

mod conflict;
mod declaration;
pub(crate) mod faults;
pub(crate) mod request;
pub(crate) mod shape_check;
pub(crate) mod spec;

pub use conflict::Conflict;
pub use declaration::{Declaration, Declared};
pub use faults::{Fault, FaultKind, Faults, IdRanges, InjectedFault, QuorumPolicy};
pub use request::*;
pub use spec::*;
