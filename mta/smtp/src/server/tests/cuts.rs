//! All ways of cutting the same bytes into segments give the same replies, events and bodies, for command lines, DATA
//! and BDAT, and also if the client makes errors.
//!
//! Must never cut after a command whose reply the client must wait for: there the cut makes a difference.

use super::*;
use crate::framing::BareLf;
use proptest::prelude::*;

/// Splits the stream after each line whose reply the client must wait for (RFC 2920 3.1). The line may begin anywhere,
/// because a BDAT chunk may end anywhere.
fn groups(stream: &[u8]) -> Vec<&[u8]> {
    let word = |four: &[u8]| {
        [b"EHLO", b"HELO", b"LHLO", b"DATA"].iter().any(|name| four.eq_ignore_ascii_case(*name))
    };
    let (mut groups, mut start, mut at) = (Vec::new(), 0, 0);
    for line in stream.split_inclusive(|byte| *byte == b'\n') {
        at += line.len();
        if line.windows(4).any(word) || at == stream.len() {
            groups.push(&stream[start..at]);
            start = at;
        }
    }
    groups
}

fn cut(settings: &Settings, stream: &[u8], cuts: &[usize]) -> Outcome {
    let mut sizes = cuts.iter().copied().cycle();
    talk(settings, &groups(stream), |left| sizes.next().unwrap_or(left))
}

fn part() -> impl Strategy<Value = Vec<u8>> {
    let lines: Vec<&[u8]> = vec![
        b"MAIL FROM:<a@b.test>\r\n",
        b"MAIL FROM:<> SIZE=5000 BODY=8BITMIME\r\n",
        b"RCPT TO:<x@y.test>\r\n",
        b"RCPT TO:<refused@y.test>\r\n",
        b"RCPT TO:<later@y.test>\n",
        b"MAIL FROM:<a@b.test>\r\nRCPT TO:<x@y.test>\r\nDATA\r\n",
        b"MAIL FROM:<a@b.test>\r\nRCPT TO:<x@y.test>\r\nBDAT 9\r\n",
        b"DATA\r\n",
        b"BDAT 4\r\n",
        b"BDAT 0 LAST\r\n",
        b"BDAT 7 LAST\r\n",
        b"RSET\r\n",
        b"NOOP\r\n",
        b"EHLO c.test\r\n",
        b"QUIT\r\n",
        b"nonsense\r\n",
    ];
    let body: Vec<&[u8]> = vec![
        b"\r\n.\r\n",
        b".\r\n",
        b"\r\n..x\r\n",
        b"Received: x\r\n",
        b"Subject: x\r\n\r\n",
        b"\n.\n",
        b"\r.\r",
        b"\r",
        b"\n",
        b"\0",
        b".",
        b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n",
    ];
    let any = prop::collection::vec(any::<u8>(), 0..5);
    prop_oneof![
        6 => prop::sample::select(lines).prop_map(<[u8]>::to_vec),
        5 => prop::sample::select(body).prop_map(<[u8]>::to_vec),
        1 => any,
    ]
}

fn small(lmtp: bool, bare_lf: BareLf, chunk: usize) -> Settings {
    Settings {
        lmtp,
        bare_lf,
        body_chunk_bytes: chunk,
        message_bytes_max: 150,
        header_bytes_max: 100,
        line_bytes_max: Some(90),
        hops_max: 3,
        recipients_max: 3,
        command_bytes_max: 64,
        output_bytes_max: 300,
        ..settings()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn any_way_of_cutting_the_same_bytes_gives_the_same_events(
        parts in prop::collection::vec(part(), 0..24),
        cuts in prop::collection::vec(1usize..40, 1..6),
        lmtp in any::<bool>(),
        normalize in any::<bool>(),
        chunk in prop::sample::select(vec![1usize, 5, 64]),
    ) {
        let bare_lf = if normalize { BareLf::Normalize } else { BareLf::Refuse };
        let settings = small(lmtp, bare_lf, chunk);
        let hello = if lmtp { &b"LHLO c.test\r\n"[..] } else { EHLO };
        let stream = [hello, &parts.concat()].concat();
        let whole = cut(&settings, &stream, &[]);
        prop_assert_eq!(&cut(&settings, &stream, &[1]), &whole, "byte by byte");
        prop_assert_eq!(&cut(&settings, &stream, &cuts), &whole);
    }
}
