//! The file system fails under load: it is shut down as by a loss of power, or an error remounts it read-only
//! (S136, S137, S138, X198, X199, X200).
//!
//! Must never repair what a reboot would not repair.

use crate::rig::{Rig, can_mount};
use crate::support::load::Load;
use crate::support::{Client, Script, Setup, Sink, token, until};
use crate::volume::Volume;
use std::collections::BTreeMap;
use std::time::Duration;

/// Size of the bodies of the load.
const BODY_BYTES: usize = 3_000;
/// Upper bound on the running attempts and on results on their way when the power fails, with these settings.
const TWICE_MAX: usize = 60;
const FEW_ATTEMPTS: &str = "[queue]\nattempts_in_flight_max = 20\n";

fn setup(volume: &Volume) -> Setup {
    Setup {
        state: Some(volume.path.join("state")),
        tables: FEW_ATTEMPTS.into(),
        ..Setup::default()
    }
}

/// Cuts the power and restores it.
fn cut_and_boot(rig: &Rig, volume: &Volume) {
    volume.cut();
    rig.daemon.kill();
    volume.unmount();
    volume.mount();
    rig.daemon.start_again();
}

fn cuts(kind: &'static str, megabytes: u64) {
    if !can_mount(kind) {
        return;
    }
    let volume = Volume::image(kind, megabytes, &[], "");
    let mut rig = Rig::start(setup(&volume));
    // Once while the next hop is down, and once while it is up.
    for round in 0..2 {
        let rest = Duration::from_millis(1);
        let load = Load::start_sized(3, rig.daemon.port, "b@sink.test", rest, BODY_BYTES);
        load.wait_for_more(100 + 50 * round);
        cut_and_boot(&rig, &volume);
        load.wait_for_more(20);
        rig.add(load, BODY_BYTES);
        rig.open_sink();
    }
    let twice = rig.drain();
    assert!(twice <= TWICE_MAX, "{twice} copies too many");
}

#[test]
fn s137_s138_what_got_250_survives_a_shutdown_of_ext4_under_load() {
    cuts("ext4", 64);
}

#[test]
fn s137_s138_what_got_250_survives_a_shutdown_of_xfs_under_load() {
    cuts("xfs", 320);
}

/// The disk fails under load, and the next hop continues to accept everything. The numbers of possible
/// duplicates in the log and of actual ones are printed.
fn dies_under_load(kind: &'static str, megabytes: u64) {
    if !can_mount(kind) {
        return;
    }
    let volume = Volume::image(kind, megabytes, &[], "");
    let state = Some(volume.path.join("state"));
    let mut rig = Rig::start(Setup { state, ..Setup::default() });
    let rest = Duration::from_millis(1);
    let load = Load::start_sized(6, rig.daemon.port, "b@sink.test", rest, BODY_BYTES);
    load.wait_for_more(600);
    let sink = rig.open_sink();
    until("mail at the next hop", || (sink.mails().len() >= 50).then_some(()));
    volume.cut();
    rig.daemon.wait_for_log(&["writes fail: "]);
    until("mail to be refused", || (!load.failures().is_empty()).then_some(()));
    rig.does_not_spin();
    let allowed = rig.may_come_twice();
    rig.daemon.kill();
    volume.unmount();
    volume.mount();
    rig.daemon.start_again();
    load.wait_for_more(20);
    rig.add(load, BODY_BYTES);
    let (promised, twice) = (rig.promised(), rig.drain());
    eprintln!("{kind}: {promised} promised, 0 lost, {twice} came twice, {allowed} were allowed");
    assert!(twice <= allowed, "{twice} came twice, {allowed} were allowed");
}

#[test]
fn r227_an_ext4_that_dies_under_load_duplicates_no_more_than_was_under_way() {
    dies_under_load("ext4", 64);
}

#[test]
fn r227_an_xfs_that_dies_under_load_duplicates_no_more_than_was_under_way() {
    dies_under_load("xfs", 320);
}

/// The effect of `errors=remount-ro`, requested by the file system's own option. `mount -o remount,ro` is
/// refused while the mailer has open files.
#[test]
fn s136_a_file_system_that_turns_read_only_under_load_is_451_and_loses_nothing() {
    if !can_mount("ext4") {
        return;
    }
    let volume = Volume::image("ext4", 64, &[], "errors=remount-ro");
    let mut rig = Rig::start(setup(&volume));
    rig.promise_many(20, 2_000);
    rig.open_sink();
    let rest = Duration::from_millis(1);
    let load = Load::start_sized(3, rig.daemon.port, "b@sink.test", rest, BODY_BYTES);
    load.wait_for_more(100);
    let switch = format!("/sys/fs/ext4/{}/trigger_fs_error", volume.device());
    std::fs::write(switch, "1").unwrap();
    until("mail to be refused", || (!load.failures().is_empty()).then_some(()));
    rig.daemon.wait_for_log(&["the spool cannot be written"]);
    let refused = rig.offer(1_000);
    assert_eq!((refused.code, refused.enhanced()), (451, "4.3.0"));
    rig.does_not_spin();
    let failures = load.failures();
    assert!(failures.iter().all(|reply| reply.starts_with("451 4.3.0")), "{failures:?}");
    rig.add(load, BODY_BYTES);
    rig.daemon.stop();
    volume.unmount();
    volume.repair();
    volume.mount();
    rig.daemon.start_again();
    rig.until_taken();
    // Delivered messages that could not be recorded are delivered once more at most, which `compare` counts.
    rig.drain();
}

/// An operator gets the reply when the deletion is durable, so a loss of power cannot undo it.
#[test]
fn x198_a_deletion_that_was_answered_stays_deleted_after_a_power_cut() {
    if !can_mount("ext4") {
        return;
    }
    let volume = Volume::image("ext4", 64, &[], "");
    let mut rig = Rig::start(setup(&volume));
    let deleted = rig.promise(2_000);
    let word = deleted.trim_end_matches(';').to_string();
    rig.promise_many(5, 2_000);
    let recipient = format!("{word}@sink.test");
    let output = rig.daemon.command(&["queue", "delete", "--yes", "--recipient", &recipient]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    cut_and_boot(&rig, &volume);
    rig.forget(&deleted);
    rig.drain();
    assert!(rig.open_sink().with(&deleted).is_empty());
}

/// Sends messages that the next hop refuses permanently, from a sender that can be notified.
pub fn send_doomed(port: u16, count: usize) -> Vec<String> {
    let mut client = Client::ready(port);
    let mut words = Vec::new();
    for _ in 0..count {
        let word = format!("{}.", token("doomed"));
        let name = word.trim_end_matches('.');
        client.ask(&format!("MAIL FROM:<{name}.back@sink.test>"), 250);
        client.ask(&format!("RCPT TO:<{name}.bad@sink.test>"), 250);
        client.ask("DATA", 354);
        client.send(format!("Subject: {word}\r\n\r\ntext\r\n.\r\n"));
        client.expect(250);
        words.push(word);
    }
    words
}

/// A next hop that knows none of their recipients.
pub fn refusing() -> Script {
    let rcpt = |to: &str| {
        let bad = to.contains(".bad@");
        if bad { "550 5.1.1 No such user".into() } else { "250 2.1.5 Ok".into() }
    };
    Script { rcpt, ..Script::default() }
}

/// The notices at the sink, by the token of the message that they are about.
pub fn notices(sink: &Sink) -> BTreeMap<String, usize> {
    let mut notices = BTreeMap::new();
    for mail in sink.mails().iter().filter(|mail| mail.from.contains("<>")) {
        let to = mail.to[0].split('<').nth(1).unwrap();
        let word = to.split("back@").next().unwrap().to_string();
        *notices.entry(word).or_default() += 1;
    }
    notices
}

/// The outcome and its notice are one batch. After a loss of power at any moment the recipient is tried again
/// or its sender is notified.
#[test]
fn x199_a_power_cut_while_mail_bounces_leaves_no_failure_without_its_notice() {
    if !can_mount("ext4") {
        return;
    }
    let volume = Volume::image("ext4", 64, &[], "");
    let mut rig = Rig::start(setup(&volume));
    let mut words = send_doomed(rig.daemon.port, 40);
    let sink = rig.open_sink_with(refusing());
    for round in 1..4 {
        until("some notices", || (notices(&sink).len() >= 10 * round).then_some(()));
        cut_and_boot(&rig, &volume);
        words.extend(send_doomed(rig.daemon.port, 20));
    }
    // A notice is not in the queue while it is being stored, so an empty queue proves nothing.
    until("each failure to be told", || {
        let notices = notices(&sink);
        let told = words.iter().all(|word| notices.contains_key(word));
        (told && rig.daemon.queued() == 0).then_some(())
    });
    let notices = notices(&sink);
    let twice = notices.values().map(|count| count - 1).sum::<usize>();
    assert!(twice <= 3 * TWICE_MAX, "{twice} notices too many");
}

/// When the last recipient is recorded as done, the same record contains the end of the message. The body needs
/// no step of its own.
#[test]
fn x200_mail_that_is_recorded_as_delivered_does_not_come_back_and_leaves_its_space() {
    if !can_mount("ext4") {
        return;
    }
    let volume = Volume::image("ext4", 40, &[], "");
    let mut rig = Rig::start(setup(&volume));
    // More than the disk holds: each round needs the space of the previous ones.
    for _ in 0..3 {
        rig.promise_many(50, 300_000);
        rig.drain();
        cut_and_boot(&rig, &volume);
        assert_eq!(rig.daemon.queued(), 0);
    }
    assert_eq!(rig.drain(), 0, "delivered, recorded, and delivered again");
}
