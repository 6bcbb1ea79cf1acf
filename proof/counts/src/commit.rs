//! Messages from their clients into the spool: what the receive and the commit station cost.
//!
//! Must never measure a message that did not get its `250`.

use crate::house::{self, House};
use crate::letter;
use crate::meter::{Count, Meter, Part, outside};
use crate::receive::{Guest, Receive};
use std::time::Duration;

/// Clients and what they bring.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Messages that reach the queue process together and share a commit.
    pub together: usize,
    /// Recipients of each message.
    pub recipients: usize,
    /// Messages on one connection, 0: all of them.
    pub per_connection: u64,
    /// The client does not wait for replies where it need not.
    pub pipelined: bool,
}

/// Not counted: tables and buffers find their size.
const WARM_UP: u64 = 200;
/// Counted.
const MESSAGES: u64 = 500;
/// Between two messages; the scheduler must not be asked before the sending processes have come,
/// which it waits for two seconds.
const PAUSE: Duration = Duration::from_micros(100);

/// Carries messages up to their promise and counts one station.
pub fn count(part: Part, load: Load) -> Count {
    let mut meter = Meter::new(part);
    let mut way = Way::new(load);
    while meter.messages() < MESSAGES {
        if way.number >= WARM_UP {
            meter.start();
        }
        way.round(&mut meter);
    }
    meter.count()
}

/// The way in: clients, the receiving process, the queue process.
pub struct Way {
    pub house: House,
    load: Load,
    receive: Receive,
    guests: Vec<Option<Guest>>,
    number: u64,
}

impl Way {
    pub fn new(load: Load) -> Way {
        Way::with(load, house::settings())
    }

    /// The same with other settings of the queue process.
    pub fn with(load: Load, settings: queue::Settings) -> Way {
        let mut house = House::with(settings);
        let receive = Receive::new(&mut house);
        let guests = (0..load.together).map(|_| None).collect();
        Way { house, load, receive, guests, number: 0 }
    }

    /// Each client sends one message, and all hear their promise.
    pub fn round(&mut self, meter: &mut Meter) {
        let now = self.house.now;
        let mut waiting = Vec::new();
        for mut place in std::mem::take(&mut self.guests) {
            let mut guest = match place.take() {
                Some(guest) => guest,
                None => self.greet(meter),
            };
            let said = letter::transaction(self.number, self.load.recipients, self.load.pipelined);
            self.number += 1;
            for bytes in &said {
                meter.run(Part::Receive, || self.receive.take(&mut guest, bytes, now));
            }
            waiting.push(guest);
        }
        self.receive.hand_over(&mut self.house, meter);
        self.guests = self.promised(waiting, meter);
        meter.passed(self.guests.len() as u64);
        self.house.wait(PAUSE);
    }

    fn greet(&mut self, meter: &Meter) -> Guest {
        let (receive, now) = (&mut self.receive, self.house.now);
        meter.run(Part::Receive, || {
            let mut guest = receive.greet(now);
            receive.take(&mut guest, b"EHLO out.customer.example\r\n", now);
            guest
        })
    }

    fn promised(&mut self, waiting: Vec<Guest>, meter: &Meter) -> Vec<Option<Guest>> {
        self.receive.hear(&mut self.house, meter);
        let (receive, now) = (&mut self.receive, self.house.now);
        let per_connection = self.load.per_connection;
        let is_last = per_connection > 0 && self.number.is_multiple_of(per_connection);
        let mut guests = Vec::new();
        for mut guest in waiting {
            let stays = meter.run(Part::Receive, || {
                receive.talk(&mut guest, now);
                outside(|| assert!(guest.heard().contains("250 2.0.0 Ok: queued as ")));
                if is_last {
                    receive.take(&mut guest, b"QUIT\r\n", now);
                    return None;
                }
                Some(guest)
            });
            guests.push(stays);
        }
        guests
    }
}
