//! The envelope of a message that is handed over.
//!
//! Must never claim less of a body than it has: octets above 127 make it 8BITMIME.

use super::InboundSession;
use super::transaction::Transaction;
use link::recipients::Recipients;
use mail::{Envelope, Origin, Timestamp};

impl InboundSession {
    /// The envelope without its recipients, and the recipients.
    pub(super) fn envelope(
        &self,
        transaction: Transaction,
        eight_bit: bool,
        arrived: Timestamp,
    ) -> (Envelope, Recipients) {
        let Transaction { mail, recipients, .. } = transaction;
        let envelope = Envelope {
            from: mail.from.with_bytes(eight_bit),
            origin: Origin {
                client: self.client.address,
                helo: self.helo.clone(),
                protocol: mail.protocol,
            },
            arrived,
            recipients: Vec::new(),
        };
        (envelope, recipients)
    }
}
