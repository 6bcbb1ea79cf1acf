//! A small campaign as a postmaster would run it: a subject of his own, beside no mailer at all.
//!
//! Must never need a mailer of this machine or the network: the subject is a Python program in the settings.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const LAB: &str = env!("CARGO_BIN_EXE_posthaste-lab");

/// A mailer of a few lines: it syncs each message to a file, says 250, and forgets it.
const SERVER: &str = r#"
import os, socketserver, sys
class Session(socketserver.StreamRequestHandler):
    def handle(self):
        say = lambda text: self.wfile.write(text.encode() + b"\r\n")
        say("220 small")
        for line in self.rfile:
            verb = line[:4].upper()
            if verb == b"QUIT":
                return say("221 bye")
            if verb != b"DATA":
                say("250 ok")
                continue
            say("354 go")
            for line in self.rfile:
                if line == b".\r\n":
                    break
                kept.write(line)
            kept.flush()
            os.fsync(kept.fileno())
            say("250 kept")
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 128
kept = open(sys.argv[2] + "/kept", "ab")
Server(("127.0.0.1", int(sys.argv[1])), Session).serve_forever()
"#;

const SUBJECTS: &str = r#"
[[subject]]
name = "small"
command = ["python3", "{here}/small.py", "{port}", "{queue}"]
version = "1"
duties = ["hold"]
queued = ["sh", "-c", "grep -c ^Message-ID: {queue}/kept"]
recipient = "user{n}@sink.test"
settings = ["{here}/small.py"]
"#;

fn lab(place: &Path, more: &[&str]) -> Output {
    let at = |name: &str| place.join(name).display().to_string();
    let (out, work, subjects) = (at("lines.jsonl"), at("work"), at("subjects.toml"));
    let usual = ["--out", &out, "--work", &work, "--subjects", &subjects, "--set", "seconds=0.2"];
    let first = [
        "run",
        "inject",
        "--subject",
        "small,limit",
        "--set",
        "sessions=1,4",
        "--set",
        "warm-up=5",
    ];
    let all = first.iter().chain(&usual).chain(more);
    Command::new(LAB).args(all).output().unwrap()
}

fn runs(place: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(place.join("lines.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["line"] == "run").collect()
}

#[test]
fn a_subject_of_ones_own_is_measured_beside_no_mailer_and_a_campaign_goes_on_where_it_stopped() {
    if !needs::met(&[needs::Need::Root("namespaces"), needs::Need::Room]) {
        return;
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(place.path().join("small.py"), SERVER).unwrap();
    std::fs::write(place.path().join("subjects.toml"), SUBJECTS).unwrap();
    let output = lab(place.path(), &["--runs", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let first = runs(place.path());
    assert_eq!(first.len(), 8, "two subjects, two numbers of sessions, reused or not: {said}");
    for run in &first {
        assert!(run["value"].as_f64().is_some_and(|rate| rate > 0.0), "{run}");
        assert!(run["machine"]["sync_us"].as_f64().unwrap() > 0.0, "{run}");
    }
    let small = first.iter().find(|run| run["subject"] == "small").unwrap();
    assert_eq!(small["durability"]["class"], "synced", "{small}");
    assert!(small["values"]["cpu_ms_per_message"].as_f64().unwrap() > 0.0, "{small}");
    let output = lab(place.path(), &["--runs", "2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let both = runs(place.path());
    assert_eq!((both.len(), &both[..8]), (16, &first[..]));
    assert!(both[8..].iter().all(|run| run["ordinal"] == 1), "the second run of each");
}

#[test]
fn what_cannot_be_asked_is_said_before_anything_is_started() {
    let told = |arguments: &[&str]| {
        let output = Command::new(LAB).args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(told(&["run", "rely", "--dry-run"]).contains("relay"));
    assert!(told(&["run", "relay", "--set", "sesions=3", "--dry-run"]).contains("sessions"));
    assert!(told(&["run", "relay", "--subject", "qmail", "--dry-run"]).contains("qmail"));
    assert!(told(&["run", "--dry-run"]).contains("scenarios"));
}

#[test]
fn a_scenario_is_printed_to_be_copied() {
    let output = Command::new(LAB).args(["scenarios", "relay"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("mine.toml");
    std::fs::write(&copy, text).unwrap();
    let copy = copy.to_str().unwrap();
    let output =
        Command::new(LAB).args(["run", copy, "--dry-run", "--runs", "1"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("relay sessions=5 posthaste #1") && text.contains("18 runs"), "{text}");
}

#[test]
fn a_sync_can_take_longer_and_is_counted_for_each_message() {
    if !needs::met(&[needs::Need::Root("namespaces"), needs::Need::Room]) {
        return;
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(place.path().join("small.py"), SERVER).unwrap();
    std::fs::write(place.path().join("subjects.toml"), SUBJECTS).unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let output = Command::new(LAB)
        .args(["run", "slow-disks", "--subject", "small", "--runs", "1"])
        .args(["--set", "sessions=1", "--set", "sync-delay-ms=0,200"])
        .args(["--set", "warm-up=0", "--set", "messages=3", "--set", "seconds=0"])
        .args(["--out", &at("lines.jsonl"), "--work", &at("work")])
        .args(["--subjects", &at("subjects.toml")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let runs = runs(place.path());
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!(run["values"]["syncs_per_message"], 1.0, "{run}");
        assert!(run["how"]["syncs"].as_str().unwrap().contains("fdatasync"), "{run}");
    }
    let seconds = runs[1]["values"]["seconds"].as_f64().unwrap();
    assert!(seconds >= 0.6, "three messages wait for a sync of 0.2 s each: {seconds}");
}
