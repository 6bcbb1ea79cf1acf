//! Bounds: what queue's end refuses of an end that was taken over, and what fits into a frame.

use super::*;
use crate::recipients::Recipients;

/// Queue's end, greeted, and what it says to these messages.
fn said(messages: &[(ToQueue, &[u8])]) -> Result<(), LinkError> {
    let mut queue = QueueEnd::new(1, 10_000);
    let hello = ToQueue::Hello { build: 1, incarnation: 9 };
    let mut input = BytesMut::from(&frame::encode_short(&hello)[..]);
    for (message, tail) in messages {
        input.extend_from_slice(&frame::encode(message, tail).unwrap());
    }
    queue.handle(&mut input)
}

fn accept(envelope: Envelope, body: &[u8]) -> ToQueue {
    let checksum = crc32c::crc32c(body);
    ToQueue::Accept { number: 1, checksum, envelope: Box::new(envelope) }
}

#[test]
fn after_the_end_of_a_body_nothing_comes_of_its_transaction() {
    let first = || (accept(envelope(), b"x"), &b"x"[..]);
    assert_eq!(said(&[first()]), Ok(()));
    let again = (accept(envelope(), b"xx"), &b"x"[..]);
    let more = (ToQueue::Stage { number: 1 }, &b"x"[..]);
    let regret = (ToQueue::Unstage { number: 1 }, &b""[..]);
    for next in [again, more, regret] {
        assert_eq!(said(&[first(), next]), Err(LinkError::NotAccepted));
    }
}

#[test]
fn an_envelope_that_no_session_would_have_made_is_not_taken() {
    let wrong: [fn(&mut Envelope); 4] = [
        |envelope| envelope.recipients.clear(),
        |envelope| envelope.from.envid = Some("x\r\nRSET".into()),
        |envelope| envelope.origin.helo = "a b".into(),
        |envelope| envelope.recipients[0].orcpt = Some("rfc822;x y".into()),
    ];
    for change in wrong {
        let mut envelope = envelope();
        change(&mut envelope);
        assert_eq!(said(&[(accept(envelope, b""), b"")]), Err(LinkError::NotAccepted));
    }
}

#[test]
fn what_costs_no_credit_is_bounded_too() {
    let empty = (ToQueue::Stage { number: 1 }, &b""[..]);
    assert_eq!(said(&[empty]), Err(LinkError::NotAccepted));
    let question = ToQueue::Question { numbers: vec![1; TRANSACTIONS_MAX + 1] };
    assert_eq!(said(&[(question, b"")]), Err(LinkError::NotAccepted));
}

fn long_envelope(bytes: usize) -> Envelope {
    let domain = format!("{}.{}.{}.test", "a".repeat(60), "b".repeat(60), "c".repeat(60));
    let mut envelope = envelope();
    envelope.recipients.clear();
    let mut left = bytes;
    loop {
        let address = Address::parse(&format!("{:064}@{domain}", envelope.recipients.len()), false);
        let orcpt = Some(format!("rfc822;{}", "o".repeat(493)).into());
        let notify = Notify::of(true, true, true);
        let recipient = Recipient { address: address.unwrap(), notify, orcpt };
        match left.checked_sub(recipient_bytes(&recipient)) {
            Some(less) => left = less,
            None => return envelope,
        }
        envelope.recipients.push(recipient);
    }
}

#[test]
fn r211_recipients_encoded_before_make_the_frame_of_the_whole_envelope() {
    for count in [1, 2, 127, 128, 300] {
        let mut whole = envelope();
        let first = whole.recipients[0].clone();
        whole.recipients = vec![first; count];
        let header = |envelope: Envelope| ToQueue::Accept {
            number: 3,
            checksum: 5,
            envelope: Box::new(envelope),
        };
        let recipients: Recipients = whole.recipients.iter().collect();
        let bytes = recipients.frame_bytes();
        let empty = header(Envelope { recipients: Vec::new(), ..whole.clone() });
        let made = frame::encode_with_list(&empty, count, recipients.blocks(), bytes, b"the end");
        assert_eq!(made, frame::encode(&header(whole), b"the end"), "{count}");
    }
}

#[test]
fn r205_an_envelope_at_its_bound_is_taken_and_one_above_it_is_refused_to_its_client_alone() {
    let mut receiver = ReceiverEnd::new(1, 9);
    let mut queue = meet(&mut receiver);
    let piece = vec![0; PIECE_BYTES_MAX];
    receiver.accept(1, long_envelope(RECIPIENTS_BYTES_MAX), &piece);
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    let transaction = handed_over(&mut queue);
    queue.committed(Durable::attested(MessageId(5), transaction));
    queue.credit();
    receiver.handle(&mut carry(queue.transmit())).unwrap();
    assert!(matches!(receiver.poll(), Some(ReceiverEvent::Promised { number: 1, .. })));
    assert_eq!((receiver.credit, queue.outstanding_bytes), (10_000, 0));
    let too_long = RECIPIENTS_BYTES_MAX + PIECE_BYTES_MAX + 2_000;
    receiver.accept(2, long_envelope(too_long), b"x");
    let refused = ReceiverEvent::Refused { number: 2, refusal: Refusal::TooLarge };
    assert_eq!(receiver.poll(), Some(refused));
    receiver.accept(3, envelope(), b"of another client");
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    assert_eq!(handed_over(&mut queue).number, 3);
    assert_eq!(said(&[(accept(long_envelope(too_long), b""), b"")]), Err(LinkError::NotAccepted));
}
