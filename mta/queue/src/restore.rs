//! Recovery: restores the scheduler's state from what the spool replays.
//!
//! Must never read a body: the snapshot, the envelopes and the changes are enough.

use mail::{Envelope, MessageId, Now};
use policy::Routes;
use scheduler::{Arrival, ArrivingRecipient, Scheduler};
use spool::Replay;

/// Applies the replay of a spool to a scheduler.
#[derive(Debug)]
pub struct Restore<'a> {
    routes: &'a Routes,
    /// Messages whose state could not be decoded.
    lost: Vec<MessageId>,
}

impl<'a> Restore<'a> {
    /// Creates a restore. `routes` give the next hops of messages that were not scheduled before.
    pub fn new(routes: &'a Routes) -> Restore<'a> {
        Restore { routes, lost: Vec::new() }
    }

    /// Applies one step of the replay.
    pub fn replay(&mut self, scheduler: &mut Scheduler, replay: Replay<'_>, now: Now) {
        match replay {
            Replay::Snapshot { message, blob, .. } => {
                if scheduler.restore(blob, now).is_err() {
                    self.lost.push(message);
                }
            }
            Replay::Accepted { message, envelope, body_bytes, .. } => {
                arrive(scheduler, self.routes, message, &envelope, body_bytes, now);
            }
            Replay::Change(change) => scheduler.apply(&change, now),
        }
    }

    /// Returns the messages whose state in the snapshot could not be decoded.
    pub fn lost(&self) -> &[MessageId] {
        &self.lost
    }
}

/// Gives a message to the scheduler by its envelope.
pub(crate) fn arrive(
    scheduler: &mut Scheduler,
    routes: &Routes,
    message: MessageId,
    envelope: &Envelope,
    bytes: u64,
    now: Now,
) {
    let hops = routes.next_hops_of(envelope.recipients.iter().map(|one| &one.address));
    let recipients: Vec<ArrivingRecipient<'_>> = envelope
        .recipients
        .iter()
        .zip(&hops)
        .map(|(recipient, hop)| ArrivingRecipient {
            address: &recipient.address,
            hop,
            notify: recipient.notify,
        })
        .collect();
    let arrival = Arrival {
        message,
        arrived: envelope.arrived,
        bytes,
        sender: &envelope.from.sender,
        recipients: &recipients,
        held: None,
        priority: 0,
    };
    // The scheduler refuses only a message that it has already: a duplicate from a restored backup.
    let _ = scheduler.arrive(&arrival, now);
}
