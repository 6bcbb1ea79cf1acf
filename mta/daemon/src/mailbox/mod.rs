//! Mailbox files: writes a batch of messages to many Maildirs and mboxes, with locks and few syncs. Messages are durable
//! before their outcomes are returned.
//!
//! Must never leave part of a message where a mail reader looks for mail, never follow a symbolic link out of the base
//! directory, and never report `Delivered` for a message that a power cut could still take away.
//!
//! Messages are stored as Unix mail programs expect them: lines end with LF, not CRLF, and `Return-Path` and
//! `Delivered-To` come before the message (RFC 5321 4.4).

mod fault;
mod lock;
mod maildir;
mod mbox;
mod message;
mod place;
mod syncs;
pub mod text;

pub use fault::Fault;
pub use local::{Format, MailboxAlarm};
pub use maildir::SLICE_FILES_MAX;
pub use message::{Intake, LocalMessage, MEMORY_BYTES_MAX, nameless};
pub use place::Base;

use mail::{Address, Outcome, Timestamp, trace};
use policy::Groups;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One message for one mailbox. All recipients of a message share its body.
#[derive(Clone, Debug)]
pub struct MailboxDelivery {
    /// The message.
    pub message: Arc<LocalMessage>,
    /// The recipient. It is written to `Delivered-To`, and the message is refused if that field already names it.
    pub recipient: Address,
    /// The recipient's mailbox.
    pub mailbox: Mailbox,
}

/// A mailbox: a path below a directory that is held open.
#[derive(Clone, Debug)]
pub struct Mailbox {
    /// The directory below which the path stays.
    pub base: Arc<Base>,
    /// The path below `base`, without a leading `/`. Empty means `base` itself (Maildir only).
    pub path: String,
    /// The format of the mailbox.
    pub format: Format,
}

/// What is common to all deliveries of a batch.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Our host name, which is part of the names of Maildir files.
    pub hostname: String,
    /// When the batch is delivered.
    pub now: Timestamp,
    /// The total time that a batch waits for locks that other programs hold.
    pub lock_wait_max: Duration,
    /// The groups whose members may write to mailboxes.
    pub groups: Groups,
}

/// The default time that a batch waits for locks.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);

/// The results of deliveries, in their order.
type Results = Vec<Result<(), Fault>>;

/// Delivers all messages and returns the outcomes in the order of `batch`. Messages that are `Delivered` are then durable,
/// and of the others nothing is left that a mail reader would take for mail. A mailbox that needs an administrator is added
/// to `alarms` once.
pub fn deliver_batch(
    batch: &[MailboxDelivery],
    scene: &Scene,
    alarms: &mut Vec<MailboxAlarm>,
) -> Vec<Outcome> {
    let mut results: Vec<Result<(), Fault>> = batch.iter().map(refuse_loop).collect();
    for (format, deliver) in [
        (
            Format::Maildir,
            maildir::deliver as fn(&[&MailboxDelivery], &Scene) -> Vec<Result<(), Fault>>,
        ),
        (Format::Mbox, mbox::deliver),
    ] {
        let chosen: Vec<usize> = (0..batch.len())
            .filter(|&i| batch[i].mailbox.format == format && results[i].is_ok())
            .collect();
        let deliveries: Vec<&MailboxDelivery> = chosen.iter().map(|&i| &batch[i]).collect();
        for (i, result) in chosen.into_iter().zip(deliver(&deliveries, scene)) {
            results[i] = result;
        }
    }
    collect_alarms(&results, batch, alarms);
    results.into_iter().zip(batch).map(|(r, d)| fault::outcome(r, &d.mailbox)).collect()
}

fn collect_alarms(
    results: &[Result<(), Fault>],
    batch: &[MailboxDelivery],
    alarms: &mut Vec<MailboxAlarm>,
) {
    let mut told = HashSet::new();
    for (delivery, result) in results.iter().enumerate() {
        let Some((why, found)) = result.as_ref().err().and_then(Fault::alarm) else { continue };
        if told.insert(batch[delivery].mailbox.display()) {
            alarms.push(MailboxAlarm { delivery, why, found });
        }
    }
}

/// Refuses a message that was delivered to this address before: it loops (M064).
fn refuse_loop(delivery: &MailboxDelivery) -> Result<(), Fault> {
    match delivery.message.was_delivered_to(delivery.recipient.as_str()) {
        true => Err(Fault::looping()),
        false => Ok(()),
    }
}

impl Mailbox {
    /// Returns the whole path for people.
    pub fn display(&self) -> PathBuf {
        self.base.path().join(&self.path)
    }
}

/// Appends the headers of the final delivery (RFC 5321 4.4) with LF as the line end.
pub fn trace_lines(message: &LocalMessage, recipient: &Address, out: &mut Vec<u8>) {
    let mut lf = text::ToLf::default();
    lf.push(&trace::return_path(message.sender()), out);
    lf.push(&trace::delivered_to(recipient), out);
    lf.finish(out);
}
