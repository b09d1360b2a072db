//! [`Buffer`]: memory of a card.

use super::stream::{Stream, Work};
use std::sync::Arc;

/// Numbers of 32 bits on a card.
#[derive(Debug)]
pub struct Buffer {
    pub(super) stream: Arc<Stream>,
    pub(super) address: u64,
    pub(super) len: usize,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let (address, bytes) = (self.address, 4 * self.len.max(1) as u64);
        // a card that fails says so at its next work
        let _ = self.stream.does(Work::Free { address, bytes });
    }
}

impl Buffer {
    /// Returns how many numbers it holds.
    pub fn len(&self) -> usize {
        self.len
    }
}
