//! Attempts that a sending process has under way from a former life of the queue process.
//!
//! Must never have a recipient tried twice at once: what is adopted is in flight.

use crate::job::To;
use crate::message::{Job, JobState};
use crate::output::AttemptId;
use crate::scheduler::{Flight, Scheduler};
use mail::{MessageId, Now};

impl Scheduler {
    /// Takes an attempt over: to be called before the first `poll` of a life. `None`: nothing of
    /// it is left to do, its end had been recorded.
    pub fn adopt(&mut self, id: MessageId, recipients: &[u32], now: Now) -> Option<AttemptId> {
        self.clock.set(now);
        let message = self.ids.get(id)?;
        let jobs = self.jobs_of(message).into_iter();
        let mut idle = jobs.filter(|job| self.jobs[*job].state != JobState::InFlight);
        let (job, taken) = idle.find_map(|job| {
            let members = self.members(job).into_iter();
            let taken: Vec<u32> = members.filter(|at| recipients.contains(at)).collect();
            (!taken.is_empty()).then_some((job, taken))
        })?;
        let Job { destination: at, .. } = self.jobs[job];
        let epoch = self.destinations[at].epoch;
        let (attempt, flight) =
            self.take_flight(Flight { attempt: 0, job, epoch, suspect: false, doubtful: false });
        let job = if taken.len() == self.members_len(job) {
            self.shift(job, To::Flight(flight));
            job
        } else {
            self.count_out(message);
            let part = self.divide(job, taken);
            self.enter(part, To::Flight(flight));
            self.count_in(message);
            part
        };
        self.flights[flight].job = job;
        let limits = self.limits_at(at);
        let nanos = self.clock.nanos();
        self.destinations[at].begin(&limits, nanos);
        self.refresh(at);
        Some(attempt)
    }
}
