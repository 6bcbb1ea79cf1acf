//! strace: attached to a family of processes, read line by line, and detached.
//!
//! Must never write a trace to a file: it is read as it comes, however long it is.

use super::family::Family;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time within which every thread must be traced.
const ATTACH_TIME_MAX: Duration = Duration::from_secs(20);
/// Time between two looks.
const REST: Duration = Duration::from_millis(5);
/// Time within which strace must have detached.
const DETACH_TIME_MAX: Duration = Duration::from_secs(20);
/// Upper bound on further straces, for processes that were born while one attached.
const STRACES_MAX: usize = 20;
/// Upper bound on the kept bytes of strace's errors.
const COMPLAINT_BYTES_MAX: u64 = 16 << 10;

/// The consumer of one strace's lines.
pub trait Lines: Default + Send + 'static {
    /// The next line.
    fn feed(&mut self, line: &str);
}

/// All the straces of a family.
pub struct Tracer<L> {
    straces: Vec<Strace<L>>,
}

/// One strace.
struct Strace<L> {
    child: Child,
    lines: Option<JoinHandle<L>>,
    complaint: Option<JoinHandle<String>>,
}

impl<L: Lines> Tracer<L> {
    /// Attaches to all of the family; returns when every thread is traced. `options` say what is printed.
    pub fn attach(family: &Family, options: &[&str]) -> Result<Tracer<L>> {
        let mut tracer = Tracer { straces: Vec::new() };
        let end = Instant::now() + ATTACH_TIME_MAX;
        let mut asked: Vec<u32> = Vec::new();
        loop {
            let untraced: Vec<u32> =
                family.pids().into_iter().filter(|pid| !is_traced(*pid)).collect();
            if untraced.is_empty() {
                anyhow::ensure!(!asked.is_empty(), "there is no process to trace");
                return Ok(tracer);
            }
            // The children of a traced process are traced by themselves; others were born too early for that.
            let new: Vec<u32> = untraced.into_iter().filter(|pid| !asked.contains(pid)).collect();
            if !new.is_empty() && tracer.straces.len() < STRACES_MAX {
                tracer.straces.push(Strace::start(&new, options)?);
                asked.extend(new);
            }
            tracer.check()?;
            if Instant::now() >= end {
                bail!(
                    "strace has not attached to all processes after {} s",
                    ATTACH_TIME_MAX.as_secs()
                );
            }
            std::thread::sleep(REST);
        }
    }

    /// Fails if a strace has ended while its processes live.
    fn check(&mut self) -> Result<()> {
        for strace in &mut self.straces {
            if strace.child.try_wait()?.is_some_and(|status| !status.success()) {
                bail!(
                    "strace cannot trace the mailer (is ptrace forbidden here?): {}",
                    strace.complaint()
                );
            }
        }
        Ok(())
    }

    /// Detaches from the mailer and returns the consumers of the lines.
    pub fn detach(mut self) -> Result<Vec<L>> {
        let straces = std::mem::take(&mut self.straces);
        straces.into_iter().map(Strace::end).collect()
    }
}

impl<L: Lines> Strace<L> {
    fn start(pids: &[u32], options: &[&str]) -> Result<Strace<L>> {
        let mut command = Command::new("strace");
        command.args(["-f", "-ttt", "-T", "-o", "/dev/stdout"]).args(options);
        for pid in pids {
            command.args(["-p", &pid.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("strace (Debian: strace) cannot be started")?;
        let output = child.stdout.take().expect("it is piped");
        let errors = child.stderr.take().expect("it is piped");
        let lines = std::thread::spawn(move || read_all(output));
        let complaint = std::thread::spawn(move || {
            let mut text = Vec::new();
            let mut errors = errors;
            let _ = errors.by_ref().take(COMPLAINT_BYTES_MAX).read_to_end(&mut text);
            let _ = std::io::copy(&mut errors, &mut std::io::sink()); // it must not wait for us
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Strace { child, lines: Some(lines), complaint: Some(complaint) })
    }

    fn complaint(&mut self) -> String {
        let text = self.complaint.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        text.lines().filter(|line| !line.contains("ttached")).collect::<Vec<_>>().join("; ")
    }

    fn end(mut self) -> Result<L> {
        self.interrupt();
        let end = Instant::now() + DETACH_TIME_MAX;
        while self.child.try_wait()?.is_none() {
            if Instant::now() >= end {
                bail!("strace has not let go after {} s", DETACH_TIME_MAX.as_secs());
            }
            std::thread::sleep(REST);
        }
        let lines = self.lines.take().expect("only the end takes it");
        Ok(lines.join().unwrap_or_default())
    }

    fn interrupt(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT); // it ends by itself with the last process
    }
}

impl<L> Drop for Strace<L> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Killed, it lets go as well; a process in the middle of a stop might see a stray signal, so not first.
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
            let end = Instant::now() + DETACH_TIME_MAX;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(REST);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Reads all lines of a strace.
pub fn read_all<L: Lines>(output: impl Read) -> L {
    let mut lines = L::default();
    let mut reader = BufReader::with_capacity(1 << 16, output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(1..) => lines.feed(String::from_utf8_lossy(&line).trim_end_matches('\n')),
            Ok(0) | Err(_) => return lines,
        }
    }
}

/// Returns whether every thread of a process has a tracer; an ended process needs none.
fn is_traced(pid: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    let traced = |status: String| {
        let value = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        value("TracerPid:") != Some("0")
            || value("State:").is_some_and(|state| state.starts_with(['Z', 'X']))
    };
    let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).ok();
    tasks.flatten().filter_map(status).all(traced)
}
