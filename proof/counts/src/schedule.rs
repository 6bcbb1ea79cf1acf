//! The scheduler alone: one message comes, one that was tried is recorded, one is tried next, while
//! many others wait.
//!
//! Must never let the queue grow or shrink while it counts.

use crate::house::domain;
use crate::letter::{self, MESSAGE_BYTES};
use crate::meter::{Count, Meter, Part, outside};
use mail::{
    Address, Enhanced, MessageId, NextHop, Notify, Now, Outcome, Reply, Report, ReversePath, Stage,
    Timestamp,
};
use scheduler::{Arrival, ArrivingRecipient, Output, PlannedAttempt, Scheduler, Settings};
use std::collections::VecDeque;
use std::time::Duration;

/// What waits meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Messages in the queue.
    pub queued: u64,
    /// They and those that come go to these, one after the other.
    pub destinations: u64,
}

/// Messages before the count begins: each destination has had its turn.
const WARM_UP: u64 = 12_000;
/// Counted.
const MESSAGES: u64 = 2_000;
const PAUSE: Duration = Duration::from_micros(100);

/// Counts arrivals, outcomes and decisions at a queue of one length.
pub fn count(waiting: Waiting) -> Count {
    let mut meter = Meter::new(Part::Schedule);
    let mut station = Station::new(waiting);
    for _ in 0..waiting.queued {
        let next = station.next();
        station.arrive(&next);
    }
    station.decide();
    for _ in 0..WARM_UP {
        station.turn(&meter);
    }
    meter.start();
    for _ in 0..MESSAGES {
        station.turn(&meter);
    }
    meter.passed(MESSAGES);
    assert_eq!(station.scheduler.len() as u64, waiting.queued);
    meter.count()
}

struct Station {
    waiting: Waiting,
    scheduler: Scheduler,
    now: Now,
    number: u64,
    in_flight: VecDeque<PlannedAttempt>,
}

/// A message that comes.
struct Next {
    message: MessageId,
    sender: ReversePath,
    address: Address,
    hop: NextHop,
}

impl Station {
    fn new(waiting: Waiting) -> Station {
        let now = Now { wall: Timestamp::from_micros(1_795_253_400_000_000), ..Now::default() };
        let scheduler = Scheduler::new(Settings::for_tests(), 1, now);
        Station { waiting, scheduler, now, number: 0, in_flight: VecDeque::new() }
    }

    fn next(&mut self) -> Next {
        self.number += 1;
        let number = self.number;
        let parse = |text: &str| Address::parse(text, false).expect("an address");
        let host = format!("d{}.sink.test", number % self.waiting.destinations);
        Next {
            message: MessageId(number),
            sender: ReversePath::Address(parse(&letter::sender(number))),
            address: parse(&format!("user{number}@{host}")),
            hop: NextHop::Mx(domain(&host)),
        }
    }

    fn arrive(&mut self, next: &Next) {
        let Next { address, hop, .. } = next;
        let recipients = [ArrivingRecipient { address, hop, notify: Notify::DEFAULT }];
        let arrival = Arrival {
            message: next.message,
            arrived: self.now.wall,
            bytes: MESSAGE_BYTES as u64,
            sender: &next.sender,
            recipients: &recipients,
            held: None,
            priority: 0,
        };
        self.scheduler.arrive(&arrival, self.now).expect("it is new");
    }

    /// Asks until there is nothing more to do now.
    fn decide(&mut self) {
        while let Some(output) = self.scheduler.poll(self.now) {
            if let Output::Attempt(attempt) = output {
                outside(|| self.in_flight.push_back(attempt));
            }
        }
    }

    /// The oldest attempt ends, another message comes.
    fn turn(&mut self, meter: &Meter) {
        self.now.monotonic = self.now.monotonic + PAUSE;
        self.now.wall = self.now.wall + PAUSE;
        let next = self.next();
        let ended = self.in_flight.pop_front().expect("something is in flight");
        let outcomes: Vec<_> = ended.recipients.iter().map(|at| (*at, delivered())).collect();
        meter.run(Part::Schedule, || {
            self.arrive(&next);
            self.scheduler.outcome(ended.attempt, &outcomes, self.now);
            self.decide();
        });
    }
}

fn delivered() -> Outcome {
    let reply = Reply::new(250, Enhanced(2, 0, 0), "Ok: queued as 4G00000001");
    let peer = "mx.sink.test[192.0.2.26]:25".into();
    let report = Report { stage: Stage::End, reply, peer, from_peer: true };
    Outcome::Delivered { report, relayed: true }
}
