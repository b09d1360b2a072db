//! The door between the two sides of a protocol: what the server sees of it, what a client sees of it, the questions that
//! cross, and what a host must bring.

mod account;
mod ask;
mod asked;
mod client;
mod client_learning;
mod client_releases;
mod cohort;
mod exchange;
mod faults;
mod federation;
pub(crate) mod host;
mod observed;
mod public;
pub(crate) mod question;
mod release;
mod results;
mod round;
mod shapes;
mod steps;
mod store;

pub use asked::*;
pub use client::Client;
pub use faults::{Below, Fault, Faults, Happening, Mishap, Numbers};
pub use federation::Federation;
pub use host::*;
pub use observed::exposed;
pub use public::Public;
pub use question::*;
pub use round::{Round, Said};
