//! Receive and commit: what clients choose.
//!
//! Must never count a message that did not get its `250`.

use crate::house::House;
use crate::letter;
use crate::meter::{Count, Meter, Part};
use crate::receive::Receive;

/// As much as a read brings.
const PIECE: usize = 4_096;
const BODY: &[u8] = b"Subject: x\r\n\r\nbody\r\n";

pub fn recipients(n: usize) -> Count {
    carry(Part::Receive, &[to_many(n)])
}

pub fn commit_recipients(n: usize) -> Count {
    carry(Part::Commit, &[to_many(n)])
}

pub fn fields(n: usize) -> Count {
    let field = |at: usize| format!("X-Field-{at}: value number {at}\r\n");
    let header: String = (0..n).map(field).collect();
    let body = format!("{header}\r\nbody\r\n.\r\n");
    carry(Part::Receive, &[[in_pieces(&mail(1)), data(body.as_bytes())].concat()])
}

pub fn chunks(n: usize) -> Count {
    let chunk = |at: usize| format!("BDAT 10\r\n{at:08}\r\n");
    let chunks: String = (0..n).map(chunk).collect();
    let text = format!("{}BDAT 2\r\n\r\n{chunks}BDAT 0 LAST\r\n", mail(1));
    carry(Part::Receive, &[in_pieces(&text)])
}

pub fn connections(n: usize) -> Count {
    carry(Part::Receive, &vec![to_many(1); n])
}

pub fn commit_messages(n: usize) -> Count {
    carry(Part::Commit, &vec![to_many(1); n])
}

fn mail(recipients: usize) -> String {
    let to = |at| format!("RCPT TO:<{}>\r\n", letter::recipient(1, at));
    let all: String = (0..recipients).map(to).collect();
    format!("MAIL FROM:<{}>\r\n{all}", letter::sender(1))
}

fn to_many(recipients: usize) -> Vec<Vec<u8>> {
    [in_pieces(&mail(recipients)), data(&[BODY, b".\r\n"].concat())].concat()
}

fn in_pieces(text: &str) -> Vec<Vec<u8>> {
    text.as_bytes().chunks(PIECE).map(<[u8]>::to_vec).collect()
}

/// DATA is the last of what is sent without waiting.
fn data(body: &[u8]) -> Vec<Vec<u8>> {
    let body = body.chunks(PIECE).map(<[u8]>::to_vec);
    std::iter::once(b"DATA\r\n".to_vec()).chain(body).collect()
}

/// Connects a client for each dialogue, carries all messages to their promise, and counts one station.
fn carry(part: Part, dialogues: &[Vec<Vec<u8>>]) -> Count {
    let mut house = House::new();
    let mut receive = Receive::new(&mut house);
    let mut meter = Meter::new(part);
    meter.start();
    let (now, mut waiting) = (house.now, Vec::new());
    for said in dialogues {
        let mut guest = meter.run(Part::Receive, || {
            let mut guest = receive.greet(now);
            receive.take(&mut guest, b"EHLO out.customer.example\r\n", now);
            guest
        });
        for bytes in said {
            let mut taken = 0;
            loop {
                let rest = &bytes[taken..];
                taken += meter.run(Part::Receive, || receive.take_some(&mut guest, rest, now));
                if taken == bytes.len() {
                    break;
                }
                // The session waits for credit: the queue process takes what it was sent, and gives some.
                receive.hand_over(&mut house, &meter);
                receive.hear(&mut house, &meter);
                meter.run(Part::Receive, || receive.talk(&mut guest, now));
            }
        }
        waiting.push(guest);
    }
    receive.hand_over(&mut house, &meter);
    receive.hear(&mut house, &meter);
    for mut guest in waiting {
        meter.run(Part::Receive, || receive.talk(&mut guest, now));
        let heard = guest.heard();
        assert!(heard.contains("250 2.0.0 Ok: queued as "), "no promise: {heard}");
    }
    meter.passed(1);
    meter.count()
}
