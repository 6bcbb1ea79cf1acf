//! Unix sockets of next hops: their directories are opened before the root directory is given up,
//! and a connection is made from inside the directory.
//!
//! Must never open anything after the jail is shut.

use mail::NextHop;
use rustix::fs::{Mode, OFlags};
use settings::{Deliver, Settings};
use std::collections::HashMap;
use std::io::Result;
use std::os::fd::OwnedFd;
use std::path::Path;
use tokio::net::UnixStream;

/// The directories by the path of the socket in them.
#[derive(Debug, Default)]
pub struct Sockets(HashMap<Box<str>, (OwnedFd, Box<str>)>);

impl Sockets {
    /// Opens the directories of all sockets that the settings name. One that is missing is looked
    /// for again by its path, which works only where the root directory stays.
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

    /// Connects to a socket. The working directory is the process's: it is set and used in one
    /// step of the only thread.
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
