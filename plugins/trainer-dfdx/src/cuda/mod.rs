//! The trainer on an NVIDIA card, with the bits of the processor.
//!
//! One kernel file for each file of `ops`, compiled to PTX ahead of time (`kernels/compile.py`).
//! The driver is opened at the first use of a card, see [`driver`]. Each sum has the order of the
//! processor's, so a card changes only the duration of a run. Tests execute the kernels from their
//! PTX by the interpreter of `tests/fake-cuda`; the README says which cards have run them.

/// The arguments of a kernel, in their order.
macro_rules! arguments {
    ($($one:expr),* $(,)?) => { [$($crate::cuda::driver::Argument::try_from($one)?),*] };
}

mod check;
mod conv;
mod device;
mod driver;
mod linear;
mod meeting;
mod net;
mod norm;
mod optim;
mod pointwise;
mod pool;
mod sets;
mod sums;
mod tape;
#[cfg(test)]
mod tests;
mod words;

pub use device::Device;
pub use driver::{Buffer, Card, Position, Queue, int};
pub use meeting::Seat;
pub use net::ForwardPass;
pub use optim::{Moments, clip, gradient_offset, proximal, step};
pub use sets::Set;
pub use tape::{Record, Value, Weights};

use anyhow::Context;
use fl_core::Result;
use flate2::read::GzDecoder;

/// The PTX of all kernels, a module for each file: compressed, because text is five times as long.
const KERNELS: [&[u8]; 8] = [
    include_bytes!("kernels/conv.ptx.gz"),
    include_bytes!("kernels/linear.ptx.gz"),
    include_bytes!("kernels/norm.ptx.gz"),
    include_bytes!("kernels/optim.ptx.gz"),
    include_bytes!("kernels/pointwise.ptx.gz"),
    include_bytes!("kernels/pool.ptx.gz"),
    include_bytes!("kernels/sums.ptx.gz"),
    include_bytes!("kernels/words.ptx.gz"),
];

/// Returns the PTX of all kernels.
///
/// # Errors
/// If the program's file is damaged.
fn modules() -> Result<Vec<String>> {
    let text = |packed: &[u8]| std::io::read_to_string(GzDecoder::new(packed));
    let all: Result<_, _> = KERNELS.into_iter().map(text).collect();
    all.context("the kernels of this program are damaged")
}

/// One NVIDIA card of this machine.
#[derive(Clone, Debug)]
pub struct CardReport {
    /// Its number: `device: cuda:0` and so on.
    pub index: usize,
    /// The driver's name of the card.
    pub name: String,
    /// Compute capability, such as 7 and 0.
    pub capability: (i32, i32),
    /// Version of the driver's interface, such as 12010 for 12.1.
    pub version: i32,
    /// Why it must not be used: where its numbers differ from the processor's; `None` if they do
    /// not.
    pub wrong: Option<String>,
}

/// Finds all NVIDIA cards of this machine, and compares each with the processor.
///
/// # Errors
/// If there is no driver, or a card cannot be used.
pub fn cards() -> Result<Vec<CardReport>> {
    let one = |index| {
        let card = Card::open(index)?;
        let wrong = card.checked().err().map(|e| format!("{e:#}"));
        Ok(CardReport {
            index,
            name: card.name.clone(),
            capability: card.capability,
            version: card.version,
            wrong,
        })
    };
    (0..Card::count()?).map(one).collect()
}
