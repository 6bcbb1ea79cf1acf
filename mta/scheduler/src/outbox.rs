//! Records that wait for `poll`.
//!
//! Must never drop one: each is a change that must become durable.

use crate::output::MessageChanges;
use crate::scheduler::Scheduler;
use mail::Change;
use std::collections::VecDeque;

/// Records in the order in which they must become durable.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    records: VecDeque<MessageChanges>,
}

impl Scheduler {
    /// Adds a record. Deliveries of one message that come one after the other become one record: of a list each of them is
    /// only a number.
    pub(crate) fn record(&mut self, record: MessageChanges) {
        if record.is_empty() {
            return;
        }
        match self.outbox.records.back_mut() {
            Some(last) if last.takes(&record) => last.append(record),
            _ => self.outbox.records.push_back(record),
        }
    }

    /// Adds a record of one change.
    pub(crate) fn record_one(&mut self, change: Change) {
        let mut record = MessageChanges::new(change.message());
        record.changes.push(change);
        self.record(record);
    }

    /// Takes the next record.
    pub(crate) fn next_record(&mut self) -> Option<MessageChanges> {
        self.outbox.records.pop_front()
    }

    /// Number of records that wait.
    pub(crate) fn records_len(&self) -> usize {
        self.outbox.records.len()
    }
}
