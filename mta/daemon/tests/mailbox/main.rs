//! Mailboxes as other programs see them: exact, complete, locked, and undamaged after a full disk or a crash.
//!
//! Must never check a mailbox only with our own reader: Python reads it too.

#![allow(clippy::unwrap_used)]

mod ownership;
mod room;

use daemon::mailbox::{Base, Format, LocalMessage, Mailbox, MailboxAlarm, MailboxDelivery, Scene};
use mail::{Address, Enhanced, Outcome, ReversePath, Timestamp};
use needs::Need;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

fn scene() -> Scene {
    Scene {
        hostname: "mx.test".into(),
        now: Timestamp::from_micros(1_795_223_045_000_123),
        lock_wait_max: Duration::from_millis(200),
        groups: policy::Groups { mail: Some(MAIL), private: None },
    }
}

/// The group `mail` in these tests.
const MAIL: u32 = 61_009;

fn deliver_batch(batch: &[MailboxDelivery], scene: &Scene) -> Vec<Outcome> {
    let mut alarms: Vec<MailboxAlarm> = Vec::new();
    let outcomes = daemon::mailbox::deliver_batch(batch, scene, &mut alarms);
    assert_eq!(alarms, []);
    outcomes
}

fn message(base: &Base, text: &[u8]) -> Arc<LocalMessage> {
    let sender = ReversePath::Address(Address::parse("sender@example.org", false).unwrap());
    Arc::new(LocalMessage::read(sender, text, base.directory().as_fd()).unwrap())
}

fn delivery(base: &Arc<Base>, user: &str, format: Format, text: &[u8]) -> MailboxDelivery {
    let mailbox = Mailbox { base: base.clone(), path: user.to_owned(), format };
    let local = if user.starts_with('.') { format!("\"{user}\"") } else { user.to_owned() };
    let recipient = Address::parse(&format!("{local}@local.test"), false).unwrap();
    MailboxDelivery { message: message(base, text), recipient, mailbox }
}

fn base(path: &Path) -> Arc<Base> {
    Arc::new(Base::open(path, true).unwrap())
}

fn numbered(number: usize) -> Vec<u8> {
    format!(
        "Subject: {number}\r\nX-Number: {number}\r\n\r\nFrom here\r\n>From there\r\n.\r\nline {number}\r\n{}\r\n",
        "x".repeat(number % 900)
    )
    .into_bytes()
}

fn delivered(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Delivered { .. })
}

fn enhanced(outcome: &Outcome) -> Option<Enhanced> {
    outcome.report().reply.enhanced
}

/// Reads a mailbox with Python's `mailbox` and prints each message as a line of hex.
fn read_with_python(kind: &str, path: &Path) -> Vec<Vec<u8>> {
    let script = format!(
        "import mailbox,sys\nbox=mailbox.{kind}(sys.argv[1],create=False)\n\
         [print(box.get_bytes(key).hex()) for key in box.keys()]"
    );
    let out = Command::new("python3").args(["-c", &script]).arg(path).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let byte = |hex: &str| u8::from_str_radix(hex, 16).unwrap();
    text.lines()
        .map(|line| (0..line.len() / 2).map(|i| byte(&line[2 * i..2 * i + 2])).collect())
        .collect()
}

/// The content that the mailbox of `user` must have for `text`, quoted as in mbox if `mbox` is true.
fn stored(user: &str, text: &[u8], mbox: bool) -> Vec<u8> {
    let mut out = format!("Return-Path: <sender@example.org>\nDelivered-To: {user}@local.test\n")
        .into_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap().replace("\r\n", "\n");
    let text = if mbox {
        text.replace("\n>From ", "\n>>From ").replace("\nFrom ", "\n>From ")
    } else {
        text
    };
    out.extend_from_slice(text.as_bytes());
    out
}

fn three_thousand(format: Format, kind: &str) {
    let dir = tempfile::tempdir().unwrap();
    let base = base(dir.path());
    for batch in 0..15 {
        let batch: Vec<_> = (batch * 200..batch * 200 + 200)
            .map(|number| delivery(&base, "bob", format, &numbered(number)))
            .collect();
        let outcomes = deliver_batch(&batch, &scene());
        assert_eq!(outcomes.iter().filter(|o| delivered(o)).count(), 200);
    }
    let mut found = read_with_python(kind, &dir.path().join("bob"));
    let mbox = format == Format::Mbox;
    let mut expected: Vec<_> =
        (0..3000).map(|number| stored("bob", &numbered(number), mbox)).collect();
    if !mbox {
        found.sort();
        expected.sort();
    }
    assert_eq!(found.len(), 3000);
    assert!(found == expected);
}

#[test]
fn three_thousand_messages_to_one_maildir_arrive_exactly() {
    three_thousand(Format::Maildir, "Maildir");
}

#[test]
fn three_thousand_messages_to_one_mbox_arrive_exactly_and_in_order() {
    three_thousand(Format::Mbox, "mbox");
}

#[test]
fn one_batch_reaches_many_mailboxes_of_both_formats_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let base = base(dir.path());
    let batch: Vec<_> = (0..300)
        .map(|n| {
            let format = if n % 2 == 0 { Format::Maildir } else { Format::Mbox };
            delivery(&base, &format!("user{}", n % 30), format, &numbered(n))
        })
        .collect();
    let outcomes = deliver_batch(&batch, &scene());
    for (delivery, outcome) in batch.iter().zip(&outcomes) {
        assert!(delivered(outcome), "{outcome:?}");
        assert_eq!(*outcome.report().peer, *delivery.mailbox.display().to_string_lossy());
    }
    for user in 0..30 {
        let path = dir.path().join(format!("user{user}"));
        let kind = if user % 2 == 0 { "Maildir" } else { "mbox" };
        assert_eq!(read_with_python(kind, &path).len(), 10);
    }
}

#[test]
fn a_locked_mbox_is_deferred_within_its_bound_and_delays_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let base = base(dir.path());
    fs::write(dir.path().join("bob.lock"), "1\n").unwrap();
    let batch = [
        delivery(&base, "bob", Format::Mbox, b"x\r\n"),
        delivery(&base, "eve", Format::Mbox, b"x\r\n"),
        delivery(&base, "bob", Format::Mbox, b"y\r\n"),
    ];
    let started = std::time::Instant::now();
    let outcomes = deliver_batch(&batch, &scene());
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(delivered(&outcomes[1]));
    for i in [0, 2] {
        assert!(matches!(&outcomes[i], Outcome::Deferred(_)));
        assert_eq!(enhanced(&outcomes[i]), Some(Enhanced(4, 2, 0)));
    }
    fs::remove_file(dir.path().join("bob.lock")).unwrap();
    assert!(deliver_batch(&batch, &scene()).iter().all(delivered));
    assert_eq!(read_with_python("mbox", &dir.path().join("bob")).len(), 2);
}

#[test]
fn a_message_follows_a_file_that_does_not_end_with_an_empty_line() {
    let dir = tempfile::tempdir().unwrap();
    let base = base(dir.path());
    for (i, before) in
        ["From x Thu Jan  1 00:00:00 1970\n\nhalf", "From x Thu Jan  1 00:00:00 1970\n\nhalf\n", ""]
            .iter()
            .enumerate()
    {
        let user = format!("u{i}");
        fs::write(dir.path().join(&user), before).unwrap();
        assert!(delivered(
            &deliver_batch(
                &[delivery(&base, &user, Format::Mbox, b"S: x\r\n\r\nno end")],
                &scene()
            )[0]
        ));
        let found = read_with_python("mbox", &dir.path().join(&user));
        assert_eq!(found.last().unwrap(), &stored(&user, b"S: x\n\nno end\n", true));
        assert_eq!(found.len(), if before.is_empty() { 1 } else { 2 });
    }
}

#[test]
fn a_large_message_goes_to_all_its_mailboxes_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let base = base(dir.path());
    let text = b"Subject: large\r\n\r\n"
        .iter()
        .copied()
        .chain(b"From a line of text\r\n".repeat(200_000))
        .collect::<Vec<_>>();
    let mut batch = vec![delivery(&base, "a", Format::Maildir, &text)];
    for (user, format) in [("b", Format::Maildir), ("c", Format::Mbox)] {
        let mut other = delivery(&base, user, format, b"");
        other.message = batch[0].message.clone();
        batch.push(other);
    }
    assert!(deliver_batch(&batch, &scene()).iter().all(delivered));
    for (user, kind) in [("a", "Maildir"), ("b", "Maildir"), ("c", "mbox")] {
        assert!(
            read_with_python(kind, &dir.path().join(user)) == [stored(user, &text, kind == "mbox")]
        );
    }
}

/// Runs this test binary again with only `worker` and these words in its environment.
fn again(words: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "worker", "--nocapture"])
        .env("MAILBOX_WORKER", words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The code of the processes that other tests start, and not a test itself.
#[test]
fn worker() {
    let Ok(words) = std::env::var("MAILBOX_WORKER") else { return };
    let words: Vec<&str> = words.split(' ').collect();
    let base = base(Path::new(words[0]));
    let format = if words[1] == "mbox" { Format::Mbox } else { Format::Maildir };
    let rounds: usize = words[3].parse().unwrap();
    let limit: u64 = words.get(4).map_or(0, |text| text.parse().unwrap());
    if limit > 0 {
        // SAFETY: plain system calls that affect only this process.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &libc::rlimit { rlim_cur: limit, rlim_max: limit });
        }
    }
    let mut scene = scene();
    scene.lock_wait_max = Duration::from_secs(30);
    for round in 0..rounds {
        let text = format!(
            "X-Who: {}\r\n\r\n{}",
            words[2],
            format!("{} {round}\r\n", words[2]).repeat(300)
        );
        let batch: Vec<_> =
            (0..7).map(|_| delivery(&base, "bob", format, text.as_bytes())).collect();
        let outcomes = deliver_batch(&batch, &scene);
        if limit > 0 {
            let log: Vec<String> = outcomes.iter().map(|o| o.report().reply.to_string()).collect();
            fs::write(base.path().join("log"), log.join("\n")).unwrap();
        } else {
            assert!(outcomes.iter().all(delivered), "{outcomes:?}");
        }
    }
}

/// Asserts that each message is complete and from one writer: 300 equal lines.
fn assert_whole(messages: &[Vec<u8>]) {
    for message in messages {
        let text = String::from_utf8(message.clone()).unwrap();
        let (head, body) = text.split_once("\n\n").unwrap();
        let lines: Vec<&str> = body.lines().collect();
        assert_eq!(lines.len(), 300);
        assert!(lines.iter().all(|line| *line == lines[0]));
        assert!(head.ends_with(lines[0].split(' ').next().unwrap()));
    }
}

#[test]
fn two_processes_that_deliver_to_one_mbox_do_not_interleave() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    let children = [again(&format!("{path} mbox one 40")), again(&format!("{path} mbox two 40"))];
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let messages = read_with_python("mbox", &dir.path().join("bob"));
    assert_eq!(messages.len(), 2 * 40 * 7);
    assert_whole(&messages);
}

#[test]
fn kill_9_in_the_middle_leaves_no_half_message_in_new_and_blocks_no_mbox() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..12u64 {
        for format in ["maildir", "mbox"] {
            let path = dir.path().join(format!("{format}{round}"));
            let mut child = again(&format!("{} {format} one 100000", path.display()));
            let some = || match format {
                "mbox" => path.join("bob").exists(),
                _ => fs::read_dir(path.join("bob/new")).is_ok_and(|mut new| new.next().is_some()),
            };
            let until = std::time::Instant::now() + Duration::from_secs(20);
            while !some() && std::time::Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(1700 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            if format == "maildir" {
                assert!(some());
                assert_whole(&read_with_python("Maildir", &path.join("bob")));
            }
            assert!(again(&format!("{} {format} two 1", path.display())).wait().unwrap().success());
        }
    }
}
