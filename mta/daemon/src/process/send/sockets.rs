//! Unix sockets of next hops. The process opens their directories before it gives up its root directory, and connects from
//! inside the directory.
//!
//! Must never open anything after the process has entered its jail.

use mail::NextHop;
use rustix::fs::{Mode, OFlags};
use settings::{Deliver, Settings};
use std::collections::HashMap;
use std::io::Result;
use std::os::fd::OwnedFd;
use std::path::Path;
use tokio::net::UnixStream;

/// Open directories and names of sockets, by the path of the socket.
#[derive(Debug, Default)]
pub struct Sockets(HashMap<Box<str>, (OwnedFd, Box<str>)>);

impl Sockets {
    /// Opens the directories of all sockets in the settings. A socket without its directory is connected to by its path, which
    /// works only if the process keeps its root directory.
    pub fn open(settings: &Settings) -> Sockets {
        let routes = settings.routes.iter().map(|route| &route.to);
        let local = match &settings.local.deliver {
            Deliver::Lmtp(hop) => Some(hop),
            _ => None,
        };
        let opened = routes.chain(local).filter_map(|hop| match hop {
            NextHop::LmtpUnix(path) => Some((path.clone(), directory(path)?)),
            _ => None,
        });
        Sockets(opened.collect())
    }

    /// Connects to a socket. Sets the working directory of the process and uses it without giving up the only thread.
    pub async fn connect(&self, path: &str) -> Result<UnixStream> {
        if let Some((directory, name)) = self.0.get(path) {
            rustix::process::fchdir(directory)?;
            return UnixStream::connect(&**name).await;
        }
        UnixStream::connect(path).await
    }
}

fn directory(path: &str) -> Option<(OwnedFd, Box<str>)> {
    let path = Path::new(path);
    let name = path.file_name()?.to_str()?.into();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Some((rustix::fs::open(path.parent()?, flags, Mode::empty()).ok()?, name))
}
