//! The program's side: what reads a library's table, makes its parts, and asks them.

mod accountant;
mod aggregator;
mod away;
mod call;
mod chance;
mod declare;
mod describe;
mod generator;
mod import;
mod late;
mod mechanism;
mod remote;
mod selector;
mod trainer;

#[cfg(test)]
mod tests;

pub use away::during;
#[cfg(unix)]
pub use away::leave;
pub use call::on_log;
#[cfg(unix)]
pub use import::import_apart;
pub use import::{Refused, import, import_linked};
#[cfg(unix)]
pub(super) use {
    away::own_process,
    call::{Answer, Call},
    import::checked_table,
    remote::Functions,
};
