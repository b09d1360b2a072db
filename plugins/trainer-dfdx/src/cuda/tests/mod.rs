//! The card's operations against the processor's, bit for bit, on the PTX interpreter.

mod kernels;
mod mutants;
mod nets;
mod operations;
mod together;

use super::check::{Case, NO_KERNEL, compare, differ, numbers};
use super::driver::{Card, Queue};
use std::path::PathBuf;

/// Returns the driver for tests: the interpreter, which lies beside this program. `None` if the
/// environment names another one, such as that of a real card.
pub(super) fn fake_driver() -> Option<PathBuf> {
    if std::env::var_os("FL_CUDA_DRIVER").is_some() {
        return None;
    }
    let here = std::env::current_exe().ok()?;
    let name = format!(
        "{}fake_cuda{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    Some(here.with_file_name(name))
}

fn queue() -> Queue {
    Queue::new(Card::open(0).unwrap(), None).unwrap()
}
