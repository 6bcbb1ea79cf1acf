//! The message that is carried, and what a client says around it.
//!
//! Must never change without a new `counts.toml`: the counts are per message of this kind.

use std::fmt::Write;

/// Bytes of the message as its sender wrote it.
pub const MESSAGE_BYTES: usize = 4096;
/// Whose mail goes to the next hop.
pub const DOMAIN: &str = "sink.test";

/// Who sends message `number`.
pub fn sender(number: u64) -> String {
    format!("newsletter-{}@customer.example", number % 100)
}

/// The `at`th recipient of message `number`.
pub fn recipient(number: u64, at: usize) -> String {
    format!("user{}.{at}@{DOMAIN}", number % 1_000)
}

/// A message of 4 KiB with the headers that mail of today has, its dots doubled and its end marked
/// as DATA wants it.
pub fn after_data(number: u64) -> Vec<u8> {
    let mut text = format!(
        "Received: from app-7.customer.example (app-7.customer.example [198.51.100.7])\r\n\
         \tby out.customer.example with ESMTPS id {number:016x}\r\n\
         \tfor <user@{DOMAIN}>; Sat, 21 Nov 2026 09:30:00 +0000\r\n\
         DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=customer.example; s=k1;\r\n\
         \th=from:to:subject:date:message-id:mime-version:content-type;\r\n\
         \tbh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;\r\n\
         \tb=AuUoFEfDxTDkHlLXSZEpZj79LICEps6eda7W3deTVFOk4yAUoqOB4nujc7YopdG5dWLS\r\n\
         Date: Sat, 21 Nov 2026 09:30:00 +0000\r\n\
         From: \"The Newsletter\" <news@customer.example>\r\n\
         To: <user@{DOMAIN}>\r\n\
         Subject: What happened this week, number {number:08}\r\n\
         Message-ID: <{number:016x}@customer.example>\r\n\
         MIME-Version: 1.0\r\n\
         Content-Type: text/plain; charset=us-ascii\r\n\
         Content-Transfer-Encoding: 7bit\r\n\
         List-Unsubscribe: <mailto:leave@customer.example>\r\n\r\n"
    );
    let mut line = 0;
    while text.len() < MESSAGE_BYTES - 80 {
        let dots = if line % 20 == 19 { "." } else { "" };
        let words = "the quick brown fox jumps over the lazy dog and goes home again";
        let _ = write!(text, "{dots}{line:03} {words}\r\n");
        line += 1;
    }
    let rest = MESSAGE_BYTES - text.len() - 2;
    let _ = write!(text, "{:-<rest$}\r\n", "");
    let stuffed = text.replace("\r\n.", "\r\n..");
    format!("{stuffed}.\r\n").into_bytes()
}

/// What a client says until its message is at its end: one item is what it sends before it waits
/// for a reply. With `pipelined` it waits only where it must (RFC 2920).
pub fn transaction(number: u64, recipients: usize, pipelined: bool) -> Vec<Vec<u8>> {
    let mut commands = vec![format!("MAIL FROM:<{}>\r\n", sender(number))];
    let to = |at| format!("RCPT TO:<{}>\r\n", recipient(number, at));
    commands.extend((0..recipients).map(to));
    commands.push("DATA\r\n".into());
    let mut said = match pipelined {
        true => vec![commands.concat().into_bytes()],
        false => commands.into_iter().map(String::into_bytes).collect(),
    };
    said.push(after_data(number));
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_size_and_dots_that_must_be_doubled() {
        for number in [0, 7, 123_456_789] {
            let wire = String::from_utf8(after_data(number)).unwrap();
            let body = wire.strip_suffix(".\r\n").unwrap().replace("\r\n..", "\r\n.");
            assert_eq!(body.len(), MESSAGE_BYTES);
            assert_eq!(wire.matches("\r\n..").count(), 2);
            assert!(body.split("\r\n").all(|line| line.len() <= 80));
        }
    }
}
