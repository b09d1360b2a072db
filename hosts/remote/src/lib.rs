//! Clients in other processes: what crosses ([`wire`]), who answers there ([`Node`]), and who asks here ([`RemoteClients`]).
//!
//! There is no network in here. Whoever carries packets between the two is a [`Transport`]: an engine such as Flower, or
//! [`Processes`], which begins the nodes on this machine.
mod client_session;
pub mod frame;
mod ledger;
mod node;
mod node_data;
mod node_state;
mod policy;
mod private_file;
#[cfg(unix)]
mod processes;
mod remote_clients;
mod run_session;
mod spec;
pub mod wire;

pub use node::{Node, NodeOptions};
pub use node_data::{NodeData, Policy};
pub use node_state::NodeState;
#[cfg(unix)]
pub use processes::{Begin, ProcessLayout, Processes};
pub use remote_clients::{RemoteClients, Transport};
pub use run_session::Leader;
pub use spec::{SpecText, differences, leave_out_devices};
