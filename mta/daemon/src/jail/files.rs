//! Giving up files: the root directory, and what Landlock keeps from us. Must never need anything
//! that a plain container or Debian 12's kernel lacks.

use super::{Files, JailError, Role, Root};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where a directory may be made that is deleted at once.
const PLACES: [&str; 4] = ["/run", "/tmp", "/var/tmp", "/dev/shm"];

/// Leaves the file tree, as root.
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

/// A directory that has no name any more. Nothing can be made in it, by nobody.
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
    // Fails where somebody was there before us.
    std::fs::DirBuilder::new().mode(0o711).create(&path)?;
    let opened = std::fs::File::open(&path);
    std::fs::remove_dir(&path)?;
    Ok(opened?.into())
}

/// The newest Landlock that we ask for; an older kernel gives what it has. Debian 12's gives V2,
/// which is all that we rely on: files and not the network, which is seccomp's.
const ABI_ASKED: ABI = ABI::V5;

/// Confines this thread, and those it will start, to `files`, and where the role keeps no network,
/// and the kernel is new enough, out of TCP. Says how much of it the kernel gave.
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
