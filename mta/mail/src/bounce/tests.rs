//! The exact bytes of notices, and what no text of a stranger can make a notice do.

mod original;
mod soundness;

use super::*;
use crate::{BodyKind, Enhanced, MailFrom, Reply, Stage};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_micros(1_795_222_861_000_042);
const ARRIVED: Timestamp = Timestamp::from_micros(1_795_222_800_000_000);

fn address(text: &str) -> Address {
    Address::parse(text, true).unwrap()
}

fn recipient(text: &str) -> Recipient {
    Recipient { address: address(text), notify: Notify::DEFAULT, orcpt: None }
}

fn envelope(sender: &str, recipients: Vec<Recipient>) -> Envelope {
    Envelope {
        from: MailFrom::new(ReversePath::Address(address(sender))),
        origin: Origin { client: None, helo: "c".into(), protocol: Protocol::Esmtp },
        arrived: ARRIVED,
        recipients,
    }
}

fn refused(text: &str) -> Report {
    Report {
        stage: Stage::Rcpt,
        reply: Reply::new(550, Enhanced(5, 1, 1), text),
        peer: "mx.dest.example[192.0.2.1]:25".into(),
        from_peer: true,
    }
}

fn told(
    kind: BounceKind,
    envelope: &Envelope,
    recipients: &[(u32, Report)],
    excerpt: Excerpt,
    original: &[u8],
) -> Option<Bounce> {
    bounce(&Notice {
        kind,
        hostname: "mx.example.org",
        postmaster: &address("postmaster@example.org"),
        id: MessageId(33),
        envelope,
        recipients,
        excerpt,
        original,
        original_bytes: original.len() as u64,
        now: NOW,
        retry_until: Some(Timestamp::from_micros(1_795_654_861_000_000)),
    })
}

fn text(bounce: &Bounce) -> String {
    String::from_utf8(bounce.bytes.clone()).unwrap()
}

#[test]
fn a_bounce_reads_like_this() {
    let mut envelope = envelope("ann@sender.example", vec![recipient("joe@dest.example")]);
    envelope.from.envid = Some("QQ+2B314159".into());
    envelope.recipients[0].orcpt = Some("rfc822;joe+2Bx@dest.example".into());
    let made = told(
        BounceKind::Failed,
        &envelope,
        &[(0, refused("No such user here\nsorry"))],
        Excerpt::Whole,
        b"Subject: x\r\n\r\nbody\r\n",
    )
    .unwrap();
    assert_eq!(text(&made).replace("\r\n", "\n"), include_str!("golden/failed.txt"));
    assert!(!text(&made).replace("\r\n", "").contains(['\r', '\n']));
    assert_eq!(made.envelope.from.sender, ReversePath::Null);
    assert_eq!(made.envelope.recipients.len(), 1);
    assert_eq!(made.envelope.recipients[0].address.as_str(), "ann@sender.example");
    assert_eq!(made.envelope.recipients[0].notify, Notify::NEVER);
    assert!(!made.envelope.from.smtputf8);
    assert_eq!(made.envelope.from.body, BodyKind::SevenBit);
}

#[test]
fn a_delay_notice_reads_like_this() {
    let envelope = envelope("ann@sender.example", vec![recipient("joe@dest.example")]);
    let report = Report {
        stage: Stage::Connect,
        reply: Reply::new(451, Enhanced(4, 4, 1), "connection timed out"),
        peer: "mx.dest.example[192.0.2.1]:25".into(),
        from_peer: false,
    };
    let made = told(
        BounceKind::Delayed,
        &envelope,
        &[(0, report)],
        Excerpt::Headers,
        b"Subject: x\r\n\r\nbody\r\n",
    )
    .unwrap();
    assert_eq!(text(&made).replace("\r\n", "\n"), include_str!("golden/delayed.txt"));
}

#[test]
fn p049_a_notice_to_an_ascii_sender_never_needs_smtputf8_or_8bitmime() {
    let mut envelope = envelope("ann@sender.example", vec![recipient("jö@dest.example")]);
    envelope.from.smtputf8 = true;
    let mut report = refused("needs SMTPUTF8");
    report.reply.enhanced = Some(Enhanced(5, 6, 7));
    let original = "Subject: ü\r\n\r\nbody\r\n".as_bytes();
    let made =
        told(BounceKind::Failed, &envelope, &[(0, report)], Excerpt::Whole, original).unwrap();
    assert_eq!(text(&made).replace("\r\n", "\n"), include_str!("golden/global.txt"));
    assert!(made.bytes.is_ascii() && !made.envelope.from.smtputf8);
}

#[test]
fn a_notice_to_an_international_sender_uses_the_global_types_as_they_are() {
    let envelope = envelope("än@sender.example", vec![recipient("jö@dest.example")]);
    let report = refused("no");
    let original = "Subject: ü\r\n\r\nbody\r\n".as_bytes();
    let made =
        told(BounceKind::Failed, &envelope, &[(0, report)], Excerpt::Whole, original).unwrap();
    let text = text(&made);
    assert!(made.envelope.from.smtputf8 && made.envelope.from.body == BodyKind::UndeclaredEightBit);
    for expected in [
        "To: <än@sender.example>\r\n",
        "report-type=global-delivery-status;",
        "Content-Type: message/global-delivery-status\r\nContent-Transfer-Encoding: 8bit\r\n",
        "Final-Recipient: utf-8; jö@dest.example\r\n",
        "Content-Type: message/global\r\nContent-Transfer-Encoding: 8bit\r\n\r\nSubject: ü\r\n",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[test]
fn d160_the_null_sender_is_never_answered() {
    let mut envelope = envelope("ann@sender.example", vec![recipient("joe@dest.example")]);
    envelope.from.sender = ReversePath::Null;
    assert_eq!(
        told(BounceKind::Failed, &envelope, &[(0, refused("no"))], Excerpt::Headers, b""),
        None
    );
}

#[test]
fn d148_each_recipient_is_told_of_once_and_only_as_its_notify_asks() {
    let notify = [
        Notify::DEFAULT,
        Notify::NEVER,
        Notify::of(true, false, false),
        Notify::of(false, true, false),
        Notify::of(false, false, true),
    ];
    let recipients: Vec<_> = (0..notify.len())
        .map(|n| Recipient { notify: notify[n], ..recipient(&format!("r{n}@dest.example")) })
        .collect();
    let envelope = envelope("ann@sender.example", recipients);
    let reports: Vec<_> = (0..5).map(|n| (n, refused("no"))).collect();
    let expected = [
        (BounceKind::Failed, vec![0, 3]),
        (BounceKind::Delayed, vec![0, 4]),
        (BounceKind::Relayed, vec![2]),
        (BounceKind::Delivered, vec![2]),
    ];
    for (kind, who) in expected {
        let made = told(kind, &envelope, &reports, Excerpt::Headers, b"A: b\r\n\r\n").unwrap();
        for n in 0..5 {
            let field = format!("\r\nFinal-Recipient: rfc822; r{n}@dest.example\r\n");
            assert_eq!(text(&made).matches(&field).count(), usize::from(who.contains(&n)));
        }
    }
    assert_eq!(told(BounceKind::Failed, &envelope, &reports[1..3], Excerpt::Headers, b""), None);
    assert_eq!(
        told(BounceKind::Failed, &envelope, &[(9, refused("no"))], Excerpt::Headers, b""),
        None
    );
}

/// A reply of a peer, or a description of our own.
fn said(
    stage: Stage,
    code: u16,
    enhanced: Option<Enhanced>,
    text: &str,
    from_peer: bool,
) -> Report {
    let reply = Reply { code, enhanced, text: text.into() };
    Report { stage, reply, peer: "mx.dest.example[192.0.2.1]:25".into(), from_peer }
}

#[test]
fn r233_a_diagnostic_code_of_type_smtp_and_a_remote_mta_are_a_peers_alone() {
    let envelope = envelope("ann@sender.example", vec![recipient("joe@dest.example")]);
    let stages =
        [Stage::Resolve, Stage::Connect, Stage::Greeting, Stage::Rcpt, Stage::End, Stage::Here];
    for kind in [BounceKind::Failed, BounceKind::Expired, BounceKind::Delayed] {
        for stage in stages {
            for from_peer in [true, false] {
                let report = said(stage, 452, Some(Enhanced(4, 2, 2)), "Mailbox full", from_peer);
                let made = told(kind, &envelope, &[(0, report)], Excerpt::Headers, b"").unwrap();
                let text = text(&made);
                let quoted = text.contains("\r\nDiagnostic-Code: smtp; 452 4.2.2 Mailbox full\r\n");
                assert_eq!(quoted, from_peer, "{kind:?} {stage:?}: {text}");
                assert_eq!(text.contains("\r\nDiagnostic-Code: x-posthaste; "), !from_peer);
                let spoke = from_peer && !matches!(stage, Stage::Resolve | Stage::Here);
                assert_eq!(text.contains("\r\nRemote-MTA: dns; mx.dest.example\r\n"), spoke);
                let status = if kind == BounceKind::Expired { "5.4.7" } else { "4.2.2" };
                assert!(text.contains(&format!("\r\nStatus: {status}\r\n")));
            }
        }
    }
}

#[test]
fn d155_an_injected_reply_stays_inside_its_field() {
    let envelope = envelope("ann@sender.example", vec![recipient("joe@dest.example")]);
    let evil = "no\nFinal-Recipient: rfc822; evil@example\r\n\r\n--=_00000000011.failed.0\0\x1b[2J";
    let made =
        told(BounceKind::Failed, &envelope, &[(0, refused(evil))], Excerpt::Headers, b"").unwrap();
    let text = text(&made);
    assert_eq!(text.matches("\r\nFinal-Recipient:").count(), 1);
    assert!(!text.contains(['\0', '\x1b']));
}

#[test]
fn d154_a_reply_of_a_bare_enhanced_code_is_shown_and_harmless() {
    let envelope = envelope("ann@sender.example", vec![recipient("joe@dest.example")]);
    for (code, enhanced, reply, status) in [
        (550, None, "5.7.2", "5.0.0"),
        (550, Some(Enhanced(5, 7, 2)), "", "5.7.2"),
        (550, Some(Enhanced(4, 7, 2)), "", "5.0.0"),
        (550, Some(Enhanced(5, 65_535, 0)), "", "5.0.0"),
        (450, Some(Enhanced(4, 2, 0)), "x", "4.2.0"),
        (250, None, "x", "5.0.0"),
    ] {
        let mut report = refused(reply);
        (report.reply.code, report.reply.enhanced) = (code, enhanced);
        let made =
            told(BounceKind::Failed, &envelope, &[(0, report)], Excerpt::Headers, b"").unwrap();
        assert!(text(&made).contains(&format!("\r\nStatus: {status}\r\n")));
    }
}

/// Checks that hold for every notice.
fn assert_sound(made: &Bounce) {
    let bytes = &made.bytes;
    assert!(text::is_clean(bytes), "a line over 998, or a bare CR, LF or NUL");
    assert!(bytes.ends_with(b"--\r\n"));
    let whole = String::from_utf8_lossy(bytes);
    let (head, rest) = whole.split_once("\r\n\r\n").unwrap();
    let names: Vec<_> = head
        .split("\r\n")
        .filter(|line| !line.starts_with('\t'))
        .map(|line| line.split_once(':').expect("a header").0)
        .collect();
    assert_eq!(
        names,
        [
            "Date",
            "From",
            "To",
            "Subject",
            "Message-ID",
            "Auto-Submitted",
            "MIME-Version",
            "Content-Type"
        ]
    );
    let boundary = head.split("boundary=\"").nth(1).unwrap().split('"').next().unwrap();
    let parts: Vec<_> = rest.split(&format!("\r\n--{boundary}")).collect();
    assert_eq!(parts.len(), 5, "preamble, three parts, the end");
    let (_, status) = parts[2].trim_start().split_once("\r\n\r\n").unwrap();
    let mut groups = status.trim_end().split("\r\n\r\n");
    assert!(groups.next().unwrap().starts_with("Reporting-MTA: dns;"));
    for group in groups {
        assert_fields(group);
    }
}

fn assert_fields(group: &str) {
    const KNOWN: [&str; 8] = [
        "Original-Recipient",
        "Final-Recipient",
        "Action",
        "Status",
        "Remote-MTA",
        "Diagnostic-Code",
        "Last-Attempt-Date",
        "Will-Retry-Until",
    ];
    let mut seen = Vec::new();
    for line in group.split("\r\n").filter(|line| !line.starts_with(' ')) {
        let name = line.split_once(':').expect("a field").0;
        assert!(KNOWN.contains(&name) && !seen.contains(&name), "{name} in {group}");
        seen.push(name);
    }
    for name in ["Final-Recipient", "Action", "Status"] {
        assert!(seen.contains(&name), "RFC 3464 2.3: {name}");
    }
}
