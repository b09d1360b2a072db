//! Memory that a part in Python still uses after the call in which it was lent is given up, not
//! given back: whatever reads it later, a numpy view or a tensor of PyTorch, reads the same
//! numbers. The run has failed by then, so this happens once.
#![allow(unsafe_code, reason = "an allocator")]

use fl_core::HugePages as System;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A stretch of memory; they form a list that only grows.
struct Block {
    start: usize,
    end: usize,
    next: *const Self,
}

static KEPT: AtomicPtr<Block> = AtomicPtr::new(std::ptr::null_mut());

/// The system's allocator, which never takes back what is kept.
pub struct Arena;

/// From now on the memory that holds these bytes stays as it is.
pub fn keep(data: *const u8, bytes: usize) {
    let start = data as usize;
    let mut next = KEPT.load(Ordering::Acquire);
    let kept = Box::into_raw(Box::new(Block {
        start,
        end: start + bytes.max(1),
        next,
    }));
    while let Err(now) = KEPT.compare_exchange_weak(next, kept, Ordering::AcqRel, Ordering::Acquire)
    {
        next = now;
        // SAFETY: nobody else knows it yet.
        unsafe { (*kept).next = next };
    }
}

fn kept(data: *const u8, bytes: usize) -> bool {
    let mut at: *const Block = KEPT.load(Ordering::Acquire);
    let start = data as usize;
    // SAFETY: what is in the list is never freed or changed.
    while let Some(one) = unsafe { at.as_ref() } {
        if start < one.end && one.start < start + bytes {
            return true;
        }
        at = one.next;
    }
    false
}

// SAFETY: the system's allocator, of which some memory is never given back.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says; so below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        if !kept(data, layout.size()) {
            // SAFETY: as above.
            unsafe { System.dealloc(data, layout) }
        }
    }

    unsafe fn realloc(&self, data: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !kept(data, layout.size()) {
            // SAFETY: as above.
            return unsafe { System.realloc(data, layout, size) };
        }
        // SAFETY: the new memory has room for what both have; the layout's alignment was right
        // before.
        unsafe {
            let new = System.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(data, new, size.min(layout.size()));
            }
            new
        }
    }
}
