//! An incoming body: removes the framing, counts the octets, checks the limits, and cuts chunks.
//!
//! Must never hold more than one chunk, and never return a byte after a flaw was found.

use super::header::HeaderScan;
use super::{BodyEnd, Settings};
use crate::framing::{BareLf, Flaw, GROWTH_BYTES_MAX, Taken, Unstuffer};
use mail::{Enhanced, Reply};

/// The body of the current transaction.
#[derive(Debug)]
pub(super) struct Body {
    framing: Unstuffer,
    header: HeaderScan,
    chunk: Vec<u8>,
    bytes: u64,
    eight_bit: bool,
    /// The reply at the end of a body that the driver has no room for.
    dropped: Option<Reply>,
}

impl Body {
    /// The body after DATA.
    pub(super) fn dotted(bare_lf: BareLf) -> Body {
        Body::new(Unstuffer::dotted(bare_lf))
    }

    /// The body of all BDAT chunks of a transaction.
    pub(super) fn raw(bare_lf: BareLf) -> Body {
        Body::new(Unstuffer::raw(bare_lf))
    }

    fn new(framing: Unstuffer) -> Body {
        Body {
            framing,
            header: HeaderScan::default(),
            chunk: Vec::new(),
            bytes: 0,
            eight_bit: false,
            dropped: None,
        }
    }

    /// Takes the bytes that fit into the chunk.
    pub(super) fn take(&mut self, bytes: &[u8], settings: &Settings) -> Taken {
        let room = self.room(settings);
        let before = self.chunk.len();
        self.grow((bytes.len() * growth_bytes_max(settings)).min(room), room);
        let taken = self.framing.take_within(bytes, room, &mut self.chunk);
        let new = &self.chunk[before..];
        self.bytes += new.len() as u64;
        self.header.look(new);
        self.eight_bit |= !new.is_ascii();
        if self.is_refused(settings) {
            self.chunk = Vec::new();
        }
        taken
    }

    /// Reserves memory for `bytes` more in the chunk. The capacity doubles as that of `Vec` does, but never exceeds the
    /// remaining `room`: the driver relies on this bound.
    fn grow(&mut self, bytes: usize, room: usize) {
        if self.chunk.capacity() - self.chunk.len() < bytes {
            self.chunk.reserve_exact(bytes.max(self.chunk.len()).min(room));
        }
    }

    /// Discards the body. Its end is answered with `reply`, unless the body has a fault.
    pub(super) fn drop_with(&mut self, reply: &Reply) {
        self.chunk = Vec::new();
        self.dropped = Some(reply.clone());
    }

    /// True if [`Body::drop_with`] was called.
    pub(super) fn is_dropped(&self) -> bool {
        self.dropped.is_some()
    }

    /// Records the end of the last BDAT chunk.
    pub(super) fn end_raw(&mut self) {
        self.framing.end_raw();
    }

    /// Returns the chunk if it is full.
    pub(super) fn full_chunk(&mut self, settings: &Settings) -> Option<Vec<u8>> {
        let full = self.room(settings) < growth_bytes_max(settings);
        full.then(|| std::mem::take(&mut self.chunk))
    }

    /// Returns the number of bytes that the chunk still has room for.
    fn room(&self, settings: &Settings) -> usize {
        settings.body_chunk_bytes.max(growth_bytes_max(settings)) - self.chunk.len()
    }

    /// Returns the bytes of the last chunk and the totals.
    pub(super) fn end(self) -> BodyEnd {
        BodyEnd {
            tail: self.chunk,
            bytes: self.bytes,
            hops: self.header.hops,
            delivered_to: self.header.delivered_to(),
            eight_bit: self.eight_bit,
        }
    }

    /// Returns the memory that the chunk and the scan of the header section take, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.chunk.capacity() + self.header.memory_bytes()
    }

    /// True if the body will be refused. The session still reads it to its end.
    pub(super) fn is_refused(&self, settings: &Settings) -> bool {
        self.dropped.is_some() || self.fault(settings).is_some()
    }

    /// Returns the reply to a body that is refused.
    pub(super) fn refusal(&self, settings: &Settings) -> Option<Reply> {
        let Some(fault) = self.fault(settings) else { return self.dropped.clone() };
        let (code, enhanced, text) = match fault {
            BodyFault::Framing(Flaw::BareCr) => {
                (550, Enhanced(5, 5, 2), "Error: bare <CR> received")
            }
            BodyFault::Framing(Flaw::BareLf) => {
                (550, Enhanced(5, 5, 2), "Error: bare <LF> received")
            }
            BodyFault::Framing(Flaw::Nul) => (550, Enhanced(5, 5, 2), "Error: NUL received"),
            BodyFault::TooBig => (552, Enhanced(5, 3, 4), "Error: message file too big"),
            BodyFault::HeaderTooBig => (552, Enhanced(5, 3, 4), "Error: message header too big"),
            BodyFault::TooManyHops => (554, Enhanced(5, 4, 6), "Error: too many hops"),
            BodyFault::LineTooLong => (554, Enhanced(5, 6, 0), "Error: line too long in message"),
        };
        Some(Reply::new(code, enhanced, text))
    }

    /// Returns the fault to report. If the body has several faults, the choice does not depend on the
    /// order in which they were found, because that order depends on how the bytes were cut.
    fn fault(&self, settings: &Settings) -> Option<BodyFault> {
        match self.framing.flaw() {
            Some(flaw) => Some(BodyFault::Framing(flaw)),
            None if self.bytes > settings.message_bytes_max => Some(BodyFault::TooBig),
            None if self.header.bytes > settings.header_bytes_max => Some(BodyFault::HeaderTooBig),
            None if self.header.hops >= settings.hops_max => Some(BodyFault::TooManyHops),
            None => self.line_too_long(settings).then_some(BodyFault::LineTooLong),
        }
    }

    fn line_too_long(&self, settings: &Settings) -> bool {
        settings.line_bytes_max.is_some_and(|max| self.framing.line_bytes_longest() > max)
    }
}

/// Upper bound on the bytes that one byte of a body adds to a chunk. A chunk with less room is full.
fn growth_bytes_max(settings: &Settings) -> usize {
    match settings.bare_lf {
        BareLf::Refuse => 1,
        BareLf::Normalize => GROWTH_BYTES_MAX,
    }
}

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFault {
    Framing(Flaw),
    TooBig,
    HeaderTooBig,
    TooManyHops,
    LineTooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r211_a_chunk_takes_no_more_memory_than_its_bound_however_it_is_cut() {
        for (bare_lf, line) in [(BareLf::Refuse, "xx"), (BareLf::Normalize, "x\n")] {
            let hostname = mail::Domain::parse("mx.test").unwrap();
            let settings = Settings { bare_lf, ..Settings::for_tests(hostname) };
            let most = settings.body_chunk_bytes;
            let text = line.repeat(most);
            for cut in [1, 1_000, 1_460, 40_000, most] {
                let (mut body, mut rest) = (Body::dotted(bare_lf), text.as_bytes());
                while body.full_chunk(&settings).is_none() {
                    let taken = body.take(&rest[..cut.min(rest.len())], &settings);
                    rest = &rest[taken.used..];
                    let capacity = body.chunk.capacity();
                    assert!(capacity <= most, "{capacity} by {cut}");
                }
            }
        }
    }
}
