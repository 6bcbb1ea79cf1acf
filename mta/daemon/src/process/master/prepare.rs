//! What children need before they are started: settings, directories and bound ports.
//!
//! Must never parse the settings file: the config process does, in its jail.

use super::start::Resources;
use super::{clone_fd, ports, spool_directory};
use crate::jail;
use crate::log::Style;
use crate::process::config;
use crate::process::wiring;
use anyhow::{Context, Result, anyhow};
use link::control::Role;
use rustix::fs::{FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use settings::{
    HostEnvironment, Listen, ListenAddress, LogFormat, ProcessConfig, Settings, receivers_max,
    render,
};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Upper bound on the processes of a role if the settings leave their number to the number of cores.
const PROCESSES_MAX: usize = 16;

/// Settings that the config process has checked, and the host's environment that they need.
#[derive(Debug)]
pub struct Prepared {
    settings: Settings,
    environment: HostEnvironment,
}

impl Prepared {
    /// Has the file read and checked, and collects the host's environment.
    pub fn read(file: &Path, log_format: Option<LogFormat>) -> Result<Prepared> {
        let mut settings = ask(file)?;
        if let Some(format) = log_format {
            settings.log.format = format;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let by_cores = u32::try_from((cores / 2).clamp(1, PROCESSES_MAX)).unwrap_or(1);
        let receivers_max = receivers_max(settings.limits.session_memory_bytes_max);
        let processes = &mut settings.processes;
        for (count, most) in
            [(&mut processes.receive, receivers_max), (&mut processes.send, u32::MAX)]
        {
            if *count == 0 {
                *count = by_cores.min(most);
            }
        }
        let user = rustix::process::geteuid();
        let environment =
            crate::host::environment(&settings, (!user.is_root()).then(|| user.as_raw()));
        let problems = settings.problems_here(&environment, ports::is_group);
        if !problems.is_empty() {
            return Err(anyhow!(render(&problems).trim_end().to_owned()));
        }
        Ok(Prepared { settings, environment })
    }

    /// Returns the number of receive processes.
    pub fn receivers(&self) -> u16 {
        u16::try_from(self.settings.processes.receive).unwrap_or(u16::MAX)
    }

    /// Returns the number of send processes.
    pub fn senders(&self) -> u16 {
        u16::try_from(self.settings.processes.send).unwrap_or(u16::MAX)
    }

    /// Returns how master writes its log.
    pub fn log(&self) -> Style {
        wiring::log_style(&self.settings)
    }

    /// Returns the addresses at which clients can connect, for people.
    pub fn addresses(&self) -> String {
        let one = |listen: &Listen| match &listen.address {
            ListenAddress::Tcp(address) => address.to_string(),
            ListenAddress::Unix(path) => format!("unix:{}", path.display()),
        };
        self.settings.listen.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Locks the state directory for as long as this master runs, so that a second master cannot take over its sockets.
    /// The spool has its own lock.
    pub fn lock_state(&self) -> Result<OwnedFd> {
        let state = &self.settings.state;
        let lock = directory(state, None, 0o755)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(anyhow!(
                "the spool in {} is locked: another posthaste runs there; stop it, or choose another directory with `state` in the settings",
                state.display()
            )),
            // Some network file systems do not support locks on directories.
            _ => Ok(lock),
        }
    }

    /// Makes the directories and binds the ports.
    pub fn resources(&self) -> Result<Resources> {
        let listen = self.settings.listen.iter();
        let listeners = listen.map(ports::bind_patiently);
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        self.with_listeners(listeners, None)
    }

    /// Does the same after a reload. Keeps the ports that are still in the settings, so that no connection is refused.
    pub fn resources_after(&self, former: &Prepared, resources: &Resources) -> Result<Resources> {
        if self.settings.state != former.settings.state {
            return Err(anyhow!("`state` cannot change while the mailer runs: restart it"));
        }
        if self.settings.processes != former.settings.processes {
            return Err(anyhow!("[processes] cannot change while the mailer runs: restart it"));
        }
        let mut listeners = Vec::new();
        let permissions = |listen: &Listen| (listen.mode, listen.group.clone());
        for listen in &self.settings.listen {
            let same = |old: &Listen| old.address == listen.address;
            listeners.push(match former.settings.listen.iter().position(same) {
                Some(at) => {
                    if permissions(&former.settings.listen[at]) != permissions(listen) {
                        ports::permit(listen)?;
                    }
                    clone_fd(&resources.listeners[at])?
                }
                None => ports::bind_at(listen)?,
            });
        }
        self.with_listeners(listeners, resources.admin.as_ref())
    }

    fn with_listeners(
        &self,
        listeners: Vec<OwnedFd>,
        admin: Option<&OwnedFd>,
    ) -> Result<Resources> {
        let state = &self.settings.state;
        let state_directory = directory(state, None, 0o755)?;
        let spool = spool_directory::open(state, self.user(Role::Queue))?;
        directory(&state.join("mail"), self.user(Role::Local), 0o711)?;
        let empty = directory(&state.join("empty"), None, 0o555)?;
        let admin = match admin {
            Some(admin) => clone_fd(admin)?,
            None => {
                let admin = ports::unix(&self.control_path(), Mode::from_raw_mode(0o600))?;
                ports::open(&admin)?;
                admin
            }
        };
        let config = ProcessConfig {
            settings: self.settings.clone(),
            environment: self.environment.clone(),
        };
        let settings = crate::process::sealed_config::seal(&config)?;
        let state = state_directory;
        Ok(Resources { settings, listeners, admin: Some(admin), spool, state, empty })
    }

    /// Notes that queue has opened the spool.
    pub fn note_spool(&self) {
        spool_directory::note(&self.settings.state);
    }

    fn control_path(&self) -> PathBuf {
        self.settings.state.join("control.sock")
    }

    /// Removes the Unix sockets.
    pub fn remove_sockets(&self) {
        let _ = rustix::fs::unlink(self.control_path());
        for listen in &self.settings.listen {
            if let ListenAddress::Unix(path) = &listen.address {
                let _ = rustix::fs::unlink(path);
            }
        }
    }

    fn user(&self, role: Role) -> Option<(u32, u32)> {
        match wiring::privilege(role, &self.settings) {
            jail::Privilege::Root(user) => Some((user.uid, user.gid)),
            jail::Privilege::Ordinary => None,
        }
    }
}

/// Has the config process read and check the file. Master only opens it.
fn ask(file: &Path) -> Result<Settings> {
    let shown = file.display().to_string();
    let input = std::fs::File::open(file).with_context(|| format!("settings file {shown}"))?;
    let (answer, output) = std::io::pipe()?;
    let mut child = Command::new("/proc/self/exe")
        .arg0("posthaste")
        .args(["role", Role::Config.name()])
        .env(config::SHOWN, &shown)
        .stdin(input)
        .stdout(output)
        .spawn()
        .context("cannot start the config process")?;
    let settings = config::read(answer.into());
    child.wait()?;
    Ok(settings?)
}

/// Opens a directory. Makes it for this user if there is none.
fn directory(path: &Path, owner: Option<(u32, u32)>, mode: u32) -> Result<OwnedFd> {
    let advice = || {
        format!("cannot use directory {}: `state` in the settings says where it is", path.display())
    };
    let made = !path.exists();
    if made {
        std::fs::create_dir_all(path).with_context(advice)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(path, flags, Mode::empty()).with_context(advice)?;
    if made {
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)).with_context(advice)?;
        if let Some((uid, gid)) = owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::fchown(&fd, Some(uid), Some(gid)).with_context(advice)?;
        }
    }
    Ok(fd)
}
