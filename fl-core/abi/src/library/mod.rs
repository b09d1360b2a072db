//! The library's side: what runs in a loaded library, to offer its parts.

pub(crate) mod asked;
mod borrowed_inbox;
mod call_context;
pub(crate) mod link;
mod open_call;
mod protocol;
mod table;
mod threads;

#[cfg(test)]
mod tests;

pub(crate) use borrowed_inbox::InboxBuffer;
pub use call_context::{Host, IncomingMessage, Input, TextAndTensors};
pub use open_call::OpenCall;
pub use table::{PartLibrary, fl_plugin, library};
pub(crate) use table::{guarded, table};
