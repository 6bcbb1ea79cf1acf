//! The replies that a session sends without asking the driver. They use Postfix's texts if there is no reason for
//! other texts.
//!
//! Must never repeat bytes of the client.

use crate::command::CommandError;
use mail::{AddressError, Enhanced, Reply};

/// The replies to correct commands, ready to send.
pub(super) const OK: &[u8] = b"250 2.0.0 Ok\r\n";
pub(super) const MAIL_OK: &[u8] = b"250 2.1.0 Ok\r\n";
pub(super) const RCPT_OK: &[u8] = b"250 2.1.5 Ok\r\n";
pub(super) const GO_AHEAD: &[u8] = b"354 End data with <CR><LF>.<CR><LF>\r\n";
pub(super) const BYE: &[u8] = b"221 2.0.0 Bye\r\n";
pub(super) const VRFY: &[u8] = b"252 2.5.0 Cannot verify, but will try to deliver\r\n";
pub(super) const HELP: &[u8] =
    b"214-2.0.0 EHLO HELO LHLO MAIL RCPT DATA BDAT RSET NOOP VRFY HELP QUIT\r\n214 2.0.0 See RFC 5321\r\n";
pub(super) const OUT_OF_STEP: &[u8] = b"554 5.5.0 Error: SMTP protocol synchronization\r\n";
pub(super) const FOREIGN: &[u8] = b"521 5.5.1 Protocol error\r\n";
pub(super) const BAD_CHUNK: &[u8] = b"521 5.5.4 Syntax: BDAT count [LAST]\r\n";
pub(super) const LINE_TOO_LONG: &[u8] = b"500 5.5.2 Error: line too long\r\n";

/// The reply to a command at the wrong time (RFC 5321 4.1.4).
pub(super) fn out_of_order(text: &str) -> Reply {
    Reply::new(503, Enhanced(5, 5, 1), text)
}

/// The reply to DATA or BDAT if no recipient was accepted.
pub(super) fn no_recipients() -> Reply {
    Reply::new(554, Enhanced(5, 5, 1), "Error: no valid recipients")
}

pub(super) fn too_many_recipients() -> Reply {
    Reply::new(452, Enhanced(4, 5, 3), "Error: too many recipients")
}

pub(super) fn too_big() -> Reply {
    Reply::new(552, Enhanced(5, 3, 4), "Message size exceeds fixed limit")
}

/// The reply to a line that is not a valid command.
pub(super) fn bad_command(error: CommandError) -> Reply {
    match error {
        CommandError::BadUtf8 => Reply::new(500, Enhanced(5, 5, 2), "Error: bad UTF-8 syntax"),
        CommandError::Usage(usage) => {
            Reply::new(501, Enhanced(5, 5, 4), format!("Syntax: {usage}"))
        }
        CommandError::Unknown => {
            Reply::new(500, Enhanced(5, 5, 2), "Error: command not recognized")
        }
        _ => Reply::new(500, Enhanced(5, 5, 2), "Error: bad syntax"),
    }
}

/// The reply to an invalid path. `enhanced` and `what` depend on whether it was the sender's.
pub(super) fn bad_address(error: AddressError, enhanced: Enhanced, what: &str) -> Reply {
    match error {
        AddressError::NeedsUtf8 => {
            Reply::new(553, Enhanced(5, 6, 7), "Must declare SMTPUTF8 to permit unicode address")
        }
        AddressError::LocalTooLong | AddressError::DomainTooLong => {
            Reply::new(501, enhanced, format!("Bad {what} address: {error}"))
        }
        _ => Reply::new(501, enhanced, format!("Bad {what} address syntax")),
    }
}

/// The reply before the server closes the connection (RFC 5321 3.8).
pub(super) fn closing(enhanced: Enhanced, hostname: &mail::Domain, why: &str) -> Reply {
    Reply::new(421, enhanced, format!("{hostname} {why}"))
}
