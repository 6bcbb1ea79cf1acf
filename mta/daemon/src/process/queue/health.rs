//! The health of the mailer: its processes, its streams and its disk. `posthaste status` shows it.
//!
//! Must never wait for anything: it is asked while other parts hang.

use link::admin;
use link::control::{FromMaster, Role};
use link::receive::{MemoryShortage, SessionMemory};
use link::streams::{Loss, PeerId, Presence};
use mail::Instant;
use spool::{Class, Io, IoDone};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// A write or sync that takes longer than this is reported.
const DISK_PATIENCE: Duration = Duration::from_secs(3);

/// What is known of the processes, the streams and the disk.
#[derive(Default)]
pub struct Health {
    /// When each request was given to the disk that a client may wait for, by the number of the request.
    asked: RefCell<BTreeMap<u64, Instant>>,
    processes: RefCell<BTreeMap<(Role, u16), RunningProcess>>,
    streams: RefCell<BTreeMap<PeerId, StreamHealth>>,
}

/// A stream that exists or is expected.
struct StreamHealth {
    presence: Presence,
    renewals: u32,
    loss: Option<Loss>,
}

struct RunningProcess {
    pid: u32,
    restarts: u32,
    since: Instant,
    up_seconds: u64,
}

impl Health {
    /// Notes that a request was given to the disk.
    pub fn asked(&self, io: &Io, now: Instant) {
        if io.class() != Class::Background {
            self.asked.borrow_mut().insert(io.id(), now);
        }
    }

    /// Notes that the disk has answered a request.
    pub fn answered(&self, done: &IoDone) {
        self.asked.borrow_mut().remove(&done.id());
    }

    /// Notes what master has told of a process or of its stream.
    pub fn told(&self, told: &FromMaster, now: Instant) {
        if let FromMaster::Process { role, instance, pid, restarts, up_seconds } = *told {
            let process = RunningProcess { pid, restarts, since: now, up_seconds };
            self.processes.borrow_mut().insert((role, instance), process);
        }
        if let FromMaster::Renewed { role, instance, renewals, loss } = *told {
            self.with_stream((role, instance), now, |stream| {
                (stream.renewals, stream.loss) = (renewals, Some(loss));
            });
        }
    }

    /// Notes that a stream to this process is expected.
    pub fn expect(&self, peer: PeerId, now: Instant) {
        self.with_stream(peer, now, |_| {});
    }

    /// Notes whether there is a stream to this process.
    pub fn stream(&self, peer: PeerId, present: bool, now: Instant) {
        self.with_stream(peer, now, |stream| stream.presence.is_now(present, now));
    }

    fn with_stream(&self, peer: PeerId, now: Instant, change: impl FnOnce(&mut StreamHealth)) {
        let new = || StreamHealth { presence: Presence::absent(now), renewals: 0, loss: None };
        change(self.streams.borrow_mut().entry(peer).or_insert_with(new));
    }

    /// Returns the alarms that are due about processes that have been without a stream for too long.
    pub fn alarms(&self, now: Instant) -> Vec<String> {
        let mut streams = self.streams.borrow_mut();
        let alarm = |(peer, stream): (&PeerId, &mut StreamHealth)| {
            stream.presence.alarm(now).map(|absent| without(*peer, absent))
        };
        streams.iter_mut().filter_map(alarm).collect()
    }

    /// Returns a line for each stream.
    pub fn streams(&self) -> Vec<admin::StreamStatus> {
        let streams = self.streams.borrow();
        let line = |((role, instance), stream): (&PeerId, &StreamHealth)| admin::StreamStatus {
            role: role.name().to_owned(),
            number: u32::from(*instance),
            up: stream.presence.is_present(),
            renewals: stream.renewals,
            loss: stream.loss.map_or_else(String::new, |loss| loss.to_string()),
        };
        streams.iter().map(line).collect()
    }

    /// Returns a line for each process without its counters; queue comes first.
    pub fn processes(&self, now: Instant) -> Vec<admin::Process> {
        let running = self.processes.borrow();
        let mut processes: Vec<_> = running
            .iter()
            .map(|((role, instance), process)| admin::Process {
                role: role.name().to_owned(),
                number: u32::from(*instance),
                pid: process.pid,
                uptime_seconds: process.up_seconds + now.since(process.since).as_secs(),
                restarts: process.restarts,
                counters: Vec::new(),
            })
            .collect();
        processes.sort_by_key(|one| one.role != Role::Queue.name());
        processes
    }

    /// Returns what is wrong now. `receivers` is what the receiving processes have reported.
    pub fn troubles(
        &self,
        usage: &spool::Usage,
        receivers: &BTreeMap<u16, SessionMemory>,
        now: Instant,
    ) -> Vec<String> {
        let mut troubles = Vec::new();
        let waited = self.asked.borrow().values().map(|asked| now.since(*asked)).max();
        if let Some(waited) = waited.filter(|waited| *waited >= DISK_PATIENCE) {
            troubles.push(format!("the disk has not answered for {} s", waited.as_secs()));
        }
        if usage.broken {
            troubles.push("commits fail: new mail gets 451".to_owned());
        }
        if usage.full {
            troubles.push("the disk is full: new mail gets 452".to_owned());
        }
        troubles.extend(receivers.iter().filter_map(|(instance, memory)| {
            memory.shortage.map(|shortage| short(*instance, shortage))
        }));
        for (peer, stream) in self.streams.borrow().iter() {
            troubles.extend(stream.presence.trouble(now).map(|absent| without(*peer, absent)));
        }
        troubles
    }
}

/// Says that the memory of the sessions of one receiving process is short.
fn short(instance: u16, shortage: MemoryShortage) -> String {
    let MemoryShortage { seconds, refused } = shortage;
    format!(
        "the memory of sessions of receive {instance} has been short for {seconds} s: {refused} requests got 421 or \
         452, and silent strangers are ended after 10 s; raise limits.session_memory_bytes_max if they are no attack"
    )
}

fn without((role, instance): PeerId, absent: Duration) -> String {
    let what = match role {
        Role::Receive => "its clients get 451",
        Role::Local => "no mailbox gets mail",
        _ => "it sends no mail",
    };
    let (name, seconds) = (role.name(), absent.as_secs());
    format!("no stream between queue and {name} {instance} for {seconds} s: {what}")
}
