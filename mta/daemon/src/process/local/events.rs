//! The machine's events, as lines of the log.
//! Must never leave out the end of an attempt.

use crate::log::{EventKind, Log};
use local::{AttemptEnd, LocalEvent, MailboxAlarm};
use mail::{Enhanced, Outcome};

/// Writes an event to the log.
pub fn write(log: &Log, event: &LocalEvent) {
    match event {
        LocalEvent::Attempt(end) => write_attempt(log, end),
        LocalEvent::Alarm { mailbox, alarm } => log.error(&alarm_text(alarm, mailbox)),
    }
}

/// The one line of an attempt for a recipient.
fn write_attempt(log: &Log, end: &AttemptEnd) {
    let (report, status) = match &end.outcome {
        Outcome::Delivered { report, .. } => (report, "delivered"),
        Outcome::Deferred(report) => (report, "deferred"),
        Outcome::Failed(report) => (report, "failed"),
    };
    let waited = end.taken.since(end.times.due.max(end.times.arrived));
    let delays = [(EventKind::Schedule, waited), (EventKind::Attempt, end.ended.since(end.taken))];
    let event = log.event(EventKind::Attempt).id(end.message).from(&end.sender).to(&end.recipient);
    let event = event.relay(&report.peer).delay(end.ended.since(end.times.arrived)).delays(&delays);
    let dsn = report.reply.enhanced.unwrap_or(Enhanced((report.reply.code / 100) as u8, 0, 0));
    event.dsn(dsn).status(status).reply(&report.reply).emit();
}

fn alarm_text(MailboxAlarm { why, found, .. }: &MailboxAlarm, mailbox: &str) -> String {
    format!(
        "mailbox {mailbox} {why}: its mail waits until it is its recipient's alone \
         (owner {}, group {}, mode {:04o})",
        found.uid,
        found.gid,
        found.mode & 0o7777
    )
}
