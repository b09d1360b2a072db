//! The CUDA driver, opened at the first use of a card.
//!
//! It is not needed to build, or to run without a card. All unsafe code for the card is in this
//! folder. A program cannot corrupt its own memory with it. Lengths of copies come from slices, and
//! the arguments of a launch have the lengths that the kernel's text declares.
#![allow(unsafe_code, reason = "the driver's interface is C")]

mod argument;
mod buffer;
mod card;
mod functions;
mod queue;
mod stream;

pub use argument::{Argument, Position, int};
pub use buffer::Buffer;
pub use card::Card;
pub(super) use card::MEMBERS;
pub use queue::Queue;
pub(super) use stream::Work;
