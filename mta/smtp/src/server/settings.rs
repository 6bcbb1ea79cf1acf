//! The settings that all sessions of a listener share: limits, timeouts, and the texts made from them.
//!
//! Must never change while a session uses them: a reload creates new ones.

use crate::framing::BareLf;
use mail::Domain;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// The limits of one listener's sessions.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of this server, for the greeting and as the domain of `<postmaster>`.
    pub hostname: Domain,
    /// True for LMTP, false for SMTP (RFC 2033).
    pub lmtp: bool,
    /// Upper bound on a message in octets, without dot-stuffing (RFC 1870). At least 64 KiB.
    pub message_bytes_max: u64,
    /// Upper bound on the header section of a message, in octets.
    pub header_bytes_max: u64,
    /// Upper bound on a line of a message, in octets without CRLF. `None` accepts lines of any length,
    /// which are passed on unbroken.
    pub line_bytes_max: Option<u64>,
    /// How LF without CR is treated in a message. The daemon refuses it from strangers, because another
    /// server might take such a line end for a part of the end of the message.
    pub bare_lf: BareLf,
    /// Upper bound on the Received fields, including ours. A message that arrives with this number of
    /// fields is refused as a loop.
    pub hops_max: u32,
    /// Upper bound on the recipients of one transaction. RFC 5321 4.5.3.1.8 requires at least 100.
    pub recipients_max: u32,
    /// The same for LMTP, where the session holds one reply for each recipient at the end of the data.
    pub lmtp_recipients_max: u32,
    /// Upper bound on the transactions of one connection. `None` sets no limit.
    pub mails_max: Option<u32>,
    /// Upper bound on a command line with its CRLF, in bytes. RFC 5321 4.5.3.1.4 and the extensions need
    /// about 1,600.
    pub command_bytes_max: usize,
    /// Bytes of the body in one `Body` event: the upper bound on what the session holds of a body.
    pub body_chunk_bytes: usize,
    /// Unwritten replies in bytes from which on the session reads nothing more.
    pub output_bytes_max: usize,
    /// Errors since the last message at which the connection is closed.
    pub bad_commands_max: u32,
    /// NOOP, RSET, VRFY, HELP, repeated greetings and empty chunks since the last message. Each one above this
    /// number counts as an error.
    pub idle_commands_max: u32,
    /// Correct commands and bodies that were refused since the last message, such as RCPT of an unknown
    /// mailbox. Each one above this number counts as an error.
    pub refusals_max: u32,
    /// Timeout for a complete command line, and for the client to read its replies (RFC 5321 4.5.3.2.7).
    pub command_timeout: Duration,
    /// Timeout for the next bytes of a body.
    pub data_timeout: Duration,
    /// Lower bound on the average rate of a body after `data_timeout`, in octets per second.
    pub data_bytes_per_second_min: u64,
    /// Upper bound on the duration of a transaction, and on the time outside of transactions since the last
    /// accepted message. The time that the driver takes is not counted.
    pub transaction_time_max: Duration,
}

impl Settings {
    /// The settings for tests of any crate: those of an empty settings file for a client that may not relay, except
    /// for `recipients_max`, which is that of a client that may relay.
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

    /// Returns the upper bound on the recipients of one transaction, for SMTP or LMTP.
    pub fn recipients_max(&self) -> u32 {
        if self.lmtp {
            self.recipients_max.min(self.lmtp_recipients_max)
        } else {
            self.recipients_max
        }
    }
}

/// The settings of a listener with the replies that are the same in every session.
#[derive(Debug)]
pub struct Server {
    pub(super) settings: Settings,
    pub(super) greeting: Box<[u8]>,
    pub(super) offers: Box<[u8]>,
}

impl Server {
    /// Builds the replies. Called once for each listener.
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

/// Upper bound on a limit in the LIMITS extension: six digits (RFC 9422 3).
const LIMIT_MAX: u32 = 999_999;

/// Builds the reply to EHLO or LHLO (RFC 5321 4.1.1.1).
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
