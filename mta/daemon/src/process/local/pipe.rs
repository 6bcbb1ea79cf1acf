//! Delivery to a program: its standard input is the message, its exit status says the outcome
//! ([`local::program_outcome`]).
//! Must never call a shell, wait without bound, or keep more of the program's output than a reply holds.

use crate::mailbox::{Fault, LocalMessage, nameless, trace_lines};
use local::{PROGRAM_NAME_PREFIX, ProgramEnd, program_outcome};
use mail::{Address, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take.
const RUN_TIME_MAX: Duration = Duration::from_secs(300);
/// Bytes kept of the program's output; the rest is read and dropped.
const OUTPUT_BYTES_MAX: usize = 1000;
/// How often a program is asked whether it has ended while its output is still open.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Runs the program `words[0]`, with the other words as its arguments, for one recipient.
pub fn deliver(words: &[String], message: &LocalMessage, recipient: &Address) -> Outcome {
    let program = words.first().map_or("", String::as_str);
    let peer = || format!("{PROGRAM_NAME_PREFIX}{program}");
    if message.was_delivered_to(recipient.as_str()) {
        return Fault::looping().outcome(peer());
    }
    match run(words, message, recipient, RUN_TIME_MAX) {
        Ok(Ended { end, said }) => program_outcome(end, &said, program),
        Err(error) => Fault::io("cannot run the program", &error).outcome(peer()),
    }
}

/// How a program ended, and what it said.
struct Ended {
    end: ProgramEnd,
    said: String,
}

fn run(
    words: &[String],
    message: &LocalMessage,
    recipient: &Address,
    time: Duration,
) -> io::Result<Ended> {
    let (program, arguments) =
        words.split_first().ok_or_else(|| io::Error::other("no program is named"))?;
    let (output, output_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("SENDER", message.sender().to_string())
        .env("RECIPIENT", recipient.as_str())
        .stdin(standard_input(message, recipient)?)
        .stdout(Stdio::from(output_end.try_clone()?))
        .stderr(Stdio::from(output_end))
        .process_group(0);
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe { command.pre_exec(default_signals) };
    let child = command.spawn()?;
    // The command holds the writing ends of the pipe.
    drop(command);
    watch(child, output, Instant::now() + time)
}

/// Returns the message as a file, so that a program that does not read cannot block the worker.
fn standard_input(message: &LocalMessage, recipient: &Address) -> io::Result<File> {
    let mut file = nameless(File::open(std::env::temp_dir())?.as_fd())?;
    let mut lines = Vec::new();
    trace_lines(message, recipient, &mut lines);
    file.write_all(&lines)?;
    message.pieces(&mut |piece| file.write_all(piece))?;
    file.rewind()?;
    Ok(file)
}

/// Gives the program the default action of each signal that the mailer ignores.
fn default_signals() -> io::Result<()> {
    use libc::{SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGXFSZ, SIGPIPE, SIGCHLD, SIGUSR1, SIGUSR2] {
        // SAFETY: `signal` is async-signal-safe, SIG_DFL a valid disposition.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

fn watch(mut child: Child, output: OwnedFd, until: Instant) -> io::Result<Ended> {
    let mut output = Some(File::from(output));
    let mut said = Vec::new();
    loop {
        if let Some(status) = child.try_wait()? {
            while output.as_mut().is_some_and(|file| read_some(file, &mut said, None)) {}
            return Ok(Ended { end: end(status), said: harmless(&said) });
        }
        if Instant::now() >= until {
            kill_group(&mut child);
            return Ok(Ended { end: ProgramEnd::TookTooLong, said: harmless(&said) });
        }
        match &mut output {
            Some(file) => {
                if readable(file, &LOOK_EVERY) && !read_some(file, &mut said, Some(())) {
                    output = None;
                }
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn end(status: ExitStatus) -> ProgramEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramEnd::Exited(code),
        (None, Some(signal)) => ProgramEnd::Signalled(signal),
        (None, None) => unreachable!("a program that has ended has a status or a signal"),
    }
}

fn readable(file: &File, wait: &Timespec) -> bool {
    let mut fds = [PollFd::new(file, PollFlags::IN)];
    poll(&mut fds, Some(wait)).is_ok_and(|ready| ready > 0)
}

/// Reads once. Returns `false` at the end of the output, or if nothing is there and `wait` is `None`.
fn read_some(file: &mut File, said: &mut Vec<u8>, wait: Option<()>) -> bool {
    if wait.is_none() && (said.len() >= OUTPUT_BYTES_MAX || !readable(file, &Timespec::default())) {
        return false;
    }
    let mut buffer = [0; 4096];
    let read = file.read(&mut buffer).unwrap_or(0);
    let kept = read.min(OUTPUT_BYTES_MAX - said.len());
    said.extend_from_slice(&buffer[..kept]);
    read > 0
}

fn kill_group(child: &mut Child) {
    // SAFETY: the child leads its own process group and has not been waited for.
    unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
    let _ = child.wait();
}

/// Returns the output as one line of printable characters.
fn harmless(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.trim().to_owned()
}
