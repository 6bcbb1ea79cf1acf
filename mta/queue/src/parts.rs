//! A record, divided into groups that fit into the spool: each notice with the outcomes that it reports, and the end
//! of the message in the last group.
//!
//! Must never put an outcome and the notice that reports it into different groups, nor the end of a message into any
//! group but the last.

use link::bounds::{PEER_BYTES_MAX, REPLY_TEXT_BYTES_MAX};
use mail::bounce::NOTICE_RECIPIENTS_MAX;
use mail::{Change, MessageId, Report};
use scheduler::{MessageChanges, NoticeKind, PlannedNotice};
use spool::{SEGMENT_BYTES_MIN, change_bytes, group_bytes_max};
use std::collections::VecDeque;

/// Upper bound on the changes in one group, in bytes, besides those that its notice reports.
const CHANGES_BYTES_MAX: usize = 24 << 10;
/// Upper bound on the recipients in one change.
const CHANGE_RECIPIENTS_MAX: usize = 2_048;
/// Upper bound on the message record of a notice without its body, in bytes: one recipient, and the places of the
/// chunks.
const NOTICE_HEAD_BYTES_MAX: usize = 8 << 10;

// A group fits into the smallest segment: its changes, the change that its notice reports, and the last chunk and the
// message record of the notice.
const _: () = {
    let told = 64 + 5 * NOTICE_RECIPIENTS_MAX;
    let chunk = SEGMENT_BYTES_MIN as usize / 8;
    let group = CHANGES_BYTES_MAX + told + chunk + NOTICE_HEAD_BYTES_MAX;
    assert!(group <= group_bytes_max(SEGMENT_BYTES_MIN));
};
// A single change fits as well, even with the longest reply and peer name.
const REPORT_BYTES_MAX: usize = 128 + REPLY_TEXT_BYTES_MAX + PEER_BYTES_MAX;
const _: () = assert!(5 * CHANGE_RECIPIENTS_MAX + REPORT_BYTES_MAX < CHANGES_BYTES_MAX);

/// How a notice is made. Each time the spool refuses a notice as too large, the next one is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Includes as much of the original as the settings allow.
    Ordinary,
    /// Includes only the headers of the original.
    Headers,
    /// Leaves out the original and the texts of replies.
    Bare,
    /// No notice: only the outcome is recorded.
    Untold,
}

/// The part of a record that has not been submitted.
#[derive(Debug)]
pub struct Parts {
    pub(crate) message: MessageId,
    /// Changes without a notice.
    plain: VecDeque<Change>,
    notices: VecDeque<PlannedNotice>,
    /// Recipients of the first notice that earlier groups have reported.
    told: usize,
    retire: bool,
    pub(crate) manner: Manner,
    /// Upper bound on the recipients in one notice.
    recipients_max: usize,
}

/// The part of a record that goes into one group.
#[derive(Debug)]
pub(crate) struct Part {
    pub changes: Vec<Change>,
    /// The number of recipients of the first notice that the group reports.
    pub told: usize,
    /// True for the last group of the record.
    pub is_last: bool,
}

impl Parts {
    /// Divides a record.
    pub(crate) fn of(record: MessageChanges) -> Parts {
        let MessageChanges { message, changes, notices, silent: _ } = record;
        let retire = matches!(changes.last(), Some(Change::Retire { .. }));
        let mut plain = VecDeque::new();
        for change in changes {
            cut_change(untold(change, &notices), &mut plain);
        }
        let notices = notices.into();
        let (manner, recipients_max) = (Manner::Ordinary, NOTICE_RECIPIENTS_MAX);
        Parts { message, plain, notices, told: 0, retire, manner, recipients_max }
    }

    /// Returns true if a record is one small group and need not be divided.
    pub(crate) fn is_one_group(record: &MessageChanges) -> bool {
        record.notices.is_empty()
            && match &record.changes[..] {
                [] | [_, _, _, ..] => false,
                changes => changes.iter().map(weight).sum::<usize>() <= CHANGES_BYTES_MAX,
            }
    }

    /// Returns true if nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        self.plain.is_empty() && self.notices.is_empty() && !self.retire
    }

    /// Returns true if notices must still be made.
    pub(crate) fn tells(&self) -> bool {
        self.manner != Manner::Untold && !self.notices.is_empty()
    }

    /// Returns the number of recipients whose outcome is final.
    pub(crate) fn outcomes(&self) -> u64 {
        let left = |(at, notice): (usize, &PlannedNotice)| match notice.kind {
            NoticeKind::Delayed => 0,
            _ => notice.recipients.len() - if at == 0 { self.told } else { 0 },
        };
        let told = self.notices.iter().enumerate().map(left).sum::<usize>();
        self.plain.iter().map(outcomes).sum::<u64>() + told as u64
    }

    /// Returns the kind of the next notice and the recipients that it may report, or `None` if the next group has no
    /// notice.
    pub(crate) fn next_told(&self) -> Option<(NoticeKind, &[(u32, Report)])> {
        if self.plain_in_one_group() < self.plain.len() {
            return None;
        }
        let notice = self.notices.front()?;
        let left = &notice.recipients[self.told..];
        Some((notice.kind, &left[..left.len().min(self.recipients_max)]))
    }

    /// Returns the next group, which reports `told` recipients of the first notice.
    pub(crate) fn part(&self, told: usize) -> Part {
        let plain = self.plain_in_one_group();
        let mut changes: Vec<Change> = self.plain.iter().take(plain).cloned().collect();
        let notice = self.notices.front().filter(|_| told > 0);
        changes.extend(notice.map(|notice| {
            let recipients = &notice.recipients[self.told..self.told + told];
            told_change(self.message, notice.kind, recipients.iter().map(|(at, _)| *at).collect())
        }));
        let is_last = plain == self.plain.len()
            && match notice {
                Some(notice) => {
                    self.notices.len() == 1 && self.told + told == notice.recipients.len()
                }
                None => self.notices.is_empty(),
            };
        if is_last && self.retire {
            changes.push(Change::Retire { message: self.message });
        }
        Part { changes, told, is_last }
    }

    /// Removes a part that the spool has taken.
    pub(crate) fn taken(&mut self, part: &Part) {
        let plain = self.plain_in_one_group();
        self.plain.drain(..plain);
        self.told += part.told;
        if self.notices.front().is_some_and(|notice| notice.recipients.len() == self.told) {
            self.notices.pop_front();
            self.told = 0;
        }
        self.retire &= !part.is_last;
    }

    /// Makes the next notice smaller after the spool has refused one about this number of recipients as too large.
    /// Returns false if nothing smaller is possible.
    pub(crate) fn make_smaller(&mut self, recipients: usize) -> bool {
        match self.manner {
            Manner::Ordinary => self.manner = Manner::Headers,
            _ if recipients > 1 => self.recipients_max = recipients / 2,
            Manner::Headers => self.manner = Manner::Bare,
            Manner::Bare => self.manner = Manner::Untold,
            Manner::Untold => return false,
        }
        true
    }

    /// Returns how many of the changes without a notice fit into one group.
    fn plain_in_one_group(&self) -> usize {
        let mut bytes = 0;
        let fits = |change: &&Change| {
            bytes += weight(change);
            bytes <= CHANGES_BYTES_MAX
        };
        self.plain.iter().take_while(fits).count().max(1).min(self.plain.len())
    }
}

fn weight(change: &Change) -> usize {
    64 + change_bytes(change)
}

/// Returns the number of recipients of a change whose outcome is final.
pub(crate) fn outcomes(change: &Change) -> u64 {
    match change {
        Change::Delivered { recipients, .. } | Change::Failed { recipients, .. } => {
            recipients.len() as u64
        }
        _ => 0,
    }
}

fn told_change(message: MessageId, kind: NoticeKind, recipients: Vec<u32>) -> Change {
    match kind {
        NoticeKind::Failed | NoticeKind::Expired => Change::Failed { message, recipients },
        NoticeKind::Delayed => Change::DelayNoticed { message, recipients },
        NoticeKind::Relayed | NoticeKind::Delivered => Change::Delivered { message, recipients },
    }
}

/// Removes from a change the recipients that the notices report.
fn untold(mut change: Change, notices: &[PlannedNotice]) -> Change {
    let of_change = |notice: &&PlannedNotice| match change {
        Change::Failed { .. } => matches!(notice.kind, NoticeKind::Failed | NoticeKind::Expired),
        Change::DelayNoticed { .. } => notice.kind == NoticeKind::Delayed,
        Change::Delivered { .. } => {
            matches!(notice.kind, NoticeKind::Relayed | NoticeKind::Delivered)
        }
        _ => false,
    };
    let told = notices.iter().filter(of_change).flat_map(|notice| &notice.recipients);
    let mut told: Vec<u32> = told.map(|(index, _)| *index).collect();
    told.sort_unstable();
    if let Change::Failed { recipients, .. }
    | Change::DelayNoticed { recipients, .. }
    | Change::Delivered { recipients, .. } = &mut change
    {
        recipients.retain(|index| told.binary_search(index).is_err());
    }
    change
}

/// Divides a change into changes of fewer recipients. Leaves out the end of a message.
fn cut_change(change: Change, into: &mut VecDeque<Change>) {
    let pieces =
        |recipients: Vec<u32>, into: &mut VecDeque<Change>, of: &dyn Fn(Vec<u32>) -> Change| {
            into.extend(recipients.chunks(CHANGE_RECIPIENTS_MAX).map(|piece| of(piece.to_vec())));
        };
    match change {
        Change::Delivered { message, recipients } => {
            pieces(recipients, into, &|recipients| Change::Delivered { message, recipients });
        }
        Change::Failed { message, recipients } => {
            pieces(recipients, into, &|recipients| Change::Failed { message, recipients });
        }
        Change::DelayNoticed { message, recipients } => {
            pieces(recipients, into, &|recipients| Change::DelayNoticed { message, recipients });
        }
        Change::Due { message, recipients, due, attempts, report } => {
            pieces(recipients, into, &|recipients| {
                let report = report.clone();
                Change::Due { message, recipients, due, attempts, report }
            });
        }
        Change::Retire { .. } => {}
        other => into.push_back(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Enhanced, Reply, Stage, Timestamp};

    const MESSAGE: MessageId = MessageId(7);

    fn report(bytes: usize) -> Report {
        let reply = Reply::new(550, Enhanced(5, 1, 1), "x".repeat(bytes));
        Report { stage: Stage::Rcpt, reply, peer: "mx".into(), from_peer: true }
    }

    /// Submits everything, with at most `at_once` recipients in one notice.
    fn hand_in(record: MessageChanges, at_once: usize) -> Vec<Part> {
        let (mut parts, mut all) = (Parts::of(record), Vec::new());
        while !parts.is_done() {
            let told = parts.next_told().map_or(0, |(_, left)| left.len().min(at_once));
            let part = parts.part(told);
            parts.taken(&part);
            all.push(part);
        }
        all
    }

    fn recipients_of(change: &Change) -> Vec<u32> {
        match change {
            Change::Delivered { recipients, .. }
            | Change::Failed { recipients, .. }
            | Change::DelayNoticed { recipients, .. }
            | Change::Due { recipients, .. } => recipients.clone(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn r208_a_record_of_any_size_is_cut_into_groups_that_fit_and_the_end_is_in_the_last() {
        let (failed, delivered): (Vec<u32>, Vec<u32>) = (0..60_000).partition(|n| n % 3 == 0);
        let due: Vec<u32> = (60_000..90_000).collect();
        let told: Vec<_> =
            failed.iter().filter(|n| **n % 2 == 0).map(|n| (*n, report(1))).collect();
        let record = MessageChanges {
            message: MESSAGE,
            changes: vec![
                Change::Delivered { message: MESSAGE, recipients: delivered.clone() },
                Change::Failed { message: MESSAGE, recipients: failed.clone() },
                Change::Due {
                    message: MESSAGE,
                    recipients: due,
                    due: Timestamp::default(),
                    attempts: 1,
                    report: report(8 << 10),
                },
                Change::Hold { message: MESSAGE },
                Change::Retire { message: MESSAGE },
            ],
            notices: vec![PlannedNotice { kind: NoticeKind::Expired, recipients: told.clone() }],
            silent: Vec::new(),
        };
        let parts = hand_in(record, 700);
        let (last, others) = parts.split_last().unwrap();
        let retires =
            |part: &Part| part.changes.iter().any(|change| matches!(change, Change::Retire { .. }));
        assert!(last.is_last && retires(last));
        assert!(others.iter().all(|part| !part.is_last && !retires(part)));
        let bytes = |part: &Part| part.changes.iter().map(weight).sum::<usize>();
        assert!(parts.iter().all(|part| bytes(part) <= CHANGES_BYTES_MAX + 6_000));
        assert_eq!(parts.iter().map(|part| part.told).sum::<usize>(), told.len());
        let mut all: Vec<u32> =
            parts.iter().flat_map(|part| &part.changes).flat_map(recipients_of).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..90_000), "each once");
    }

    #[test]
    fn recipients_that_a_notice_of_a_delay_has_told_of_are_not_taken_off_the_final_outcomes() {
        let told = |from: u32| (from..from + 3).map(|at| (at, report(1))).collect();
        let notice = |kind, from| PlannedNotice { kind, recipients: told(from) };
        let record = MessageChanges {
            message: MESSAGE,
            changes: vec![
                Change::DelayNoticed { message: MESSAGE, recipients: vec![1, 2, 3] },
                Change::Failed { message: MESSAGE, recipients: vec![4, 5, 6, 7] },
            ],
            notices: vec![notice(NoticeKind::Delayed, 1), notice(NoticeKind::Expired, 4)],
            silent: Vec::new(),
        };
        let mut parts = Parts::of(record);
        let mut left = vec![parts.outcomes()];
        while !parts.is_done() {
            let told = parts.next_told().map_or(0, |(_, left)| left.len().min(2));
            parts.taken(&parts.part(told));
            left.push(parts.outcomes());
        }
        // Left are: the change without a notice and two delays; a delay; two expired recipients; the last one.
        assert_eq!(left, [4, 3, 3, 1, 0]);
    }

    #[test]
    fn what_a_notice_tells_of_is_in_its_group_alone() {
        let told = vec![(1, report(1)), (3, report(1))];
        let record = MessageChanges {
            message: MESSAGE,
            changes: vec![Change::Failed { message: MESSAGE, recipients: vec![1, 2, 3] }],
            notices: vec![PlannedNotice { kind: NoticeKind::Failed, recipients: told }],
            silent: Vec::new(),
        };
        let parts = hand_in(record, 1);
        let groups: Vec<Vec<Vec<u32>>> =
            parts.iter().map(|part| part.changes.iter().map(recipients_of).collect()).collect();
        assert_eq!(groups, [vec![vec![2], vec![1]], vec![vec![3]]]);
    }

    #[test]
    fn r208_a_notice_that_is_refused_becomes_smaller_until_there_is_none() {
        let record = MessageChanges {
            message: MESSAGE,
            changes: Vec::new(),
            notices: vec![PlannedNotice {
                kind: NoticeKind::Failed,
                recipients: vec![(0, report(1)); 4],
            }],
            silent: Vec::new(),
        };
        let mut parts = Parts::of(record);
        let mut seen = Vec::new();
        loop {
            let left = parts.next_told().unwrap().1.len();
            seen.push((parts.manner, left));
            if !parts.make_smaller(left) {
                break;
            }
        }
        let (o, h, b, u) = (Manner::Ordinary, Manner::Headers, Manner::Bare, Manner::Untold);
        assert_eq!(seen, [(o, 4), (h, 4), (h, 2), (h, 1), (b, 1), (u, 1)]);
    }
}
