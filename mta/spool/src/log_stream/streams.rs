//! The two streams of a spool: the log, and bulk for large bodies.
//!
//! Must never decide what goes into which stream.

use super::LogStream;
use crate::format::segment::SegmentKind;

/// The two streams.
pub(crate) struct LogStreams {
    log: LogStream,
    bulk: LogStream,
}

impl LogStreams {
    pub(crate) fn new(log: LogStream, bulk: LogStream) -> LogStreams {
        LogStreams { log, bulk }
    }

    pub(crate) fn log(&self) -> &LogStream {
        &self.log
    }

    pub(crate) fn log_mut(&mut self) -> &mut LogStream {
        &mut self.log
    }

    pub(crate) fn bulk(&self) -> &LogStream {
        &self.bulk
    }

    pub(crate) fn of(&mut self, kind: SegmentKind) -> &mut LogStream {
        match kind {
            SegmentKind::Log => &mut self.log,
            SegmentKind::Bulk => &mut self.bulk,
        }
    }

    /// The stream that launched this request.
    pub(crate) fn of_commit(&self, io: u64) -> Option<SegmentKind> {
        let launched = |stream: &LogStream| stream.flights.iter().any(|flight| flight.io == io);
        match (launched(&self.log), launched(&self.bulk)) {
            (true, _) => Some(SegmentKind::Log),
            (false, true) => Some(SegmentKind::Bulk),
            (false, false) => None,
        }
    }

    /// Whether no batch is gathered, waits or is under way.
    pub(crate) fn are_idle(&self) -> bool {
        self.log.is_idle() && self.bulk.is_idle()
    }
}
