//! Master and each child: one message a datagram, a descriptor beside it where one is named.
//!
//! Must never carry anything a stranger said.

use serde::{Deserialize, Serialize};

/// The roles of our processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    /// Starts, watches and restarts the others.
    Master,
    /// Reads the settings; short-lived.
    Config,
    /// Talks to clients.
    Receive,
    /// Owns the spool.
    Queue,
    /// Talks to next hops.
    Send,
    /// Writes mailboxes.
    Local,
}

impl Role {
    /// As on the command line: `posthaste role queue`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Master => "master",
            Role::Config => "config",
            Role::Receive => "receive",
            Role::Queue => "queue",
            Role::Send => "send",
            Role::Local => "local",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = ();
    fn from_str(text: &str) -> Result<Role, ()> {
        [Role::Master, Role::Config, Role::Receive, Role::Queue, Role::Send, Role::Local]
            .into_iter()
            .find(|role| role.name() == text)
            .ok_or(())
    }
}

/// Longest control message in bytes, without its descriptor.
pub const CONTROL_BYTES_MAX: usize = 512;

/// What master says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum FromMaster {
    /// With a sealed memfd: the settings and what an empty root lacks. First message, and again
    /// at a reload.
    Settings,
    /// With a listening socket; `index` in the settings' list of listeners.
    Listener { index: u16 },
    /// With the socket for the command line (queue only).
    AdminListener,
    /// With a directory descriptor: the state directory's part that this role owns.
    Directory { purpose: Purpose },
    /// To queue, for whoever asks how the mailer is: who lives, since when, and how often it was
    /// started again.
    Lives { role: Role, instance: u16, pid: u32, restarts: u32, up_seconds: u64 },
    /// With a stream to a peer; replaces the former one of the same role and instance.
    Peer { role: Role, instance: u16 },
    /// All that was needed has been said: enter the jail and begin.
    Begin,
    /// Take nothing new, finish what is under way, end.
    Drain,
}

/// What a directory descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The spool.
    Spool,
    /// `{state}`, for mailbox templates.
    State,
    /// An empty directory to be the root.
    EmptyRoot,
}

/// What a child says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum ToMaster {
    /// The jail is shut and work can come. From queue: the spool is open.
    Ready,
    /// New settings are in force.
    Reloaded,
    /// Cannot go on, and a restart does not help: master ends with this text.
    Fatal { text: Box<str> },
}
