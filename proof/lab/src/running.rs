//! A running mailer in a process namespace of its own, so that one signal ends every process of it at once.
//!
//! Must never signal by name: the namespace's first process is killed, the kernel does the rest.

use crate::subject::{Phase, Site, Subject};
use anyhow::{Context, Result, bail};
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Until it greets.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Between two looks.
const START_REST: Duration = Duration::from_millis(20);
/// For one greeting.
const GREETING_TIME_MAX: Duration = Duration::from_secs(5);

/// See the module.
pub struct Running {
    child: Child,
}

impl Running {
    /// Configures and starts it. `preload` is put before it by the dynamic linker.
    pub fn start(
        subject: &dyn Subject,
        site: &Site,
        phase: Phase,
        preload: Option<&str>,
    ) -> Result<Running> {
        subject.configure(site)?;
        let inner = subject.command(site, phase).context("it is not ours to start")?;
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(site.work.join("mailer.log"))?;
        let mut command = Command::new("unshare");
        // The shell is process 1 there: with its end the kernel kills all others of the namespace.
        command.args(["--pid", "--fork", "--kill-child", "sh", "-c", "\"$@\"; exit $?", "sh"]);
        if let Some(library) = preload {
            command.args(["env", &format!("LD_PRELOAD={library}")]);
        }
        command.arg(inner.get_program()).args(inner.get_args()).current_dir("/");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Running { child: command.spawn().context("unshare")? })
    }

    /// Waits until it takes mail.
    pub fn await_greeting(&mut self, port: u16) -> Result<()> {
        let end = Instant::now() + START_TIME_MAX;
        while !greets(port) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the mailer ended by itself: {status}; see mailer.log");
            }
            if Instant::now() >= end {
                bail!("the mailer does not greet after {} s", START_TIME_MAX.as_secs());
            }
            std::thread::sleep(START_REST);
        }
        Ok(())
    }

    /// `kill -9` to all of it.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.kill(); // it may be dead already
    }
}

fn greets(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut greeting = [0; 3];
    stream.set_read_timeout(Some(GREETING_TIME_MAX)).is_ok()
        && stream.read_exact(&mut greeting).is_ok()
        && &greeting == b"220"
}

/// Processes that have this library in their memory.
pub fn having_loaded(library: &str) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let maps = entries.flatten().filter_map(|entry| std::fs::read(entry.path().join("maps")).ok());
    maps.filter(|maps| memchr::memmem::find(maps, library.as_bytes()).is_some()).count()
}

/// Whether a file can be loaded at all; the dynamic linker only warns of one that is not there.
pub fn library(paths: &[&str]) -> Result<String> {
    let found = paths.iter().find(|path| Path::new(path).exists());
    found.map(|path| (*path).to_string()).with_context(|| format!("none of {paths:?} is there"))
}
