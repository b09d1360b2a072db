//! Large buffers that are reused.
//!
//! An activation of a large batch takes tens of megabytes. If it is freed after every step, the
//! system returns fresh pages in the next, and clears and maps each on first touch. That takes a
//! fifth of a ResNet-8 step at batch 512. So each thread keeps its large buffers: all of them
//! during a [`BufferScope`], a few between two.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// The least size of a buffer worth keeping: the allocator keeps smaller ones.
const LARGE: usize = 16 * 1024;

/// Numbers that a thread keeps between two passes: 64 MiB, a step of ResNet-8 at batch 32.
const KEPT: usize = 16 * 1024 * 1024;

thread_local! {
    static SPARE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// A call of the trainer. At its end this thread frees its largest buffers until few enough remain.
pub struct BufferScope;

impl Drop for BufferScope {
    fn drop(&mut self) {
        SPARE.with_borrow_mut(|spare| {
            spare.sort_by_key(Vec::capacity);
            let mut sum = 0;
            spare.retain(|v| {
                sum += v.capacity();
                sum <= KEPT
            });
        });
    }
}

/// A buffer of numbers whose memory may be reused.
#[derive(Debug, Default)]
pub struct Buffer(Vec<f32>);

impl Buffer {
    fn spare(n: usize) -> Option<Vec<f32>> {
        let fits = |v: &Vec<f32>| (n..=n + n / 4).contains(&v.capacity());
        let spare = (n >= LARGE).then(|| {
            SPARE.with_borrow_mut(|spare| {
                spare.iter().rposition(fits).map(|at| spare.swap_remove(at))
            })
        });
        spare.flatten()
    }

    /// Returns an empty buffer with room for `n` numbers.
    pub fn room(n: usize) -> Self {
        let mut own = Self::spare(n).unwrap_or_else(|| Vec::with_capacity(n));
        own.clear();
        Self(own)
    }

    /// Returns a buffer of `n` numbers, all `value`.
    pub fn filled(n: usize, value: f32) -> Self {
        match Self::spare(n) {
            Some(mut own) => {
                own.clear();
                own.resize(n, value);
                Self(own)
            }
            None => Self(vec![value; n]),
        }
    }

    /// Returns a buffer of `n` numbers that the caller writes over, whatever they are now.
    pub fn any(n: usize) -> Self {
        let mut own = Self::spare(n).unwrap_or_default();
        match own.capacity() {
            0 => own = vec![0.0; n],
            _ => own.resize(n, 0.0),
        }
        if cfg!(debug_assertions) {
            own.fill(f32::NAN);
        }
        Self(own)
    }

    /// Collects the numbers of `values`.
    pub fn collect(values: impl ExactSizeIterator<Item = f32>) -> Self {
        let mut buffer = Self::room(values.len());
        buffer.0.extend(values);
        buffer
    }

    /// Adds numbers at the end.
    #[inline(always)]
    pub fn extend(&mut self, values: impl Iterator<Item = f32>) {
        self.0.extend(values);
    }

    /// Returns the numbers, whose memory is not reused.
    pub fn into_vec(mut self) -> Vec<f32> {
        std::mem::take(&mut self.0)
    }
}

impl From<Vec<f32>> for Buffer {
    fn from(values: Vec<f32>) -> Self {
        Self(values)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.0.capacity() >= LARGE {
            let own = std::mem::take(&mut self.0);
            // fails only at the end of the thread, and then `own` is simply freed
            let _ = SPARE.try_with(|spare| spare.borrow_mut().push(own));
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_buffer_comes_back_without_its_numbers_and_only_few_are_kept() {
        let kept = || SPARE.with_borrow(|spare| spare.iter().map(Vec::capacity).sum::<usize>());
        let pass = BufferScope;
        let first = Buffer::filled(LARGE, 3.0);
        let place = first.as_ptr();
        drop(first);
        assert_eq!(kept(), LARGE);
        let second = Buffer::filled(LARGE, 0.0);
        assert_eq!((second.as_ptr(), kept()), (place, 0));
        assert!(second.iter().all(|v| *v == 0.0));
        drop(Buffer::filled(LARGE - 1, 1.0));
        assert_eq!(kept(), 0, "small ones are the allocator's");
        drop((second, Buffer::room(KEPT)));
        assert_eq!(kept(), LARGE + KEPT);
        drop(pass);
        assert_eq!(kept(), LARGE, "the largest go first");
    }
}
