//! One plan from its beginning to the verdict.
//!
//! Must never end before the queue is empty or the time for that is over.

use crate::client::Client;
use crate::ledger::{Check, Finding, Sums};
use crate::local::Local;
use crate::net::{End, StreamId};
use crate::plan::{Fault, Plan, Station, What, When};
use crate::queue_station::QueueStation;
use crate::receive::Receive;
use crate::send::Send;
use crate::sink::Sinks;
use crate::stage::{Counts, Event, World};
use link::control::Role;
use link::streams::{Due, PeerId, Streams};
use mail::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use world::sim::Call;
use world::{Errno, Rng as _};

/// Between two looks at the queue once the faults have ended.
const LOOK: Duration = Duration::from_secs(900);
/// A lost stream between two living processes is replaced within this time.
const RENEWED_WITHIN: Duration = Duration::from_secs(1);
/// Master starts a process that was told to end again after this time.
const RESTARTED_AFTER: Duration = Duration::from_millis(50);
/// Events of one run at most: more is a machine that turns without getting anywhere.
const EVENTS_MAX: u64 = 2_000_000;

/// How a run ended.
#[derive(Debug)]
pub struct Verdict {
    /// What was found; nothing is good.
    pub findings: Vec<Finding>,
    /// What happened.
    pub counts: Counts,
    /// To the mail.
    pub sums: Sums,
    /// Virtual time.
    pub time: Duration,
    /// Equal for equal runs.
    pub trace: u64,
    /// What was told, if it was asked for.
    pub told: Vec<String>,
}

struct Run {
    world: World,
    queue: Option<QueueStation>,
    receivers: Vec<Option<Receive>>,
    /// Those for next hops.
    senders: Vec<Option<Send>>,
    /// The one for mailboxes.
    local: Option<Local>,
    clients: BTreeMap<u32, Client>,
    sinks: Sinks,
    starts: u64,
    /// Power is there.
    powered: bool,
    /// The ports are open: queue has been there since the power came.
    open: bool,
    dark: Duration,
    disk_faults: VecDeque<usize>,
    link_faults: VecDeque<usize>,
    link_steps: u64,
    /// Master's view of the streams.
    streams: Streams,
    /// The last stream of each process, and its name.
    linked: BTreeMap<Station, (StreamId, u64)>,
    done: bool,
}

/// Runs a plan; `told` keeps a line for each thing that happens.
pub fn run(plan: Plan, told: bool) -> Verdict {
    let mut run = Run::new(plan, told);
    run.begin();
    while !run.done && run.world.ledger.findings.is_empty() {
        let Some(event) = run.world.next_event() else {
            run.world.ledger.find(Check::Stuck, "nothing will ever happen again".into());
            break;
        };
        if run.world.counts.events > EVENTS_MAX {
            let text = format!("{EVENTS_MAX} events and no end: {:?}", run.world.kinds);
            run.world.ledger.find(Check::Stuck, text);
            break;
        }
        run.happen(event);
    }
    let Run { mut world, .. } = run;
    world.counts.steps = world.disk.steps();
    Verdict {
        told: world.told(),
        counts: world.counts,
        sums: world.ledger.sums(),
        time: world.now().monotonic.since(Instant::ZERO),
        trace: world.trace,
        findings: std::mem::take(&mut world.ledger.findings),
    }
}

impl Run {
    fn new(plan: Plan, told: bool) -> Run {
        let of = |wanted: fn(&When) -> bool| {
            let faults = plan.faults.iter().enumerate();
            faults.filter(|(_, fault)| wanted(&fault.when)).map(|(at, _)| at).collect()
        };
        Run {
            disk_faults: of(|when| matches!(when, When::DiskStep(_))),
            link_faults: of(|when| matches!(when, When::LinkStep(_))),
            queue: None,
            receivers: Vec::new(),
            senders: Vec::new(),
            local: None,
            clients: plan.mails.iter().map(|m| (m.number, Client::new(m.clone()))).collect(),
            sinks: Sinks::default(),
            starts: 0,
            powered: false,
            open: false,
            dark: Duration::from_secs(1),
            link_steps: 0,
            streams: Streams::default(),
            linked: BTreeMap::new(),
            done: false,
            world: World::new(plan, told),
        }
    }

    fn begin(&mut self) {
        let drawn = &self.world.plan.settings;
        self.receivers.resize_with(usize::from(drawn.receivers), || None);
        self.senders.resize_with(usize::from(drawn.senders), || None);
        let mails: Vec<_> = self.world.plan.mails.iter().map(|m| (m.at, m.number)).collect();
        for (at, number) in mails {
            self.world.at(Instant::ZERO + at, Event::Submit(number));
        }
        let faults: Vec<_> = self.world.plan.faults.iter().map(|fault| fault.when).collect();
        for (at, when) in faults.into_iter().enumerate() {
            if let When::At(time) = when {
                self.world.at(Instant::ZERO + time, Event::Fault(at));
            }
        }
        let quiet = self.world.plan.quiet_at();
        self.world.at(quiet, Event::Quiet);
        self.world.at(Instant::ZERO, Event::PowerOn);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver(stream, side) => self.deliver(stream, side),
            Event::Wake(station, start) => self.wake(station, start),
            Event::Job(start, job) => {
                if let Some(queue) = self.queue.as_mut().filter(|queue| queue.start == start) {
                    queue.job(job, &mut self.world);
                }
            }
            Event::Submit(number) => self.submit(number),
            Event::Fault(at) => self.fault(at),
            Event::Start(station) => self.start(station),
            Event::Master => self.master(),
            Event::Judge(station, stream) => self.judge(station, stream),
            Event::PowerOn => self.power_on(),
            Event::Answer(station, start, line, question) => {
                if let Some(send) = self.send(station, start) {
                    let mut send = send;
                    send.answer(line, *question, &mut self.world);
                    self.put_back(send);
                }
            }
            Event::Connected(station, start, line, target) => {
                if let Some(mut send) = self.send(station, start) {
                    let reached = send.reach(line, &target, &mut self.world);
                    self.put_back(send);
                    if let Some((stream, domain)) = reached {
                        self.sinks.connected(stream, domain, &mut self.world);
                    }
                }
            }
            Event::Line(station, start, line) => {
                if let Some(mut send) = self.send(station, start) {
                    send.tick(line, &mut self.world);
                    self.put_back(send);
                }
            }
            Event::Local(_, start, step) => {
                if let Some(local) = self.local.as_mut().filter(|local| local.start == start) {
                    local.step(step, &mut self.world);
                }
            }
            Event::Room => {
                let room = self.world.plan.settings.room;
                self.world.disk.set_room(if self.world.is_quiet() { u64::MAX } else { room });
            }
            Event::Fast => self.world.slow = Duration::ZERO,
            Event::Quiet => self.quiet(),
            Event::Look => self.look(),
        }
        self.end_drained();
        self.hear_losses();
        if self.powered && self.world.disk.is_off() {
            self.power_lost();
        }
    }

    /// Master hears of each stream that has ended.
    fn hear_losses(&mut self) {
        let now = self.world.now().monotonic;
        let losses = std::mem::take(&mut self.world.losses);
        let any = !losses.is_empty();
        for (station, stream, loss) in losses {
            let Some((last, number)) = self.linked.get(&station).copied() else { continue };
            if last == stream {
                self.streams.lost(self.peer(station), number, loss, now);
                self.world.after(RENEWED_WITHIN, Event::Judge(station, stream));
            }
        }
        if let Some(at) = self.streams.next_wakeup().filter(|_| any) {
            self.world.at(at, Event::Master);
        }
    }

    /// Master begins lost streams again, or ends a process that made too many of them end.
    fn master(&mut self) {
        let now = self.world.now().monotonic;
        while let Some(due) = self.streams.poll(now) {
            self.world.log(|| format!("master: {due:?}"));
            match due {
                Due::Renew { peer, .. } => {
                    self.world.counts.renewals += 1;
                    self.link(self.station(peer));
                }
                Due::Restart { peer, .. } => {
                    self.kill(self.station(peer), Duration::from_millis(50));
                }
            }
        }
        if let Some(at) = self.streams.next_wakeup() {
            self.world.at(at, Event::Master);
        }
    }

    /// Two living processes have had no stream for a second.
    fn judge(&mut self, station: Station, stream: StreamId) {
        let same = self.linked.get(&station).is_some_and(|(last, _)| *last == stream);
        if same && self.powered && self.queue.is_some() && self.lives(station) {
            let text = format!("{station:?} and queue have had no stream for {RENEWED_WITHIN:?}");
            self.world.ledger.find(Check::Stuck, text);
        }
    }

    fn peer(&self, station: Station) -> PeerId {
        match station {
            Station::Queue => (Role::Queue, 0),
            Station::Receive(number) => (Role::Receive, number),
            Station::Send(number) if number == self.world.plan.settings.senders => (Role::Local, 0),
            Station::Send(number) => (Role::Send, number),
        }
    }

    fn station(&self, (role, number): PeerId) -> Station {
        match role {
            Role::Receive => Station::Receive(number),
            Role::Send => Station::Send(number),
            Role::Local => Station::Send(self.world.plan.settings.senders),
            _ => Station::Queue,
        }
    }

    /// A process has ended, and its streams with it.
    fn gone(&mut self, station: Station) {
        let stations = match station {
            Station::Queue => self.all_stations(),
            other => vec![other],
        };
        for station in stations {
            self.streams.gone(self.peer(station));
            self.linked.remove(&station);
        }
    }

    fn is_local(&self, station: Station) -> bool {
        station == Station::Send(self.world.plan.settings.senders)
    }

    /// Ends the sending processes that were told to end and are ready to. Unlike one that is killed,
    /// such a process has written all it had to say.
    fn end_drained(&mut self) {
        let now = self.world.now().monotonic;
        if let Some(local) = self.local.take_if(|local| local.is_drained()) {
            self.drained(local.station);
        }
        for at in 0..self.senders.len() {
            if let Some(send) = self.senders[at].take_if(|send| send.is_drained(now)) {
                self.drained(send.station);
            }
        }
    }

    fn drained(&mut self, station: Station) {
        self.world.log(|| format!("{station:?} has drained"));
        self.world.counts.drains += 1;
        self.gone(station);
        for (stream, side) in self.world.net.held_by(|end| end.station() == Some(station)) {
            self.world.hang_up(stream, side, crate::net::Segment::Fin);
        }
        self.world.after(RESTARTED_AFTER, Event::Start(station));
    }

    fn send(&mut self, station: Station, start: u64) -> Option<Send> {
        let Station::Send(number) = station else { return None };
        let place = self.senders.get_mut(usize::from(number))?;
        if place.as_ref().is_some_and(|send| send.start == start) { place.take() } else { None }
    }

    fn put_back(&mut self, send: Send) {
        if let Station::Send(number) = send.station {
            self.senders[usize::from(number)] = Some(send);
        }
    }

    fn deliver(&mut self, stream: StreamId, side: usize) {
        let now = self.world.now().monotonic;
        let Some(end) = self.world.net.get(stream).and_then(|found| found.ends[side]) else {
            return;
        };
        let inside = matches!(end, End::Queue(_) | End::Station(_));
        if inside && self.link_step(end) {
            return;
        }
        let Some(segment) = self.world.net.take(stream, side, now) else { return };
        match end {
            End::Client(number) => {
                if let Some(client) = self.clients.get_mut(&number) {
                    client.hear(segment, &mut self.world);
                }
            }
            End::Sink(_) => self.sinks.hear(stream, segment, &mut self.world),
            End::Queue(from) => {
                if let Some(queue) = &mut self.queue {
                    queue.hear(stream, from, segment, &mut self.world);
                }
            }
            End::Session(instance) | End::Station(Station::Receive(instance)) => {
                if let Some(receive) = &mut self.receivers[usize::from(instance)] {
                    receive.hear(stream, end, segment, &mut self.world);
                }
            }
            End::Station(station) if self.is_local(station) => {
                if let Some(local) = &mut self.local {
                    local.hear(stream, segment, &mut self.world);
                }
            }
            End::Line(number) | End::Station(Station::Send(number)) => {
                if let Some(send) = &mut self.senders[usize::from(number)] {
                    send.hear(stream, end, segment, &mut self.world);
                }
            }
            End::Station(Station::Queue) => {}
        }
    }

    fn lives(&self, station: Station) -> bool {
        match station {
            Station::Queue => self.queue.is_some(),
            Station::Receive(number) => self.receivers[usize::from(number)].is_some(),
            Station::Send(_) if self.is_local(station) => self.local.is_some(),
            Station::Send(number) => self.senders[usize::from(number)].is_some(),
        }
    }

    /// Counts a delivery between two of our processes; true: a fault has taken its place.
    fn link_step(&mut self, end: End) -> bool {
        self.link_steps += 1;
        let Some(at) = self.link_faults.front().copied() else { return false };
        let fault = &self.world.plan.faults[at];
        if self.world.is_quiet() || !matches!(fault.when, When::LinkStep(n) if n <= self.link_steps)
        {
            return false;
        }
        self.link_steps = 0;
        self.link_faults.pop_front();
        self.fault(at);
        end.station().is_some_and(|station| !self.lives(station))
    }

    fn wake(&mut self, station: Station, start: u64) {
        match station {
            Station::Queue => {
                if let Some(queue) = self.queue.as_mut().filter(|queue| queue.start == start) {
                    queue.wake(&mut self.world);
                }
            }
            Station::Receive(number) => {
                let receive = self.receivers[usize::from(number)].as_mut();
                if let Some(receive) = receive.filter(|receive| receive.start == start) {
                    receive.wake(&mut self.world);
                }
            }
            Station::Send(_) if self.is_local(station) => {
                let local = self.local.as_mut();
                if let Some(local) = local.filter(|local| local.start == start) {
                    local.wake(&mut self.world);
                }
            }
            Station::Send(number) => {
                let send = self.senders[usize::from(number)].as_mut();
                if let Some(send) = send.filter(|send| send.start == start) {
                    send.wake(&mut self.world);
                }
            }
        }
    }

    fn submit(&mut self, number: u32) {
        let doors: Vec<u16> = (0..self.receivers.len() as u16)
            .filter(|n| self.open && self.receivers[usize::from(*n)].is_some())
            .collect();
        let door = match doors.len() as u64 {
            0 => None,
            count => Some(doors[self.world.chance.below(count) as usize]),
        };
        let Some(client) = self.clients.get_mut(&number) else { return };
        let (stream, address) = (client.connect(door, &mut self.world), client.address());
        if let (Some(stream), Some(door)) = (stream, door)
            && let Some(receive) = &mut self.receivers[usize::from(door)]
        {
            receive.greet(stream, address, &mut self.world);
        }
    }

    // tidy: table, because each kind of fault has an arm of its own
    fn fault(&mut self, at: usize) {
        if self.world.is_quiet() || !self.powered {
            return;
        }
        let Fault { number, what, .. } = self.world.plan.faults[at].clone();
        self.world.log(|| format!("fault f{number}: {what:?}"));
        let now = self.world.now().monotonic;
        match what {
            What::PowerCut(dark) => {
                self.dark = dark;
                self.world.disk.cut();
            }
            What::Kill(station, wait) => self.kill(station, wait),
            What::KillAll(wait) => {
                self.all_stations().into_iter().for_each(|station| self.kill(station, wait));
                self.open = false;
            }
            What::Unlink(station) => self.unlink(station),
            What::Poison(station, from_queue, poison) => {
                let end = if from_queue { End::Queue(station) } else { End::Station(station) };
                for (stream, side) in self.world.net.held_by(|held| held == end) {
                    self.world.poison(stream, side, poison.bytes());
                }
            }
            What::Drain(station) => {
                if let Some(local) = self.local.as_mut().filter(|local| local.station == station) {
                    local.drain(&mut self.world);
                } else if let Station::Send(number) = station
                    && let Some(Some(send)) = self.senders.get_mut(usize::from(number))
                {
                    send.drain(&mut self.world);
                }
            }
            What::DrainInBatch => {
                if let Some(local) = &mut self.local {
                    local.drain_in_batch(&mut self.world);
                }
            }
            What::Lie(station, lie) => {
                if let Some(local) = self.local.as_mut().filter(|local| local.station == station) {
                    local.lie(lie, &mut self.world);
                } else if let Station::Send(number) = station
                    && let Some(Some(send)) = self.senders.get_mut(usize::from(number))
                {
                    send.lie(lie, &mut self.world);
                }
            }
            What::SyncFails(count) => (1..=u64::from(count))
                .for_each(|nth| self.world.disk.fail_nth(Call::Sync, nth, Errno::IO)),
            What::WriteFails(count) => (1..=u64::from(count))
                .for_each(|nth| self.world.disk.fail_nth(Call::Write, nth, Errno::IO)),
            What::BadReads(count) => {
                self.world.bad_reads += count;
                self.world.ledger.bad_reads = true;
            }
            What::NoRoom(span) => {
                let disk = &self.world.disk;
                let free = world::Disk::free_bytes(disk).unwrap_or(0);
                disk.set_room(self.world.plan.settings.room.saturating_sub(free));
                self.world.after(span, Event::Room);
            }
            What::SlowDisk(span, each) => {
                self.world.slow = each;
                self.world.after(span, Event::Fast);
            }
            What::ClockJump(seconds) => {
                let wall = self.world.now().wall.micros() + seconds * 1_000_000;
                self.world.clock_was_set |= seconds.abs() > 3_500;
                self.world.clock.set_wall(mail::Timestamp::from_micros(wall));
            }
            What::Down(domain, span) => {
                self.world.down.insert(domain, now + span);
            }
            What::NoDns(span) => self.world.no_dns = now + span,
            What::Operator(act) => {
                let known = self.world.ledger.known();
                if known.is_empty() {
                    return;
                }
                let (token, id) = crate::plan::pick(&mut self.world.chance, &known);
                if let Some(queue) = &mut self.queue {
                    queue.operate(act, token, id, &mut self.world);
                }
            }
        }
    }

    fn all_stations(&self) -> Vec<Station> {
        let receivers = (0..self.receivers.len() as u16).map(Station::Receive);
        let senders = (0..=self.world.plan.settings.senders).map(Station::Send);
        std::iter::once(Station::Queue).chain(receivers).chain(senders).collect()
    }

    fn kill(&mut self, station: Station, wait: Duration) {
        if !self.lives(station) {
            return;
        }
        self.world.counts.kills += 1;
        self.gone(station);
        match station {
            Station::Queue => {
                if let Some(queue) = self.queue.take() {
                    queue.die(&mut self.world);
                }
            }
            Station::Receive(number) => self.receivers[usize::from(number)] = None,
            Station::Send(_) if self.is_local(station) => self.local = None,
            Station::Send(number) => self.senders[usize::from(number)] = None,
        }
        self.world.abandon(|end| end.station() == Some(station), false);
        self.world.after(wait, Event::Start(station));
    }

    fn unlink(&mut self, station: Station) {
        self.world.counts.unlinks += 1;
        let found = self.world.net.held_by(|end| end == End::Queue(station));
        for (stream, side) in found {
            // Both ends hear of it by what the other's end says.
            self.world.put(stream, side, crate::net::Segment::Fin, Duration::ZERO);
        }
        let found = self.world.net.held_by(|end| end == End::Station(station));
        for (stream, side) in found {
            self.world.put(stream, side, crate::net::Segment::Fin, Duration::ZERO);
        }
    }

    fn start(&mut self, station: Station) {
        if !self.powered || self.lives(station) {
            return;
        }
        self.starts += 1;
        let start = self.starts;
        match station {
            Station::Queue => return self.start_queue(start),
            Station::Receive(number) => {
                let receive = Receive::new(number, start, &mut self.world);
                self.receivers[usize::from(number)] = Some(receive);
            }
            Station::Send(_) if self.is_local(station) => {
                self.local = Some(Local::new(station, start, &mut self.world));
            }
            Station::Send(number) => {
                let send = Send::new(number, start, &mut self.world);
                self.senders[usize::from(number)] = Some(send);
            }
        }
        self.link(station);
    }

    fn start_queue(&mut self, start: u64) {
        match QueueStation::start(start, &mut self.world) {
            Ok(mut queue) => {
                self.world.ledger.clock_set |= self.world.clock_was_set;
                queue.pump(&mut self.world);
                self.queue = Some(queue);
                self.open = true;
                for station in self.all_stations() {
                    self.link(station);
                }
            }
            Err(error) => {
                self.world.log(|| format!("queue does not open: {error}"));
                if self.world.disk.is_off() {
                    self.world.counts.cuts_early += 1;
                    return;
                }
                // A write that fails by plan ends the process; whoever watches starts it again.
                if self.world.is_quiet() || !matches!(error, spool::OpenError::Disk(_)) {
                    self.world.ledger.find(Check::Recovery, format!("does not open: {error}"));
                }
                self.world.after(Duration::from_secs(1), Event::Start(Station::Queue));
            }
        }
    }

    /// A new stream between queue and a process.
    fn link(&mut self, station: Station) {
        if station == Station::Queue || self.queue.is_none() || !self.lives(station) {
            return;
        }
        // The former stream, if there is one, is over with this.
        for (stream, side) in self.world.net.held_by(|end| end == End::Queue(station)) {
            self.world.hang_up(stream, side, crate::net::Segment::Fin);
        }
        for (stream, side) in self.world.net.held_by(|end| end == End::Station(station)) {
            self.world.hang_up(stream, side, crate::net::Segment::Fin);
        }
        let delay = self.world.delay(200);
        let stream = self.world.net.open([End::Queue(station), End::Station(station)], delay);
        let number = self.streams.made(self.peer(station), self.world.now().monotonic);
        self.linked.insert(station, (stream, number));
        if let Some(queue) = &mut self.queue {
            queue.connected(station, stream, &mut self.world);
        }
        match station {
            Station::Receive(number) => {
                if let Some(receive) = &mut self.receivers[usize::from(number)] {
                    receive.connected(stream, &mut self.world);
                }
            }
            Station::Send(_) if self.is_local(station) => {
                if let Some(local) = &mut self.local {
                    local.connected(stream, &mut self.world);
                }
            }
            Station::Send(number) => {
                if let Some(send) = &mut self.senders[usize::from(number)] {
                    send.connected(stream, &mut self.world);
                }
            }
            Station::Queue => {}
        }
    }

    fn power_on(&mut self) {
        self.world.disk.power_on();
        self.powered = true;
        self.arm();
        for station in self.all_stations() {
            self.start(station);
        }
    }

    /// The next cut by disk steps.
    fn arm(&mut self) {
        let quiet = self.world.is_quiet();
        let Some(at) = self.disk_faults.pop_front().filter(|_| !quiet) else { return };
        let Fault { when, what, .. } = &self.world.plan.faults[at];
        if let (When::DiskStep(steps), What::PowerCut(dark)) = (when, what) {
            self.dark = *dark;
            self.world.disk.cut_at(Some(self.world.disk.steps() + steps));
        }
    }

    fn power_lost(&mut self) {
        self.world.counts.cuts += 1;
        self.world.log(|| "the power is gone".into());
        self.powered = false;
        self.open = false;
        self.gone(Station::Queue);
        self.queue = None;
        self.receivers.iter_mut().for_each(|place| *place = None);
        self.senders.iter_mut().for_each(|place| *place = None);
        self.local = None;
        self.world.abandon(|end| end.station().is_some(), true);
        let dark = self.dark;
        self.world.after(dark, Event::PowerOn);
    }

    fn quiet(&mut self) {
        self.world.log(|| "the faults have ended".into());
        let disk = &self.world.disk;
        if !disk.is_off() {
            disk.cut_at(None);
        }
        disk.set_room(u64::MAX);
        self.world.slow = Duration::ZERO;
        self.world.bad_reads = 0;
        self.look();
    }

    fn look(&mut self) {
        let clients_done = self.clients.values().all(|client| client.done);
        let expire = self.world.plan.settings.scheduler.retry.expire;
        let span = self.world.now().monotonic.since(self.world.plan.quiet_at());
        if let Some(queue) = self.queue.as_mut().filter(|_| self.powered) {
            if queue.is_empty(&self.world) && clients_done {
                self.done = true;
                return self.world.ledger.close(span > expire.mul_f64(0.9));
            }
            queue.release_all(&mut self.world);
        }
        // Expiry, the last wait before it, an hour for a clock that jumped, and the notices.
        if span > expire.mul_f64(2.2) + Duration::from_secs(86_400) {
            let left = match &self.queue {
                Some(queue) => queue.leftovers(&self.world),
                None => "the queue process is not there".into(),
            };
            let waiting = self.clients.values().filter(|client| !client.done).count();
            let text = format!("after {span:?} of quiet: {waiting} clients, {left}");
            return self.world.ledger.find(Check::Stuck, text);
        }
        let wait = if span > Duration::from_secs(20_000) { LOOK * 40 } else { LOOK };
        self.world.after(wait, Event::Look);
    }
}
