//! A disk that fails or is slow (S121 to S126).
//!
//! Must never be content with a reply alone: the promised messages are compared after the fault, and the
//! refused ones must not have arrived.

use crate::rig::{Rig, can_trace, offer};
use crate::support::{Client, token, until};
use std::time::{Duration, Instant};

const TROUBLE: &str = "451 4.3.0";

/// A call that fails may have belonged to an outcome alone, which no client learns of. Once it is therefore
/// correct that no message was refused.
fn at_most_one(refused: &[String]) -> usize {
    assert!(refused.len() <= 1 && refused.iter().all(|reply| reply == TROUBLE), "{refused:?}");
    refused.len()
}

/// The names of the files in the lines of a trace that contain this text.
fn files(trace: &str, having: &str) -> Vec<String> {
    let lines = trace.lines().filter(|line| line.contains(having));
    let name = |line: &str| Some(line.split_once('<')?.1.split_once('>')?.0.to_string());
    lines.filter_map(name).collect()
}

#[test]
fn s121_a_write_that_fails_is_451_and_its_segment_is_never_written_again() {
    if !can_trace() {
        return;
    }
    let mut rig = Rig::usual();
    let mut refused = 0;
    for nth in 1..5 {
        let strace = rig.inject("commit-0", &[&format!("pwrite64:error=EIO:when={nth}")]);
        refused += at_most_one(&rig.offer_many(6, 3_000));
        let trace = strace.detach();
        let (_, after) = trace.split_once("INJECTED").unwrap();
        for poisoned in files(&trace, "INJECTED") {
            assert!(!after.contains(&poisoned), "{poisoned} was written again:\n{trace}");
        }
        rig.daemon.wait_for_log(&["set aside", "write segment"]);
    }
    assert!(refused > 0);
    rig.restart();
    assert_eq!(rig.drain(), 0);
    rig.refused_stay_away();
}

#[test]
fn s122_a_sync_that_failed_once_is_451_never_tried_again_and_its_mail_does_not_come_back() {
    if !can_trace() {
        return;
    }
    let mut rig = Rig::usual();
    let mut refused = 0;
    for nth in 1..4 {
        let strace = rig.inject("commit-0", &[&format!("fdatasync:error=EIO:when={nth}")]);
        // One sync failed, and the next ones succeeded.
        refused += at_most_one(&rig.offer_many(5, 3_000));
        let trace = strace.detach();
        let (_, after) = trace.split_once("INJECTED").unwrap();
        for poisoned in files(&trace, "INJECTED") {
            assert!(!after.contains(&poisoned), "{poisoned} was synced again:\n{trace}");
        }
    }
    assert!(refused > 0);
    rig.daemon.wait_for_log(&["set aside", "sync segment"]);
    // Recovery also reads the segments that failed, because the page cache has the refused bytes.
    rig.restart();
    assert_eq!(rig.drain(), 0);
    rig.refused_stay_away();
}

#[test]
fn s123_while_every_sync_fails_all_get_451_nothing_spins_and_old_mail_waits_and_is_delivered_once()
{
    if !can_trace() {
        return;
    }
    let mut rig = Rig::usual();
    rig.promise_many(20, 3_000);
    let strace = rig.inject_everywhere(&["fdatasync:error=EIO", "fsync:error=EIO"]);
    assert_eq!(rig.offer_many(8, 3_000), [TROUBLE; 8]);
    rig.daemon.wait_for_log(&["the spool cannot be written", "Input/output error"]);
    rig.daemon.wait_for_log(&["writes fail: "]);
    let status = rig.daemon.command(&["status"]);
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(said.contains("spool_broken"), "{said}");
    let before = rig.promised();
    let sink = rig.open_sink();
    rig.does_not_spin();
    // A message that is delivered now could not be recorded, and would be delivered again after a kill.
    assert_eq!(sink.mails().len(), 0, "no attempt begins");
    assert!(strace.injected() > 3);
    strace.detach();
    rig.until_taken();
    rig.daemon.wait_for_log(&["the spool can be written again"]);
    until("old mail at the next hop", || (sink.mails().len() >= before).then_some(()));
    rig.wait_for_empty_queue();
    rig.restart();
    assert_eq!(rig.drain(), 0);
}

/// The same, but the mailer dies before the disk recovers. Messages that were delivered but not recorded are
/// delivered once more, and the log contains their number.
#[test]
fn s123_s125_deliveries_that_could_not_be_recorded_come_once_more_after_a_kill_and_none_is_lost() {
    if !can_trace() {
        return;
    }
    let mut rig = Rig::usual();
    rig.promise_many(20, 3_000);
    let strace = rig.inject_everywhere(&["fdatasync:error=EIO"]);
    rig.open_sink();
    rig.daemon.wait_for_log(&["writes fail: "]);
    rig.does_not_spin();
    let allowed = rig.may_come_twice();
    rig.daemon.kill();
    strace.detach();
    rig.daemon.start_again();
    let twice = rig.drain();
    assert!(twice <= allowed, "{twice} copies too many of 20, {allowed} were allowed");
}

/// The list of faults says 30 s. The wait matters, not its length.
const SYNC_TAKES: Duration = Duration::from_secs(3);

#[test]
fn s124_nobody_gets_250_before_a_slow_sync_has_come_back() {
    if !can_trace() {
        return;
    }
    let mut rig = Rig::usual();
    rig.promise(1_000);
    let micros = SYNC_TAKES.as_micros();
    // The slow sync may record the deferral of the first message, and may begin before the first client.
    let (port, start) = (rig.daemon.port, Instant::now());
    let strace = rig.inject("commit-0", &[&format!("fdatasync:delay_enter={micros}:when=1")]);
    // One client does not wait for its reply. Its message may be delivered anyway, once.
    let mut impatient = Client::in_data(port, "a@client.test", "impatient@sink.test");
    impatient.send("Subject: impatient;\r\n\r\nxxx\r\n.\r\n");
    until("the sync to be asked for", || strace.trace().contains("fdatasync").then_some(()));
    impatient.reset();
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let token = format!("{};", token("slow"));
            std::thread::spawn(move || (offer(port, &token, 1_000).code, Instant::now()))
        })
        .collect();
    for thread in waiting {
        let (code, at) = thread.join().unwrap();
        assert!(code == 250 && at - start >= SYNC_TAKES, "{code} after {:?}", at - start);
    }
    assert!(strace.detach().contains("DELAYED"));
    rig.restart();
    assert_eq!(rig.drain(), 0);
    let sink = rig.open_sink();
    assert_eq!(sink.with("slow-").len(), 5);
    assert!(sink.with("impatient;").len() <= 1);
}

#[test]
fn s125_a_directory_sync_that_fails_costs_no_promise_and_at_most_a_few_451() {
    if !can_trace() {
        return;
    }
    let mut rig = Rig::usual();
    let strace = rig.inject("background-0", &["fsync:error=EIO:when=1..2", "close:error=EIO"]);
    // Segments are created in advance. A client notices only if the disk is slow.
    let refused = rig.offer_many(12, 180_000);
    assert!(refused.len() < 6 && refused.iter().all(|reply| reply == TROUBLE), "{refused:?}");
    until("a directory sync to fail", || (strace.injected() > 0).then_some(()));
    strace.detach();
    rig.daemon.wait_for_log(&["sync_dir", "Input/output error"]);
    rig.restart();
    assert_eq!(rig.drain(), 0);
}

#[test]
fn s125_outcomes_and_deletions_whose_sync_fails_are_written_elsewhere_and_survive_a_kill() {
    if !can_trace() {
        return;
    }
    let mut rig = Rig::usual();
    rig.promise_many(10, 2_000);
    let strace = rig.inject("commit-0", &["fdatasync:error=EIO:when=1"]);
    rig.open_sink();
    until("the sync of an outcome to fail", || (strace.injected() > 0).then_some(()));
    strace.detach();
    assert_eq!(rig.drain(), 0);
    rig.restart();
    assert_eq!(rig.drain(), 0, "what was recorded elsewhere stays recorded");
}

#[test]
fn s126_interrupted_calls_are_made_again_and_eagain_is_an_error_and_no_loop() {
    if !can_trace() {
        return;
    }
    let mut rig = Rig::usual();
    let interrupted = ["pwrite64:error=EINTR:when=1..3", "fdatasync:error=EINTR:when=2..4"];
    let strace = rig.inject("commit-0", &interrupted);
    assert_eq!(rig.offer_many(6, 3_000), [""; 0]);
    assert_eq!(strace.injected(), 6);
    strace.detach();
    let strace =
        rig.inject("background-0", &["fallocate:error=EINTR:when=1", "fsync:error=EINTR:when=1"]);
    assert_eq!(rig.offer_many(12, 180_000), [""; 0]);
    strace.detach();
    let strace = rig.inject("commit-0", &["pwrite64:error=EAGAIN:when=1"]);
    at_most_one(&rig.offer_many(3, 3_000));
    assert_eq!(strace.injected(), 1);
    strace.detach();
    rig.restart();
    assert_eq!(rig.drain(), 0);
    rig.refused_stay_away();
}

/// Large bodies are read in pieces when they are sent, small ones in one piece.
#[test]
fn s121_a_read_that_fails_defers_the_message_and_damages_nothing() {
    if !can_trace() {
        return;
    }
    let mut rig = Rig::usual();
    rig.promise_many(3, 300_000);
    rig.promise_many(5, 2_000);
    rig.restart();
    let strace = rig.inject_everywhere(&["pread64:error=EIO:when=1..2"]);
    rig.open_sink();
    until("reads to fail", || (strace.injected() > 1).then_some(()));
    assert_eq!(rig.drain(), 0);
    strace.detach();
}
