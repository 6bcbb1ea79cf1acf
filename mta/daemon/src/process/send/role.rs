//! The start of the send process: its jail, its log, and the orders of master.
//!
//! Must never open a file: the process has no directory.

use super::{Journal, Setup, Sockets, run as serve};
use crate::io::BUILD;
use crate::jail::{self, Profile};
use crate::log::Log;
use crate::process::child::{ChildStart, Orders, PeerStream, runtime};
use crate::process::queue_link::STREAMS_MAX;
use crate::process::wiring;
use crate::resolve::{Resolver, Sources};
use link::control::{FromMaster, Role, ToMaster};
use link::streams::Loss;
use mail::NextHop;
use settings::{DnsSettings, HostEnvironment, ProcessConfig};
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};
use world::Rng;

/// Number of descriptors that are not connections to next hops.
const OPEN_FILES_BESIDES: u64 = 512;

/// Runs the role.
pub fn run(start: ChildStart) -> Result<()> {
    let settings = &start.config.settings;
    let open_files = u64::from(settings.queue.attempts_in_flight_max) + OPEN_FILES_BESIDES;
    let privilege = wiring::privilege(Role::Send, settings);
    let profile =
        Profile::new(Role::Send, privilege).ends_with(wiring::parent()).open_files(open_files);
    let sockets = Sockets::open(settings);
    let confined = jail::confine(&profile).map_err(Error::other)?;
    let log = Log::start("send", wiring::log_style(settings))?;
    let runtime = runtime()?;
    confined.seal().map_err(Error::other)?;
    runtime.run(work(start, sockets, log))
}

async fn work(start: ChildStart, sockets: Sockets, log: Log) -> Result<()> {
    let incarnation = world::real::Rng.u64();
    let orders = Rc::new(Orders::new(start.control, Role::Send)?);
    let reporter = Reporter { log: log.clone(), orders: orders.clone() };
    let concern = move |config: &ProcessConfig| of_concern(config, incarnation);
    let ours = concern(&start.config);
    let setup = Setup {
        pool: ours.pool.clone(),
        sockets: Arc::new(sockets),
        resolver: resolver(&start.config),
        journal: Box::new(reporter),
    };
    let (streams, taken) = mpsc::channel(STREAMS_MAX);
    let drain = Arc::new(Notify::new());
    for PeerStream { stream, fd, .. } in start.peers {
        let _ = streams.try_send((stream, fd));
    }
    orders.say(&ToMaster::Ready)?;
    let ended = tokio::select! {
        () = serve(setup, taken, drain.clone()) => Ok(()),
        ended = obey(&orders, &streams, &drain, &log, |next| concern(next) == ours) => ended,
    };
    log.flush(Log::LAST_LINES_WAIT_MAX);
    ended
}

/// Writes what happens into the log, and asks master to replace a lost stream.
struct Reporter {
    log: Log,
    orders: Rc<Orders>,
}

impl Journal for Reporter {
    fn ended(&mut self, ended: &::send::EndedAttempt) {
        super::journal::write(&self.log, ended);
    }

    fn trouble(&mut self, what: &str) {
        self.log.warn(what);
    }

    fn lost(&mut self, stream: u64, loss: Loss) {
        self.orders.say_lost(Role::Queue, 0, stream, loss);
    }
}

/// Follows the orders of master. Returns when master has ended; a drain ends `serve` instead.
async fn obey(
    orders: &Orders,
    streams: &mpsc::Sender<(u64, OwnedFd)>,
    drain: &Notify,
    log: &Log,
    is_same: impl Fn(&ProcessConfig) -> bool,
) -> Result<()> {
    loop {
        match orders.next().await? {
            None => return Ok(()),
            Some((FromMaster::Peer { stream, .. }, Some(fd))) => {
                let _ = streams.send((stream, fd)).await;
            }
            Some((FromMaster::Drain, _)) => drain.notify_one(),
            Some((FromMaster::Settings, Some(fd))) => {
                orders.say(&ToMaster::Reloaded)?;
                let next = crate::process::sealed_config::open(fd).map_err(Error::other)?;
                if !is_same(&next) {
                    log.info("settings have changed: ending what is under way, to start anew");
                    drain.notify_one();
                }
            }
            Some(_) => return Err(Error::other("master said what send does not accept")),
        }
    }
}

/// Returns what looks names up for this process.
fn resolver(config: &ProcessConfig) -> Resolver {
    Resolver::new(&Sources {
        servers: &config.settings.dns.servers,
        resolv_conf: &config.environment.resolv_conf,
        hosts: &config.environment.hosts,
        timeout: config.settings.dns.timeout,
    })
}

/// What this process uses of the settings after its start. Everything else comes from queue with each attempt. A change of
/// any of it ends the process, and master starts another one.
#[derive(PartialEq)]
struct OfConcern {
    pool: ::send::Settings,
    dns: DnsSettings,
    environment: HostEnvironment,
    /// The next hops that are Unix sockets.
    sockets: Vec<NextHop>,
}

fn of_concern(config: &ProcessConfig, incarnation: u64) -> OfConcern {
    let ProcessConfig { settings, environment } = config;
    let is_socket = |hop: &&NextHop| matches!(hop, NextHop::LmtpUnix(_));
    let sockets = settings.routes.iter().map(|route| &route.to).filter(is_socket);
    OfConcern {
        pool: settings.pool(environment, BUILD, incarnation),
        dns: settings.dns.clone(),
        environment: environment.clone(),
        sockets: sockets.cloned().collect(),
    }
}
