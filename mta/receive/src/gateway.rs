//! What all clients of one receive process share: the link to queue, the policy, the memory, the connection limits.
//!
//! Must never end a session that is open, except by its own timeouts.

use crate::clients::Clients;
use crate::memory::{MemoryUse, Share};
use crate::queue_client::QueueClient;
use crate::{InboundSession, Listener, Output, Settings};
use bytes::{Bytes, BytesMut};
use link::LinkError;
use link::receive::{MemoryShortage, SessionMemory};
use mail::{Enhanced, Instant, Now, Reply};
use policy::{ConnectionLimiter, Policy, Short};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

/// Between two looks at the memory and at the queue process.
const LOOK_WAIT: Duration = Duration::from_secs(1);
/// While memory is short, every client is polled once in this time, to see whether it has taken too long.
const STRESS_LOOK_WAIT: Duration = Duration::from_secs(5);

/// What happens to a gateway.
#[derive(Debug)]
pub enum Input<'a> {
    /// There is a stream to a queue process.
    Connected,
    /// Bytes came from the queue process.
    Received(&'a mut BytesMut),
    /// The stream to the queue process has ended.
    Disconnected,
    /// The process must end: each client finishes its transaction and gets a 421.
    Shutdown,
}

/// What the clients of one process share.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) queue: QueueClient,
    pub(crate) policy: Policy,
    pub(crate) memory: MemoryUse,
    pub(crate) clients: Clients,
    pub(crate) connections: ConnectionLimiter,
    settings: Settings,
    is_stopping: bool,
    look_at: Instant,
    stress_look_at: Instant,
    /// What this queue process was told about the memory of sessions.
    told: SessionMemory,
    /// Memory was short at the last look.
    is_short: bool,
}

impl Gateway {
    /// Creates a gateway without a queue process. `incarnation` is drawn at random when the process starts.
    pub fn new(
        (build, incarnation): (u64, u64),
        policy: Policy,
        settings: Settings,
        now: Instant,
    ) -> Gateway {
        let mut gateway = Gateway {
            queue: QueueClient::new(build, incarnation, now),
            policy,
            memory: MemoryUse::default(),
            clients: Clients::default(),
            connections: ConnectionLimiter::default(),
            settings,
            is_stopping: false,
            look_at: now,
            stress_look_at: now,
            told: SessionMemory::default(),
            is_short: false,
        };
        gateway.bound(settings);
        gateway
    }

    /// Replaces the policy and the settings, also for open sessions.
    pub fn reload(&mut self, policy: Policy, settings: Settings) {
        self.policy = policy;
        self.bound(settings);
        self.clients.wake_credit_waiters();
    }

    fn bound(&mut self, settings: Settings) {
        self.settings = settings;
        self.memory.bound(settings.session_memory_bytes_max);
        let in_transit_bytes_max = self.memory.in_transit_bytes_max();
        self.queue.bound(settings.commit_timeout, in_transit_bytes_max);
    }

    /// Admits a client that has connected. Its greeting is in [`InboundSession::transmit`].
    ///
    /// # Errors
    ///
    /// Returns the 421 reply that the client gets instead of a greeting.
    pub fn admit(
        &mut self,
        listener: &Listener,
        address: Option<IpAddr>,
        now: Now,
    ) -> Result<InboundSession, Reply> {
        let client = policy::Client { address, trusted: listener.all_trusted };
        let trusted = self.policy.is_trusted(client);
        let in_transit = self.queue.in_transit_bytes();
        let Some(mut share) = self.memory.enter(address, trusted, in_transit) else {
            let text = "too much mail is being taken in; try again later";
            return Err(Reply::new(421, Enhanced(4, 3, 2), text));
        };
        let caller = listener.caller(address);
        match self.connections.opened(listener.limits, &listener.address, caller, trusted) {
            Ok(connection) => {
                let place = (self.clients.add(), connection, share);
                Ok(InboundSession::new(client, listener.server(trusted), place, now))
            }
            Err(reply) => {
                self.memory.leave(&mut share);
                Err(reply)
            }
        }
    }

    /// Returns true if the process was told to end, and every connection has ended.
    pub fn is_drained(&self) -> bool {
        self.is_stopping && self.connections.open() == 0
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> u32 {
        self.connections.open()
    }

    /// Returns the bytes of bodies and envelopes that the queue process has not taken or answered.
    pub fn in_transit_bytes(&self) -> u64 {
        self.queue.in_transit_bytes()
    }

    /// Takes what has happened.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue process may not send these bytes: the driver ends the stream.
    pub fn handle(&mut self, input: Input<'_>, now: Instant) -> Result<(), LinkError> {
        match input {
            Input::Connected => {
                self.told = SessionMemory::default();
                self.queue.connected(now);
            }
            Input::Received(bytes) => return self.queue.received(bytes, now),
            Input::Disconnected => self.queue.disconnected(now),
            Input::Shutdown => {
                self.is_stopping = true;
                self.clients.push(Output::WakeAll);
            }
        }
        Ok(())
    }

    /// Returns the next thing to do.
    pub fn poll(&mut self, now: Instant) -> Option<Output> {
        self.queue.advance(&mut self.clients, now);
        if self.look_at <= now && self.has_to_look() {
            self.look(now);
        }
        self.clients.poll()
    }

    /// Returns the frames for the queue process, in order.
    pub fn transmit(&mut self) -> &mut VecDeque<Bytes> {
        self.queue.transmit()
    }

    /// Returns when [`Gateway::poll`] must be called. Each call of a client can make this time earlier, but not earlier than one
    /// second after that call.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let look = self.has_to_look().then_some(self.look_at);
        [look, self.queue.next_wakeup()].into_iter().flatten().min()
    }

    fn has_to_look(&self) -> bool {
        let told = self.memory.refused() == self.told.refused && self.told.shortage.is_none();
        !told || !self.queue.is_present() || self.is_short || self.memory.is_stressed()
    }

    /// Reports a shortage of memory or an absent queue process, and wakes the sessions if silent strangers must make room.
    fn look(&mut self, now: Instant) {
        self.look_at = now + LOOK_WAIT;
        if let Some(absent) = self.queue.absence_alarm(now) {
            self.clients.push(Output::QueueAbsent(absent));
        }
        let (short, to_log) = self.memory.look(now);
        if let Some(short) = to_log {
            self.clients.push(Output::MemoryShort(short));
        }
        self.is_short = short.is_some();
        self.tell_memory(short);
        if !self.memory.is_stressed() {
            self.stress_look_at = now;
        } else if self.stress_look_at <= now {
            self.stress_look_at = now + STRESS_LOOK_WAIT;
            self.clients.push(Output::WakeAll);
        }
    }

    fn tell_memory(&mut self, short: Option<Short>) {
        let shortage = short.map(|short| MemoryShortage {
            seconds: short.lasted.as_secs(),
            refused: short.refused,
        });
        let memory = SessionMemory { refused: self.memory.refused(), shortage };
        if self.queue.tell_memory(memory) {
            self.told = memory;
        }
    }

    /// Returns true if the process was told to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    pub(crate) fn recipients_bytes_max(&self) -> usize {
        self.settings.recipients_bytes_max()
    }

    /// Returns true if the session with this share may hold `bytes` more.
    pub(crate) fn has_room(&self, share: &Share, bytes: usize) -> bool {
        self.memory.has_room(share, bytes, self.queue.in_transit_bytes())
    }
}
