//! Each role is killed repeatedly under load. Mail that got 250 arrives, and mail is delivered again within two
//! seconds (X184, X185).
//!
//! Must never count a message as lost or doubled because the client sent it twice: each sending has its own
//! token.
//!
//! `POSTHASTE_KILLS=10 cargo test --release -p daemon --test kill -- --nocapture` is the long run. Without the
//! variable each role is killed twice.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};
use support::daemon::{lives, signal_to};
use support::load::{Load, Promised};
use support::{Daemon, Script, Setup, Sink, until};

/// Upper bound on the time until mail is delivered again.
const FLOW_MAX: Duration = Duration::from_secs(2);
/// The same on a machine with other load, beside other tests.
const FLOW_MAX_BUSY: Duration = Duration::from_secs(15);
/// The number of kills, unless the environment says otherwise.
const KILLS: u32 = 2;
/// The load: senders to each of the two recipients, and the pause of each before a message.
const SENDERS: usize = 4;
const REST: Duration = Duration::from_millis(5);
/// The user of the mailbox.
const USER: &str = "box";

/// Held by the running campaign, because each campaign measures time.
static ONE: Mutex<()> = Mutex::new(());

/// Mail to the sink and mail to a Maildir, and what was delivered.
struct Field {
    daemon: Daemon,
    sink: Sink,
    remote: Load,
    local: Load,
}

/// The times after a kill until the first message that was begun after it...
#[derive(Default)]
struct Pauses {
    /// ... got its 250.
    accepted: Vec<Duration>,
    /// ... arrived at the sink.
    relayed: Vec<Duration>,
    /// ... was in the mailbox.
    delivered: Vec<Duration>,
}

impl Field {
    fn start() -> Field {
        let sink = Sink::start(Script::default());
        let setup = Setup {
            sink_port: sink.port,
            tables: "[retry]\nfirst = \"1s\"\nlongest = \"2s\"\n".into(),
            ..Setup::default()
        };
        let daemon = Daemon::start(setup);
        let remote = Load::start_paced(SENDERS, daemon.port, "b@sink.test", REST);
        let local = Load::start_paced(SENDERS, daemon.port, &format!("{USER}@local.test"), REST);
        let field = Field { daemon, sink, remote, local };
        field.remote.wait_for_more(20);
        field.local.wait_for_more(20);
        field
    }

    /// The token and the time of each message at the sink since then.
    fn relayed_since(&self, moment: Instant) -> Vec<(String, Instant)> {
        let mails = self.sink.mails();
        let since = mails.iter().filter_map(|mail| mail.at.map(|at| (mail, at)));
        let since = since.filter(|(_, at)| *at >= moment);
        since.filter_map(|(mail, at)| Some((subject(&mail.text())?, at))).collect()
    }

    /// The time from `moment` until the first of `wanted` was in the mailbox, by the times of the files.
    fn delivered_after(&self, wanted: &[Promised], moment: SystemTime) -> Option<Duration> {
        let mailbox = self.daemon.directory.join("state/mail").join(USER).join("new");
        let mut first = None;
        for file in std::fs::read_dir(mailbox).ok()?.flatten() {
            let Ok(after) = file.metadata().ok()?.modified().ok()?.duration_since(moment) else {
                continue;
            };
            let text = std::fs::read(file.path()).unwrap_or_default();
            let token = subject(&String::from_utf8_lossy(&text));
            if token.is_some_and(|token| wanted.iter().any(|promised| promised.token == token)) {
                first = first.into_iter().chain([after]).min();
            }
        }
        first
    }

    /// Waits until mail that was begun after `moment` was accepted and delivered on both paths.
    fn measure(&self, moment: Instant, wall: SystemTime, pauses: &mut Pauses) {
        let (mut accepted, mut relayed, mut delivered) = (None, None, None);
        until("mail to flow again", || {
            let (remote, local) = (self.remote.begun_since(moment), self.local.begun_since(moment));
            accepted = remote.iter().chain(&local).map(|promised| promised.at).min();
            let of_remote = |token: &str| remote.iter().any(|promised| promised.token == token);
            let came = self.relayed_since(moment);
            relayed = came.iter().filter(|(token, _)| of_remote(token)).map(|(_, at)| *at).min();
            delivered = self.delivered_after(&local, wall);
            (accepted.is_some() && relayed.is_some() && delivered.is_some()).then_some(())
        });
        pauses.accepted.extend(accepted.map(|at| at - moment));
        pauses.relayed.extend(relayed.map(|at| at - moment));
        pauses.delivered.extend(delivered);
    }

    /// Ends the load, waits until the queue is empty, and counts.
    fn finish(self) -> Count {
        let failed = self.remote.failed() + self.local.failed();
        let (remote, local) = (self.remote.stop(), self.local.stop());
        until("an empty queue", || (self.daemon.queued() == 0).then_some(()));
        let relayed = self.sink.mails();
        let relayed = relayed.iter().filter_map(|mail| subject(&mail.text()));
        let delivered = self.daemon.mailbox(USER);
        let delivered = delivered.iter().filter_map(|text| subject(text));
        let (lost_relayed, twice_relayed) = compare(&remote, relayed);
        let (lost_delivered, twice_delivered) = compare(&local, delivered);
        self.daemon.works();
        Count {
            promised: remote.len() + local.len(),
            lost: lost_relayed.into_iter().chain(lost_delivered).collect(),
            twice_relayed,
            twice_delivered,
            failed,
        }
    }
}

struct Count {
    promised: usize,
    lost: Vec<String>,
    twice_relayed: usize,
    twice_delivered: usize,
    failed: u64,
}

/// The promised messages that did not arrive, and the number of copies beyond the first of each.
fn compare(
    promised: &BTreeSet<String>,
    came: impl Iterator<Item = String>,
) -> (Vec<String>, usize) {
    let mut copies: BTreeMap<String, usize> = BTreeMap::new();
    came.for_each(|token| *copies.entry(token).or_default() += 1);
    let lost = promised.iter().filter(|token| !copies.contains_key(*token)).cloned().collect();
    (lost, copies.values().map(|count| count - 1).sum())
}

fn subject(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("Subject: ")).map(String::from)
}

fn kill(daemon: &Daemon, role: &str) {
    if role == "master" {
        let children = daemon.kill_and_start_again();
        let killed = Instant::now();
        until("the children of a dead master to end", || {
            (!children.iter().any(lives)).then_some(())
        });
        assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
        return;
    }
    let pids = daemon.pids_of(role);
    assert!(!pids.is_empty(), "no {role} process to kill");
    pids.iter().for_each(|pid| signal_to(*pid, libc::SIGKILL));
}

/// Kills all processes of a role repeatedly. Each kill may cause up to `twice_max` duplicates.
fn campaign(role: &str, twice_max: usize) {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let long = std::env::var("POSTHASTE_KILLS").ok().and_then(|text| text.parse().ok());
    let (kills, flow_max) = (long.unwrap_or(KILLS), long.map_or(FLOW_MAX_BUSY, |_| FLOW_MAX));
    let field = Field::start();
    let mut pauses = Pauses::default();
    for number in 0..kills {
        let (moment, wall) = (Instant::now(), SystemTime::now());
        kill(&field.daemon, role);
        field.measure(moment, wall, &mut pauses);
        // A different phase of the work each time.
        std::thread::sleep(Duration::from_millis(1200 + u64::from(number * 137 % 400)));
    }
    let count = field.finish();
    println!(
        "{role}: {kills} kills, {} promised, {} lost, {} + {} too many (relayed + delivered), \
         {} connections broken; flows again after ms (median, longest): accepted {}, relayed {}, \
         delivered {}",
        count.promised,
        count.lost.len(),
        count.twice_relayed,
        count.twice_delivered,
        count.failed,
        figures(&mut pauses.accepted),
        figures(&mut pauses.relayed),
        figures(&mut pauses.delivered),
    );
    assert!(count.lost.is_empty(), "{role}: lost {:?}", count.lost);
    let twice = count.twice_relayed + count.twice_delivered;
    assert!(twice <= twice_max * kills as usize, "{role}: {twice} copies too many");
    for pause in pauses.accepted.iter().chain(&pauses.relayed).chain(&pauses.delivered) {
        assert!(*pause <= flow_max, "{role}: flows again only after {pause:?}");
    }
}

fn figures(pauses: &mut [Duration]) -> String {
    pauses.sort();
    let ms = |at: usize| pauses[at].as_millis();
    format!("{}, {}", ms(pauses.len() / 2), ms(pauses.len() - 1))
}

/// After a restart of queue no work is repeated: results are reported again, and running attempts are adopted.
#[test]
fn x185_a_killed_queue_loses_nothing_and_doubles_nothing() {
    campaign("queue", 0);
}

/// A client without a reply sends again. That copy is the client's and has a token of its own.
#[test]
fn x185_a_killed_receive_loses_nothing_and_doubles_nothing() {
    campaign("receive", 0);
}

/// The work of a process that died may be repeated: at most one message for each connection, and the results
/// that were written to queue's socket and not read.
#[test]
fn x185_a_killed_send_loses_nothing() {
    campaign("send", 100);
}

#[test]
fn x185_a_killed_local_loses_nothing() {
    campaign("local", 100);
}

#[test]
fn x184_a_killed_master_started_again_at_once_loses_nothing() {
    campaign("master", 200);
}
