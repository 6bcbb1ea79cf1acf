//! Numbers and names of the system calls of this machine's architecture, from the crate `syscalls`.
//!
//! Must never allocate: a signal handler asks for names.

use syscalls::Sysno;

/// Returns the number of the call with this name. `None` if this architecture has no such call.
pub fn number(name: &str) -> Option<i64> {
    name.parse::<Sysno>().ok().map(|call| i64::from(call.id()))
}

/// Returns how many calls this architecture has.
pub fn count() -> usize {
    Sysno::iter().count()
}

/// Returns the name of the call with this number. Safe to call in a signal handler.
pub fn name(number: i64) -> Option<&'static str> {
    Sysno::new(usize::try_from(number).ok()?).map(|call| call.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_found_by_its_number_and_by_its_name() {
        for known in ["read", "openat", "exit_group", "clone3", "getrandom"] {
            assert_eq!(name(number(known).unwrap()), Some(known));
        }
        assert_eq!(number("read"), Some(libc::SYS_read));
        assert_eq!((number("no_such_call"), name(9999), name(-1)), (None, None, None));
    }
}
