//! An allocator that counts what is asked of it while it is told to.
//!
//! Must never allocate or panic itself, nor count what another thread asks for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static IS_COUNTING: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Counts from now on, or no more; tells what was before.
pub fn count(on: bool) -> bool {
    IS_COUNTING.replace(on)
}

/// Allocations and reallocations of this thread that were counted, and the bytes asked for.
pub fn counted() -> (u64, u64) {
    (ALLOCATIONS.get(), BYTES.get())
}

fn asked(bytes: usize) {
    // A thread that ends may still allocate after its locals are gone.
    if IS_COUNTING.try_with(Cell::get).unwrap_or(false) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get() + bytes as u64);
    }
}

// SAFETY: every call goes to the system's allocator with the same arguments; counting neither
// allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        asked(layout.size());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        asked(layout.size());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        asked(bytes);
        // SAFETY: the caller's promise about `pointer`, `layout` and `bytes` is passed on.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}
