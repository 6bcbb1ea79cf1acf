//! Unusual messages over a real socket: the faults M063 to M073, by number.
//!
//! Must never expect a relayed byte to differ from the one that was sent.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::OnceLock;
use std::time::{Duration, Instant};
use support::{Client, Daemon, Script, Setup, Sink, token};

struct Place {
    daemon: Daemon,
    sink: Sink,
    /// EHLO without 8BITMIME.
    seven_bit: Sink,
    /// EHLO with 8BITMIME only.
    eight_bit: Sink,
}

fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| {
        let sink = Sink::start(Script::default());
        let seven_bit =
            Sink::start(Script { offers: vec!["PIPELINING", "SIZE"], ..Script::default() });
        let eight_bit = Sink::start(Script { offers: vec!["8BITMIME"], ..Script::default() });
        let route = |domain, port| {
            format!("[[route]]\ndomain = \"{domain}\"\nto = \"smtp:127.0.0.1:{port}\"\n")
        };
        let setup = Setup {
            sink_port: sink.port,
            routes: route("seven.test", seven_bit.port) + &route("eight.test", eight_bit.port),
            ..Setup::default()
        };
        Place { daemon: Daemon::start(setup), sink, seven_bit, eight_bit }
    })
}

/// Sends a message declared as 8BITMIME and waits for the reply to it.
fn send(sender: &str, recipient: &str, message: &[u8]) -> support::Reply {
    send_as(" BODY=8BITMIME", sender, recipient, message)
}

fn send_as(declared: &str, sender: &str, recipient: &str, message: &[u8]) -> support::Reply {
    let mut client = Client::ready(place().daemon.port);
    client.ask(&format!("MAIL FROM:<{sender}>{declared}"), 250);
    client.ask(&format!("RCPT TO:<{recipient}>"), 250);
    client.ask("DATA", 354);
    let mut wire = Vec::with_capacity(message.len() + 100);
    for line in message.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b".") {
            wire.push(b'.');
        }
        wire.extend_from_slice(line);
    }
    client.send(wire);
    client.send(".\r\n");
    client.reply()
}

/// Asserts that the message arrives at the sink below our Received field, byte for byte, in bounded time.
fn arrives_as_it_is(name: &str, message: &[u8]) {
    let token = token(name);
    let start = Instant::now();
    let reply = send(&format!("{token}@client.test"), "b@sink.test", message);
    assert_eq!(reply.code, 250, "{reply:?}");
    let data = place().sink.wait(&token).data;
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert!(data.starts_with(b"Received: "));
    let kept = data.len().checked_sub(message.len()).expect("not shorter than it was");
    assert!(&data[kept..] == message, "{name} was changed");
    let trace = String::from_utf8_lossy(&data[..kept]).into_owned();
    for line in trace.lines().skip(1) {
        assert!(line.starts_with([' ', '\t']), "more than a Received field was added: {trace}");
    }
}

#[test]
fn m063_fifty_received_fields_are_a_loop_and_thirty_are_not() {
    let user = token("m063");
    let hops = |count: usize| {
        "Received: from a by b; Thu, 1 Jan 2026 00:00:00 +0000\r\n".repeat(count)
            + "Subject: x\r\n\r\nbody\r\n"
    };
    for count in [50, 60, 1_000] {
        // The same for a bounce: it is refused at once, so that no further bounce answers it.
        for sender in ["a@client.test", ""] {
            let reply = send(sender, &format!("{user}@local.test"), hops(count).as_bytes());
            assert_eq!((reply.code, reply.enhanced()), (554, "5.4.6"), "{count}: {reply:?}");
        }
    }
    place().daemon.works_and_has_nothing_for(&user);
    arrives_as_it_is("m063", hops(30).as_bytes());
}

#[test]
fn m064_a_message_that_was_delivered_here_before_is_not_delivered_again() {
    let (user, sender) = (token("m064"), token("m064s"));
    let message = format!("Delivered-To: {user}@local.test\r\nSubject: x\r\n\r\nlooped\r\n");
    let reply =
        send(&format!("{sender}@local.test"), &format!("{user}@local.test"), message.as_bytes());
    assert_eq!((reply.code, reply.enhanced()), (554, "5.4.6"), "{reply:?}");
    place().daemon.works_and_has_nothing_for(&user);
    place().daemon.works_and_has_nothing_for(&sender);
}

#[test]
fn m065_missing_doubled_and_endless_address_fields_are_relayed_as_they_are() {
    let addresses =
        (0..1_000).map(|n| format!("a{n}@client.test")).collect::<Vec<_>>().join(",\r\n ");
    let headers = [
        "Subject: no From, no Date, no Message-ID\r\n".to_string(),
        "From: a@b.test\r\nFrom: c@d.test\r\nDate: now\r\n".to_string(),
        "From: group: a@b.test, c@d.test;\r\nSender: a@b.test\r\n".to_string(),
        format!("From: {addresses}\r\n"),
    ];
    for header in headers {
        arrives_as_it_is("m065", format!("{header}\r\nbody\r\n").as_bytes());
    }
}

#[test]
fn m066_nothing_that_a_client_says_can_add_a_header_field() {
    let mut client = Client::connect(place().daemon.port);
    client.expect(220);
    for hello in ["EHLO a\rX-Injected: yes", "EHLO a\r\r\nX-Injected: yes", "EHLO (a)\tX-Injected:"]
    {
        client.send(format!("{hello}\r\n"));
        assert!(client.reply().is_refusal(), "{hello:?}");
        if hello.contains('\n') {
            break;
        }
    }
    let token = token("m066");
    let mut client = Client::connect(place().daemon.port);
    client.expect(220);
    client.ask("EHLO [127.0.0.1]", 250);
    client.envelope(&format!("\"{token} X-Injected: yes\"@client.test"), "b@sink.test");
    client.ask("DATA", 354);
    client.send("Subject: x\r\n\r\nbody\r\n.\r\n");
    client.expect(250);
    let text = place().sink.wait(&token).text();
    assert!(!text.lines().any(|line| line.starts_with("X-Injected")), "{text}");
}

#[test]
fn m067_header_lines_that_are_none_are_relayed_as_they_are() {
    let headers: &[&[u8]] = &[
        b"no colon here\r\nSubject: x\r\n",
        b"Subject : space before the colon\r\n",
        b"S\xfcbject: eight bits\r\n",
        b"Subject: folded\r\n   \r\n\t\r\n with blanks only\r\n",
        b" starts with a blank\r\nSubject: x\r\n",
        b": no name\r\n",
        b"",
    ];
    for header in headers {
        arrives_as_it_is("m067", &[header, &b"\r\nbody\r\n"[..]].concat());
    }
    arrives_as_it_is("m067", b"Subject: no body and no empty line\r\n");
}

#[test]
fn m068_deep_and_broken_mime_is_relayed_as_it_is() {
    for depth in [10, 100, 10_000] {
        let mut message = String::from("MIME-Version: 1.0\r\n");
        for level in 0..depth {
            message +=
                &format!("Content-Type: multipart/mixed; boundary=b{level}\r\n\r\n--b{level}\r\n");
        }
        arrives_as_it_is("m068", (message + "\r\nthe end boundaries are missing\r\n").as_bytes());
    }
    let prefixes = "Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\n\
                    Content-Type: multipart/mixed; boundary=ab\r\n\r\n--ab\r\n\r\nx\r\n--ab--\r\n--a--\r\n";
    arrives_as_it_is("m068", prefixes.as_bytes());
    let boundary = "b".repeat(10_000);
    let parts = format!("--{}\r\n\r\n.\r\n", &boundary[..70]).repeat(100_000);
    let type_ = format!("Content-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\n");
    arrives_as_it_is("m068", (type_ + &parts).as_bytes());
}

#[test]
fn m069_a_message_in_a_message_in_a_message_ends() {
    let inner = "Content-Type: message/rfc822\r\n\r\n".repeat(5_000);
    arrives_as_it_is("m069", (inner + "Subject: innermost\r\n\r\nbody\r\n").as_bytes());
}

#[test]
fn m070_thousands_of_continued_parameters_and_encoded_words_are_relayed_as_they_are() {
    let continued: String = (0..9_999).map(|n| format!(";\r\n filename*{n}*=a")).collect();
    let message = format!("Content-Disposition: attachment{continued}\r\n\r\nbody\r\n");
    arrives_as_it_is("m070", message.as_bytes());
    let words = "=?utf-8?Q?=E2=82=AC?=\r\n ".repeat(10_000);
    arrives_as_it_is("m070", format!("Subject: {words}end\r\n\r\nbody\r\n").as_bytes());
}

#[test]
fn m071_an_absurd_charset_does_not_matter() {
    for charset in ["utf-7", "iso-2022-jp", "x-no-such-thing", "\"\\\"\"", "../../etc/passwd"] {
        let message =
            format!("Content-Type: text/plain; charset={charset}\r\n\r\n+AGE- \x1b$B\r\n");
        arrives_as_it_is("m071", message.as_bytes());
    }
}

#[test]
fn m072_broken_encodings_are_relayed_byte_for_byte() {
    arrives_as_it_is("m072", b"Content-Transfer-Encoding: base64\r\n\r\nAAA\r\n=A=B\r\n====\r\n");
    let soft_break = b"Content-Transfer-Encoding: quoted-printable\r\n\r\nx=\r\n=\r\ny=ZZ=";
    arrives_as_it_is("m072", &[&soft_break[..], b"\r\n"].concat());
}

#[test]
fn m073_eight_bits_do_not_reach_a_next_hop_that_takes_seven() {
    let (token, user) = (token("m073"), token("m073s"));
    let message = format!(
        "Subject: {token}\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Transfer-Encoding: 8bit\r\n\r\nZürich\r\n"
    );
    let reply = send(&format!("{user}@local.test"), "b@seven.test", message.as_bytes());
    assert_eq!(reply.code, 250, "{reply:?}");
    place().daemon.wait_in_mailbox(&user, "5.6.3");
    assert!(place().seven_bit.with(&token).is_empty());
}

#[test]
fn r228_eight_bits_that_nobody_declared_reach_a_next_hop_that_takes_seven_as_they_came() {
    let cases: [(&str, &[u8]); 4] = [
        ("", b"Subject: x\r\n\r\nGr\xfc\xdfe\r\n"),
        (" BODY=7BIT", b"Subject: x\r\n\r\nGr\xc3\xbc\xc3\x9fe\r\n"),
        ("", b"Subject: Gr\xfc\xdfe\r\n\r\nbody\r\n"),
        // 8BITMIME declares the body, not the header section.
        (" BODY=8BITMIME", b"Subject: Gr\xc3\xbc\xc3\x9fe\r\n\r\nbody\r\n"),
    ];
    for (declared, message) in cases {
        for (domain, sink, onwards) in
            [("seven.test", &place().seven_bit, false), ("eight.test", &place().eight_bit, true)]
        {
            let token = token("r228");
            let (sender, recipient) = (format!("{token}@client.test"), format!("b@{domain}"));
            let reply = send_as(declared, &sender, &recipient, message);
            assert_eq!(reply.code, 250, "{reply:?}");
            let mail = sink.wait(&token);
            assert!(mail.data.ends_with(message), "{declared}: {}", mail.text());
            assert_eq!(mail.from.contains("BODY=8BITMIME"), onwards, "{}", mail.from);
        }
    }
}
