//! The framing of bodies against models that share nothing with it.
//!
//! Must never use the code under test to say what is right.

use super::talk::{Answers, Log, script, settings, talk};
use crate::input::{Input, pieces};
use ::smtp::framing::{BareLf, Flaw, Stuffer, Unstuffer};

/// What the whole wire means by RFC 5321 4.5.2: body, bytes used, and the first flaw.
struct Model {
    body: Vec<u8>,
    used: usize,
    ended: bool,
    flaw: Option<Flaw>,
}

/// The first byte that may not stand in a body, and which rule it breaks.
fn first_flaw(text: &[u8], over: bool, bare_lf: BareLf) -> Option<Flaw> {
    let refused = bare_lf == BareLf::Refuse;
    text.iter().enumerate().find_map(|(at, byte)| match byte {
        0 => Some(Flaw::Nul),
        b'\n' if refused && (at == 0 || text[at - 1] != b'\r') => Some(Flaw::BareLf),
        b'\r' if at + 1 == text.len() => over.then_some(Flaw::BareCr),
        b'\r' if text[at + 1] != b'\n' => Some(Flaw::BareCr),
        _ => None,
    })
}

/// Each line with CRLF, dots taken off; a lone dot that did not end the message is one of its lines.
fn normalized(text: &[u8], dots: bool) -> Vec<u8> {
    let mut body = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let content = line.strip_suffix(b"\n").map(|rest| rest.strip_suffix(b"\r").unwrap_or(rest));
        match content {
            Some(b".") => body.push(b'.'),
            Some(content) => {
                body.extend(content.strip_prefix(b".").filter(|_| dots).unwrap_or(content))
            }
            None => body.extend(line.strip_prefix(b".").filter(|_| dots).unwrap_or(line)),
        }
        body.extend(content.map_or(&b""[..], |_| b"\r\n"));
    }
    body
}

fn model(wire: &[u8], bare_lf: BareLf) -> Model {
    let end = if wire.starts_with(b".\r\n") {
        Some(0)
    } else {
        wire.windows(5).position(|five| five == b"\r\n.\r\n").map(|at| at + 2)
    };
    let text = &wire[..end.unwrap_or(wire.len())];
    let mut body = Vec::new();
    let mut line_start = true;
    for (at, byte) in text.iter().enumerate() {
        if !(line_start && *byte == b'.') {
            body.push(*byte);
        }
        line_start = *byte == b'\n' && at > 0 && text[at - 1] == b'\r';
    }
    if bare_lf == BareLf::Normalize {
        body = normalized(text, true);
    }
    let used = end.map_or(wire.len(), |end| end + 3);
    Model { body, used, ended: end.is_some(), flaw: first_flaw(text, end.is_some(), bare_lf) }
}

/// What the code makes of it: body, bytes used, whether it ended, the unstuffer.
fn unstuffed(
    mut unstuffer: Unstuffer,
    wire: &[u8],
    cuts: &[u8],
) -> (Vec<u8>, usize, bool, Unstuffer) {
    let (mut out, mut used) = (Vec::new(), 0);
    for piece in pieces(wire, cuts) {
        let taken = unstuffer.take(piece, &mut out);
        used += taken.used;
        if taken.ended {
            return (out, used, true, unstuffer);
        }
        assert_eq!(taken.used, piece.len());
    }
    (out, used, false, unstuffer)
}

/// DATA.
pub fn data(data: &[u8]) {
    let mut input = Input(data);
    let cuts = input.short();
    let wire = input.rest();
    for bare_lf in [BareLf::Refuse, BareLf::Normalize] {
        dotted(wire, cuts, bare_lf);
        raw(wire, cuts, bare_lf);
    }
    stuffed(wire, cuts);
}

fn dotted(wire: &[u8], cuts: &[u8], bare_lf: BareLf) {
    let right = model(wire, bare_lf);
    let mut longest = Vec::new();
    for cuts in [&[][..], &[1], cuts] {
        let (body, used, ended, unstuffer) = unstuffed(Unstuffer::dotted(bare_lf), wire, cuts);
        assert_eq!((used, ended, unstuffer.flaw()), (right.used, right.ended, right.flaw));
        if right.flaw.is_none() {
            longest.push(unstuffer.line_bytes_longest());
            // A CR, or a dot and a CR, whose next byte has not come is kept back.
            assert!(right.body.starts_with(&body) && body.len() + 1 >= right.body.len());
            assert!(!ended || body == right.body);
        }
    }
    longest.dedup();
    assert!(longest.len() <= 1, "the longest line depends on the cuts: {longest:?}");
}

/// The same bytes as the body of BDAT: nothing is taken away, and the same flaws are seen.
fn raw(wire: &[u8], cuts: &[u8], bare_lf: BareLf) {
    let wanted = match bare_lf {
        BareLf::Refuse => wire.to_vec(),
        BareLf::Normalize => normalized(wire, false),
    };
    for cuts in [&[][..], &[1], cuts] {
        let (body, used, ended, mut unstuffer) = unstuffed(Unstuffer::raw(bare_lf), wire, cuts);
        unstuffer.end_raw();
        let flaw = first_flaw(wire, true, bare_lf);
        assert_eq!((used, ended, unstuffer.flaw()), (wire.len(), false, flaw));
        assert!(flaw.is_some() || body == wanted);
    }
}

/// Dots doubled and taken away again give back the body.
fn stuffed(body: &[u8], cuts: &[u8]) {
    let framed = |cuts: &[u8]| {
        let (mut stuffer, mut out) = (Stuffer::default(), Vec::new());
        pieces(body, cuts).for_each(|piece| stuffer.stuff(piece, &mut out));
        stuffer.finish(&mut out);
        out
    };
    let wire = framed(&[]);
    assert_eq!(framed(cuts), wire);
    assert_eq!(framed(&[1]), wire);
    let mut wanted = body.to_vec();
    if !wanted.is_empty() && !wanted.ends_with(b"\r\n") {
        wanted.extend(b"\r\n");
    }
    // A bare CR at its end becomes a line end with what follows: only clean bodies are ours to send.
    if first_flaw(body, true, BareLf::Refuse).is_none() {
        let unstuffer = Unstuffer::dotted(BareLf::Refuse);
        let (found, used, ended, _) = unstuffed(unstuffer, &wire, cuts);
        assert!(ended && used == wire.len() && found == wanted);
    }
}

/// BDAT: chunks with sizes of the input's, and what a session keeps of them.
pub fn bdat(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let cuts = input.short();
    let settings = settings(flags);
    let mut script = script::greeted(settings.lmtp);
    script.extend(b"MAIL FROM:<a@b.test>\r\nRCPT TO:<x@y.test>\r\n");
    let mut body = Vec::new();
    for number in 0..16 {
        let chunk = input.short();
        let last = input.is_over() || number == 15;
        body.extend(chunk);
        script
            .extend(format!("BDAT {}{}\r\n", chunk.len(), if last { " LAST" } else { "" }).bytes());
        script.extend(chunk);
        if last {
            break;
        }
    }
    script.extend(b"NOOP\r\n");
    let whole = talk(&settings, &script, &[], Answers::all_accepted());
    assert_eq!(talk(&settings, &script, cuts, Answers::all_accepted()), whole);
    assert_eq!(talk(&settings, &script, &[1], Answers::all_accepted()), whole);
    judge(&settings, &body, &whole);
}

/// Kept exactly when it is clean and within the limits; and the command after it was run.
fn judge(settings: &::smtp::server::Settings, body: &[u8], log: &Log) {
    let lines = body
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line).len() as u64);
    let long = settings.line_bytes_max.is_some_and(|max| lines.max().unwrap_or(0) > max);
    let clean = first_flaw(body, true, settings.bare_lf).is_none();
    let body = match settings.bare_lf {
        BareLf::Refuse => body.to_vec(),
        BareLf::Normalize => normalized(body, false),
    };
    let small = body.len() as u64 <= settings.message_bytes_max;
    let kept = log.kept.first().map(Vec::as_slice);
    if clean
        && small
        && !long
        && (body.len() as u64) <= settings.header_bytes_max
        && log.hops < settings.hops_max
    {
        assert_eq!(kept, Some(&body[..]), "{}", log.replies);
    }
    if !clean || !small || long {
        assert_eq!(kept, None, "{}", log.replies);
    }
    let counted = log.replies.ends_with("250 2.0.0 Ok\r\n") || log.replies.contains("\n421 4.7.0 ");
    assert!(counted, "the count was lost: {}", log.replies);
}
