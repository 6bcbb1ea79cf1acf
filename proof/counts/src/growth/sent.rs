//! Send: one transaction of many recipients to a next hop that answers each in words of its own.
//!
//! Must never count the next hop.

use super::{counted, envelope};
use crate::meter::{Count, outside};
use bytes::Bytes;
use delivery::{DeadAddresses, Input, Limits, OutboundSession, Output, Rules};
use mail::{Host, NextHop, Now, Outcome};
use smtp::client::{self, OutboundMessage};
use std::sync::Arc;

const CONTENT: &[u8] = b"Subject: x\r\n\r\nbody\r\n";

pub fn recipients(n: usize) -> Count {
    transaction(n, false)
}

/// The peer takes recipients of as many domains as there are (RFC 9422), and says so.
pub fn domains(n: usize) -> Count {
    transaction(n, true)
}

fn transaction(n: usize, domains: bool) -> Count {
    let envelope = envelope(n, domains);
    let message = Box::new(OutboundMessage {
        from: envelope.from,
        recipients: envelope.recipients,
        body_bytes: CONTENT.len() as u64,
        content: Some(Bytes::from_static(CONTENT)),
    });
    let hop = NextHop::Smtp(Host::Address([192, 0, 2, 26].into()), 25);
    let config =
        client::Settings { helo: "mx.example.org".into(), ..client::Settings::for_tests() };
    let (count, outcomes) = counted(|| {
        let (rules, limits) = (Arc::new(Rules::for_tests()), Limits::for_tests());
        let now = Now::default();
        let dead = DeadAddresses::default();
        deliver(
            OutboundSession::new(&hop, message, rules, Arc::new(config), limits, dead, now),
            now,
        )
    });
    let delivered = |one: &&Outcome| matches!(one, Outcome::Delivered { .. });
    assert_eq!((outcomes.len(), outcomes.iter().filter(delivered).count()), (n, n / 2));
    count
}

/// Writes and reads until the message has ended.
fn deliver(mut line: OutboundSession, now: Now) -> Vec<Outcome> {
    let mut peer = Peer { said: b"220 sink.test ESMTP\r\n".to_vec(), ..Peer::default() };
    loop {
        while let Some(output) = line.poll() {
            match output {
                Output::Connect(_) => line.handle(Input::Connected, now),
                Output::Session(client::Output::Done { outcomes, .. }) => return outcomes,
                other => panic!("not in this dialogue: {other:?}"),
            }
        }
        while !line.transmit().is_empty() {
            let written = outside(|| peer.hear(line.transmit()));
            line.transmitted(written, now);
        }
        let said = outside(|| std::mem::take(&mut peer.said));
        assert!(!said.is_empty(), "the two wait for each other");
        // As much as a read brings.
        for piece in said.chunks(4_096) {
            line.handle(Input::Session(client::Input::Received(piece)), now);
        }
        outside(|| drop(said));
    }
}

/// Takes every other recipient.
#[derive(Default)]
struct Peer {
    line: Vec<u8>,
    said: Vec<u8>,
    in_data: bool,
    recipients: u32,
}

impl Peer {
    fn hear(&mut self, bytes: &[u8]) -> usize {
        for byte in bytes {
            self.line.push(*byte);
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.answer(&line);
            }
        }
        bytes.len()
    }

    fn answer(&mut self, line: &[u8]) {
        let reply = match line.get(..4).unwrap_or(line) {
            b".\r\n" => {
                self.in_data = false;
                "250 2.0.0 Ok: queued as 4G00000001\r\n".into()
            }
            _ if self.in_data => return,
            b"EHLO" => {
                "250-sink.test\r\n250-PIPELINING\r\n250 LIMITS RCPTDOMAINMAX=100000\r\n".into()
            }
            b"RCPT" => {
                self.recipients += 1;
                match self.recipients % 2 {
                    0 => format!("250 2.1.5 Ok, recipient {:08}\r\n", self.recipients),
                    _ => format!("450 4.2.1 Try again later, id {:08}\r\n", self.recipients),
                }
            }
            b"DATA" => {
                self.in_data = true;
                "354 End data with <CR><LF>.<CR><LF>\r\n".into()
            }
            _ => "250 2.0.0 Ok\r\n".into(),
        };
        self.said.extend_from_slice(reply.as_bytes());
    }
}
