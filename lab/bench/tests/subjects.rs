//! Subjects by their settings alone, with a real one: the Python server that comes along as an example.
//!
//! Must never skip what needs no root.

#![allow(clippy::unwrap_used)]

mod pair;

use pair::{Sink, source};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const LAB: &str = env!("CARGO_BIN_EXE_posthaste-lab");

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../subjects")
}

/// Killed with the test.
struct Server {
    child: Child,
    port: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python(words: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(examples().join("aiosmtpd_server.py")).args(words).stdin(Stdio::null());
    command
}

fn server(words: &[&str]) -> Server {
    let words = [&["--port", "0"], words].concat();
    let mut child = python(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().rsplit(':').next().unwrap().to_string();
    assert!(port.parse::<u16>().is_ok(), "{line}");
    Server { child, port }
}

#[test]
fn the_example_passes_on_what_it_promises_or_keeps_it_as_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let accepted = directory.path().join("accepted");
    let sink = Sink::start(&["--expect", accepted.to_str().unwrap()]);
    let next_hop = sink.place.rsplit(':').next().unwrap().to_string();
    let relay = server(&["--next-hop", &next_hop, "--duty", "relay"]);
    let to = |server: &Server| format!("127.0.0.1:{}", server.port);
    let all = ["-s", "3", "-m", "12", "-r", "2"];
    let (output, _) = source(&to(&relay), &accepted, &all);
    assert!(output.status.success());
    let hold = server(&["--next-hop", &next_hop, "--duty", "hold"]);
    let (output, _) = source(&to(&hold), &directory.path().join("others"), &all);
    assert!(output.status.success());
    let count = python(&["--port", &hold.port, "--count"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&count.stdout).trim(), "12");
    let stats = sink.stop();
    assert_eq!(
        (&stats["whole"], &stats["recipients"], &stats["lost"]),
        (&12.into(), &24.into(), &0.into())
    );
}

/// Runs `try-subject` with subjects from a file.
fn attempt(subjects: &Path, work: &Path, words: &[&str]) -> (bool, String) {
    let mut command = Command::new(LAB);
    command.arg("try-subject").args(words).arg("--subjects").arg(subjects).arg("--work").arg(work);
    let output = command.env("RUST_BACKTRACE", "0").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_file_that_describes_no_subject_ends_a_trial_before_anything_is_started() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("subjects.toml");
    std::fs::write(&path, "[[subject]]\nname = \"x\"\nversion = \"1\"\n").unwrap();
    let (good, text) = attempt(&path, &directory.path().join("work"), &["x"]);
    assert!(!good && text.contains("subjects.toml:2: `x` needs either"), "{text}");
    let (good, text) =
        attempt(&examples().join("aiosmtpd.toml"), &directory.path().join("work"), &["nobody"]);
    assert!(!good && text.contains("there is no subject nobody"), "{text}");
    assert!(!directory.path().join("work").exists());
}

#[test]
fn a_subject_by_its_settings_alone_holds_and_relays_in_a_room_of_its_own() {
    if !needs::met(&[needs::Need::Root("namespaces"), needs::Need::Room]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = examples().join("aiosmtpd.toml");
    let (good, text) = attempt(&file, directory.path(), &["aiosmtpd", "limit"]);
    assert!(good, "{text}");
    let line = |subject: &str, duty: &str| {
        let found = text.lines().find(|line| line.starts_with(subject) && line.contains(duty));
        found.unwrap_or_else(|| panic!("no {subject} {duty}: {text}"))
    };
    assert!(
        line("aiosmtpd", "Hold").contains("20 done")
            && line("aiosmtpd", "Hold").contains(" 0 transactions")
    );
    assert!(
        line("aiosmtpd", "Relay").contains("20 transactions at the sink, 2 processes"),
        "{text}"
    );
    assert!(line("aiosmtpd", "Mbox").contains("refused: its description does not name"), "{text}");
    assert!(line("limit", "Relay").contains("20 transactions at the sink, 0 processes"), "{text}");
}
