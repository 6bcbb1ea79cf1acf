//! Giving up files, by a new root directory and by Landlock.
//!
//! Must never need anything that a plain container or the kernel of Debian 12 lacks.

use super::{Files, JailError, Role, Root};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Directories in which an empty directory can be made that is deleted at once.
const PLACES: [&str; 4] = ["/run", "/tmp", "/var/tmp", "/dev/shm"];

/// Changes the root directory. Needs root.
pub(super) fn change_root(root: &Root) -> Result<(), JailError> {
    match root {
        Root::Keep => Ok(()),
        Root::Empty => chroot(deleted_directory()?.as_fd()),
        Root::At(directory) => chroot(directory.as_fd()),
    }
}

fn chroot(directory: BorrowedFd<'_>) -> Result<(), JailError> {
    let step = |step, result: rustix::io::Result<()>| {
        result.map_err(|error| JailError::step(step)(error.into()))
    };
    step("go to the new root", rustix::process::fchdir(directory))?;
    step("change the root directory", rustix::process::chroot("."))?;
    step("go to the new root", rustix::process::chdir("/"))
}

/// Returns a directory that has been deleted. Nobody can make anything in it.
fn deleted_directory() -> Result<OwnedFd, JailError> {
    let mut cause = std::io::ErrorKind::NotFound.into();
    for place in PLACES {
        match deleted_below(place) {
            Ok(directory) => return Ok(directory),
            Err(error) => cause = error,
        }
    }
    Err(JailError::Step { step: "make an empty root directory", cause })
}

fn deleted_below(place: &str) -> std::io::Result<OwnedFd> {
    use std::os::unix::fs::DirBuilderExt;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map_or(0, |time| time.as_nanos());
    let path = format!("{place}/posthaste-empty-{}-{nanos}", std::process::id());
    // Fails if somebody has made this name before.
    std::fs::DirBuilder::new().mode(0o711).create(&path)?;
    let opened = std::fs::File::open(&path);
    std::fs::remove_dir(&path)?;
    Ok(opened?.into())
}

/// The newest version of Landlock that is requested. An older kernel gives what it has. Debian 12 has V2, which is all
/// that we rely on: Landlock confines files, and seccomp the network.
const ABI_ASKED: ABI = ABI::V5;

/// Confines this thread and those that it starts to `files`. Also denies TCP if the role does not need it and the kernel
/// is new enough. Returns how much of this the kernel enforces.
pub(super) fn restrict(role: Role, files: &Files) -> Result<&'static str, JailError> {
    let Files::Below(directories) = files else { return Ok("not asked for") };
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI_ASKED))?;
    if role != Role::Send {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI_ASKED))?;
    }
    let mut created = ruleset.create()?;
    for directory in directories {
        let place = PathFd::new(directory).map_err(|error| JailError::Step {
            step: "find a directory to keep",
            cause: std::io::Error::other(error),
        })?;
        let all_but_execute = AccessFs::from_all(ABI_ASKED) & !AccessFs::Execute;
        created = created.add_rule(PathBeneath::new(place, all_but_execute))?;
    }
    Ok(given(&created.restrict_self()?))
}

fn given(status: &RestrictionStatus) -> &'static str {
    match status.ruleset {
        RulesetStatus::FullyEnforced => "in full",
        RulesetStatus::PartiallyEnforced => "in part",
        RulesetStatus::NotEnforced => "not in this kernel",
    }
}
