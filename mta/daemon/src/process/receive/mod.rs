//! Receive: talks to clients. Owns listening sockets and a stream to queue, nothing else.
//!
//! Must never touch a file, open a connection, or say `250` to a body without a `Durable`.
//!
//! | accepts from | messages |
//! |---|---|
//! | master | `Settings`, `Listener`, `Peer`, `Begin`, `Drain` |
//! | queue | `Welcome`, `Committed`, `Known`, `Unknown`, `Refused`, `Credit`, `Taken` |
//! | clients | SMTP or LMTP |

mod alarm;
mod conversation;
mod guests;
mod memory;
mod promises;
mod socket;

use super::child::{Orders, Peer, Start, runtime};
use super::panics::SessionFuture;
use super::wiring;
use crate::io::stream::loss;
use crate::jail::{self, Profile};
use crate::log::{EventKind, Log};
use crate::settings::{Listen, ListenAddress, ProcessConfig, Settings};
use conversation::Conversation;
use guests::{Guests, Stay};
use link::bounds::RECIPIENTS_BYTES_MAX;
use link::control::{FromMaster, Role, ToMaster};
use link::receive::{MemoryShortage, SessionMemory};
use mail::{Address, Enhanced, Reply, Verdict};
pub(crate) use memory::{MESSAGE_BYTES_MIN, SESSION_BYTES_MIN};
use memory::{Memory, Share};
use policy::{Caller, Client, ConnectionLimits, Short};
use promises::Promises;
use rustix::net::sockopt::socket_acceptconn;
use smtp::server::Server;
use socket::{Listener, Socket};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, Error};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use world::real::faults::{self, Point};
use world::{Chance, Clock};

/// Bytes read from a client at once, into one buffer that all share.
const SCRATCH_BYTES: usize = 64 << 10;
/// Between two looks whether master has opened a port.
const LISTEN_PAUSE: Duration = Duration::from_millis(5);
/// Pause after `accept` failed for want of descriptors or memory (N107).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Descriptors that are no connections.
const OPEN_FILES_BESIDES: u64 = 64;
/// Between two looks whether memory is short.
const MEMORY_LOOK: Duration = Duration::from_secs(1);
/// While memory is short, all sessions look whether their client has taken too long, once in this time.
const STRESS_LOOK: Duration = Duration::from_secs(5);
/// Streams to queue that can wait to be taken over.
const STREAMS_MAX: usize = 4;

/// What all sessions share.
pub struct Shared {
    promises: Rc<Promises>,
    scratch: RefCell<Box<[u8]>>,
    stopping: Stopping,
    log: Log,
    clock: world::real::Clock,
    policy: RefCell<Rc<policy::Policy>>,
    guests: Guests,
    memory: Memory,
    /// What the recipients of one message may take: see [`recipients_bytes_max`].
    recipients_bytes_max: Cell<usize>,
    /// As many as there are descriptors for, whatever the settings say.
    connections_possible: u32,
}

/// One listener as it is in force.
pub struct Listening {
    /// For clients that may send to anywhere.
    trusted: Arc<Server>,
    /// For all others.
    strangers: Arc<Server>,
    limits: ConnectionLimits,
    /// Its address, by which its connections are counted; they stay counted over a reload.
    address: Arc<str>,
    /// The settings say so of all its clients.
    all_trusted: bool,
    /// All clients without an address are counted as this one.
    socket: Caller,
}

impl Listening {
    fn caller(&self, client: Client) -> Caller {
        client.address.map_or_else(|| self.socket.clone(), Caller::from)
    }

    fn server(&self, trusted: bool) -> Arc<Server> {
        if trusted { self.trusted.clone() } else { self.strangers.clone() }
    }
}

/// Our own end, once it has been ordered; or something else that all sessions look at.
#[derive(Default)]
pub struct Stopping(Cell<bool>, Notify);

impl Stopping {
    fn begin(&self) {
        self.0.set(true);
        self.1.notify_waiters();
    }

    /// Has all sessions look at how much memory there is.
    fn look(&self) {
        self.1.notify_waiters();
    }

    /// Whether the end has been ordered.
    pub fn has_begun(&self) -> bool {
        self.0.get()
    }

    /// Comes back when the end has been ordered, or when there is something to look at.
    pub async fn wait(&self) {
        let ordered = self.1.notified();
        if !self.0.get() {
            ordered.await;
        }
    }
}

impl Shared {
    /// A place for one more connection, or what it is told instead.
    fn enter(
        &self,
        listening: &Listening,
        client: Client,
        trusted: bool,
    ) -> Result<(Stay, Share), Reply> {
        let share = self.memory.enter(client.address, trusted, self.promises.held_bytes());
        let Some(share) = share else {
            let text = "too much mail is being taken in; try again later";
            return Err(Reply::new(421, Enhanced(4, 3, 2), text));
        };
        let caller = listening.caller(client);
        Ok((self.guests.enter(listening.limits, &listening.address, caller, trusted)?, share))
    }

    fn is_trusted(&self, client: Client) -> bool {
        self.policy.borrow().is_trusted(client)
    }

    /// May this client send to this recipient?
    fn judge(&self, client: Client, recipient: &Address) -> Verdict {
        self.policy.borrow().recipient(client, recipient)
    }
}

/// Runs the role.
pub fn run(start: Start) -> io::Result<()> {
    let settings = &start.config.settings;
    let open_files = u64::from(settings.limits.connections) + OPEN_FILES_BESIDES;
    let privilege = wiring::privilege(Role::Receive, settings);
    let profile =
        Profile::new(Role::Receive, privilege).ends_with(wiring::parent()).open_files(open_files);
    let confined = jail::confine(&profile).map_err(Error::other)?;
    let log = Log::start("receive", wiring::log_style(settings))?;
    let runtime = runtime()?;
    let report = confined.seal().map_err(Error::other)?;
    runtime.run(serve(start, log, connections_possible(report.open_files)))
}

/// So many connections leave descriptors for all else: one more would not be told to come back, it
/// would wait without a word.
fn connections_possible(open_files: u64) -> u32 {
    u32::try_from(open_files.saturating_sub(OPEN_FILES_BESIDES)).unwrap_or(u32::MAX).max(1)
}

async fn serve(start: Start, log: Log, connections_possible: u32) -> io::Result<()> {
    let Start { control, config, listeners, peers, .. } = start;
    let clock = world::real::Clock;
    let promises = Promises::new(world::real::Chance.u64(), clock);
    let shared = Rc::new(Shared {
        promises: promises.clone(),
        scratch: RefCell::new(vec![0; SCRATCH_BYTES].into()),
        stopping: Stopping::default(),
        log,
        clock,
        policy: RefCell::new(Rc::new(config.settings.policy(&config.environment))),
        guests: Guests::default(),
        memory: Memory::default(),
        recipients_bytes_max: Cell::new(recipients_bytes_max(&config.settings)),
        connections_possible,
    });
    let (streams, queue) = mpsc::channel(STREAMS_MAX);
    let orders = Rc::new(Orders::new(control, Role::Receive)?);
    let (teller, of) = (orders.clone(), shared.clone());
    let lost = move |stream: u64, error: Error| {
        if error.kind() != io::ErrorKind::UnexpectedEof {
            of.log.warn(&format!("conversation with queue ended: {error}"));
        }
        teller.say_lost(Role::Queue, 0, stream, loss(&error));
    };
    let of = shared.clone();
    let absent = move |absent: Duration| {
        let seconds = absent.as_secs();
        of.log.error(&format!("no conversation with queue for {seconds} s: clients get 451"));
    };
    tokio::task::spawn_local(promises.clone().serve(queue, lost));
    tokio::task::spawn_local(promises.expire(absent));
    tokio::task::spawn_local(watch_memory(shared.clone()));
    for Peer { stream, fd, .. } in peers {
        let _ = streams.try_send((stream, fd));
    }
    let mut doors = Doors::new(shared.clone());
    doors.open(&config, listeners)?;
    orders.say(&ToMaster::Ready)?;
    let ended = obey(&orders, &shared, &mut doors, config, &streams).await;
    shared.log.flush(Log::LAST_LINES_WAIT_MAX);
    ended
}

async fn obey(
    orders: &Orders,
    shared: &Rc<Shared>,
    doors: &mut Doors,
    mut config: ProcessConfig,
    streams: &mpsc::Sender<(u64, OwnedFd)>,
) -> io::Result<()> {
    let mut listeners = Vec::new();
    loop {
        match orders.next().await? {
            None => return Ok(()),
            Some((FromMaster::Peer { stream, .. }, Some(fd))) => {
                let _ = streams.send((stream, fd)).await;
            }
            Some((FromMaster::Settings, Some(fd))) => match crate::settings::open(fd) {
                Ok(next) => config = next,
                Err(error) => shared.log.warn(&format!("settings not taken over: {error}")),
            },
            Some((FromMaster::Listener { index }, Some(fd))) => listeners.push((index, fd)),
            Some((FromMaster::Begin, _)) => {
                *shared.policy.borrow_mut() = Rc::new(config.settings.policy(&config.environment));
                doors.open(&config, std::mem::take(&mut listeners))?;
                orders.say(&ToMaster::Reloaded)?;
            }
            Some((FromMaster::Drain, _)) => {
                doors.close();
                shared.stopping.begin();
                shared.guests.all_gone().await;
                return Ok(());
            }
            Some(_) => return Err(Error::other("master said what receive does not accept")),
        }
    }
}

/// The listening sockets and who watches them.
struct Doors {
    shared: Rc<Shared>,
    watches: BTreeMap<u16, AbortHandle>,
}

impl Doors {
    fn new(shared: Rc<Shared>) -> Doors {
        Doors { shared, watches: BTreeMap::new() }
    }

    /// Watches these in place of all before; sessions that are open stay open.
    fn open(&mut self, config: &ProcessConfig, listeners: Vec<(u16, OwnedFd)>) -> io::Result<()> {
        self.close();
        self.shared.memory.bound(share_of_memory(&config.settings));
        self.shared.recipients_bytes_max.set(recipients_bytes_max(&config.settings));
        let in_transit_bytes_max = self.shared.memory.in_transit_bytes_max();
        self.shared.promises.bound(config.settings.limits.commit_timeout, in_transit_bytes_max);
        for (index, fd) in listeners {
            let Some(listen) = config.settings.listen.get(usize::from(index)) else { continue };
            let unix = matches!(listen.address, ListenAddress::Unix(_));
            let possible = self.shared.connections_possible;
            let listening = Rc::new(listening(config, listen, possible));
            let watch = watch(self.shared.clone(), fd, unix, listening);
            self.watches.insert(index, tokio::task::spawn_local(watch).abort_handle());
        }
        Ok(())
    }

    fn close(&mut self) {
        std::mem::take(&mut self.watches).into_values().for_each(|watch| watch.abort());
    }
}

/// Tells of memory that is short, and has silent strangers looked at then, for ever.
async fn watch_memory(shared: Rc<Shared>) {
    let mut look_by = shared.clock.now().monotonic;
    loop {
        tokio::time::sleep(MEMORY_LOOK).await;
        let now = shared.clock.now().monotonic;
        let (short, to_log) = shared.memory.look(now);
        if let Some(Short { lasted, refused }) = to_log {
            shared.log.warn(&format!(
                "the memory of sessions has been short for {} s: {refused} requests got 421 or 452",
                lasted.as_secs()
            ));
        }
        let shortage = short.map(|short| MemoryShortage {
            seconds: short.lasted.as_secs(),
            refused: short.refused,
        });
        shared.promises.tell_memory(SessionMemory { refused: shared.memory.refused(), shortage });
        if !shared.memory.is_stressed() {
            look_by = now;
        } else if look_by <= now {
            look_by = now + STRESS_LOOK;
            shared.stopping.look();
        }
    }
}

/// The envelope has to fit into a frame, and with a piece of the body into a segment of the log.
fn recipients_bytes_max(settings: &Settings) -> usize {
    (settings.spool().segment_bytes as usize / 2).min(RECIPIENTS_BYTES_MAX)
}

/// What the sessions of one process of several may hold.
fn share_of_memory(settings: &Settings) -> u64 {
    settings.limits.session_memory_bytes_max / u64::from(settings.processes.receive.max(1))
}

fn listening(config: &ProcessConfig, listen: &Listen, connections_possible: u32) -> Listening {
    let settings = &config.settings;
    let share = |limit: u32| limit.div_ceil(settings.processes.receive.max(1));
    let limits = settings.connections(listen);
    let limits = ConnectionLimits {
        connections_max: share(limits.connections_max).min(connections_possible),
        listener_connections_max: share(limits.listener_connections_max),
        connections_per_client_max: share(limits.connections_per_client_max),
    };
    let server = |trusted| Server::new(settings.smtp(listen, trusted));
    let all_trusted = listen.socket.trusted;
    let (address, path) = match &listen.address {
        ListenAddress::Unix(path) => (format!("unix:{}", path.display()), path.as_path()),
        ListenAddress::Tcp(address) => (address.to_string(), Path::new("")),
    };
    let (address, socket) = (address.into(), Caller::Socket(path.into()));
    let (trusted, strangers) = (server(true), server(false));
    Listening { trusted, strangers, limits, address, all_trusted, socket }
}

async fn watch(shared: Rc<Shared>, fd: OwnedFd, unix: bool, listening: Rc<Listening>) {
    // Master opens the ports when queue has recovered. A socket that does not listen yet would
    // look hung up to epoll, and tokio never forgets that.
    while let Ok(false) = socket_acceptconn(&fd) {
        tokio::time::sleep(LISTEN_PAUSE).await;
    }
    let listener = match Listener::new(fd, unix) {
        Ok(listener) => listener,
        Err(error) => return shared.log.error(&format!("cannot watch a port: {error}")),
    };
    loop {
        match listener.accept().await {
            Ok((socket, client)) => {
                let client = client.map(socket::canonical);
                admit(&shared, &listening, socket, client);
            }
            Err(error) => {
                shared.log.warn(&format!("cannot accept connections for now: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(shared: &Rc<Shared>, listening: &Rc<Listening>, socket: Socket, client: Option<IpAddr>) {
    faults::reach(Point::Accepted);
    let client = Client { address: client, trusted: listening.all_trusted };
    let trusted = shared.is_trusted(client);
    match shared.enter(listening, client, trusted) {
        Ok((stay, share)) => {
            let server = listening.server(trusted);
            let mut conversation = Conversation::new(shared.clone(), server, socket, client, share);
            // The greeting goes out before the task has its turn; the task sees what keeps it back.
            let _ = conversation.send(false);
            // The task catches what it panics with; the place is given back all the same.
            tokio::task::spawn_local(SessionFuture(Box::pin(attend(conversation, stay))));
        }
        Err(reply) => {
            let mut goodbye = Vec::new();
            reply.encode(&mut goodbye);
            let _ = socket.try_write(&goodbye);
            let log =
                shared.log.event(EventKind::Receive).client(&conversation::whom(client.address));
            log.reply(&reply).status("refused").emit();
        }
    }
}

async fn attend(conversation: Conversation, stay: Stay) {
    conversation.run().await;
    drop(stay);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_take_the_descriptors_of_all_else() {
        assert_eq!(connections_possible(20_064), 20_000);
        assert_eq!(connections_possible(20_000), 19_936);
        assert_eq!(connections_possible(10), 1);
    }
}
