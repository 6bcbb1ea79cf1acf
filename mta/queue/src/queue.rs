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

/// The queue.
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
    /// Own transactions (notices): random name of this incarnation, and a count.
    pub(crate) own_incarnation: u64,
    pub(crate) own_number: u64,
    pub(crate) counters: Counters,
    /// The last write has failed, as the log was told.
    failing: bool,
}

/// Figures for `status`; since the start of this process.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Messages taken from clients.
    pub accepted: u64,
    /// Messages refused for want of room or a good disk.
    pub refused: u64,
    /// Recipients delivered.
    pub delivered: u64,
    /// Attempts that ended in deferral, by recipient.
    pub deferred: u64,
    /// Recipients failed.
    pub failed: u64,
    /// Notices queued.
    pub notices: u64,
    /// Attempts handed out.
    pub attempts: u64,
}

/// How long a new queue process waits for the sending processes to name the attempts that they already have.
const SENDERS_WAIT: Duration = Duration::from_secs(2);

/// Groups of outcomes that are known and not yet durable, because the disk does not keep up, or because their message is
/// read for a notice. At this number no new attempts begin: what is delivered and not recorded is delivered again after
/// a crash.
const UNRECORDED_RESULTS_MAX: usize = 2048;

/// A commit that takes longer than this is taken for one that may fail: until it has ended, no
/// attempt begins. Even a slow disk that works needs less.
const COMMIT_TIME_MAX: Duration = Duration::from_secs(2);

/// Recipients in one slice of a snapshot, or one message: while a slice is made, this thread does nothing else.
pub const SLICE_RECIPIENTS_MAX: usize = 4096;

impl Queue {
    /// `own_incarnation` is drawn at random; `senders` is how many sending processes there will be.
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

    /// Attempts are sealed with this key. The one that former incarnations had makes what their attempts
    /// became known to this one; without it a sending process that has one is not believed.
    pub fn sealed_with(mut self, key: [u64; 2]) -> Queue {
        self.senders.set_seal_key(key);
        self
    }

    /// New settings for new work.
    pub fn reload(&mut self, settings: Settings, now: Now) {
        self.scheduler.reload(settings.scheduler.clone(), now);
        self.settings = settings;
    }

    /// An I/O has ended.
    pub fn io_done(&mut self, done: spool::IoDone, now: Now) {
        self.spool.handle(done, now);
    }

    /// A stream to a receiving process is there.
    pub fn receiver_connected(&mut self, instance: u16) {
        self.receiver_gone(instance);
        self.receivers.connect(instance, self.build);
    }

    /// A receiving process is gone: what it had half staged goes.
    pub fn receiver_gone(&mut self, instance: u16) {
        for transaction in self.receivers.disconnect(instance) {
            self.spool.unstage(transaction);
        }
    }

    /// Bytes from a receiving process.
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

    /// Frames for a receiving process.
    pub fn receiver_output(&mut self, instance: u16) -> Option<&mut VecDeque<Bytes>> {
        self.receivers.output(instance)
    }

    /// What each receiving process has told of the memory of its sessions.
    pub fn receiver_memory(
        &self,
    ) -> impl Iterator<Item = (u16, link::receive::SessionMemory)> + '_ {
        self.receivers.memory()
    }

    /// A stream to a sending process is there.
    pub fn sender_connected(&mut self, key: SenderKey, now: Now) {
        self.sender_gone(key, now);
        self.senders.connect(key, self.build, self.records.awaited(key));
    }

    /// The stream to a sending process is gone. Its attempts are lost if the process does not name
    /// them over a new one soon.
    pub fn sender_gone(&mut self, key: SenderKey, now: Now) {
        self.withdraw_from(key, now);
        self.senders.disconnect(key, now.monotonic);
    }

    /// Bytes from a sending process. After an error nothing more of this stream may be given in, and
    /// [`Self::sender_gone`] is due.
    pub fn sender_input(
        &mut self,
        key: SenderKey,
        input: &mut BytesMut,
        now: Now,
    ) -> Result<(), LinkError> {
        self.senders.input(key, input)?;
        self.hear_sender(key, now)
    }

    /// Frames for a sending process.
    pub fn sender_output(&mut self, key: SenderKey) -> Option<&mut VecDeque<Bytes>> {
        self.senders.output(key)
    }

    /// Runs the machines until nothing moves any more.
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

    /// Gives the spool the slice of a snapshot that it wants, when it has been told everything that
    /// the slice would tell: else a cut could leave a snapshot that knows of a failure, and no
    /// notice of it.
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
                // A message has expired, and its attempt has not begun: it is given up now.
                None if self.withdraw_unwanted(now) => {}
                None => break,
            }
            moved = true;
        }
        // Every record that a result called for has been given to the spool by now.
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

    /// Whether outcomes cannot be recorded: the last write or sync has failed and none has worked
    /// since, or one takes so long that it may fail. No attempt goes to a process then: what is
    /// delivered meanwhile is delivered again after a crash.
    pub(crate) fn holds_back(&self, now: Now) -> bool {
        let since = self.spool.committing_since();
        self.writes_fail()
            || since.is_some_and(|since| now.monotonic.since(since) >= COMMIT_TIME_MAX)
    }

    /// A deleted spool is another matter: what is in memory is all there is, and cannot come again.
    fn writes_fail(&self) -> bool {
        self.spool.is_failing() && !self.spool.is_deleted()
    }

    /// Takes back what has not reached a process when writes begin to fail, and says in the log how
    /// many recipients may get their mail twice if the machine ends before a write works again.
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

    /// What the driver is to do next.
    pub fn poll(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// When `advance` wants to be called although nothing else happened.
    pub fn next_wakeup(&self) -> Option<Instant> {
        // Until the sending processes have reported the scheduler is not asked, so what is due
        // there must not wake us again and again.
        let next = self.senders.hello_due().or_else(|| self.scheduler.next_wakeup());
        let senders = [self.senders.tell_due(), self.senders.orphans_due()];
        let others = [self.spool.next_wakeup(), next, self.records.retry_due()];
        others.into_iter().chain(senders).flatten().min()
    }

    /// Whether something is on its way that a stopping process should wait for; begins nothing.
    pub fn is_settled(&self) -> bool {
        self.spool.is_settled() && self.records.is_empty()
    }

    /// Whether the spool has a segment to write, so that the next commit waits for nothing.
    pub fn is_ready(&self) -> bool {
        self.spool.is_ready()
    }

    /// Figures since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Figures of the spool.
    pub fn usage(&self) -> spool::Usage {
        self.spool.usage()
    }

    /// The queue in a few numbers.
    pub fn summary(&self, now: Now) -> scheduler::Summary {
        self.scheduler.summary(now)
    }

    /// How long this process has been at work.
    pub fn uptime(&self, now: Now) -> Duration {
        now.monotonic.since(self.started)
    }

    pub(crate) fn log(&mut self, logged: LogEvent) {
        self.output.push_back(Output::Log(logged));
    }
}
