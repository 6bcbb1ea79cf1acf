//! BDAT (RFC 3030 2): the body in chunks of announced size.
//!
//! BINARYMIME is not offered, and a message received by BDAT may be sent by DATA. Bare line ends are
//! therefore treated in chunks as in DATA.
//!
//! Must never lose count: each announced octet is read before the reply, even if the chunk is refused.

use super::body::Body;
use super::session::{Asked, Session, State};
use super::{Event, replies};
use mail::{Enhanced, Instant, Reply};

/// A BDAT chunk that is being read.
#[derive(Debug)]
pub(super) struct BdatChunk {
    /// Octets still to come.
    left: u64,
    planned: ChunkUse,
}

#[derive(Debug)]
enum ChunkUse {
    /// Add it to the body.
    Keep { body: Body, size: u64, last: bool },
    /// Discard it, then send this reply.
    Skip { reply: Reply, why: Skipped },
}

/// Why a chunk is discarded, which decides how its reply counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Skipped {
    /// The client made an error.
    Wrong,
    /// The driver refused the body.
    Refused,
}

impl BdatChunk {
    /// Returns the body that the chunk is added to, or `None` if the chunk is discarded.
    pub(super) fn body(&mut self) -> Option<&mut Body> {
        match &mut self.planned {
            ChunkUse::Keep { body, .. } => Some(body),
            ChunkUse::Skip { .. } => None,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match &self.planned {
            ChunkUse::Keep { body, .. } => body.memory_bytes(),
            ChunkUse::Skip { .. } => 0,
        }
    }
}

impl Session {
    pub(super) fn bdat(&mut self, size: u64, last: bool) {
        let Some(transaction) = &mut self.transaction else {
            return self.skip_chunk(
                size,
                replies::out_of_order("Error: need RCPT command"),
                Skipped::Wrong,
            );
        };
        if transaction.recipients == 0 {
            return self.skip_chunk(size, replies::no_recipients(), Skipped::Wrong);
        }
        match transaction.chunked.take() {
            Some(body) => self.keep_chunk(body, size, last),
            None => self.ask(Event::Data, Asked::Chunk { size, last }),
        }
    }

    pub(super) fn first_chunk_accepted(&mut self, size: u64, last: bool, now: Instant) {
        self.clock.begin_body(now);
        self.keep_chunk(Body::raw(self.settings().bare_lf), size, last);
    }

    fn keep_chunk(&mut self, body: Body, size: u64, last: bool) {
        let chunk = BdatChunk { left: size, planned: ChunkUse::Keep { body, size, last } };
        self.go_on(chunk);
    }

    /// Reads and discards a chunk, then sends `reply`.
    pub(super) fn skip_chunk(&mut self, size: u64, reply: Reply, why: Skipped) {
        self.go_on(BdatChunk { left: size, planned: ChunkUse::Skip { reply, why } });
    }

    pub(super) fn read_chunk(&mut self, mut chunk: BdatChunk, bytes: &[u8], now: Instant) -> usize {
        let left = usize::try_from(chunk.left).unwrap_or(usize::MAX);
        let piece = &bytes[..bytes.len().min(left)];
        let used = match &mut chunk.planned {
            ChunkUse::Keep { body, last, .. } => {
                let used = body.take(piece, &self.server.settings).used;
                // The session has room for one event. `body_ended` reports the last piece in `BodyEnd`, so
                // a chunk that it fills is not reported here.
                if !(*last && used as u64 == chunk.left) {
                    self.pass_on(body);
                }
                used
            }
            ChunkUse::Skip { .. } => piece.len(),
        };
        self.clock.bytes(used, now);
        chunk.left -= used as u64;
        self.go_on(chunk);
        used
    }

    /// Waits for the rest of the chunk, or answers a complete chunk.
    fn go_on(&mut self, chunk: BdatChunk) {
        if chunk.left > 0 {
            self.state = State::ExpectChunk(chunk);
            return;
        }
        self.state = State::ExpectCommand;
        match chunk.planned {
            ChunkUse::Skip { reply, why } => {
                self.clock.end_body();
                match why {
                    Skipped::Wrong => self.wrong(&reply),
                    Skipped::Refused => {
                        self.say_reply(&reply);
                        self.count_refusal();
                    }
                }
            }
            ChunkUse::Keep { mut body, last: true, .. } => {
                body.end_raw();
                self.body_ended(body);
            }
            ChunkUse::Keep { body, size, .. } => self.chunk_kept(body, size),
        }
    }

    /// Answers a chunk that is not the last one. If the body is refused, the transaction ends here;
    /// chunks that the client has already sent find no transaction and are discarded.
    fn chunk_kept(&mut self, body: Body, size: u64) {
        if let Some(reply) = body.refusal(&self.server.settings) {
            self.doom();
            self.say_reply(&reply);
            self.forget_transaction();
            return self.count_refusal();
        }
        let text = format!("Ok: {size} bytes");
        self.say_reply(&Reply::new(250, Enhanced(2, 0, 0), text));
        if let Some(transaction) = &mut self.transaction {
            transaction.chunked = Some(body);
        }
        if size == 0 {
            self.count_idle();
        }
    }
}
