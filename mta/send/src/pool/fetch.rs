//! Messages that come from the queue process in chunks.
//!
//! Must never give a connection bytes that it has not asked for, or the same bytes twice.

use super::{ConnectionId, ConnectionPool, Output};
use crate::attempt::OpenAttempt;
use bytes::Bytes;
use mail::MessageId;

/// Bytes that a connection has asked the queue process for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch {
    attempt: u64,
    message: MessageId,
    offset: u64,
    bytes: u32,
}

/// Bytes of a message, or `None` if the spool cannot read them.
#[derive(Debug)]
pub(crate) struct PoolChunk {
    pub attempt: u64,
    pub bytes: Option<Bytes>,
}

impl ConnectionPool {
    /// Asks the queue process for bytes of a message, for a connection.
    pub(crate) fn fetch(&mut self, id: ConnectionId, of: &OpenAttempt, offset: u64, bytes: u32) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let (attempt, message) = (of.id, of.message);
        member.fetching = Some(Fetch { attempt, message, offset, bytes });
        self.fetchers.insert(attempt, id);
        self.end.fetch(attempt, message, offset, bytes);
    }

    /// Repeats all open requests to a new queue process.
    pub(super) fn fetch_again(&mut self) {
        for id in self.fetchers.values() {
            if let Some(fetch) = self.members.get(id).and_then(|member| member.fetching) {
                self.end.fetch(fetch.attempt, fetch.message, fetch.offset, fetch.bytes);
            }
        }
    }

    /// Takes the answer to a fetch. Ignores a second answer, which can come after a fetch was repeated over a new stream.
    pub(super) fn chunk(&mut self, attempt: u64, chunk: Option<(u64, Bytes)>) {
        let Some(id) = self.fetchers.get(&attempt).copied() else { return };
        let Some(member) = self.members.get_mut(&id) else { return };
        let asked = member.fetching.filter(|fetch| fetch.attempt == attempt);
        let is_asked_for = match &chunk {
            Some((offset, _)) => asked.is_some_and(|fetch| fetch.offset == *offset),
            None => asked.is_some(),
        };
        if is_asked_for {
            member.fetching = None;
            member.chunk = Some(PoolChunk { attempt, bytes: chunk.map(|(_, bytes)| bytes) });
            self.outputs.push_back(Output::Wake(id));
        }
    }

    pub(crate) fn take_chunk(&mut self, id: ConnectionId) -> Option<PoolChunk> {
        self.members.get_mut(&id)?.chunk.take()
    }
}
