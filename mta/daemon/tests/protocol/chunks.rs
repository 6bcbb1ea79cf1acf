//! BDAT: framing by count (P037 to P046).
//!
//! Must never let the octets of a chunk stand where a command is expected, unless the test requires it.

use super::{below_trace, place, port};
use crate::support::{Client, token};
use std::io::Write;
use std::time::{Duration, Instant};

/// A client in a transaction to the sink, and the token in its sender.
fn in_transaction(name: &str) -> (Client, String) {
    let token = token(name);
    let mut client = Client::ready(port());
    client.envelope(&format!("{token}@client.test"), "b@sink.test");
    (client, token)
}

#[test]
fn p037_a_chunk_size_that_is_none_ends_the_connection() {
    for size in ["-1", "abc", "18446744073709551616", "", "1 2", "5 FIRST", "0x10", "+5"] {
        let (mut client, _) = in_transaction("p037");
        client.send(format!("BDAT {size}\r\nNOOP\r\nNOOP\r\n"));
        let codes: Vec<u16> = client.replies_to_the_end().iter().map(|reply| reply.code).collect();
        assert!(matches!(codes[..], [501] | [521]), "{size:?}: {codes:?}");
    }
}

#[test]
fn p038_empty_chunks_are_chunks() {
    let (mut client, token) = in_transaction("p038");
    client.ask("BDAT 0", 250);
    client.ask("BDAT 0", 250);
    client.ask("BDAT 0 LAST", 250);
    assert_eq!(below_trace(&place().sink.wait(&token).data), b"");
}

#[test]
fn p039_data_after_bdat_is_refused() {
    let (mut client, _) = in_transaction("p039");
    client.send("BDAT 5\r\nhello");
    client.expect(250);
    client.ask("DATA", 503);
    client.ask("RSET", 250);
    let reply = client.command("BDAT 0 LAST");
    assert!(matches!(reply.code, 503 | 554), "{reply:?}");
}

#[test]
fn p040_a_chunk_without_recipient_is_swallowed_and_refused() {
    let mut client = Client::ready(port());
    for mail in [false, true] {
        if mail {
            client.ask("MAIL FROM:<a@client.test>", 250);
        }
        client.send("BDAT 24\r\nRSET\r\nNOOP\r\nVRFY you\r\n..NOOP\r\n");
        let reply = client.reply();
        assert!(matches!(reply.code, 503 | 554), "{reply:?}");
        assert_eq!(client.reply().code, 250, "the NOOP after the chunk, and nothing inside of it");
        assert!(client.is_silent(Duration::from_millis(100)));
    }
}

#[test]
fn p041_a_chunk_cut_short_by_the_connections_end_is_no_message() {
    for reset in [false, true] {
        let user = token("p041");
        let mut client = Client::ready(port());
        client.envelope("a@client.test", &format!("{user}@local.test"));
        client.send("BDAT 1000 LAST\r\nSubject: x");
        if reset {
            client.reset();
        } else {
            client.half_close();
            assert!(client.replies_to_the_end().iter().all(|reply| reply.code != 250));
        }
        place().daemon.works_and_has_nothing_for(&user);
    }
}

#[test]
fn p042_a_million_chunks_of_one_octet_cost_each_the_same() {
    const HALF: usize = 500_000;
    let (mut client, token) = in_transaction("p042");
    let mut writer = client.stream.try_clone().unwrap();
    let mut times = Vec::new();
    let start = Instant::now();
    let sender = std::thread::spawn(move || {
        let thousand = "BDAT 1\r\nx".repeat(1_000);
        for _ in 0..2 * HALF / 1_000 {
            writer.write_all(thousand.as_bytes()).unwrap();
        }
        writer.write_all(b"BDAT 2 LAST\r\n\r\n").unwrap();
    });
    for _ in 0..2 {
        for _ in 0..HALF {
            client.expect(250);
        }
        times.push(start.elapsed());
    }
    client.expect(250);
    sender.join().unwrap();
    let (first, second) = (times[0], times[1] - times[0]);
    assert!(second < first * 5 + Duration::from_secs(2), "not linear: {first:?}, {second:?}");
    let data = below_trace(&place().sink.wait(&token).data);
    assert!(
        data.len() == 2 * HALF + 2 && data.iter().filter(|byte| **byte == b'x').count() == 2 * HALF
    );
}

#[test]
fn p043_a_chunk_may_be_cut_anywhere() {
    let message =
        "Subject: über\r\nX-Folded: a\r\n b\r\n\r\n.dot\r\n..\r\nZürich 猫\r\n.\r\nend\r\n";
    let message = message.as_bytes();
    for size in [1, 2, 3, 5, 7] {
        let token = token("p043");
        let mut client = Client::ready(port());
        client.ask(&format!("MAIL FROM:<{token}@client.test> BODY=8BITMIME"), 250);
        client.ask("RCPT TO:<b@sink.test>", 250);
        for chunk in message.chunks(size) {
            client.send([format!("BDAT {}\r\n", chunk.len()).as_bytes(), chunk].concat());
            client.expect(250);
        }
        client.ask("BDAT 0 LAST", 250);
        assert_eq!(below_trace(&place().sink.wait(&token).data), message, "{size}");
    }
}

#[test]
fn p044_bare_line_ends_in_a_chunk_are_refused_for_they_go_on_by_data() {
    for body in ["a\n.\nMAIL FROM:<x@y.test>\n", "a\r.\rb\r\n", "a\n.\r\nb\r\n", "a\0b\r\n"] {
        // For a client in `relay.from` a bare LF ends a line.
        let (token, mut client) = (token("p044"), Client::stranger(port()));
        client.envelope(&format!("{token}@stranger.test"), "postmaster");
        let message = format!("Subject: x\r\n\r\n{body}");
        client.send(format!("BDAT {} LAST\r\n{message}", message.len()));
        let reply = client.reply();
        assert!(reply.is_refusal(), "{body:?}: {reply:?}");
        client.ask("NOOP", 250);
        place().daemon.works();
        assert!(!place().daemon.mailbox("postmaster").iter().any(|mail| mail.contains(&token)));
    }
}

#[test]
fn p045_a_tls_alert_inside_a_chunk_is_octets_like_others() {
    let user = token("p045");
    let mut client = Client::ready(port());
    assert!(!client.ask("EHLO client.test", 250).offers("STARTTLS"));
    client.envelope("a@client.test", &format!("{user}@local.test"));
    // close_notify, then a clear-text byte. Without TLS both belong to the chunk, and its NUL is refused at the
    // end.
    client.send(b"BDAT 18 LAST\r\nab\x15\x03\x03\x00\x02\x01\x00Xcdefgh\r\n");
    assert!(client.reply().is_refusal());
    client.ask("NOOP", 250);
    place().daemon.works_and_has_nothing_for(&user);
}

#[test]
fn p046_pipelined_chunks_with_one_refused_recipient_are_all_consumed_in_order() {
    let token = token("p046");
    let mut client = Client::ready(port());
    client.send(format!(
        "MAIL FROM:<{token}@client.test>\r\nRCPT TO:<b@sink.test>\r\nRCPT TO:<..@local.test>\r\n\
         BDAT 14\r\nSubject: x\r\n\r\nBDAT 4\r\nRSETBDAT 6 LAST\r\nbody\r\nNOOP\r\n"
    ));
    let codes: Vec<u16> = (0..7).map(|_| client.reply().code).collect();
    assert!(matches!(codes[2], 501 | 550 | 553), "{codes:?}");
    assert_eq!([&codes[..2], &codes[3..]].concat(), [250; 6], "{codes:?}");
    let data = below_trace(&place().sink.wait(&token).data);
    assert_eq!(data, b"Subject: x\r\n\r\nRSETbody\r\n");
}
