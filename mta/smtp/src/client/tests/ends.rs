//! Connections that end early, and peers that are too slow.
//!
//! Must never lose a message without an outcome.

use super::*;

#[test]
fn d150_a_connection_lost_after_the_dot_is_tried_again() {
    check(&[
        (ALL, &[(".", "!")], "T End own 451, T End own 451, closed"),
        (PIPELINING, &[(".", "!")], "T End own 451, T End own 451, closed"),
        (PLAIN, &[(".", "250!")], "T End own 451, T End own 451, closed"),
        (PLAIN, &[("DATA", "!")], "T Data own 451, T Data own 451, closed"),
    ]);
}

#[test]
fn d151_a_body_that_breaks_off_is_never_ended() {
    for (hello, input) in
        [(PLAIN, Input::BodyFailed), (ALL, Input::BodyFailed), (PLAIN, Input::Lost)]
    {
        let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", hello)]);
        let mut message = message(1);
        message.content = None;
        message.body_bytes = 70_000;
        talk.session.handle(Input::Send(message), at(0));
        let asked = loop {
            let outgoing = talk.session.transmit().to_vec();
            talk.server.take(&outgoing);
            talk.session.transmitted(outgoing.len(), at(0));
            let some: Vec<u8> = talk.server.output.drain(..).collect();
            talk.session.handle(Input::Received(&some), at(0));
            if let Some(output) = talk.session.poll() {
                break output;
            }
        };
        assert_eq!(asked, Output::NeedBody { offset: 0, bytes: 70_000 });
        talk.session.handle(Input::Body(Bytes::from_static(b"half\r\n")), at(0));
        talk.session.handle(input, at(0));
        talk.run(&[usize::MAX]);
        let story = talk.story();
        assert_eq!(story.summary(), "T Data own 451, closed");
        assert!(story.bodies.is_empty());
    }
}

#[test]
fn d159_a_peer_that_trickles_or_does_not_read_is_given_up_in_time() {
    // One byte in 30 seconds does not move the deadline of the answer.
    let mut talk =
        Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", PLAIN), ("MAIL", "")]);
    talk.send(message(1));
    talk.run(&[usize::MAX]);
    let mut now = 0;
    while talk.session.next_wakeup().is_some() {
        now += 30;
        talk.session.handle(Input::Received(b"2"), at(now));
        talk.session.handle(Input::Tick, at(now));
        assert!(now <= 300, "the answer to MAIL is awaited for five minutes");
    }
    talk.run(&[usize::MAX]);
    assert_eq!(talk.story().summary(), "T Mail own 451, closed");

    // A peer that reads single bytes has an hour for the whole message.
    let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", PLAIN)]);
    let mut large = message(1);
    large.content = None;
    large.body_bytes = 10 << 20;
    talk.session.handle(Input::Send(large), at(0));
    let mut now = 0;
    let outcome = loop {
        let outgoing = talk.session.transmit().len();
        let commands = if outgoing > 1000 { 1 } else { outgoing };
        let bytes = talk.session.transmit()[..commands].to_vec();
        talk.server.take(&bytes);
        if outgoing > 1000 {
            now += 100;
        }
        talk.session.transmitted(commands, at(now));
        let some: Vec<u8> = talk.server.output.drain(..).collect();
        talk.session.handle(Input::Received(&some), at(now));
        talk.session.handle(Input::Tick, at(now));
        match talk.session.poll() {
            Some(Output::NeedBody { bytes, .. }) => {
                let body = Bytes::from(vec![b'x'; bytes as usize]);
                talk.session.handle(Input::Body(body), at(now));
            }
            Some(Output::Done { outcomes, .. }) => break outcomes[0].clone(),
            _ => {}
        }
        assert!(talk.session.transmit().len() <= 1 << 20, "what is framed ahead is bounded");
        assert!(now <= 3600);
    };
    assert!(matches!(outcome, Outcome::Deferred(report) if report.stage == Stage::Data));
}

#[test]
fn d176_an_idle_connection_that_the_peer_closed_gives_the_message_back_unsent() {
    for (hello, rules, expected) in [
        (ALL, [("MAIL", "250 ok\r\n"), ("MAIL", "!")], "D End 250, unsent, closed"),
        (PLAIN, [("MAIL", "250 ok\r\n"), ("MAIL", "!")], "D End 250, unsent, closed"),
        // Once the peer has answered a command of this message, the message is deferred.
        (PLAIN, [("RCPT", "250 ok\r\n"), ("RCPT", "!")], "D End 250, T Rcpt own 451, closed"),
        (ALL, [("MAIL", "250 ok\r\n"), ("MAIL", "2!")], "D End 250, T Mail own 451, closed"),
        // On a new connection the message is deferred.
        (ALL, [("MAIL", "!"), ("MAIL", "")], "T Mail own 451, unsent, closed"),
    ] {
        let rules = [&rules[..], &[("EHLO", hello)]].concat();
        let story = tell(&rules, &[message(1), message(1)]);
        assert_eq!(story.summary(), expected, "{rules:?}");
    }
    let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[]);
    talk.send(message(1));
    talk.run(&[usize::MAX]);
    talk.session.handle(Input::Received(b"421 4.4.2 idle\r\n"), at(9));
    assert!(talk.session.is_closed() && !talk.session.can_send());
    assert_eq!(talk.session.poll(), Some(Output::Close));
    talk.session.handle(Input::Send(message(1)), at(9));
    assert!(matches!(talk.session.poll(), Some(Output::Unsent(_))));
}

/// No reply is awaited while the body is searched for 8-bit octets.
#[test]
fn a_goodbye_while_a_body_is_looked_at_leaves_no_message_without_an_end() {
    let eight_bit = |used| {
        let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", PIPELINING)]);
        talk.run(&[usize::MAX]);
        if used {
            talk.send(message(1));
            talk.run(&[usize::MAX]);
        }
        let mut message = OutboundMessage { content: None, ..*message(2) };
        message.from.body = BodyKind::EightBit;
        talk.session.handle(Input::Send(Box::new(message)), at(1));
        assert!(matches!(talk.session.poll(), Some(Output::NeedBody { .. })));
        talk.session.handle(Input::Received(b"421 4.3.2 shutting down\r\n"), at(1));
        while let Some(output) = talk.session.poll() {
            talk.output(output);
        }
        talk.story().summary()
    };
    assert_eq!(eight_bit(false), "T Mail 421, T Mail 421, closed");
    assert_eq!(eight_bit(true), "D End 250, unsent, closed");
}

#[test]
fn an_answer_before_the_end_of_the_body_delivers_nothing() {
    for (early, expected) in
        [("250 kept\r\n", "T Data own 451, closed"), ("550 no\r\n", "F Data 550, closed")]
    {
        let mut talk = Talk::new(Dialect::Smtp, Settings::for_tests(), &[("EHLO", ALL)]);
        talk.send(Box::new(OutboundMessage { content: None, body_bytes: 70_000, ..*message(1) }));
        while talk.session.poll().is_none() {
            let outgoing = talk.session.transmit().to_vec();
            talk.server.take(&outgoing);
            talk.session.transmitted(outgoing.len(), at(0));
            let some: Vec<u8> = talk.server.output.drain(..).collect();
            talk.session.handle(Input::Received(&some), at(0));
        }
        talk.session.handle(Input::Received(early.as_bytes()), at(0));
        talk.run(&[usize::MAX]);
        assert_eq!(talk.story().summary(), expected, "{early}");
    }
}
