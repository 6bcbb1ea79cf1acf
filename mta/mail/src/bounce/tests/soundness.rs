//! Properties of all notices: they are well-formed and bounded.
//!
//! Must never build the expected text with the code under test.

use super::*;

fn any_report() -> impl Strategy<Value = Report> {
    let code = prop_oneof![Just(550u16), Just(450), Just(250), any::<u16>()];
    let enhanced = proptest::option::of(any::<(u8, u16, u16)>());
    let text = prop_oneof![any::<String>(), "[\\x00-\\x7f\u{80}-\u{2fff}]{0,3000}", "x{1000,2500}"];
    (code, enhanced, text, any::<String>(), any::<bool>(), 0..10usize).prop_map(
        |(code, enhanced, text, peer, from_peer, stage)| Report {
            stage: [
                Stage::Resolve,
                Stage::Connect,
                Stage::Greeting,
                Stage::Hello,
                Stage::Mail,
                Stage::Rcpt,
                Stage::Data,
                Stage::End,
                Stage::Mailbox,
                Stage::Here,
            ][stage],
            reply: Reply {
                code,
                enhanced: enhanced.map(|(a, b, c)| Enhanced(a, b, c)),
                text: text.into(),
            },
            peer: peer.into(),
            from_peer,
        },
    )
}

/// Makes all notices that these recipients need.
fn all_told(envelope: &Envelope, reports: &[(u32, Report)]) -> Vec<Bounce> {
    let (mut made, mut rest) = (Vec::new(), reports);
    while !rest.is_empty() {
        let (bounce, entries) = first_bounce(&Notice {
            kind: BounceKind::Failed,
            hostname: "mx.example.org",
            postmaster: &address("postmaster@example.org"),
            id: MessageId(33),
            envelope,
            recipients: rest,
            excerpt: Excerpt::Headers,
            original: b"Subject: x\r\n\r\n",
            original_bytes: 14,
            now: NOW,
            retry_until: None,
        });
        assert!(entries > 0);
        made.extend(bounce);
        rest = &rest[entries..];
    }
    made
}

#[test]
fn r207_notices_about_many_are_bounded_and_name_each_recipient_once() {
    for (many, reply_bytes, notices_max) in
        [(1usize, 8_192usize, 1), (50_000, 20, 55), (50_000, 450, 200), (5_000, 8_192, 20)]
    {
        let recipients = (0..many).map(|n| recipient(&format!("r{n}@dest.example"))).collect();
        let envelope = envelope("ann@sender.example", recipients);
        let text = |n: usize| format!("{n} {}", "no ".repeat(reply_bytes / 3));
        let reports: Vec<_> = (0..many).map(|n| (n as u32, refused(&text(n)))).collect();
        let made = all_told(&envelope, &reports);
        assert!(made.len() <= notices_max, "{} notices for {many}", made.len());
        let mut named = 0;
        for bounce in &made {
            assert!(bounce.bytes.len() < NOTICE_TEXT_BYTES_MAX + 4_096, "{}", bounce.bytes.len());
            let text = std::str::from_utf8(&bounce.bytes).unwrap();
            named += text.matches("\r\nFinal-Recipient: rfc822; r").count();
            let cut = text.contains("[...]\r\n");
            assert_eq!(cut, reply_bytes > 512, "a reply of {reply_bytes} bytes");
            assert_eq!(cut, text.contains("Replies are shown up to"));
        }
        let last = made.last().unwrap();
        assert!(!text_of(last).contains("Other notices"));
        assert_eq!(made.len() > 1, text_of(&made[0]).contains("Other notices tell you"));
        assert_eq!(named, many);
    }
}

fn text_of(bounce: &Bounce) -> &str {
    std::str::from_utf8(&bounce.bytes).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_stranger_can_break_a_notice(
        report in any_report(),
        envid in proptest::option::of(any::<String>()),
        orcpt in proptest::option::of(any::<String>()),
        hostname in any::<String>(),
        original in proptest::collection::vec(any::<u8>(), 0..3000),
        excerpt in prop_oneof![
            Just(Excerpt::Whole),
            Just(Excerpt::Headers),
            (0..4000usize).prop_map(Excerpt::Start),
        ],
        smtputf8 in any::<bool>(),
        sender in 0..2usize,
        kind in 0..5usize,
    ) {
        let sender = ["ann@sender.example", "än@sender.example"][sender];
        let mut rcpt = recipient("joe@dest.example");
        rcpt.notify = Notify::of(true, true, true);
        rcpt.orcpt = orcpt.map(Into::into);
        let mut envelope = envelope(sender, vec![rcpt]);
        envelope.from.envid = envid.map(Into::into);
        envelope.from.smtputf8 = smtputf8;
        let made = bounce(&Notice {
            kind: [BounceKind::Failed, BounceKind::Delayed, BounceKind::Relayed, BounceKind::Delivered, BounceKind::Expired][kind],
            hostname: &hostname,
            postmaster: &address("postmaster@example.org"),
            id: MessageId(33),
            envelope: &envelope,
            recipients: &[(0, report)],
            excerpt,
            original: &original,
            original_bytes: original.len() as u64,
            now: NOW,
            retry_until: None,
        }).unwrap();
        assert_sound(&made);
        prop_assert!(made.envelope.from.smtputf8 || sender.is_ascii());
        if !made.envelope.from.smtputf8 && made.envelope.from.body == BodyKind::SevenBit {
            prop_assert!(made.bytes.is_ascii());
        }
    }
}
