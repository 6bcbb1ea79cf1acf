//! Verbs, their order, and lines that are not SMTP.
//!
//! Must never rely on the text of a reply, only on its code and its consequences.

use super::*;

#[test]
fn the_offers_are_those_of_the_rfcs() {
    let outcome = check(&[EHLO]);
    let expected = "220 mx.test ESMTP Posthaste\r\n250-mx.test\r\n250-PIPELINING\r\n250-SIZE 52428800\r\n\
        250-ENHANCEDSTATUSCODES\r\n250-8BITMIME\r\n250-DSN\r\n250-SMTPUTF8\r\n250-LIMITS RCPTMAX=50000\r\n\
        250-HELP\r\n250 CHUNKING\r\n";
    assert_eq!(outcome.replies, expected);
    assert_eq!(outcome.events, ["hello c.test Esmtp", "close"]);
    assert_eq!(
        check(&[b"HELO c.test\r\n"]).replies,
        "220 mx.test ESMTP Posthaste\r\n250 mx.test\r\n"
    );
    let limited = Settings { mails_max: Some(2), recipients_max: 100, ..settings() };
    let outcome = check_with(
        &limited,
        &[EHLO, b"MAIL FROM:<>\r\nRSET\r\nMAIL FROM:<>\r\nRSET\r\nMAIL FROM:<>\r\n"],
    );
    assert!(outcome.replies.contains("250-LIMITS RCPTMAX=100 MAILMAX=2\r\n"));
    assert_eq!(outcome.codes(), [250, 250, 250, 250, 421]);
}

#[test]
fn p014_controls_in_a_command_are_refused() {
    for bad in ["NOOP\0", "MAIL FROM:<a\0@b.test>", "NO\rOP", "NOOP\t", "NOOP\u{7f}", "", " NOOP"] {
        assert_eq!(code_of(&["EHLO c.test", bad]), 500, "{bad:?}");
    }
}

#[test]
fn p021_wrong_verbs_are_told_so_until_there_were_too_many() {
    let outcome = check(&[EHLO, &b"WHAT\r\n".repeat(25)]);
    let codes = outcome.codes();
    assert!(codes[..20].iter().all(|code| *code == 500) && codes[20..] == [421]);
    assert!(outcome.replies.contains("500 5.5.2 Error: command not recognized\r\n"));
    assert_eq!(outcome.last(), "421 4.7.0 mx.test Error: too many errors");
    let codes = check(&[EHLO, &b"NOOP\r\n".repeat(130)]).codes();
    assert_eq!((codes.len(), codes[119], codes[120]), (121, 250, 421));
}

#[test]
fn p022_other_protocols_are_shown_the_door() {
    let strange: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /MAIL HTTP/1.1\r\nContent-Length: 20\r\n\r\nMAIL FROM:<a@b.test>\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03MAIL FROM:<a@b.test>\r\n",
        b"\x03\x00\x00\x2f\x2a\xe0Cookie: mstshash=x\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"Subject: x\r\nMAIL FROM:<a@b.test>\r\n",
    ];
    for bytes in strange {
        let outcome = check(&[bytes]);
        assert_eq!(outcome.replies.lines().nth(1), Some("521 5.5.1 Protocol error"), "{bytes:?}");
        assert_eq!(
            (outcome.replies.lines().count(), outcome.events),
            (2, vec!["close".to_string()])
        );
    }
}

#[test]
fn p023_a_client_that_talks_before_the_greeting_gets_554_in_its_place() {
    let mut session = Session::new(server(), Now::default());
    assert_eq!(session.receive(b"EHLO x\r\n", Now::default()), 8);
    assert_eq!(session.output(), b"554 5.5.0 Error: SMTP protocol synchronization\r\n");
    assert_eq!(session.poll(Now::default()), Some(Event::Close { after_quit: false }));
    // As documented, a driver that writes the greeting before it reads does not notice.
    let mut session = Session::new(server(), Now::default());
    session.output().clear();
    session.receive(b"EHLO x\r\n", Now::default());
    assert!(matches!(session.poll(Now::default()), Some(Event::Hello { .. })));
}

#[test]
fn p024_commands_before_the_reply_to_ehlo_are_refused() {
    for hello in ["EHLO x\r\nMAIL FROM:<>\r\n", "HELO x\r\nMAIL FROM:<>\r\n"] {
        let outcome = talk(&settings(), &[hello.as_bytes()], |left| left);
        assert_eq!(outcome.last(), "554 5.5.0 Error: SMTP protocol synchronization");
        assert_eq!(outcome.events, ["close"]);
    }
}

#[test]
fn p025_mail_rcpt_and_data_in_one_piece_are_answered_in_order() {
    let group = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<refused@y.test>\r\nRCPT TO:<x@y.test>\r\nRCPT TO:<later@y.test>\r\nDATA\r\n";
    let outcome = check(&[EHLO, group, b"a\r\n.\r\nMAIL FROM:<>\r\nQUIT\r\n"]);
    assert_eq!(outcome.codes(), [250, 550, 250, 451, 354, 250, 250, 221]);
    assert!(outcome.replies.contains("250 2.0.0 Ok: queued as 00000000001\r\n"));
}

#[test]
fn p027_nothing_after_quit_is_read() {
    let outcome = check(&[EHLO, b"QUIT\r\nMAIL FROM:<>\r\nNOOP\r\n"]);
    assert_eq!(outcome.codes(), [221]);
    assert_eq!(outcome.last(), "221 2.0.0 Bye");
}

#[test]
fn p028_commands_after_rset_noop_and_vrfy_are_answered_in_order() {
    let outcome = check(&[
        EHLO,
        b"NOOP\r\nVRFY x\r\nRSET\r\nMAIL FROM:<>\r\nNOOP x\r\nRSET\r\nHELP\r\nEXPN l\r\n",
    ]);
    assert_eq!(outcome.codes(), [250, 252, 250, 250, 250, 250, 214, 502]);
}

#[test]
fn p030_commands_out_of_order_are_refused() {
    let cases: [(&[&str], u16); 9] = [
        (&["MAIL FROM:<>"], 503),
        (&["EHLO c", "RCPT TO:<x@y.test>"], 503),
        (&["EHLO c", "DATA"], 503),
        (&["EHLO c", "MAIL FROM:<>", "DATA"], 554),
        (&["EHLO c", "MAIL FROM:<>", "RCPT TO:<refused@y.test>", "DATA"], 554),
        (&["EHLO c", "MAIL FROM:<>", "MAIL FROM:<>"], 503),
        (&["EHLO c", "MAIL FROM:<refused@y.test>", "RCPT TO:<x@y.test>"], 503),
        (&["EHLO c", "DATA x"], 501),
        (&["EHLO c", "RSET x"], 501),
    ];
    for (lines, expected) in cases {
        assert_eq!(code_of(lines), expected, "{lines:?}");
    }
}

#[test]
fn p031_ehlo_within_a_transaction_is_as_rset() {
    let outcome = check(&[EHLO, PATHS, EHLO, b"RCPT TO:<z@y.test>\r\n"]);
    assert_eq!(outcome.codes()[3..], [503]);
    assert_eq!(outcome.events[3..], ["reset", "hello c.test Esmtp", "close"]);
}

#[test]
fn p061_what_is_not_for_strangers_is_refused() {
    for (line, expected) in [
        ("XCLIENT ADDR=127.0.0.1", 502),
        ("XFORWARD NAME=x", 502),
        ("ETRN #x;rm -rf /", 502),
        ("ETRN @x'\"`id`", 502),
        ("STARTTLS", 502),
        ("VRFY root", 252),
        ("VRFY", 501),
        ("EXPN all", 502),
        ("AUTH PLAIN AGEAYg==", 503),
        ("TURN", 502),
        ("PROXY TCP4 127.0.0.1 127.0.0.1 1 25", 521),
    ] {
        assert_eq!(code_of(&["EHLO c.test", line]), expected, "{line}");
    }
}

#[test]
fn p062_proxy_headers_from_anybody_end_the_connection() {
    let long = [b"PROXY TCP4 ", &vec![b'1'; 64 << 10][..]].concat();
    for bytes in [
        &b"PROXY UNKNOWN\r\nEHLO x\r\n"[..],
        b"PROXY\r\n",
        &long,
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xffMAIL FROM:<>\r\n",
    ] {
        let outcome = check(&[bytes]);
        assert!(outcome.closed && outcome.events == ["close"], "{:?}", outcome.events);
        assert!(outcome.last().starts_with('5'), "{}", outcome.last());
    }
}

#[test]
fn names_of_clients_are_single_harmless_words() {
    for good in ["EHLO [127.0.0.1]", "EHLO my_pc", "ehlo [IPv6:::1]", "HELO x.y.", "EHLO x"] {
        assert_eq!(code_of(&[good]), 250, "{good}");
    }
    for bad in ["EHLO", "HELO ", "EHLO a b", "EHLO a(b)", "EHLO <a>", "EHLO a\"b", "LHLO x"] {
        assert!(matches!(code_of(&[bad]), 500 | 501), "{bad}");
    }
}

#[test]
fn lmtp_greets_by_lhlo_and_answers_for_each_recipient() {
    let lmtp = Settings { lmtp: true, ..settings() };
    assert_eq!(check_with(&lmtp, &[EHLO, b"HELO x\r\n"]).codes(), [502]);
    let group = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<x@y.test>\r\nRCPT TO:<refused@y.test>\r\nRCPT TO:<x@y.test>\r\nDATA\r\n";
    let outcome =
        check_with(&lmtp, &[b"LHLO c\r\n", group, b"a\r\n.\r\n", group, b"a\n\r\n.\r\nQUIT\r\n"]);
    assert!(outcome.replies.starts_with("220 mx.test LMTP Posthaste\r\n"));
    assert!(outcome.replies.contains("250-LIMITS RCPTMAX=1000\r\n"));
    let expected = [250, 250, 550, 250, 354, 250, 250, 250, 250, 550, 250, 354, 550, 550, 221];
    assert_eq!(outcome.codes(), expected);
    assert_eq!(outcome.events[0], "hello c Lmtp");
    let chunks = b"MAIL FROM:<>\r\nRCPT TO:<x@y.test>\r\nRCPT TO:<z@y.test>\r\nBDAT 3\r\na\r\nBDAT 0 LAST\r\nQUIT\r\n";
    let outcome = check_with(&lmtp, &[b"LHLO c\r\n", chunks]);
    assert_eq!(outcome.codes(), [250, 250, 250, 250, 250, 250, 221]);
}
