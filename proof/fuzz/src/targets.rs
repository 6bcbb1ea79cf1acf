//! The table of targets.
//!
//! Must never lack a parser of what strangers send, or a decoder of what lies on the disk or comes
//! from another process.

use crate::{disk, inner, machines, smtp, text};

/// One function for any bytes.
pub struct Target {
    /// Also the name of its folders of seeds and of crashes.
    pub name: &'static str,
    /// What it covers.
    pub what: &'static str,
    /// A dictionary below `proof/fuzz/dictionaries`.
    pub dictionary: Option<&'static str>,
    /// Longest input worth trying, in bytes.
    pub bytes_max: usize,
    /// Panics if something does not hold.
    pub run: fn(&[u8]),
}

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

const fn of(
    name: &'static str,
    what: &'static str,
    dictionary: Option<&'static str>,
    bytes_max: usize,
    run: fn(&[u8]),
) -> Target {
    Target { name, what, dictionary, bytes_max, run }
}

const SMTP: Option<&str> = Some("smtp");
const MAIL: Option<&str> = Some("mail");

/// All of them.
#[rustfmt::skip] // a table
pub const TARGETS: &[Target] = &[
    of("commands", "SMTP command lines and the parameters of MAIL and RCPT", SMTP, 2_048, smtp::words::commands),
    of("replies", "replies of a next hop and the offers in them, cut anywhere", SMTP, 8_192, smtp::words::replies),
    of("addresses", "addresses, domains, mailbox names, parsed and decoded", MAIL, 512, text::addresses::addresses),
    of("data_framing", "dots and line ends after DATA against a model, cut anywhere", SMTP, 2_048, smtp::framing::data),
    of("bdat", "BDAT chunks through a server session against a model, cut anywhere", SMTP, 2_048, smtp::framing::bdat),
    of("server_session", "a server session, any bytes, times, verdicts and ends", SMTP, 4_096, smtp::server::session),
    of("server_cuts", "a server session: any cut of the same bytes gives the same events", SMTP, 4_096, smtp::server::cuts),
    of("client_session", "a client session, any bytes, times and ends", SMTP, 4_096, smtp::client::session),
    of("client_cuts", "a client session: any cut of the same bytes gives the same outcomes", SMTP, 4_096, smtp::client::cuts),
    of("dsn_fields", "xtext, ENVID, ORCPT, NOTIFY, and the notices made of them", MAIL, 2_048, text::notices::dsn_fields),
    of("trace_headers", "trace headers made of a stranger's words", MAIL, 1_024, text::notices::trace_headers),
    of("settings", "the settings file", Some("settings"), 4_096, text::settings::settings),
    of("mailbox_text", "line ends and From lines of a mailbox, cut anywhere", MAIL, 2_048, text::mailbox::mailbox_text),
    of("spool_headers", "disk: marker, names, headers of segments, snapshots and slices", None, 4_096, disk::format::headers),
    of("spool_batch", "disk: batches and their records, damaged and hostile", None, 8_192, disk::format::batch),
    of("spool_records", "disk: payloads of message, change and void records", None, 4_096, disk::format::records),
    of("spool_snapshot", "disk: slices, entries, table, and the scheduler's blobs", None, 8_192, disk::format::snapshot),
    of("spool_open", "disk: a whole spool of hostile files: opened, checked, read, written on", None, 32_768, disk::open::open),
    of("link_frame", "processes: frames, control messages, sealed settings", None, 4_096, inner::decoders::frame),
    of("link_receive", "processes: both ends of receive and queue", None, 4_096, inner::decoders::receive),
    of("link_send", "processes: both ends of queue and send", None, 4_096, inner::decoders::send),
    of("link_admin", "processes: questions and answers of the command line", None, 4_096, inner::decoders::admin),
    of("queue_receiver", "the queue machine with a hostile receiving process", None, 4_096, inner::queue::receiver),
    of("queue_sender", "the queue machine with a hostile sending process", None, 4_096, inner::queue::sender),
    of("receive_machine", "the receive machine: clients, queue's answers, little memory", SMTP, 4_096, machines::receive::receive),
    of("send_machine", "the send machine: next hops, streams to queue, few connections", SMTP, 4_096, machines::send::send),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_targets_share_a_name() {
        let mut names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TARGETS.len());
    }
}
