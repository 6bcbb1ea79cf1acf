//! The bounded buffer between those who tell events and the thread that writes them.
//!
//! Must never hold the buffer's lock during a write, and never end because of one that failed.

use super::line::{LINE_BYTES_MAX, Line, events};
use super::sum::Sums;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::hash::DefaultHasher;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the tellers and the writer share.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Something is in the buffer that was empty.
    filled: Condvar,
    /// A batch was written.
    written: Condvar,
}

#[derive(Default)]
struct State {
    buffer: Vec<u8>,
    sums: Sums,
    dropped_untold: u64,
    dropped_total: u64,
    /// The writer has a batch in hand.
    is_writing: bool,
}

impl Shared {
    /// Adds lines, and counts those that have no room as dropped.
    pub(super) fn put(&self, lines: &str) {
        let mut state = self.lock();
        let is_awaited = state.buffer.is_empty();
        let has_more = state.put(lines);
        drop(state);
        if is_awaited && has_more {
            self.filled.notify_one();
        }
    }

    /// Adds the line of an event that may be one of a flood.
    pub(super) fn put_equal(&self, kind: u64, line: Line) {
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

    /// A teller that panicked has left whole lines: the state is good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to write; the lines, and how many were dropped before them.
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

    /// A batch was tried; `lost` of its events were not written, `untold` is a count that was not.
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
    /// Whether anything had room.
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
) -> io::Result<Arc<Shared>> {
    let shared = Arc::new(Shared {
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

/// The life of the writer: it ends with the process.
fn run(shared: &Shared, mut out: File, is_file: bool, dropped_line: &dyn Fn(u64) -> String) {
    let mut spare = Vec::new();
    loop {
        let (mut batch, dropped) = shared.take(std::mem::take(&mut spare));
        // The count stands where the lines are missing: after what came before them.
        if dropped > 0 {
            batch.extend_from_slice(dropped_line(dropped).as_bytes());
        }
        let unwritten = write_lines(&mut out, &batch, is_file);
        // Of what was not written one line is that of the count, which is then still to be told.
        let events = unwritten - u64::from(dropped > 0 && unwritten > 0);
        shared.done(events, if unwritten > 0 { dropped } else { 0 });
        if unwritten > 0 {
            // The reader is gone: a closed pipe fails at once, and trying again without a pause
            // would be all that this thread does.
            std::thread::sleep(BROKEN_PAUSE);
        }
        batch.clear();
        batch.shrink_to(BUFFER_BYTES_KEPT);
        spare = batch;
        std::thread::sleep(GATHER);
    }
}

/// Writes whole lines, in pieces that no other process's lines can come between; how many events
/// were not written.
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

/// As many whole lines as fit; at least one.
fn whole_lines(rest: &[u8], bytes_max: usize) -> &[u8] {
    if rest.len() <= bytes_max {
        return rest;
    }
    match memchr::memrchr(b'\n', &rest[..bytes_max]) {
        Some(at) => &rest[..=at],
        None => &rest[..memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1)],
    }
}

/// `Write::write_all` for descriptors that somebody else may have set to non-blocking.
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
    // An error here shows again at the next write.
    let _ = poll(&mut [PollFd::new(out, PollFlags::OUT)], Some(&second));
}

/// Whether a descriptor is the stream that `JOURNAL_STREAM` names (systemd.exec(5)).
pub(super) fn is_journal(out: &impl AsFd, journal_stream: &str) -> bool {
    rustix::fs::fstat(out)
        .is_ok_and(|stat| format!("{}:{}", stat.st_dev, stat.st_ino) == journal_stream)
}

/// Bytes that wait for the writer; about 10,000 events.
pub(super) const BUFFER_BYTES_MAX: usize = 4 << 20;
/// Bytes of an empty buffer that are kept for the next batch.
const BUFFER_BYTES_KEPT: usize = 256 << 10;
/// Bytes of one write to a file, where an append is never mixed with another.
const FILE_WRITE_BYTES_MAX: usize = 256 << 10;
/// How long events gather before the next write: nobody reads sooner, and each write wakes a thread on a core that mail
/// needs.
const GATHER: Duration = Duration::from_millis(20);
/// How long a reader that is gone is left alone.
const BROKEN_PAUSE: Duration = Duration::from_millis(500);
