//! Both ends of the link between receive and queue: answers, and what a new stream brings.

mod bounds;
mod credit;

use super::*;
use crate::LinkError;
use bytes::{Bytes, BytesMut};
use mail::{
    Address, Durable, Instant, MailFrom, Notify, Origin, Protocol, Recipient, ReversePath,
    Timestamp, TransactionId,
};
use std::collections::VecDeque;

const NOW: Instant = Instant::ZERO;

fn envelope() -> Envelope {
    let origin = Origin { client: None, helo: "h".into(), protocol: Protocol::Esmtp };
    Envelope {
        from: MailFrom::new(ReversePath::Null),
        origin,
        arrived: Timestamp::default(),
        recipients: vec![recipient()],
    }
}

fn recipient() -> Recipient {
    let address = Address::parse("x@y.test", false).unwrap();
    Recipient { address, notify: Notify::DEFAULT, orcpt: None }
}

fn carry(from: &mut VecDeque<Bytes>) -> BytesMut {
    from.drain(..).flatten().collect()
}

fn meet(receiver: &mut ReceiverEnd) -> QueueEnd {
    let mut queue = QueueEnd::new(1, 10_000);
    receiver.connected(NOW);
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    receiver.handle(&mut carry(queue.transmit())).unwrap();
    queue
}

fn handed_over(queue: &mut QueueEnd) -> TransactionId {
    loop {
        match queue.poll() {
            Some(QueueEvent::Accept { transaction, .. }) => return transaction,
            Some(_) => {}
            None => panic!("nothing was handed over"),
        }
    }
}

#[test]
fn a_promise_needs_an_answer_that_fits_an_outstanding_transaction() {
    let mut receiver = ReceiverEnd::new(1, 9);
    let mut queue = meet(&mut receiver);
    receiver.stage(1, b"half");
    receiver.accept(1, envelope(), b"rest");
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    let transaction = handed_over(&mut queue);
    queue.committed(Durable::attested(MessageId(5), transaction));
    let mut answer = carry(queue.transmit());
    receiver.handle(&mut answer.clone()).unwrap();
    let Some(ReceiverEvent::Promised { number: 1, durable }) = receiver.poll() else { panic!() };
    assert_eq!(durable.message(), MessageId(5));
    assert_eq!(receiver.handle(&mut answer), Err(LinkError::WrongAnswer), "said twice");
    for (number, checksum) in [(2, 0), (1, 1)] {
        receiver.accept(number, envelope(), b"x");
        let wrong = ToReceiver::Committed { number: 1, message: MessageId(6), checksum };
        let mut wrong = BytesMut::from(&frame::encode_short(&wrong)[..]);
        assert_eq!(receiver.handle(&mut wrong), Err(LinkError::WrongAnswer));
    }
}

#[test]
fn a_small_message_is_handed_over_again_to_a_new_queue_process_that_does_not_know_it() {
    let mut receiver = ReceiverEnd::new(1, 9);
    let mut queue = meet(&mut receiver);
    receiver.accept(1, envelope(), b"small");
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    receiver.disconnected(NOW);
    let mut queue = meet(&mut receiver);
    let transaction = TransactionId { incarnation: 9, number: 1 };
    assert_eq!(queue.poll(), Some(QueueEvent::Question { transaction }));
    queue.unknown(transaction);
    receiver.handle(&mut carry(queue.transmit())).unwrap();
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    assert_eq!(handed_over(&mut queue), transaction);
}

#[test]
fn a_message_that_a_former_life_made_durable_is_promised_and_a_half_staged_one_refused() {
    let mut receiver = ReceiverEnd::new(1, 9);
    meet(&mut receiver);
    receiver.accept(1, envelope(), b"small");
    receiver.stage(2, b"half");
    receiver.disconnected(NOW);
    let mut queue = meet(&mut receiver);
    queue.known(TransactionId { incarnation: 9, number: 1 }, MessageId(5));
    receiver.handle(&mut carry(queue.transmit())).unwrap();
    assert!(matches!(receiver.poll(), Some(ReceiverEvent::Promised { number: 1, .. })));
    receiver.stage(2, b"more");
    receiver.accept(2, envelope(), b"end");
    let refused = ReceiverEvent::Refused { number: 2, refusal: Refusal::Broken };
    assert_eq!(receiver.poll(), Some(refused));
}

#[test]
fn what_becomes_of_a_former_life_s_message_is_not_said_to_the_one_with_its_number() {
    let mut queue = meet(&mut ReceiverEnd::new(1, 8));
    let former = TransactionId { incarnation: 8, number: 1 };
    let mut receiver = ReceiverEnd::new(1, 9);
    queue = QueueEnd::new(queue.build, queue.credit_bytes);
    receiver.connected(NOW);
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    receiver.handle(&mut carry(queue.transmit())).unwrap();
    receiver.accept(1, envelope(), b"another");
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    handed_over(&mut queue);
    queue.committed(Durable::attested(MessageId(5), former));
    queue.refused(former, Refusal::Full);
    queue.taken(former, 5);
    assert!(queue.transmit().is_empty());
    queue.committed(Durable::attested(MessageId(6), TransactionId { incarnation: 9, number: 1 }));
    receiver.handle(&mut carry(queue.transmit())).unwrap();
    let told = std::iter::from_fn(|| receiver.poll());
    let promised: Vec<_> =
        told.filter(|event| matches!(event, ReceiverEvent::Promised { .. })).collect();
    assert_eq!(promised.len(), 1);
}

#[test]
fn a_message_that_is_with_the_spool_is_answered_over_the_next_stream() {
    let mut receiver = ReceiverEnd::new(1, 9);
    let mut queue = meet(&mut receiver);
    receiver.accept(1, envelope(), b"small");
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    let transaction = handed_over(&mut queue);
    receiver.disconnected(NOW);
    let mut queue = meet(&mut receiver);
    assert_eq!(queue.poll(), Some(QueueEvent::Question { transaction }));
    queue.asked(transaction);
    queue.committed(Durable::attested(MessageId(5), transaction));
    receiver.handle(&mut carry(queue.transmit())).unwrap();
    let promised = |event| matches!(event, ReceiverEvent::Promised { number: 1, .. });
    assert!(std::iter::from_fn(|| receiver.poll()).any(promised));
}

#[test]
fn while_there_is_no_queue_process_no_messages_for_it_gather() {
    let mut receiver = ReceiverEnd::new(1, 9);
    let mut queue = meet(&mut receiver);
    (1..100).for_each(|number| receiver.stage(number, b"half"));
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    let transaction = |number| TransactionId { incarnation: 9, number };
    (50..100).for_each(|number| queue.refused(transaction(number), Refusal::Full));
    receiver.handle(&mut carry(queue.transmit())).unwrap();
    receiver.disconnected(NOW);
    (1..100).for_each(|number| receiver.unstage(number));
    assert!(receiver.transmit().is_empty() && receiver.outstanding() == 0);
}

#[test]
fn without_a_queue_process_for_ten_seconds_a_transaction_is_abandoned_without_a_reply() {
    let mut receiver = ReceiverEnd::new(1, 9);
    meet(&mut receiver);
    receiver.accept(1, envelope(), b"small");
    assert!(receiver.is_welcomed());
    receiver.disconnected(NOW);
    assert!(!receiver.is_welcomed());
    assert_eq!(receiver.next_wakeup(), Some(NOW + ANSWER_WAIT));
    receiver.handle_timeout(NOW + ANSWER_WAIT / 2);
    assert_eq!(receiver.poll(), None);
    receiver.handle_timeout(NOW + ANSWER_WAIT);
    assert_eq!(receiver.poll(), Some(ReceiverEvent::Abandoned { number: 1 }));
}

#[test]
fn r211_how_the_memory_of_sessions_is_is_told_once_to_each_queue_process() {
    let mut receiver = ReceiverEnd::new(1, 9);
    let shortage = MemoryShortage { seconds: 7, refused: 12 };
    let memory = SessionMemory { refused: 30, shortage: Some(shortage) };
    assert!(!receiver.tell_memory(memory), "nobody hears it");
    for _ in 0..2 {
        let mut queue = meet(&mut receiver);
        assert_eq!(queue.memory(), SessionMemory::default());
        assert!(receiver.tell_memory(memory) && !receiver.tell_memory(memory));
        assert!(!receiver.tell_memory(SessionMemory { refused: 31, ..memory }));
        assert_eq!(receiver.transmit().len(), 1, "no more of them wait than one");
        queue.handle(&mut carry(receiver.transmit())).unwrap();
        assert_eq!(queue.memory(), memory);
        assert!(!receiver.tell_memory(memory), "it is known");
        assert!(receiver.tell_memory(SessionMemory { refused: 31, shortage: None }));
        queue.handle(&mut carry(receiver.transmit())).unwrap();
        assert_eq!(queue.memory(), SessionMemory { refused: 31, shortage: None });
        assert!(receiver.tell_memory(memory), "the next one does not know it");
    }
}

#[test]
fn r206_a_message_that_was_handed_over_too_often_is_refused_and_poisons_no_more_streams() {
    let mut receiver = ReceiverEnd::new(1, 9);
    meet(&mut receiver);
    receiver.accept(1, envelope(), b"poison");
    for hand_over in 1..=HAND_OVERS_MAX {
        assert_eq!(receiver.poll(), None, "{hand_over}");
        receiver.disconnected(NOW);
        let mut queue = meet(&mut receiver);
        let transaction = TransactionId { incarnation: 9, number: 1 };
        assert_eq!(queue.poll(), Some(QueueEvent::Question { transaction }));
        queue.unknown(transaction);
        receiver.handle(&mut carry(queue.transmit())).unwrap();
    }
    let refused = ReceiverEvent::Refused { number: 1, refusal: Refusal::Broken };
    assert_eq!(receiver.poll(), Some(refused));
    assert!(receiver.transmit().is_empty() && receiver.outstanding() == 0);
}
