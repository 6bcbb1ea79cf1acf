//! jemalloc in place of the C library's allocator, in all processes.
//!
//! A message makes and drops some dozens of things, bodies of some KiB among them, for which glibc
//! leaves its per-thread cache: it was 4 % of receive's time and 11 % of queue's (decision 0131).
//! Must never hold anything else.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// What jemalloc reads when it starts (jemalloc(3), TUNING). One arena, since a process has one
/// thread that works and some that wait for the disk; things up to 64 KiB, a staged piece, from the
/// thread's cache; free pages go back to the kernel after a second instead of ten, because clients who
/// fill the memory of sessions and give it up again would else have it twice; no pages of 2 MiB, which a
/// process that holds ten sessions would pay for.
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: &[u8; 79] =
    b"narenas:1,tcache_max:65536,dirty_decay_ms:1000,thp:never,metadata_thp:disabled\0";
