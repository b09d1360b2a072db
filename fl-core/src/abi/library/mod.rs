//! The library's side: what runs in a library that was loaded, to offer its parts.

mod borrowed_inbox;
mod call_context;
mod dispatch;
mod dispatch_training;
mod table;
mod threads;

#[cfg(test)]
mod tests;

pub use table::{fl_plugin, library};
