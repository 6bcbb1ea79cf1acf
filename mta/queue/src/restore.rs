//! After a start: what the spool replays becomes the scheduler's state again.
//!
//! Must never read a body: snapshot, envelopes and changes are enough.

use mail::{Envelope, MessageId, Now};
use policy::Routes;
use scheduler::{Arrival, ArrivingRecipient, Scheduler};
use spool::Replay;

/// Folds the replay into a scheduler.
#[derive(Debug)]
pub struct Restore<'a> {
    routes: &'a Routes,
    /// Messages whose state did not decode.
    lost: Vec<MessageId>,
}

impl<'a> Restore<'a> {
    /// `routes` say where messages go that had not been scheduled before.
    pub fn new(routes: &'a Routes) -> Restore<'a> {
        Restore { routes, lost: Vec::new() }
    }

    /// Takes one step of the replay.
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

    /// Messages whose state in the snapshot did not decode: they need their envelope read.
    pub fn lost(&self) -> &[MessageId] {
        &self.lost
    }
}

/// Takes a message into the scheduler by its envelope.
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
    // Refused only if the queue has it already: then it is a duplicate of a restored backup.
    let _ = scheduler.arrive(&arrival, now);
}
