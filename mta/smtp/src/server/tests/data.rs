//! The end of the data, and the bytes before it.
//!
//! Must never build an expected body with the code under test.

use super::*;
use crate::framing::BareLf;
use proptest::prelude::*;

/// Sends one message. Returns the code of the reply, or `None` if the end was not found, and the accepted body.
fn data(wire: &[u8]) -> (Option<u16>, Option<Vec<u8>>) {
    let outcome = check(&[EHLO, ENVELOPE, wire]);
    assert_eq!(outcome.codes()[..3], [250, 250, 354]);
    (outcome.codes().get(3).copied(), outcome.kept.first().cloned())
}

/// Asserts that these bytes are not the end: the session waits, and refuses the message at its real end.
fn smuggled(end: &[u8]) {
    let inside = [b"a\r\n", end, b"MAIL FROM:<evil@b.test>\r\n"].concat();
    assert_eq!(data(&inside), (None, None), "{end:?} ended data");
    let whole = [&inside[..], b"x\r\n.\r\n"].concat();
    let outcome = check(&[EHLO, ENVELOPE, &whole, b"QUIT\r\n"]);
    assert_eq!(outcome.codes()[3..], [550, 221], "{end:?}");
    assert!(outcome.replies.contains("550 5.5.2 Error: "));
    assert!(outcome.kept.is_empty() && !outcome.events.iter().any(|event| event.contains("evil")));
}

#[test]
fn p001_lf_dot_lf_does_not_end_data() {
    smuggled(b"b\n.\n");
}

#[test]
fn p002_lf_dot_crlf_does_not_end_data() {
    smuggled(b"b\n.\r\n");
}

#[test]
fn p003_crlf_dot_lf_does_not_end_data() {
    smuggled(b"b\r\n.\n");
}

#[test]
fn p004_a_dot_between_bare_crs_and_lfs_does_not_end_data() {
    smuggled(b"b\r.\r");
    smuggled(b"b\r.\n");
    smuggled(b"b\n.\r");
}

#[test]
fn p005_cr_dot_crlf_does_not_end_data() {
    smuggled(b"b\r.\r\n");
}

#[test]
fn p006_crlf_dot_cr_crlf_does_not_end_data() {
    smuggled(b"b\r\n.\r\r\n");
}

#[test]
fn p007_nul_beside_the_dot_does_not_end_data() {
    smuggled(b"b\r\n\0.\r\n");
    smuggled(b"b\r\n.\0\r\n");
}

#[test]
fn p008_bare_cr_in_a_line_is_refused() {
    assert_eq!(data(b"a\rb\r\n.\r\n"), (Some(550), None));
    assert_eq!(data(b"a\r\r\n.\r\n"), (Some(550), None));
}

#[test]
fn p009_the_end_in_five_pieces_is_found_once() {
    let outcome = talk(&settings(), &[EHLO, ENVELOPE, b"a\r\n.\r\n", b"QUIT\r\n"], |_| 1);
    assert_eq!(outcome.codes(), [250, 250, 354, 250, 221]);
    assert_eq!(outcome.kept, [b"a\r\n"]);
}

#[test]
fn p010_a_lone_dot_is_an_empty_message() {
    assert_eq!(data(b".\r\n"), (Some(250), Some(vec![])));
}

#[test]
fn p011_dots_come_off_byte_exact() {
    let wire = b"..\r\n. text\r\n...\r\n.x\r\na.\r\n..\r\n\r\n.\r\n";
    assert_eq!(data(wire), (Some(250), Some(b".\r\n text\r\n..\r\nx\r\na.\r\n.\r\n\r\n".to_vec())));
    assert_eq!(data(b".\rtext\r\n.\r\n"), (Some(550), None));
}

#[test]
fn p012_a_dot_at_any_edge_of_a_buffer_is_a_dot_at_a_line_start() {
    for edge in [4_095, 4_096, 4_097, 65_535, 65_536, 65_537] {
        let line = vec![b'a'; edge - 2];
        let body = [&line[..], b"\r\n.b\r\n..\r\n"].concat();
        let wire = [&line[..], b"\r\n..b\r\n...\r\n.\r\n"].concat();
        let settings = settings();
        for size in [edge - 1, edge, edge + 1, edge + 2, edge + 3] {
            let outcome = talk(&settings, &[EHLO, ENVELOPE, &wire], |_| size);
            assert_eq!(outcome.kept, std::slice::from_ref(&body), "{edge} by {size}");
        }
    }
}

#[test]
fn p013_data_without_its_end_is_dropped() {
    let outcome = check(&[EHLO, ENVELOPE, b"a\r\nb"]);
    assert_eq!(outcome.codes(), [250, 250, 354]);
    assert!(outcome.kept.is_empty());
    assert_eq!(outcome.events[outcome.events.len() - 2..], ["reset", "close"]);
}

#[test]
fn p016_nul_in_header_or_body_is_refused() {
    assert_eq!(data(b"X: \0\r\n\r\nb\r\n.\r\n"), (Some(550), None));
    assert_eq!(data(b"X: y\r\n\r\n\0\r\n.\r\n"), (Some(550), None));
}

#[test]
fn p019_long_lines_pass_unbroken_unless_a_limit_is_set() {
    for length in [998, 999, 1_000, 2_048, 100_000] {
        let body = [&vec![b'a'; length][..], b"\r\n"].concat();
        let wire = [&body[..], b".\r\n"].concat();
        assert_eq!(talk(&settings(), &[EHLO, ENVELOPE, &wire], |left| left).kept, [body]);
        let limited = Settings { line_bytes_max: Some(998), ..settings() };
        let outcome = check_with(&limited, &[EHLO, ENVELOPE, &wire, b"QUIT\r\n"]);
        assert_eq!(outcome.codes()[3], if length == 998 { 250 } else { 554 });
    }
}

#[test]
fn p019_a_message_that_is_one_line_of_the_largest_size_passes_in_chunks() {
    let largest = settings().message_bytes_max as usize;
    let mut driver = Driver::new(&settings());
    driver.feed(b"");
    driver.feed(EHLO);
    driver.feed(ENVELOPE);
    let piece = vec![b'a'; 1 << 20];
    for _ in 0..largest >> 20 {
        driver.feed(&piece);
    }
    driver.feed(b"\r\n.\r\n");
    assert!(driver.outcome.replies.ends_with("552 5.3.4 Error: message file too big\r\n"));
    driver.feed(ENVELOPE);
    for _ in 1..largest >> 20 {
        driver.feed(&piece);
    }
    driver.feed(b"\r\n.\r\n");
    assert_eq!(driver.outcome.kept[0].len(), largest - (1 << 20) + 2);
}

#[test]
fn p026_a_body_pipelined_with_data_is_refused_and_never_run() {
    let group = [ENVELOPE, b"MAIL FROM:<evil@b.test>\r\n.\r\n"].concat();
    let outcome = talk(&settings(), &[EHLO, &group, b"NOOP\r\n"], |left| left);
    assert_eq!(outcome.codes(), [250, 250, 554]);
    assert!(outcome.closed && outcome.kept.is_empty());
    assert_eq!(outcome.events[3..], ["reset", "close"]);
    // The same while the answer to DATA is not yet written.
    let mut driver = Driver::new(&settings());
    driver.drains = false;
    driver.drain();
    for part in [EHLO, ENVELOPE] {
        driver.drain();
        driver.feed(part);
    }
    driver.feed(b"QUIT\r\n");
    driver.drain();
    assert!(driver.outcome.replies.ends_with(
        "354 End data with <CR><LF>.<CR><LF>\r\n554 5.5.0 Error: SMTP protocol synchronization\r\n"
    ));
}

#[test]
fn p029_a_body_after_a_refused_data_is_never_run() {
    let refused = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<refused@y.test>\r\nDATA\r\n";
    let body = b"Received: by x\r\n\r\nMAIL FROM:<evil@b.test>\r\n.\r\n";
    let outcome = check(&[EHLO, refused, body]);
    assert_eq!(outcome.codes(), [250, 550, 554, 521]);
    assert!(outcome.closed && !outcome.events.iter().any(|event| event.contains("evil")));
    let together = [&refused[..], body].concat();
    let outcome = talk(&settings(), &[EHLO, &together], |left| left);
    assert_eq!(outcome.codes(), [250, 550, 554]);
    assert!(outcome.closed && !outcome.events.iter().any(|event| event.contains("evil")));
}

#[test]
fn p035_the_declared_size_is_counted_for_real() {
    let limited = Settings { message_bytes_max: 1_000, ..settings() };
    let body = [&b"a\r\n".repeat(500)[..], b".\r\n"].concat();
    let mail = b"MAIL FROM:<a@b.test> SIZE=10\r\nRCPT TO:<x@y.test>\r\nDATA\r\n";
    let outcome = check_with(&limited, &[EHLO, mail, &body, b"NOOP\r\n"]);
    assert_eq!(outcome.codes(), [250, 250, 354, 552, 250]);
    let mail = b"MAIL FROM:<a@b.test> SIZE=1000\r\nRCPT TO:<x@y.test>\r\nDATA\r\n";
    assert_eq!(check_with(&limited, &[EHLO, mail, b"a\r\n.\r\n"]).kept, [b"a\r\n"]);
}

#[test]
fn p036_the_size_limit_is_exact_for_data_and_bdat_without_dot_stuffing() {
    let limited = Settings { message_bytes_max: 1_000, body_chunk_bytes: 64, ..settings() };
    for (size, expected) in [(999, 250), (1_000, 250), (1_001, 552)] {
        let body = [&b".".repeat(size - 2)[..], b"\r\n"].concat();
        let wire = [b".", &body[..], b".\r\n"].concat();
        let outcome = check_with(&limited, &[EHLO, ENVELOPE, &wire, b"NOOP\r\n"]);
        assert_eq!(outcome.codes()[3..], [expected, 250], "DATA {size}");
        let chunk = [format!("BDAT {size} LAST\r\n").as_bytes(), &body[..]].concat();
        let outcome = check_with(&limited, &[EHLO, PATHS, &chunk, b"NOOP\r\n"]);
        assert_eq!(outcome.codes()[2..], [expected, 250], "BDAT {size}");
        assert_eq!(outcome.kept.first() == Some(&body), expected == 250);
    }
}

#[test]
fn m067_odd_headers_pass_byte_exact() {
    let odd: &[u8] = b"no colon here\r\nX : space\r\n\xe4\xf6: 8-bit\r\nY: a\r\n \r\n\t\r\n b\r\n:\r\n\r\nbody\r\n";
    let wire = [odd, b".\r\n"].concat();
    assert_eq!(data(&wire), (Some(250), Some(odd.to_vec())));
}

#[test]
fn m068_deep_mime_is_relayed_byte_exact_and_not_looked_into() {
    let mut body = b"MIME-Version: 1.0\r\n".to_vec();
    for depth in 0..2_000 {
        body.extend(
            format!("Content-Type: multipart/mixed; boundary=b{depth}\r\n\r\n--b{depth}\r\n")
                .bytes(),
        );
    }
    let wire = [&body[..], b".\r\n"].concat();
    assert_eq!(data(&wire), (Some(250), Some(body)));
}

#[test]
fn m070_m071_m072_parameters_charsets_and_encodings_are_nobodys_business_here() {
    let mut body = b"Content-Type: text/plain; charset=utf-7; x*0=a;".to_vec();
    for number in 0..5_000 {
        body.extend(format!("\r\n x*{number}=a;").bytes());
    }
    body.extend(b"\r\nSubject: =?iso-2022-jp?B?!!!?=\r\nContent-Transfer-Encoding: base64\r\n\r\nAA=A===\r\nqp=\r\n");
    let wire = [&body[..], b".\r\n"].concat();
    assert_eq!(data(&wire), (Some(250), Some(body)));
}

#[test]
fn m073_a_body_with_8_bit_is_reported_as_such() {
    for (body, expected) in [(&b"a\r\n"[..], false), (b"\xe4\r\n", true)] {
        let mut session = Session::new(server(), Now::default());
        session.output().clear();
        let mut seen = None;
        for part in [EHLO, ENVELOPE, body, b".\r\n"] {
            let mut rest = part;
            while !rest.is_empty() {
                rest = &rest[session.receive(rest, Now::default())..];
                while let Some(event) = session.poll(Now::default()) {
                    match event {
                        Event::BodyEnd(end) => seen = Some(end),
                        _ => session.answer(Verdict::Accept, Now::default()),
                    }
                }
            }
            session.output().clear();
        }
        assert_eq!(seen.unwrap().eight_bit, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_lines_come_through_byte_exact(lines in prop::collection::vec("[.a-cé\t ]{0,90}", 0..40), chunk in 1usize..300) {
        let body = lines.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        let stuffed = lines.iter().map(|line| format!("{}{line}\r\n", if line.starts_with('.') { "." } else { "" }));
        let wire = stuffed.collect::<String>() + ".\r\n";
        let settings = Settings { body_chunk_bytes: chunk, ..settings() };
        let outcome = check_with(&settings, &[EHLO, ENVELOPE, wire.as_bytes(), b"QUIT\r\n"]);
        prop_assert_eq!(outcome.codes(), [250, 250, 354, 250, 221]);
        prop_assert_eq!(&outcome.kept, &[body.into_bytes()]);
    }
}

/// Runs a script with a client whose bare LFs are normalised.
fn normalized(settings: &Settings, groups: &[&[u8]]) -> Outcome {
    check_with(&Settings { bare_lf: BareLf::Normalize, ..settings.clone() }, groups)
}

#[test]
fn r232_bare_lfs_of_a_trusted_client_become_line_ends_and_never_the_end() {
    let plain = settings();
    let wire = b"Subject: x\n\nb\n.\n..\n.c\r\n.\nd\n.\r\nQUIT\n\r\n.\r\n";
    let body = b"Subject: x\r\n\r\nb\r\n.\r\n.\r\nc\r\n.\r\nd\r\n.\r\nQUIT\r\n\r\n";
    let small = Settings { body_chunk_bytes: 4, ..settings() };
    for settings in [&plain, &small] {
        let outcome = normalized(settings, &[EHLO, ENVELOPE, wire, b"NOOP\r\n"]);
        assert_eq!(outcome.kept, [body.to_vec()]);
        assert_eq!(outcome.codes()[3..], [250, 250]);
        let chunks =
            [PATHS, b"BDAT 5\r\na\n.\n\r", b"BDAT 6 LAST\r\n\n.\n\nb\n", b"NOOP\r\n"].concat();
        let outcome = normalized(settings, &[EHLO, &chunks]);
        assert_eq!(outcome.kept, [b"a\r\n.\r\n\r\n.\r\n\r\nb\r\n"]);
    }
    for bad in [&b"a\rb\n"[..], b"a\n\rb", b"a\n.\rb", b"\0\n"] {
        let wire = [bad, b"\r\n.\r\n"].concat();
        let outcome = normalized(&plain, &[EHLO, ENVELOPE, &wire, b"NOOP\r\n"]);
        assert_eq!(outcome.codes()[3..], [550, 250], "{bad:?}");
        assert!(outcome.kept.is_empty());
    }
}

#[test]
fn r232_sizes_and_headers_are_those_of_what_is_kept() {
    let limited = Settings { message_bytes_max: 100, header_bytes_max: 60, ..settings() };
    let codes = |body: &[u8]| {
        let wire = [body, b"\r\n.\r\n"].concat();
        let code = normalized(&limited, &[EHLO, ENVELOPE, &wire, b"NOOP\r\n"]).codes()[3];
        let chunk = [PATHS, format!("BDAT {} LAST\r\n", body.len()).as_bytes(), body].concat();
        assert_eq!(normalized(&limited, &[EHLO, &chunk, b"NOOP\r\n"]).codes()[2], code);
        code
    };
    // DATA adds two octets for the CRLF before the dot. BDAT does not.
    assert_eq!(codes(&b"\n".repeat(49)), 250);
    assert_eq!(codes(&b"\n".repeat(51)), 552);
    assert_eq!(codes(&b"a: b\n".repeat(9)), 250);
    assert_eq!(codes(&b"a: b\n".repeat(11)), 552);
    let hops = b"Received: x\n".repeat(3);
    let looping = Settings { hops_max: 3, ..settings() };
    let wire = [&hops[..], b"\r\n.\r\n"].concat();
    assert_eq!(normalized(&looping, &[EHLO, ENVELOPE, &wire, b"NOOP\r\n"]).codes()[3], 554);
}

#[test]
fn r232_bare_lfs_by_the_million_cost_no_more_than_others() {
    let body = b"\n".repeat(1_000_000);
    let wire = [&body[..], b"\r\n.\r\n"].concat();
    let trusted = Settings { bare_lf: BareLf::Normalize, header_bytes_max: 1 << 30, ..settings() };
    for size in [1_000_003, 64 << 10, 1_460] {
        let outcome = talk(&trusted, &[EHLO, ENVELOPE, &wire], |_| size);
        assert_eq!(outcome.kept, [b"\r\n".repeat(1_000_001)]);
    }
}
