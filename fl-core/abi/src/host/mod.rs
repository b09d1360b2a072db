//! The program's side: what reads a library's table, makes its parts, and asks them.

mod call;
mod callbacks;
mod declare;
mod describe;
mod foreign_call_guard;
mod import;
mod part_handle;
mod process_mark;
mod protocol;
mod rng_callbacks;
mod same_shape;

#[cfg(test)]
mod tests;

pub use call::Answers;
pub use callbacks::on_log;
pub use foreign_call_guard::during;
#[cfg(unix)]
pub use foreign_call_guard::leave;
#[cfg(unix)]
pub use import::import_isolated;
pub use import::{Refused, import, import_library, import_linked};
pub(super) use {
    call::{Answer, Call},
    part_handle::{PartHandle, checked},
    same_shape::like,
};
#[cfg(unix)]
pub(super) use {
    foreign_call_guard::own_process,
    import::checked_table,
    part_handle::Functions,
    part_handle::{Asked, INTERRUPTED, Library, NewPart},
    process_mark::process_mark,
};
