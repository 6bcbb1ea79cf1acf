//! Addresses at which nobody answers: a client is neither accepted nor refused.
//!
//! Must never take a connection off its queue: the full queue is what makes the kernel silent.

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// More connections than a queue of length 0 holds.
const FILLERS_MAX: usize = 8;
/// Time without an answer over loopback after which there will be none.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(300);

/// A port that is silent at all addresses of this machine until this is dropped.
pub struct Silence {
    _port: OwnedFd,
    _fillers: Vec<TcpStream>,
}

impl Silence {
    /// Fails if another program listens there, or if the kernel answers anyway.
    pub fn at(port: u16) -> Result<Silence> {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&fd, &any).with_context(|| any.to_string())?;
        listen(&fd, 0)?;
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut fillers = Vec::new();
        for _ in 0..FILLERS_MAX {
            match TcpStream::connect_timeout(&here, ANSWER_TIME_MAX) {
                Ok(stream) => fillers.push(stream),
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                    return Ok(Silence { _port: fd, _fillers: fillers });
                }
                Err(error) => return Err(error).context(here),
            }
        }
        bail!("a port with a full queue still answers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_connects_hears_nothing_at_any_address_of_the_port() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let _silence = Silence::at(port).unwrap();
        let there = SocketAddr::from(([127, 9, 1, 2], port));
        let error = TcpStream::connect_timeout(&there, ANSWER_TIME_MAX).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
}
