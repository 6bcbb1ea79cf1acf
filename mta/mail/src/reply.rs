//! An SMTP reply, sent by our server or by a peer (RFC 5321 4.2, RFC 3463).
//!
//! Must never hold a control character from a peer.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;

/// An enhanced status code such as `5.1.1` (RFC 3463 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Enhanced(pub u8, pub u16, pub u16);

impl fmt::Display for Enhanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A reply. Code that makes one from a peer's bytes must replace control characters first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reply {
    /// The reply code, 200 to 599.
    pub code: u16,
    /// The enhanced code, if there is one.
    pub enhanced: Option<Enhanced>,
    /// The printable text without the codes. Lines are separated by `\n`.
    pub text: Box<str>,
}

impl Reply {
    /// Makes a reply with an enhanced code.
    pub fn new(code: u16, enhanced: Enhanced, text: impl Into<Box<str>>) -> Self {
        Reply { code, enhanced: Some(enhanced), text: text.into() }
    }

    /// Makes a reply without an enhanced code, such as the greeting, the reply to EHLO and 354.
    pub fn plain(code: u16, text: impl Into<Box<str>>) -> Self {
        Reply { code, enhanced: None, text: text.into() }
    }

    /// Returns whether the code is 2yz.
    pub fn is_positive(&self) -> bool {
        self.code / 100 == 2
    }

    /// Returns whether the code is 4yz.
    pub fn is_transient(&self) -> bool {
        self.code / 100 == 4
    }

    /// Returns whether the code is 5yz.
    pub fn is_permanent(&self) -> bool {
        self.code / 100 == 5
    }

    /// Appends the reply in its form on the wire: each line ends with CRLF and repeats the enhanced code (RFC 2034 4).
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut lines = self.text.split('\n').peekable();
        while let Some(line) = lines.next() {
            let mark = if lines.peek().is_some() { '-' } else { ' ' };
            let _ = match self.enhanced {
                Some(enhanced) => write!(out, "{}{mark}{enhanced} ", self.code),
                None => write!(out, "{}{mark}", self.code),
            };
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.code)?;
        if let Some(enhanced) = self.enhanced {
            write!(f, "{enhanced} ")?;
        }
        match self.text.contains('\n') {
            true => f.write_str(&self.text.replace('\n', " ")),
            false => f.write_str(&self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_reply_carries_code_and_enhanced_code() {
        let mut out = Vec::new();
        Reply::new(250, Enhanced(2, 1, 0), "a\nb").encode(&mut out);
        assert_eq!(out, b"250-2.1.0 a\r\n250 2.1.0 b\r\n");
    }
}
