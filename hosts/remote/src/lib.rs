//! Clients in other processes: what crosses ([`wire`]), who answers there ([`Node`]), and who asks here ([`Remote`]).
//!
//! There is no network in here. Whoever carries packets between the two is a [`Courier`]: an engine such as Flower, or
//! [`Processes`], which begins the nodes on this machine.
mod asked;
pub mod frame;
mod home;
mod leader;
mod ledger;
mod live;
mod node;
mod own;
#[cfg(unix)]
mod processes;
mod remote;
mod spec;
pub mod wire;

pub use home::Home;
pub use leader::Leader;
pub use node::{Node, Served};
pub use own::{Own, Policy};
#[cfg(unix)]
pub use processes::{Begin, Processes, Seats};
pub use remote::{Courier, Remote};
pub use spec::{SpecText, differences, leave_out_devices};
