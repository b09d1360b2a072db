//! Large memory in huge pages. Most systems give them only where a program requests them, and with
//! 4 KiB pages the system spends longer on allocating and freeing a model of 10 million numbers
//! than a mean spends on adding it.

use crate::kept_memory::is_kept;
use std::alloc::{GlobalAlloc, Layout, System};

/// Bytes from which an allocation requests huge pages: two of them.
const LARGE: usize = 4 << 20;

/// The system's allocator, which on Linux requests huge pages for allocations of at least 4 MiB.
/// Elsewhere it is the system's. It never frees what [`keep_memory`](crate::keep_memory) keeps. The
/// program `fl` and the Python package have it; a program of
/// one's own declares
///
/// ```
/// #[global_allocator]
/// static MEMORY: fl_core::HugePages = fl_core::HugePages;
/// ```
pub struct HugePages;

/// Requests huge pages for the whole huge pages in a stretch of memory. The advice changes no
/// contents, and a system that has none ignores it.
#[cfg(target_os = "linux")]
pub(crate) fn request(start: *mut u8, bytes: usize) {
    const HUGE: usize = 2 << 20;
    let skip = start.align_offset(HUGE);
    let whole = bytes.saturating_sub(skip) / HUGE * HUGE;
    if whole > 0 {
        #[allow(
            unsafe_code,
            reason = "measured: a third off a mean of 10 million numbers"
        )]
        // SAFETY: `skip + whole <= bytes`, and the advice reads and writes no memory: for addresses
        // that are not the program's, the system returns an error.
        unsafe {
            libc::madvise(start.wrapping_add(skip).cast(), whole, libc::MADV_HUGEPAGE)
        };
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn request(_: *mut u8, _: usize) {}

/// Requests huge pages if the system allocated the memory, and it is large.
fn if_large(start: *mut u8, bytes: usize) -> *mut u8 {
    if bytes >= LARGE && !start.is_null() {
        request(start, bytes);
    }
    start
}

#[allow(unsafe_code, reason = "an allocator")]
// SAFETY: all memory is the system allocator's, and advice changes neither contents nor addresses.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        if_large(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        if_large(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if !is_kept(start, layout.size()) {
            // SAFETY: as in `alloc`; the memory came from the system's allocator.
            unsafe { System.dealloc(start, layout) };
        }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_kept(start, layout.size()) {
            // SAFETY: as in `dealloc`.
            return if_large(unsafe { System.realloc(start, layout, size) }, size);
        }
        // SAFETY: as in `alloc`; the alignment was right before, and both have this many bytes.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                start.copy_to_nonoverlapping(new, size.min(layout.size()));
            }
            new
        }
    }
}
