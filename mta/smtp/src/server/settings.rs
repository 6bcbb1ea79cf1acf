//! What a listener's sessions have in common: limits, waits, and the texts made from them.
//!
//! Must never change while sessions hold it: a reload makes another.

use crate::framing::BareLf;
use mail::Domain;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// The limits of one listener's sessions.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our own name, in the greeting and for `<postmaster>`.
    pub hostname: Domain,
    /// LMTP instead of SMTP (RFC 2033).
    pub lmtp: bool,
    /// A message, dot-stuffing not counted (RFC 1870). At least 64 KiB.
    pub message_bytes_max: u64,
    /// Its header section.
    pub header_bytes_max: u64,
    /// A line of it without CRLF; `None`: lines of any length are passed on unbroken.
    pub line_bytes_max: Option<u64>,
    /// What LF without CR means in a message. It is refused for strangers: what another server would
    /// take for the end of a message must not get past us.
    pub bare_lf: BareLf,
    /// Received fields, ours included: a message that came with this many is looping.
    pub hops_max: u32,
    /// Recipients of one transaction. RFC 5321 4.5.3.1.8 wants at least 100.
    pub recipients_max: u32,
    /// The same with LMTP, where each has a reply of its own at the end, held at once.
    pub lmtp_recipients_max: u32,
    /// Transactions of one connection; `None`: no limit.
    pub mails_max: Option<u32>,
    /// A command line with its CRLF. RFC 5321 4.5.3.1.4 and the extensions need about 1,600.
    pub command_bytes_max: usize,
    /// Bytes of the body that are handed over at once, and the most that is held of it.
    pub body_chunk_bytes: usize,
    /// Replies not yet written; above it nothing more is read.
    pub output_bytes_max: usize,
    /// Wrong commands since the last message until the connection is closed.
    pub bad_commands_max: u32,
    /// NOOP, RSET, VRFY, a repeated EHLO and such since the last message, until each counts as wrong.
    pub idle_commands_max: u32,
    /// Commands and bodies since the last message that were refused though nothing was wrong with
    /// them, such as RCPT of an unknown mailbox, until each counts as wrong.
    pub refusals_max: u32,
    /// For a whole command line, and for output to be taken (RFC 5321 4.5.3.2.7).
    pub command_timeout: Duration,
    /// For the next bytes of a body.
    pub data_timeout: Duration,
    /// Octets a second that a body must come with, on the average after `data_timeout`.
    pub data_bytes_per_second_min: u64,
    /// For a transaction, from MAIL to its end, and between two messages for all that is no
    /// transaction; our own time does not count.
    pub transaction_time_max: Duration,
}

impl Settings {
    /// The settings that the daemon makes of an empty settings file for a client that may not relay, but with the
    /// recipients of one that may; for tests of any crate.
    ///
    /// Product code fills every field itself; tidy refuses a call from it.
    pub fn for_tests(hostname: Domain) -> Settings {
        Settings {
            hostname,
            lmtp: false,
            message_bytes_max: 50 << 20,
            header_bytes_max: 1 << 20,
            line_bytes_max: None,
            bare_lf: BareLf::Refuse,
            hops_max: 50,
            recipients_max: 50_000,
            lmtp_recipients_max: 1_000,
            mails_max: None,
            command_bytes_max: 2_048,
            body_chunk_bytes: 64 << 10,
            output_bytes_max: 64 << 10,
            bad_commands_max: 20,
            idle_commands_max: 100,
            refusals_max: 100,
            command_timeout: Duration::from_secs(300),
            data_timeout: Duration::from_secs(300),
            data_bytes_per_second_min: 500,
            transaction_time_max: Duration::from_secs(4 * 3600),
        }
    }

    /// Recipients of one transaction on this listener.
    pub fn recipients_max(&self) -> u32 {
        if self.lmtp {
            self.recipients_max.min(self.lmtp_recipients_max)
        } else {
            self.recipients_max
        }
    }
}

/// A listener's settings with the texts that every session says alike.
#[derive(Debug)]
pub struct Server {
    pub(super) settings: Settings,
    pub(super) greeting: Box<[u8]>,
    pub(super) offers: Box<[u8]>,
}

impl Server {
    /// To be made once for a listener.
    pub fn new(settings: Settings) -> Arc<Server> {
        let kind = if settings.lmtp { "LMTP" } else { "ESMTP" };
        let greeting = format!("220 {} {kind} Posthaste\r\n", settings.hostname);
        let offers = offers(&settings);
        Arc::new(Server { greeting: greeting.into_bytes().into(), offers, settings })
    }

    /// The limits.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// A limit as RFC 9422 3 writes it: six digits at most.
const LIMIT_MAX: u32 = 999_999;

/// The reply to EHLO or LHLO (RFC 5321 4.1.1.1).
fn offers(settings: &Settings) -> Box<[u8]> {
    let mut text = format!("250-{}\r\n", settings.hostname);
    let mut line = |offer: std::fmt::Arguments<'_>| {
        write!(text, "250-{offer}\r\n").expect("a string takes everything");
    };
    line(format_args!("PIPELINING"));
    line(format_args!("SIZE {}", settings.message_bytes_max));
    line(format_args!("ENHANCEDSTATUSCODES"));
    line(format_args!("8BITMIME"));
    line(format_args!("DSN"));
    line(format_args!("SMTPUTF8"));
    let recipients = settings.recipients_max().clamp(1, LIMIT_MAX);
    match settings.mails_max {
        Some(mails) => {
            let mails = mails.clamp(1, LIMIT_MAX);
            line(format_args!("LIMITS RCPTMAX={recipients} MAILMAX={mails}"));
        }
        None => line(format_args!("LIMITS RCPTMAX={recipients}")),
    }
    line(format_args!("HELP"));
    text.push_str("250 CHUNKING\r\n");
    text.into_bytes().into()
}
