//! The room that is left for new data, and what is refused when there is none.
//!
//! Must never refuse a message of our own: they have the reserve.

use crate::admit::GroupOrigin;
use crate::format::BLOCK;
use crate::format::segment::SegmentKind;
use crate::segments::State;
use crate::{Alarm, Output, Refusal, Spool};
use mail::{Now, TransactionId};
use std::collections::HashSet;
use std::time::Duration;
use world::DiskError;

/// The pause after a failed attempt to make a segment.
const RETRY_SECONDS: u64 = 2;

impl Spool {
    /// Whether this many bytes may still be taken from clients, with the reserve left untouched.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let (log, bulk) = (self.streams.log().gathered(), self.streams.bulk().gathered());
        if log.bytes + bulk.bytes - log.own_bytes > self.settings.staged_bytes_max {
            return false;
        }
        let reserve = self.settings.reserve_bytes;
        !self.supply.full || self.ready_bytes() >= reserve + log.bytes + bytes
    }

    fn ready_bytes(&self) -> u64 {
        let ready = self.segments.count(|segment| segment.state == State::Ready) as u64;
        let usable = u64::from(self.settings.segment_bytes) - BLOCK as u64;
        self.streams.log().room() + ready * usable
    }

    /// No other segment can be made for now.
    pub(super) fn no_segment(&mut self, error: DiskError, now: Now) {
        self.supply.retry_at = Some(now.monotonic + Duration::from_secs(RETRY_SECONDS));
        let refusal = if error.is_full() { Refusal::Full } else { Refusal::Broken };
        let ready = self.segments.count(|segment| segment.state == State::Ready);
        let log = self.streams.log();
        let stuck = !log.has_next() && ready == 0 && log.is_stuck();
        match error.is_full() {
            true if !self.supply.full => self.alarm(Alarm::Full(error)),
            true => {}
            // A commit that waits for the segment counts as failed.
            false if stuck => self.failing(error, now),
            false => self.alarm(Alarm::Background(error)),
        }
        self.supply.full |= refusal == Refusal::Full;
        if refusal == Refusal::Full {
            self.snapshots.hurry();
        }
        if stuck {
            self.refuse_gathered(refusal);
            // The record that voids failed commits has no segment either, so nobody waits for it.
            self.say_refused();
        }
    }

    pub(super) fn room_again(&mut self) {
        if self.supply.full {
            self.supply.full = false;
            self.alarm(Alarm::Room);
        }
    }

    /// Gives up the large bodies that are gathered: they do not get the reserve.
    pub(super) fn refuse_bulk(&mut self) {
        let bulk = self.streams.of(SegmentKind::Bulk);
        let lost: HashSet<_> = bulk.drop_unwritten(&mut self.ids).into_iter().collect();
        self.lose(&lost, Refusal::Full);
    }

    /// These bodies are incomplete for good; clients whose message waits are told so. None of the
    /// bodies is our own, because those never go to bulk.
    fn lose(&mut self, lost: &HashSet<TransactionId>, refusal: Refusal) {
        lost.iter().for_each(|transaction| self.staging.lose(*transaction, refusal));
        for group in self.groups.take_of(lost) {
            debug_assert!(group.origin() != GroupOrigin::Own, "a message of our own was in bulk");
            for transaction in group.transactions() {
                self.unstage(transaction);
                if group.origin() == GroupOrigin::Client {
                    self.say(Output::Refused { transaction, refusal });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Settings, Spool};

    fn spool() -> Spool {
        let disk = world::sim::Disk::new(1);
        crate::open(&disk, Settings::for_tests(), 1, &mut |_| {}).unwrap().0
    }

    #[test]
    fn there_is_room_up_to_the_bound_of_what_is_staged_and_not_a_byte_beyond_it() {
        let mut spool = spool();
        spool.streams.log_mut().open_mut().grow_to(5_000);
        let gathered = spool.streams.log().gathered().bytes + spool.streams.bulk().gathered().bytes;
        spool.settings.staged_bytes_max = gathered;
        assert!(spool.has_room(1));
        spool.settings.staged_bytes_max -= 1;
        assert!(!spool.has_room(1));
    }
}
