//! The start of the send process: its jail, its log, and the orders of master.
//!
//! Must never open a file: the process has no directory.

use super::{Journal, Sockets, run as serve};
use crate::io::BUILD;
use crate::jail::{self, Profile};
use crate::log::Log;
use crate::process::child::{ChildStart, Orders, PeerStream, runtime};
use crate::process::queue_link::STREAMS_MAX;
use crate::process::wiring;
use link::control::{FromMaster, Role, ToMaster};
use link::streams::Loss;
use mail::{Domain, NextHop};
use settings::{DnsSettings, HostEnvironment, ProcessConfig};
use std::io::{Error, Result};
use std::net::IpAddr;
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
    let setup = wiring::send(&start.config, BUILD, incarnation, sockets, Box::new(reporter));
    let ours = of_concern(&start.config);
    let (streams, taken) = mpsc::channel(STREAMS_MAX);
    let drain = Arc::new(Notify::new());
    for PeerStream { stream, fd, .. } in start.peers {
        let _ = streams.try_send((stream, fd));
    }
    orders.say(&ToMaster::Ready)?;
    let ended = tokio::select! {
        () = serve(setup, taken, drain.clone()) => Ok(()),
        ended = obey(&orders, &streams, &drain, &log, &ours) => ended,
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
    ours: &OfConcern,
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
                if of_concern(&next) != *ours {
                    log.info("settings have changed: ending what is under way, to start anew");
                    drain.notify_one();
                }
            }
            Some(_) => return Err(Error::other("master said what send does not accept")),
        }
    }
}

/// The settings that this process uses after its start: our name and addresses, the DNS, the host's environment, the maximum
/// number of attempts, and Unix sockets of next hops. Everything else comes from queue with each attempt.
type OfConcern = (Domain, Vec<IpAddr>, DnsSettings, HostEnvironment, u32, Vec<NextHop>);

fn of_concern(config: &ProcessConfig) -> OfConcern {
    let ProcessConfig { settings, environment } = config;
    let is_socket = |hop: &&NextHop| matches!(hop, NextHop::LmtpUnix(_));
    let sockets = settings.routes.iter().map(|route| &route.to).filter(is_socket);
    (
        settings.hostname.clone(),
        settings.own_addresses(environment),
        settings.dns.clone(),
        environment.clone(),
        settings.queue.attempts_in_flight_max,
        sockets.cloned().collect(),
    )
}
