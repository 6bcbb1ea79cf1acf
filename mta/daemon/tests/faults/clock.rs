//! The wall clock of the daemon jumps, runs backwards, stands in 1970 or after 2038: N111 to N114. Clocks have
//! no namespaces, so test builds add an offset to the clock.
//!
//! Must never run on a release build, which has no such offset.

use crate::field::{RETRY, between, script};
use crate::support::faults::Faults;
use crate::support::{Client, Daemon, Script, Setup, Sink, token, until};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

const HOUR: i64 = 3_600;
const YEAR: i64 = 365 * 24 * HOUR;
/// The number of messages that wait while the clock jumps.
const WAITING: usize = 10;

fn start(faults: &Faults, sink: &Sink) -> Daemon {
    Daemon::start(Setup {
        sink_port: sink.port,
        tables: RETRY.into(),
        environment: faults.environment(),
        ..Setup::default()
    })
}

/// Sends messages. Returns their tokens and queue ids.
fn hand_over(daemon: &Daemon, recipient: &str, count: usize) -> Vec<(String, String)> {
    let mut client = Client::ready(daemon.port);
    let mut hand = || {
        let token = token("clock");
        client.envelope("a@sink.test", recipient);
        client.ask("DATA", 354);
        client.send(format!("Subject: {token};\r\n\r\nx\r\n.\r\n"));
        let reply = client.expect(250);
        (token, reply.lines[0].rsplit(' ').next().unwrap().to_string())
    };
    (0..count).map(|_| hand()).collect()
}

fn counter(daemon: &Daemon, name: &str) -> u64 {
    let output = daemon.command(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    status["processes"][0]["counters"][name].as_u64().unwrap()
}

/// Waits until each waiting message was tried twice more.
fn tried_again(daemon: &Daemon) {
    let wanted = counter(daemon, "deferred") + 2 * WAITING as u64;
    until("more attempts", || (counter(daemon, "deferred") >= wanted).then_some(()));
}

fn nothing_was_given_up(daemon: &Daemon) {
    assert_eq!((counter(daemon, "failed"), counter(daemon, "notices")), (0, 0));
    assert_eq!(daemon.queued(), WAITING as u64);
}

fn all_arrive_once(sink: &Sink, waiting: &[(String, String)]) {
    for (token, _) in waiting {
        sink.wait(&format!("{token};"));
    }
    for (token, _) in waiting {
        assert_eq!(sink.with(&format!("{token};")).len(), 1, "{token} came twice");
    }
}

/// A sink that refuses mail until it is told to accept it.
macro_rules! sink_that_opens {
    ($open:ident) => {{
        Sink::start(Script {
            rcpt: |_| match $open.load(SeqCst) {
                true => "250 2.1.5 Ok".into(),
                false => "451 4.7.1 Later".into(),
            },
            ..Script::default()
        })
    }};
}

#[test]
fn n111_a_clock_that_jumps_a_year_ahead_bounces_nothing_also_over_a_crash() {
    static OPEN: AtomicBool = AtomicBool::new(false);
    let (faults, sink) = (Faults::new(), sink_that_opens!(OPEN));
    let daemon = start(&faults, &sink);
    let waiting = hand_over(&daemon, "b@sink.test", WAITING);
    tried_again(&daemon);
    faults.set_wall_ahead(YEAR);
    tried_again(&daemon);
    nothing_was_given_up(&daemon);
    daemon.kill_all();
    daemon.start_again();
    tried_again(&daemon);
    nothing_was_given_up(&daemon);
    faults.set_wall_ahead(0);
    tried_again(&daemon);
    nothing_was_given_up(&daemon);
    OPEN.store(true, SeqCst);
    all_arrive_once(&sink, &waiting);
    daemon.works();
}

#[test]
fn n112_a_clock_that_jumps_back_leaves_nothing_stuck_and_makes_no_id_twice() {
    static OPEN: AtomicBool = AtomicBool::new(false);
    let (faults, sink) = (Faults::new(), sink_that_opens!(OPEN));
    let daemon = start(&faults, &sink);
    let waiting = hand_over(&daemon, "b@sink.test", WAITING);
    let mut ids: Vec<String> = waiting.iter().map(|(_, id)| id.clone()).collect();
    tried_again(&daemon);
    for back in [HOUR, YEAR] {
        faults.set_wall_ahead(-back);
        tried_again(&daemon);
        nothing_was_given_up(&daemon);
        ids.extend(hand_over(&daemon, "b@hold.test", 5).into_iter().map(|(_, id)| id));
        assert!(
            daemon
                .command(&["queue", "delete", "--recipient", "b@hold.test", "--yes"])
                .status
                .success()
        );
    }
    daemon.kill_all();
    daemon.start_again();
    ids.extend(hand_over(&daemon, "b@hold.test", 5).into_iter().map(|(_, id)| id));
    OPEN.store(true, SeqCst);
    all_arrive_once(&sink, &waiting);
    let count = ids.len();
    assert_eq!(ids.into_iter().collect::<BTreeSet<_>>().len(), count, "an id came twice");
    daemon.works();
}

/// The time of the clock at the start of the daemon, and the date that mail of that time must have.
const DATES: &[(i64, &str)] = &[
    (5, "Thu, 1 Jan 1970 00:00:"),
    // Unix time counts the leap second 2016-12-31 23:59:60 twice.
    (1_483_228_799, "Jan 2017 00:00:0|Sat, 31 Dec 2016 23:59:59"),
    (2_147_483_645, "Tue, 19 Jan 2038 03:14:"),
    (4_294_967_290, "Sun, 7 Feb 2106 06:28:"),
    // A night in which clocks are set back by one hour in TZ.
    (1_793_511_900, "Sun, 1 Nov 2026 05:"),
];

#[test]
fn n113_in_1970_at_leap_seconds_past_2038_and_at_a_change_of_the_hour_dates_are_right() {
    let (faults, sink) = (Faults::new(), Sink::start(script()));
    let now = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        i64::try_from(since.as_secs()).unwrap()
    };
    let mut setup = Setup { sink_port: sink.port, tables: RETRY.into(), ..Setup::default() };
    setup.environment = faults.environment();
    setup.environment.push(("TZ".into(), "America/New_York".into()));
    let daemon = Daemon::start(setup);
    for (clock, date) in DATES {
        daemon.kill_all();
        faults.set_wall_ahead(clock - now());
        daemon.start_again();
        faults.set_wall_ahead(clock - now());
        let sent = hand_over(&daemon, "b@sink.test", 1);
        let text = sink.wait(&sent[0].0).text();
        let received = between(&text, "Received:", "\r\nSubject").unwrap();
        assert!(date.split('|').any(|date| received.contains(date)), "{date}: {received}");
        assert!(received.contains("+0000"), "{received}");
        // A notice has its own Date field.
        let bounced = hand_over(&daemon, "no@sink.test", 1);
        let notice = until("the notice", || {
            sink.mails().into_iter().find(|mail| {
                mail.from.starts_with("FROM:<>") && mail.text().contains(&bounced[0].0)
            })
        });
        let dated = between(&notice.text(), "Date: ", "\r\n").unwrap_or_default();
        assert!(date.split('|').any(|date| dated.contains(date)), "{date}: {}", notice.text());
        until("an empty queue", || (daemon.queued() == 0).then_some(()));
        daemon.works();
    }
    assert!(!daemon.log().contains("bug at"), "{}", daemon.log());
}

#[test]
fn n114_ids_are_unique_while_the_clock_steps_to_and_fro_and_after_a_crash() {
    let faults = Faults::new();
    let daemon = Daemon::start(Setup { environment: faults.environment(), ..Setup::default() });
    let stepping = AtomicBool::new(true);
    let mut ids = std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in [-1, 0, -2, 1, -HOUR, 0, 2 * HOUR, -YEAR, 0].iter().cycle() {
                if !stepping.load(SeqCst) {
                    break;
                }
                faults.set_wall_ahead(*step);
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let senders: Vec<_> =
            (0..4).map(|_| scope.spawn(|| hand_over(&daemon, "b@hold.test", 60))).collect();
        let sent: Vec<_> = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
        stepping.store(false, SeqCst);
        sent
    });
    // The previous incarnation may have used ids of the future.
    faults.set_wall_ahead(-HOUR);
    daemon.kill_all();
    daemon.start_again();
    ids.extend(hand_over(&daemon, "b@hold.test", 60));
    let unique: BTreeSet<&String> = ids.iter().map(|(_, id)| id).collect();
    assert_eq!(unique.len(), 300, "an id came twice");
    assert_eq!(daemon.queued(), 300);
    let listed = daemon.queue(&[]);
    let listed: BTreeSet<&str> = listed.iter().map(|entry| entry["id"].as_str().unwrap()).collect();
    assert!(unique.iter().all(|id| listed.contains(id.as_str())), "{listed:?}");
}
