//! The streams between queue and each other process, as master keeps them: made, lost, begun again.
//!
//! Must never leave two living processes without a stream for longer than [`RENEW_WAIT_MAX`], and
//! never make streams faster than that allows, whatever the processes say.
//!
//! | state of a stream | ends with | then |
//! |---|---|---|
//! | up | [`Streams::lost`], said by either end | lost, renewal due soon |
//! | lost | [`Streams::poll`] gives `Renew` | up: master gives both ends a new one |
//! | lost too often in a row, or for `NotGiven` | [`Streams::poll`] gives `Restart` | gone |
//! | asked for by `Renew` | [`Streams::not_made`] | lost, renewal due later |
//! | any | [`Streams::gone`]: a process has ended | gone, until both processes live |

use crate::LinkError;
use crate::control::Role;
use mail::Instant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Wait before a lost stream is begun again, so that the death of a process is noticed before;
/// doubles with each loss in a row.
pub const RENEW_WAIT_FIRST: Duration = Duration::from_millis(25);
/// Longest wait: both ends have a new stream within a second.
pub const RENEW_WAIT_MAX: Duration = Duration::from_millis(800);
/// A stream that was up for this long was not lost "in a row".
pub const LASTED: Duration = Duration::from_secs(10);
/// Losses in a row after which the process at the other end of queue is started again.
pub const LOSSES_IN_A_ROW_MAX: u32 = 10;

/// How long a process may be without its stream before somebody is told.
pub const ABSENCE_MAX: Duration = Duration::from_secs(10);
/// A stream that is up for this long ends an absence.
pub const STABLE: Duration = Duration::from_secs(1);
/// Between two times that it is told.
pub const ALARM_EVERY: Duration = Duration::from_secs(60);

/// Said by queue alone: the process spoke of mail that it was not given.
const NOT_GIVEN: Loss = Loss::Link(LinkError::NotGiven);

/// The process at the other end of queue.
pub type Peer = (Role, u16);

/// Why a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loss {
    /// The other end closed it or died.
    Ended,
    /// This end refused what came.
    Link(LinkError),
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Loss::Ended => f.write_str("the stream was closed"),
            Loss::Link(error) => error.fmt(f),
        }
    }
}

/// What master does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum Due {
    /// Give queue and this peer a new stream. `renewals`: how often that was done, this included.
    Renew { peer: Peer, renewals: u32, loss: Loss },
    /// End this peer's process: a new stream does not help, or is not deserved.
    Restart { peer: Peer, loss: Loss },
}

#[derive(Debug)]
enum State {
    Up,
    /// Until when nothing is done about it.
    Lost(Instant),
    Gone,
}

#[derive(Debug)]
struct Stream {
    number: u64,
    state: State,
    up_since: Instant,
    losses_in_a_row: u32,
    renewals: u32,
    loss: Loss,
}

/// All streams.
#[derive(Debug, Default)]
pub struct Streams {
    streams: BTreeMap<Peer, Stream>,
    last_number: u64,
}

impl Streams {
    /// Queue and this peer are given a new stream: returns its name.
    pub fn made(&mut self, peer: Peer, now: Instant) -> u64 {
        self.last_number += 1;
        let stream = self.streams.entry(peer).or_insert(Stream {
            number: 0,
            state: State::Gone,
            up_since: now,
            losses_in_a_row: 0,
            renewals: 0,
            loss: Loss::Ended,
        });
        stream.number = self.last_number;
        stream.state = State::Up;
        stream.up_since = now;
        self.last_number
    }

    /// One of the two processes has ended: its start makes the next stream.
    pub fn gone(&mut self, peer: Peer) {
        if let Some(stream) = self.streams.get_mut(&peer) {
            stream.state = State::Gone;
        }
    }

    /// An end has said that this stream is over. What is said of a former stream counts nothing,
    /// and of the reasons that the two ends give the first that names a fault is kept: but what queue
    /// says of mail that was not given outweighs whatever that process said before.
    pub fn lost(&mut self, peer: Peer, number: u64, loss: Loss, now: Instant) {
        let Some(stream) = self.streams.get_mut(&peer) else { return };
        if stream.number != number {
            return;
        }
        match stream.state {
            State::Gone => {}
            State::Lost(_) if stream.loss == Loss::Ended || loss == NOT_GIVEN => stream.loss = loss,
            State::Lost(_) => {}
            State::Up => {
                let lasted = now.since(stream.up_since) >= LASTED;
                stream.losses_in_a_row = if lasted { 1 } else { stream.losses_in_a_row + 1 };
                let doublings = (stream.losses_in_a_row - 1).min(LOSSES_IN_A_ROW_MAX);
                let wait = (RENEW_WAIT_FIRST * (1 << doublings)).min(RENEW_WAIT_MAX);
                stream.state = State::Lost(now + wait);
                stream.loss = loss;
            }
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self, now: Instant) -> Option<Due> {
        let due = |stream: &Stream| matches!(stream.state, State::Lost(until) if until <= now);
        let (peer, stream) = self.streams.iter_mut().find(|(_, stream)| due(stream))?;
        let (peer, loss) = (*peer, stream.loss);
        stream.state = State::Gone;
        if loss == NOT_GIVEN || stream.losses_in_a_row > LOSSES_IN_A_ROW_MAX {
            stream.losses_in_a_row = 0;
            return Some(Due::Restart { peer, loss });
        }
        stream.renewals = stream.renewals.saturating_add(1);
        Some(Due::Renew { peer, renewals: stream.renewals, loss })
    }

    /// The new stream that [`Self::poll`] asked for could not be made, or reached neither process:
    /// it is due again after the longest wait.
    pub fn not_made(&mut self, peer: Peer, now: Instant) {
        if let Some(stream) = self.streams.get_mut(&peer) {
            stream.renewals = stream.renewals.saturating_sub(1);
            stream.state = State::Lost(now + RENEW_WAIT_MAX);
        }
    }

    /// When [`Self::poll`] has something to do.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let until = |stream: &Stream| match stream.state {
            State::Lost(until) => Some(until),
            State::Up | State::Gone => None,
        };
        self.streams.values().filter_map(until).min()
    }

    /// How often each stream was begun again, and why the last time; those that never were are
    /// left out.
    pub fn renewals(&self) -> impl Iterator<Item = (Peer, u32, Loss)> + '_ {
        let renewed = self.streams.iter().filter(|(_, stream)| stream.renewals > 0);
        renewed.map(|(peer, stream)| (*peer, stream.renewals, stream.loss))
    }
}

/// One end's own view of a stream: since when there has been none that lasted, and when that was
/// told last.
#[derive(Clone, Copy, Debug)]
pub struct Presence {
    absent_since: Instant,
    up_since: Option<Instant>,
    told: Option<Instant>,
}

impl Presence {
    /// There is no stream yet.
    pub fn absent(now: Instant) -> Presence {
        Presence { absent_since: now, up_since: None, told: None }
    }

    /// There is a stream, or there is none. One that is lost at once does not end an absence.
    pub fn is_now(&mut self, present: bool, now: Instant) {
        match present {
            true => drop(self.up_since.get_or_insert(now)),
            false if self.is_stable(now) => *self = Presence::absent(now),
            false => self.up_since = None,
        }
    }

    fn is_stable(&self, now: Instant) -> bool {
        self.up_since.is_some_and(|since| now.since(since) >= STABLE)
    }

    /// Whether there is a stream.
    pub fn is_present(&self) -> bool {
        self.up_since.is_some()
    }

    /// For how long there has been none, if that is too long.
    pub fn trouble(&self, now: Instant) -> Option<Duration> {
        let absent = now.since(self.absent_since);
        (absent >= ABSENCE_MAX && !self.is_stable(now)).then_some(absent)
    }

    /// The same, when it is time to tell it, or to tell it again.
    pub fn alarm(&mut self, now: Instant) -> Option<Duration> {
        let absent = self.trouble(now)?;
        if self.told.is_some_and(|told| now.since(told) < ALARM_EVERY) {
            return None;
        }
        self.told = Some(now);
        Some(absent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = (Role::Receive, 0);
    const OTHER: Peer = (Role::Send, 1);
    const LONG: Loss = Loss::Link(LinkError::FrameTooLong);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Runs the clock to the next thing to do.
    fn next(streams: &mut Streams) -> (Instant, Due) {
        let when = streams.next_wakeup().unwrap();
        let before = Instant::from_nanos(when.nanos() - 1);
        assert_eq!(streams.poll(before), None, "too early");
        (when, streams.poll(when).unwrap())
    }

    #[test]
    fn r206_a_lost_stream_is_begun_again_within_a_second_however_often_it_is_lost() {
        let mut streams = Streams::default();
        let mut now = at(5);
        for nth in 1..=LOSSES_IN_A_ROW_MAX {
            let number = streams.made(PEER, now);
            streams.lost(PEER, number, LONG, now);
            let (when, due) = next(&mut streams);
            assert_eq!(due, Due::Renew { peer: PEER, renewals: nth, loss: LONG });
            assert!(when > now && when.since(now) < Duration::from_secs(1), "{nth}");
            assert_eq!((streams.poll(when), streams.next_wakeup()), (None, None), "once");
            now = when;
        }
        assert_eq!(streams.renewals().collect::<Vec<_>>(), [(PEER, LOSSES_IN_A_ROW_MAX, LONG)]);
        let number = streams.made(PEER, now);
        streams.lost(PEER, number, LONG, now);
        assert_eq!(next(&mut streams).1, Due::Restart { peer: PEER, loss: LONG });
        // The new process has its tries, too.
        let number = streams.made(PEER, now);
        streams.lost(PEER, number, LONG, now);
        assert!(matches!(next(&mut streams).1, Due::Renew { .. }));
    }

    #[test]
    fn a_stream_that_lasted_is_begun_again_at_once_and_never_ends_a_process() {
        let mut streams = Streams::default();
        let mut now = at(0);
        for _ in 0..100 {
            let number = streams.made(PEER, now);
            now = now + LASTED;
            streams.lost(PEER, number, Loss::Ended, now);
            let (when, due) = next(&mut streams);
            assert_eq!(when.since(now), RENEW_WAIT_FIRST);
            assert!(matches!(due, Due::Renew { .. }));
        }
    }

    #[test]
    fn what_both_ends_say_of_one_stream_is_one_loss_and_the_fault_is_kept() {
        let mut streams = Streams::default();
        let former = streams.made(PEER, at(0));
        let other = streams.made(OTHER, at(0));
        let number = streams.made(PEER, at(1));
        streams.lost(PEER, former, LONG, at(2));
        streams.lost(OTHER, number, LONG, at(2));
        assert_eq!(streams.next_wakeup(), None, "said of others");
        streams.lost(PEER, number, Loss::Ended, at(2));
        streams.lost(PEER, number, LONG, at(3));
        streams.lost(PEER, number, Loss::Ended, at(3));
        assert_eq!(next(&mut streams).1, Due::Renew { peer: PEER, renewals: 1, loss: LONG });
        streams.lost(OTHER, other, LONG, at(4));
        assert!(matches!(next(&mut streams).1, Due::Renew { peer: OTHER, .. }));
    }

    #[test]
    fn a_process_that_spoke_of_mail_that_it_was_not_given_is_started_again() {
        let mut streams = Streams::default();
        let number = streams.made(OTHER, at(0));
        let loss = Loss::Link(LinkError::NotGiven);
        streams.lost(OTHER, number, loss, at(1));
        assert_eq!(next(&mut streams).1, Due::Restart { peer: OTHER, loss });
        // It does not escape that by complaining first.
        let number = streams.made(OTHER, at(100));
        streams.lost(OTHER, number, LONG, at(101));
        streams.lost(OTHER, number, loss, at(101));
        streams.lost(OTHER, number, LONG, at(102));
        assert_eq!(next(&mut streams).1, Due::Restart { peer: OTHER, loss });
    }

    #[test]
    fn r241_an_absence_is_trouble_after_ten_seconds_and_told_again_each_minute() {
        let mut presence = Presence::absent(at(1_000));
        presence.is_now(false, at(5_000));
        assert_eq!((presence.trouble(at(10_999)), presence.alarm(at(10_999))), (None, None));
        let told: Vec<u64> = (0..200)
            .filter(|second| presence.alarm(at(1_000 + second * 1_000)).is_some())
            .collect();
        assert_eq!(told, [10, 70, 130, 190]);
        assert_eq!(presence.trouble(at(12_000)), Some(Duration::from_secs(11)));
        presence.is_now(true, at(12_000));
        presence.is_now(false, at(12_999));
        assert!(!presence.is_present());
        assert!(presence.trouble(at(13_000)).is_some(), "it did not last");
        presence.is_now(true, at(14_000));
        assert!(presence.is_present() && presence.trouble(at(15_000)).is_none());
        presence.is_now(false, at(90_000));
        assert_eq!(presence.alarm(at(99_999)), None);
        assert!(presence.alarm(at(100_000)).is_some());
    }

    #[test]
    fn a_lost_stream_says_why() {
        assert_eq!(Loss::Ended.to_string(), "the stream was closed");
        assert_eq!(NOT_GIVEN.to_string(), LinkError::NotGiven.to_string());
    }

    #[test]
    fn r206_a_stream_that_could_not_be_made_is_due_again() {
        let mut streams = Streams::default();
        let number = streams.made(PEER, at(0));
        streams.lost(PEER, number, LONG, at(1));
        for _ in 0..100 {
            let (when, due) = next(&mut streams);
            assert_eq!(due, Due::Renew { peer: PEER, renewals: 1, loss: LONG });
            streams.not_made(PEER, when);
        }
        let (when, _) = next(&mut streams);
        streams.made(PEER, when);
        assert_eq!(streams.next_wakeup(), None);
    }

    #[test]
    fn nothing_is_made_for_a_process_that_has_ended() {
        let mut streams = Streams::default();
        let number = streams.made(PEER, at(0));
        streams.lost(PEER, number, Loss::Ended, at(1));
        streams.gone(PEER);
        assert_eq!((streams.poll(at(5_000)), streams.next_wakeup()), (None, None));
        streams.lost(PEER, number, Loss::Ended, at(5_000));
        assert_eq!(streams.next_wakeup(), None);
    }
}
