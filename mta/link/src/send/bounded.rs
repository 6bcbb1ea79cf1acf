//! The bounds of a result: what one peer says must fit into a frame with what all others say.
//!
//! Must never drop an outcome of a recipient that an attempt can have.

use super::Result;
use crate::bounds::{
    ATTEMPT_RECIPIENTS_MAX, OUTCOME_REST_BYTES, PEER_BYTES_MAX, REPLY_TEXT_BYTES_MAX,
    RESULT_BYTES_MAX,
};
use mail::Outcome;

/// Cuts peers and replies to their bounds, and to equal shares of the bound of all if they exceed that
/// in sum. More outcomes than an attempt can have recipients are dropped: those recipients are
/// deferred.
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

/// Gives back how many bytes are left.
fn cut_report(outcome: &mut Outcome, peer_bytes_max: usize, text_bytes_max: usize) -> usize {
    let (Outcome::Delivered { report, .. } | Outcome::Deferred(report) | Outcome::Failed(report)) =
        outcome;
    cut(&mut report.peer, peer_bytes_max);
    cut(&mut report.reply.text, text_bytes_max);
    report.peer.len() + report.reply.text.len()
}

/// Whether `cut_to_bound` would leave it as it is, but for the sum.
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
