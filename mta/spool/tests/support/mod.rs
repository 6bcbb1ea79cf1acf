//! A small machine around a spool: it executes I/O in any order, keeps a ledger of promises, and judges a recovered
//! spool by the ledger.
//!
//! Must never know how the spool works inside.

#![allow(dead_code)] // each test file uses its own part

use bytes::Bytes;
use mail::{
    Address, Change, Enhanced, Envelope, MailFrom, MessageId, Notify, Now, Origin, Protocol,
    Recipient, Reply, Report, ReversePath, Stage, Timestamp, TransactionId,
};
use serde::{Deserialize, Serialize};
use spool::{
    Alarm, Begun, Class, Group, Io, IoDone, NewMessage, OpenReport, Output, Refusal, Replay,
    Settings, SnapshotSlice, Spool, Ticket, Unsynced,
};
use std::collections::BTreeMap;
use std::time::Duration;
use world::sim::{Clock, Disk, Rng};
use world::{Clock as _, Rng as _};

/// Small settings, so that a short workload fills and recycles segments and makes snapshots.
pub fn settings(commits_in_flight: usize) -> Settings {
    Settings {
        segment_bytes: 64 << 10,
        batch_bytes_max: 16 << 10,
        commits_in_flight,
        reserve_bytes: 32 << 10,
        keep_free_bytes: 0,
        bulk_body_bytes_min: 12 << 10,
        chunk_bytes_max: 4 << 10,
        snapshot_log_bytes: 48 << 10,
        snapshot_slice_messages: 5,
        staged_bytes_max: 8 << 20,
        spares: 2,
        zero_slice_bytes: 64 << 10,
        copy_forward_divisor: 2,
        recent_transactions_max: 10_000,
        ..Settings::for_tests()
    }
}

/// The state that a scheduler has of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub failed: bool,
    pub attempts: u16,
    pub held: bool,
}

impl State {
    pub fn fold(&mut self, change: &Change) {
        match change {
            Change::Failed { .. } => self.failed = true,
            Change::Due { attempts, .. } => self.attempts = *attempts,
            Change::Hold { .. } => self.held = true,
            Change::Release { .. } => self.held = false,
            _ => {}
        }
    }
}

/// A message as its sender knows it, with what became of it.
#[derive(Clone, Debug)]
pub struct Sent {
    pub transaction: TransactionId,
    pub body: Vec<u8>,
    pub prefix: Vec<u8>,
    pub envelope: Envelope,
    pub durable: bool,
    pub refused: bool,
    /// All changes that were recorded or handed in, in order, and the number that is surely recorded.
    pub changes: Vec<Change>,
    pub recorded: usize,
    /// The message that this bounce is about, if it is a bounce.
    pub bounce_of: Option<MessageId>,
    /// True if an earlier incarnation accepted the message.
    pub adopted: bool,
}

/// The promises that must hold after any power cut.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub sent: BTreeMap<MessageId, Sent>,
    tickets: BTreeMap<Ticket, Vec<(MessageId, usize)>>,
    last_transaction: u64,
}

/// A spool with its disk and its ledger.
pub struct Machine {
    pub disk: Disk,
    pub clock: Clock,
    pub chance: Rng,
    pub spool: Spool,
    pub report: OpenReport,
    pub ledger: Ledger,
    /// The state of each message, as a scheduler has it.
    pub states: BTreeMap<MessageId, State>,
    pub alarms: Vec<Alarm>,
    under_way: Vec<UnderWay>,
    /// The answers that clients have seen.
    pub durable: u64,
    pub refusals: Vec<Refusal>,
    /// True if the requests of the spool for slices of a snapshot are not answered.
    pub snapshots: bool,
    /// The slice that was asked for while answers were held back.
    pub held_slice: Option<SnapshotSlice>,
    /// Upper bound on the messages in a slice, as if their state were long.
    pub slice_messages_max: usize,
}

enum UnderWay {
    Fresh(Io),
    /// The bytes are written, and the sync has not been called.
    Written(Unsynced),
}

pub fn now(micros: u64) -> Now {
    let clock = Clock::starting(Timestamp::from_micros(1_000_000));
    clock.advance(Duration::from_micros(micros));
    clock.now()
}

pub fn envelope(to: &str) -> Envelope {
    let address = Address::parse(to, false).unwrap();
    Envelope {
        from: MailFrom::new(ReversePath::Null),
        origin: Origin { client: None, helo: "h".into(), protocol: Protocol::Esmtp },
        arrived: Timestamp::from_micros(7),
        recipients: vec![Recipient { address, notify: Notify::DEFAULT, orcpt: None }],
    }
}

pub fn due(message: MessageId, attempts: u16) -> Change {
    let reply = Reply::new(451, Enhanced(4, 0, 0), "later");
    let report = Report { stage: Stage::Rcpt, reply, peer: "peer".into(), from_peer: true };
    let due = Timestamp::from_micros(i64::from(attempts));
    Change::Due { message, recipients: vec![0], due, attempts, report }
}

impl Machine {
    /// Opens the spool on this disk. Returns `None` if the power went meanwhile.
    pub fn open(disk: &Disk, settings: Settings, ledger: Ledger, seed: u64) -> Option<Machine> {
        let mut states = BTreeMap::new();
        let opened = spool::open(disk, settings, seed ^ 0xfeed, &mut |replay| match replay {
            Replay::Snapshot { message, blob, .. } => {
                let old = states.insert(message, postcard::from_bytes::<State>(blob).unwrap());
                assert_eq!(old, None, "{message} is told once");
            }
            Replay::Accepted { message, .. } => {
                let old = states.insert(message, State::default());
                assert_eq!(old, None, "{message} is told once");
            }
            Replay::Change(Change::Retire { message }) => panic!("{message} has ended and is told"),
            Replay::Change(change) => {
                let state = states.get_mut(&change.message());
                state.expect("a change of a message that was told").fold(&change);
            }
        });
        let (spool, report) = match opened {
            Ok(opened) => opened,
            Err(error) if disk.is_off() => {
                let _ = error;
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        Some(Machine {
            disk: disk.clone(),
            clock: Clock::starting(Timestamp::from_micros(1_000_000)),
            chance: Rng::seeded(seed),
            spool,
            report,
            ledger,
            states,
            alarms: Vec::new(),
            under_way: Vec::new(),
            durable: 0,
            refusals: Vec::new(),
            snapshots: true,
            held_slice: None,
            slice_messages_max: usize::MAX,
        })
    }

    /// Takes all outputs of the spool; I/O is kept for later.
    pub fn drain(&mut self) {
        while let Some(output) = self.spool.poll(self.clock.now()) {
            match output {
                Output::Io(io) => self.under_way.push(UnderWay::Fresh(io)),
                Output::Durable(durable) => {
                    let sent = self.ledger.sent.get_mut(&durable.message()).unwrap();
                    assert_eq!(sent.transaction, durable.transaction());
                    assert!(!sent.durable && !sent.refused, "answered once");
                    sent.durable = true;
                    self.durable += 1;
                    self.states.insert(durable.message(), State::default());
                }
                Output::Recorded(ticket) => {
                    for (message, count) in self.ledger.tickets.remove(&ticket).unwrap() {
                        let sent = self.ledger.sent.get_mut(&message).unwrap();
                        sent.recorded = sent.recorded.max(count);
                    }
                }
                Output::Refused { transaction, refusal } => {
                    self.refusals.push(refusal);
                    let of = |sent: &&mut Sent| sent.transaction == transaction;
                    let sent = self.ledger.sent.values_mut().find(of).unwrap();
                    assert!(!sent.durable, "refused after it was promised");
                    sent.refused = true;
                }
                Output::Alarm(alarm) => self.alarms.push(alarm),
                Output::SnapshotWanted(mut slice) => {
                    slice.end_after(self.slice_messages_max);
                    if self.snapshots {
                        self.answer(slice);
                    } else {
                        self.held_slice = Some(slice);
                    }
                }
            }
        }
    }

    /// Gives the spool a slice of a snapshot.
    pub fn answer(&mut self, slice: SnapshotSlice) {
        // A message that has ended here already is left out.
        let blob = |id: &MessageId| Some((*id, postcard::to_stdvec(self.states.get(id)?).unwrap()));
        let blobs = slice.messages.iter().filter_map(blob).collect();
        self.spool.snapshot_slice(slice, blobs);
    }

    /// Executes one random part of one I/O, so that writes and syncs of commits interleave as on threads. Returns
    /// false if there was nothing to do.
    pub fn step(&mut self) -> bool {
        self.drain();
        if self.under_way.is_empty() {
            return false;
        }
        let at = self.chance.below(self.under_way.len() as u64) as usize;
        self.execute(at);
        true
    }

    /// Executes background I/O only, as if commits never ended. Returns false if there is none.
    pub fn step_background(&mut self) -> bool {
        self.drain();
        let is_background = |under_way: &UnderWay| {
            let io = match under_way {
                UnderWay::Fresh(io) => io,
                UnderWay::Written(unsynced) => unsynced.io(),
            };
            io.class() == Class::Background
        };
        let Some(at) = self.under_way.iter().position(is_background) else { return false };
        self.execute(at);
        true
    }

    fn execute(&mut self, at: usize) {
        match self.under_way.swap_remove(at) {
            UnderWay::Fresh(io) => match spool::begin(&self.disk, io) {
                Begun::Unsynced(unsynced) => self.under_way.push(UnderWay::Written(unsynced)),
                Begun::Done(done) => self.finish(done),
            },
            UnderWay::Written(unsynced) => {
                let done = unsynced.sync(&self.disk);
                self.finish(done);
            }
        }
    }

    /// A machine without power does nothing and says nothing.
    fn finish(&mut self, done: IoDone) {
        if !self.disk.is_off() {
            self.spool.handle(done, self.clock.now());
            self.drain();
        }
    }

    /// Runs until everything that was handed in is answered; panics if that takes too long.
    pub fn settle(&mut self) {
        for _ in 0..20_000 {
            if self.disk.is_off() {
                return;
            }
            self.drain();
            if self.spool.is_settled() && self.under_way.is_empty() {
                return;
            }
            if !self.step() {
                let wait = match self.spool.next_wakeup() {
                    Some(at) => at.since(self.clock.now().monotonic) + Duration::from_micros(1),
                    None => panic!("nothing to do and nothing to wait for, but not settled"),
                };
                self.clock.advance(wait);
            }
        }
        panic!("does not settle: {:?} {:?}", self.spool.usage(), self.alarms);
    }

    pub fn transaction(&mut self) -> TransactionId {
        self.ledger.last_transaction += 1;
        TransactionId { incarnation: 7, number: self.ledger.last_transaction }
    }

    pub fn body(&mut self, bytes: u64) -> Vec<u8> {
        (0..bytes).map(|_| self.chance.u64() as u8).collect()
    }

    /// Hands in a client's message. Returns its id if the spool took it.
    pub fn accept(&mut self, body: Vec<u8>) -> Option<MessageId> {
        self.try_accept(body).ok()
    }

    /// Hands in a client's message. Returns its id, or why the spool refused it at once.
    pub fn try_accept(&mut self, body: Vec<u8>) -> Result<MessageId, Refusal> {
        let transaction = self.transaction();
        for piece in body.chunks(1500) {
            if let Err(refusal) = self.spool.stage(transaction, Bytes::copy_from_slice(piece)) {
                self.spool.unstage(transaction);
                return Err(refusal);
            }
        }
        let (to, prefix) = (envelope("user@example.org"), b"Received: x\r\n".to_vec());
        let now = self.clock.now();
        let message = self.spool.next_message_id(now);
        match self.spool.accept(message, transaction, &to, &prefix, now) {
            Ok(()) => {
                self.enter(message, transaction, body, prefix, to, None);
                Ok(message)
            }
            Err(refusal) => {
                self.spool.unstage(transaction);
                Err(refusal)
            }
        }
    }

    fn enter(
        &mut self,
        message: MessageId,
        transaction: TransactionId,
        body: Vec<u8>,
        prefix: Vec<u8>,
        envelope: Envelope,
        bounce_of: Option<MessageId>,
    ) {
        let (durable, refused, changes, recorded) = (false, false, Vec::new(), 0);
        let sent = Sent {
            transaction,
            body,
            prefix,
            envelope,
            durable,
            refused,
            changes,
            recorded,
            bounce_of,
            adopted: false,
        };
        assert!(self.ledger.sent.insert(message, sent).is_none(), "an id is used once");
    }

    pub fn change(&mut self, change: Change) {
        self.note(&change);
        let ticket = self.spool.change(change.clone(), self.clock.now());
        let message = change.message();
        let count = self.ledger.sent[&message].changes.len();
        self.ledger.tickets.insert(ticket, vec![(message, count)]);
    }

    fn note(&mut self, change: &Change) {
        let message = change.message();
        self.ledger.sent.get_mut(&message).unwrap().changes.push(change.clone());
        match change {
            Change::Retire { .. } => {
                self.states.remove(&message);
            }
            change => self.states.get_mut(&message).unwrap().fold(change),
        }
    }

    /// Records a failed recipient and its bounce in one group.
    pub fn bounce(&mut self, failed: MessageId) -> bool {
        let transaction = self.transaction();
        let body = self.body(300);
        if self.spool.stage_own(transaction, Bytes::from(body.clone())).is_err() {
            return false;
        }
        let (to, prefix) = (envelope("sender@example.org"), Vec::new());
        let message = NewMessage { transaction, envelope: to.clone(), prefix: prefix.clone() };
        let change = Change::Failed { message: failed, recipients: vec![0] };
        let group = Group { messages: vec![message], changes: vec![change.clone()] };
        let Ok((ticket, ids)) = self.spool.submit(group, self.clock.now()) else {
            self.spool.unstage(transaction);
            return false;
        };
        self.note(&change);
        let count = self.ledger.sent[&failed].changes.len();
        self.ledger.tickets.insert(ticket, vec![(failed, count)]);
        self.enter(ids[0], transaction, body, prefix, to, Some(failed));
        true
    }

    /// Does one random thing that a queue does.
    pub fn act(&mut self) {
        let live: Vec<_> = self.states.keys().copied().collect();
        let one = |chance: &mut Rng| {
            let at = chance.below(live.len() as u64) as usize;
            live.get(at).copied()
        };
        // With much mail in the spool, more messages end.
        let luck = self.chance.below(if live.len() > 12 { 24 } else { 12 });
        match (luck, one(&mut self.chance)) {
            (0..4, _) | (_, None) => {
                let bytes = self.chance.below(3000);
                let body = self.body(bytes);
                self.accept(body);
            }
            (4, _) => {
                let bytes = self.chance.below(30_000);
                let body = self.body(bytes);
                self.accept(body);
            }
            (5, _) => {
                let (transaction, body) = (self.transaction(), self.body(6000));
                let _ = self.spool.stage(transaction, Bytes::from(body));
                self.spool.unstage(transaction);
            }
            (6, Some(message)) => {
                let attempts = self.states[&message].attempts + 1;
                self.change(due(message, attempts));
            }
            (7, Some(message)) => {
                let held = self.states[&message].held;
                let release = Change::Release { message };
                self.change(if held { release } else { Change::Hold { message } });
            }
            (8, Some(message)) if !self.states[&message].failed => {
                if self.bounce(message) {
                    self.change(Change::Retire { message });
                }
            }
            (_, Some(message)) => self.change(Change::Retire { message }),
        }
    }

    /// Runs a whole workload: acts and I/O in turn, until everything is answered. Ends early when the power goes.
    pub fn work(&mut self, acts: u64) {
        for _ in 0..acts {
            self.act();
            for _ in 0..self.chance.below(6) {
                self.step();
            }
            self.clock.advance(Duration::from_millis(self.chance.below(15)));
            if self.disk.is_off() {
                return;
            }
        }
        self.settle();
    }

    /// Compares what was recovered with what was promised. Must be called right after the spool was opened.
    pub fn judge(&mut self) {
        assert_eq!(self.report.damage, [], "a cut is no damage");
        assert!(self.spool.messages_above(0).eq(self.states.keys().copied()));
        let ledger = self.ledger.clone();
        for message in self.states.keys() {
            assert!(ledger.sent.contains_key(message), "{message} was never sent");
        }
        for (message, sent) in &ledger.sent {
            self.judge_message(*message, sent);
        }
    }

    fn judge_message(&mut self, message: MessageId, sent: &Sent) {
        let ends = |change: &Change| matches!(change, Change::Retire { .. });
        let ended = sent.changes.iter().position(ends);
        let Some(state) = self.states.get(&message).cloned() else {
            let may_be_gone = !sent.durable || ended.is_some();
            assert!(may_be_gone, "{message} was promised and is lost");
            let failed = |change: &Change| matches!(change, Change::Failed { .. });
            if sent.durable && sent.changes.iter().any(failed) {
                self.judge_bounce(message, "ended");
            }
            return;
        };
        assert!(!sent.refused, "{message} was refused and is there");
        assert!(ended.is_none_or(|at| sent.recorded <= at), "{message} ended and is there");
        let mut folded = State::default();
        let mut fits = sent.recorded == 0 && folded == state;
        for (at, change) in sent.changes.iter().enumerate() {
            folded.fold(change);
            fits |= at + 1 >= sent.recorded && folded == state;
        }
        assert!(fits, "{message}: {state:?} after {:?}, {} sure", sent.changes, sent.recorded);
        if let Some(failed) = sent.bounce_of.and_then(|of| self.states.get(&of)) {
            assert!(failed.failed, "a bounce without its failure");
        }
        if state.failed {
            self.judge_bounce(message, "failed");
        }
        let (found, body) = self.read(message).expect("a live message can be read");
        assert_eq!(body, sent.body, "{message}");
        assert_eq!(found.prefix, sent.prefix);
        assert_eq!(found.envelope, sent.envelope);
        assert_eq!(self.spool.lookup_transaction(sent.transaction), Some(message));
    }

    fn judge_bounce(&self, message: MessageId, what: &str) {
        let bounce = |other: &&Sent| other.bounce_of == Some(message);
        let Some((id, bounce)) = self.ledger.sent.iter().find(|(_, other)| bounce(other)) else {
            // The message was judged in an earlier incarnation and had ended.
            assert!(self.ledger.sent[&message].adopted, "{message} {what} without a bounce");
            return;
        };
        let there = self.states.contains_key(id) || !bounce.changes.is_empty();
        assert!(there, "{message} {what} and its bounce is lost");
    }

    /// Reads a whole message.
    pub fn read(
        &mut self,
        message: MessageId,
    ) -> Result<(spool::StoredMessage, Vec<u8>), spool::ReadError> {
        let plan = self.spool.plan(message).unwrap();
        let read = read_with(&self.disk, &plan);
        self.spool.unplan(plan);
        read
    }

    /// Updates the ledger after recovery: a message that is there stays, and one that is not there will not come
    /// back.
    pub fn adopt(&mut self) {
        let states = &self.states;
        self.ledger.tickets.clear();
        self.ledger.sent.retain(|message, _| states.contains_key(message));
        for (message, sent) in &mut self.ledger.sent {
            sent.durable = true;
            sent.adopted = true;
            // Applying changes to the recovered state again must give the same state, so the ledger starts from it.
            let state = &states[message];
            sent.changes.clear();
            if state.attempts > 0 {
                sent.changes.push(due(*message, state.attempts));
            }
            if state.held {
                sent.changes.push(Change::Hold { message: *message });
            }
            if state.failed {
                sent.changes.push(Change::Failed { message: *message, recipients: vec![0] });
            }
            sent.recorded = sent.changes.len();
        }
    }
}

pub fn read_with(
    disk: &dyn world::Disk,
    plan: &spool::ReadPlan,
) -> Result<(spool::StoredMessage, Vec<u8>), spool::ReadError> {
    let stored = spool::read_message(disk, plan)?;
    let mut body = stored.body.clone().unwrap_or_default().to_vec();
    for chunk in &stored.chunks {
        body.extend_from_slice(&spool::read_chunk(disk, chunk)?);
    }
    Ok((stored, body))
}
