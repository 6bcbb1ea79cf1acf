//! Hash tables with the same seed in every run: the number of their probes would differ by chance.
//!
//! Must never be part of a program that meets strangers: they could choose keys that collide.

use std::ffi::{c_uint, c_void};

/// Stands before libc's function of this name, which the standard library takes the keys of its
/// hash tables from; gives the same bytes each time.
///
/// # Safety
/// As of the system call: `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, _flags: c_uint) -> isize {
    // SAFETY: the caller's promise about `buffer` and `length` is passed on.
    unsafe { std::ptr::write_bytes(buffer.cast::<u8>(), 0x5e, length) };
    isize::try_from(length).unwrap_or(isize::MAX)
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    #[test]
    fn two_hash_tables_of_two_threads_hash_alike() {
        let hash = || std::collections::hash_map::RandomState::new().hash_one(7u64);
        let other = std::thread::spawn(hash).join().unwrap();
        assert_eq!(hash(), other);
    }
}
