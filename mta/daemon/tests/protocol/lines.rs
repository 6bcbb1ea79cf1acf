//! Lines that are too long, and clients that speak other protocols (P017 to P023).
//!
//! Must never wait for a reply to bytes without an end.

use super::{MESSAGE_BYTES_MAX, place, port, through_by_data};
use crate::support::{Client, token};
use std::time::{Duration, Instant};

/// Sends without waiting, then reads the replies. The daemon may close the connection before everything is
/// sent.
fn after(client: &mut Client, bytes: impl AsRef<[u8]>) -> Vec<u16> {
    client.try_send(bytes);
    client.half_close();
    client.replies_to_the_end().iter().map(|reply| reply.code).collect()
}

#[test]
fn p017_an_endless_command_line_is_refused_and_dropped() {
    for length in [5_000, 1 << 20] {
        let mut client = Client::ready(port());
        let codes = after(&mut client, vec![b'x'; length]);
        // A reset may arrive before the reply, because some of the bytes were not read.
        assert!(codes == [500] || codes.is_empty(), "{length}: {codes:?}");
    }
    let mut client = Client::ready(port());
    client.send(vec![b'x'; 2_100]);
    let reply = client.expect(500);
    assert_eq!(reply.enhanced(), "5.5.2", "{reply:?}");
    assert_eq!(client.next_reply(), None, "it is dropped");
    for length in [513, 2_000] {
        let mut client = Client::ready(port());
        client.send(vec![b'x'; length]);
        assert!(client.is_silent(Duration::from_millis(100)), "{length}: the line may go on");
    }
    // Lines of the length that RFC 5321 and its extensions need are accepted. Lines above our limit are
    // refused.
    let mut client = Client::ready(port());
    client.ask(&format!("NOOP {}", "x".repeat(505)), 250);
    client.ask(&format!("NOOP {}", "x".repeat(1_500)), 250);
    client.ask(&format!("NOOP {}", "x".repeat(5_000)), 500);
    place().daemon.works();
}

#[test]
fn p018_two_megabytes_of_ehlo_are_refused() {
    let mut client = Client::connect(port());
    client.expect(220);
    let codes = after(&mut client, format!("EHLO {}\r\n", "a".repeat(2 << 20)));
    assert!(matches!(codes[..], [] | [500] | [501]), "{codes:?}");
    place().daemon.works();
}

#[test]
fn p019_a_long_line_of_data_is_relayed_unbroken_up_to_the_limit_of_the_message() {
    for length in [998, 999, 1_000, 2_048, 100_000, 1_500_000] {
        let body = [b"Subject: long\r\n\r\n", &vec![b'x'; length][..], b"\r\n"].concat();
        assert!(through_by_data("p019", &body) == body, "{length}");
    }
    let user = token("p019");
    let mut client = Client::in_data(port(), "a@client.test", &format!("{user}@local.test"));
    client.send("Subject: endless\r\n\r\n");
    for _ in 0..50 {
        client.send(vec![b'x'; 1 << 20]);
    }
    client.send("\r\n.\r\n");
    client.expect(552);
    place().daemon.works_and_has_nothing_for(&user);
}

#[test]
fn p020_a_huge_header_is_taken_or_refused_in_linear_time() {
    let long_line = format!("X-Long: {}\r\nSubject: x\r\n\r\nbody\r\n", "y".repeat(64 << 10));
    assert!(through_by_data("p020", long_line.as_bytes()) == long_line.as_bytes());
    let many_lines = "X: 1\r\n".repeat(100_000);
    let ten_megabytes = format!("X: {}\r\n", "y".repeat(70)).repeat(130_000);
    for header in [many_lines, ten_megabytes] {
        let user = token("p020");
        let start = Instant::now();
        let mut client = Client::in_data(port(), "a@client.test", &format!("{user}@hold.test"));
        client.send(header);
        client.send("\r\nbody\r\n.\r\n");
        let reply = client.reply();
        assert!(matches!(reply.code, 250 | 552 | 554), "{reply:?}");
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
    place().daemon.works();
}

#[test]
fn p021_wrong_verbs_are_refused_and_too_many_end_the_session() {
    let mut client = Client::ready(port());
    let mut codes = Vec::new();
    for _ in 0..200 {
        if !client.try_send("WRONG\r\n") {
            break;
        }
        match client.next_reply() {
            Some(reply) => codes.push(reply.code),
            None => break,
        }
    }
    assert!((5..100).contains(&codes.len()), "{codes:?}");
    assert_eq!(codes.last(), Some(&421), "{codes:?}");
    assert!(codes[..4].iter().all(|code| *code == 500), "{codes:?}");
}

#[test]
fn p022_other_protocols_are_turned_away() {
    let strangers: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 40\r\n\r\nMAIL FROM:<a@x>\r\nRCPT TO:<b@x>\r\n",
        // A TLS ClientHello, an RDP cookie in its TPKT, and the banner of SSH.
        b"\x16\x03\x01\x00\xc4\x01\x00\x00\xc0\x03\x03abcdefghijklmnopqrstuvwxyz0123456789",
        b"\x03\x00\x00\x2f\x2a\xe0\x00\x00\x00\x00\x00Cookie: mstshash=admin\r\n\x01\x00",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ];
    for bytes in strangers {
        let mut client = Client::connect(port());
        client.expect(220);
        let codes = after(&mut client, bytes);
        assert!(codes.len() <= 1, "{codes:?}");
        assert!(codes.iter().all(|code| code / 100 == 5), "{codes:?}");
    }
    place().daemon.works();
}

#[test]
fn p023_who_talks_before_the_greeting_is_refused_or_given_grace_but_never_misread() {
    let mut client = Client::connect(port());
    client.send("EHLO early.test\r\n");
    let codes = after(&mut client, "QUIT\r\n");
    assert!(matches!(codes[..], [554] | [220, 554] | [220, 250, 221] | []), "{codes:?}");
    place().daemon.works();
}

#[test]
fn p036_the_limit_of_a_message_is_exact_by_data_and_by_bdat() {
    for (size, code) in
        [(MESSAGE_BYTES_MAX - 1, 250), (MESSAGE_BYTES_MAX, 250), (MESSAGE_BYTES_MAX + 1, 552)]
    {
        // Half of the lines begin with a dot, because stuffing is not counted.
        let mut body = b"Subject: x\r\n\r\n".to_vec();
        while body.len() + 100 < size {
            body.extend_from_slice(b".dot\r\nnone\r\n");
        }
        body.resize(size - 2, b'x');
        body.extend_from_slice(b"\r\n");
        let mut client = Client::in_data(port(), "a@client.test", "b@hold.test");
        client.send([&super::stuffed(&body)[..], b".\r\n"].concat());
        assert_eq!(client.reply().code, code, "DATA {size}");
        let mut client = Client::ready(port());
        client.envelope("a@client.test", "b@hold.test");
        client.send(format!("BDAT {size} LAST\r\n"));
        client.send(&body);
        assert_eq!(client.reply().code, code, "BDAT {size}");
    }
}
