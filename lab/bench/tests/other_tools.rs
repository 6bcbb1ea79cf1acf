//! The source and the sink with other people's tools: Postfix's pair, and Python's library.
//!
//! Must never be kind to ours: what the others count is what counts.

#![allow(clippy::unwrap_used)]

mod pair;

use pair::{Sink, source};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A tool of Postfix's: installed, or as `./check` unpacked it.
fn postfix_tool(name: &str) -> Command {
    let unpacked = std::env::var_os("POSTHASTE_TEST_POSTFIX").map(PathBuf::from);
    match unpacked {
        Some(root) if root.join("usr/sbin").join(name).exists() => {
            let mut command = Command::new(root.join("usr/sbin").join(name));
            command.env("LD_LIBRARY_PATH", root.join("usr/lib/postfix"));
            command
        }
        _ => Command::new(Path::new("/usr/sbin").join(name)),
    }
}

/// Killed with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn all_that_smtp_source_sends_is_taken_and_none_of_it_is_called_ours() {
    let sink = Sink::start(&["--until", "200"]);
    let way = ["-s", "5", "-m", "200", "-l", "4096", "-r", "2", "-f", "a@b.test", "-t", "c@d.test"];
    let status = postfix_tool("smtp-source").args(way).arg(&sink.place).status().unwrap();
    assert!(status.success());
    let stats = sink.wait();
    let counts = ["messages", "unmarked", "recipients"].map(|name| stats[name].as_u64().unwrap());
    assert_eq!(counts, [200, 200, 400], "{stats}");
    assert_eq!((&stats["bare_line_ends"], &stats["distinct"]), (&0.into(), &0.into()), "{stats}");
}

#[test]
fn smtp_sink_accepts_all_that_our_source_sends() {
    let directory = tempfile::Builder::new().prefix("lab").tempdir_in("/tmp").unwrap();
    let socket = format!("unix:{}", directory.path().join("s").display());
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let mut command = postfix_tool("smtp-sink");
    if is_root {
        command.args(["-u", "nobody"]);
    }
    let running = command.args([&socket, "100"]).stdout(Stdio::null()).spawn().unwrap();
    let _running = Running(running);
    let accepted = directory.path().join("accepted");
    let give_up = Instant::now() + Duration::from_secs(20);
    while !directory.path().join("s").exists() {
        assert!(Instant::now() < give_up, "smtp-sink opened no socket");
        std::thread::sleep(Duration::from_millis(10));
    }
    for way in [&["-d", "1"][..], &["-d", "0", "--pipelining"], &["--sizes", "1k,200k", "-d", "9"]]
    {
        let all = [&["-s", "5", "-m", "100", "-r", "2", "--retry", "5"], way].concat();
        let (output, summary) = source(&socket, &accepted, &all);
        assert!(output.status.success(), "{way:?} {summary}");
        assert_eq!((&summary["accepted"], &summary["recipients"]), (&100.into(), &200.into()));
    }
}

#[test]
fn pythons_smtplib_sends_what_our_source_has_marked_and_the_sink_proves_it_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (dump, accepted) = (directory.path().join("dump"), directory.path().join("accepted"));
    let first = Sink::start(&["--dump", dump.to_str().unwrap()]);
    assert!(source(&first.place, &accepted, &["-m", "2"]).0.status.success());
    first.stop();
    let sink = Sink::start(&["--expect", accepted.to_str().unwrap()]);
    let (host, port) = sink.place.split_once(':').unwrap();
    let script = "import smtplib, sys\n\
        s = smtplib.SMTP(sys.argv[1], int(sys.argv[2]))\n\
        for name in sys.argv[3:]:\n\
        \x20   print(s.sendmail('a@b.test', ['c@d.test'], open(name, 'rb').read()))\n\
        s.quit()\n";
    let files = ["00000000.eml", "00000001.eml"].map(|name| dump.join(name));
    let mut command = Command::new("python3");
    command.args(["-c", script, host, port]).args(&files);
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    let stats = sink.stop();
    assert_eq!((&stats["whole"], &stats["damaged"]), (&2.into(), &0.into()), "{stats}");
    assert_eq!((&stats["lost"], &stats["duplicates"]), (&0.into(), &0.into()), "{stats}");
}

#[test]
fn real_messages_arrive_as_they_lie_in_their_files() {
    let directory = tempfile::tempdir().unwrap();
    let (mail, dump) = (directory.path().join("mail"), directory.path().join("dump"));
    std::fs::create_dir(&mail).unwrap();
    std::fs::write(mail.join("1"), "Subject: one\n\n.dot\n..\n").unwrap();
    std::fs::write(mail.join("2"), "Subject: zwei\r\n\r\nSch\u{f6}n\r\n.\r\n").unwrap();
    let accepted = directory.path().join("accepted");
    for way in [&[][..], &["--bdat"], &["--pipelining", "-d", "0"]] {
        let list = ["--chunking", "--expect", accepted.to_str().unwrap()];
        let sink = Sink::start(&[&list[..], &["--dump", dump.to_str().unwrap()]].concat());
        let all = [&["-m", "4", "--messages-from", mail.to_str().unwrap()], way].concat();
        assert!(source(&sink.place, &accepted, &all).0.status.success());
        let stats = sink.stop();
        assert_eq!((&stats["whole"], &stats["lost"]), (&4.into(), &0.into()), "{way:?} {stats}");
        let texts = [(0, "Subject: one\r\n\r\n.dot\r\n..\r\n"), (3, "\r\n\r\nSch\u{f6}n\r\n.\r\n")];
        for (number, text) in texts {
            let file = dump.join(format!("{number:08}.eml"));
            let came = std::fs::read_to_string(file).unwrap();
            assert!(came.ends_with(text), "{way:?} {came:?}");
        }
    }
}
