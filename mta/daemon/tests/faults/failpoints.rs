//! The daemon is stopped at named points in its code: all processes are killed there (X184, X199, X200), or one
//! process is broken there (X185, X186, X193, X203).
//!
//! Must never run on a release build, which has no such points.

use crate::field::{Field, Promised, TAKEN};
use crate::support::daemon::Setup;
use crate::support::faults::{FORBIDDEN, FREEZE, Faults, PANIC, PANIC_ALWAYS, Point};
use crate::support::{Client, token, until};

/// The number of messages on each path before the fault, so that the daemon is at work.
const BEFORE: usize = 3;

fn field(faults: &Faults) -> Field {
    Field::start(Setup { environment: faults.environment(), ..Setup::default() })
}

/// A point, and the key of its last occurrence. The key 0 matches any.
type Place = (&'static str, &'static [(Point, u64)], u64);

/// The points of X184. The thread that reaches the point stops, then all processes are killed in one call.
const PLACES: &[Place] = &[
    ("after accept", &[(Point::Accepted, 3)], 0),
    ("after the final dot", &[(Point::EndOfData, 4)], 0),
    ("before the write", &[(Point::BeforeWrite, 4)], 0),
    ("after the write", &[(Point::AfterWrite, 4)], 0),
    ("before the sync", &[(Point::BeforeSync, 4)], 0),
    ("after the sync", &[(Point::AfterSync, 4)], 0),
    ("after the commit, nobody told", &[(Point::Committed, 4)], 0),
    ("before the 250", &[(Point::BeforePromise, 4)], 0),
    ("after the 250", &[(Point::AfterPromise, 4)], 0),
    ("before the delivery's 250", &[(Point::NextHopSpoke, 2)], TAKEN),
    ("after the delivery's 250", &[(Point::OutcomeKnown, 3)], 0),
    ("before the delete record is written", &[(Point::Retired, 3)], 0),
    ("after the delete record", &[(Point::Retired, 3), (Point::AfterSync, 3)], 0),
];

/// Messages that were on their way to their next hop, or arrived there in the last 20 ms, may be delivered
/// twice.
const TWICE_MAX: usize = 40;

#[test]
fn x184_x199_killed_at_any_named_point_nothing_promised_is_lost_and_each_failure_is_told() {
    let faults = Faults::new();
    let field = field(&faults);
    let (mut promised, mut twice) = (Promised::default(), 0);
    for (name, steps, key) in PLACES {
        let load = field.load(2);
        load.wait_for_more(BEFORE);
        faults.arm_with_key(FREEZE, steps, *key);
        faults.wait_until_done(name);
        field.daemon.kill_all();
        faults.disarm();
        field.daemon.start_again();
        load.wait_for_more(1);
        load.stop(&mut promised);
        let count = field.judge(&promised);
        println!(
            "killed {name}: {} promised so far, {} lost, {} came twice",
            count.promised,
            count.lost.len(),
            count.twice - twice
        );
        assert!(count.lost.is_empty(), "killed {name}: lost {:?}", count.lost);
        assert!(count.twice - twice <= TWICE_MAX, "killed {name}: {} came twice", count.twice);
        twice = count.twice;
    }
    field.daemon.works();
}

/// A thread or task of a role, and the role.
const BREAKS: &[(&str, Point, u64)] = &[
    ("queue", Point::BeforeSync, 0),
    ("queue", Point::PeerSpoke, 0),
    ("send", Point::Attempt, 0),
    ("send", Point::NextHopSpoke, TAKEN),
    ("local", Point::Mailbox, 0),
    ("receive", Point::Accepted, 0),
];

/// Breaks a thread or task of each role under load. The process must exit, report it and be started again.
fn break_each(action: u64, breaks: &[(&str, Point, u64)], said: &[&str]) {
    let faults = Faults::new();
    let field = field(&faults);
    let mut promised = Promised::default();
    let load = field.load(2);
    for (role, point, key) in breaks {
        load.wait_for_more(BEFORE);
        let before = field.daemon.pids_of(role);
        let deaths = field.daemon.log().matches(&format!("{role} 0 (pid")).count();
        faults.arm_with_key(action, &[(*point, 2)], *key);
        faults.wait_until_done(role);
        until("the process to be started again", || {
            let deaths_now = field.daemon.log().matches(&format!("{role} 0 (pid")).count();
            let now = field.daemon.pids_of(role);
            (deaths_now > deaths && !now.is_empty() && now != before).then_some(())
        });
        load.wait_for_more(1);
        for text in said {
            field.daemon.wait_for_log(&[role, text]);
        }
    }
    load.stop(&mut promised);
    let count = field.judge(&promised);
    assert!(count.lost.is_empty(), "lost {:?}", count.lost);
    field.daemon.works();
}

#[test]
fn x185_a_panic_in_any_thread_or_task_ends_that_process_and_no_half_of_it_lives_on() {
    break_each(PANIC, BREAKS, &["ends because of a bug", "was killed by signal 6"]);
}

#[test]
fn x203_a_system_call_that_the_jail_denies_ends_the_process_and_is_named() {
    let breaks = [
        ("queue", Point::BeforeSync, 0),
        ("send", Point::Attempt, 0),
        ("receive", Point::Parse, 0),
    ];
    break_each(FORBIDDEN, &breaks, &["socket", "ended with status"]);
}

#[test]
fn x186_a_panic_in_the_parser_ends_that_session_only_and_gives_back_what_it_had() {
    let faults = Faults::new();
    let field = Field::start(Setup {
        environment: faults.environment(),
        // The staged bytes of eight sessions use up all credit, so twelve need what each panic gives back.
        tables: "[limits]\nsession_memory_bytes_max = \"1MiB\"\nconnections = 80\n".into(),
        ..Setup::default()
    });
    let daemon = &field.daemon;
    let pids = daemon.pids();
    let mut witness = Client::in_data(daemon.port, "a@client.test", "b@sink.test");
    let token = token("witness");
    witness.send(format!("Subject: {token}\r\n\r\nhalf\r\n"));
    for _ in 0..12 {
        let mut victim = Client::in_data(daemon.port, "a@client.test", "victim@sink.test");
        victim.send("a line of a body that is never finished\r\n".repeat(7_000));
        // The bytes that were sent have been read before the fault.
        assert!(victim.is_silent(std::time::Duration::from_millis(50)));
        faults.arm(PANIC, &[(Point::Parse, 1)]);
        victim.send("the last straw\r\n");
        assert_eq!(victim.next_reply(), None, "the session is over");
        assert_eq!(faults.done(), 1);
    }
    witness.send("whole\r\n.\r\n");
    witness.expect(250);
    field.sink.wait(&token);
    assert_eq!(daemon.pids(), pids, "no process has ended");
    daemon.wait_for_log(&["receive process: a session has met a bug"]);
    assert!(daemon.queue(&["--recipient", "victim@sink.test"]).is_empty());
    daemon.works();
}

#[test]
fn x193_a_message_that_ends_its_sender_again_and_again_is_held_and_others_flow() {
    let faults = Faults::new();
    let field = Field::start(Setup {
        environment: faults.environment(),
        tables: "[queue]\nlosses_max = 3\n".into(),
        ..Setup::default()
    });
    let daemon = &field.daemon;
    // The first attempt is stopped until the queue id is known.
    let token = token("poison");
    let mut client = Client::in_data(daemon.port, "a@client.test", "b@sink.test");
    faults.arm(FREEZE, &[(Point::Attempt, 1)]);
    client.send(format!("Subject: {token}\r\n\r\nx\r\n.\r\n"));
    let reply = client.expect(250);
    let id = reply.lines[0].rsplit(' ').next().unwrap().to_string();
    let key = id.parse::<mail::MessageId>().unwrap().0;
    faults.wait_until_done("the first attempt");
    faults.arm_with_key(PANIC_ALWAYS, &[(Point::Attempt, 1)], key);
    daemon.pids_of("send").iter().for_each(|pid| crate::support::daemon::signal_to(*pid, 9));
    until("the poison to be held", || {
        daemon.queue(&[]).iter().any(|entry| entry.to_string().contains("held")).then_some(())
    });
    let deaths = faults.done();
    assert!((1..=3).contains(&deaths), "{deaths} deaths by one message");
    let load = field.load(1);
    load.wait_for_more(3);
    let mut promised = Promised::default();
    load.stop(&mut promised);
    until("the others to have left", || (daemon.queued() == 1).then_some(()));
    assert_eq!(faults.done(), deaths, "what is held is not tried");
    assert!(field.sink.with(&token).is_empty());
    faults.disarm();
    assert!(daemon.command(&["queue", "release", &id]).status.success());
    field.sink.wait(&token);
    assert!(field.judge(&promised).lost.is_empty());
}
