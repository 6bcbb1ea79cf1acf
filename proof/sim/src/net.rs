//! Streams between two ends: bytes that take their time, are cut into segments, and stop.
//!
//! Must never change a byte, nor bring two bytes in another order.

use crate::plan::Station;
use mail::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Names a stream.
pub type StreamId = u64;

/// Who holds an end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A client, by its message.
    Client(u32),
    /// The session of a client in a receiving process.
    Session(u16),
    /// Queue, towards this process.
    Queue(Station),
    /// A receiving or sending process, towards queue.
    Station(Station),
    /// A line of a sending process.
    Line(u16),
    /// A next hop, by its domain.
    Sink(u8),
}

impl End {
    /// Which of our processes holds it.
    pub fn station(self) -> Option<Station> {
        match self {
            End::Session(instance) => Some(Station::Receive(instance)),
            End::Queue(_) => Some(Station::Queue),
            End::Station(station) => Some(station),
            End::Line(instance) => Some(Station::Send(instance)),
            End::Client(_) | End::Sink(_) => None,
        }
    }
}

/// What arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Bytes.
    Bytes(Vec<u8>),
    /// Nothing more will come; the other way is still open.
    Fin,
    /// The connection is gone.
    Reset,
}

#[derive(Debug, Default)]
struct Pipe {
    segments: VecDeque<(Instant, Segment)>,
    last: Instant,
    ended: bool,
}

/// A stream. What side 0 writes arrives at side 1, and the other way round.
#[derive(Debug)]
pub struct Stream {
    /// Who holds each side; `None`: nobody any more.
    pub ends: [Option<End>; 2],
    /// From its beginning, who held each side.
    pub were: [End; 2],
    pipes: [Pipe; 2],
    delay: Duration,
}

/// All streams.
#[derive(Debug, Default)]
pub struct Net {
    streams: BTreeMap<StreamId, Stream>,
    next: StreamId,
}

impl Net {
    /// Opens a stream whose bytes take this long.
    pub fn open(&mut self, ends: [End; 2], delay: Duration) -> StreamId {
        self.next += 1;
        let ends_now = ends.map(Some);
        let pipes = Default::default();
        self.streams.insert(self.next, Stream { ends: ends_now, were: ends, pipes, delay });
        self.next
    }

    /// A stream that is still there.
    pub fn get(&self, stream: StreamId) -> Option<&Stream> {
        self.streams.get(&stream)
    }

    /// Puts a segment on its way; says when it arrives at the other side.
    pub fn put(
        &mut self,
        stream: StreamId,
        side: usize,
        segment: Segment,
        more: Duration,
        now: Instant,
    ) -> Option<Instant> {
        let found = self.streams.get_mut(&stream)?;
        let arrives = (now + found.delay + more).max(found.pipes[side].last);
        let pipe = &mut found.pipes[side];
        if pipe.ended {
            return None;
        }
        pipe.ended = !matches!(segment, Segment::Bytes(_));
        pipe.last = arrives;
        pipe.segments.push_back((arrives, segment));
        Some(arrives)
    }

    /// What has arrived for this side by now, one segment.
    pub fn take(&mut self, stream: StreamId, side: usize, now: Instant) -> Option<Segment> {
        let found = self.streams.get_mut(&stream)?;
        let pipe = &mut found.pipes[1 - side];
        if pipe.segments.front().is_some_and(|(at, _)| *at <= now) {
            return pipe.segments.pop_front().map(|(_, segment)| segment);
        }
        None
    }

    /// Loses all but this number of the segments that a side has written and that are on their way. If the end of the
    /// stream is among the lost segments, the side can end it again, as a machine resets a connection that it forgot.
    pub fn lose(&mut self, stream: StreamId, side: usize, keep: usize) {
        let Some(found) = self.streams.get_mut(&stream) else { return };
        let pipe = &mut found.pipes[side];
        let lost = pipe.segments.drain(keep.min(pipe.segments.len())..);
        if lost.into_iter().any(|(_, segment)| !matches!(segment, Segment::Bytes(_))) {
            pipe.ended = false;
        }
    }

    /// Segments on their way from this side.
    pub fn under_way(&self, stream: StreamId, side: usize) -> usize {
        self.streams.get(&stream).map_or(0, |found| found.pipes[side].segments.len())
    }

    /// A side lets go.
    pub fn let_go(&mut self, stream: StreamId, side: usize) {
        let Some(found) = self.streams.get_mut(&stream) else { return };
        found.ends[side] = None;
        found.pipes[1 - side].segments.clear();
        found.pipes[1 - side].ended = true;
        if found.ends == [None, None] {
            self.streams.remove(&stream);
        }
    }

    /// All streams with an end in these processes.
    pub fn held_by(&self, held: impl Fn(End) -> bool) -> Vec<(StreamId, usize)> {
        let sides = self
            .streams
            .iter()
            .flat_map(|(id, stream)| (0..2).map(move |side| (*id, side, stream.ends[side])));
        sides.filter(|(_, _, end)| end.is_some_and(&held)).map(|(id, side, _)| (id, side)).collect()
    }
}
