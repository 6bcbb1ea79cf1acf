//! A mailer of a few lines that relays, in a place with a scenario of its own.
//!
//! Must never need anything but Python.

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

/// The laboratory's program, run there.
pub fn lab(place: &Path, arguments: &[&str]) -> Output {
    Command::new(LAB).args(arguments).current_dir(place).output().unwrap()
}

/// Runs a scenario once with the small mailer; the runs' lines, in `lines.jsonl` there as well.
pub fn run(place: &Path, scenario: &str) -> Vec<Value> {
    for (name, text) in
        [("small.py", SERVER), ("subjects.toml", SUBJECTS), ("scenario.toml", scenario)]
    {
        std::fs::write(place.join(name), text).unwrap();
    }
    let run = ["run", "scenario.toml", "--subject", "small", "--subjects", "subjects.toml"];
    let files = ["--runs", "1", "--out", "lines.jsonl", "--work", "work"];
    let output = lab(place, &[&run[..], &files[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = std::fs::read_to_string(place.join("lines.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["line"] == "run").collect()
}
