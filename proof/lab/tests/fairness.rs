//! Steady mail beside other mail, through a mailer of a few lines, and what is said of its delay.
//!
//! Must never need a mailer of this machine or the network, or assert how long anything took.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const LAB: &str = env!("CARGO_BIN_EXE_posthaste-lab");

/// It says 250, then hands the message on before it reads the next command.
const SERVER: &str = r#"
import os, smtplib, socketserver, sys
kept = open(sys.argv[2] + "/kept", "ab")
class Session(socketserver.StreamRequestHandler):
    def handle(self):
        say = lambda text: self.wfile.write(text.encode() + b"\r\n")
        say("220 small")
        sender, to = "", ""
        for line in self.rfile:
            verb = line[:4].upper()
            if verb == b"QUIT":
                return say("221 bye")
            if verb == b"MAIL":
                sender = line.decode().split("<")[1].split(">")[0]
            if verb == b"RCPT":
                to = line.decode().split("<")[1].split(">")[0]
            if verb != b"DATA":
                say("250 ok")
                continue
            say("354 go")
            body = b""
            for line in self.rfile:
                if line == b".\r\n":
                    break
                body += line[1:] if line.startswith(b".") else line
            kept.write(body)
            kept.flush()
            os.fsync(kept.fileno())
            say("250 kept")
            with smtplib.SMTP("127.0.0.1", int(sys.argv[3])) as next_hop:
                next_hop.sendmail(sender, [to], body)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 128
Server(("127.0.0.1", int(sys.argv[1])), Session).serve_forever()
"#;

const SUBJECTS: &str = r#"
[[subject]]
name = "small"
command = ["python3", "{here}/small.py", "{port}", "{queue}", "{next_hop}"]
version = "1"
duties = ["relay"]
queued = ["echo", "0"]
"#;

const SCENARIO: &str = r#"
name = "beside"
title = "A test"
question = "Does it run?"
figure = { name = "delay p99", unit = "ms", better = "lower" }
measure = "fairness"
subjects = ["small"]
[load]
sessions = 2
rate = 40
seconds = 0.5
warm-up = 5
settle = 0
to = ["user@good.test"]
from = "steady@lab.test"
[beside.other]
messages = 20
sessions = 2
per-connection = 0
to = ["user@other.test"]
from = "crowd@lab.test"
[sink]
aside-rate = 1
delay = ["5:good.test"]
[vary]
beside = ["nothing", "other"]
"#;

fn lab(place: &Path, arguments: &[&str]) -> Output {
    Command::new(LAB).args(arguments).current_dir(place).output().unwrap()
}

#[test]
fn a_load_is_measured_beside_other_mail_and_too_few_runs_say_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: a campaign makes namespaces and needs root");
        return;
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    for (name, text) in
        [("small.py", SERVER), ("subjects.toml", SUBJECTS), ("beside.toml", SCENARIO)]
    {
        std::fs::write(place.path().join(name), text).unwrap();
    }
    let run = ["run", "beside.toml", "--subject", "small", "--subjects", "subjects.toml"];
    let files = ["--runs", "1", "--out", "lines.jsonl", "--work", "work"];
    let output = lab(place.path(), &[&run[..], &files[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = std::fs::read_to_string(place.path().join("lines.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let runs: Vec<Value> = lines.filter(|line| line["line"] == "run").collect();
    assert_eq!(runs.len(), 2, "{said}");
    for run in &runs {
        assert!(run["value"].as_f64().is_some_and(|delay| delay > 0.0), "{run}");
        assert_eq!(run["values"]["unaccounted"], 0.0, "{run}");
        assert_eq!(
            (&run["values"]["messages"], &run["values"]["lost"]),
            (&20.0.into(), &0.0.into())
        );
    }
    assert_eq!(runs[1]["values"]["beside_messages"], 20.0, "{}", runs[1]);
    let output = lab(place.path(), &["verdicts", "lines.jsonl", "--markdown", "table.md"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("| beside | small | other | 1 |"), "{table}");
    assert_eq!(std::fs::read_to_string(place.path().join("table.md")).unwrap(), table);
}
