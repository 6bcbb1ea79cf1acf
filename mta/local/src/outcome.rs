//! The outcome that a reply of this process means for one recipient.
//! Must never turn a transient reply into a failure.

use mail::{Enhanced, Outcome, Reply, Report, Stage};

/// Returns the outcome of a delivery to `mailbox` that ended with this reply.
pub fn outcome(reply: Reply, mailbox: impl Into<Box<str>>) -> Outcome {
    let (positive, permanent) = (reply.is_positive(), reply.is_permanent());
    let report = Report { stage: Stage::Mailbox, reply, peer: mailbox.into(), from_peer: false };
    match (positive, permanent) {
        (true, _) => Outcome::Delivered { report, relayed: false },
        (_, true) => Outcome::Failed(report),
        _ => Outcome::Deferred(report),
    }
}

/// The local part names no mailbox.
pub(crate) fn no_such_mailbox() -> Reply {
    Reply::new(550, Enhanced(5, 1, 1), "no such mailbox here")
}

/// The queue process cannot read the body of the message.
pub(crate) fn damaged() -> Reply {
    Reply::new(451, Enhanced(4, 3, 0), "the message is damaged in the spool")
}

/// The settings give local mail to another server, so that this process has no place for it.
pub(crate) fn elsewhere(hop: &str) -> Reply {
    Reply::new(451, Enhanced(4, 3, 5), format!("local mail goes to {hop}, not to mailboxes"))
}

/// The worker is gone. What it had delivered before is not known, so the message may come twice.
pub(crate) fn worker_ended(user: &str, why: &str) -> Reply {
    let user = if user.is_empty() { "local's own id" } else { user };
    Reply::new(451, Enhanced(4, 3, 0), format!("the worker for {user} ended: {why}"))
}
