//! A running mailer in namespaces of its own for processes and mounts, so that one signal ends every process of it
//! at once, and each finds mailboxes and the log where it expects them.
//!
//! Must never signal by name: the namespace's first process is killed, the kernel does the rest.

use crate::room;
use crate::subject::{Logging, Phase, Site, Subject};
use crate::syslog::Syslog;
use anyhow::{Context, Result, bail, ensure};
use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Until it greets. One that has millions of messages in its queue reads them first.
const START_TIME_MAX: Duration = Duration::from_secs(120);
/// Between two looks.
const START_REST: Duration = Duration::from_millis(5);
/// For one greeting.
const GREETING_TIME_MAX: Duration = Duration::from_secs(5);
/// Until the last process of a killed mailer is gone; one may wait for a slow disk.
const END_TIME_MAX: Duration = Duration::from_secs(60);
/// What a mailer says on its standard output and error, below `Site::log`.
pub const SAID: &str = "mailer.log";
/// What comes to `/dev/log`, below `Site::log`.
pub const SYSLOG: &str = "syslog.log";
/// What is shown of a mailer's last words, in bytes.
const WORDS_MAX: usize = 2_000;
/// Sees to it that mailboxes and the log are where mailers look for them, then becomes process 1 of the namespace.
/// With its end the kernel kills all others.
const FURNISH: &str = "mount -t overlay overlay -o \"lowerdir=$1:/dev\" /dev && \
    { [ -z \"$2\" ] || mount --bind \"$2\" /var/mail; } && shift 2 || exit 1; \"$@\"; exit $?";

/// See the module.
pub struct Running {
    /// `None` where the mailer is not ours to start.
    child: Option<Child>,
    address: String,
    /// What is left to do once it greets.
    then: Option<Command>,
    said: PathBuf,
    _syslog: Option<Syslog>,
}

impl Running {
    /// Configures and starts it. `preload` is put before it by the dynamic linker.
    pub fn start(
        subject: &dyn Subject,
        site: &Site,
        phase: Phase,
        preload: Option<&str>,
    ) -> Result<Running> {
        let library = preload.map(|library| format!("LD_PRELOAD={library}"));
        let before = library.map(|library| vec!["env".into(), library]);
        Running::start_by(subject, site, phase, &before.unwrap_or_default())
    }

    /// The same, started by a program and its arguments, which get the mailer's own behind them.
    pub fn start_by(
        subject: &dyn Subject,
        site: &Site,
        phase: Phase,
        before: &[String],
    ) -> Result<Running> {
        subject.configure(site)?;
        let (address, said) = (subject.address(site), site.log.join(SAID));
        let Some(inner) = subject.command(site, phase) else {
            ensure!(before.is_empty(), "it runs already: {} cannot start it", before[0]);
            return Ok(Running { child: None, address, then: None, said, _syslog: None });
        };
        let logs = site.setup.logging != Logging::None;
        let syslog = || Syslog::start(Path::new(room::LOG_SOCKET), &site.log.join(SYSLOG));
        let syslog = logs.then(syslog).transpose()?;
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&said);
        let log = log.with_context(|| said.display().to_string())?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-c", FURNISH, "sh"]).arg(site.work.join("room/dev"));
        command.arg(if site.setup.duty.is_local() { site.mail.as_os_str() } else { "".as_ref() });
        command.args(before).arg(inner.get_program()).args(inner.get_args()).current_dir("/");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = Some(command.spawn().context("unshare")?);
        Ok(Running { child, address, then: subject.settle(site, phase), said, _syslog: syslog })
    }

    /// Waits until it takes mail and does with it what it is to do.
    pub fn await_greeting(&mut self) -> Result<()> {
        let end = Instant::now() + START_TIME_MAX;
        while !greets(&self.address) {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().transpose())
            {
                bail!("the mailer ended by itself: {}: {}", status?, self.last_words());
            }
            if Instant::now() >= end {
                let seconds = START_TIME_MAX.as_secs();
                bail!("{} does not greet after {seconds} s: {}", self.address, self.last_words());
            }
            std::thread::sleep(START_REST);
        }
        let Some(mut then) = self.then.take() else { return Ok(()) };
        let output = then.stdin(Stdio::null()).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{then:?}: {}", error.trim());
        Ok(())
    }

    /// All its processes now, as the room numbers them; none where it is not ours.
    pub fn pids(&self) -> Vec<u32> {
        self.namespace().map_or_else(Vec::new, |namespace| members(&namespace))
    }

    /// A command as one of the mailer's own: it finds the same mailboxes and the same log, is among its processes, and
    /// ends with them. Where the mailer is not ours, as it is.
    pub fn inside(&self, command: Command) -> Result<Command> {
        if self.child.is_none() {
            return Ok(command);
        }
        let first = self.namespace().and_then(|namespace| members(&namespace).into_iter().min());
        let first = first.context("it does not run")?;
        let mut inside = Command::new("nsenter");
        inside.args(["--mount", "--pid", "--target", &first.to_string()]);
        inside.arg(command.get_program()).args(command.get_args());
        Ok(inside)
    }

    /// Of its processes; `None` as long as it has none of its own.
    fn namespace(&self) -> Option<PathBuf> {
        let child = self.child.as_ref()?.id();
        let its = std::fs::read_link(format!("/proc/{child}/ns/pid_for_children")).ok()?;
        let ours = std::fs::read_link("/proc/self/ns/pid").ok()?;
        (its != ours).then_some(its)
    }

    /// `kill -9` to all of it, and waits until the last process is gone.
    pub fn kill(&mut self) -> Result<()> {
        let namespace = self.namespace();
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill()?;
        child.wait()?;
        let end = Instant::now() + END_TIME_MAX;
        while namespace.as_ref().is_some_and(|namespace| !members(namespace).is_empty()) {
            ensure!(Instant::now() < end, "a killed mailer does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let text = std::fs::read(&self.said).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(WORDS_MAX)..]).trim().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.kill(); // it may be dead already
    }
}

/// The processes of a namespace.
fn members(namespace: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let of = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/ns/pid"));
    pids.filter(|pid| of(pid).is_ok_and(|of| of == namespace)).collect()
}

fn greets(address: &str) -> bool {
    let Some(address) = address.to_socket_addrs().ok().and_then(|mut all| all.next()) else {
        return false;
    };
    let Ok(mut stream) = TcpStream::connect_timeout(&address, GREETING_TIME_MAX) else {
        return false;
    };
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
