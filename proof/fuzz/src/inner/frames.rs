//! The frames of `link` as a process could write them that does not use `link`.
//!
//! Must never differ from what the real ends write: a test compares them.

use bytes::Bytes;
use link::frame;
use link::send::{Result, UnderWay};
use mail::{Envelope, MessageId};
use serde::Serialize;

/// From a receiving process to queue.
#[derive(Serialize)]
#[allow(missing_docs)] // as in `link::receive`
pub enum FromReceiver {
    Hello { build: u64, incarnation: u64 },
    Stage { number: u64 },
    Accept { number: u64, checksum: u32, envelope: Box<Envelope> },
    Unstage { number: u64 },
    Question { numbers: Vec<u64> },
}

/// From a sending process to queue.
#[derive(Serialize)]
#[allow(missing_docs)] // as in `link::send`
pub enum FromSender {
    Hello { build: u64, incarnation: u64, capacity: u32 },
    UnderWay(UnderWay),
    AllTold,
    Result(Result),
    Fetch { attempt: u64, message: MessageId, offset: u64, bytes: u32 },
}

/// One frame.
pub fn frame<T: Serialize>(message: &T, tail: &[u8]) -> Bytes {
    frame::encode(message, tail).expect("what is forged is short")
}

/// The greeting of a sending process.
pub fn greeting(build: u64, incarnation: u64, capacity: u32, under_way: Vec<UnderWay>) -> Bytes {
    let hello = frame(&FromSender::Hello { build, incarnation, capacity }, b"");
    let told = under_way.into_iter().map(|one| frame(&FromSender::UnderWay(one), b""));
    let told: Vec<u8> = told.flatten().collect();
    [&hello[..], &told, &frame(&FromSender::AllTold, b"")].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::receive::ReceiverEnd;
    use link::send::SenderEnd;
    use mail::Instant;

    #[test]
    fn what_is_forged_here_is_what_the_real_ends_write() {
        let mut real = ReceiverEnd::new(1, 9);
        real.connected(Instant::ZERO);
        real.stage(3, b"body");
        real.accept(3, crate::disk::files::envelope(), b"end");
        real.stage(4, b"x");
        real.unstage(4);
        let envelope = Box::new(crate::disk::files::envelope());
        let checksum = crc32c::crc32c(b"bodyend");
        let forged = [
            frame(&FromReceiver::Hello { build: 1, incarnation: 9 }, b""),
            frame(&FromReceiver::Stage { number: 3 }, b"body"),
            frame(&FromReceiver::Accept { number: 3, checksum, envelope }, b"end"),
            frame(&FromReceiver::Stage { number: 4 }, b"x"),
            frame(&FromReceiver::Unstage { number: 4 }, b""),
        ];
        assert!(real.transmit().iter().eq(&forged));
        real.connected(Instant::ZERO);
        assert_eq!(real.transmit()[1], frame(&FromReceiver::Question { numbers: vec![3] }, b""));
        let mut real = SenderEnd::new(1, 2, 3);
        real.connected();
        real.fetch(5, MessageId(6), 7, 8);
        let forged = [
            frame(&FromSender::Hello { build: 1, incarnation: 2, capacity: 3 }, b""),
            frame(&FromSender::AllTold, b""),
            frame(
                &FromSender::Fetch { attempt: 5, message: MessageId(6), offset: 7, bytes: 8 },
                b"",
            ),
        ];
        assert!(real.transmit().iter().eq(&forged));
    }
}
