//! What becomes of a message that was handed over.
//!
//! Must never let a test end with a reply that nobody looked at.

use super::*;
use crate::Promised;
use mail::BodyKind;

fn hand_over(bench: &mut Bench, text: &str) -> Peer {
    let mut peer = bench.connect_at_body(FRIEND);
    bench.say(&mut peer, text);
    assert_eq!(peer.hear(), "");
    assert_eq!(peer.outputs.pop(), Some(SessionOutput::HandedOver));
    assert_eq!((bench.wakeup(&peer), peer.client.read_bytes_max(&bench.gateway)), (None, 0));
    peer
}

#[test]
fn a_message_that_is_kept_is_answered_with_250_and_its_id() {
    let mut bench = Bench::new();
    let mut peer = hand_over(&mut bench, "Subject: x\r\n\r\nbody\r\n.\r\n");
    bench.pass_for(&mut peer, secs(3));
    bench.keep_last();
    bench.run(&mut peer);
    assert_eq!(peer.hear_last(), "250 2.0.0 Ok: queued as 00000000007");
    let Some(SessionOutput::Promised(promised)) = peer.outputs.pop() else { panic!() };
    let sender = mail::ReversePath::Address(mail::Address::parse("a@far.test", false).unwrap());
    let (message, bytes, recipients) = (MessageId(7), 20, 1);
    assert_eq!(promised, Promised { message, sender, bytes, recipients, commit_time: secs(3) });
}

#[test]
fn an_envelope_has_what_the_client_said_and_the_body_shows() {
    let mut bench = Bench::new();
    let mut peer = bench.connect_at_body(FRIEND);
    peer.client.handle(
        SessionInput::Received(b"Subject: x\r\n\r\n\xc3\xa4\r\n.\r\n"),
        &mut bench.gateway,
        bench.now,
    );
    bench.run(&mut peer);
    let (_, envelope) = &bench.accepted[0];
    assert_eq!(envelope.from.body, BodyKind::UndeclaredEightBit);
    assert_eq!(envelope.origin.client, Some(FRIEND.parse().unwrap()));
    assert_eq!(&*envelope.origin.helo, "client.test");
    assert_eq!(envelope.recipients[0].address.to_string(), "ann@local.test");
}

#[test]
fn a_refusal_has_its_reply_and_the_session_goes_on() {
    let cases = [(Refusal::Full, 452), (Refusal::Broken, 451), (Refusal::TooLarge, 552)];
    for (refusal, code) in cases {
        let mut bench = Bench::new();
        let mut peer = hand_over(&mut bench, "x\r\n.\r\n");
        bench.refuse_last(refusal);
        bench.run(&mut peer);
        assert_eq!(peer.hear(), code.to_string());
        let Some(SessionOutput::Refused { reply, .. }) = peer.outputs.pop() else { panic!() };
        assert_eq!(reply, refusal.reply());
        bench.say(&mut peer, "NOOP\r\n");
        assert_eq!(peer.hear(), "250");
    }
}

#[test]
fn an_answer_that_does_not_come_closes_without_a_reply_and_is_not_said_later() {
    let mut bench = Bench::new();
    let mut peer = hand_over(&mut bench, "x\r\n.\r\n");
    bench.pass_for(&mut peer, COMMIT_TIMEOUT - secs(1));
    assert!(peer.outputs.is_empty());
    bench.pass(secs(1));
    // The answer comes after the message was given up, and before its client knows.
    bench.keep_last();
    bench.run(&mut peer);
    let [SessionOutput::Abandoned { .. }, SessionOutput::CloseWrite] = &peer.outputs[..] else {
        panic!("{:?}", peer.outputs)
    };
    bench.pass_for(&mut peer, secs(1));
    assert_eq!((peer.hear().as_str(), peer.closed), ("", true));
}

#[test]
fn a_queue_process_that_is_gone_too_long_closes_without_a_reply() {
    let mut bench = Bench::new();
    let mut peer = hand_over(&mut bench, "x\r\n.\r\n");
    bench.lose_queue();
    bench.pass_for(&mut peer, link::receive::ANSWER_WAIT);
    assert!(matches!(peer.outputs[0], SessionOutput::Abandoned { .. }));
    assert_eq!(peer.hear(), "");
}

#[test]
fn while_the_oldest_answer_takes_half_the_timeout_new_mail_is_deferred() {
    let mut bench = Bench::new();
    let mut ready = bench.connect(FRIEND);
    bench.say(&mut ready, PATHS);
    let mut waiting = hand_over(&mut bench, "x\r\n.\r\n");
    bench.pass(COMMIT_TIMEOUT / 2);
    bench.say(&mut ready, "DATA\r\n");
    assert_eq!(ready.hear(), "250 250 451");
    bench.say(&mut ready, "MAIL FROM:<a@far.test>\r\n");
    assert_eq!(ready.hear_last(), "451 4.3.0 Queue trouble, try again later");
    bench.keep_last();
    bench.run(&mut waiting);
    assert_eq!(waiting.hear(), "250");
    bench.say(&mut ready, PATHS);
    assert_eq!(ready.hear(), "250 250");
}

#[test]
fn an_answer_for_a_client_that_is_gone_reaches_nobody() {
    let mut bench = Bench::new();
    let mut gone = hand_over(&mut bench, "x\r\n.\r\n");
    bench.hear(&mut gone, SessionInput::Lost);
    assert!(gone.closed);
    let id = gone.client.id();
    bench.release(gone);
    let mut next = bench.connect(FRIEND);
    assert_eq!(next.client.id(), id);
    bench.keep_last();
    bench.run(&mut next);
    assert_eq!(next.hear(), "");
    assert!(bench.unstaged.is_empty(), "the message may still be kept");
}

#[test]
fn a_message_that_its_recipient_has_had_is_refused_and_not_handed_over() {
    let mut bench = Bench::new();
    let mut peer = bench.connect_at_body(STRANGER);
    bench.say(&mut peer, "Delivered-To: ann@local.test\r\n\r\nx\r\n.\r\n");
    assert!(peer.hear_last().starts_with("554 5.4.6"));
    assert!(matches!(peer.outputs[..], [SessionOutput::LoopRefused { .. }]));
    assert!(bench.accepted.is_empty());
}

#[test]
fn a_mailbox_that_is_named_twice_is_one_recipient() {
    let mut bench = Bench::new();
    let mut peer = bench.connect(STRANGER);
    bench.say(&mut peer, PATHS);
    bench.say(&mut peer, "RCPT TO:<Ann@LOCAL.test>\r\nDATA\r\n");
    bench.say(&mut peer, "x\r\n.\r\n");
    assert_eq!(peer.hear(), "250 250 250 354");
    assert_eq!(bench.accepted[0].1.recipients.len(), 1);
}
