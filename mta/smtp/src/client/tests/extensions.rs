//! Extensions and limits that the peer offers or lacks.
//!
//! Must never send what the peer does not offer.

use super::*;

#[test]
fn d172_what_the_next_hop_does_not_offer_is_left_out_or_bounced() {
    let mut dsn = message(1);
    dsn.from.ret = Some(Ret::Headers);
    dsn.from.envid = Some("id+3D".into());
    dsn.recipients[0].notify = Notify::of(true, true, false);
    dsn.recipients[0].orcpt = Some("rfc822;r+2B0@sink.test".into());
    dsn.from.body = BodyKind::EightBit;
    let story = tell(&[], &[dsn.clone()]);
    assert_eq!(
        &story.lines[1..],
        [
            "MAIL FROM:<s@source.test> SIZE=45 BODY=8BITMIME RET=HDRS ENVID=id+3D",
            "RCPT TO:<r0@sink.test> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;r+2B0@sink.test",
            "BDAT 45 LAST",
        ]
    );
    assert!(matches!(
        &story.ended[0].as_ref().unwrap()[0],
        Outcome::Delivered { relayed: false, .. }
    ));
    let story = tell(&[("EHLO", PLAIN)], &[dsn]);
    let plain = ["MAIL FROM:<s@source.test>", "RCPT TO:<r0@sink.test>", "DATA"];
    assert_eq!(&story.lines[1..], plain);
    assert!(matches!(
        &story.ended[0].as_ref().unwrap()[0],
        Outcome::Delivered { relayed: true, .. }
    ));
    assert_eq!(
        story.bodies[0],
        b"Received: here\r\nSubject: x\r\n\r\n..dot\r\n...\r\nend\r\n.\r\n"
    );
}

#[test]
fn m073_eight_bits_for_a_hop_without_8bitmime_bounce_with_5_6_3_and_are_not_sent() {
    for (body, content, expected) in [
        (BodyKind::EightBit, "A: b\r\n\r\n\u{e9}\r\n", "F Here own 554"),
        (BodyKind::EightBit, "A: b\r\n\r\ne\r\n", "D End 250"),
    ] {
        let story = tell(&[("EHLO", PIPELINING)], &[with_content(body, content)]);
        assert_eq!(story.summary(), expected);
        assert_eq!(story.bodies.is_empty(), expected.starts_with('F'));
    }
}

#[test]
fn r228_eight_bits_that_nobody_declared_go_as_they_came_to_a_hop_without_8bitmime() {
    for (body, content) in [
        (BodyKind::UndeclaredEightBit, "A: b\r\n\r\n\u{e9}\r\n"),
        (BodyKind::UndeclaredEightBit, "A: \u{e9}\r\n\r\ne\r\n"),
        // 8BITMIME declares the body, not the header section.
        (BodyKind::EightBit, "A: \u{e9}\r\n\r\ne\r\n"),
    ] {
        let as_it_came = content.as_bytes();
        for (offers, parameter) in [(PIPELINING, ""), (PLAIN, ""), (ALL, " BODY=8BITMIME")] {
            let story = tell(&[("EHLO", offers)], &[with_content(body, content)]);
            assert_eq!(story.summary(), "D End 250", "{body:?} {content:?}");
            assert!(story.lines[1].ends_with(parameter), "{:?}", story.lines);
            assert_eq!(story.lines[1].contains("BODY="), !parameter.is_empty());
            assert!(story.bodies[0].starts_with(as_it_came), "{body:?}");
        }
    }
}

#[test]
fn p049_utf8_for_a_hop_without_smtputf8_is_put_in_ascii_or_bounces_with_5_6_7() {
    let mut mixed = message(0);
    mixed.from.smtputf8 = true;
    mixed.recipients =
        ["a@b\u{fc}cher.example", "j\u{fc}rgen@sink.test", "c@sink.test"].map(recipient).into();
    let story = tell(&[("EHLO", PIPELINING)], &[mixed.clone()]);
    assert_eq!(story.summary(), "D End 250, F Here own 554, D End 250");
    assert_eq!(story.lines[2], "RCPT TO:<a@xn--bcher-kva.example>");
    let failed = story.ended[0].as_ref().unwrap()[1].report().reply.to_string();
    assert!(failed.starts_with("554 5.6.7 "), "{failed}");

    let story = tell(&[], &[mixed.clone()]);
    assert_eq!(story.summary(), "D End 250, D End 250, D End 250");
    assert!(story.lines[1].ends_with(" SMTPUTF8"), "{:?}", story.lines);
    assert_eq!(story.lines[3], "RCPT TO:<j\u{fc}rgen@sink.test>");

    let mut sender = mixed.clone();
    sender.from.sender = ReversePath::Address(Address::parse("\u{fc}@source.test", true).unwrap());
    let story = tell(&[("EHLO", PIPELINING)], &[sender]);
    assert_eq!(story.summary(), "F Here own 554, F Here own 554, F Here own 554");

    let mut header = mixed;
    let content = "Subject: \u{fc}\r\n\r\n";
    header.body_bytes = content.len() as u64;
    header.content = Some(Bytes::from_static(content.as_bytes()));
    let story = tell(&[("EHLO", PIPELINING)], &[header]);
    assert_eq!(story.summary(), "F Here own 554, F Here own 554, F Here own 554");
    assert!(story.bodies.is_empty());
}

#[test]
fn d173_a_message_too_large_for_the_next_hop_is_not_sent() {
    for (size, expected) in [
        ("250-s\r\n250 SIZE 44\r\n", "F Here own 552"),
        ("250-s\r\n250 SIZE 45\r\n", "D End 250"),
        ("250-s\r\n250 SIZE\r\n", "D End 250"),
        ("250-s\r\n250 SIZE 0\r\n", "D End 250"),
    ] {
        let story = tell(&[("EHLO", size)], &[message(1)]);
        assert_eq!(story.summary(), expected);
        assert_eq!(story.bodies.is_empty(), expected.starts_with('F'));
    }
    let story = tell(&[("EHLO", "250-s\r\n250 SIZE 44\r\n")], &[message(1)]);
    assert!(
        story.ended[0].as_ref().unwrap()[0].report().reply.to_string().starts_with("552 5.3.4")
    );
}

#[test]
fn a_connection_takes_as_many_messages_as_the_peer_allows() {
    for (hello, expected) in [("250 LIMITS MAILMAX=2\r\n", 2), (PLAIN, 5)] {
        let hello = format!("250-s\r\n{hello}");
        let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", &hello)]);
        talk.run(&[usize::MAX]);
        let sent = (0..5).take_while(|_| {
            let can_send = talk.session.can_send();
            if can_send {
                talk.send(message(1));
                talk.run(&[usize::MAX]);
            }
            can_send
        });
        assert_eq!(sent.count(), expected, "{hello}");
    }
}

#[test]
fn limits_of_the_peer_are_kept() {
    let hello = "250-s\r\n250-PIPELINING\r\n250 LIMITS RCPTMAX=2 MAILMAX=2\r\n";
    let story = tell(&[("EHLO", hello)], &[message(5)]);
    assert_eq!(story.summary(), "D End 250, D End 250, D End 250, D End 250, T Mail own 451");
    assert_eq!(story.bodies.len(), 2);
    let hello = "250-s\r\n250 LIMITS RCPTDOMAINMAX=1\r\n";
    let mut two = message(0);
    two.recipients = ["a@x.test", "b@x.test", "c@y.test"].map(recipient).into();
    let story = tell(&[("EHLO", hello)], &[two]);
    assert_eq!(story.summary(), "D End 250, D End 250, D End 250");
    assert_eq!(story.bodies.len(), 2);
}
