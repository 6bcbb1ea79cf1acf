//! Both ends against each other.

use super::*;
use crate::bounds::{ATTEMPT_RECIPIENTS_MAX, PEER_BYTES_MAX, REPLY_TEXT_BYTES_MAX};
use crate::{LinkError, frame};
use bytes::{Bytes, BytesMut};
use mail::{Address, Enhanced, Notify, Reply, Report, Stage};
use std::collections::VecDeque;

fn attempt(id: u64, message: u64, body_bytes: u64) -> Attempt {
    let mut attempt = Attempt::sample(id, &["a@example.org"]);
    (attempt.seal, attempt.message, attempt.body.bytes) = (id * 10, MessageId(message), body_bytes);
    attempt
}

fn result(id: u64, message: u64) -> Result {
    let report = Report {
        stage: Stage::End,
        reply: Reply::new(250, Enhanced(2, 0, 0), "ok"),
        peer: "".into(),
        from_peer: true,
    };
    let outcomes = vec![(0, Outcome::Delivered { report, relayed: false })];
    Result { attempt: id, message: MessageId(message), outcomes }
}

fn carry(from: &mut VecDeque<Bytes>) -> BytesMut {
    from.drain(..).flatten().collect()
}

/// What a new stream's greeting tells: attempts and their seals.
fn told(queue: &mut QueueEnd) -> Vec<(u64, u64)> {
    assert!(matches!(queue.poll(), Some(QueueEvent::Hello { .. })));
    let mut told = Vec::new();
    loop {
        match queue.poll() {
            Some(QueueEvent::UnderWay(one)) => told.push((one.attempt, one.seal)),
            Some(QueueEvent::AllTold) => return told,
            other => panic!("{other:?}"),
        }
    }
}

fn pair() -> (SenderEnd, QueueEnd) {
    let (mut sender, mut queue) = (SenderEnd::new(1, 7, 10), QueueEnd::new(1));
    sender.connected();
    queue.handle(&mut carry(sender.transmit())).unwrap();
    assert_eq!(queue.poll(), Some(QueueEvent::Hello { incarnation: 7, capacity: 10 }));
    assert_eq!(queue.poll(), Some(QueueEvent::AllTold));
    sender.handle(&mut carry(queue.transmit())).unwrap();
    (sender, queue)
}

#[test]
fn a_small_body_crosses_once_for_two_attempts_and_again_after_both_are_recorded() {
    let (mut sender, mut queue) = pair();
    queue.attempt(attempt(1, 5, 3), Some(b"abc")).unwrap();
    assert!(queue.holds(MessageId(5)));
    // A body that the other end holds is not sent again.
    queue.attempt(attempt(2, 5, 3), Some(b"xyz")).unwrap();
    sender.handle(&mut carry(queue.transmit())).unwrap();
    for _ in 0..2 {
        let Some(SenderEvent::Attempt { body, .. }) = sender.poll() else { panic!() };
        assert_eq!(body.unwrap(), "abc");
    }
    assert_eq!((sender.under_way(), sender.has_results()), (2, false));
    sender.result(result(1, 5));
    sender.result(result(2, 5));
    assert_eq!((sender.under_way(), sender.has_results()), (0, true));
    queue.recorded(vec![1]);
    assert!(queue.holds(MessageId(5)));
    queue.recorded(vec![2]);
    assert!(!queue.holds(MessageId(5)));
    sender.handle(&mut carry(queue.transmit())).unwrap();
    assert!(!sender.has_results());
    assert!(sender.bodies.is_empty() && sender.open.is_empty());
}

#[test]
fn an_attempt_whose_body_is_not_there_or_may_not_be_is_garbage() {
    let small = |id, inline| (attempt(id, 5, 3), inline);
    let large = |id, inline| (attempt(id, 5, INLINE_BYTES_MAX + 1), inline);
    for attempts in
        [vec![small(1, false)], vec![large(1, true)], vec![small(1, true), large(2, false)]]
    {
        let (mut sender, last) = (pair().0, attempts.len() - 1);
        for (at, (attempt, inline)) in attempts.into_iter().enumerate() {
            let expected = if at == last { Err(LinkError::Garbage) } else { Ok(()) };
            let header = ToSender::Attempt { attempt: Box::new(attempt), inline };
            let mut frame = BytesMut::from(&frame::encode(&header, b"abc").unwrap()[..]);
            assert_eq!(sender.handle(&mut frame), expected);
        }
    }
}

#[test]
fn a_result_is_said_again_to_a_new_queue_process_until_it_is_recorded() {
    let (mut sender, mut queue) = pair();
    queue.attempt(attempt(1, 5, 3), Some(b"abc")).unwrap();
    queue.attempt(attempt(2, 6, 3), Some(b"abc")).unwrap();
    sender.handle(&mut carry(queue.transmit())).unwrap();
    sender.result(result(1, 5));
    sender.transmit().clear(); // the queue process ended before it read the frames
    let mut queue = QueueEnd::new(1);
    sender.connected();
    queue.handle(&mut carry(sender.transmit())).unwrap();
    assert_eq!(told(&mut queue), [(2, 20), (1, 10)]);
    assert_eq!(queue.poll(), Some(QueueEvent::Result(result(1, 5))));
    assert_eq!(queue.poll(), None);
    queue.recorded(vec![1]);
    sender.handle(&mut carry(queue.transmit())).unwrap();
    sender.connected();
    assert_eq!(sender.transmit().len(), 3, "a greeting with what is under way is left to say");
}

#[test]
fn what_is_under_way_is_told_with_its_seal_and_the_latest_first() {
    let (mut sender, mut queue) = pair();
    for id in [9, 3, 7] {
        queue.attempt(attempt(id, id, 3), Some(b"abc")).unwrap();
    }
    sender.handle(&mut carry(queue.transmit())).unwrap();
    sender.result(result(3, 3));
    sender.result(result(9, 9));
    let mut queue = QueueEnd::new(1);
    sender.connected();
    queue.handle(&mut carry(sender.transmit())).unwrap();
    assert_eq!(told(&mut queue), [(7, 70), (3, 30), (9, 90)]);
    assert_eq!(queue.poll(), Some(QueueEvent::Result(result(9, 9))));
    assert_eq!(queue.poll(), Some(QueueEvent::Result(result(3, 3))));
}

#[test]
fn a_process_that_drains_says_so_once_over_each_stream_behind_what_is_under_way() {
    let (mut sender, mut queue) = pair();
    queue.attempt(attempt(1, 5, 3), Some(b"abc")).unwrap();
    sender.handle(&mut carry(queue.transmit())).unwrap();
    sender.drain();
    sender.drain();
    queue.handle(&mut carry(sender.transmit())).unwrap();
    assert_eq!((queue.poll(), queue.poll()), (Some(QueueEvent::Drains), None));
    sender.result(result(1, 5));
    let mut queue = QueueEnd::new(1);
    sender.connected();
    queue.handle(&mut carry(sender.transmit())).unwrap();
    assert_eq!(told(&mut queue), [(1, 10)]);
    let rest: Vec<_> = std::iter::from_fn(|| queue.poll()).collect();
    assert_eq!(rest, [QueueEvent::Drains, QueueEvent::Result(result(1, 5))]);
}

#[test]
fn a_peer_of_another_build_or_one_that_does_not_greet_is_ended() {
    let (mut sender, mut queue) = (SenderEnd::new(1, 7, 10), QueueEnd::new(2));
    sender.connected();
    assert_eq!(queue.handle(&mut carry(sender.transmit())), Err(LinkError::WrongBuild));
    let fetch = ToQueue::Fetch { attempt: 1, message: MessageId(1), offset: 0, bytes: 1 };
    let mut early = BytesMut::from(&frame::encode_short(&fetch)[..]);
    assert_eq!(QueueEnd::new(1).handle(&mut early), Err(LinkError::NotAccepted));
}

#[test]
fn an_attempt_has_one_fetch_at_a_time() {
    let mut queue = QueueEnd::new(1);
    let mut sender = SenderEnd::new(1, 2, 3);
    sender.connected();
    sender.fetch(7, MessageId(5), 0, 10);
    queue.handle(&mut carry(sender.transmit())).unwrap();
    queue.chunk(7, 0, b"chunk");
    sender.fetch(7, MessageId(5), 10, u32::MAX);
    queue.handle(&mut carry(sender.transmit())).unwrap();
    let Some(QueueEvent::Fetch { bytes, .. }) = std::iter::from_fn(|| queue.poll()).last() else {
        panic!()
    };
    assert_eq!(bytes, 256 << 10, "it gets one chunk, though it asks for more");
    sender.fetch(7, MessageId(5), 20, 10);
    assert_eq!(queue.handle(&mut carry(sender.transmit())), Err(LinkError::NotAccepted));
}

fn long_recipient(nth: usize) -> Recipient {
    let domain = format!("{}.{}.{}.test", "a".repeat(60), "b".repeat(60), "c".repeat(60));
    let address = Address::parse(&format!("{nth:064}@{domain}"), false).unwrap();
    let orcpt = Some(format!("rfc822;{}", "o".repeat(400)).into());
    Recipient { address, notify: Notify::of(true, true, true), orcpt }
}

#[test]
fn r205_an_attempt_at_its_bounds_fits_into_a_frame_and_so_does_its_result() {
    let bytes = crate::bounds::recipient_bytes(&long_recipient(0));
    let count = crate::bounds::RECIPIENTS_BYTES_MAX / bytes;
    let recipients = (0..count).map(|nth| (u32::MAX - nth as u32, long_recipient(nth)));
    let mut largest = attempt(1, 5, INLINE_BYTES_MAX);
    largest.recipients = recipients.collect();
    let (mut sender, mut queue) = pair();
    queue.attempt(largest, Some(&vec![0; INLINE_BYTES_MAX as usize])).unwrap();
    sender.handle(&mut carry(queue.transmit())).unwrap();
    let Some(SenderEvent::Attempt { attempt, .. }) = sender.poll() else { panic!() };
    assert_eq!(attempt.recipients.len(), count);
    sender.connected();
    queue.handle(&mut carry(sender.transmit())).unwrap_err(); // a second greeting
    let mut queue = QueueEnd::new(1);
    sender.connected();
    queue.handle(&mut carry(sender.transmit())).unwrap();
    assert_eq!(told(&mut queue), [(1, 10)]);
}

#[test]
fn r205_a_peer_that_replies_at_length_for_each_of_many_recipients_ends_no_stream() {
    for (count, text) in [(6_000, 8 << 10), (ATTEMPT_RECIPIENTS_MAX, 600), (100, 8 << 10)] {
        let (mut sender, mut queue) = pair();
        let mut many = attempt(1, 5, 3);
        let recipient = many.recipients[0].1.clone();
        many.recipients = (0..count as u32).map(|index| (index, recipient.clone())).collect();
        queue.attempt(many, Some(b"abc")).unwrap();
        sender.handle(&mut carry(queue.transmit())).unwrap();
        let text: Box<str> = format!("x{}", "é".repeat(text / 2 - 1)).into();
        let report = Report {
            stage: Stage::Rcpt,
            reply: Reply::new(550, Enhanced(5, 1, 1), text.clone()),
            peer: "p".repeat(320).into(),
            from_peer: true,
        };
        let outcomes = (0..count as u32).map(|at| (at, Outcome::Failed(report.clone())));
        let result = Result { attempt: 1, message: MessageId(5), outcomes: outcomes.collect() };
        sender.result(result);
        queue.handle(&mut carry(sender.transmit())).unwrap();
        let Some(QueueEvent::Result(result)) = queue.poll() else { panic!() };
        assert_eq!(result.outcomes.len(), count);
        let kept = result.outcomes.iter().map(|(_, outcome)| outcome.report());
        let whole = kept.filter(|kept| **kept == report).count();
        assert_eq!(whole, if count == 100 { 100 } else { 0 }, "of {count}");
        let (_, last) = result.outcomes.last().unwrap();
        let last = last.report();
        assert!(last.peer.len() > 100 && last.reply.text.len() > 100, "of {count}: {last:?}");
        assert!(text.starts_with(&*last.reply.text) && last.reply.code == 550);
    }
}

#[test]
fn what_a_sending_process_tells_of_its_attempts_is_bounded() {
    let mut queue = QueueEnd::new(1);
    let told = ToQueue::UnderWay(UnderWay {
        attempt: 1,
        seal: 1,
        message: MessageId(1),
        recipients: vec![0; ATTEMPT_RECIPIENTS_MAX + 1],
    });
    let hello = frame::encode_short(&ToQueue::Hello { build: 1, incarnation: 1, capacity: 1 });
    let mut input = BytesMut::from(&hello[..]);
    input.extend_from_slice(&frame::encode_short(&told));
    assert_eq!(queue.handle(&mut input), Err(LinkError::NotAccepted));
}

#[test]
fn r219_a_reply_longer_than_any_client_keeps_is_cut_and_refused_of_a_process_that_does_not() {
    let with = |peer: usize, text: usize| {
        let mut long = result(1, 5);
        for (_, outcome) in &mut long.outcomes {
            let Outcome::Delivered { report, .. } = outcome else { panic!() };
            (report.peer, report.reply.text) = ("p".repeat(peer).into(), "t".repeat(text).into());
        }
        long
    };
    let (peer, text) = (PEER_BYTES_MAX, REPLY_TEXT_BYTES_MAX);
    let (mut sender, mut queue) = pair();
    queue.attempt(attempt(1, 5, 3), Some(b"abc")).unwrap();
    sender.handle(&mut carry(queue.transmit())).unwrap();
    sender.result(with(peer + 1, text + 1));
    queue.handle(&mut carry(sender.transmit())).unwrap();
    assert_eq!(queue.poll(), Some(QueueEvent::Result(with(peer, text))));
    for (long, taken) in [
        (with(peer, text), Ok(())),
        (with(peer + 1, text), Err(LinkError::NotAccepted)),
        (with(peer, text + 1), Err(LinkError::NotAccepted)),
    ] {
        let frame = frame::encode(&ToQueue::Result(long), &[]).unwrap();
        assert_eq!(queue.handle(&mut BytesMut::from(&frame[..])), taken);
    }
}
