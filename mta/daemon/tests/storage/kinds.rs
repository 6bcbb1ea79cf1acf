//! File systems without `fallocate`, without a disk, or above another file system (S146).
//!
//! Must never claim that mail survives a loss of power there. A test cannot find out whether a sync has an
//! effect, and `docs/durability.md` says so.

use crate::rig::{Rig, SMALL, can_mount, can_trace};
use crate::support::Setup;
use crate::volume::Volume;
use needs::Need;

/// Accepts, dies, recovers, delivers.
fn works_on(volume: &Volume) {
    let mut rig = Rig::on(volume);
    rig.promise_many(10, 2_000);
    rig.promise_many(8, 300_000);
    rig.restart();
    rig.promise_many(10, 2_000);
    assert_eq!(rig.drain(), 0);
    rig.restart();
    assert_eq!(rig.daemon.queued(), 0);
}

#[test]
fn s146_memory_as_a_file_system_works() {
    if !needs::met(&[Need::Root("mount"), Need::Mounts]) {
        return;
    }
    works_on(&Volume::tmpfs("size=64m,mode=755"));
}

/// ext2 does not have `fallocate`: EOPNOTSUPP. The zeros that are written in advance reserve the blocks.
#[test]
fn s146_a_file_system_without_fallocate_works() {
    if !can_mount("ext2") {
        return;
    }
    works_on(&Volume::image("ext2", 64, &[], ""));
}

#[test]
fn s146_an_overlay_works() {
    if !can_mount("ext4") || !needs::met(&[Need::Overlay]) {
        return;
    }
    let disk = Volume::image("ext4", 64, &[], "");
    let overlay = Volume::overlay(&disk.path.join("lower"), &disk.path.join("upper"));
    works_on(&overlay);
}

/// The message about a file system that refuses any of the calls that the spool needs.
#[test]
fn s146_a_file_system_that_cannot_sync_a_directory_refuses_mail_and_says_why() {
    if !can_trace() {
        return;
    }
    let mut rig = Rig::start(Setup { spool: SMALL.into(), ..Setup::default() });
    let strace = rig.inject_everywhere(&["fsync:error=EINVAL", "fdatasync:error=EINVAL"]);
    let replies = rig.offer_many(4, 2_000);
    assert_eq!(replies, ["451 4.3.0"; 4]);
    rig.daemon.wait_for_log(&["Invalid argument"]);
    strace.detach();
    rig.until_taken();
    rig.drain();
}
