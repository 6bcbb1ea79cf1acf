//! Invalid input over a real socket: the faults P001 to P062 and R212 to R221, by number.
//!
//! Must never accept more than one expected outcome, unless the rule of the fault has several.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

mod chunks;
mod commands;
mod data;
mod envelope;
mod lines;
mod mailboxes;

use std::sync::OnceLock;
use support::{Client, Daemon, Script, Setup, Sink, token};

/// The limit on a message in these tests.
pub const MESSAGE_BYTES_MAX: usize = 2_000_000;
/// The limit on recipients in these tests.
pub const RECIPIENTS_MAX: usize = 1_000;

/// A daemon with a sink behind it, and a second sink that offers no extensions.
pub struct Place {
    pub daemon: Daemon,
    pub sink: Sink,
    pub plain: Sink,
}

/// The daemon that all tests of this program share. No test may disturb another.
pub fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| {
        let sink = Sink::start(Script::default());
        let plain = Sink::start(Script { offers: vec!["SIZE"], ..Script::default() });
        let setup = Setup {
            sink_port: sink.port,
            routes: format!(
                "[[route]]\ndomain = \"plain.test\"\nto = \"smtp:127.0.0.1:{}\"\n",
                plain.port
            ),
            tables: format!(
                "[limits]\nmessage_bytes_max = {MESSAGE_BYTES_MAX}\n\
                 recipients_max = {RECIPIENTS_MAX}\nbad_commands_max = 50\n"
            ),
            ..Setup::default()
        };
        Place { daemon: Daemon::start(setup), sink, plain }
    })
}

pub fn port() -> u16 {
    place().daemon.port
}

/// Sends `body` by DATA to the sink, and returns the part that arrived below our trace fields.
pub fn through_by_data(name: &str, body: &[u8]) -> Vec<u8> {
    let token = token(name);
    let mut client = Client::in_data(port(), &format!("{token}@client.test"), "b@sink.test");
    client.send(stuffed(body));
    client.send(".\r\n");
    client.expect(250);
    client.ask("QUIT", 221);
    below_trace(&place().sink.wait(&token).data)
}

/// The body with doubled dots, as DATA requires (RFC 5321 4.5.2).
pub fn stuffed(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b".") {
            out.push(b'.');
        }
        out.extend_from_slice(line);
    }
    out
}

/// The message without the Received field that the mailer put on top, and its folded lines.
pub fn below_trace(data: &[u8]) -> Vec<u8> {
    assert!(data.starts_with(b"Received: "), "{}", String::from_utf8_lossy(data));
    let mut at = 0;
    loop {
        let end = at + support::sink::find(&data[at..], b"\r\n").expect("a whole line") + 2;
        if !matches!(data.get(end), Some(b' ' | b'\t')) {
            return data[end..].to_vec();
        }
        at = end;
    }
}
