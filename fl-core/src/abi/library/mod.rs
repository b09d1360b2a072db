//! The library's side: what runs in a library that was loaded, to offer its parts.

mod borrowed_inbox;
mod call_context;
pub(in crate::abi) mod link;
mod protocol;
mod table;
mod threads;

#[cfg(test)]
mod tests;

pub(in crate::abi) use borrowed_inbox::InboxBuffer;
pub(in crate::abi) use call_context::{Host, Input};
pub(in crate::abi) use table::guarded;
pub use table::{fl_plugin, library};
