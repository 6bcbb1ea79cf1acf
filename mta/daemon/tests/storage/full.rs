//! No room: disk space, blocks, quota, file size, inodes (S118, S119, S120).
//!
//! Must never accept 451 as the reply: the client must learn that room is missing.

use crate::cut::{notices, refusing, send_doomed};
use crate::rig::{Rig, can_mount, can_trace};
use crate::support::load::Load;
use crate::support::until;
use crate::volume::{Volume, run};
use needs::Need;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

const NO_ROOM: &str = "452 4.3.1";
/// Size of the bodies of the load that fills the disk.
const BODY_BYTES: usize = 40_000;

/// Sends until there is no room, makes room, sends more, and compares.
fn fills_and_resumes(mut rig: Rig, fill: impl FnOnce(), make_room: impl FnOnce()) {
    rig.promise_many(3, 2_000);
    fill();
    let rest = Duration::from_millis(5);
    let load = Load::start_sized(3, rig.daemon.port, "b@sink.test", rest, BODY_BYTES);
    until("the disk to be full", || (!load.failures().is_empty()).then_some(()));
    rig.daemon.wait_for_log(&["no room for another segment"]);
    until("nobody to be taken any more", || {
        let before = load.promised();
        std::thread::sleep(Duration::from_millis(300));
        (load.promised() == before).then_some(())
    });
    rig.does_not_spin();
    let failures = load.failures();
    assert!(failures.iter().all(|reply| reply.starts_with(NO_ROOM)), "{failures:?}");
    make_room();
    load.wait_for_more(20);
    rig.daemon.wait_for_log(&["there is room for segments again"]);
    rig.add(load, BODY_BYTES);
    let twice = rig.drain();
    assert_eq!(twice, 0, "nothing was ambiguous");
    rig.refused_stay_away();
}

#[test]
fn s118_a_full_disk_answers_452_loses_nothing_and_takes_mail_again_when_there_is_space() {
    if !can_mount("ext4") {
        return;
    }
    let volume = Volume::image("ext4", 64, &[], "");
    let rig = Rig::on(&volume);
    fills_and_resumes(rig, || volume.fill(), || volume.make_room());
}

#[test]
fn s120_a_file_system_without_inodes_answers_452_and_takes_mail_again_when_there_are_some() {
    if !can_mount("ext4") {
        return;
    }
    let volume = Volume::image("ext4", 200, &["-N", "64"], "");
    let rig = Rig::on(&volume);
    fills_and_resumes(rig, || volume.fill_inodes(), || volume.make_room());
}

/// Delivery of the queued messages frees the room without help, and bounces and outcomes use the reserve.
#[test]
fn s118_a_disk_filled_by_the_queue_itself_drains_bounces_and_takes_mail_again() {
    if !can_mount("ext4") {
        return;
    }
    let volume = Volume::image("ext4", 32, &[], "");
    let mut rig = Rig::on(&volume);
    let doomed = send_doomed(rig.daemon.port, 5);
    let rest = Duration::from_millis(2);
    let load = Load::start_sized(3, rig.daemon.port, "b@sink.test", rest, BODY_BYTES);
    until("the disk to be full", || (!load.failures().is_empty()).then_some(()));
    rig.add(load, BODY_BYTES);
    let full = until("the last room to be taken", || {
        Some(rig.offer(BODY_BYTES)).filter(|reply| reply.code != 250)
    });
    assert_eq!((full.code, full.enhanced()), (452, "4.3.1"));
    let sink = rig.open_sink_with(refusing());
    until("each failure to be told", || {
        let notices = notices(&sink);
        doomed.iter().all(|word| notices.get(word) == Some(&1)).then_some(())
    });
    rig.drain();
    rig.until_taken();
    rig.drain();
    rig.refused_stay_away();
}

/// The n-th call of each thread that writes, with each error that means "no room". Each call has a mailer of
/// its own, because the pause after a failure in the background is two seconds.
#[test]
fn s118_s119_no_room_at_the_nth_call_of_any_kind_is_452_and_loses_nothing() {
    if !can_trace() {
        return;
    }
    std::thread::scope(|scope| {
        for (thread, call) in [
            ("commit-0", "pwrite64"),
            ("commit-0", "fdatasync"),
            ("background-0", "pwrite64"),
            ("background-0", "fdatasync"),
            ("background-0", "fallocate"),
            ("background-0", "openat"),
            ("background-0", "fsync"),
        ] {
            scope.spawn(move || no_room_at(thread, call));
        }
    });
}

fn no_room_at(thread: &str, call: &str) {
    let mut rig = Rig::usual();
    let mut refused = BTreeSet::new();
    for (nth, error) in [(1, "ENOSPC"), (3, "EDQUOT")] {
        let strace = rig.inject(thread, &[&format!("{call}:error={error}:when={nth}")]);
        // More than a segment, so that a segment must be created.
        refused.extend(rig.offer_many(7, 180_000));
        until("the call to fail", || {
            refused.extend(rig.offer_many(1, 180_000));
            (strace.injected() > 0).then_some(())
        });
        strace.detach();
        rig.until_taken();
    }
    assert!(refused.iter().all(|reply| reply == NO_ROOM), "{thread} {call}: {refused:?}");
    assert_eq!(rig.drain(), 0, "{thread} {call}");
    rig.refused_stay_away();
}

/// After three failures in a row the mailer refuses mail for a while, still with 452.
#[test]
fn s118_no_room_at_every_sync_is_452_does_not_spin_and_ends_with_the_fault() {
    if !can_trace() {
        return;
    }
    let mut rig = Rig::usual();
    rig.promise_many(3, 2_000);
    let strace = rig.inject_everywhere(&["fdatasync:error=ENOSPC"]);
    // The alarm reports three failures in a row. Without mail nothing is written, because no attempt begins.
    for _ in 0..3 {
        let replies: BTreeSet<_> = rig.offer_many(8, 2_000).into_iter().collect();
        assert_eq!(replies, BTreeSet::from([NO_ROOM.to_string()]));
    }
    rig.daemon.wait_for_log(&["the spool cannot be written", "No space left"]);
    rig.does_not_spin();
    strace.detach();
    rig.until_taken();
    rig.daemon.wait_for_log(&["the spool can be written again"]);
    rig.drain();
}

/// The limit is set on the running process. The kernel shortens writes that cross the limit before the next one
/// fails with SIGXFSZ and EFBIG: real short writes, S126.
#[test]
fn s119_s126_a_file_size_limit_is_452_kills_nobody_and_is_over_when_it_is_raised() {
    if !needs::met(&[Need::Root("limits of other processes")]) {
        return;
    }
    let mut rig = Rig::usual();
    rig.promise_many(3, 2_000);
    let queue = rig.queue();
    // As the user of queue, because root without CAP_SYS_RESOURCE may not set the limit.
    let user = std::fs::metadata(format!("/proc/{queue}")).unwrap().uid().to_string();
    let limit = |bytes: &str| {
        let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
        let (pid, limit) = (queue.to_string(), format!("--fsize={bytes}:"));
        let prlimit = [&user, &group, "--clear-groups", "prlimit", "--pid", &pid, &limit];
        run("setpriv", &prlimit);
    };
    limit("300001");
    let refused: BTreeSet<_> = rig.offer_many(12, 100_000).into_iter().collect();
    assert_eq!(refused, BTreeSet::from([NO_ROOM.to_string()]));
    rig.daemon.wait_for_log(&["File too large"]);
    rig.does_not_spin();
    limit("unlimited");
    rig.until_taken();
    assert_eq!(rig.queue(), queue, "the queue process has died");
    rig.drain();
}
