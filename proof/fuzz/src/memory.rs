//! How much memory a decoder takes, so that no length field can make it take more than its bound.
//!
//! Must never count another thread's memory: tests run side by side.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends may free after its locals are gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call goes to the system's allocator with the same arguments; counting neither
// allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes as isize - layout.size() as isize);
        // SAFETY: the caller's promise about `pointer`, `layout` and `bytes` is passed on.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// Runs it and gives the most bytes it held at once above what was held before.
pub fn most_bytes<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let value = run();
    (value, usize::try_from(MOST.get() - before).unwrap_or(0))
}

/// Runs it; it may hold at most `bytes_max` at once.
#[track_caller]
pub fn within<T>(bytes_max: usize, run: impl FnOnce() -> T) -> T {
    let (value, most) = most_bytes(run);
    assert!(most <= bytes_max, "it held {most} bytes, more than {bytes_max}");
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_was_held_at_once_is_counted_and_what_was_freed_is_not() {
        let ((), most) = most_bytes(|| {
            drop(vec![1u8; 10_000]);
            drop(vec![1u8; 5_000]);
        });
        assert!((10_000..15_000).contains(&most), "{most}");
    }
}
