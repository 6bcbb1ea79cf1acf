//! The machine that connects the parts.
//!
//! Must never lose a recipient: each recipient of an attempt gets an outcome, and the outcomes are kept until
//! the queue process has recorded them.

use crate::attempts::Attempts;
use crate::fetch::{BodyFetches, FetchedChunk, LargeBody};
use crate::place::{DeliveryUser, FoundPlace, PlaceRule};
use crate::waiting::{DeliveryItem, WaitingDeliveries};
use crate::workers::{EndedWorker, WorkerId, WorkerRoom, Workers};
use crate::{AttemptEnd, Input, LocalEvent, MailboxAlarm, Output, Settings, outcome};
use bytes::{Bytes, BytesMut};
use link::send::{Attempt, BodySize, Result as AttemptResult, SenderEnd, SenderEvent};
use mail::{Address, Instant, Now, Outcome, Reply};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

/// The local process without its I/O.
#[derive(Debug)]
pub struct LocalDelivery<M> {
    settings: Settings,
    queue: SenderEnd,
    is_connected: bool,
    places: PlaceRule,
    fetches: BodyFetches,
    attempts: Attempts,
    lookups: BTreeMap<u64, HomeLookup<M>>,
    next_lookup: u64,
    waiting: WaitingDeliveries<M>,
    workers: Workers<M>,
    drain: DrainState,
    outbox: VecDeque<Output<M>>,
}

/// A delivery whose place depends on an account of the system.
#[derive(Debug)]
struct HomeLookup<M> {
    attempt: u64,
    index: u32,
    recipient: Address,
    account: String,
    message: M,
}

/// Whether the process is draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainState {
    Not,
    /// The machine waits until this time for deliveries that have begun.
    Until(Instant),
    /// The time is over.
    Over,
}

impl<M: Clone> LocalDelivery<M> {
    /// Creates a machine without work and without a stream. `build` is the build of all our processes, and
    /// `incarnation` is drawn at random for each start of the process.
    pub fn new(settings: Settings, build: u64, incarnation: u64) -> LocalDelivery<M> {
        LocalDelivery {
            queue: SenderEnd::new(build, incarnation, settings.limits.attempts_max),
            is_connected: false,
            places: PlaceRule::new(&settings),
            fetches: BodyFetches::new(settings.limits.fetches_max),
            attempts: Attempts::default(),
            lookups: BTreeMap::new(),
            next_lookup: 0,
            waiting: WaitingDeliveries::new(),
            workers: Workers::new(settings.limits),
            drain: DrainState::Not,
            outbox: VecDeque::new(),
            settings,
        }
    }

    /// Takes an input.
    pub fn handle(&mut self, input: Input<'_, M>, now: Now) {
        match input {
            Input::Connected => self.connected(),
            Input::Received(bytes) => self.received(bytes, now),
            Input::Disconnected => self.is_connected = false,
            Input::Staged { attempt } => self.staged(attempt),
            Input::StagedLast { attempt, message } => self.staged_last(attempt, &message, now),
            Input::StageFailed { attempt, reply } => self.refuse(attempt, &reply, now),
            Input::Home { lookup, home } => self.home(lookup, home, now),
            Input::BatchDone { worker, outcomes, alarms } => {
                self.batch_done(worker, outcomes, &alarms, now);
            }
            Input::WorkerEnded { worker, why } => self.worker_ended(worker, &why, now),
            Input::Drain => self.drain(now.monotonic),
            Input::Timeout => self.timeout(now),
        }
    }

    /// Returns the next output. The driver calls this after each input until it returns `None`.
    pub fn poll(&mut self, now: Now) -> Option<Output<M>> {
        if self.outbox.is_empty() {
            self.give_batch(now.monotonic);
        }
        self.outbox.pop_front()
    }

    /// Returns the frames for the queue process, in order. The driver removes the bytes that it has written.
    pub fn transmit(&mut self) -> &mut VecDeque<Bytes> {
        self.queue.transmit()
    }

    /// Returns when to pass [`Input::Timeout`].
    pub fn next_wakeup(&self) -> Option<Instant> {
        let drain = match self.drain {
            DrainState::Until(until) => Some(until),
            DrainState::Not | DrainState::Over => None,
        };
        drain.into_iter().chain(self.workers.next_wakeup()).min()
    }

    /// True if the process may end: it was told to, and all deliveries that had begun have ended and were
    /// reported, or the time for that is over.
    pub fn is_drained(&mut self) -> bool {
        // Results that were not reported would be delivered again, so the machine waits for a new stream.
        let told = self.is_connected || !self.queue.has_results();
        let written = !self.is_connected || self.queue.transmit().is_empty();
        match self.drain {
            DrainState::Not => false,
            DrainState::Until(_) => self.is_idle() && told && written,
            DrainState::Over => true,
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_idle() && self.lookups.is_empty() && self.outbox.is_empty()
    }

    fn connected(&mut self) {
        self.is_connected = true;
        self.queue.connected();
        self.fetches.ask_again(&mut self.queue);
    }

    fn received(&mut self, bytes: &mut BytesMut, now: Now) {
        let taken = self.queue.handle(bytes);
        while let Some(event) = self.queue.poll() {
            match event {
                SenderEvent::Attempt { attempt, body } => self.attempt(*attempt, body, now),
                SenderEvent::Chunk { attempt, offset, bytes } => {
                    self.chunk(attempt, offset, bytes, now);
                }
                SenderEvent::ChunkBad { attempt } => self.body_damaged(attempt, now),
            }
        }
        if let Err(error) = taken {
            self.is_connected = false;
            self.outbox.push_back(Output::HangUp(error));
        }
    }

    fn attempt(&mut self, attempt: Attempt, body: Option<Bytes>, now: Now) {
        let Attempt { id, message, body: BodySize { bytes, .. }, .. } = attempt;
        let has_recipients = !attempt.recipients.is_empty();
        self.attempts.begin(attempt, now.wall);
        if !has_recipients {
            self.tell_result(id);
        } else if let Some(body) = body {
            self.stage(id, body, true);
        } else if self.drain == DrainState::Not {
            self.fetches.begin(LargeBody { attempt: id, message, bytes }, &mut self.queue);
        }
    }

    fn chunk(&mut self, attempt: u64, offset: u64, bytes: Bytes, now: Now) {
        match self.fetches.chunk(attempt, offset, bytes.len()) {
            FetchedChunk::Unasked => {}
            FetchedChunk::Stage { last } => self.stage(attempt, bytes, last),
            FetchedChunk::TooShort => self.body_damaged(attempt, now),
        }
    }

    fn stage(&mut self, attempt: u64, bytes: Bytes, last: bool) {
        let Some(facts) = self.attempts.facts(attempt) else { return };
        let sender = facts.sender.clone();
        self.outbox.push_back(Output::Stage { attempt, sender, bytes, last });
    }

    fn body_damaged(&mut self, attempt: u64, now: Now) {
        if self.fetches.end(attempt, &mut self.queue) {
            self.outbox.push_back(Output::Unstage { attempt });
            self.refuse_all(attempt, &outcome::damaged(), now);
        }
    }

    fn staged(&mut self, attempt: u64) {
        if self.drain == DrainState::Not {
            self.fetches.staged(attempt, &mut self.queue);
        }
    }

    /// Fails an attempt whose message could not be staged.
    fn refuse(&mut self, attempt: u64, reply: &Reply, now: Now) {
        self.fetches.end(attempt, &mut self.queue);
        self.refuse_all(attempt, reply, now);
    }

    fn refuse_all(&mut self, attempt: u64, reply: &Reply, now: Now) {
        for (index, recipient) in self.attempts.take_recipients(attempt) {
            let outcome = outcome::outcome(reply.clone(), "");
            self.outcome(attempt, index, &recipient, outcome, now);
        }
    }

    /// Handles a complete message: each recipient waits for its delivery user, or gets its outcome at once.
    fn staged_last(&mut self, attempt: u64, message: &M, now: Now) {
        self.fetches.end(attempt, &mut self.queue);
        if self.drain != DrainState::Not {
            return; // none of its recipients has an outcome: all are left to the next process
        }
        for (index, recipient) in self.attempts.take_recipients(attempt) {
            match self.places.find(&recipient) {
                Ok(FoundPlace::Known(user, place)) => {
                    let message = message.clone();
                    self.push(user, DeliveryItem { attempt, index, recipient, message, place });
                }
                Ok(FoundPlace::NeedsHome(account)) => {
                    let message = message.clone();
                    self.find_home(HomeLookup { attempt, index, recipient, account, message });
                }
                Err(reply) => {
                    let outcome = outcome::outcome(reply, "");
                    self.outcome(attempt, index, &recipient, outcome, now);
                }
            }
        }
    }

    fn find_home(&mut self, lookup: HomeLookup<M>) {
        let number = self.next_lookup;
        self.next_lookup += 1;
        let account = lookup.account.as_str().into();
        self.lookups.insert(number, lookup);
        self.outbox.push_back(Output::FindHome { lookup: number, account });
    }

    fn home(&mut self, lookup: u64, home: Option<PathBuf>, now: Now) {
        let Some(lookup) = self.lookups.remove(&lookup) else { return };
        let HomeLookup { attempt, index, recipient, account, message } = lookup;
        match self.places.find_at_home(&recipient, &account, home.as_deref()) {
            Ok((user, place)) => {
                self.push(user, DeliveryItem { attempt, index, recipient, message, place });
            }
            Err(reply) => {
                let outcome = outcome::outcome(reply, "");
                self.outcome(attempt, index, &recipient, outcome, now);
            }
        }
    }

    fn push(&mut self, user: DeliveryUser, item: DeliveryItem<M>) {
        if self.drain == DrainState::Not || self.attempts.has_begun(item.attempt) {
            self.waiting.push(user, item);
        }
    }

    /// Gives the next batch to a worker if there is room for one.
    fn give_batch(&mut self, now: Instant) {
        let Some(user) = self.waiting.next_ready() else { return };
        let worker = match self.workers.room_for(user) {
            WorkerRoom::Has(worker) => worker,
            WorkerRoom::Free => self.start_worker(user.clone(), now),
            WorkerRoom::After(idle) => {
                let user = user.clone();
                self.workers.end(idle);
                self.outbox.push_back(Output::EndWorker { worker: idle });
                self.start_worker(user, now)
            }
            WorkerRoom::None => return,
        };
        let Some(batch) = self.waiting.take(self.settings.limits.batch_items_max) else { return };
        batch.iter().for_each(|item| self.attempts.has_delivery(item.attempt));
        self.workers.give(worker, batch.clone(), now);
        self.outbox.push_back(Output::Deliver { worker, batch });
    }

    fn start_worker(&mut self, user: DeliveryUser, now: Instant) -> WorkerId {
        let worker = self.workers.start(user.clone(), now);
        self.outbox.push_back(Output::StartWorker { worker, user });
        worker
    }

    fn batch_done(
        &mut self,
        worker: WorkerId,
        outcomes: Vec<Outcome>,
        alarms: &[MailboxAlarm],
        now: Now,
    ) {
        let Some((user, batch)) = self.workers.take_batch(worker, outcomes.len(), now.monotonic)
        else {
            return self.end_worker(worker, "it answered something else than it was asked", now);
        };
        self.waiting.free(&user);
        for alarm in alarms.iter().take(batch.len()) {
            let Some(outcome) = outcomes.get(alarm.delivery) else { continue };
            let mailbox = outcome.report().peer.clone();
            self.outbox.push_back(Output::Log(LocalEvent::Alarm { mailbox, alarm: *alarm }));
        }
        for (item, outcome) in batch.iter().zip(outcomes) {
            self.outcome(item.attempt, item.index, &item.recipient, outcome, now);
        }
    }

    fn worker_ended(&mut self, worker: WorkerId, why: &str, now: Now) {
        let Some(EndedWorker { user, batch: Some(batch) }) = self.workers.end(worker) else {
            return;
        };
        self.waiting.free(&user);
        let name = match &user {
            DeliveryUser::Account(name) => name,
            DeliveryUser::ThisProcess => "",
        };
        let reply = outcome::worker_ended(name, why);
        for item in &*batch {
            let outcome = outcome::outcome(reply.clone(), "");
            self.outcome(item.attempt, item.index, &item.recipient, outcome, now);
        }
    }

    /// Stops a worker that has not ended by itself.
    fn end_worker(&mut self, worker: WorkerId, why: &str, now: Now) {
        if self.workers.knows(worker) {
            self.outbox.push_back(Output::EndWorker { worker });
            self.worker_ended(worker, why, now);
        }
    }

    /// Records the outcome of one recipient and logs it. With the last outcome the queue process gets the
    /// result.
    fn outcome(
        &mut self,
        attempt: u64,
        index: u32,
        recipient: &Address,
        outcome: Outcome,
        now: Now,
    ) {
        let Some(facts) = self.attempts.facts(attempt) else { return };
        let end = AttemptEnd {
            message: facts.message,
            sender: facts.sender.clone(),
            recipient: recipient.clone(),
            times: facts.times,
            taken: facts.taken,
            ended: now.wall,
            outcome: outcome.clone(),
        };
        self.outbox.push_back(Output::Log(LocalEvent::Attempt(Box::new(end))));
        let result = self.attempts.outcome(attempt, index, outcome);
        self.tell(result);
    }

    fn tell_result(&mut self, attempt: u64) {
        let result = self.attempts.result(attempt);
        self.tell(result);
    }

    fn tell(&mut self, result: Option<AttemptResult>) {
        if let Some(result) = result {
            self.queue.result(result);
        }
    }

    /// Takes no further attempts. An attempt continues if one of its recipients has an outcome or may get one:
    /// that recipient would get the message twice if the attempt were made again.
    fn drain(&mut self, now: Instant) {
        if self.drain != DrainState::Not {
            return;
        }
        self.drain = DrainState::Until(now + self.settings.limits.drain_time_max);
        self.queue.drain();
        self.fetches.stop();
        let attempts = &self.attempts;
        self.waiting.retain(|item| attempts.has_begun(item.attempt));
        self.lookups.retain(|_, lookup| attempts.has_begun(lookup.attempt));
    }

    fn timeout(&mut self, now: Now) {
        while let Some(worker) = self.workers.overdue(now.monotonic) {
            self.end_worker(worker, "it did not answer in time", now);
        }
        if matches!(self.drain, DrainState::Until(until) if until <= now.monotonic) {
            self.drain = DrainState::Over;
            // The known outcomes are reported, and recipients without one are deferred.
            let partial = self.attempts.partial();
            partial.into_iter().for_each(|attempt| self.tell_result(attempt));
        }
    }
}
