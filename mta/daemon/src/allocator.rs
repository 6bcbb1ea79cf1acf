//! The allocator of all processes: jemalloc instead of that of the C library.
//!
//! A message makes some dozens of allocations, some of them of several KiB, which glibc does not serve from its per-thread
//! cache. That took 4 % of receive's time and 11 % of queue's (decision 0131). Must never hold anything else.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// The settings that jemalloc reads at its start (jemalloc(3), TUNING).
///
/// One arena, because a process has one thread that works and a few that wait for the disk. Allocations up to 64 KiB, the
/// size of a staged piece, come from the thread's cache. Free pages return to the kernel after one second instead of ten:
/// otherwise, clients that fill the memory of sessions and leave could use it twice. No pages of 2 MiB, which would cost
/// too much in a process with ten sessions.
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: &[u8; 79] =
    b"narenas:1,tcache_max:65536,dirty_decay_ms:1000,thp:never,metadata_thp:disabled\0";
