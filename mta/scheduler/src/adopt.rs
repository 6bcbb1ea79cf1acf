//! Attempts that a sending process has under way from a former life of the queue process.
//!
//! Must never have a recipient tried twice at once: what is adopted is in flight.

use crate::job::To;
use crate::message::{Job, JobState};
use crate::output::AttemptId;
use crate::scheduler::{Flight, Scheduler};
use mail::{MessageId, Now};

impl Scheduler {
    /// The attempts in flight that these recipients are in.
    pub fn flights_of(&self, id: MessageId, recipients: &[u32]) -> Vec<AttemptId> {
        let Some(message) = self.ids.get(id) else { return Vec::new() };
        let jobs = self.by_job(message, recipients.to_vec()).into_keys().map(|job| &self.jobs[job]);
        let jobs = jobs.filter(|job| job.state == JobState::InFlight);
        jobs.map(|job| AttemptId(self.flights[job.place].attempt)).collect()
    }

    /// Takes an attempt over whose process has begun it. `None`: nothing of it is left to do, since its
    /// end had been recorded, or since its recipients are in flight again.
    pub fn adopt(&mut self, id: MessageId, recipients: &[u32], now: Now) -> Option<AttemptId> {
        self.clock.set(now);
        let message = self.ids.get(id)?;
        let parts = self.parts_of(message, recipients);
        let at = self.jobs[parts.first()?.0].destination;
        self.count_out(message);
        let job = self.one_of(parts);
        let epoch = self.destinations[at].epoch;
        let began = self.clock.nanos();
        let flight = Flight { attempt: 0, job, epoch, suspect: false, doubtful: false, began };
        let (attempt, flight) = self.take_flight(flight);
        self.enter(job, To::Flight(flight));
        self.count_in(message);
        let limits = self.limits_at(at);
        self.destinations[at].begin(&limits, began);
        self.refresh(at);
        Some(attempt)
    }

    /// The transactions that these recipients are in, with the recipients of each: what was one
    /// attempt may be several after a restart, if the recipients have different due times. All
    /// have one destination.
    fn parts_of(&self, message: u32, recipients: &[u32]) -> Vec<(u32, Vec<u32>)> {
        let idle = |job: &u32| self.jobs[*job].state != JobState::InFlight;
        let all = self.by_job(message, recipients.to_vec()).into_iter();
        let mut parts: Vec<_> = all.filter(|(job, _)| idle(job)).collect();
        if let Some(at) = parts.first().map(|(job, _)| self.jobs[*job].destination) {
            parts.retain(|(job, _)| self.jobs[*job].destination == at);
        }
        parts
    }

    /// Makes one transaction of them, in no state yet.
    fn one_of(&mut self, parts: Vec<(u32, Vec<u32>)>) -> u32 {
        let mut pieces = Vec::new();
        for (job, taken) in parts {
            if taken.len() == self.members_len(job) {
                self.leave(job);
                pieces.push(job);
            } else {
                pieces.push(self.divide(job, taken));
            }
        }
        let job = pieces[0];
        let mut members = self.members(job);
        for other in pieces.drain(1..) {
            let Job { message, attempts, .. } = self.jobs[other];
            self.jobs[job].attempts = self.jobs[job].attempts.max(attempts);
            let moved = self.members(other);
            moved.iter().for_each(|index| self.recipient_mut(message, *index).job = job);
            members.extend(moved);
            self.end_job(other);
        }
        members.sort_unstable();
        self.free_members(job);
        self.set_members(job, members);
        job
    }
}
