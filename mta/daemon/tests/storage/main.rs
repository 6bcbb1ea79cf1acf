//! Faults of storage under the running mailer: S118 to S146 and X198 to X200, by number.
//!
//! Must never pass where nothing was tried.
//!
//! Most of these tests mount file systems of their own (loop devices, tmpfs) or have `strace` make
//! system calls of the queue process fail, and both need root and more. Each asks first
//! ([`rig::can_mount`], [`rig::can_trace`], `needs::met`); where the machine cannot do it, the line
//! `SKIPPED program::test: …` says so and `./check` counts it. With `POSTHASTE_TEST_ALL=1` it fails.
//!
//! The calls that the queue process makes on its files, all of them counted by these tests: `openat`
//! (create and open), `fallocate`, `pwrite64`, `pread64`, `fdatasync` (segments, snapshots), `fsync`
//! (the directory), `unlinkat`, `getdents64`, `fstatfs`, `flock`, `fstat`, `newfstatat`, `fadvise64`.
//! It never renames and never maps a file.
//!
//! S127, S128 and S138 at every step, and S129 and S139, are the simulator's and the power scenario's.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

mod cut;
mod damage;
mod failing;
mod full;
mod kinds;
mod places;
mod rig;
mod strace;
mod volume;
