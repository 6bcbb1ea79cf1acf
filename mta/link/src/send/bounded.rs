//! The bounds of a result: the replies of all next hops must fit into one frame together.
//!
//! Must never drop an outcome of a recipient that an attempt can have.

use super::Result;
use crate::bounds::{
    ATTEMPT_RECIPIENTS_MAX, OUTCOME_REST_BYTES, PEER_BYTES_MAX, REPLY_TEXT_BYTES_MAX,
    RESULT_BYTES_MAX,
};
use mail::Outcome;

/// Cuts names of peers and replies to their bounds. If their sum is still too large, cuts each to an equal share.
///
/// Drops outcomes beyond the maximum number of recipients of an attempt. Queue defers those recipients.
pub(super) fn cut_to_bound(result: &mut Result) {
    result.outcomes.truncate(ATTEMPT_RECIPIENTS_MAX);
    let mut sum = 0;
    for (_, outcome) in &mut result.outcomes {
        sum += OUTCOME_REST_BYTES + cut_report(outcome, PEER_BYTES_MAX, REPLY_TEXT_BYTES_MAX);
    }
    if sum <= RESULT_BYTES_MAX {
        return;
    }
    let share = RESULT_BYTES_MAX / result.outcomes.len() - OUTCOME_REST_BYTES;
    for (_, outcome) in &mut result.outcomes {
        let peer = outcome.report().peer.len().min(share / 2);
        cut_report(outcome, peer, share - peer);
    }
}

/// Returns the number of bytes that are left.
fn cut_report(outcome: &mut Outcome, peer_bytes_max: usize, text_bytes_max: usize) -> usize {
    let (Outcome::Delivered { report, .. } | Outcome::Deferred(report) | Outcome::Failed(report)) =
        outcome;
    cut(&mut report.peer, peer_bytes_max);
    cut(&mut report.reply.text, text_bytes_max);
    report.peer.len() + report.reply.text.len()
}

/// Returns true if each part of the result is within its own bound. Does not compare the sum.
pub(super) fn is_bounded(result: &Result) -> bool {
    let fits = |(_, outcome): &(u32, Outcome)| {
        let report = outcome.report();
        report.peer.len() <= PEER_BYTES_MAX && report.reply.text.len() <= REPLY_TEXT_BYTES_MAX
    };
    result.outcomes.len() <= ATTEMPT_RECIPIENTS_MAX && result.outcomes.iter().all(fits)
}

#[inline]
fn cut(text: &mut Box<str>, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        *text = text[..end].into();
    }
}
