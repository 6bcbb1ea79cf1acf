//! The decoders of `link`, and the two ends of each conversation by themselves.
//!
//! Must never let a few bytes take much memory, nor an answer become a promise that was not asked for.

use super::frames::{FromReceiver, frame as forge, greeting};
use crate::input::{Input, pieces};
use crate::memory;
use bytes::{Bytes, BytesMut};
use link::control::{FromMaster, Role, ToMaster};
use link::receive::{ReceiverEnd, ReceiverEvent};
use link::send::SenderEnd;
use link::{LinkError, frame, receive, send};
use mail::{
    Address, Domain, Envelope, Instant, MessageId, Outcome, Recipient, Report, TransactionId,
};
use serde::{Serialize, de::DeserializeOwned};
use settings::{HostEnvironment, ProcessConfig};
use std::collections::{BTreeSet, VecDeque};

/// What a decoder may hold: the longest frame, and for each byte that came something.
fn bound(bytes: usize) -> usize {
    frame::FRAME_BYTES_MAX + 256 * bytes + (64 << 10)
}

/// Bytes of another process by themselves: frames, control messages, sealed settings, and every
/// type that crosses.
pub fn frame(data: &[u8]) {
    let mut input = Input(data);
    let cuts = input.short();
    let stream = input.rest();
    let whole = memory::within(bound(stream.len()), || frames(stream, &[]));
    assert_eq!(frames(stream, cuts), whole);
    back::<FromMaster>(stream);
    back::<ToMaster>(stream);
    back::<Envelope>(stream);
    back::<Recipient>(stream);
    back::<Outcome>(stream);
    back::<Report>(stream);
    back::<Address>(stream);
    back::<Domain>(stream);
    back::<send::Attempt>(stream);
    back::<send::Result>(stream);
    back::<ProcessConfig>(stream);
    back::<HostEnvironment>(stream);
    if let Ok(role) = String::from_utf8_lossy(stream).parse::<Role>() {
        assert_eq!(role.name().as_bytes(), stream);
    }
}

fn frames(stream: &[u8], cuts: &[u8]) -> (Vec<(u32, Bytes)>, Option<LinkError>) {
    let (mut input, mut seen) = (BytesMut::new(), Vec::new());
    for piece in pieces(stream, cuts) {
        input.extend_from_slice(piece);
        loop {
            match frame::decode::<u32>(&mut input) {
                Ok(Some(found)) => seen.push(found),
                Ok(None) => break,
                Err(error) => return (seen, Some(error)),
            }
        }
    }
    (seen, None)
}

/// What decodes is encoded and decoded again as the same bytes.
fn back<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let decoded = memory::within(bound(bytes.len()), || postcard::from_bytes::<T>(bytes));
    let Ok(value) = decoded else { return };
    let once = postcard::to_stdvec(&value).expect("memory takes any number of bytes");
    let again: T = postcard::from_bytes(&once).expect("what we wrote decodes");
    assert_eq!(postcard::to_stdvec(&again), Ok(once));
}

fn stream(frames: &mut VecDeque<Bytes>) -> BytesMut {
    frames.drain(..).flatten().collect()
}

/// Queue's end with a hostile receiver, then the receiver's end with a hostile queue.
pub fn receive(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let bytes = input.rest();
    let mut end = receive::QueueEnd::new(1, 1_000);
    if flags & 1 != 0 {
        let hello = forge(&FromReceiver::Hello { build: 1, incarnation: 9 }, b"");
        end.handle(&mut BytesMut::from(&hello[..])).expect("it is one");
    }
    memory::within(bound(bytes.len()), || {
        let ended = end.handle(&mut BytesMut::from(bytes));
        while let Some(event) = end.poll() {
            answered(&mut end, event);
        }
        end.credit();
        assert!(ended.is_err() || end.transmit().len() <= 4 * bytes.len() + 2);
    });
    receiver(bytes);
}

fn answered(end: &mut receive::QueueEnd, event: receive::QueueEvent) {
    use receive::QueueEvent::{Accept, Question, Stage, Unstage};
    match event {
        Stage { transaction, bytes } => end.taken(transaction, bytes.len() as u64),
        Accept { transaction, .. } => end.refused(transaction, mail::Refusal::Full),
        Unstage { .. } => {}
        Question { transaction } => end.unknown(transaction),
    }
}

/// Promises only what was handed over, each once.
fn receiver(bytes: &[u8]) {
    let mut end = ReceiverEnd::new(1, 9);
    end.connected(Instant::ZERO);
    end.stage(1, b"half");
    end.accept(2, crate::disk::files::envelope(), b"whole");
    end.stage(3, b"first");
    end.accept(3, crate::disk::files::envelope(), b"last");
    memory::within(bound(bytes.len()), || {
        let _ = end.handle(&mut BytesMut::from(bytes));
    });
    let mut left = BTreeSet::from([2, 3]);
    while let Some(event) = end.poll() {
        if let ReceiverEvent::Promised { number, durable } = event {
            assert!(left.remove(&number), "{number} was not outstanding");
            assert_eq!(durable.transaction(), TransactionId { incarnation: 9, number });
        }
    }
    end.disconnected(Instant::ZERO);
    end.handle_timeout(Instant::ZERO + receive::ANSWER_WAIT);
    stream(end.transmit());
}

/// Queue's end with a hostile sender, then the sender's end with a hostile queue.
pub fn send(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let bytes = input.rest();
    let mut end = send::QueueEnd::new(1);
    if flags & 1 != 0 {
        end.handle(&mut BytesMut::from(&greeting(1, 2, 3, vec![])[..])).expect("it is one");
    }
    memory::within(bound(bytes.len()), || {
        let _ = end.handle(&mut BytesMut::from(bytes));
        while let Some(event) = end.poll() {
            if let send::QueueEvent::Fetch { bytes, attempt, offset, .. } = event {
                assert!(bytes <= send::CHUNK_BYTES_MAX);
                end.chunk(attempt, offset, b"chunk");
            }
        }
    });
    let mut end = SenderEnd::new(1, 2, 3);
    end.connected();
    memory::within(bound(bytes.len()), || {
        let _ = end.handle(&mut BytesMut::from(bytes));
        while let Some(event) = end.poll() {
            let send::SenderEvent::Attempt { attempt, body } = event else { continue };
            assert_eq!(body.is_some(), attempt.body.bytes <= send::INLINE_BYTES_MAX);
            let outcomes = Vec::new();
            end.result(send::Result { attempt: attempt.id, message: attempt.message, outcomes });
        }
        end.fetch(1, MessageId(1), 0, u32::MAX);
        end.connected();
        assert_eq!(end.under_way(), 0);
    });
}

/// Questions and answers of the command line.
pub fn admin(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let cuts = input.short();
    let rest = input.rest();
    let bytes = match flags & 1 {
        0 => rest.to_vec(),
        _ => frame::encode(&link::admin::ADMIN_VERSION, rest).expect("it is short").to_vec(),
    };
    let requests = |cuts: &[u8]| decoded(&bytes, cuts, link::admin::decode_request);
    let answers = |cuts: &[u8]| decoded(&bytes, cuts, link::admin::decode_answer);
    let whole = memory::within(bound(bytes.len()), || requests(&[]));
    assert_eq!(requests(cuts), whole);
    let again: Vec<u8> =
        whole.0.iter().flat_map(|item| link::admin::encode(item).expect("short")).collect();
    assert_eq!(decoded(&again, cuts, link::admin::decode_request).0, whole.0);
    let whole = memory::within(bound(bytes.len()), || answers(&[]));
    assert_eq!(answers(cuts).0.len(), whole.0.len());
}

type Decode<T> = fn(&mut BytesMut) -> Result<Option<T>, LinkError>;

fn decoded<T>(stream: &[u8], cuts: &[u8], decode: Decode<T>) -> (Vec<T>, Option<LinkError>) {
    let (mut input, mut seen) = (BytesMut::new(), Vec::new());
    for piece in pieces(stream, cuts) {
        input.extend_from_slice(piece);
        loop {
            match decode(&mut input) {
                Ok(Some(found)) => seen.push(found),
                Ok(None) => break,
                Err(error) => return (seen, Some(error)),
            }
        }
    }
    (seen, None)
}
