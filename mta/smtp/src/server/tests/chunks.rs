//! BDAT.
//!
//! Must never send a chunk with a wrong size by accident.

use super::*;

fn chunks(groups: &[&[u8]]) -> Outcome {
    let all: Vec<&[u8]> = [EHLO, PATHS].iter().chain(groups).copied().collect();
    let outcome = check(&all);
    assert_eq!(outcome.codes()[..2], [250, 250]);
    outcome
}

#[test]
fn p037_a_bdat_without_a_right_size_ends_the_connection() {
    for bad in
        ["BDAT -1", "BDAT abc", "BDAT 18446744073709551616", "BDAT", "BDAT 1 LOST", "BDAT 1 LAST x"]
    {
        let outcome = chunks(&[format!("{bad}\r\n").as_bytes()]);
        assert_eq!(outcome.last(), "521 5.5.4 Syntax: BDAT count [LAST]", "{bad}");
        assert!(outcome.closed && outcome.kept.is_empty());
    }
}

#[test]
fn p038_bdat_0_and_bdat_0_last_are_fine() {
    assert_eq!(chunks(&[b"BDAT 0 LAST\r\n"]).kept, [b""]);
    let outcome = chunks(&[b"BDAT 0\r\nBDAT 3 last\r\na\r\nNOOP\r\n"]);
    assert_eq!(outcome.codes()[2..], [250, 250, 250]);
    assert_eq!(outcome.kept, [b"a\r\n"]);
}

#[test]
fn p039_bdat_and_data_do_not_mix() {
    let outcome = chunks(&[
        b"BDAT 3\r\na\r\nDATA\r\n",
        b"RCPT TO:<z@y.test>\r\nMAIL FROM:<>\r\nBDAT 0 LAST\r\n",
    ]);
    assert_eq!(outcome.codes()[2..], [250, 503, 503, 503, 250]);
    assert!(outcome.replies.contains("503 5.5.1 Error: DATA after BDAT"));
    let outcome = check(&[EHLO, ENVELOPE, b"a\r\n.\r\n", b"BDAT 3 LAST\r\na\r\nNOOP\r\n"]);
    assert_eq!(outcome.codes()[3..], [250, 503, 250]);
}

#[test]
fn p040_bdat_without_rcpt_is_refused_and_its_octets_are_not_run() {
    let outcome = check(&[
        EHLO,
        b"BDAT 6\r\nQUIT\r\nNOOP\r\nMAIL FROM:<>\r\nBDAT 6 LAST\r\nQUIT\r\nNOOP\r\n",
    ]);
    assert_eq!(outcome.codes(), [503, 250, 250, 554, 250]);
}

#[test]
fn p041_a_chunk_that_never_comes_whole_is_dropped() {
    let outcome = chunks(&[b"BDAT 1000 LAST\r\n0123456789"]);
    assert!(outcome.kept.is_empty() && outcome.codes().len() == 2);
    assert_eq!(outcome.events[outcome.events.len() - 2..], ["reset", "close"]);
}

#[test]
fn p042_a_million_chunks_of_one_octet_are_one_message() {
    let group = [&b"BDAT 1\r\na".repeat(1_000_000)[..], b"BDAT 2 LAST\r\n\r\n"].concat();
    let outcome = talk(&settings(), &[EHLO, PATHS, &group], |_| 60_000);
    assert_eq!(outcome.kept[0].len(), 1_000_002);
    assert_eq!(outcome.codes().len(), 1_000_003);
}

#[test]
fn p043_a_last_chunk_that_fills_what_is_handed_over_at_once_is_kept_whole() {
    let most = 64;
    let settings = Settings { body_chunk_bytes: most, ..settings() };
    for length in 2..3 * most + 3 {
        for first in [0, 1, most - 1, most] {
            let body = [&b"x".repeat(length - 2)[..], b"\r\n"].concat();
            let (one, two) = body.split_at(first.min(length));
            let group = [
                format!("BDAT {}\r\n", one.len()).as_bytes(),
                one,
                format!("BDAT {} LAST\r\n", two.len()).as_bytes(),
                two,
            ]
            .concat();
            let outcome = talk(&settings, &[EHLO, PATHS, &group], |_| 1_000);
            assert_eq!(outcome.kept, [body], "{length} octets, {first} of them first");
        }
    }
}

#[test]
fn p043_chunks_may_cut_anything() {
    let wire = b"BDAT 4\r\nX: ";
    let rest = [b"\xc3BDAT 2\r\n\xa4\r", &b"BDAT 5 LAST\r\n\n\r\n\r\n"[..]].concat();
    let group = [&wire[..], &rest].concat();
    let outcome = chunks(&[&group]);
    assert_eq!(outcome.kept, ["X: \u{e4}\r\n\r\n\r\n".as_bytes()]);
}

#[test]
fn p044_bdat_lines_must_be_lines_for_they_go_on_by_data() {
    for bad in [&b"a\n.\nb"[..], b"a\rbcd", b"abcd\r", b"ab\0cd"] {
        let group = [format!("BDAT {} LAST\r\n", bad.len()).as_bytes(), bad, b"NOOP\r\n"].concat();
        let outcome = chunks(&[&group]);
        assert_eq!(outcome.codes()[2..], [550, 250], "{bad:?}");
        assert!(outcome.kept.is_empty());
    }
    // A dot is data, and a missing last line end is not added.
    assert_eq!(chunks(&[b"BDAT 6 LAST\r\n.\r\n..a"]).kept, [b".\r\n..a"]);
    let outcome = check(&[b"EHLO c.test\r\n", b"MAIL FROM:<> BODY=BINARYMIME\r\n"]);
    assert_eq!(outcome.codes(), [555]);
}

#[test]
fn p046_pipelined_chunks_are_counted_whatever_is_refused() {
    let group = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<refused@y.test>\r\nRCPT TO:<x@y.test>\r\nBDAT 3\r\na\r\nBDAT 3 LAST\r\nb\r\nQUIT\r\n";
    let outcome = check(&[EHLO, group]);
    assert_eq!(outcome.codes(), [250, 550, 250, 250, 250, 221]);
    assert_eq!(outcome.kept, [b"a\r\nb\r\n"]);
    let group = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<refused@y.test>\r\nBDAT 6\r\nQUIT\r\nBDAT 6 LAST\r\nQUIT\r\nNOOP\r\n";
    assert_eq!(check(&[EHLO, group]).codes(), [250, 550, 554, 554, 250]);
    // The first chunk has a flaw. The second chunk has no transaction and is discarded as well.
    let outcome = chunks(&[b"BDAT 3\r\na\nbBDAT 6 LAST\r\nQUIT\r\nNOOP\r\n"]);
    assert_eq!(outcome.codes()[2..], [550, 503, 250]);
    assert_eq!(outcome.events.iter().filter(|event| *event == "reset").count(), 1);
}

#[test]
fn p012_p038_a_last_chunk_that_fills_the_buffer_to_the_octet_loses_none() {
    let small = Settings { body_chunk_bytes: 8, ..settings() };
    for bytes in [6, 7, 8, 9, 15, 16, 17, 24] {
        let body = [&vec![b'x'; bytes - 2][..], b"\r\n"].concat();
        let last = [format!("BDAT {bytes} LAST\r\n").as_bytes(), &body].concat();
        let outcome = check_with(&small, &[EHLO, PATHS, &last]);
        assert_eq!(outcome.kept.concat(), body, "{bytes} in one");
        let (front, back) = body.split_at(3);
        let line = format!("BDAT {} LAST\r\n", bytes - 3);
        let two = [b"BDAT 3\r\n", front, line.as_bytes(), back].concat();
        let outcome = check_with(&small, &[EHLO, PATHS, &two]);
        assert_eq!(outcome.kept, [body], "{bytes} in two");
    }
}
