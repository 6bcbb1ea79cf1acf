//! Who is here: `policy`'s count of connections, given back when a connection's task ends.
//!
//! Must never count a connection that is gone.

use mail::Reply;
use policy::{Caller, Connection, ConnectionLimits, Connections};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// The count.
#[derive(Clone, Debug, Default)]
pub struct Guests(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    connections: RefCell<Connections>,
    gone: Notify,
}

/// One connection's place; given back when dropped.
#[derive(Debug)]
pub struct Stay {
    guests: Guests,
    connection: Connection,
}

impl Guests {
    /// A place for one more at a listener, or what it is told instead.
    pub fn enter(
        &self,
        limits: ConnectionLimits,
        listener: &Arc<str>,
        caller: Caller,
        trusted: bool,
    ) -> Result<Stay, Reply> {
        let connection =
            self.0.connections.borrow_mut().opened(limits, listener, caller, trusted)?;
        Ok(Stay { guests: self.clone(), connection })
    }

    /// Comes back when nobody is left.
    pub async fn all_gone(&self) {
        while self.0.connections.borrow().open() > 0 {
            self.0.gone.notified().await;
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.guests.0.connections.borrow_mut().closed(&self.connection);
        self.guests.0.gone.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n099_a_connection_too_many_is_turned_away() {
        let guests = Guests::default();
        let limits = ConnectionLimits {
            connections_max: 1,
            listener_connections_max: 1,
            connections_per_client_max: 1,
        };
        let enter = |trusted| {
            let caller = Caller::from(std::net::IpAddr::from([192, 0, 2, 1]));
            guests.enter(limits, &"[::]:25".into(), caller, trusted)
        };
        let first = enter(false).unwrap();
        assert!(enter(true).unwrap_err().to_string().starts_with("421 4.7.0 "));
        drop(first);
        assert!(enter(false).is_ok());
    }
}
