//! Each role killed again and again under load: what got 250 arrives, and mail flows again within
//! two seconds (X184, X185).
//!
//! Must never count a message twice as lost or doubled because it was sent twice: no token is.
//!
//! `POSTHASTE_KILLS=10 cargo test --release -p daemon --test kill -- --nocapture` is the long run;
//! without the variable each role dies twice.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};
use support::daemon::{lives, signal_to};
use support::load::{Load, Promised};
use support::{Daemon, Script, Setup, Sink, until};

/// Mail flows again after at most this.
const FLOW_MAX: Duration = Duration::from_secs(2);
/// The same beside other tests on a machine that does much else.
const FLOW_MAX_BUSY: Duration = Duration::from_secs(15);
/// Kills where the environment does not say.
const KILLS: u32 = 2;
/// Load of this test: senders to each of the two recipients, and their rest before each message.
const SENDERS: usize = 4;
const REST: Duration = Duration::from_millis(5);
/// The mailbox's user.
const USER: &str = "box";

/// One campaign at a time: each measures.
static ONE: Mutex<()> = Mutex::new(());

/// Mail to the sink and mail to a Maildir, and what has come of it.
struct Field {
    daemon: Daemon,
    sink: Sink,
    remote: Load,
    local: Load,
}

/// After one kill, until the first message that was begun after it...
#[derive(Default)]
struct Pauses {
    /// ... got its 250.
    accepted: Vec<Duration>,
    /// ... came to the sink.
    relayed: Vec<Duration>,
    /// ... lay in the mailbox.
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

    /// Token and time of all that has come to the sink since.
    fn relayed_since(&self, moment: Instant) -> Vec<(String, Instant)> {
        let mails = self.sink.mails();
        let since = mails.iter().filter_map(|mail| mail.at.map(|at| (mail, at)));
        let since = since.filter(|(_, at)| *at >= moment);
        since.filter_map(|(mail, at)| Some((subject(&mail.text())?, at))).collect()
    }

    /// How long after `moment` the first of `wanted` lay in the mailbox, by the times of the files.
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

    /// Waits until mail that was begun after `moment` has been accepted and delivered both ways.
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

    /// Ends the load, waits for the queue to drain, and counts.
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

/// What was promised and did not come, and how many copies came beyond the first of each.
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

/// Kills all processes of a role again and again; `twice_max` copies too many may come of a kill.
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
        // Another phase of the work each time.
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

/// Queue asks nobody to repeat what was done: results are said again, attempts under way adopted.
#[test]
fn x185_a_killed_queue_loses_nothing_and_doubles_nothing() {
    campaign("queue", 0);
}

/// A client that got no answer sends again; that is the client's copy, with a token of its own.
#[test]
fn x185_a_killed_receive_loses_nothing_and_doubles_nothing() {
    campaign("receive", 0);
}

/// What was under way in a process that died may come twice: one message a connection at most, and
/// what was written to queue's socket and not read.
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
