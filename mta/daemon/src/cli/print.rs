//! Output of the command line: results on standard output, failures with an exit code.
//!
//! Must never panic because the reader has gone (`posthaste queue list | head`), or pass a stranger's control characters to
//! a terminal.

use std::io::{self, ErrorKind, Write};

/// Failure of a command.
#[derive(Debug)]
pub(super) struct Failure {
    /// Exit code.
    pub code: u8,
    /// Message for people, without a final line end.
    pub text: String,
}

impl Failure {
    pub fn new(code: u8, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into() }
    }
}

/// Prints a text. Ends the process if the reader has closed the pipe.
pub(super) fn say(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        let enough = error.kind() == ErrorKind::BrokenPipe;
        if !enough {
            crate::log::complain(&format!("cannot write: {error}"));
        }
        std::process::exit(if enough { 0 } else { 74 });
    }
}

/// Makes a stranger's text safe for a terminal: one line, without characters that move the cursor or change the direction
/// of the text.
pub(super) fn harmless(text: &str) -> String {
    let keep = |c: char| matches!(c, ' '..='~') || (!c.is_ascii() && c.is_alphanumeric());
    text.chars().map(|c| if keep(c) { c } else { '?' }).collect()
}

/// Returns a count with its noun.
pub(super) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
