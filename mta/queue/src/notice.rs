//! Notices to senders: the next notice of a record, and its log event.
//!
//! Must never store a notice: a notice is submitted together with the outcomes that it reports.

use crate::message_cache::CachedMessage;
use crate::parts::{Manner, Parts};
use crate::record::Original;
use crate::{LogEvent, Queue};
use mail::bounce::{Bounce, BounceKind, Excerpt};
use mail::{MessageId, Now, Report};
use scheduler::NoticeKind;

impl Queue {
    /// Logs that a sender is not told of an outcome.
    pub(crate) fn no_notice(&mut self, message: MessageId, why: &str) {
        let text = format!("no notice could be made: {why}");
        self.log(LogEvent::Damaged { message, text });
    }

    /// Returns the notice of the next group and the number of recipients that it reports. There is no notice if the
    /// record is `Untold` or the original cannot be read.
    pub(crate) fn next_notice(
        &self,
        parts: &Parts,
        original: Option<Original<'_>>,
        now: Now,
    ) -> (Option<Bounce>, usize) {
        let Some((kind, recipients)) = parts.next_told() else { return (None, 0) };
        match original.filter(|_| parts.manner != Manner::Untold) {
            Some((cached, original)) => self.notice(parts, kind, recipients, cached, original, now),
            None => (None, recipients.len()),
        }
    }

    fn notice(
        &self,
        parts: &Parts,
        kind: NoticeKind,
        recipients: &[(u32, Report)],
        cached: &CachedMessage,
        original: &[u8],
        now: Now,
    ) -> (Option<Bounce>, usize) {
        let kind = match kind {
            NoticeKind::Failed => BounceKind::Failed,
            NoticeKind::Expired => BounceKind::Expired,
            NoticeKind::Delayed => BounceKind::Delayed,
            NoticeKind::Relayed => BounceKind::Relayed,
            NoticeKind::Delivered => BounceKind::Delivered,
        };
        let envelope = &cached.envelope;
        let bytes_max = self.settings.original_bytes_max;
        let excerpt = match parts.manner {
            Manner::Ordinary => mail::bounce::excerpt(kind, envelope, cached.bytes, bytes_max),
            _ => Excerpt::Headers,
        };
        let is_bare = parts.manner == Manner::Bare;
        let bare = if is_bare { without_words(recipients) } else { Vec::new() };
        let expire = self.settings.scheduler.retry.expire;
        mail::bounce::first_bounce(&mail::bounce::Notice {
            kind,
            hostname: &self.settings.hostname,
            postmaster: &self.settings.postmaster,
            id: parts.message,
            envelope,
            recipients: if is_bare { &bare } else { recipients },
            excerpt,
            original: if is_bare { &[] } else { original },
            original_bytes: cached.bytes,
            now: now.wall,
            retry_until: matches!(kind, BounceKind::Delayed | BounceKind::Expired)
                .then(|| envelope.arrived + expire),
        })
    }

    /// Returns the log event of a notice, whose id is not known yet.
    pub(crate) fn logged(
        &self,
        parts: &Parts,
        bounce: &Bounce,
        recipients: usize,
    ) -> Box<LogEvent> {
        let to = bounce.envelope.recipients.first();
        let to = to.map(|recipient| recipient.address.to_string()).unwrap_or_default();
        let kind = parts.next_told().map_or(NoticeKind::Failed, |(kind, _)| kind);
        let (about, notice) = (parts.message, MessageId(0));
        Box::new(LogEvent::Bounce { about, notice, kind, to, recipients })
    }
}

/// Returns the reports without the texts of the replies.
fn without_words(recipients: &[(u32, Report)]) -> Vec<(u32, Report)> {
    let mut bare = recipients.to_vec();
    bare.iter_mut().for_each(|(_, report)| report.reply.text = WORDS_LEFT_OUT.into());
    bare
}

/// Replaces the text of a reply in a notice that would be too large with it.
const WORDS_LEFT_OUT: &str = "(the words of this reply are left out)";
