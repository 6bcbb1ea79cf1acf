//! The minimum that a mailer does: accepts a message and delivers it here and elsewhere.
//!
//! Must never need other settings than the defaults.

#![allow(clippy::unwrap_used)]

mod support;

use support::{Client, Daemon, Script, Sink, token};

#[test]
fn a_message_to_a_mailbox_and_one_to_a_next_hop_arrive() {
    let sink = Sink::start(Script::default());
    let daemon = Daemon::with_sink(&sink);
    daemon.works();
    let token = token("smoke");
    let mut client = Client::in_data(daemon.port, "a@client.test", "b@sink.test");
    client.send(format!("Subject: {token}\r\n\r\n.. dots\r\n.\r\n"));
    client.expect(250);
    client.ask("QUIT", 221);
    let mail = sink.wait(&token);
    assert_eq!(mail.body(), b". dots\r\n");
    assert!(mail.from.starts_with("FROM:<a@client.test>"), "{}", mail.from);
}

#[test]
fn it_stops_within_ten_seconds_and_starts_again_with_its_queue() {
    let daemon = Daemon::start(support::Setup::default());
    let mut client = Client::in_data(daemon.port, "a@client.test", "b@hold.test");
    client.send("Subject: stays\r\n\r\nbody\r\n.\r\n");
    client.expect(250);
    let (time, well) = daemon.stop();
    assert!(well && time.as_secs() < 10, "{time:?} {well}");
    daemon.start_again();
    assert_eq!(daemon.queued(), 1);
    daemon.kill();
    daemon.start_again();
    assert_eq!(daemon.queued(), 1);
}
