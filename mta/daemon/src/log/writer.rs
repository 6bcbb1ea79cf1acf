//! The bounded buffer between the code that logs events and the thread that writes them.
//!
//! Must never hold the buffer's lock during a write, and never end because a write failed.

use super::line::{LINE_BYTES_MAX, LogLine, events};
use super::sum::Sums;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::hash::DefaultHasher;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The buffer, shared by the writer and all that log.
pub(super) struct LogBuffer {
    state: Mutex<State>,
    /// Signalled when the empty buffer gets a line.
    filled: Condvar,
    /// Signalled when a batch has been written.
    written: Condvar,
}

#[derive(Default)]
struct State {
    buffer: Vec<u8>,
    sums: Sums,
    dropped_untold: u64,
    dropped_total: u64,
    /// True while the writer writes a batch.
    is_writing: bool,
}

impl LogBuffer {
    /// Adds lines. Counts the events of lines that do not fit as dropped.
    pub(super) fn put(&self, lines: &str) {
        let mut state = self.lock();
        let is_awaited = state.buffer.is_empty();
        let has_more = state.put(lines);
        drop(state);
        if is_awaited && has_more {
            self.filled.notify_one();
        }
    }

    /// Adds the line of an event that may belong to a flood.
    pub(super) fn put_equal(&self, kind: u64, line: LogLine) {
        let mut state = self.lock();
        let is_awaited = state.buffer.is_empty();
        let lines = state.sums.add(kind, line, Instant::now());
        let has_more = lines.is_some_and(|lines| state.put(&lines));
        drop(state);
        if is_awaited && has_more {
            self.filled.notify_one();
        }
    }

    /// See [`Sums::hasher`].
    pub(super) fn hasher(&self) -> DefaultHasher {
        self.lock().sums.hasher()
    }

    pub(super) fn flush(&self, longest: Duration) {
        let until = Instant::now() + longest;
        let mut state = self.lock();
        state.close_sums(true);
        self.filled.notify_one();
        while !state.buffer.is_empty() || state.is_writing {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return };
            state = self
                .written
                .wait_timeout(state, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }

    pub(super) fn dropped_total(&self) -> u64 {
        self.lock().dropped_total
    }

    /// Locks the state. It is consistent even if a thread panicked while it held the lock: only whole lines are added.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to write. Returns the lines, and how many events were dropped before them.
    fn take(&self, spare: Vec<u8>) -> (Vec<u8>, u64) {
        let mut state = self.lock();
        loop {
            state.close_sums(false);
            if !state.buffer.is_empty() || state.dropped_untold > 0 {
                break;
            }
            state = match state.sums.wait(Instant::now()) {
                None => self.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(longest) => {
                    let waited = self.filled.wait_timeout(state, longest);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.is_writing = true;
        let batch = std::mem::replace(&mut state.buffer, spare);
        (batch, std::mem::take(&mut state.dropped_untold))
    }

    /// Notes that a batch was tried. `lost` events of it were not written. `untold` is a number of dropped events that was
    /// not written.
    fn done(&self, lost: u64, untold: u64) {
        let mut state = self.lock();
        state.is_writing = false;
        state.dropped_untold += lost + untold;
        state.dropped_total += lost;
        drop(state);
        self.written.notify_all();
    }
}

impl State {
    /// Adds the lines that fit. Returns whether any did.
    fn put(&mut self, lines: &str) -> bool {
        let lines = lines.as_bytes();
        let room = BUFFER_BYTES_MAX.saturating_sub(self.buffer.len());
        let fitting = if lines.len() <= room {
            lines.len()
        } else {
            memchr::memrchr(b'\n', &lines[..room]).map_or(0, |at| at + 1)
        };
        self.buffer.extend_from_slice(&lines[..fitting]);
        let dropped = events(&lines[fitting..]);
        self.dropped_untold += dropped;
        self.dropped_total += dropped;
        fitting > 0
    }

    fn close_sums(&mut self, all: bool) {
        let lines = self.sums.close(Instant::now(), all);
        self.put(&lines);
    }
}

/// Starts the thread that writes.
pub(super) fn start(
    out: File,
    dropped_line: Box<dyn Fn(u64) -> String + Send>,
) -> io::Result<Arc<LogBuffer>> {
    let shared = Arc::new(LogBuffer {
        state: Mutex::default(),
        filled: Condvar::new(),
        written: Condvar::new(),
    });
    let (for_writer, is_file) = (shared.clone(), out.metadata()?.is_file());
    std::thread::Builder::new()
        .name("log".into())
        .stack_size(256 << 10)
        .spawn(move || run(&for_writer, out, is_file, &*dropped_line))?;
    Ok(shared)
}

/// Writes batches until the process ends.
fn run(shared: &LogBuffer, mut out: File, is_file: bool, dropped_line: &dyn Fn(u64) -> String) {
    let mut spare = Vec::new();
    loop {
        let (mut batch, dropped) = shared.take(std::mem::take(&mut spare));
        // The number of dropped events is logged after the lines that came before the gap.
        if dropped > 0 {
            batch.extend_from_slice(dropped_line(dropped).as_bytes());
        }
        let unwritten = write_lines(&mut out, &batch, is_file);
        // If anything was not written, the line with the number of dropped events is missing too.
        let events = unwritten - u64::from(dropped > 0 && unwritten > 0);
        shared.done(events, if unwritten > 0 { dropped } else { 0 });
        if unwritten > 0 {
            // The reader has gone. Writes to a closed pipe fail at once, so the thread would spin without a pause.
            std::thread::sleep(BROKEN_PAUSE);
        }
        batch.clear();
        batch.shrink_to(BUFFER_BYTES_KEPT);
        spare = batch;
        std::thread::sleep(GATHER);
    }
}

/// Writes whole lines, in pieces that are not mixed with lines of other processes. Returns how many events were not
/// written.
fn write_lines(out: &mut File, batch: &[u8], is_file: bool) -> u64 {
    let piece_bytes_max = if is_file { FILE_WRITE_BYTES_MAX } else { LINE_BYTES_MAX };
    let mut rest = batch;
    while !rest.is_empty() {
        let piece = whole_lines(rest, piece_bytes_max);
        if write_all(out, piece).is_err() {
            return events(rest);
        }
        rest = &rest[piece.len()..];
    }
    0
}

/// Returns as many whole lines as fit, but at least one.
fn whole_lines(rest: &[u8], bytes_max: usize) -> &[u8] {
    if rest.len() <= bytes_max {
        return rest;
    }
    match memchr::memrchr(b'\n', &rest[..bytes_max]) {
        Some(at) => &rest[..=at],
        None => &rest[..memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1)],
    }
}

/// Does the same as `Write::write_all` for a descriptor that another process may have set to non-blocking.
fn write_all(out: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait_writable(out),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait_writable(out: &File) {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    // The next write reports an error again.
    let _ = poll(&mut [PollFd::new(out, PollFlags::OUT)], Some(&second));
}

/// Returns whether a descriptor is the stream that `JOURNAL_STREAM` names (systemd.exec(5)).
pub(super) fn is_journal(out: &impl AsFd, journal_stream: &str) -> bool {
    rustix::fs::fstat(out)
        .is_ok_and(|stat| format!("{}:{}", stat.st_dev, stat.st_ino) == journal_stream)
}

/// Upper bound on bytes that wait for the writer: about 10,000 events.
pub(super) const BUFFER_BYTES_MAX: usize = 4 << 20;
/// Capacity in bytes that is kept of an empty buffer for the next batch.
const BUFFER_BYTES_KEPT: usize = 256 << 10;
/// Upper bound on bytes of one write to a file. Files do not mix appends.
const FILE_WRITE_BYTES_MAX: usize = 256 << 10;
/// How long events gather before the next write. Nobody needs them sooner, and each write wakes a thread on a core that
/// mail needs.
const GATHER: Duration = Duration::from_millis(20);
/// The pause before the next write after a write failed.
const BROKEN_PAUSE: Duration = Duration::from_millis(500);
