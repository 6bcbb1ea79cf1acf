//! A source and a sink as two programs over a socket, for the tests of both.
//!
//! Must never share code with them: it reads what they print.

#![allow(dead_code, clippy::unwrap_used)]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const LAB: &str = env!("CARGO_BIN_EXE_posthaste-lab");

/// A running sink and the place where it listens.
pub struct Sink {
    child: Child,
    pub place: String,
}

impl Sink {
    pub fn start(arguments: &[&str]) -> Sink {
        let mut child = Command::new(LAB)
            .args(["sink", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let place = line.trim().rsplit(' ').next().unwrap().to_string();
        Sink { child, place }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// The lines that it has printed when it ends; it must end by itself or have been told.
    pub fn lines(mut self) -> Vec<Value> {
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Its last line.
    pub fn wait(self) -> Value {
        self.lines().pop().unwrap()
    }

    /// Ends it with SIGTERM and reads its JSON line.
    pub fn stop(self) -> Value {
        self.signal("-TERM");
        self.wait()
    }
}

/// Runs a source to its end: what it printed, and its JSON line.
pub fn source(place: &str, accepted: &Path, arguments: &[&str]) -> (Output, Value) {
    let output = Command::new(LAB)
        .args(["source", place, "--accepted", accepted.to_str().unwrap()])
        .args(arguments)
        .output()
        .unwrap();
    let summary = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (output, summary)
}
