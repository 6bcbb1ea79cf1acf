//! The connection pool of a sending process: its link to the queue process, the attempts that wait for a connection, and the
//! limits on connections.
//!
//! Must never lose an attempt. Each attempt waits, is on a connection, or has a result that is repeated until queue has
//! recorded it.

mod fetch;
mod room;

use crate::attempt::{EndedAttempt, OpenAttempt, WaitingAttempt};
use crate::connection::PooledConnection;
use crate::hops::{HopId, Hops};
use crate::settings::Settings;
use bytes::{Bytes, BytesMut};
use delivery::DeadAddresses;
use fetch::{Fetch, PoolChunk};
use link::LinkError;
use link::send::{SenderEnd, SenderEvent};
use mail::{Instant, Now, Outcome};
use smtp::client::OutboundMessage;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time for which an idle connection is kept while other next hops wait for a connection. The queue process sends the next
/// message only after the outcome of the last one.
pub const IDLE_GRACE: Duration = Duration::from_millis(20);

/// Maximum time for which a drain waits for attempts that have begun. The queue process makes the others again.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(8);

/// Id of a connection in the pool. No id is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What happens to a pool.
#[derive(Debug)]
pub enum Input<'a> {
    /// There is a new stream to a queue process. It replaces the former one.
    Connected,
    /// Bytes came from the queue process.
    Received(&'a mut BytesMut),
    /// The stream to the queue process has ended.
    Disconnected,
    /// The process must end: it finishes what has begun, and begins nothing.
    Drain,
    /// The time of `next_wakeup` has come.
    Timeout,
}

/// What the driver must do, besides sending what `transmit` returns.
#[derive(Debug)]
pub enum Output {
    /// Run this connection until it has finished, then close it.
    Open(Box<PooledConnection>),
    /// Poll this connection.
    Wake(ConnectionId),
    /// An attempt has ended: write it to the log.
    Ended(EndedAttempt),
}

/// What the pool knows about a connection.
#[derive(Debug, Default)]
struct Member {
    /// The bytes that the connection has asked the queue process for.
    fetching: Option<Fetch>,
    /// The answer to the last fetch, until the connection takes it.
    chunk: Option<PoolChunk>,
    /// The place in the order of idle connections, and since when the connection is idle.
    idle: Option<(u64, Instant)>,
    /// Another next hop needs the place of this connection.
    must_end: bool,
}

/// The stream to the queue process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueStream {
    Connected,
    Lost,
}

/// The connections of a process, and the attempts that it has.
#[derive(Debug)]
pub struct ConnectionPool {
    settings: Settings,
    end: SenderEnd,
    stream: QueueStream,
    /// Addresses of next hops that did not answer, shared by all connections.
    dead: DeadAddresses,
    hops: Hops,
    members: BTreeMap<ConnectionId, Member>,
    next_connection: u64,
    /// Connections without work, the one that has been idle for longest first.
    idle: BTreeMap<u64, ConnectionId>,
    next_idle: u64,
    /// Next hops that wait because there are as many connections as allowed, the one that has waited for longest first.
    starved: VecDeque<HopId>,
    /// Number of connections that end in favour of a starved next hop.
    ending: usize,
    /// The connection of each attempt that fetches its message.
    fetchers: BTreeMap<u64, ConnectionId>,
    /// Latest end of the drain, if a drain has begun.
    drain_ends: Option<Instant>,
    outputs: VecDeque<Output>,
}

impl ConnectionPool {
    /// Creates a pool without a queue process.
    pub fn new(settings: Settings) -> ConnectionPool {
        let Settings { build, incarnation, attempts_max, .. } = settings;
        ConnectionPool {
            end: SenderEnd::new(build, incarnation, attempts_max),
            settings,
            stream: QueueStream::Lost,
            dead: DeadAddresses::default(),
            hops: Hops::default(),
            members: BTreeMap::new(),
            next_connection: 0,
            idle: BTreeMap::new(),
            next_idle: 0,
            starved: VecDeque::new(),
            ending: 0,
            fetchers: BTreeMap::new(),
            drain_ends: None,
            outputs: VecDeque::new(),
        }
    }

    /// Takes what has happened.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue process may not send these bytes: the driver ends the stream and reports
    /// `Disconnected`.
    pub fn handle(&mut self, input: Input<'_>, now: Now) -> Result<(), LinkError> {
        match input {
            Input::Connected => {
                self.stream = QueueStream::Connected;
                self.end.connected();
                self.fetch_again();
            }
            Input::Received(bytes) => return self.receive(bytes, now),
            Input::Disconnected => self.stream = QueueStream::Lost,
            Input::Drain => self.drain(now),
            Input::Timeout => self.make_room(now),
        }
        Ok(())
    }

    fn receive(&mut self, input: &mut BytesMut, now: Now) -> Result<(), LinkError> {
        let handled = self.end.handle(input);
        while let Some(event) = self.end.poll() {
            match event {
                SenderEvent::Attempt { attempt, body } => {
                    let (hop, waiting) = WaitingAttempt::new(*attempt, body, now);
                    self.enqueue(hop, waiting, now);
                }
                SenderEvent::Chunk { attempt, offset, bytes } => {
                    self.chunk(attempt, Some((offset, bytes)));
                }
                SenderEvent::ChunkBad { attempt } => self.chunk(attempt, None),
            }
        }
        handled
    }

    /// Returns the next thing to do. The driver calls this after each call that lends the pool.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the frames for the queue process, in order. The driver removes what it has sent.
    pub fn transmit(&mut self) -> &mut VecDeque<Bytes> {
        self.end.transmit()
    }

    /// Returns when the driver must report `Input::Timeout`.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let needs_room = self.starved.len() > self.ending;
        let longest = self.idle.values().next().filter(|_| needs_room);
        let idle = longest.and_then(|id| self.members.get(id)?.idle);
        let room = idle.map(|(_, since)| since + IDLE_GRACE);
        [room, self.drain_ends].into_iter().flatten().min()
    }

    /// Returns true if the process may end after [`Input::Drain`]: all that was begun has ended and queue was told, or the
    /// time of the drain is over.
    pub fn is_drained(&self, now: Instant) -> bool {
        let Some(ends) = self.drain_ends else { return false };
        let is_told = match self.stream {
            QueueStream::Connected => !self.end.has_output(),
            QueueStream::Lost => !self.end.has_results(),
        };
        now >= ends || (self.members.is_empty() && is_told)
    }

    /// Returns true if the process was told to end.
    pub fn is_draining(&self) -> bool {
        self.drain_ends.is_some()
    }

    /// Returns the number of connections that are open or being opened.
    pub fn connections(&self) -> usize {
        self.members.len()
    }

    /// Returns the conversation with the queue process.
    pub fn queue(&self) -> &SenderEnd {
        &self.end
    }
}

/// Attempts and connections.
impl ConnectionPool {
    fn enqueue(&mut self, hop: mail::NextHop, waiting: WaitingAttempt, now: Now) {
        let (id, hop) = self.hops.named(hop);
        hop.waiting.push_back(waiting);
        match hop.idle.pop() {
            Some(connection) => {
                self.leave_idle(connection);
                self.outputs.push_back(Output::Wake(connection));
            }
            None => self.open(id, now),
        }
    }

    /// Opens a connection if an attempt waits and the limits allow it. A process that drains begins nothing: another process
    /// makes the attempts that wait.
    fn open(&mut self, id: HopId, now: Now) {
        let Some(hop) = self.hops.get_mut(id) else { return };
        if self.drain_ends.is_some() || !hop.wants_connection() {
            return;
        }
        if self.members.len() >= self.settings.connections_max {
            self.starve(id);
            return self.make_room(now);
        }
        let Some(first) = hop.waiting.pop_front() else { return };
        hop.connections += 1;
        let connection = ConnectionId(self.next_connection);
        self.next_connection += 1;
        self.members.insert(connection, Member::default());
        let dead = self.dead.clone();
        let new =
            PooledConnection::new(connection, (id, &hop.name), first, &self.settings, dead, now);
        self.outputs.push_back(Output::Open(Box::new(new)));
    }

    /// Removes a connection. The next hop that has waited for longest may open another one; the next hop of this connection
    /// waits behind the others.
    pub(crate) fn closed(&mut self, id: ConnectionId, of: HopId, greeted: bool, now: Now) {
        self.not_idle(id, of);
        let Some(member) = self.members.remove(&id) else { return };
        self.ending -= usize::from(member.must_end);
        if let Some(hop) = self.hops.get_mut(of) {
            hop.connections -= 1;
            hop.greeted -= u32::from(greeted);
        }
        self.hops.forget_if_unused(of);
        self.starve(of);
        while self.members.len() < self.settings.connections_max && self.is_starved() {
            if let Some(next) = self.next_starved() {
                self.open(next, now);
                // More attempts may wait than one connection carries. They wait for the next free connection.
                self.starve(next);
            }
        }
    }

    /// Takes the next attempt for a connection to this next hop.
    pub(crate) fn next(&mut self, hop: HopId) -> Option<WaitingAttempt> {
        if self.drain_ends.is_some() {
            return None;
        }
        self.hops.get_mut(hop)?.waiting.pop_front()
    }

    /// Returns a message of which the peer has seen nothing. The next connection takes it first.
    pub(crate) fn put_back(&mut self, hop: HopId, waiting: WaitingAttempt) {
        if let Some(hop) = self.hops.get_mut(hop) {
            hop.waiting.push_front(waiting);
        }
    }

    /// Notes that a next hop has greeted us. From now on, each connection to it fails alone.
    pub(crate) fn greeted(&mut self, hop: HopId) {
        if let Some(hop) = self.hops.get_mut(hop) {
            hop.greeted += 1;
        }
    }

    /// Gives the outcome of an unreached next hop to all attempts that wait there, unless another connection was greeted.
    pub(crate) fn fail_waiting(&mut self, hop: HopId, outcome: &Outcome, now: Now) {
        let waiting = match self.hops.get_mut(hop) {
            Some(hop) if hop.greeted == 0 => std::mem::take(&mut hop.waiting),
            _ => return,
        };
        for WaitingAttempt { attempt, message } in waiting {
            let outcomes = vec![outcome.clone(); message.recipients.len()];
            self.ended(attempt, message, outcomes, now, now);
        }
    }

    /// Reports the outcomes of an attempt to the queue process and the log.
    pub(crate) fn ended(
        &mut self,
        mut attempt: OpenAttempt,
        message: Box<OutboundMessage>,
        outcomes: Vec<Outcome>,
        begun: Now,
        ended: Now,
    ) {
        self.fetchers.remove(&attempt.id);
        let outcomes = std::mem::take(&mut attempt.indices).into_iter().zip(outcomes).collect();
        let result = link::send::Result { attempt: attempt.id, message: attempt.message, outcomes };
        let link::send::Result { outcomes, .. } = self.end.result(result);
        let ended = EndedAttempt { attempt, message, outcomes, begun, ended };
        self.outputs.push_back(Output::Ended(ended));
    }

    fn drain(&mut self, now: Now) {
        if self.drain_ends.is_none() {
            self.drain_ends = Some(now.monotonic + DRAIN_TIME_MAX);
            self.end.drain();
            self.outputs.extend(self.members.keys().map(|id| Output::Wake(*id)));
        }
    }

    #[cfg(test)]
    pub(crate) fn hops(&self) -> usize {
        self.hops.len()
    }
}
