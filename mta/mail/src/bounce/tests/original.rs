//! How much of the original message comes back, and in which form.
//!
//! Must never let a byte of the body pass if only headers were asked for.

use super::*;

#[test]
fn ret_and_size_decide_how_much_comes_back() {
    let mut envelope = envelope("ann@sender.example", vec![recipient("joe@dest.example")]);
    assert_eq!(excerpt(BounceKind::Failed, &envelope, 50_000, 50_000), Excerpt::Whole);
    assert_eq!(excerpt(BounceKind::Failed, &envelope, 50_001, 50_000), Excerpt::Start(50_000));
    assert_eq!(excerpt(BounceKind::Expired, &envelope, 50_001, 0), Excerpt::Start(0));
    assert_eq!(excerpt(BounceKind::Delayed, &envelope, 1, 50_000), Excerpt::Headers);
    envelope.from.ret = Some(Ret::Full);
    assert_eq!(excerpt(BounceKind::Delivered, &envelope, 1, 50_000), Excerpt::Headers);
    envelope.from.ret = Some(Ret::Headers);
    assert_eq!(excerpt(BounceKind::Failed, &envelope, 1, 50_000), Excerpt::Headers);
}

#[test]
fn r235_a_long_original_comes_back_cut_at_a_line_and_the_notice_says_so() {
    let envelope = envelope("ann@sender.example", vec![recipient("joe@dest.example")]);
    let head = "Subject: x\r\n\r\n";
    let long = head.to_string() + &"0123456789abcdef\r\n".repeat(11_111);
    let cases: [(&str, usize, &str, &str); 6] = [
        (
            &long,
            50_000,
            "The first 50000\r\nof its 200012 bytes are attached, the rest is cut.",
            "def\r\n\r\n--",
        ),
        (&long, 50, "The first 50\r\nof its 200012 bytes", "def\r\n\r\n--"),
        // No line of the body fits into the bound.
        (&long, 31, "Its headers are attached.", "Subject: x\r\n\r\n--"),
        (&long, 5, "Its headers are attached.", "Subject: x\r\n\r\n--"),
        (&long, 0, "Its headers are attached.", "Subject: x\r\n\r\n--"),
        // A message that must not be encoded, but would need encoding, is returned without its body.
        (&format!("{head}a\rb\r\nc\r\n"), 22, "Its headers are attached.", "Subject: x\r\n\r\n--"),
    ];
    for (original, max, said, end) in cases {
        let reports = [(0, refused("no"))];
        let excerpt = Excerpt::Start(max);
        let made =
            told(BounceKind::Failed, &envelope, &reports, excerpt, original.as_bytes()).unwrap();
        let text = text(&made);
        assert!(text.contains(said), "{max}: {text:.3000}");
        assert!(text.split(end).count() > 1, "{max}");
        let returned = text.matches("0123456789abcdef\r\n").count();
        assert_eq!(returned, max.saturating_sub(head.len()) / 18, "{max}");
        let kind = if returned > 0 { "message/rfc822" } else { "text/rfc822-headers" };
        assert!(text.contains(&format!("Content-Type: {kind}\r\n")), "{max}");
        assert_sound(&made);
    }
}

/// `cargo xtask bounces` passes these notices to a program that parses bounces.
#[test]
fn r235_bounces_that_other_programs_read_are_like_these() {
    let envelope = envelope("ann@sender.example", vec![recipient("joe@dest.example")]);
    let cases = [
        (
            BounceKind::Failed,
            said(Stage::Rcpt, 550, None, "No such user here", true),
            include_str!("../golden/unknown.txt"),
        ),
        (
            BounceKind::Failed,
            said(Stage::Rcpt, 552, Some(Enhanced(5, 2, 2)), "Mailbox full", true),
            include_str!("../golden/full.txt"),
        ),
        (
            BounceKind::Failed,
            said(
                Stage::End,
                554,
                Some(Enhanced(5, 7, 1)),
                "Message rejected due to local policy",
                true,
            ),
            include_str!("../golden/policy.txt"),
        ),
        (
            BounceKind::Expired,
            said(Stage::Rcpt, 451, None, "Try again later", true),
            include_str!("../golden/expired.txt"),
        ),
        (
            BounceKind::Expired,
            said(
                Stage::Connect,
                451,
                Some(Enhanced(4, 4, 1)),
                "connecting: connection refused",
                false,
            ),
            include_str!("../golden/unreached.txt"),
        ),
    ];
    let original =
        b"From: ann@sender.example\r\nTo: joe@dest.example\r\nSubject: x\r\n\r\nbody\r\n";
    for (kind, report, golden) in cases {
        let made = told(kind, &envelope, &[(0, report)], Excerpt::Whole, original).unwrap();
        assert_eq!(text(&made).replace("\r\n", "\n"), golden);
    }
}

#[test]
fn where_only_headers_were_asked_for_no_byte_of_the_body_comes_back() {
    let envelope = envelope("ann@sender.example", vec![recipient("joe@dest.example")]);
    let cases: [(&[u8], &str); 5] = [
        (b"A: b\r\nC: d\r\n\r\nSECRET\r\n", "\r\n\r\nA: b\r\nC: d\r\n\r\n--"),
        (b"\r\nSECRET\r\n", "Encoding: 7bit\r\n\r\n\r\n--"),
        (b"A: b\r\nC: cut of", "\r\n\r\nA: b\r\n\r\n--"),
        (b"", "Encoding: 7bit\r\n\r\n\r\n--"),
        (b"A: b\rc\r\n\r\nSECRET\r\n", "quoted-printable\r\n\r\nA: b=0Dc\r\n\r\n--"),
    ];
    for (original, expected) in cases {
        let made =
            told(BounceKind::Failed, &envelope, &[(0, refused("no"))], Excerpt::Headers, original)
                .unwrap();
        assert!(text(&made).contains(expected), "{expected:?} in {}", text(&made));
        assert!(!text(&made).contains("SECRET"));
    }
}

#[test]
fn a_boundary_is_not_in_the_content_even_when_the_content_knows_the_first_ones() {
    let envelope = envelope("ann@sender.example", vec![recipient("joe@dest.example")]);
    let mut original = b"A: b\r\n\r\n".to_vec();
    for number in 0..20 {
        let line = format!("--=_00000000011.failed.0.{}.{number}\r\n", NOW.micros());
        original.extend_from_slice(line.as_bytes());
    }
    let made =
        told(BounceKind::Failed, &envelope, &[(0, refused("no"))], Excerpt::Whole, &original);
    let text = text(&made.unwrap());
    let boundary = text.split("boundary=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(boundary.len() <= 70, "RFC 2046 5.1.1");
    assert_eq!(text.matches(boundary).count(), 5);
}
