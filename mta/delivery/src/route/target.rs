//! The results of a search: an address to connect to, or the reason why there is none.
//!
//! Must never hold an address that the rules exclude.

use mail::Reply;
use smtp::client::Dialect;
use std::net::SocketAddr;

/// One address to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host's name, or its address where there is no name.
    pub name: Box<str>,
    /// The address.
    pub place: Where,
    /// The protocol that the server speaks.
    pub dialect: Dialect,
}

/// Where to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(Box<str>),
}

impl Target {
    /// `host[address]:port` for reports; the path of a Unix socket.
    pub fn peer(&self) -> Box<str> {
        match &self.place {
            Where::Tcp(at) => format!("{}[{}]:{}", self.name, at.ip(), at.port()).into(),
            Where::Unix(path) => path.clone(),
        }
    }
}

/// The next hop has no usable address: temporarily (4yz) or permanently (5yz).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable(pub Reply);
