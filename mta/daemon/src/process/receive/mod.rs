//! Receive: talks to clients. Owns listening sockets and a stream to queue, nothing else.
//!
//! Must never touch a file, open a connection, or decide about mail: the machine in `mta/receive` does.
//!
//! | accepts from | messages |
//! |---|---|
//! | master | `Settings`, `Listener`, `Peer`, `Begin`, `Drain` |
//! | queue | `Welcome`, `Committed`, `Known`, `Unknown`, `Refused`, `Credit`, `Taken` |
//! | clients | SMTP or LMTP |

mod alarm;
mod connection;
mod listeners;
mod queue_stream;
mod settings;
mod socket;

use super::child::{ChildStart, Orders, PeerStream, runtime};
use super::wiring;
use crate::io::BUILD;
use crate::io::stream::loss;
use crate::jail::{self, Profile};
use crate::log::Log;
use ::settings::ProcessConfig;
use link::control::{FromMaster, Role, ToMaster};
use listeners::Listeners;
use mail::Instant;
use receive::{ClientId, Gateway, Input, Output, READ_BYTES_MAX};
use std::cell::RefCell;
use std::io::{self, Error};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Waker;
use tokio::sync::{Notify, mpsc};
use world::{Clock, Rng};

/// Descriptors that are no connections.
const OPEN_FILES_BESIDES: u64 = 64;
/// Streams to queue that can wait to be taken over.
const STREAMS_MAX: usize = 4;

/// What all connections share.
pub struct Shared {
    /// Borrowed for one call of a machine, never across an await.
    gateway: RefCell<Gateway>,
    /// The task of each client, by the client's number.
    wakers: RefCell<Vec<Waker>>,
    /// What is read of a client, for all clients.
    scratch: RefCell<Box<[u8]>>,
    /// The gateway has frames for the queue process.
    frames: Notify,
    /// A connection has ended.
    gone: Notify,
    log: Log,
    clock: world::real::Clock,
}

impl Shared {
    fn new(config: &ProcessConfig, log: Log) -> Shared {
        let (clock, incarnation) = (world::real::Clock, world::real::Rng.u64());
        let policy = config.settings.policy(&config.environment);
        let settings = settings::gateway(&config.settings);
        let now = clock.now().monotonic;
        Shared {
            gateway: RefCell::new(Gateway::new((BUILD, incarnation), policy, settings, now)),
            wakers: RefCell::default(),
            scratch: RefCell::new(vec![0; READ_BYTES_MAX].into()),
            frames: Notify::new(),
            gone: Notify::new(),
            log,
            clock,
        }
    }

    /// Has the task of this client woken from now on.
    fn set_waker(&self, client: ClientId, waker: &Waker) {
        let mut wakers = self.wakers.borrow_mut();
        if wakers.len() <= client.index() {
            wakers.resize(client.index() + 1, Waker::noop().clone());
        }
        wakers[client.index()].clone_from(waker);
    }

    /// Does what the gateway asks for.
    fn advance(&self, gateway: &mut Gateway, now: Instant) {
        while let Some(output) = gateway.poll(now) {
            match output {
                Output::Wake(client) => {
                    self.wakers.borrow().get(client.index()).inspect(|waker| waker.wake_by_ref());
                }
                Output::WakeAll => self.wakers.borrow().iter().for_each(Waker::wake_by_ref),
                Output::QueueAbsent(absent) => {
                    let seconds = absent.as_secs();
                    let text =
                        format!("no conversation with queue for {seconds} s: clients get 451");
                    self.log.error(&text);
                }
                Output::MemoryShort(short) => self.log.warn(&format!(
                    "the memory of sessions has been short for {} s: {} requests got 421 or 452",
                    short.lasted.as_secs(),
                    short.refused
                )),
            }
        }
        if !gateway.transmit().is_empty() {
            self.frames.notify_one();
        }
    }

    fn reload(&self, config: &ProcessConfig) {
        let policy = config.settings.policy(&config.environment);
        let mut gateway = self.gateway.borrow_mut();
        gateway.reload(policy, settings::gateway(&config.settings));
        self.advance(&mut gateway, self.clock.now().monotonic);
    }

    /// Has every client finish, and waits until none is left.
    async fn drain(&self) {
        {
            let (mut gateway, now) = (self.gateway.borrow_mut(), self.clock.now().monotonic);
            let _ = gateway.handle(Input::Shutdown, now);
            self.advance(&mut gateway, now);
        }
        while self.gateway.borrow().open_connections() > 0 {
            self.gone.notified().await;
        }
    }
}

/// Runs the role.
pub fn run(start: ChildStart) -> io::Result<()> {
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

/// The number of connections that leaves descriptors for everything else. One more connection would not be told to come
/// back, but wait without a word.
fn connections_possible(open_files: u64) -> u32 {
    u32::try_from(open_files.saturating_sub(OPEN_FILES_BESIDES)).unwrap_or(u32::MAX).max(1)
}

async fn serve(start: ChildStart, log: Log, connections_possible: u32) -> io::Result<()> {
    let ChildStart { control, config, listeners: sockets, peers, .. } = start;
    let shared = Rc::new(Shared::new(&config, log));
    let (streams, queue) = mpsc::channel(STREAMS_MAX);
    let orders = Rc::new(Orders::new(control, Role::Receive)?);
    let (teller, of) = (orders.clone(), shared.clone());
    let lost = move |stream: u64, error: Error| {
        if error.kind() != io::ErrorKind::UnexpectedEof {
            of.log.warn(&format!("conversation with queue ended: {error}"));
        }
        teller.say_lost(Role::Queue, 0, stream, loss(&error));
    };
    tokio::task::spawn_local(queue_stream::serve(shared.clone(), queue, lost));
    tokio::task::spawn_local(queue_stream::keep_time(shared.clone()));
    for PeerStream { stream, fd, .. } in peers {
        let _ = streams.try_send((stream, fd));
    }
    let mut listeners = Listeners::new(shared.clone(), connections_possible);
    listeners.open(&config, sockets)?;
    orders.say(&ToMaster::Ready)?;
    let ended = obey(&orders, &shared, &mut listeners, config, &streams).await;
    shared.log.flush(Log::LAST_LINES_WAIT_MAX);
    ended
}

async fn obey(
    orders: &Orders,
    shared: &Shared,
    listeners: &mut Listeners,
    mut config: ProcessConfig,
    streams: &mpsc::Sender<(u64, OwnedFd)>,
) -> io::Result<()> {
    let mut sockets = Vec::new();
    loop {
        match orders.next().await? {
            None => return Ok(()),
            Some((FromMaster::Peer { stream, .. }, Some(fd))) => {
                let _ = streams.send((stream, fd)).await;
            }
            Some((FromMaster::Settings, Some(fd))) => match crate::process::sealed_config::open(fd)
            {
                Ok(next) => config = next,
                Err(error) => shared.log.warn(&format!("settings not taken over: {error}")),
            },
            Some((FromMaster::Listener { index }, Some(fd))) => sockets.push((index, fd)),
            Some((FromMaster::Begin, _)) => {
                shared.reload(&config);
                listeners.open(&config, std::mem::take(&mut sockets))?;
                orders.say(&ToMaster::Reloaded)?;
            }
            Some((FromMaster::Drain, _)) => {
                listeners.close();
                shared.drain().await;
                return Ok(());
            }
            Some(_) => return Err(Error::other("master said what receive does not accept")),
        }
    }
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
