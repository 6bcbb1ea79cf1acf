//! Support for the scheduler's tests: a clock, messages to send, answers to give.

#![allow(dead_code)] // each test file uses a part

use mail::{
    Address, Change, Domain, Enhanced, Instant, MessageId, NextHop, Notify, Now, Outcome, Reply,
    Report, ReversePath, Stage, Timestamp,
};
use scheduler::{
    Arrival, ArrivingRecipient, DestinationLimits, HeldBy, MessageChanges, Output, PlannedAttempt,
    Retry, Scheduler, Settings,
};
use std::time::Duration;

pub const START: i64 = 1_790_000_000_000_000;

pub struct Bench {
    pub scheduler: Scheduler,
    pub now: Now,
}

pub struct Mail<'a> {
    pub id: u64,
    pub sender: &'a str,
    pub to: Vec<(String, NextHop, Notify)>,
    pub bytes: u64,
    pub priority: i8,
    pub held: Option<HeldBy>,
}

pub fn mx(domain: &str) -> NextHop {
    NextHop::Mx(Domain::parse(domain).unwrap())
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn start() -> Now {
    Now { monotonic: Instant::from_nanos(1_000_000_000_000), wall: Timestamp::from_micros(START) }
}

/// One message to some recipients, each by the MX hosts of its domain.
pub fn mail<'a>(id: u64, sender: &'a str, to: &[&str]) -> Mail<'a> {
    let route = |to: &&str| {
        let domain = to.rsplit_once('@').unwrap().1;
        (to.to_string(), mx(domain), Notify::DEFAULT)
    };
    let to = to.iter().map(route).collect();
    Mail { id, sender, to, bytes: 4000, priority: 0, held: None }
}

impl Mail<'_> {
    pub fn notify(mut self, notify: Notify) -> Self {
        self.to.iter_mut().for_each(|(_, _, place)| *place = notify);
        self
    }

    pub fn hop(mut self, hop: NextHop) -> Self {
        self.to.iter_mut().for_each(|(_, place, _)| *place = hop.clone());
        self
    }
}

pub fn report(stage: Stage, code: u16, text: &str) -> Report {
    let from_peer = stage > Stage::Connect;
    let class = (code / 100) as u8;
    let reply = Reply::new(code, Enhanced(class, 0, 0), text);
    Report { stage, reply, peer: "mx.test[192.0.2.1]:25".into(), from_peer }
}

pub fn delivered() -> Outcome {
    Outcome::Delivered { report: report(Stage::End, 250, "ok"), relayed: false }
}

pub fn relayed() -> Outcome {
    Outcome::Delivered { report: report(Stage::End, 250, "ok"), relayed: true }
}

pub fn greylisted() -> Outcome {
    Outcome::Deferred(report(Stage::Rcpt, 450, "try again later"))
}

pub fn refused() -> Outcome {
    Outcome::Failed(report(Stage::Rcpt, 550, "no such user"))
}

pub fn unreachable() -> Outcome {
    Outcome::Deferred(report(Stage::Connect, 451, "connection refused"))
}

impl Bench {
    pub fn new(settings: Settings) -> Self {
        Bench { scheduler: Scheduler::new(settings, 1, start()), now: start() }
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        self.now.wall = self.now.wall + time;
    }

    pub fn send(&mut self, mail: Mail) -> MessageId {
        let sender = match mail.sender {
            "" => ReversePath::Null,
            text => ReversePath::Address(Address::parse(text, true).unwrap()),
        };
        let all: Vec<(Address, &NextHop, Notify)> = mail
            .to
            .iter()
            .map(|(to, hop, notify)| (Address::parse(to, true).unwrap(), hop, *notify))
            .collect();
        let recipients: Vec<ArrivingRecipient> = all
            .iter()
            .map(|(address, hop, notify)| ArrivingRecipient { address, hop, notify: *notify })
            .collect();
        let arrival = Arrival {
            message: MessageId(mail.id),
            arrived: self.now.wall,
            bytes: mail.bytes,
            sender: &sender,
            recipients: &recipients,
            held: mail.held,
            priority: mail.priority,
        };
        self.scheduler.arrive(&arrival, self.now).unwrap();
        MessageId(mail.id)
    }

    /// Returns all outputs that are due now.
    pub fn drain(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.scheduler.poll(self.now)).collect()
    }

    pub fn attempts(&mut self) -> Vec<PlannedAttempt> {
        let attempt = |output| match output {
            Output::Attempt(attempt) => Some(attempt),
            Output::Record(_) => None,
        };
        self.drain().into_iter().filter_map(attempt).collect()
    }

    pub fn records(&mut self) -> Vec<MessageChanges> {
        let record = |output| match output {
            Output::Record(record) => Some(record),
            Output::Attempt(_) => None,
        };
        self.drain().into_iter().filter_map(record).collect()
    }

    /// Gives all recipients of an attempt the same outcome.
    pub fn answer(&mut self, attempt: &PlannedAttempt, outcome: Outcome) {
        let all: Vec<(u32, Outcome)> =
            attempt.recipients.iter().map(|index| (*index, outcome.clone())).collect();
        self.scheduler.outcome(attempt.attempt, &all, self.now);
    }

    /// Lets time pass until the next wakeup of the scheduler. Returns false if there is none.
    pub fn sleep(&mut self) -> bool {
        let Some(wakeup) = self.scheduler.next_wakeup() else { return false };
        self.pass(wakeup.since(self.now.monotonic));
        true
    }
}

pub const NO_JITTER: Retry = Retry {
    first: Duration::from_secs(300),
    factor: 2.0,
    longest: Duration::from_secs(4 * 3600),
    expire: Duration::from_secs(5 * 86_400),
    jitter: 0.0,
};

pub fn plain() -> Settings {
    Settings { retry: NO_JITTER, ..Settings::for_tests() }
}

pub fn limited(limits: DestinationLimits) -> Settings {
    Settings { default: limits, ..plain() }
}

pub fn kinds(record: &MessageChanges) -> Vec<&'static str> {
    let kind = |change: &Change| match change {
        Change::Delivered { .. } => "delivered",
        Change::Failed { .. } => "failed",
        Change::Due { .. } => "due",
        Change::DelayNoticed { .. } => "delay",
        Change::Hold { .. } => "hold",
        Change::Release { .. } => "release",
        Change::Priority { .. } => "priority",
        Change::Retire { .. } => "retire",
    };
    record.changes.iter().map(kind).collect()
}
