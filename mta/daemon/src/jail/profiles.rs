//! The tables of the system calls that each role keeps. `docs/processes.md` is generated from this file.
//!
//! Must never list a call that no role was observed to need.

mod groups;

use super::Role;
use groups::{
    ABORT, ACCEPT, CONNECT, CONTROL, CONVERSE, DESCRIPTORS, EVENTS, FILES, IO_URING, KERNEL, LIMIT,
    MAILBOXES, MEMORY, NAME, NEW_THREAD, NO_CODE, OTHERS, PAIR, PROBES, SELF, SOCKET, SYNC,
    SYNC_TOGETHER, THREADS, TIME,
};

/// The system calls of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// A call outside these groups ends the process.
    Only(&'static [&'static CallGroup]),
    /// A call in these groups ends the process. This is for roles that start programs: the programs inherit the filter,
    /// and nobody can know what they need.
    AllBut(&'static [&'static CallGroup]),
}

/// System calls that belong together.
#[derive(Debug, PartialEq, Eq)]
pub struct CallGroup {
    /// The purpose, for the documentation.
    pub what: &'static str,
    /// The names of the calls. Calls that this architecture does not have are ignored.
    pub calls: &'static [&'static str],
    /// The condition on the arguments.
    pub only: Only,
}

/// A condition on one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// No condition.
    Any,
    /// Argument N is one of these values.
    OneOf(u8, &'static [u64]),
    /// The bits of the mask in argument N are as in the value.
    Bits(u8, u64, u64),
    /// Argument N is our own process id.
    Ourselves(u8),
}

/// Returns the role's table.
// tidy: table, because the groups of a role should be seen together
pub const fn calls(role: Role) -> Calls {
    match role {
        Role::Master | Role::Local => Calls::AllBut(&[&KERNEL, &OTHERS, &IO_URING]),
        Role::Config => Calls::Only(&[
            &MEMORY,
            &NO_CODE,
            &THREADS,
            &NEW_THREAD,
            &TIME,
            &SELF,
            &ABORT,
            &NAME,
            &LIMIT,
            &CONTROL,
            &DESCRIPTORS,
            &PROBES,
        ]),
        Role::Receive => Calls::Only(&[
            &MEMORY,
            &NO_CODE,
            &THREADS,
            &NEW_THREAD,
            &TIME,
            &SELF,
            &ABORT,
            &NAME,
            &LIMIT,
            &CONTROL,
            &DESCRIPTORS,
            &EVENTS,
            &PAIR,
            &CONVERSE,
            &ACCEPT,
            &PROBES,
        ]),
        Role::Queue => Calls::Only(&[
            &MEMORY,
            &NO_CODE,
            &THREADS,
            &NEW_THREAD,
            &TIME,
            &SELF,
            &ABORT,
            &NAME,
            &LIMIT,
            &CONTROL,
            &DESCRIPTORS,
            &EVENTS,
            &PAIR,
            &CONVERSE,
            &ACCEPT,
            &FILES,
            &SYNC,
        ]),
        Role::Send => Calls::Only(&[
            &MEMORY,
            &NO_CODE,
            &THREADS,
            &NEW_THREAD,
            &TIME,
            &SELF,
            &ABORT,
            &NAME,
            &LIMIT,
            &CONTROL,
            &DESCRIPTORS,
            &EVENTS,
            &PAIR,
            &CONVERSE,
            &SOCKET,
            &CONNECT,
            &PROBES,
        ]),
        Role::Mailbox => Calls::Only(&[
            &MEMORY,
            &NO_CODE,
            &THREADS,
            &NEW_THREAD,
            &TIME,
            &SELF,
            &ABORT,
            &NAME,
            &LIMIT,
            &CONTROL,
            &DESCRIPTORS,
            &EVENTS,
            &PAIR,
            &CONVERSE,
            &FILES,
            &SYNC,
            &MAILBOXES,
            &SYNC_TOGETHER,
        ]),
    }
}

/// Returns the calls that fail with ENOSYS instead of ending the process, if the role's table does not allow them. The C
/// library tries these calls and has an alternative.
pub const fn refused(role: Role) -> &'static [&'static str] {
    match role {
        Role::Master | Role::Local => &[],
        Role::Queue | Role::Mailbox => &["clone3"],
        Role::Config | Role::Receive | Role::Send => PROBES.calls,
    }
}
