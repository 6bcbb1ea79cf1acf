//! The directory of the spool: missing, of another kind, in use, deleted, copied (S135, S140, S141, S142).
//!
//! Must never start a second mailer in a directory of another file's test.

use crate::rig::{POSTHASTE, Rig, can_mount};
use crate::support::load::Load;
use crate::support::{Setup, until};
use crate::volume::{Volume, run};
use needs::Need;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn s135_a_spool_that_is_missing_or_empty_where_there_was_one_is_not_made_anew() {
    let mut rig = Rig::usual();
    rig.promise_many(5, 2_000);
    rig.daemon.stop();
    let (spool, aside) = (rig.spool(), rig.daemon.state().join("aside"));
    fs::rename(&spool, &aside).unwrap();
    let said = rig.refuses_to_start();
    assert!(said.contains("is missing") && said.contains("not mounted"), "{said}");
    assert!(!spool.exists(), "made silently");
    // The mount point without its file system.
    fs::create_dir(&spool).unwrap();
    let meta = fs::metadata(&aside).unwrap();
    fs::set_permissions(&spool, meta.permissions()).unwrap();
    use std::os::unix::fs::MetadataExt;
    chown(&spool, Some(meta.uid()), Some(meta.gid())).unwrap();
    let said = rig.refuses_to_start();
    assert!(said.contains("is empty") && said.contains("not mounted"), "{said}");
    assert_eq!(names(&spool), Vec::<String>::new());
    fs::remove_dir(&spool).unwrap();
    fs::rename(&aside, &spool).unwrap();
    rig.daemon.start_again();
    assert_eq!(rig.drain(), 0);
}

#[test]
fn s135_s145_a_spool_that_is_a_file_a_link_or_open_to_others_is_refused_with_its_name_and_the_reason()
 {
    let mut rig = Rig::usual();
    rig.promise_many(5, 2_000);
    rig.daemon.stop();
    let (spool, aside) = (rig.spool(), rig.daemon.state().join("aside"));
    let mode = |mode| fs::set_permissions(&spool, fs::Permissions::from_mode(mode)).unwrap();
    for bad in [0o000, 0o777, 0o720] {
        mode(bad);
        let said = rig.refuses_to_start();
        let shown = spool.to_str().unwrap();
        assert!(said.contains(shown) && said.contains("chmod 700"), "{bad:o}: {said}");
    }
    mode(0o700);
    fs::rename(&spool, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &spool).unwrap();
    let said = rig.refuses_to_start();
    assert!(said.contains("must be a directory"), "{said}");
    fs::remove_file(&spool).unwrap();
    fs::write(&spool, "a file").unwrap();
    let said = rig.refuses_to_start();
    assert!(said.contains("must be a directory"), "{said}");
    fs::remove_file(&spool).unwrap();
    fs::rename(&aside, &spool).unwrap();
    rig.daemon.start_again();
    assert_eq!(rig.drain(), 0);
}

#[test]
fn s135_s145_a_spool_of_another_user_is_refused_and_said_whose_it_is() {
    if !needs::met(&[Need::Root("chown")]) {
        return;
    }
    let mut rig = Rig::usual();
    rig.promise_many(5, 2_000);
    rig.daemon.stop();
    let spool = rig.spool();
    let ours = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&spool).unwrap());
    chown(&spool, Some(12_345), None).unwrap();
    let said = rig.refuses_to_start();
    assert!(said.contains("belongs to user 12345") && said.contains("chown"), "{said}");
    chown(&spool, Some(ours), None).unwrap();
    // A file of another user in the directory. It is not readable, so it is not silently ignored.
    let segment = spool.join("segment-00000000");
    chown(&segment, Some(12_345), Some(12_345)).unwrap();
    fs::set_permissions(&segment, fs::Permissions::from_mode(0o600)).unwrap();
    rig.daemon.start_again();
    rig.daemon.wait_for_log(&["spool damaged", "segment-00000000"]);
    rig.daemon.stop();
    chown(&segment, Some(ours), Some(ours)).unwrap();
    rig.daemon.start_again();
    rig.drain();
}

#[test]
fn s135_a_spool_on_a_file_system_of_its_own_works_and_is_missed_when_that_is_not_mounted() {
    if !can_mount("ext4") {
        return;
    }
    let mut rig = Rig::usual();
    rig.daemon.stop();
    let volume = Volume::image("ext4", 64, &[], "");
    let (spool, own) = (rig.spool(), volume.path.join("spool"));
    let text = |path: &Path| path.to_str().unwrap().to_string();
    run("cp", &["-a", &text(&spool), &text(&own)]);
    fs::read_dir(&spool)
        .unwrap()
        .flatten()
        .for_each(|entry| fs::remove_file(entry.path()).unwrap());
    run("mount", &["--bind", &text(&own), &text(&spool)]);
    rig.daemon.start_again();
    rig.promise_many(5, 2_000);
    rig.daemon.stop();
    run("umount", &["-l", &text(&spool)]);
    let said = rig.refuses_to_start();
    assert!(said.contains("is empty") && said.contains("not mounted"), "{said}");
    run("mount", &["--bind", &text(&own), &text(&spool)]);
    rig.daemon.start_again();
    assert_eq!(rig.drain(), 0);
    rig.daemon.stop();
    run("umount", &["-l", &text(&spool)]);
}

/// In `restart.rs` the second mailer runs beside the first. Here the kernel sees it in another container, and
/// the first mailer has died and left the lock file.
#[test]
fn s140_a_second_mailer_in_another_pid_namespace_is_refused_and_a_stale_lock_is_no_lock() {
    if !needs::met(&[Need::Root("mount"), Need::Mounts]) {
        return;
    }
    let mut rig = Rig::usual();
    rig.promise_many(5, 2_000);
    let run_elsewhere = || {
        let arguments = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "timeout"];
        let output = Command::new("unshare")
            .args(arguments)
            .args(["20", POSTHASTE, "run", "--config"])
            .arg(rig.daemon.directory.join("posthaste.toml"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.code().is_some_and(|code| code != 0 && code != 124), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = run_elsewhere();
    assert!(said.contains("is locked"), "{said}");
    // Only the spool is shared: each container has a state directory of its own around it.
    rig.daemon.works();
    assert!(rig.spool().join("lock").exists());
    rig.restart();
    assert_eq!(rig.drain(), 0);
}

/// Two state directories with one spool by a bind mount: the lock of the spool decides.
#[test]
fn s140_two_state_directories_cannot_share_a_spool() {
    if !needs::met(&[Need::Root("mount"), Need::Mounts]) {
        return;
    }
    let mut rig = Rig::usual();
    rig.promise_many(5, 2_000);
    // The namespace belongs to this thread. Only processes that start from now on see the mount.
    let volume = Volume::tmpfs("size=64m");
    let state = volume.path.join("state");
    let spool = state.join("spool");
    fs::create_dir_all(&spool).unwrap();
    run("mount", &["--bind", rig.spool().to_str().unwrap(), spool.to_str().unwrap()]);
    let said = rig.refuses_elsewhere(&state);
    assert!(said.contains("another process is using this spool"), "{said}");
    run("umount", &["-l", spool.to_str().unwrap()]);
    assert_eq!(rig.drain(), 0);
}

#[test]
fn s141_a_spool_deleted_under_the_mailer_is_451_and_old_mail_is_delivered_while_it_can_be_read() {
    let mut rig = Rig::usual();
    rig.promise_many(10, 2_000);
    let load = Load::start_paced(2, rig.daemon.port, "b@sink.test", Duration::from_millis(2));
    load.wait_for_more(30);
    fs::remove_dir_all(rig.spool()).unwrap();
    until("mail to be refused", || (!load.failures().is_empty()).then_some(()));
    let mut last = load.promised();
    until("nobody to be promised anything", || {
        std::thread::sleep(Duration::from_millis(300));
        let before = std::mem::replace(&mut last, load.promised());
        (before == last).then_some(())
    });
    let failures = load.failures();
    assert!(failures.iter().all(|reply| reply.starts_with("451 4.3.0")), "{failures:?}");
    rig.add(load, 2_000);
    rig.daemon.wait_for_log(&["the spool cannot be written", "No such file"]);
    rig.does_not_spin();
    let sink = rig.open_sink();
    until("all that was promised", || rig.compare(&sink.mails()).0.is_empty().then_some(()));
    rig.daemon.stop();
    let said = rig.refuses_to_start();
    assert!(said.contains("is missing"), "{said}");
}

#[test]
fn s142_a_copy_of_a_running_spool_opens_and_has_all_that_was_promised_before_it_was_taken() {
    let mut rig = Rig::usual();
    rig.promise_many(20, 2_000);
    rig.promise_many(3, 300_000);
    let load = Load::start_paced(2, rig.daemon.port, "b@sink.test", Duration::from_millis(2));
    load.wait_for_more(100);
    let volume = rig.daemon.directory.join("copy");
    fs::create_dir(&volume).unwrap();
    let (from, to) = (rig.spool(), volume.join("spool"));
    run("cp", &["-a", from.to_str().unwrap(), to.to_str().unwrap()]);
    load.wait_for_more(20);
    let setup = Setup { state: Some(volume), ..Setup::default() };
    let mut copy = Rig::start(setup);
    assert!(!copy.daemon.log().contains("damaged"), "{}", copy.daemon.log());
    copy.promised_as(&rig);
    assert_eq!(copy.drain(), 0);
    rig.add(load, 2_000);
    assert_eq!(rig.drain(), 0);
}
