//! The C interface: how a part comes out of a library that the program loads at run time.
//!
//! A library exports one symbol, the table [`raw::FlLibrary`]. Its first numbers say what it is;
//! only then is anything of it called: `describe` says which parts there are, `create` makes one,
//! and one generic `call` carries every operation of every role. Trait objects and Rust types never
//! cross. Tensors cross as borrowed views, outputs go into memory of the host, settings and facts
//! are JSON, errors are text, panics are caught on the side where they happen.
//!
//! A protocol asks in the middle of its calls: its `Server` and `Client` turn what they are asked
//! into a text and messages for one function of the host, [`raw::FlHost::call`], whose answer comes
//! as that of any call. The program may ask back in the middle of that, for another form of an
//! answer or a loss of a training. A process of a library's own passes both on, and a protocol has
//! its process alone.
//!
//! `roles/` has what a call says: in one file for each role a part that is elsewhere and one that
//! is here, which serve both directions, for a protocol does the same operations with parts of the
//! program. `operations.rs` lists them. `library/` turns the parts that
//! [`plugin!`](fl_roles::plugin!) registered into a table, and `host/` ([`import()`]) turns a table
//! into the same [`PartDecl`](fl_roles::PartDecl)s that linked parts have. Libraries in other
//! languages see the header `include/fl_plugin.h`.
//!
//! Parts in another language of the same program, such as those in Python, are a [`PartLibrary`] of
//! [`Callee`]s. That takes no unsafe code, and their answers pass the same checks as those of a
//! loaded library.
//!
//! # What is survived
//! A library can answer whatever it likes: codes, texts, names, shapes, types, counts and numbers
//! are checked, errors are cut to a length and cleared of what steers a terminal, and a Rust part
//! may panic. In a process of its own (`isolated/`), which is the default of the program, it can
//! also do what it likes to its process, which is an error of the part then: never return, end it,
//! use up its memory, let a C++ exception or a `longjmp` leave a function, write what is not its
//! own, or hang in its initialisers.
//!
//! In the program's process it does all of this to the program, which can only say who called
//! `exit`. Load into it only what you would also run.
#![allow(
    unsafe_code,
    reason = "a C interface; every block says why it is sound"
)]

mod ask;
mod by_address;
mod caller;
mod context_json;
mod data_sets;
mod declaration;
mod host;
#[cfg(unix)]
mod isolated;
mod library;
mod marshal;
mod marshal_data;
mod marshal_samples;
mod operations;
pub mod raw;
mod roles;
mod signature;

#[cfg(test)]
mod tests;

pub use caller::Callee;
pub use host::{Answers, Refused, during, import, import_library, import_linked, on_log};
#[cfg(unix)]
pub use host::{import_isolated, leave};
#[cfg(unix)]
pub use isolated::{IsolatedLibrary, Process, calls_were_cut, hurries, hurry_calls, serve};
/// Is the program to stop, so that calls of libraries are hurried? Not on this system.
#[cfg(not(unix))]
pub fn hurries() -> bool {
    false
}

/// Was a call cut off because the program is to stop? Not on this system.
#[cfg(not(unix))]
pub fn calls_were_cut() -> bool {
    false
}
pub use library::{
    Host, IncomingMessage, Input, OpenCall, PartLibrary, TextAndTensors, fl_plugin, library,
};
pub use marshal::OutgoingMessage;
pub use operations::{OPERATIONS, Operation};

#[doc(hidden)]
pub use inventory;

/// A crate that says [`export_plugins!`](crate::export_plugins!).
#[doc(hidden)]
pub struct ExportedPackage(pub &'static str);

inventory::collect!(ExportedPackage);

/// Makes a crate's parts loadable, besides being linkable: one line in its `lib.rs`, and
/// `crate-type = ["cdylib", "rlib"]` under `[lib]` in its `Cargo.toml`.
///
/// The table stands once, here, and lists whatever parts are in the same library; this line
/// makes sure that it is kept. Parts of crates without this line are there because others use
/// them: they give way to the same part of the same crate elsewhere. Any number of crates that say
/// so can be linked into one program.
#[macro_export]
macro_rules! export_plugins {
    () => {
        const _: () = {
            $crate::inventory::submit! {
                $crate::ExportedPackage(env!("CARGO_PKG_NAME"))
            }
            #[used]
            static TABLE: &$crate::raw::FlLibrary = &$crate::fl_plugin;
        };
    };
}
