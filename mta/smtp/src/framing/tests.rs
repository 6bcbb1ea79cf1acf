//! Framing in pieces of every size.
//!
//! Must never use `Stuffer` to build the expected bytes.

use super::*;
use proptest::prelude::*;

/// An encoder that works line by line and shares no code with `Stuffer`.
fn stuffed(body: &[u8]) -> Vec<u8> {
    let text = body.split_inclusive(|byte| *byte == b'\n');
    let mut out = Vec::new();
    for line in text {
        out.extend(line.starts_with(b".").then_some(b'.'));
        out.extend(line);
    }
    out.extend(b".\r\n");
    out
}

/// Removes the framing in pieces of these sizes. Returns the body, the bytes used, the flaw, and whether the end
/// was found.
fn unstuffed(wire: &[u8], cuts: &[usize]) -> (Vec<u8>, usize, Option<Flaw>, bool) {
    unstuffed_by(Unstuffer::dotted(BareLf::Refuse), wire, cuts)
}

fn unstuffed_by(
    mut unstuffer: Unstuffer,
    wire: &[u8],
    cuts: &[usize],
) -> (Vec<u8>, usize, Option<Flaw>, bool) {
    let (mut out, mut used) = (Vec::new(), 0);
    let mut sizes = cuts.iter().copied().chain(std::iter::repeat(wire.len().max(1)));
    while used < wire.len() {
        let size = sizes.next().unwrap_or(1).clamp(1, wire.len() - used);
        let taken = unstuffer.take(&wire[used..used + size], &mut out);
        used += taken.used;
        if taken.ended {
            return (out, used, unstuffer.flaw(), true);
        }
    }
    (out, used, unstuffer.flaw(), false)
}

proptest! {
    #[test]
    fn any_clean_body_comes_back_byte_exact_however_it_is_cut(
        lines in prop::collection::vec("[.a\u{e9} ]{0,4}", 0..20),
        cuts in prop::collection::vec(1usize..9, 0..60),
    ) {
        let body = lines.iter().map(|line| format!("{line}\r\n")).collect::<String>().into_bytes();
        let mut wire = stuffed(&body);
        let end = wire.len();
        wire.extend(b"QUIT\r\n");
        prop_assert_eq!(unstuffed(&wire, &cuts), (body.clone(), end, None, true));
        let (mut stuffer, mut out, mut from) = (Stuffer::default(), Vec::new(), 0);
        for cut in cuts {
            let to = (from + cut).min(body.len());
            stuffer.stuff(&body[from..to], &mut out);
            from = to;
        }
        stuffer.stuff(&body[from..], &mut out);
        stuffer.finish(&mut out);
        prop_assert_eq!(&out[..], &wire[..end]);
    }

    #[test]
    fn cutting_never_changes_what_is_found(
        wire in prop::collection::vec(prop::sample::select(&b"\r\n.a\0"[..]), 0..40),
        cuts in prop::collection::vec(1usize..5, 0..40),
    ) {
        let whole = unstuffed(&wire, &[]);
        let pieces = unstuffed(&wire, &cuts);
        prop_assert_eq!((whole.1, whole.2, whole.3), (pieces.1, pieces.2, pieces.3));
        if whole.2.is_none() {
            prop_assert_eq!(whole.0, pieces.0);
        }
        let end = wire.windows(5).position(|five| five == b"\r\n.\r\n").map(|at| at + 5);
        let end = if wire.starts_with(b".\r\n") { Some(3) } else { end };
        prop_assert_eq!(whole.3.then_some(whole.1), end);
    }
}

#[test]
fn r232_a_bare_lf_ends_a_line_and_never_a_message() {
    // What is sent, what comes behind the end if it is one, and the body.
    type Case = (&'static [u8], Option<&'static [u8]>, &'static [u8]);
    let table: &[Case] = &[
        (b"a\nb\n", None, b"a\r\nb\r\n"),
        (b"a\n.\n", None, b"a\r\n.\r\n"),
        (b"a\n.\r\n", None, b"a\r\n.\r\n"),
        (b"a\r\n.\n", None, b"a\r\n.\r\n"),
        (b".\n", None, b".\r\n"),
        (b"\n.\r\n.\r\n", Some(b"QUIT"), b"\r\n.\r\n"),
        (b"a\n..\n.b\n..c\n\r\n.\r\n", Some(b"\n.\n"), b"a\r\n.\r\nb\r\n.c\r\n\r\n"),
        (b"a\n.\n.\n.\r\n\n.\r\n.\r\n", Some(b""), b"a\r\n.\r\n.\r\n.\r\n\r\n.\r\n"),
    ];
    for (wire, behind, body) in table {
        let whole = [wire, behind.unwrap_or_default()].concat();
        for cuts in [&[][..], &[1; 60], &[2; 60], &[3, 1, 4, 1, 5]] {
            let unstuffer = Unstuffer::dotted(BareLf::Normalize);
            let found = unstuffed_by(unstuffer, &whole, cuts);
            let expected = (body.to_vec(), wire.len(), None, behind.is_some());
            assert_eq!(found, expected, "{wire:?} by {cuts:?}");
        }
    }
    for (wire, flaw) in [
        (&b"a\n\rb"[..], Flaw::BareCr),
        (b"a\n.\rb\n", Flaw::BareCr),
        (b"a\r\r\n", Flaw::BareCr),
        (b"\n\0", Flaw::Nul),
    ] {
        let unstuffer = Unstuffer::dotted(BareLf::Normalize);
        assert_eq!(unstuffed_by(unstuffer, wire, &[1; 9]).2, Some(flaw), "{wire:?}");
    }
}

#[test]
fn r232_what_is_added_stays_within_the_room_and_each_call_moves_on() {
    let wire = b"\n.\n..\n.\r\nab\n\n\n\r\n.c\n\n\n\n".repeat(20);
    let (whole, ..) = unstuffed_by(Unstuffer::dotted(BareLf::Normalize), &wire, &[]);
    for room in GROWTH_BYTES_MAX..40 {
        let mut unstuffer = Unstuffer::dotted(BareLf::Normalize);
        let (mut out, mut used) = (Vec::new(), 0);
        while used < wire.len() {
            let before = out.len();
            let taken = unstuffer.take_within(&wire[used..], room, &mut out);
            assert!(taken.used > 0 && out.len() - before <= room, "{room}");
            used += taken.used;
        }
        assert_eq!(out, whole, "{room}");
    }
}

#[test]
fn a_body_without_final_crlf_gets_one() {
    for (body, wire) in
        [("", ".\r\n"), ("a", "a\r\n.\r\n"), (".", "..\r\n.\r\n"), ("\r\n", "\r\n.\r\n")]
    {
        let (mut stuffer, mut out) = (Stuffer::default(), Vec::new());
        stuffer.stuff(body.as_bytes(), &mut out);
        stuffer.finish(&mut out);
        assert_eq!(out, wire.as_bytes());
    }
}
