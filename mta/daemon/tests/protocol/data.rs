//! The end of DATA, and sequences that are not the end (P001 to P016).
//!
//! Must never send a final CRLF.CRLF too early.

use super::{below_trace, place, port, stuffed, through_by_data};
use crate::support::{Client, token};
use std::time::Duration;

/// The commands that a smuggler sends after a false end.
const SMUGGLED: &str = "MAIL FROM:<evil@smuggled.test>\r\nRCPT TO:<evil@smuggled.test>\r\nDATA\r\n\
                        Subject: smuggled\r\n\r\nsmuggled\r\n";

/// Asserts that `end` is not the end of DATA: there is no reply until the real end, then one 5xx for the whole
/// message, and no part of the message is kept.
fn does_not_end_data(name: &str, end: &[u8]) {
    let user = token(name);
    let mut client = stranger_in_data(&format!("{user}@local.test"));
    client.send([b"Subject: x\r\n\r\nbody", end].concat());
    assert!(client.is_silent(Duration::from_millis(300)), "{end:?} was taken for the end");
    client.send(SMUGGLED);
    client.send("\r\n.\r\n");
    let reply = client.reply();
    assert!(reply.is_refusal(), "{end:?}: {reply:?}");
    client.ask("NOOP", 250);
    client.ask("QUIT", 221);
    place().daemon.works_and_has_nothing_for(&user);
    assert_eq!(place().sink.with("evil@smuggled.test").len(), 0);
}

/// A client that may not relay, after the 354. For clients in `relay.from` a bare LF ends a line.
fn stranger_in_data(recipient: &str) -> Client {
    let mut client = Client::stranger(port());
    client.envelope("a@stranger.test", recipient);
    client.ask("DATA", 354);
    client
}

#[test]
fn p001_lf_dot_lf_does_not_end_data() {
    does_not_end_data("p001", b"\n.\n");
}

#[test]
fn p002_lf_dot_crlf_does_not_end_data() {
    does_not_end_data("p002", b"\n.\r\n");
}

#[test]
fn p003_crlf_dot_lf_does_not_end_data() {
    does_not_end_data("p003", b"\r\n.\n");
}

#[test]
fn p004_a_dot_between_bare_line_ends_does_not_end_data() {
    for end in [&b"\r.\r"[..], b"\r.\n", b"\n.\r"] {
        does_not_end_data("p004", end);
    }
}

#[test]
fn p005_cr_dot_crlf_does_not_end_data() {
    does_not_end_data("p005", b"\r.\r\n");
}

#[test]
fn p006_crlf_dot_cr_crlf_does_not_end_data() {
    does_not_end_data("p006", b"\r\n.\r\r\n");
}

#[test]
fn p007_a_nul_beside_the_dot_does_not_end_data() {
    does_not_end_data("p007", b"\r\n\0.\r\n");
    does_not_end_data("p007", b"\r\n.\0\r\n");
}

#[test]
fn p008_a_bare_cr_in_a_line_is_refused_after_the_data() {
    does_not_end_data("p008", b" with a \r in it");
}

#[test]
fn p009_an_end_cut_into_single_bytes_is_found_once() {
    let token = token("p009");
    let mut client = Client::in_data(port(), &format!("{token}@client.test"), "b@sink.test");
    client.send("Subject: x\r\n\r\nbody");
    client.send_cut("\r\n.\r\n", 1, Duration::from_millis(20));
    client.expect(250);
    client.ask("NOOP", 250);
    client.ask("QUIT", 221);
    let mail = place().sink.wait(&token);
    assert_eq!(below_trace(&mail.data), b"Subject: x\r\n\r\nbody\r\n");
    assert_eq!(place().sink.with(&token).len(), 1);
}

#[test]
fn p010_a_lone_dot_is_an_empty_message() {
    assert_eq!(through_by_data("p010", b""), b"");
}

#[test]
fn p011_dots_at_the_start_of_lines_arrive_as_they_were_meant() {
    let body = b"Subject: dots\r\n\r\n.\r\n..\r\n. text\r\n.. text\r\n...\r\n.a\r\na.\r\n.\r\n";
    assert_eq!(through_by_data("p011", body), body);
}

#[test]
fn p012_a_dot_at_any_edge_of_a_buffer_arrives_as_it_was_meant() {
    for edge in [4_096, 8_192, 16_384, 32_768, 65_536, 131_072, 262_144] {
        let token = token("p012");
        let mut client = Client::ready(port());
        let mut sent = Vec::new();
        for at in edge - 2..=edge + 2 {
            let mut body = b"Subject: edge\r\n\r\n".to_vec();
            while body.len() + 80 < at {
                body.extend_from_slice(&[b'x'; 62]);
                body.extend_from_slice(b"\r\n");
            }
            body.resize(at - 2, b'y');
            body.extend_from_slice(b"\r\n..\r\n.z\r\n.\r\nend\r\n");
            client.envelope(&format!("{token}-{at}@client.test"), "b@sink.test");
            client.ask("DATA", 354);
            client.send([&stuffed(&body)[..], b".\r\n"].concat());
            client.expect(250);
            sent.push((format!("{token}-{at}@"), body));
        }
        for (token, body) in sent {
            assert!(below_trace(&place().sink.wait(&token).data) == body, "{token}");
        }
    }
}

#[test]
fn p013_data_that_ends_with_the_connection_is_no_message() {
    let user = token("p013");
    let address = format!("{user}@local.test");
    for end in ["", "\r", "\r\n", "\r\n.", "\r\n.\r"] {
        let mut client = Client::in_data(port(), "a@client.test", &address);
        client.send(format!("Subject: x\r\n\r\nbody{end}"));
        client.half_close();
        let codes: Vec<u16> = client.replies_to_the_end().iter().map(|reply| reply.code).collect();
        assert!(!codes.contains(&250), "{end:?} {codes:?}");
    }
    place().daemon.works_and_has_nothing_for(&user);
}

#[test]
fn p014_a_nul_in_a_command_is_refused_and_the_session_goes_on() {
    let mut client = Client::ready(port());
    for line in ["NOOP \0", "MAIL FROM:<a\0@client.test>", "MAIL FROM:<a@client.test> SIZE=\0"] {
        let reply = client.command(line);
        assert!(matches!(reply.code, 500 | 501), "{line:?}: {reply:?}");
    }
    client.ask("NOOP", 250);
}

#[test]
fn p015_a_nul_in_a_quoted_local_part_is_refused() {
    let mut client = Client::ready(port());
    let reply = client.command("MAIL FROM:<\"a\0b\"@client.test>");
    assert!(matches!(reply.code, 500 | 501 | 553), "{reply:?}");
    client.ask("MAIL FROM:<a@client.test>", 250);
    let reply = client.command("RCPT TO:<\"a\\\0b\"@local.test>");
    assert!(matches!(reply.code, 500 | 501 | 553), "{reply:?}");
}

#[test]
fn p016_a_nul_in_header_or_body_is_refused() {
    does_not_end_data("p016", b" with a \0 in it");
    let user = token("p016");
    let mut client = Client::in_data(port(), "a@client.test", &format!("{user}@local.test"));
    client.send("Subject: a\0b\r\n\r\nbody\r\n.\r\n");
    assert!(client.reply().is_refusal());
    place().daemon.works_and_has_nothing_for(&user);
}

#[test]
fn r232_bare_lfs_from_our_own_machine_arrive_as_line_ends_and_smuggle_nothing() {
    let smuggled = SMUGGLED.replace("\r\n", "\n");
    // As Python's smtplib sends `as_bytes()`: with the dots at the start of lines doubled and LF unchanged.
    for (end, between) in
        [("\n.\n", "\r\n.\r\n"), ("\n.\r\n", "\r\n.\r\n"), ("\r\n.\n", "\r\n.\r\n")]
    {
        let token = token("r232");
        let mut client = Client::in_data(port(), &format!("{token}@client.test"), "b@sink.test");
        client.send(format!("Subject: x\n\nbody\n..dot\nend{end}{smuggled}"));
        assert!(client.is_silent(Duration::from_millis(300)), "{end:?} was taken for the end");
        client.send("\r\n.\r\n");
        client.expect(250);
        client.ask("QUIT", 221);
        let mail = place().sink.wait(&token);
        let body = format!("Subject: x\r\n\r\nbody\r\n.dot\r\nend{between}{SMUGGLED}\r\n");
        assert_eq!(String::from_utf8_lossy(&below_trace(&mail.data)), body);
    }
    assert!(!place().sink.mails().iter().any(|mail| mail.from.contains("evil")));
    let token = token("r232");
    let mut client = Client::ready(port());
    client.envelope(&format!("{token}@client.test"), "b@sink.test");
    client.send("BDAT 18\r\nSubject: x\n\nbody\n.BDAT 6 LAST\r\n\n.\n.\n\n");
    client.expect(250);
    client.expect(250);
    let mail = place().sink.wait(&token);
    assert_eq!(below_trace(&mail.data), b"Subject: x\r\n\r\nbody\r\n.\r\n.\r\n.\r\n\r\n");
    // A bare CR is refused from every client, and a bare LF from strangers (P001 to P008).
    let mut client = Client::in_data(port(), "a@client.test", "b@sink.test");
    client.send("Subject: x\n\na\rb\r\n.\r\n");
    assert_eq!(client.reply().code, 550);
    let mut stranger = stranger_in_data("postmaster");
    stranger.send("Subject: x\n\nbody\r\n.\r\n");
    assert_eq!(stranger.reply().code, 550);
}
