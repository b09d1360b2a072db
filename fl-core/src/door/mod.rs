//! The door between the two sides of a protocol: what the server sees of it, what a client sees of it, the questions that
//! cross, and what a host must bring.

mod account;
mod ask;
mod client;
mod client_learning;
mod client_releases;
mod cohort;
mod collector;
mod conflict;
mod declaration;
mod exchange_spec;
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
pub(crate) mod store;

pub use client::Client;
pub use conflict::Conflict;
pub use declaration::{Declaration, Declared};
pub use exchange_spec::*;
pub use faults::{Below, Fault, Faults, Happening, Mishap, Numbers};
pub use federation::Server;
pub use host::*;
pub use observed::exposed;
pub use public::Public;
pub use question::*;
pub use round::{Round, Said};
