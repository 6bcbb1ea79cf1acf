//! What stands in the spool after a start: each message read back whole, and what is left to do
//! for it.
//!
//! Must never read but through the spool's own reader, whose checksums are part of what is tried.

use bytes::Bytes;
use mail::{MessageId, Now};
use queue::Restore;
use scheduler::{HeldBy, Scheduler};
use spool::{OpenReport, Spool, StoredMessage};
use std::collections::BTreeMap;
use world::Disk;

/// A spool that was just opened, with the scheduler that it told.
pub struct Recovered {
    /// Not yet polled.
    pub spool: Spool,
    /// As replayed.
    pub scheduler: Scheduler,
    /// What recovery said.
    pub report: OpenReport,
    /// All that is there.
    pub messages: BTreeMap<MessageId, Found>,
}

/// One message.
#[derive(Debug, PartialEq)]
pub struct Found {
    /// As it was read.
    pub stored: StoredMessage,
    /// Its body in pieces.
    pub body: Vec<Bytes>,
    /// Whether somebody holds it.
    pub held: Option<HeldBy>,
    /// The recipients that are not done, with the attempts so far.
    pub waiting: Vec<(u32, u16)>,
}

/// What must not change when a start is repeated.
pub type State = BTreeMap<MessageId, (Option<HeldBy>, Vec<(u32, u16)>)>;

/// Opens the spool as the daemon does and reads everything; an error is a text for people.
pub fn recover(
    disk: &dyn Disk,
    settings: &super::Settings,
    incarnation: u64,
    now: Now,
) -> Result<Recovered, String> {
    let mut scheduler = Scheduler::new(settings.queue.scheduler.clone(), incarnation, now);
    let mut restore = Restore::new(&settings.queue.routes);
    let opened = spool::open(disk, settings.spool.clone(), incarnation, &mut |replay| {
        restore.replay(&mut scheduler, replay, now);
    });
    let (mut spool, report) =
        opened.map_err(|error| format!("the spool does not open: {error}"))?;
    if !restore.lost().is_empty() {
        return Err(format!("no state of {:?} in the snapshot", restore.lost()));
    }
    let ids: Vec<MessageId> = spool.messages_above(0).collect();
    if ids.len() != scheduler.len() {
        return Err(format!("{} in the spool, {} scheduled", ids.len(), scheduler.len()));
    }
    let mut messages = BTreeMap::new();
    for id in ids {
        messages.insert(id, found(disk, &mut spool, &scheduler, id, now)?);
    }
    Ok(Recovered { spool, scheduler, report, messages })
}

fn found(
    disk: &dyn Disk,
    spool: &mut Spool,
    scheduler: &Scheduler,
    id: MessageId,
    now: Now,
) -> Result<Found, String> {
    let plan = spool.plan(id).ok_or_else(|| format!("{id} has no place"))?;
    let read = spool::read_message(disk, &plan).and_then(|stored| {
        let mut body: Vec<Bytes> = stored.body.clone().into_iter().collect();
        for chunk in &stored.chunks {
            body.push(spool::read_chunk(disk, chunk)?);
        }
        Ok((stored, body))
    });
    spool.unplan(plan);
    let (stored, body) = read.map_err(|error| format!("{id} cannot be read: {error}"))?;
    let told = scheduler.explain(id, now).ok_or_else(|| format!("{id} is not scheduled"))?;
    let waiting = told.recipients.iter().map(|r| (r.recipient, r.attempts)).collect();
    Ok(Found { stored, body, held: told.held, waiting })
}

impl Recovered {
    /// For comparing two starts.
    pub fn state(&self) -> State {
        let of = |(id, found): (&MessageId, &Found)| (*id, (found.held, found.waiting.clone()));
        self.messages.iter().map(of).collect()
    }
}

impl Found {
    /// Whether these bytes are its body.
    pub fn has_body(&self, mut expected: &[u8]) -> bool {
        for piece in &self.body {
            match expected.split_at_checked(piece.len()) {
                Some((front, rest)) if front == piece => expected = rest,
                _ => return false,
            }
        }
        expected.is_empty()
    }
}
