//! Credit: who may hand over, and what comes back.

use super::*;

/// When the refusal is sent, either everything was on its way, or only the first piece.
#[test]
fn s118_nothing_of_a_body_that_was_refused_in_its_middle_is_accepted_and_the_client_hears_it() {
    for on_its_way in [true, false] {
        let mut receiver = ReceiverEnd::new(1, 9);
        let mut queue = meet(&mut receiver);
        receiver.poll();
        receiver.stage(1, b"first");
        if on_its_way {
            receiver.stage(1, b"second");
            receiver.accept(1, envelope(), b"rest");
        }
        queue.handle(&mut carry(receiver.transmit())).unwrap();
        assert!(matches!(queue.poll(), Some(QueueEvent::Stage { .. })));
        queue.refused(TransactionId { incarnation: 9, number: 1 }, Refusal::Full);
        queue.credit();
        if !on_its_way {
            receiver.stage(1, b"second");
            queue.handle(&mut carry(receiver.transmit())).unwrap();
            receiver.handle(&mut carry(queue.transmit())).unwrap();
            assert_eq!(receiver.poll(), Some(ReceiverEvent::Credit), "sessions go on");
            receiver.stage(1, b"third");
            receiver.accept(1, envelope(), b"rest");
            queue.handle(&mut carry(receiver.transmit())).unwrap();
        }
        assert_eq!(queue.poll(), None, "nothing is left to be accepted");
        receiver.handle(&mut carry(queue.transmit())).unwrap();
        let refused = ReceiverEvent::Refused { number: 1, refusal: Refusal::Full };
        assert_eq!(receiver.poll(), Some(refused));
        assert_eq!((receiver.credit, queue.outstanding_bytes), (10_000, 0));
        assert!(queue.dropped.is_empty() && receiver.outstanding() == 0);
    }
}

#[test]
fn credit_is_spent_by_staging_and_comes_back_with_the_answer() {
    let mut receiver = ReceiverEnd::new(1, 9);
    assert!(!receiver.may_stage(1), "no queue process, no credit");
    let mut queue = meet(&mut receiver);
    assert_eq!(receiver.poll(), Some(ReceiverEvent::Credit));
    receiver.stage(1, &[0; 10_000]);
    assert!(!receiver.may_stage(2));
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    queue.taken(TransactionId { incarnation: 9, number: 1 }, 4_000);
    receiver.handle(&mut carry(queue.transmit())).unwrap();
    assert!(receiver.may_stage(2));
    receiver.unstage(1);
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    receiver.handle(&mut carry(queue.transmit())).unwrap();
    assert_eq!(receiver.credit, 10_000);
    assert_eq!(queue.outstanding_bytes, 0);
}

#[test]
fn r211_sessions_wait_while_the_driver_has_no_memory_for_more_on_its_way() {
    let mut receiver = ReceiverEnd::new(1, 9);
    let mut queue = meet(&mut receiver);
    receiver.bound_held(1_000);
    assert!(receiver.may_stage(1));
    receiver.stage(1, &[b'x'; 999]);
    assert!(receiver.may_stage(2));
    receiver.stage(2, &[b'x'; 500]);
    assert!(!receiver.may_stage(1) && !receiver.may_stage(3));
    queue.handle(&mut carry(receiver.transmit())).unwrap();
    queue.taken(TransactionId { incarnation: 9, number: 1 }, 999);
    receiver.handle(&mut carry(queue.transmit())).unwrap();
    assert_eq!(receiver.poll(), Some(ReceiverEvent::Credit));
    assert!(receiver.may_stage(3));
}

/// A session of the test, with the number of pieces that it stages.
struct Busy {
    number: u64,
    pieces: usize,
}

/// Sessions of each process end their bodies at the same time while the disk stands still, and hand over what they can.
/// Returns the number of hand-overs. Panics if queue's end refuses anything.
fn crowd(receivers: u64, sessions: u64, credit_bytes: u64) -> usize {
    let mut ends: Vec<_> = (0..receivers)
        .map(|incarnation| {
            let mut receiver = ReceiverEnd::new(1, incarnation);
            let mut queue = QueueEnd::new(1, credit_bytes / receivers);
            receiver.connected(NOW);
            queue.handle(&mut carry(receiver.transmit())).unwrap();
            receiver.handle(&mut carry(queue.transmit())).unwrap();
            let busy = (0..sessions).map(|number| Busy { number, pieces: number as usize % 3 });
            (receiver, queue, busy.collect::<Vec<_>>())
        })
        .collect();
    let piece = vec![0; 64 << 10];
    let mut handed_over = 0;
    for (receiver, queue, busy) in &mut ends {
        // Each session has said `354` while there was credit.
        assert!(busy.iter().all(|session| receiver.may_stage(session.number)));
        for session in busy {
            for _ in 0..session.pieces {
                if receiver.may_stage(session.number) {
                    receiver.stage(session.number, &piece);
                }
            }
            if receiver.may_stage(session.number) {
                receiver.accept(session.number, envelope(), &piece);
                handed_over += 1;
            }
        }
        queue.handle(&mut carry(receiver.transmit())).expect("back-pressure, no closed stream");
        // Over a new stream, everything is handed over again.
        receiver.disconnected(NOW);
        let mut queue = QueueEnd::new(1, credit_bytes / receivers);
        receiver.connected(NOW);
        queue.handle(&mut carry(receiver.transmit())).unwrap();
        while let Some(QueueEvent::Question { transaction }) = queue.poll() {
            queue.unknown(transaction);
        }
        receiver.handle(&mut carry(queue.transmit())).unwrap();
        queue
            .handle(&mut carry(receiver.transmit()))
            .expect("no closed stream after a second hand-over");
    }
    handed_over
}

#[test]
fn r224_four_and_sixteen_receiving_processes_over_a_stalled_disk_never_exceed_their_credit() {
    for receivers in [1, 4, 16] {
        for credit_bytes in [32 << 20, 1 << 20, 1] {
            let credit_bytes: u64 = credit_bytes;
            let handed_over = crowd(receivers, 2_000, credit_bytes.max(receivers));
            let most = credit_bytes / (64 << 10) + 2 * receivers;
            assert!(handed_over as u64 <= most, "{handed_over} of {receivers} {credit_bytes}");
            assert!(handed_over > 0);
        }
    }
}
