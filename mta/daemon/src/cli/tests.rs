//! The commands against a queue process of the test, and the exact output.

use super::print::harmless;
use super::*;
use bytes::BytesMut;
use link::admin::{self, *};
use mail::{Enhanced, MessageId, NextHop, Reply, Report, Stage, Timestamp};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc;

const NOW: Timestamp = Timestamp::from_micros(1_795_222_861_000_042);
const LATER: Timestamp = Timestamp::from_micros(1_795_223_581_000_042);

fn report() -> Report {
    Report {
        stage: Stage::Rcpt,
        reply: Reply::new(450, Enhanced(4, 2, 1), "try later\nand again"),
        peer: "mx.dest.example[192.0.2.1]:25".into(),
        from_peer: true,
    }
}

pub(super) fn row() -> Row {
    Row {
        message: MessageId(33),
        sender: "ann@sender.example".into(),
        arrived: NOW,
        bytes: 4096,
        priority: 0,
        state: State::Deferred,
        recipients: 3,
        waiting: vec![RowRecipient {
            recipient: 0,
            address: "joe@dest.example".into(),
            hop: NextHop::Mx(mail::Domain::parse("dest.example").unwrap()),
            last: Some(report()),
            due: Some(LATER),
        }],
    }
}

fn explanation() -> Explanation {
    Explanation {
        message: MessageId(33),
        sender: "ann@sender.example".into(),
        arrived: NOW,
        bytes: 4096,
        priority: 0,
        held: None,
        expires: Some(Timestamp::from_micros(1_795_654_861_000_000)),
        recipients: vec![WaitingRecipient {
            recipient: 0,
            address: "joe@dest.example".into(),
            hop: NextHop::Mx(mail::Domain::parse("dest.example").unwrap()),
            gate: Gate::RetryAt(LATER),
            since: NOW,
            attempts: 1,
            last: Some(report()),
            next_try: Some(LATER),
        }],
        recipient_next: None,
    }
}

#[test]
fn explain_says_the_gate_since_when_the_whole_reply_and_the_next_try() {
    let now = Timestamp::from_micros(NOW.micros() + 60_000_000);
    let expected = "\
00000000011 from <ann@sender.example>, 4096B, arrived 2026-11-21 01:01:01Z (1m00s ago)
  given up 2026-11-26 01:01:01Z (in 4d23h)
  to <joe@dest.example> via dest.example
    waits for: the retry schedule, until 2026-11-21 01:13:01Z, since 2026-11-21 01:01:01Z (1m00s ago)
    1 attempt so far, next try 2026-11-21 01:13:01Z (in 11m00s)
    last reply, at RCPT, from mx.dest.example[192.0.2.1]:25:
      450 4.2.1 try later
      450 4.2.1 and again
";
    assert_eq!(show::explanation(&explanation(), now), expected);
    let value = json::explanation(&explanation());
    assert_eq!(value["stations"][0]["at"], value["arrived"]);
    assert_eq!(value["recipients"][0]["gate"], "retry");
    assert_eq!(value["recipients"][0]["last"]["text"], "try later\nand again");
}

#[test]
fn a_list_shows_each_message_with_its_recipients() {
    let expected = "\
00000000011   1m00s ago    4096B  deferred  from <ann@sender.example>
    to <joe@dest.example> via dest.example, next try in 11m00s: 450 4.2.1 try later and again
    and 2 more
";
    assert_eq!(show::row(&row(), Timestamp::from_micros(NOW.micros() + 60_000_000)), expected);
}

#[test]
fn the_summary_has_the_names_that_tools_rely_on() {
    let value = json::summary(&Summary { messages: 3, oldest_seconds: 7, ..Summary::default() });
    for name in ["messages", "recipients", "active", "deferred", "held", "oldest_seconds"] {
        assert!(value[name].is_u64(), "{name}");
    }
    let (read_micros, sort_micros, begin_micros) = (1_500_000, 500_000, 250_000);
    let ran = json::ran("fair", &Ran { messages: 1, read_micros, sort_micros, begin_micros });
    assert_eq!((&ran["sum_seconds"], &ran["begin_seconds"]), (&2.0.into(), &0.25.into()));
}

#[test]
fn spans_and_sizes_are_short_and_exact_where_they_are_small() {
    let spans = [0, 59, 60, 3_599, 3_600, 86_399, 86_400, 432_000].map(show::span);
    assert_eq!(spans, ["0s", "59s", "1m00s", "59m59s", "1h00m", "23h59m", "1d00h", "5d00h"]);
    let sizes = [0, 10_239, 10_240, 52_428_800, 99 << 30].map(show::size);
    assert_eq!(sizes, ["0B", "10239B", "10K", "50M", "99G"]);
}

#[test]
fn nothing_of_a_stranger_moves_the_cursor() {
    assert_eq!(harmless("a\x1b[2J\r\n\u{202e}é\u{9b}31m"), "a?[2J???é?31m");
}

/// Starts a queue process that answers each request with `answer`. Returns the requests that it gets.
fn queue_process(
    state: &Path,
    mut answer: impl FnMut(&Request) -> Answer + Send + 'static,
) -> mpsc::Receiver<Request> {
    let listener = UnixListener::bind(state.join(ADMIN_SOCKET)).unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut input, mut chunk) = (BytesMut::new(), [0u8; 7]);
        loop {
            while let Some(request) = admin::decode_request(&mut input).unwrap() {
                stream.write_all(&admin::encode(&answer(&request)).unwrap()).unwrap();
                let _ = tell.send(request);
            }
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(read) => input.extend_from_slice(&chunk[..read]),
            }
        }
    });
    told
}

#[test]
fn a_question_gets_its_answer_over_the_socket_also_below_a_very_deep_directory() {
    let root = tempfile::tempdir().unwrap();
    let deep = root.path().join("d".repeat(100)).join("e".repeat(100));
    std::fs::create_dir_all(&deep).unwrap();
    // bind(2) has the same limit, and the queue process of the test avoids it in the same way.
    let directory = std::fs::File::open(&deep).unwrap();
    let short = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory));
    let told = queue_process(Path::new(&short), |_| Answer::Explanation(Box::new(explanation())));
    let request = Request::Explain { message: MessageId(33), recipient_first: 0 };
    let answer = Asker::connect(&deep).unwrap().ask(&request).unwrap();
    assert_eq!(answer, Answer::Explanation(Box::new(explanation())));
    assert_eq!(told.recv().unwrap(), request);
}

#[test]
fn a_queue_process_that_hangs_up_is_an_error_not_a_wait() {
    let root = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(root.path().join(ADMIN_SOCKET)).unwrap();
    std::thread::spawn(move || drop(listener.accept()));
    let error = Asker::connect(root.path()).unwrap().ask(&Request::Status).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        ),
        "{error}"
    );
}

#[test]
fn the_old_names_are_known_by_the_last_part_of_the_path() {
    let name = |arg: &str| called_as::other_name(&[arg.into()]);
    assert_eq!(name("/usr/sbin/sendmail"), Some(called_as::OtherName::Sendmail));
    assert_eq!(name("mailq"), Some(called_as::OtherName::Mailq));
    assert_eq!(name("/x/newaliases"), Some(called_as::OtherName::Newaliases));
    assert_eq!(name("target/debug/posthaste"), None);
    assert_eq!(called_as::other_name(&[]), None);
}
