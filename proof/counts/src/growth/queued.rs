//! The queue process: arrivals, results and the records they call for, expiry with its notices, and what operators ask.
//!
//! Must never count the streams between the processes.

use super::{counted, deferred, envelope};
use crate::house::{BUILD, House, RECEIVER, SENDER, carry, settings};
use crate::meter::{Count, Meter, Part};
use bytes::BytesMut;
use link::admin::{Action, Answer, Filter};
use link::receive::ReceiverEnd;
use link::send::{Attempt, SenderEnd, SenderEvent};
use mail::{Envelope, MessageId, Outcome};
use std::time::Duration;

/// Rows of a page.
const PAGE: u32 = 100;
/// An outcome waits for a commit no longer than this.
const ROUND: Duration = Duration::from_millis(25);

pub fn destinations(n: usize) -> Count {
    // Without a sending process nothing is tried yet.
    let mut place = Place::without_sender(1);
    let mut input = place.handed_over(&[envelope(n, true)]);
    let (count, ()) = counted(|| place.take_in(&mut input));
    assert_eq!(place.house.queue.summary(place.house.now).recipients, n as u64);
    count
}

pub fn outcome(n: usize) -> Count {
    let mut place = Place::new(n);
    let (_, mut input) = place.deferred_list(n);
    let (count, ()) = counted(|| place.results(&mut input));
    assert_eq!(place.house.queue.summary(place.house.now).deferred, 1);
    count
}

pub fn expire(n: usize) -> Count {
    let mut place = Place::new(n);
    let (message, mut input) = place.deferred_list(n);
    place.results(&mut input);
    place.house.queue.sender_gone(SENDER, place.house.now);
    place.house.wait(Duration::from_secs(10 * 86_400));
    let (count, rounds) = counted(|| {
        let mut rounds = 0;
        while place.is_queued(message) {
            place.pump();
            rounds += 1;
            assert!(rounds < 100_000, "it does not expire");
        }
        rounds
    });
    assert!(rounds > 0 && place.house.queue.counters().notices > 0);
    count
}

pub fn list(n: usize) -> Count {
    let place = Place::with_messages(n);
    let (count, rows) = counted(|| place.pages(&Filter::default()).len());
    assert_eq!(rows, n);
    count
}

pub fn ids(n: usize) -> Count {
    let place = Place::with_messages(2 * n);
    let mut ids = place.pages(&Filter::default());
    ids.truncate(n);
    // None passes.
    let filter = Filter { ids, sender: Some("nobody@else.test".into()), ..Filter::default() };
    let (count, rows) = counted(|| place.pages(&filter).len());
    assert_eq!(rows, 0);
    count
}

pub fn summary(n: usize) -> Count {
    let place = Place::with_messages(n);
    counted(|| place.house.queue.admin_summary(place.house.now)).0
}

pub fn hold(n: usize) -> Count {
    let mut place = Place::with_messages(n);
    let ids = place.pages(&Filter::default());
    let (count, ()) = counted(|| {
        // As many as one action takes.
        for page in ids.chunks(2_000) {
            let filter = Filter { ids: page.to_vec(), ..Filter::default() };
            let now = place.house.now;
            place.house.queue.admin_act(1, Action::Hold, &filter, None, false, now);
            place.pump();
        }
    });
    assert_eq!(place.house.queue.summary(place.house.now).held, n as u64);
    count
}

pub fn explain(n: usize) -> Count {
    let mut place = Place::new(1);
    let mut input = place.handed_over(&[envelope(n, false)]);
    place.take_in(&mut input);
    let message = place.pages(&Filter::default())[0];
    let (count, shown) = counted(|| {
        let (mut shown, mut first) = (0, Some(0));
        while let Some(at) = first {
            let Answer::Explanation(page) =
                place.house.queue.admin_explain(message, at, place.house.now)
            else {
                panic!("it is there");
            };
            shown += page.recipients.len();
            first = page.recipient_next;
        }
        shown
    });
    assert_eq!(shown, n);
    count
}

/// The queue process between two that are played.
struct Place {
    house: House,
    receiver: ReceiverEnd,
    sender: SenderEnd,
    number: u64,
}

impl Place {
    /// One whose attempts take this number of recipients at most, and whose sending process has come.
    fn new(recipients_per_message: usize) -> Place {
        let mut place = Place::without_sender(recipients_per_message);
        place.house.queue.sender_connected(SENDER, place.house.now);
        place.sender.connected();
        let mut input = place.said();
        place.results(&mut input);
        place
    }

    /// The same before the sending process has come, for which the scheduler waits.
    fn without_sender(recipients_per_message: usize) -> Place {
        let mut settings = settings();
        settings.scheduler.default.recipients_per_message = recipients_per_message as u32;
        settings.message_cache_bytes_max = 1 << 30;
        let mut house = House::with(settings);
        let receiver = ReceiverEnd::new(BUILD, 1);
        let sender = SenderEnd::new(BUILD, 1, 2_000);
        house.queue.receiver_connected(RECEIVER);
        let mut place = Place { house, receiver, sender, number: 0 };
        place.receiver.connected(place.house.now.monotonic);
        let mut input = place.handed_over(&[]);
        place.take_in(&mut input);
        place
    }

    /// One with messages to a destination each.
    fn with_messages(messages: usize) -> Place {
        let mut place = Place::new(1);
        let one = |at: usize| {
            let mut one = envelope(1, false);
            one.recipients[0].address = super::address(&format!("user@d{at}.test"));
            one
        };
        let all: Vec<Envelope> = (0..messages).map(one).collect();
        for some in all.chunks(100) {
            let mut input = place.handed_over(some);
            place.take_in(&mut input);
        }
        place
    }

    /// The frames that bring these messages.
    fn handed_over(&mut self, envelopes: &[Envelope]) -> BytesMut {
        for envelope in envelopes {
            self.number += 1;
            self.receiver.accept(self.number, envelope.clone(), b"Subject: x\r\n\r\nbody\r\n");
        }
        let mut input = BytesMut::new();
        carry(Some(self.receiver.transmit()), &mut input);
        input
    }

    fn take_in(&mut self, input: &mut BytesMut) {
        let (queue, now) = (&mut self.house.queue, self.house.now);
        queue.receiver_input(RECEIVER, input, now).expect("the two are of one build");
        self.pump();
    }

    /// What the sending process says.
    fn said(&mut self) -> BytesMut {
        let mut input = BytesMut::new();
        carry(Some(self.sender.transmit()), &mut input);
        input
    }

    fn results(&mut self, input: &mut BytesMut) {
        let (queue, now) = (&mut self.house.queue, self.house.now);
        queue.sender_input(SENDER, input, now).expect("the two are of one build");
        self.pump();
    }

    fn pump(&mut self) {
        let meter = Meter::new(Part::Schedule);
        self.house.pump(&meter, Part::Commit);
        self.house.wait(ROUND);
        self.house.pump(&meter, Part::Commit);
    }

    /// The attempts that the sending process has got.
    fn attempts(&mut self) -> Vec<Attempt> {
        let mut input = BytesMut::new();
        carry(self.house.queue.sender_output(SENDER), &mut input);
        self.sender.handle(&mut input).expect("the two are of one build");
        let mut attempts = Vec::new();
        while let Some(event) = self.sender.poll() {
            if let SenderEvent::Attempt { attempt, .. } = event {
                attempts.push(*attempt);
            }
        }
        attempts
    }

    /// A list that was tried once, and the frames that say what each recipient was told.
    fn deferred_list(&mut self, recipients: usize) -> (MessageId, BytesMut) {
        let mut input = self.handed_over(&[envelope(recipients, false)]);
        self.take_in(&mut input);
        let [attempt] = &self.attempts()[..] else { panic!("one attempt") };
        let outcomes: Vec<(u32, Outcome)> = (0..recipients as u32).map(deferred).collect();
        let (message, attempt) = (attempt.message, attempt.id);
        self.sender.result(link::send::Result { attempt, message, outcomes });
        (message, self.said())
    }

    fn is_queued(&self, message: MessageId) -> bool {
        let now = self.house.now;
        matches!(self.house.queue.admin_explain(message, 0, now), Answer::Explanation(_))
    }

    /// The ids of all messages that pass, page by page.
    fn pages(&self, filter: &Filter) -> Vec<MessageId> {
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let Answer::Page(page) =
                self.house.queue.admin_list(filter, after, PAGE, self.house.now)
            else {
                panic!("a page");
            };
            ids.extend(page.rows.iter().map(|row| row.message));
            after = page.next;
            if after.is_none() {
                return ids;
            }
        }
    }
}
