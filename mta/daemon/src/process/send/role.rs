//! The send role: jailed, wired to queue and to the log.
//!
//! Must never open a file: it has no directory at all.

use super::{Journal, Order, Sockets, run as serve};
use crate::io::BUILD;
use crate::jail::{self, Profile};
use crate::log::Log;
use crate::process::child::{ChildStart, Orders, PeerStream, runtime};
use crate::process::wiring;
use link::control::{FromMaster, Role, ToMaster};
use link::streams::Loss;
use mail::{Domain, NextHop};
use settings::{DnsSettings, HostEnvironment, ProcessConfig};
use std::io::{Error, Result};
use std::net::IpAddr;
use std::rc::Rc;
use tokio::sync::mpsc;
use world::Rng;

/// Orders that can wait.
const ORDERS_MAX: usize = 8;
/// Descriptors beside connections to next hops.
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
    let (give, take) = mpsc::channel(ORDERS_MAX);
    for PeerStream { stream, fd, .. } in start.peers {
        let _ = give.try_send(Order::Queue(stream, fd.into()));
    }
    orders.say(&ToMaster::Ready)?;
    let ended = tokio::select! {
        () = serve(setup, take) => Ok(()),
        ended = obey(&orders, give, &log, &ours) => ended,
    };
    log.flush(Log::LAST_LINES_WAIT_MAX);
    ended
}

/// Writes what happens into the log, and asks master for a stream in place of a lost one.
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

/// Comes back when master is gone; a drain ends the other branch.
async fn obey(
    orders: &Orders,
    give: mpsc::Sender<Order>,
    log: &Log,
    ours: &OfConcern,
) -> Result<()> {
    loop {
        match orders.next().await? {
            None => return Ok(()),
            Some((FromMaster::Peer { stream, .. }, Some(fd))) => {
                let _ = give.send(Order::Queue(stream, fd.into())).await;
            }
            Some((FromMaster::Drain, _)) => {
                let _ = give.send(Order::Drain).await;
            }
            Some((FromMaster::Settings, Some(fd))) => {
                orders.say(&ToMaster::Reloaded)?;
                let next = crate::process::sealed_config::open(fd).map_err(Error::other)?;
                if of_concern(&next) != *ours {
                    log.info("settings have changed: ending what is under way, to start anew");
                    let _ = give.send(Order::Drain).await;
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
