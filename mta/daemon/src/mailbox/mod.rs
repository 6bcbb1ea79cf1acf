//! Mailbox files: a batch of messages into many Maildirs and mboxes, locked, with few syncs, durable
//! before an outcome is given.
//!
//! Must never leave half a message where a reader looks for mail, never follow a symbolic link out of
//! the base directory, and never say `Delivered` of what a power cut could still take.
//!
//! Messages are stored as Unix mail programs expect them: lines end with LF, not CRLF, and the final
//! delivery writes `Return-Path` and `Delivered-To` in front (RFC 5321 4.4).

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
pub use message::{Intake, MEMORY_BYTES_MAX, Message, nameless};
pub use place::Base;

use mail::{Address, Outcome, Wall, trace};
use policy::Groups;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One message for one mailbox. Messages are shared: a body is held once for all its recipients.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// What.
    pub message: Arc<Message>,
    /// Whose: written to `Delivered-To`, and refused when it is there already.
    pub recipient: Address,
    /// Where.
    pub mailbox: Mailbox,
}

/// A mailbox: a path below a directory that is held open.
#[derive(Clone, Debug)]
pub struct Mailbox {
    /// The directory that the path never leaves.
    pub base: Arc<Base>,
    /// Below `base`, without a leading `/`; empty is `base` itself (Maildir only).
    pub path: String,
    /// How mail is kept there.
    pub format: Format,
}

/// What a batch needs of the world around it.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Our name; part of the names of Maildir files.
    pub hostname: String,
    /// When the batch is delivered.
    pub now: Wall,
    /// How long one batch waits for locks that others hold, all together.
    pub lock_wait_max: Duration,
    /// Whose members may write to mailboxes.
    pub groups: Groups,
}

/// How long a batch waits for locks, unless told otherwise.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);

/// Delivers all of them; the outcomes are in the order of `batch`. When it returns, what is
/// `Delivered` is durable, and of what is not, nothing is left that a reader would take for mail. Each
/// mailbox that somebody has to look after is added to `alarms` once.
pub fn deliver_batch(
    batch: &[Delivery],
    scene: &Scene,
    alarms: &mut Vec<MailboxAlarm>,
) -> Vec<Outcome> {
    let mut results: Vec<Result<(), Fault>> = batch.iter().map(refuse_loop).collect();
    for (format, deliver) in [
        (Format::Maildir, maildir::deliver as fn(&[&Delivery], &Scene) -> Vec<Result<(), Fault>>),
        (Format::Mbox, mbox::deliver),
    ] {
        let chosen: Vec<usize> = (0..batch.len())
            .filter(|&i| batch[i].mailbox.format == format && results[i].is_ok())
            .collect();
        let deliveries: Vec<&Delivery> = chosen.iter().map(|&i| &batch[i]).collect();
        for (i, result) in chosen.into_iter().zip(deliver(&deliveries, scene)) {
            results[i] = result;
        }
    }
    collect_alarms(&results, batch, alarms);
    results.into_iter().zip(batch).map(|(r, d)| fault::outcome(r, &d.mailbox)).collect()
}

fn collect_alarms(
    results: &[Result<(), Fault>],
    batch: &[Delivery],
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

/// A message that was delivered to this address before has gone in a circle (FAULTS M064).
fn refuse_loop(delivery: &Delivery) -> Result<(), Fault> {
    match delivery.message.was_delivered_to(delivery.recipient.as_str()) {
        true => Err(Fault::looping()),
        false => Ok(()),
    }
}

impl Mailbox {
    /// The whole path, as people read it.
    pub fn display(&self) -> PathBuf {
        self.base.path().join(&self.path)
    }
}

/// The lines of the final delivery (RFC 5321 4.4), ended by LF as everything in a mailbox.
pub fn trace_lines(message: &Message, recipient: &Address, out: &mut Vec<u8>) {
    let mut lf = text::ToLf::default();
    lf.push(&trace::return_path(message.sender()), out);
    lf.push(&trace::delivered_to(recipient), out);
    lf.finish(out);
}
