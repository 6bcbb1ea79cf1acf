//! The queue: runs the spool and the scheduler against each other until nothing moves.
//!
//! Must never begin an attempt while its outcome could not be recorded.

use crate::dispatch::{SenderKey, Senders};
use crate::intake::Receivers;
use crate::message_cache::MessageCache;
use crate::record::PendingRecords;
use crate::{LogEvent, Output, Settings};
use bytes::{Bytes, BytesMut};
use link::LinkError;
use mail::{Instant, Now};
use scheduler::Scheduler;
use spool::Spool;
use std::collections::VecDeque;
use std::time::Duration;

/// The queue of one mailer.
pub struct Queue {
    build: u64,
    pub(crate) settings: Settings,
    pub(crate) spool: Spool,
    pub(crate) scheduler: Scheduler,
    pub(crate) receivers: Receivers,
    pub(crate) senders: Senders,
    pub(crate) records: PendingRecords,
    pub(crate) message_cache: MessageCache,
    /// The slice of a snapshot that the spool waits for.
    pub(crate) slice: Option<spool::SnapshotSlice>,
    pub(crate) output: VecDeque<Output>,
    started: Instant,
    /// The incarnation in the ids of our own transactions, which carry notices. Drawn at random.
    pub(crate) own_incarnation: u64,
    pub(crate) own_number: u64,
    pub(crate) counters: Counters,
    /// True if the log was last told that writes fail.
    failing: bool,
}

/// Counters for `status`, from the start of this process.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Messages accepted from clients.
    pub accepted: u64,
    /// Messages refused because the disk is full or fails.
    pub refused: u64,
    /// Recipients whose mail was delivered.
    pub delivered: u64,
    /// Deferrals, counted for each recipient.
    pub deferred: u64,
    /// Recipients that failed permanently.
    pub failed: u64,
    /// Notices added to the queue.
    pub notices: u64,
    /// Attempts given to sending processes.
    pub attempts: u64,
}

/// How long a new queue process waits for the sending processes to name the attempts that they already have.
const SENDERS_WAIT: Duration = Duration::from_secs(2);

/// Upper bound on the groups of outcomes that are known and not durable. They wait for a slow disk, or because their
/// message is read for a notice. At this number no new attempt begins, because a delivery that is not recorded is
/// repeated after a crash.
const UNRECORDED_RESULTS_MAX: usize = 2048;

/// A commit that takes longer than this may fail, so no attempt begins until it has ended. Even a slow disk that
/// works needs less.
const COMMIT_TIME_MAX: Duration = Duration::from_secs(2);

/// Upper bound on the recipients in one slice of a snapshot that has more than one message. The thread does nothing
/// else while it makes a slice.
pub const SLICE_RECIPIENTS_MAX: usize = 4096;

impl Queue {
    /// Creates the queue over an open spool and the scheduler that was restored from it. `own_incarnation` is random;
    /// `senders` is the number of sending processes to expect.
    pub fn new(
        build: u64,
        own_incarnation: u64,
        settings: Settings,
        spool: Spool,
        scheduler: Scheduler,
        senders: usize,
        now: Now,
    ) -> Queue {
        let credit_bytes = settings.credit_bytes / u64::from(settings.receivers.max(1));
        Queue {
            build,
            spool,
            scheduler,
            receivers: Receivers::new(credit_bytes),
            senders: Senders::new(senders, now.monotonic + SENDERS_WAIT, [own_incarnation; 2]),
            records: PendingRecords::default(),
            message_cache: MessageCache::new(settings.message_cache_bytes_max),
            slice: None,
            settings,
            output: VecDeque::new(),
            started: now.monotonic,
            own_incarnation,
            own_number: 0,
            counters: Counters::default(),
            failing: false,
        }
    }

    /// Sets the key that seals attempts. A process is believed about an attempt of a former incarnation only if the
    /// key is the one of that incarnation.
    pub fn sealed_with(mut self, key: [u64; 2]) -> Queue {
        self.senders.set_seal_key(key);
        self
    }

    /// Uses new settings for new work.
    pub fn reload(&mut self, settings: Settings, now: Now) {
        self.scheduler.reload(settings.scheduler.clone(), now);
        self.settings = settings;
    }

    /// Takes the result of an I/O request.
    pub fn io_done(&mut self, done: spool::IoDone, now: Now) {
        self.spool.handle(done, now);
    }

    /// Begins a stream to a receiving process.
    pub fn receiver_connected(&mut self, instance: u16) {
        self.receiver_gone(instance);
        self.receivers.connect(instance, self.build);
    }

    /// Ends the stream to a receiving process and removes its transactions that are not complete.
    pub fn receiver_gone(&mut self, instance: u16) {
        for transaction in self.receivers.disconnect(instance) {
            self.spool.unstage(transaction);
        }
    }

    /// Takes bytes from a receiving process.
    pub fn receiver_input(
        &mut self,
        instance: u16,
        input: &mut BytesMut,
        now: Now,
    ) -> Result<(), LinkError> {
        self.receivers.input(instance, input)?;
        self.take_in(instance, now);
        Ok(())
    }

    /// Returns the frames to write to a receiving process.
    pub fn receiver_output(&mut self, instance: u16) -> Option<&mut VecDeque<Bytes>> {
        self.receivers.output(instance)
    }

    /// Returns what each receiving process last reported about the memory of its sessions.
    pub fn receiver_memory(
        &self,
    ) -> impl Iterator<Item = (u16, link::receive::SessionMemory)> + '_ {
        self.receivers.memory()
    }

    /// Begins a stream to a sending process.
    pub fn sender_connected(&mut self, key: SenderKey, now: Now) {
        self.sender_gone(key, now);
        self.senders.connect(key, self.build, self.records.awaited(key));
    }

    /// Ends the stream to a sending process. Its attempts are lost unless the process names them over a new stream
    /// soon.
    pub fn sender_gone(&mut self, key: SenderKey, now: Now) {
        self.withdraw_from(key, now);
        self.senders.disconnect(key, now.monotonic);
    }

    /// Takes bytes from a sending process. After an error the caller must give in nothing more of this stream and
    /// must call [`Self::sender_gone`].
    pub fn sender_input(
        &mut self,
        key: SenderKey,
        input: &mut BytesMut,
        now: Now,
    ) -> Result<(), LinkError> {
        self.senders.input(key, input)?;
        self.hear_sender(key, now)
    }

    /// Returns the frames to write to a sending process.
    pub fn sender_output(&mut self, key: SenderKey) -> Option<&mut VecDeque<Bytes>> {
        self.senders.output(key)
    }

    /// Runs the spool and the scheduler until neither has anything more to do.
    pub fn advance(&mut self, now: Now) {
        self.lose_orphans(now);
        loop {
            let moved = self.advance_spool(now) | self.advance_scheduler(now);
            self.watch_writes(now);
            if !moved && !self.advance_snapshot(now) {
                return self.senders.tell(now.monotonic);
            }
        }
    }

    /// Gives the spool the slice of a snapshot that it wants, once the spool has every record of the messages in the
    /// slice. Otherwise a crash could leave a snapshot that has a failure without its notice.
    fn advance_snapshot(&mut self, now: Now) -> bool {
        if !self.may_schedule(now) {
            return false; // the scheduler has not been asked for its records yet
        }
        let records = &self.records;
        let told = |slice: &mut spool::SnapshotSlice| {
            slice.messages.iter().all(|message| records.all_submitted(*message))
        };
        let Some(mut slice) = self.slice.take_if(told) else { return false };
        let max = SLICE_RECIPIENTS_MAX;
        let (blobs, taken) = self.scheduler.export_all(&slice.messages, max, now);
        slice.end_after(taken);
        self.spool.snapshot_slice(slice, blobs);
        true
    }

    fn advance_spool(&mut self, now: Now) -> bool {
        let mut moved = false;
        while let Some(output) = self.spool.poll(now) {
            moved = true;
            match output {
                spool::Output::Io(io) => self.output.push_back(Output::Io(io)),
                spool::Output::Durable(durable) => self.durable(durable, now),
                spool::Output::Recorded(ticket) => self.recorded(ticket, now),
                spool::Output::Refused { transaction, refusal } => {
                    self.refused(transaction, refusal);
                }
                spool::Output::Alarm(alarm) => self.log(LogEvent::Alarm(alarm)),
                spool::Output::SnapshotWanted(slice) => self.slice = Some(slice),
            }
        }
        if moved {
            self.receivers.credit();
        }
        if moved || self.records.retry_due().is_some_and(|at| at <= now.monotonic) {
            self.record_stalled(now);
        }
        moved
    }

    fn advance_scheduler(&mut self, now: Now) -> bool {
        if !self.may_schedule(now) {
            return false;
        }
        let mut moved = false;
        loop {
            self.withdraw_unwanted(now);
            match self.next_of_scheduler(now) {
                Some(scheduler::Output::Attempt(attempt)) => self.attempt(attempt, now),
                Some(scheduler::Output::Record(record)) => self.record(record, now),
                // A message has expired before its attempt began: the attempt is withdrawn now.
                None if self.withdraw_unwanted(now) => {}
                None => break,
            }
            moved = true;
        }
        // Every record that a result requires has been given to the spool by now.
        for acknowledgement in self.records.all_given() {
            self.records_settled(acknowledgement, now);
        }
        moved
    }

    fn next_of_scheduler(&mut self, now: Now) -> Option<scheduler::Output> {
        let records = &self.records;
        let full = records.unrecorded() >= UNRECORDED_RESULTS_MAX || records.is_full();
        let (attempts, notices) = (full || self.holds_back(now), full || records.tells_enough());
        self.scheduler.pause(attempts, notices);
        self.scheduler.poll(now)
    }

    /// Returns true if outcomes cannot be recorded now: the last write or sync has failed, or a commit takes so long
    /// that it may fail. No attempt begins then, because its delivery would be repeated after a crash.
    pub(crate) fn holds_back(&self, now: Now) -> bool {
        let since = self.spool.committing_since();
        self.writes_fail()
            || since.is_some_and(|since| now.monotonic.since(since) >= COMMIT_TIME_MAX)
    }

    /// Returns true if writes fail. A deleted spool does not count: the queue in memory is all that is left, and no
    /// attempt would be repeated.
    fn writes_fail(&self) -> bool {
        self.spool.is_failing() && !self.spool.is_deleted()
    }

    /// Withdraws attempts that no process has while writes fail. Logs when writes begin to fail, with the number of
    /// recipients that may receive duplicates after a crash, and when they work again.
    fn watch_writes(&mut self, now: Now) {
        if self.holds_back(now) {
            self.withdraw_waiting(now);
        }
        let failing = self.writes_fail();
        if std::mem::replace(&mut self.failing, failing) == failing {
            return;
        }
        let in_flight = self.scheduler.recipients_in_flight() as u64;
        let unsynced = self.records.outcomes();
        self.log(match failing {
            true => LogEvent::WritesFail { in_flight, unsynced },
            false => LogEvent::WritesWork,
        });
    }

    /// Returns the next output for the driver.
    pub fn poll(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// Returns when `advance` must be called although nothing else happened.
    pub fn next_wakeup(&self) -> Option<Instant> {
        // Until the sending processes have named their attempts, the scheduler is not asked, so its times must not
        // wake the queue again and again.
        let next = self.senders.hello_due().or_else(|| self.scheduler.next_wakeup());
        let senders = [self.senders.tell_due(), self.senders.orphans_due()];
        let others = [self.spool.next_wakeup(), next, self.records.retry_due()];
        others.into_iter().chain(senders).flatten().min()
    }

    /// Returns true if nothing is left that a stopping process should wait for.
    pub fn is_settled(&self) -> bool {
        self.spool.is_settled() && self.records.is_empty()
    }

    /// Returns true if the spool has a segment to write, so that the next commit need not wait for one.
    pub fn is_ready(&self) -> bool {
        self.spool.is_ready()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the spool's figures.
    pub fn usage(&self) -> spool::Usage {
        self.spool.usage()
    }

    /// Returns a summary of the queue.
    pub fn summary(&self, now: Now) -> scheduler::Summary {
        self.scheduler.summary(now)
    }

    /// Returns the time since this process started.
    pub fn uptime(&self, now: Now) -> Duration {
        now.monotonic.since(self.started)
    }

    pub(crate) fn log(&mut self, logged: LogEvent) {
        self.output.push_back(Output::Log(logged));
    }
}
