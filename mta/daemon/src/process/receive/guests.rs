//! Who is here: `policy`'s count of connections, given back when a connection's task ends.
//!
//! Must never count a connection that is gone.

use mail::Reply;
use policy::{Caller, ConnectionLimits, Connections, Verdict};
use std::cell::RefCell;
use std::rc::Rc;
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
    caller: Caller,
    trusted: bool,
}

impl Guests {
    /// A place for one more, or what it is told instead.
    pub fn enter(
        &self,
        caller: Caller,
        limits: ConnectionLimits,
        trusted: bool,
    ) -> Result<Stay, Reply> {
        match self.0.connections.borrow_mut().opened(limits, &caller, trusted) {
            Verdict::Accept => Ok(Stay { guests: self.clone(), caller, trusted }),
            Verdict::Defer(reply) | Verdict::Reject(reply) => Err(reply),
        }
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
        self.guests.0.connections.borrow_mut().closed(&self.caller, self.trusted);
        self.guests.0.gone.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_when_the_connection_ends() {
        let guests = Guests::default();
        let limits = ConnectionLimits { connections_max: 1, connections_per_client_max: 1 };
        let caller = || Caller::from(std::net::IpAddr::from([192, 0, 2, 1]));
        let first = guests.enter(caller(), limits, false).unwrap();
        assert_eq!(guests.enter(caller(), limits, true).unwrap_err().code, 421);
        drop(first);
        assert!(guests.enter(caller(), limits, false).is_ok());
    }
}
