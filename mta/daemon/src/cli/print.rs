//! What the command line says: results on standard output, failures with an exit code.
//!
//! Must never panic because nobody reads (`posthaste queue list | head`), and never pass a
//! stranger's control characters to a terminal.

use std::io::{self, ErrorKind, Write};

/// A command that could not be done.
#[derive(Debug)]
pub(super) struct Failure {
    /// The exit code.
    pub code: u8,
    /// For people, without a final line end.
    pub text: String,
}

impl Failure {
    pub fn new(code: u8, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into() }
    }
}

/// Prints a text. Whoever has read enough has ended the command.
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

/// A stranger's text, harmless on a terminal: one line, nothing that moves the cursor or turns the
/// direction around.
pub(super) fn harmless(text: &str) -> String {
    let keep = |c: char| matches!(c, ' '..='~') || (!c.is_ascii() && c.is_alphanumeric());
    text.chars().map(|c| if keep(c) { c } else { '?' }).collect()
}

/// A count with its noun.
pub(super) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
