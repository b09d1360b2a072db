//! Operations on the tape. Each takes values, returns a value, and stores its backward pass on the
//! [`Record`].
//!
//! [`Record`]: crate::tape::Record

mod blocks;
mod conv;
mod grid;
mod linear;
mod matrix;
mod norm;
mod pointwise;
mod pool;
mod product;
mod recurrent;
mod sample_norm;
mod shifted;
#[cfg(test)]
mod tests;
mod words;

pub use conv::{conv_grid, conv_group, conv2d};
pub use grid::Shape as ConvShape;
pub use linear::linear;
pub use matrix::Strided;
pub use norm::{EPSILON, Statistics, batch_norm, one_number};
pub use pointwise::{Activation, activate, add, concat, dropout, dropout_mask, spread, upsample};
pub use pool::{PoolShape, average_pool, max_pool};
pub use product::{Order, order};
pub use recurrent::{last, lstm};
pub use sample_norm::sample_norm;
pub use words::{check_words, conv1d, embedding, max_over_time};

use pointwise::relu_back;

use crate::simd::{sum2, vectorised};

/// Sums over a batch of each of `channels` channels of `run` numbers, into `out`.
fn channel_sums(values: &[f32], channels: usize, run: usize, out: &mut [f32]) {
    out.fill(0.0);
    if run == 1 {
        for row in values.chunks_exact(channels) {
            out.iter_mut().zip(row).for_each(|(o, v)| *o += v);
        }
    } else {
        for (i, values) in values.chunks_exact(run).enumerate() {
            out[i % channels] += vectorised(
                #[inline(always)]
                || sum2(values, values, |v, _| v),
            );
        }
    }
}
