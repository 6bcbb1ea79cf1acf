//! The listening sockets, and the tasks that accept their connections.
//!
//! Must never answer a connection by itself: the gateway admits the client or gives the reply.

use super::connection::Connection;
use super::events::client_name;
use super::shared::Shared;
use crate::io::socket::{self, Socket};
use crate::log::EventKind;
use crate::process::panics::SessionFuture;
use receive::Listener;
use rustix::net::sockopt::socket_acceptconn;
use settings::{ListenAddress, ProcessConfig};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::AbortHandle;
use world::Clock;
use world::real::faults::{self, Point};

/// Time between two looks whether master has opened a port.
const LISTEN_PAUSE: Duration = Duration::from_millis(5);
/// Pause after `accept` has failed for lack of descriptors or memory (N107).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The tasks that accept connections, by the index of the listener in the settings.
pub struct Listeners {
    shared: Rc<Shared>,
    /// Number of connections that there are descriptors for, whatever the settings say.
    connections_possible: u32,
    watches: BTreeMap<u16, AbortHandle>,
}

impl Listeners {
    pub fn new(shared: Rc<Shared>, connections_possible: u32) -> Listeners {
        Listeners { shared, connections_possible, watches: BTreeMap::new() }
    }

    /// Watches these sockets instead of all former ones. Open connections stay open.
    pub fn open(&mut self, config: &ProcessConfig, sockets: Vec<(u16, OwnedFd)>) -> io::Result<()> {
        self.close();
        for (index, fd) in sockets {
            let Some(listen) = config.settings.listen.get(usize::from(index)) else { continue };
            let unix = matches!(listen.address, ListenAddress::Unix(_));
            let listener = Rc::new(config.settings.listener(listen, self.connections_possible));
            let watch = watch(self.shared.clone(), fd, unix, listener);
            self.watches.insert(index, tokio::task::spawn_local(watch).abort_handle());
        }
        Ok(())
    }

    /// Accepts no more connections.
    pub fn close(&mut self) {
        std::mem::take(&mut self.watches).into_values().for_each(|watch| watch.abort());
    }
}

async fn watch(shared: Rc<Shared>, fd: OwnedFd, unix: bool, listener: Rc<Listener>) {
    // Master opens the ports when queue has recovered. Epoll reports a socket that does not listen yet as hung up, and tokio
    // never forgets that.
    while let Ok(false) = socket_acceptconn(&fd) {
        tokio::time::sleep(LISTEN_PAUSE).await;
    }
    let socket = match socket::ListeningSocket::new(fd, unix) {
        Ok(socket) => socket,
        Err(error) => return shared.log.error(&format!("cannot watch a port: {error}")),
    };
    loop {
        match socket.accept().await {
            Ok((socket, client)) => {
                admit(&shared, &listener, socket, client.map(socket::canonical));
            }
            Err(error) => {
                shared.log.warn(&format!("cannot accept connections for now: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(shared: &Rc<Shared>, listener: &Listener, socket: Socket, address: Option<IpAddr>) {
    faults::reach(Point::Accepted);
    let admitted = shared.gateway.borrow_mut().admit(listener, address, shared.clock.now());
    match admitted {
        Ok(client) => {
            let connection = Connection::greet(shared.clone(), socket, client, address);
            // The task catches panics, and the session is released after one, too.
            tokio::task::spawn_local(SessionFuture(Box::pin(connection.run())));
        }
        Err(reply) => {
            let mut goodbye = Vec::new();
            reply.encode(&mut goodbye);
            let _ = socket.try_write(&goodbye);
            let log = shared.log.event(EventKind::Receive).client(&client_name(address));
            log.reply(&reply).status("refused").emit();
        }
    }
}
