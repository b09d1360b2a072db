//! Optimisers on a card: kernels/optim.cu, as [`fl_nets::optim`].

use super::driver::{Buffer, Queue};
use super::sums::{Term, plane_sums};
use fl_core::Result;
use fl_nets::optim::{CLIP_BLOCK, Move, clip_factor};

/// Weights, moments and a buffer for a gradient, on a card.
pub struct Moments {
    /// [`fl_nets::optim::State::first`]
    pub first: Buffer,
    /// [`fl_nets::optim::State::second`]
    pub second: Buffer,
}

/// Updates weights.
///
/// # Errors
/// If the card fails.
pub fn step(
    queue: &Queue,
    how: Move,
    gradient: &Buffer,
    weights: &Buffer,
    moments: &Moments,
) -> Result<()> {
    let n = weights.len();
    let (g, w, first) = (gradient, weights, &moments.first);
    match how {
        Move::Plain { rate, decay } => queue.each("sgd", n, &arguments![n, rate, decay, g, w]),
        Move::Momentum {
            rate,
            decay,
            keep,
            nesterov,
        } => {
            let arguments = arguments![n, rate, decay, keep, nesterov, g, w, first];
            queue.each("momentum", n, &arguments)
        }
        Move::Adam(r) => {
            let rates = [
                r.rate, r.root, r.beta1, r.beta2, r.rest1, r.rest2, r.eps, r.decay,
            ];
            let second = &moments.second;
            queue.each("adam", n, &arguments![n, rates, g, w, first, second])
        }
    }
}

/// As [`fl_nets::optim::clip`].
///
/// # Errors
/// If the card fails.
pub fn clip(queue: &Queue, gradient: &Buffer, most: f32) -> Result<()> {
    let n = gradient.len();
    let sums = plane_sums(queue, gradient, (1, CLIP_BLOCK), Term::Squares)?;
    let sums = queue.download(&sums, 0, sums.len())?;
    match clip_factor(sums.into_iter(), most) {
        Some(factor) => {
            let arguments = arguments![n, factor, gradient];
            queue.each("scale", n, &arguments)
        }
        None => Ok(()),
    }
}

/// As [`fl_nets::optim::proximal`].
///
/// # Errors
/// If the card fails.
pub fn proximal(
    queue: &Queue,
    gradient: &Buffer,
    weights: &Buffer,
    anchor: &Buffer,
    factor: f32,
) -> Result<()> {
    let n = gradient.len();
    let arguments = arguments![n, factor, weights, anchor, gradient];
    queue.each("pull", n, &arguments)
}

/// As [`fl_nets::optim::gradient_offset`].
///
/// # Errors
/// If the card fails.
pub fn gradient_offset(queue: &Queue, gradient: &Buffer, gradient_offset: &Buffer) -> Result<()> {
    let n = gradient.len();
    let arguments = arguments![n, gradient_offset, gradient];
    queue.each("accumulate", n, &arguments)
}
