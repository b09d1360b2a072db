//! Clients in other processes: the messages ([`wire`]), the answering side ([`Node`]), and the
//! requesting side ([`RemoteClients`]).
//!
//! This crate has no network. A [`Transport`] carries packets between the two: an engine such as
//! Flower, or [`Processes`], which starts the nodes on this machine.
mod client_session;
pub mod frame;
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
