//! The conversation between master and each child: one message a datagram, some with a descriptor.
//!
//! Must never carry a stranger's text, or accept a message that its sender may not send: [`ToMaster::is_of`] and
//! [`FromMaster::is_for`] are the tables.

use crate::LinkError;
use crate::streams::Loss;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Role of a process. Each role has a jail of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    /// Starts, watches and restarts the other processes.
    Master,
    /// Reads the settings, then ends.
    Config,
    /// Talks to clients.
    Receive,
    /// Owns the spool.
    Queue,
    /// Talks to next hops.
    Send,
    /// Starts a `Mailbox` process for each user with mail.
    Local,
    /// Writes to the mailboxes of one user, as that user. Forked by `Local`, never started by name.
    Mailbox,
}

impl Role {
    /// All roles, in the order of their discriminants.
    pub const ALL: [Role; 7] = [
        Role::Master,
        Role::Config,
        Role::Receive,
        Role::Queue,
        Role::Send,
        Role::Local,
        Role::Mailbox,
    ];

    /// Returns the name of the role in `posthaste role NAME`, in the log and in the account `posthaste-NAME`.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Master => "master",
            Role::Config => "config",
            Role::Receive => "receive",
            Role::Queue => "queue",
            Role::Send => "send",
            Role::Local => "local",
            Role::Mailbox => "mailbox",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Finds a role that can be started by name: any role but `Mailbox`.
impl FromStr for Role {
    type Err = ();
    fn from_str(text: &str) -> Result<Role, ()> {
        let started = |role: &Role| *role != Role::Mailbox && role.name() == text;
        Role::ALL.into_iter().find(started).ok_or(())
    }
}

/// Longest control message in bytes, without its descriptor.
pub const CONTROL_BYTES_MAX: usize = 512;

/// Message of master to a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum FromMaster {
    /// Settings, and what a process with an empty root cannot read itself, in a sealed memfd. The first message, and again at
    /// a reload.
    Settings,
    /// A listening socket; `index` is its place in the list of listeners of the settings.
    Listener { index: u16 },
    /// The listening socket for the command line.
    AdminListener,
    /// A descriptor of a directory that the role owns.
    Directory { purpose: Purpose },
    /// Process id, uptime and restarts of a process, for `posthaste status`.
    Process { role: Role, instance: u16, pid: u32, restarts: u32, up_seconds: u64 },
    /// A stream to a peer, which replaces the former stream to the same role and instance. `stream` names it in
    /// [`ToMaster::StreamLost`].
    Peer { role: Role, instance: u16, stream: u64 },
    /// Number of times the stream to a process was replaced, and the last reason, for `posthaste status`.
    Renewed { role: Role, instance: u16, renewals: u32, loss: Loss },
    /// Key with which queue seals attempts, so that a later queue process recognizes the attempts of a former one. Does not
    /// change while master runs. Comes before `Begin`.
    SealKey { key: [u64; 2] },
    /// Start of work: the child has all that it needs and enters its jail.
    Begin,
    /// Order to take nothing new, finish all work, and end.
    Drain,
}

/// Purpose of a directory descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The spool.
    Spool,
    /// `{state}`, for mailbox templates.
    State,
    /// An empty directory, which becomes the root.
    EmptyRoot,
}

/// Message of a child to master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum ToMaster {
    /// The child is in its jail and ready for work. From queue: the spool is open.
    Ready,
    /// The new settings apply.
    Reloaded,
    /// The child cannot go on, and a restart does not help: master ends with this text. Accepted only from a queue process that
    /// is not ready yet.
    Fatal { text: Box<str> },
    /// The stream of this name to this peer has ended, and the child asks for a new one.
    StreamLost { role: Role, instance: u16, stream: u64, loss: Loss },
}

impl ToMaster {
    /// Returns true if a child of this role may send this message; `ready` means that it has sent [`ToMaster::Ready`]. A child
    /// that sends anything else has been taken over or has a bug, and is restarted.
    pub fn is_of(&self, speaker: Role, ready: bool) -> bool {
        let is_child = matches!(speaker, Role::Receive | Role::Queue | Role::Send | Role::Local);
        match self {
            ToMaster::Ready => is_child && !ready,
            ToMaster::Reloaded => is_child && ready,
            ToMaster::Fatal { .. } => speaker == Role::Queue && !ready,
            ToMaster::StreamLost { role, loss, .. } => match speaker {
                Role::Queue => matches!(role, Role::Receive | Role::Send | Role::Local),
                // Only queue knows which process was given which mail.
                Role::Receive | Role::Send | Role::Local => {
                    *role == Role::Queue && *loss != Loss::Link(LinkError::NotGiven)
                }
                Role::Master | Role::Config | Role::Mailbox => false,
            },
        }
    }
}

impl FromMaster {
    /// Returns true if a child of this role accepts this message.
    pub fn is_for(&self, listener: Role) -> bool {
        let is_queue = listener == Role::Queue;
        match self {
            FromMaster::Settings | FromMaster::Begin | FromMaster::Drain => true,
            FromMaster::Listener { .. } => listener == Role::Receive,
            FromMaster::AdminListener
            | FromMaster::Process { .. }
            | FromMaster::Renewed { .. }
            | FromMaster::SealKey { .. } => is_queue,
            FromMaster::Directory { purpose } => match purpose {
                Purpose::Spool => is_queue,
                Purpose::State => listener == Role::Local,
                Purpose::EmptyRoot => true,
            },
            FromMaster::Peer { role, .. } => (*role == Role::Queue) != is_queue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILDREN: [Role; 4] = [Role::Receive, Role::Queue, Role::Send, Role::Local];

    /// Roles that may send a message before they are ready, and after.
    fn speakers(message: &ToMaster) -> [Vec<Role>; 2] {
        let of = |ready| {
            let all = Role::ALL.into_iter();
            all.filter(|role| message.is_of(*role, ready)).collect()
        };
        [of(false), of(true)]
    }

    #[test]
    fn a_role_is_known_by_its_name() {
        for role in Role::ALL {
            let expected = if role == Role::Mailbox { Err(()) } else { Ok(role) };
            assert_eq!(role.name().parse(), expected, "a worker of local is not started by name");
        }
        assert_eq!("postmaster".parse::<Role>(), Err(()));
        assert!(Role::ALL.into_iter().enumerate().all(|(place, role)| role as usize == place));
    }

    #[test]
    fn r220_each_message_to_master_has_its_speakers_and_fatal_has_queue_at_its_start() {
        let lost = |role, loss| ToMaster::StreamLost { role, instance: 0, stream: 1, loss };
        let (all, none) = (CHILDREN.to_vec(), Vec::new());
        let fatal = ToMaster::Fatal { text: "enough".into() };
        let not_given = Loss::Link(LinkError::NotGiven);
        let others = vec![Role::Receive, Role::Send, Role::Local];
        let queue = vec![Role::Queue];
        let table = [
            (ToMaster::Ready, all.clone(), none.clone()),
            (ToMaster::Reloaded, none.clone(), all),
            (fatal, queue.clone(), none.clone()),
            (lost(Role::Queue, Loss::Ended), others.clone(), others),
            (lost(Role::Queue, not_given), none.clone(), none.clone()),
            (lost(Role::Send, not_given), queue.clone(), queue.clone()),
            (lost(Role::Receive, Loss::Ended), queue.clone(), queue),
            (lost(Role::Master, Loss::Ended), none.clone(), none),
        ];
        for (message, before, after) in table {
            assert_eq!(speakers(&message), [before, after], "{message:?}");
        }
    }

    #[test]
    fn r220_each_message_of_master_has_its_listeners() {
        let listeners = |message: FromMaster| {
            CHILDREN.into_iter().filter(|role| message.is_for(*role)).collect::<Vec<_>>()
        };
        let peer = |role| FromMaster::Peer { role, instance: 0, stream: 1 };
        assert_eq!(listeners(FromMaster::Drain), CHILDREN);
        assert_eq!(listeners(FromMaster::Listener { index: 0 }), [Role::Receive]);
        assert_eq!(listeners(FromMaster::SealKey { key: [1, 2] }), [Role::Queue]);
        assert_eq!(listeners(peer(Role::Send)), [Role::Queue]);
        assert_eq!(listeners(peer(Role::Queue)), [Role::Receive, Role::Send, Role::Local]);
        let directory = |purpose| listeners(FromMaster::Directory { purpose });
        assert_eq!(directory(Purpose::Spool), [Role::Queue]);
        assert_eq!(directory(Purpose::State), [Role::Local]);
    }
}
