//! The trainer on an NVIDIA card, with the bits of the processor.
//!
//! One kernel file for each file of `ops`, compiled to PTX ahead of time (`kernels/compile.py`). The
//! driver is opened when a card is first used, see [`driver`]. Each sum has the order of the
//! processor's, so a card changes how long a run takes and nothing else. The kernels have been
//! executed from their PTX by the interpreter of `tests/fake-cuda`, on no card yet.

mod conv;
mod device;
mod driver;
mod linear;
mod net;
mod norm;
mod optim;
mod pointwise;
mod pool;
mod sums;
mod tape;
#[cfg(test)]
mod tests;
mod words;

pub use device::Device;
pub use driver::{Buffer, Card, Place, Queue, int};
pub use net::Pass;
pub use optim::{Moments, clip, drift, pull, step};
pub use tape::{Record, Value, Weights};

/// All kernels.
const PTX: [&str; 8] = [
    include_str!("kernels/conv.ptx"),
    include_str!("kernels/linear.ptx"),
    include_str!("kernels/norm.ptx"),
    include_str!("kernels/optim.ptx"),
    include_str!("kernels/pointwise.ptx"),
    include_str!("kernels/pool.ptx"),
    include_str!("kernels/sums.ptx"),
    include_str!("kernels/words.ptx"),
];
