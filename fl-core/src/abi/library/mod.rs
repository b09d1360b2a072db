//! The library's side: what runs in a library that was loaded, to offer its parts.

mod caller;
mod learners;
mod lend;
mod objects;
mod table;
mod threads;

#[cfg(test)]
mod tests;

pub use table::{fl_plugin, library};
