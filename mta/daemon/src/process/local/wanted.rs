//! What of the settings the local process is started with, and the directories that it opens by them.
//! Must never open a directory after the jail is shut.

use crate::mailbox::{Base, SLICE_FILES_MAX};
use local::LocalLimits;
use settings::{Deliver, HostEnvironment, ProcessConfig, Users};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Attempts that the queue process may give this process at once: two batches and a half, so that one
/// gathers while one syncs. With bodies of at most `link::send::INLINE_BYTES_MAX`, and one copy, that
/// bounds the memory.
const ATTEMPTS_MAX: u32 = 512;
/// Deliveries of one batch: as many as are synced together.
const BATCH_ITEMS_MAX: usize = SLICE_FILES_MAX;
/// Large messages fetched at once.
const FETCHES_MAX: usize = 8;
/// Worker processes at once.
pub(super) const WORKERS_MAX: usize = 64;
/// How long an idle worker is kept.
const WORKER_IDLE_MAX: Duration = Duration::from_secs(60);
/// How long one batch may take: each of its deliveries may be to a program that takes its time.
const BATCH_TIME_MAX: Duration = Duration::from_secs(3600);
/// How long a drain waits for deliveries that have begun.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(8);
const _: () = assert!(ATTEMPTS_MAX as u64 * link::send::INLINE_BYTES_MAX <= 32 << 20);

/// Below the state directory: where large messages are staged if the mailboxes are not ours.
const STAGE_NAME: &str = "local";

/// The part of the settings that a jailed process cannot change: if it changes, master starts another
/// local process.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The name of this host.
    pub hostname: String,
    /// `{state}`.
    pub state: PathBuf,
    /// `[local]`.
    pub local: settings::LocalSettings,
    /// The accounts of the system, who may be delivered to, and its group `mail`; nothing else.
    pub environment: HostEnvironment,
}

/// The directories that this process holds open.
#[derive(Debug)]
pub struct Directories {
    /// The directory of all mailboxes, if this process delivers itself.
    pub own: Option<Arc<Base>>,
    /// Where large messages are staged: on the disk of the mailboxes, if those are ours.
    stage: Arc<Base>,
}

impl Wanted {
    /// Picks the part out of what master handed over.
    pub fn of(config: &ProcessConfig) -> Wanted {
        let HostEnvironment { accounts, mail_group, only_user, .. } = config.environment.clone();
        Wanted {
            hostname: config.settings.hostname.as_str().to_owned(),
            state: config.settings.state.clone(),
            local: config.settings.local.clone(),
            environment: HostEnvironment {
                accounts,
                mail_group,
                only_user,
                ..HostEnvironment::default()
            },
        }
    }

    /// The settings of the machine.
    pub fn machine(&self) -> local::Settings {
        local::Settings {
            state: self.state.to_string_lossy().into_owned(),
            deliver: self.local.deliver.clone(),
            users: self.local.users,
            mailboxes: self.local.mailboxes(&self.environment),
            limits: LocalLimits {
                attempts_max: ATTEMPTS_MAX,
                fetches_max: FETCHES_MAX,
                batch_items_max: BATCH_ITEMS_MAX,
                workers_max: WORKERS_MAX,
                worker_idle_max: WORKER_IDLE_MAX,
                batch_time_max: BATCH_TIME_MAX,
                drain_time_max: DRAIN_TIME_MAX,
            },
        }
    }

    /// Whether workers are needed, and with them a fork server.
    pub fn needs_workers(&self) -> bool {
        self.local.users == Users::System || matches!(self.local.deliver, Deliver::Pipe(_))
    }

    /// The directory of all users' mailboxes, if they are in one.
    pub fn shared_directory(&self) -> Option<PathBuf> {
        let (Deliver::Maildir(template) | Deliver::Mbox(template)) = &self.local.deliver else {
            return None;
        };
        template.shared_directory(&self.state.to_string_lossy()).map(PathBuf::from)
    }
}

impl Directories {
    /// Opens the directories, and makes those that are missing. `owner` is the user and group that a
    /// new one belongs to, if this process is root.
    pub fn open(wanted: &Wanted, owner: Option<(u32, u32)>) -> io::Result<Directories> {
        let own = match wanted.local.users {
            Users::Any => wanted.shared_directory(),
            Users::System => None,
        };
        let own = own.map(|base| open_base(base, owner).map(Arc::new)).transpose()?;
        let stage = match &own {
            Some(own) => own.clone(),
            None => Arc::new(open_base(wanted.state.join(STAGE_NAME), owner)?),
        };
        Ok(Directories { own, stage })
    }

    /// The directory where large messages are staged.
    pub fn stage(&self) -> io::Result<OwnedFd> {
        self.stage.directory().try_clone_to_owned()
    }

    /// The path of that directory: all that this process needs of the file tree is below it.
    pub fn stage_path(&self) -> &Path {
        self.stage.path()
    }
}

fn open_base(path: PathBuf, owner: Option<(u32, u32)>) -> io::Result<Base> {
    let new = !path.exists();
    let base = Base::open(path, true)?;
    if let (true, Some((user, group))) = (new, owner) {
        std::os::unix::fs::fchown(base.directory(), Some(user), Some(group))?;
    }
    Ok(base)
}
