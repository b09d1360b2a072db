//! Roles of parts: the six roles of the field, and the protocol that combines them into a method.

mod accountant;
mod added_loss;
mod aggregator;
mod any;
pub(crate) mod before_aggregator;
mod generator;
mod head;
mod privacy;
mod protocol;
mod selector;
mod trainer;

pub use accountant::*;
pub use added_loss::*;
pub use aggregator::*;
pub use any::*;
pub use before_aggregator::BEFORE_AGGREGATOR;
pub use generator::*;
pub use head::*;
pub use privacy::*;
pub use protocol::*;
pub use selector::*;
pub use trainer::*;
