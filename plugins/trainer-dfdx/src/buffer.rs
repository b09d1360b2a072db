//! Large buffers that are used again while a pass lasts.
//!
//! An activation of a large batch is tens of megabytes. Handed back to the operating system after every step and asked for
//! again in the next, it comes back as fresh pages, each cleared and mapped on first touch: a fifth of a ResNet-8 step at
//! batch 512. So while a [`Reuse`] lives on a thread, its large buffers are kept aside instead.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// From this many numbers on, a buffer is worth keeping: below, the allocator keeps it.
const LARGE: usize = 16 * 1024;

thread_local! {
    static SPARE: RefCell<Option<Vec<Vec<f32>>>> = const { RefCell::new(None) };
}

/// While it lives, large buffers dropped on this thread are used again on this thread; then all are freed.
pub struct Reuse(());

impl Reuse {
    /// From now on.
    pub fn start() -> Self {
        SPARE.set(Some(Vec::new()));
        Self(())
    }
}

impl Drop for Reuse {
    fn drop(&mut self) {
        SPARE.set(None);
    }
}

/// Numbers in a buffer that may have been used before.
#[derive(Debug, Default)]
pub struct Buffer(Vec<f32>);

impl Buffer {
    /// Empty, with room for `n` numbers.
    pub fn room(n: usize) -> Self {
        let fits = |v: &Vec<f32>| (n..=n + n / 4).contains(&v.capacity());
        let spare = SPARE.with_borrow_mut(|spare| {
            let spare = spare.as_mut().filter(|_| n >= LARGE)?;
            let at = spare.iter().rposition(fits)?;
            Some(spare.swap_remove(at))
        });
        Self(spare.unwrap_or_else(|| Vec::with_capacity(n)))
    }

    /// `n` numbers, all `value`.
    pub fn filled(n: usize, value: f32) -> Self {
        let mut buffer = Self::room(n);
        buffer.0.resize(n, value);
        buffer
    }

    /// As many numbers as there are in `values`.
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

    /// The numbers, never to be used again.
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
            let mut own = std::mem::take(&mut self.0);
            own.clear();
            // fails only while the thread ends, and then `own` is simply freed
            let _ = SPARE.try_with(|spare| {
                if let Some(spare) = spare.borrow_mut().as_mut() {
                    spare.push(own);
                }
            });
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
    fn a_large_buffer_comes_back_only_while_reuse_lasts_and_never_with_old_numbers() {
        let address = |b: &Buffer| b.as_ptr();
        let reuse = Reuse::start();
        let first = Buffer::filled(LARGE, 3.0);
        let place = address(&first);
        drop(first);
        let second = Buffer::filled(LARGE - 1, 0.0);
        assert_ne!(
            address(&second),
            place,
            "a buffer must not be too small for what it held"
        );
        let third = Buffer::filled(LARGE, 0.0);
        assert_eq!(address(&third), place);
        assert!(third.iter().all(|v| *v == 0.0));
        drop((second, third, reuse));
        assert!(SPARE.with_borrow(Option::is_none));
        drop(Buffer::filled(LARGE, 1.0));
        assert!(SPARE.with_borrow(Option::is_none));
    }
}
