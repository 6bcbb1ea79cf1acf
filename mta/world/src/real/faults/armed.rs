//! The file of faults: a page that a test writes and the daemon's processes map, named by the
//! environment. Opened at the first look at a clock, before a process is jailed.
//!
//! Must never be compiled into a release build, nor do anything unless a test has armed a point.
//!
//! The page consists of 64-bit words: [`OFFSET`] and so on, then from [`STEPS`] on pairs of a point and
//! a count. A test arms a sequence of points. A point counts after the point before it was reached as
//! often as its count says; [`ACTION`] happens at the last one.

#[cfg(not(debug_assertions))]
compile_error!("faults on demand are not for release builds");

use super::Point;
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// The environment variable that names the file.
pub const ENVIRONMENT: &str = "POSTHASTE_TEST_FAULTS";
/// Size of the file.
pub const BYTES: usize = 4096;

/// Word: microseconds that are added to the wall clock.
pub const OFFSET: usize = 0;
/// Word: how many steps of the sequence were reached.
pub const STEP: usize = 1;
/// Word: what happens at the last step.
pub const ACTION: usize = 2;
/// Word: how often that has happened.
pub const DONE: usize = 3;
/// Word: frozen threads continue when this is not 0.
pub const THAW: usize = 4;
/// Word: the key that the last step's point must have; 0 is any.
pub const KEY: usize = 5;
/// The first of the pairs.
pub const STEPS: usize = 8;
/// Upper bound on the pairs; a point 0 ends them earlier.
pub const STEPS_MAX: usize = 16;

/// [`ACTION`]: the thread stops there, until it is killed or thawed.
pub const FREEZE: u64 = 1;
/// [`ACTION`]: the thread panics.
pub const PANIC: u64 = 2;
/// [`ACTION`]: the thread makes a system call that no jailed process may make.
pub const FORBIDDEN: u64 = 3;
/// [`ACTION`]: the thread panics, and the step stays armed.
pub const PANIC_ALWAYS: u64 = 4;
/// [`ACTION`]: each thread that reaches the point stops, until it is thawed.
pub const FREEZE_ALL: u64 = 5;

/// Pause between two checks of a frozen thread.
const FROZEN_REST: Duration = Duration::from_millis(1);

type FaultPage = [AtomicU64; BYTES / 8];

fn page() -> Option<&'static FaultPage> {
    static PAGE: OnceLock<Option<&'static FaultPage>> = OnceLock::new();
    *PAGE.get_or_init(map)
}

fn map() -> Option<&'static FaultPage> {
    let path = std::env::var_os(ENVIRONMENT)?;
    let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses an unused address; the mapping is never removed, is aligned to a
    // page, and is accessed only by atomic words. The test keeps the length of the file.
    unsafe {
        let address = mmap(std::ptr::null_mut(), BYTES, protection, flags, file, 0).ok()?;
        Some(&*address.cast::<FaultPage>())
    }
}

/// See `reach_with`.
pub fn reach(point: Point, key: impl FnOnce() -> u64) {
    let Some(page) = page() else { return };
    let step = page[STEP].load(SeqCst) as usize;
    if step >= STEPS_MAX || page[STEPS + 2 * step].load(SeqCst) != point as u64 {
        return;
    }
    let last = step + 1 == STEPS_MAX || page[STEPS + 2 * (step + 1)].load(SeqCst) == 0;
    let wanted = page[KEY].load(SeqCst);
    if last && wanted != 0 && wanted != key() {
        return;
    }
    let action = page[ACTION].load(SeqCst);
    if last && matches!(action, PANIC_ALWAYS | FREEZE_ALL) {
        page[DONE].fetch_add(1, SeqCst);
        return act(page, action);
    }
    if page[STEPS + 2 * step + 1].fetch_sub(1, SeqCst) != 1 {
        return;
    }
    page[STEP].fetch_add(1, SeqCst);
    if last {
        page[DONE].fetch_add(1, SeqCst);
        act(page, action);
    }
}

fn act(page: &FaultPage, action: u64) {
    match action {
        FREEZE | FREEZE_ALL => {
            while page[THAW].load(SeqCst) == 0 {
                std::thread::sleep(FROZEN_REST);
            }
        }
        PANIC | PANIC_ALWAYS => panic!("told to by a test"),
        FORBIDDEN => {
            let _ = rustix::net::socket(
                rustix::net::AddressFamily::NETLINK,
                rustix::net::SocketType::RAW,
                None,
            );
        }
        _ => {}
    }
}

/// See there.
pub fn wall_offset_micros() -> i64 {
    page().map_or(0, |page| page[OFFSET].load(SeqCst) as i64)
}
