//! The text as a mailbox keeps it.
//!
//! Must never use the code under test to say what is right.

use crate::input::{Input, pieces};
use daemon::mailbox::text::{QuoteFrom, ToLf, from_line};
use mail::{Address, ReversePath, Timestamp};

/// CRLF to LF, `From ` lines quoted, cut anywhere; and the line before each message.
pub fn mailbox_text(data: &[u8]) {
    let mut input = Input(data);
    let wall = Timestamp::from_micros(input.u64() as i64);
    let cuts = input.short();
    let text = input.rest();
    let (lf, quotes) = (to_lf(text, &[]), quoted(text, &[]));
    for cuts in [&[1][..], cuts] {
        assert_eq!(to_lf(text, cuts), lf);
        assert_eq!(quoted(text, cuts), quotes);
    }
    assert_eq!(lf, without_cr_before_lf(text));
    no_line_begins_a_message(text, &quotes);
    sender_line(text, wall);
}

fn to_lf(text: &[u8], cuts: &[u8]) -> Vec<u8> {
    let (mut machine, mut out) = (ToLf::default(), Vec::new());
    pieces(text, cuts).for_each(|piece| machine.push(piece, &mut out));
    machine.finish(&mut out);
    out
}

fn quoted(text: &[u8], cuts: &[u8]) -> Vec<u8> {
    let (mut machine, mut out) = (QuoteFrom::default(), Vec::new());
    pieces(text, cuts).for_each(|piece| machine.push(piece, &mut out));
    machine.finish(&mut out);
    out
}

fn without_cr_before_lf(text: &[u8]) -> Vec<u8> {
    let kept = |at: &usize| !text[*at..].starts_with(b"\r\n");
    (0..text.len()).filter(kept).map(|at| text[at]).collect()
}

/// Taking one `>` from each line that is a quoted From line gives the text back, with a line end.
fn no_line_begins_a_message(text: &[u8], quotes: &[u8]) {
    assert!(quotes.is_empty() || quotes.ends_with(b"\n"));
    let mut back = Vec::new();
    for line in quotes.split_inclusive(|byte| *byte == b'\n') {
        assert!(!line.starts_with(b"From "));
        let depth = line.iter().take_while(|byte| **byte == b'>').count();
        let taken = depth > 0 && line[depth..].starts_with(b"From ");
        back.extend_from_slice(&line[usize::from(taken)..]);
    }
    let mut wanted = text.to_vec();
    if !text.is_empty() && !text.ends_with(b"\n") {
        wanted.push(b'\n');
    }
    assert_eq!(back, wanted);
}

/// One line, whatever the sender is called.
fn sender_line(text: &[u8], wall: Timestamp) {
    let address = std::str::from_utf8(text).ok().and_then(|text| Address::parse(text, true).ok());
    let sender = address.map_or(ReversePath::Null, ReversePath::Address);
    let line = from_line(&sender, wall);
    let inner = line.strip_prefix("From ").and_then(|rest| rest.strip_suffix('\n'));
    let inner = inner.expect("it is a From line");
    assert!(
        !inner.contains(['\n', '\r'])
            && inner.split(' ').next().is_some_and(|word| !word.is_empty())
    );
}
