//! The local process: delivers into the mailboxes of this machine.
//!
//! Must never write outside the mailboxes' directory, run as root after its start, or decide the outcome of a message: the
//! crate `local` does.
//!
//! The process runs as its own user and has the directory of the mailboxes and no other file. If mail belongs to the system's
//! users or goes to a program, the process first starts a fork server, which keeps the privileges, parses nothing but the name
//! of a user, and starts a worker for each user ([`forks`]).
//!
//! Master sends orders, queue sends attempts and bodies and gets outcomes, and workers report on their batches.
//!
//! | from queue (`link::send`) | effect |
//! |---|---|
//! | `Attempt` | each recipient waits for its delivery user; a large body is fetched first |
//! | `Chunk`, `ChunkBad` | the fetch continues, or ends |
//! | `Recorded` | the result is not repeated any more |
//!
//! The machine is [`local::LocalDelivery`]; [`driver`] drives it. This file starts the process.

mod crew;
mod driver;
mod events;
mod forks;
mod own;
mod pipe;
mod staging;
#[cfg(test)]
mod tests;
mod wanted;
mod worker;

use crate::io::control::Control;
use crate::jail::{self, Privilege, Profile, Role, Root};
use crate::log::Log;
use crate::mailbox::SLICE_FILES_MAX;
use crate::process::child::{ChildStart, PeerStream, runtime};
use crate::process::wiring;
use crew::Crew;
use driver::Driver;
use forks::{Forks, WorkerRights};
use own::{OwnThread, OwnThreadSetup};
use settings::Deliver;
use std::io;
use tokio::sync::mpsc::unbounded_channel;
use wanted::{Directories, WORKERS_MAX, Wanted};

/// Each message of a batch is an open file, and so are its mailbox's two directories; workers have a
/// socket each.
const OPEN_FILES_MAX: u64 = 2048;
const _: () = assert!(3 * SLICE_FILES_MAX + WORKERS_MAX + 64 <= OPEN_FILES_MAX as usize);

/// Runs until master has ended or tells the process to end.
pub fn run(start: ChildStart) -> io::Result<()> {
    let wanted = Wanted::of(&start.config);
    let privilege = wiring::privilege(Role::Local, &start.config.settings);
    // With the signal ignored, a write to a mailbox that may not grow fails with EFBIG.
    // SAFETY: SIG_IGN is a valid disposition.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let forks = start_forks(&wanted, &privilege)?;
    let directories = Directories::open(&wanted, owner(&privilege))?;
    let jail = jail::confine(&profile(privilege, &directories)?).map_err(io::Error::other)?;
    let log = Log::start("local", wiring::log_style(&start.config.settings))?;
    let report = jail.seal().map_err(io::Error::other)?;
    log.info(&report.to_string());
    begin(start.control, start.peers, StartedLocal { wanted, directories, forks }, log)
}

/// What is started and opened before the process is confined.
struct StartedLocal {
    wanted: Wanted,
    directories: Directories,
    forks: Option<Forks>,
}

fn owner(privilege: &Privilege) -> Option<(u32, u32)> {
    match privilege {
        Privilege::Root(user) => Some((user.uid, user.gid)),
        Privilege::Ordinary => None,
    }
}

/// Returns a profile with one directory.
fn profile(privilege: Privilege, directories: &Directories) -> io::Result<Profile> {
    let inside = match privilege {
        Privilege::Root(_) => "/".into(),
        Privilege::Ordinary => directories.stage_path().to_owned(),
    };
    let mut profile = Profile::mailbox(privilege, vec![inside])
        .ends_with(wiring::parent())
        .open_files(OPEN_FILES_MAX);
    if let Privilege::Root(_) = profile.privilege {
        profile.root = Root::At(directories.stage()?);
    }
    Ok(profile)
}

/// Starts the fork server if workers are needed. The process must still have one thread and its privileges.
fn start_forks(wanted: &Wanted, privilege: &Privilege) -> io::Result<Option<Forks>> {
    let rights = WorkerRights {
        privilege: privilege.clone(),
        shared: wanted.shared_directory(),
        runs_programs: matches!(wanted.local.deliver, Deliver::Pipe(_)),
    };
    wanted.needs_workers().then(|| Forks::start(&wanted.environment, rights)).transpose()
}

/// Runs in the jail.
fn begin(
    control: Control,
    peers: Vec<PeerStream>,
    opened: StartedLocal,
    log: Log,
) -> io::Result<()> {
    let StartedLocal { wanted, directories, forks } = opened;
    let (events, heard) = unbounded_channel();
    let setting = OwnThreadSetup {
        hostname: wanted.hostname.clone(),
        groups: wanted.environment.groups(None),
        base: directories.own.clone(),
    };
    let own = OwnThread::start(setting, events.clone())?;
    let runtime = runtime()?;
    runtime.run(async move {
        let crew = Crew::new(forks, wanted.hostname.clone(), events);
        let mut driver = Driver::new(control, wanted, directories.stage()?, own, crew, log)?;
        driver.serve(peers, heard).await
    })
}
