//! Faults of storage with the running mailer: S118 to S146 and X198 to X200, by number.
//!
//! Must never pass without testing anything.
//!
//! Most of these tests mount file systems of their own (loop devices, tmpfs) or use `strace` to make system
//! calls of the queue process fail. Both need root and more. Each test first asks whether they are possible
//! ([`rig::can_mount`], [`rig::can_trace`], `needs::met`). If they are not, the line `SKIPPED program::test: …`
//! is printed and `./check` counts it. With `POSTHASTE_TEST_ALL=1` the test fails.
//!
//! The calls of the queue process on its files, all of which these tests count: `openat` (create and open),
//! `fallocate`, `pwrite64`, `pread64`, `fdatasync` (segments, snapshots), `fsync` (the directory), `unlinkat`,
//! `getdents64`, `fstatfs`, `flock`, `fstat`, `newfstatat`, `fadvise64`. It never renames and never maps a
//! file.
//!
//! The simulator and the power scenario test S127, S128 and S138 at every step, and S129 and S139.

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
