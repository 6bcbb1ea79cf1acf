//! Large messages, which are fetched from the queue process in chunks.
//!
//! Must never hold a chunk, or fetch more messages at the same time than the bound allows.

use link::send::{CHUNK_BYTES_MAX, SenderEnd};
use mail::MessageId;
use std::collections::{BTreeMap, VecDeque};

/// The messages that are being fetched, and the attempts that wait for their turn.
#[derive(Debug)]
pub(crate) struct BodyFetches {
    fetches_max: usize,
    under_way: BTreeMap<u64, BodyFetch>,
    waiting: VecDeque<LargeBody>,
}

/// The body of an attempt's message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LargeBody {
    /// The attempt.
    pub attempt: u64,
    /// Its message.
    pub message: MessageId,
    /// The size of the message.
    pub bytes: u64,
}

#[derive(Debug)]
struct BodyFetch {
    body: LargeBody,
    /// The number of bytes that have arrived.
    offset: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The queue process was asked for the chunk at `offset`.
    ExpectChunk,
    /// The driver writes the bytes before `offset`.
    ExpectStaged,
}

/// The effect of a chunk on its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchedChunk {
    /// The chunk was not asked for, or arrived twice. It is ignored.
    Unasked,
    /// The chunk must be staged. `last` is true for the last chunk.
    Stage {
        /// True if the body is complete.
        last: bool,
    },
    /// The body ends before its size.
    TooShort,
}

impl BodyFetches {
    /// Creates an empty table. At most `fetches_max` messages are fetched at the same time.
    pub fn new(fetches_max: usize) -> BodyFetches {
        BodyFetches { fetches_max, under_way: BTreeMap::new(), waiting: VecDeque::new() }
    }

    /// Adds an attempt that needs this body.
    pub fn begin(&mut self, body: LargeBody, queue: &mut SenderEnd) {
        self.waiting.push_back(body);
        self.begin_next(queue);
    }

    fn begin_next(&mut self, queue: &mut SenderEnd) {
        while self.under_way.len() < self.fetches_max.max(1) {
            let Some(body) = self.waiting.pop_front() else { return };
            let fetch = BodyFetch { body, offset: 0, state: State::ExpectChunk };
            fetch.ask(queue);
            self.under_way.insert(body.attempt, fetch);
        }
    }

    /// Asks a new queue process for the chunks that the previous one has not sent.
    pub fn ask_again(&self, queue: &mut SenderEnd) {
        let asked = self.under_way.values().filter(|fetch| fetch.state == State::ExpectChunk);
        asked.for_each(|fetch| fetch.ask(queue));
    }

    /// Records a chunk of `bytes` bytes.
    pub fn chunk(&mut self, attempt: u64, offset: u64, bytes: usize) -> FetchedChunk {
        let Some(fetch) = self.under_way.get_mut(&attempt) else { return FetchedChunk::Unasked };
        if fetch.state != State::ExpectChunk || fetch.offset != offset {
            return FetchedChunk::Unasked;
        }
        if bytes == 0 {
            return FetchedChunk::TooShort;
        }
        fetch.offset += bytes as u64;
        fetch.state = State::ExpectStaged;
        FetchedChunk::Stage { last: fetch.offset >= fetch.body.bytes }
    }

    /// Records that the driver has written a chunk, and asks for the next one.
    pub fn staged(&mut self, attempt: u64, queue: &mut SenderEnd) {
        let Some(fetch) = self.under_way.get_mut(&attempt) else { return };
        if fetch.state == State::ExpectStaged && fetch.offset < fetch.body.bytes {
            fetch.state = State::ExpectChunk;
            fetch.ask(queue);
        }
    }

    /// Removes an attempt whose body is complete or will never be. This is the inverse of
    /// [`BodyFetches::begin`]. Returns whether the body was being fetched.
    pub fn end(&mut self, attempt: u64, queue: &mut SenderEnd) -> bool {
        let ended = self.under_way.remove(&attempt).is_some();
        self.begin_next(queue);
        ended
    }

    /// Begins no further fetches.
    pub fn stop(&mut self) {
        self.waiting.clear();
    }
}

impl BodyFetch {
    fn ask(&self, queue: &mut SenderEnd) {
        let LargeBody { attempt, message, bytes } = self.body;
        let wanted = u64::from(CHUNK_BYTES_MAX).min(bytes - self.offset);
        queue.fetch(attempt, message, self.offset, wanted as u32);
    }
}
