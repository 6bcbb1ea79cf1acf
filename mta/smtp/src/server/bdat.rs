//! BDAT (RFC 3030 2): the body in counted chunks. BINARYMIME is not offered, so lines must be
//! lines here too: what comes by BDAT goes on by DATA.
//!
//! Must never lose count: each announced octet is read before the reply, wanted or not.

use super::body::Body;
use super::session::{Asked, Session, State};
use super::{Event, replies};
use mail::{Enhanced, Instant, Reply};

/// A chunk that is being read.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Octets still to come.
    left: u64,
    fate: Fate,
}

#[derive(Debug)]
enum Fate {
    /// Goes to the body.
    Keep { body: Body, size: u64, last: bool },
    /// Read and dropped; then this is said.
    Skip { reply: Reply, why: Skipped },
}

/// Why a chunk is read and dropped: how its reply counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Skipped {
    /// A mistake of the client's.
    Wrong,
    /// The driver's refusal.
    Refused,
}

impl Chunk {
    /// The body that it belongs to, if it is kept.
    pub(super) fn body(&mut self) -> Option<&mut Body> {
        match &mut self.fate {
            Fate::Keep { body, .. } => Some(body),
            Fate::Skip { .. } => None,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match &self.fate {
            Fate::Keep { body, .. } => body.memory_bytes(),
            Fate::Skip { .. } => 0,
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
        let chunk = Chunk { left: size, fate: Fate::Keep { body, size, last } };
        self.go_on(chunk);
    }

    /// Reads and drops a chunk, then says `reply`.
    pub(super) fn skip_chunk(&mut self, size: u64, reply: Reply, why: Skipped) {
        self.go_on(Chunk { left: size, fate: Fate::Skip { reply, why } });
    }

    pub(super) fn read_chunk(&mut self, mut chunk: Chunk, bytes: &[u8], now: Instant) -> usize {
        let left = usize::try_from(chunk.left).unwrap_or(usize::MAX);
        let piece = &bytes[..bytes.len().min(left)];
        let used = match &mut chunk.fate {
            Fate::Keep { body, last, .. } => {
                let used = body.take(piece, &self.server.settings).used;
                // The last piece stays for the end, full or not: there is one event at a time.
                if !(*last && used as u64 == chunk.left) {
                    self.pass_on(body);
                }
                used
            }
            Fate::Skip { .. } => piece.len(),
        };
        self.clock.bytes(used, now);
        chunk.left -= used as u64;
        self.go_on(chunk);
        used
    }

    /// Waits for the rest of the chunk, or says what is to be said after it.
    fn go_on(&mut self, chunk: Chunk) {
        if chunk.left > 0 {
            self.state = State::ExpectChunk(chunk);
            return;
        }
        self.state = State::ExpectCommand;
        match chunk.fate {
            Fate::Skip { reply, why } => {
                self.clock.end_body();
                match why {
                    Skipped::Wrong => self.wrong(&reply),
                    Skipped::Refused => {
                        self.say_reply(&reply);
                        self.count_refusal();
                    }
                }
            }
            Fate::Keep { mut body, last: true, .. } => {
                body.end_raw();
                self.body_ended(body);
            }
            Fate::Keep { body, size, .. } => self.chunk_kept(body, size),
        }
    }

    /// A refused body is said so at the end of the chunk; the chunks that are under way behind
    /// it find no transaction, and are skipped.
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
