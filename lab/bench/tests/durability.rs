//! When a mailer syncs, found by looking at small servers that sync in different places.
//!
//! Must never need root: the servers are our own children, which everyone may trace.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const LAB: &str = env!("CARGO_BIN_EXE_posthaste-lab");
/// Nobody.
const STRANGER: u32 = 65534;
/// An SMTP server in a child process of its own; its first argument says when it syncs what.
const SERVER: &str = r#"
import os, socketserver, sys
when, count = sys.argv[1], 0
flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
log = os.open("log", flags)
if when == "open-before":
    spool = os.open("queue/spool", flags | os.O_DSYNC)

def keep(body):
    global count
    count += 1
    if when == "open-before":
        return os.write(spool, body)
    extra = os.O_DSYNC if when == "o-dsync" else 0
    file = os.open(f"queue/{count}", flags | os.O_EXCL | extra)
    os.write(file, body)
    if when == "before" or when == "every-other" and count % 2:
        os.fsync(file)
    if when == "only-log":
        os.write(log, b"250 one more\n")
        os.fsync(log)
    return file

class Session(socketserver.StreamRequestHandler):
    def say(self, text):
        self.wfile.write(text + b"\r\n")
    def handle(self):
        self.say(b"220 small")
        while (line := self.rfile.readline()) and line[:4].upper() != b"QUIT":
            verb = line[:4].upper()
            if verb == b"EHLO":
                self.say(b"250-small\r\n250 8BITMIME")
            elif verb == b"DATA":
                self.say(b"354 go")
                body = b""
                while (line := self.rfile.readline()) != b".\r\n":
                    body += line
                file = keep(body)
                self.say(b"250 kept")
                if when == "after":
                    os.fsync(file)
            else:
                self.say(b"250 yes")

server = socketserver.TCPServer(("127.0.0.1", 0), Session)
if os.fork():
    os.wait()
else:
    print(server.server_address[1], flush=True)
    server.serve_forever()
"#;

struct Server {
    parent: Child,
    port: String,
}

impl Server {
    fn start(when: &str, place: &Path) -> Server {
        std::fs::create_dir(place.join("queue")).unwrap();
        let mut command = Command::new("setpriv");
        // The child that serves ends with the parent, however the test ends.
        command.args(["--pdeathsig", "KILL", "python3", "-c", SERVER, when]).current_dir(place);
        let mut parent = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(parent.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Server { parent, port: port.trim().to_string() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.parent.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            let pid = rustix::process::Pid::from_raw(child).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}

fn found(when: &str) -> Value {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(when, place.path());
    let mut command = Command::new(LAB);
    command.args(["watch", "durability", &format!("127.0.0.1:{}", server.port)]);
    command.arg(server.parent.id().to_string()).arg("--queue").arg(place.path().join("queue"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{when}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_class_is_found_and_a_sync_elsewhere_or_too_late_is_none() {
    let expected = [
        ("before", "synced", 1.0),
        ("o-dsync", "synced", 1.0),
        ("open-before", "synced", 1.0),
        ("every-other", "sometimes", 0.5),
        ("after", "unsynced", 0.0),
        ("only-log", "unsynced", 0.0),
        ("never", "unsynced", 0.0),
    ];
    let run = |(when, class, syncs): (&'static str, &'static str, f64)| {
        (when, class, syncs, std::thread::spawn(move || found(when)))
    };
    let found: Vec<_> = expected.into_iter().map(run).collect();
    for (when, class, syncs, thread) in found {
        let found = thread.join().unwrap();
        assert_eq!(found["class"], class, "{when}: {found}");
        assert_eq!(found["messages"], 20, "{when}: {found}");
        assert_eq!(found["syncs_before_250"], syncs, "{when}: {found}");
    }
}

#[test]
fn a_mailer_that_is_not_there_is_an_error_and_no_class() {
    let output = Command::new(LAB)
        .args(["watch", "durability", "127.0.0.1:1", "4194303", "--queue", "/"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("no process"), "{error}");
}

#[test]
fn where_tracing_is_forbidden_a_sentence_says_so() {
    if !needs::met(&[needs::Need::Root("a process of another user")]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = place.path().join("lab");
    // The build may lie where a stranger cannot go. Another process makes the copy: a thread beside this one that
    // starts a program would hand the open file on, and a program that is open for writing cannot be started.
    let copied = Command::new("cp").arg(LAB).arg(&program).status().unwrap();
    assert!(copied.success());
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let mut command = Command::new(program);
    command.args(["watch", "calls", &sleeper.id().to_string()]).uid(STRANGER).current_dir("/");
    let output = command.output().unwrap();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("ptrace"), "{error}");
}
