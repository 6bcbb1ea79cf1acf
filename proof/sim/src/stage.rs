//! What all players share: the clock, the events to come, the network, the disk, chance and the
//! ledger.
//!
//! Must never let two events of one instant change places between two runs of the same plan.

use crate::ledger::{Check, Ledger, parse_address};
use crate::local::LocalStep;
use crate::net::{End, Net, Segment, StreamId};
use crate::plan::{DOMAINS, Fate, Plan, ROUTED, Station, WALL_START};
use crate::sink::SENDERS;
use delivery::Question;
use delivery::route::Target;
use link::LinkError;
use link::streams::Loss;
use mail::{Address, Domain, Host, Instant, MessageId, NextHop, Now};
use policy::{Accounts, Mailboxes, Names, Pattern, Policy, Postmaster, Route, Routes};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use world::sim::{Clock, Disk, Rng};
use world::{Clock as _, Rng as _};

/// Something that will happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A segment has arrived at this side.
    Deliver(StreamId, usize),
    /// A machine wants to be woken; the number says which start of its process.
    Wake(Station, u64),
    /// The disk has done a job of queue.
    Job(u64, u64),
    /// The client of a message connects.
    Submit(u32),
    /// A fault comes due, by its place in the plan.
    Fault(usize),
    /// A process is started again.
    Start(Station),
    /// Master looks which streams are due to be begun again.
    Master,
    /// By now a lost stream must have been replaced.
    Judge(Station, StreamId),
    /// The power is back.
    PowerOn,
    /// The DNS answers a line.
    Answer(Station, u64, u64, Box<Question>),
    /// A line's connection comes about, or not.
    Connected(Station, u64, u64, Box<Target>),
    /// A line's clock has rung.
    Line(Station, u64, u64),
    /// Something that the local process waits for has come about.
    Local(Station, u64, LocalStep),
    /// The disk has room again.
    Room,
    /// The disk is fast again.
    Fast,
    /// The faults have ended.
    Quiet,
    /// Somebody looks whether the queue is empty, and releases what is held.
    Look,
}

/// What all players share.
pub struct World {
    /// What was planned.
    pub plan: Plan,
    /// Both clocks.
    pub clock: Clock,
    /// Every stream.
    pub net: Net,
    /// The disk of queue.
    pub disk: Disk,
    /// Chance of the world outside.
    pub chance: Rng,
    /// The judge.
    pub ledger: Ledger,
    /// Where mail goes.
    pub routes: Routes,
    /// Who may send what.
    pub policy: Policy,
    /// Until when a domain cannot be reached; the last is the DNS.
    pub down: BTreeMap<u8, Instant>,
    /// Somebody has set the wall clock by more than an hour.
    pub clock_was_set: bool,
    /// Until when the DNS is silent.
    pub no_dns: Instant,
    /// What each operation of the disk takes besides.
    pub slow: Duration,
    /// The number of messages that will be read with a flipped bit.
    pub bad_reads: u32,
    /// When the attempt began that a line carries on this stream.
    pub attempts: BTreeMap<StreamId, Instant>,
    /// How often the mailbox of a recipient was tried that defers some tries.
    pub mailbox_tries: BTreeMap<(u32, usize), u8>,
    /// Streams that have ended, as master is told: the process at the other end of queue, and why.
    pub losses: Vec<(Station, StreamId, Loss)>,
    /// Streams on which somebody has said what an honest end never says.
    pub poisoned: BTreeSet<StreamId>,
    /// What queue must not believe.
    pub lies: Vec<(StreamId, Vec<u8>)>,
    /// Attempts as they were given out, the latest last.
    pub given: VecDeque<Given>,
    /// The last events before too many, by their kind.
    pub kinds: BTreeMap<String, u64>,
    /// Counts what happened.
    pub counts: Counts,
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    due: BTreeMap<u64, Event>,
    sequence: u64,
    /// Names what happened so far: equal for equal runs.
    pub trace: u64,
    told: Option<Vec<String>>,
}

/// An attempt that a sending process was given.
#[derive(Clone, Debug)]
pub struct Given {
    /// Which process.
    pub to: Station,
    /// Its name.
    pub attempt: u64,
    /// Its message.
    pub message: MessageId,
    /// Its recipients.
    pub recipients: Vec<u32>,
}

/// Attempts that a liar knows of.
const GIVEN_MAX: usize = 20;

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Power cuts.
    pub cuts: u64,
    /// Of these, while the spool was opened or before the first client.
    pub cuts_early: u64,
    /// Processes killed.
    pub kills: u64,
    /// Streams between processes broken.
    pub unlinks: u64,
    /// Workers of the local process that died, hung or answered wrongly.
    pub workers_lost: u64,
    /// Ends of the local process that it was told to make.
    pub drains: u64,
    /// Streams between processes poisoned, and lies told on them.
    pub poisons: u64,
    /// Streams begun again.
    pub renewals: u64,
    /// Events.
    pub events: u64,
    /// Spools opened.
    pub opened: u64,
    /// Disk operations.
    pub steps: u64,
}

impl World {
    /// Before anything happens.
    pub fn new(plan: Plan, told: bool) -> World {
        let routes = routes();
        let disk = Disk::new(plan.seed ^ 0x5eed);
        disk.set_room(plan.settings.room);
        World {
            clock: Clock::starting(WALL_START),
            net: Net::default(),
            disk,
            chance: crate::plan::chance(plan.seed, 2),
            ledger: Ledger::new(&plan),
            policy: Policy {
                relay_from: vec!["10.0.0.0/8".parse().expect("a network")],
                mailboxes: Mailboxes { names: Names::default(), accounts: Accounts::Any },
                postmaster: Postmaster::for_tests(),
                routes: routes.clone(),
            },
            routes,
            down: BTreeMap::new(),
            clock_was_set: false,
            no_dns: Instant::ZERO,
            slow: Duration::ZERO,
            bad_reads: 0,
            attempts: BTreeMap::new(),
            mailbox_tries: BTreeMap::new(),
            losses: Vec::new(),
            poisoned: BTreeSet::new(),
            lies: Vec::new(),
            given: VecDeque::new(),
            kinds: BTreeMap::new(),
            counts: Counts::default(),
            events: BinaryHeap::new(),
            due: BTreeMap::new(),
            sequence: 0,
            trace: 0xcbf2_9ce4_8422_2325,
            told: told.then(Vec::new),
            plan,
        }
    }

    /// Both readings.
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// The faults have ended.
    pub fn is_quiet(&self) -> bool {
        self.now().monotonic >= self.plan.quiet_at()
    }

    /// Has an event happen at a time, or now if that is past.
    pub fn at(&mut self, when: Instant, event: Event) {
        self.sequence += 1;
        let when = when.max(self.now().monotonic);
        self.events.push(Reverse((when, self.sequence)));
        self.due.insert(self.sequence, event);
    }

    /// Has an event happen after a time.
    pub fn after(&mut self, wait: Duration, event: Event) {
        let when = self.now().monotonic + wait;
        self.at(when, event);
    }

    /// The next event; turns the clock to it.
    pub fn next_event(&mut self) -> Option<Event> {
        let Reverse((when, sequence)) = self.events.pop()?;
        self.clock.advance(when.since(self.now().monotonic));
        self.counts.events += 1;
        let event = self.due.remove(&sequence)?;
        if self.counts.events > 1_900_000 {
            let shown = format!("{event:?}");
            let kind = shown.split(',').next().unwrap_or_default().to_owned();
            *self.kinds.entry(kind).or_insert(0) += 1;
        }
        self.mark(when.nanos() ^ sequence);
        Some(event)
    }

    /// Adds to the name of what happened.
    pub fn mark(&mut self, what: u64) {
        self.trace = (self.trace ^ what).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Returns a random time up to this number of microseconds.
    pub fn delay(&mut self, micros: u64) -> Duration {
        Duration::from_micros(1 + self.chance.below(micros))
    }

    /// A line for whoever watches.
    pub fn log(&mut self, line: impl FnOnce() -> String) {
        let now = self.now().monotonic;
        if let Some(told) = &mut self.told {
            let seconds = now.nanos() as f64 / 1e9;
            told.push(format!("{seconds:>14.6}  {}", line()));
        }
    }

    /// What was told.
    pub fn told(&mut self) -> Vec<String> {
        self.told.take().unwrap_or_default()
    }

    /// Puts a segment on its way.
    pub fn put(&mut self, stream: StreamId, side: usize, segment: Segment, more: Duration) {
        let now = self.now().monotonic;
        if let Segment::Bytes(bytes) = &segment {
            self.mark(bytes.iter().fold(7, |sum, b| sum.wrapping_mul(31) ^ u64::from(*b)));
        }
        if let Some(arrives) = self.net.put(stream, side, segment, more, now) {
            self.at(arrives, Event::Deliver(stream, 1 - side));
        }
    }

    /// Somebody says on a stream between two of our processes what an honest end never says.
    pub fn poison(&mut self, stream: StreamId, side: usize, bytes: Vec<u8>) {
        self.counts.poisons += 1;
        self.poisoned.insert(stream);
        self.put(stream, side, Segment::Bytes(bytes), Duration::ZERO);
    }

    /// A sending process says to queue what queue must not believe.
    pub fn lie(&mut self, stream: StreamId, bytes: Vec<u8>) {
        self.lies.push((stream, bytes.clone()));
        self.poison(stream, 1, bytes);
    }

    /// Whether these bytes on this stream are a lie.
    pub fn is_lie(&self, stream: StreamId, bytes: &[u8]) -> bool {
        self.lies.iter().any(|(on, lie)| *on == stream && lie == bytes)
    }

    /// An attempt was given out.
    pub fn gave(&mut self, given: Given) {
        self.given.push_back(given);
        if self.given.len() > GIVEN_MAX {
            self.given.pop_front();
        }
    }

    /// An end of a stream has refused what came: a bug, unless the stream was poisoned.
    pub fn broken(&mut self, stream: StreamId, who: &str, error: LinkError) {
        let text = format!("{who} ended its conversation: {error}");
        self.log(|| text.clone());
        if !self.poisoned.contains(&stream) {
            self.ledger.find(Check::Order, text);
        }
    }

    /// An end tells master that its stream to queue, or from it, is over.
    pub fn lost(&mut self, station: Station, stream: StreamId, loss: Loss) {
        self.losses.push((station, stream, loss));
    }

    /// Writes text.
    pub fn say(&mut self, stream: StreamId, side: usize, text: &str) {
        self.put(stream, side, Segment::Bytes(text.as_bytes().to_vec()), Duration::ZERO);
    }

    /// Ends a stream from this side.
    pub fn hang_up(&mut self, stream: StreamId, side: usize, how: Segment) {
        self.put(stream, side, how, Duration::ZERO);
        self.net.let_go(stream, side);
    }

    /// A process has died: what it wrote may still arrive, in part.
    pub fn abandon(&mut self, held: impl Fn(End) -> bool, all_lost: bool) {
        for (stream, side) in self.net.held_by(held) {
            let under_way = self.net.under_way(stream, side);
            let keep = self.chance.below(under_way as u64 + 1) as usize;
            if self.chance.below(2) == 0 || all_lost {
                self.net.lose(stream, side, keep);
            }
            self.hang_up(stream, side, Segment::Reset);
        }
    }

    /// What a next hop is to say to a recipient.
    pub fn fate(&self, (number, index): (u32, usize)) -> Option<Fate> {
        let mail = self.plan.mails.iter().find(|mail| mail.number == number)?;
        mail.recipients.get(index).map(|recipient| recipient.fate)
    }

    /// Counts a try of a mailbox; returns how many came before it.
    pub fn try_mailbox(&mut self, recipient: (u32, usize)) -> u8 {
        let tries = self.mailbox_tries.entry(recipient).or_insert(0);
        *tries = tries.saturating_add(1);
        *tries - 1
    }

    /// A next hop has taken a message for one recipient.
    pub fn arrived(&mut self, stream: StreamId, recipient: &str, body: &[u8]) {
        let now = self.now().monotonic;
        // A dead process's last words may arrive late: nobody knows when that attempt began.
        let alive = self.net.get(stream).is_some_and(|found| found.ends[0].is_some());
        let attempt = self.attempts.get(&stream).copied().filter(|_| alive);
        match parse_address(recipient) {
            Some((number, index)) => {
                self.log(|| format!("next hop takes m{number}r{index}"));
                self.ledger.delivered(number, index, body, attempt);
            }
            None => {
                for (number, index) in failures(body) {
                    self.log(|| format!("{recipient} hears that m{number}r{index} failed"));
                    self.ledger.bounced(number, index, now);
                }
            }
        }
    }

    /// The domain that a line's target stands for, if it can be reached.
    pub fn reachable(&self, target: &Target) -> Option<u8> {
        let delivery::Where::Tcp(at) = &target.place else { return None };
        let IpAddr::V4(address) = at.ip() else { return None };
        let [10, 0, 0, domain] = address.octets() else { return None };
        let down = self.down.get(&domain).is_some_and(|until| self.now().monotonic < *until);
        (!down || self.is_quiet()).then_some(domain)
    }
}

/// The recipients that a notice of failure is about.
fn failures(notice: &[u8]) -> Vec<(u32, usize)> {
    let text = String::from_utf8_lossy(notice);
    let mut found = Vec::new();
    let mut about = None;
    for line in text.lines() {
        if let Some(recipient) = line.strip_prefix("Final-Recipient: rfc822;") {
            about = parse_address(recipient.trim());
        } else if line.starts_with("Action: failed") {
            found.extend(about.take());
        }
    }
    found
}

fn routes() -> Routes {
    let domain = |name: &str| Domain::parse(name).expect("a domain");
    let hop = |number: u8| NextHop::Smtp(Host::Address(address_of(number)), 25);
    let route =
        |name: String, number| Route { pattern: Pattern::Exact(domain(&name)), to: hop(number) };
    let mut all: Vec<Route> = (0..ROUTED).map(|n| route(format!("d{n}.test"), n)).collect();
    all.push(route("src.test".into(), SENDERS));
    let own = [domain("local.test")].into_iter().collect();
    Routes::new(own, NextHop::Local, domain("mx.test"), all, false)
}

/// The address of a domain's next hop.
pub fn address_of(domain: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, domain))
}

/// The domain of a name in the DNS: `d2.test` or `mx.d2.test`.
pub fn domain_of(name: &str) -> Option<u8> {
    let name = name.strip_prefix("mx.").unwrap_or(name);
    let number = name.strip_prefix('d')?.strip_suffix(".test")?.parse().ok()?;
    (number < DOMAINS).then_some(number)
}

/// Who we are, as the notices say it.
pub fn postmaster() -> Address {
    Address::parse("MAILER-DAEMON@mx.test", false).expect("an address")
}
