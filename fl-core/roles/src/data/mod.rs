//! Data sets: shared, read-only storage, and views of it by position.

mod examples;
mod images;
mod inputs;
mod masks;
mod numbers;
mod public;
mod target;
mod task;

pub use examples::*;
pub use images::*;
pub use inputs::*;
pub use masks::*;
pub use numbers::*;
pub use public::*;
pub use target::*;
pub use task::*;
