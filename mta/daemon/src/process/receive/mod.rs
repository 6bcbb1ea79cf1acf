//! The receive process: talks to clients. Owns listening sockets and a stream to queue, nothing else.
//!
//! Must never touch a file, open a connection, or decide about mail: the machine in `mta/receive` does.
//!
//! | accepts from | messages |
//! |---|---|
//! | master | `Settings`, `Listener`, `Peer`, `Begin`, `Drain` |
//! | queue | `Welcome`, `Committed`, `Known`, `Unknown`, `Refused`, `Credit`, `Taken` |
//! | clients | SMTP or LMTP |

mod connection;
mod events;
mod listeners;
mod shared;

use super::child::{ChildStart, Orders, PeerStream, runtime};
use super::queue_link::{self, STREAMS_MAX};
use super::{sealed_config, wiring};
use crate::jail::{self, Profile};
use crate::log::Log;
use link::control::{FromMaster, Role, ToMaster};
use listeners::Listeners;
use settings::ProcessConfig;
use shared::{Shared, keep_time};
use std::io::{self, Error};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::sync::mpsc;

/// Number of descriptors that are not connections.
const OPEN_FILES_BESIDES: u64 = 64;

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

/// Returns the number of connections that leaves descriptors for everything else. One more connection would wait without a
/// reply, instead of being told to come back.
fn connections_possible(open_files: u64) -> u32 {
    u32::try_from(open_files.saturating_sub(OPEN_FILES_BESIDES)).unwrap_or(u32::MAX).max(1)
}

async fn serve(start: ChildStart, log: Log, connections_possible: u32) -> io::Result<()> {
    let ChildStart { control, config, listeners: sockets, peers, .. } = start;
    let orders = Rc::new(Orders::new(control, Role::Receive)?);
    let shared = Rc::new(Shared::new(&config, orders.clone(), log));
    let (streams, taken) = mpsc::channel(STREAMS_MAX);
    tokio::task::spawn_local(queue_link::serve(shared.clone(), taken));
    tokio::task::spawn_local(keep_time(shared.clone()));
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
            Some((FromMaster::Settings, Some(fd))) => match sealed_config::open(fd) {
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
