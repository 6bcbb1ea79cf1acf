//! The events of the queue as lines of the log.
//!
//! Must never change a name or a field that docs/log.md promises.

use crate::log::{EventKind, Log};
use queue::LogEvent;
use world::real::faults::{self, Point};

/// Writes one event to the log.
pub(super) fn write(log: &Log, logged: &LogEvent) {
    match logged {
        LogEvent::Bounce { about, notice, kind, to, recipients } => {
            let kind = format!("{kind:?}").to_lowercase();
            log.event(EventKind::Bounce)
                .id(*about)
                .text("notice", &notice.to_string())
                .text("kind", &kind)
                .text("to", to)
                .number("recipients", *recipients as u64)
                .emit();
        }
        LogEvent::Silent { message, silent } => {
            for (_, report) in &silent.recipients {
                let why = format!("{:?}", silent.why);
                log.event(EventKind::Bounce)
                    .id(*message)
                    .text("kind", "none")
                    .text("why", &why)
                    .reply(&report.reply)
                    .emit();
            }
        }
        LogEvent::Retire { message } => {
            faults::reach(Point::Retired);
            log.event(EventKind::Retire).id(*message).emit();
        }
        LogEvent::Alarm(alarm) => log.warn(&alarm.to_string()),
        LogEvent::WritesFail { in_flight, unsynced } => log.warn(&format!(
            "writes fail: {in_flight} recipients are with sending processes, {unsynced} outcomes \
             are not synced; no attempt begins until a write works"
        )),
        LogEvent::WritesWork => log.warn("writes work again; attempts begin again"),
        LogEvent::Damaged { message, text } => {
            log.event(EventKind::Attempt).id(*message).status("damaged").text("text", text).emit();
        }
    }
}
