//! Memory that stays as it is for ever, because something may read it that nobody can tell to stop.

use std::sync::OnceLock;

/// A stretch of memory; they form a list that only grows.
struct Block {
    start: usize,
    end: usize,
    next: OnceLock<&'static Self>,
}

static FIRST: OnceLock<&'static Block> = OnceLock::new();

/// Keeps the memory that holds these bytes: a program whose allocator is
/// [`HugePages`](crate::HugePages) never frees it and never uses it again. Something that reads it
/// later, such as a view of numpy, reads the same numbers.
pub fn keep_memory(start: *const u8, bytes: usize) {
    let start = start.addr();
    let block: &Block = Box::leak(Box::new(Block {
        start,
        end: start + bytes.max(1),
        next: OnceLock::new(),
    }));
    let mut place = &FIRST;
    while place.set(block).is_err() {
        if let Some(other) = place.get() {
            place = &other.next;
        }
    }
}

/// Does an allocation hold memory that is kept?
pub(crate) fn is_kept(start: *const u8, bytes: usize) -> bool {
    let (start, mut place) = (start.addr(), &FIRST);
    while let Some(block) = place.get() {
        if start < block.end && block.start < start + bytes {
            return true;
        }
        place = &block.next;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_kept_if_it_holds_a_kept_byte() {
        let all = [0u8; 64];
        let kept = |at: usize, bytes: usize| is_kept(all.as_ptr().wrapping_add(at), bytes);
        keep_memory(all.as_ptr().wrapping_add(16), 16);
        keep_memory(all.as_ptr().wrapping_add(48), 0);
        for (at, bytes) in [(0, 17), (16, 1), (20, 2), (31, 1), (31, 9), (48, 1)] {
            assert!(kept(at, bytes), "{bytes} bytes from {at}");
        }
        assert!(!kept(0, 16) && !kept(32, 16) && !kept(49, 15));
    }
}
