//! Why a mailbox did not accept a message, and what follows for the message.
//!
//! Must never turn a failure of this host into a bounce: only the recipient or the message can cause a permanent failure.

use super::Mailbox;
use mail::{Enhanced, Outcome, Reply};
use policy::{NotTheirs, Ownership};
use rustix::io::Errno;
use std::io;

/// What went wrong, in words for the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    reply: Reply,
    alarm: Option<(NotTheirs, Ownership)>,
}

impl Fault {
    /// Makes a fault with 4yz: delivery will be tried again.
    pub fn transient(enhanced: Enhanced, text: impl Into<Box<str>>) -> Fault {
        Fault { reply: Reply::new(451, enhanced, text), alarm: None }
    }

    /// Makes a fault with 5yz: the message bounces.
    pub fn permanent(enhanced: Enhanced, text: impl Into<Box<str>>) -> Fault {
        Fault { reply: Reply::new(550, enhanced, text), alarm: None }
    }

    /// The message has been delivered to this address before.
    pub fn looping() -> Fault {
        Fault::permanent(Enhanced(5, 4, 6), "mail loop: already delivered to this address")
    }

    /// Another program holds the mailbox's lock.
    pub fn busy() -> Fault {
        Fault::transient(Enhanced(4, 2, 0), "mailbox is locked by another program")
    }

    /// The mailbox does not belong to its recipient alone. Only the alarm says who owns it, and the sender does not
    /// learn it.
    pub fn not_theirs(why: NotTheirs, found: Ownership) -> Fault {
        let text = "the mailbox is not its recipient's alone";
        Fault { alarm: Some((why, found)), ..Fault::transient(Enhanced(4, 2, 0), text) }
    }

    /// Returns what an administrator must be told.
    pub(super) fn alarm(&self) -> Option<(NotTheirs, Ownership)> {
        self.alarm
    }

    /// A system call failed. The codes follow RFC 3463 3.3 and 3.4.
    pub fn io(doing: &str, error: &io::Error) -> Fault {
        let text = format!("{doing}: {error}");
        let reply = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::DQUOT) => (452, Enhanced(4, 2, 2), format!("mailbox is full: {text}")),
            Some(Errno::FBIG) => {
                (452, Enhanced(4, 2, 2), format!("mailbox file is too large: {text}"))
            }
            Some(Errno::NOSPC) => (452, Enhanced(4, 3, 1), format!("disk is full: {text}")),
            Some(Errno::LOOP) => (451, Enhanced(4, 3, 5), format!("symbolic link refused: {text}")),
            Some(Errno::XDEV) => (451, Enhanced(4, 3, 5), format!("leaves its place: {text}")),
            _ => (451, Enhanced(4, 3, 0), text),
        };
        Fault { reply: Reply::new(reply.0, reply.1, reply.2), alarm: None }
    }

    /// Returns the reply that the sender of the message will read.
    pub fn into_reply(self) -> Reply {
        self.reply
    }

    /// Returns the outcome for a mailbox at `peer`.
    pub fn outcome(self, peer: impl Into<Box<str>>) -> Outcome {
        local::outcome(self.reply, peer)
    }
}

/// Returns the outcome of one delivery to `mailbox`.
pub(super) fn outcome(result: Result<(), Fault>, mailbox: &Mailbox) -> Outcome {
    let peer = mailbox.display().to_string_lossy().into_owned();
    match result {
        Ok(()) => {
            let reply = Reply::new(250, Enhanced(2, 0, 0), "delivered to the mailbox");
            local::outcome(reply, peer)
        }
        Err(fault) => fault.outcome(peer),
    }
}
