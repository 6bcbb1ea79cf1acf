//! The streams between queue and each other process, as master keeps them.
//!
//! Must never leave two running processes without a stream for longer than [`RENEW_WAIT_MAX`], and never make streams faster
//! than the waits allow, whatever the processes say.
//!
//! | state of a stream | ends with | then |
//! |---|---|---|
//! | up | [`Streams::lost`], reported by either end | lost, renewal due soon |
//! | lost | [`Streams::poll`] returns `Renew` | up: master gives both ends a new stream |
//! | lost too often in a row, or for `NotGiven` | [`Streams::poll`] returns `Restart` | gone |
//! | requested by `Renew` | [`Streams::not_made`] | lost, renewal due later |
//! | any | [`Streams::gone`]: a process has ended | gone, until both processes run |

use crate::LinkError;
use crate::control::Role;
use mail::Instant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// First wait before a lost stream is replaced. It lets master notice the end of a process first, and doubles with each loss
/// in a row.
pub const RENEW_WAIT_FIRST: Duration = Duration::from_millis(25);
/// Longest wait. Both ends have a new stream within a second.
pub const RENEW_WAIT_MAX: Duration = Duration::from_millis(800);
/// Time after which the loss of a stream no longer counts as one in a row.
pub const LASTED: Duration = Duration::from_secs(10);
/// Maximum number of losses in a row. After one more, the process at the other end of the stream is restarted.
pub const LOSSES_IN_A_ROW_MAX: u32 = 10;

/// Time without a stream after which the operator is told.
pub const ABSENCE_MAX: Duration = Duration::from_secs(10);
/// Time after which a new stream ends an absence.
pub const STABLE: Duration = Duration::from_secs(1);
/// Time between two reports of one absence.
pub const ALARM_EVERY: Duration = Duration::from_secs(60);

/// Reported by queue alone: the process named an attempt that it was not given.
const NOT_GIVEN: Loss = Loss::Link(LinkError::NotGiven);

/// The process at the other end of a stream of queue.
pub type PeerId = (Role, u16);

/// Why a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loss {
    /// The other end closed it or ended.
    Ended,
    /// This end refused what the other end sent.
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

/// Next action of master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum Due {
    /// Gives queue and this peer a new stream. `renewals` counts the new streams, including this one.
    Renew { peer: PeerId, renewals: u32, loss: Loss },
    /// Restarts this peer's process: new streams do not help, or it broke the rules.
    Restart { peer: PeerId, loss: Loss },
}

#[derive(Debug)]
enum State {
    Up,
    /// Lost, with the time at which master acts.
    Lost(Instant),
    Gone,
}

#[derive(Debug)]
struct KeptStream {
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
    streams: BTreeMap<PeerId, KeptStream>,
    last_number: u64,
}

impl Streams {
    /// Notes that queue and this peer get a new stream, and returns its number.
    pub fn made(&mut self, peer: PeerId, now: Instant) -> u64 {
        self.last_number += 1;
        let stream = self.streams.entry(peer).or_insert(KeptStream {
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

    /// Notes that one of the two processes has ended. Its start makes the next stream.
    pub fn gone(&mut self, peer: PeerId) {
        if let Some(stream) = self.streams.get_mut(&peer) {
            stream.state = State::Gone;
        }
    }

    /// Notes that an end has reported the loss of this stream. Ignores reports about former streams.
    ///
    /// Both ends may report a loss. The first reason that names a fault is kept, except that `NotGiven` from queue replaces
    /// whatever the other process said before.
    pub fn lost(&mut self, peer: PeerId, number: u64, loss: Loss, now: Instant) {
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

    /// Returns the next action.
    pub fn poll(&mut self, now: Instant) -> Option<Due> {
        let due = |stream: &KeptStream| matches!(stream.state, State::Lost(until) if until <= now);
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

    /// Notes that the stream requested by [`Self::poll`] could not be made or delivered. The request is repeated after the
    /// longest wait.
    pub fn not_made(&mut self, peer: PeerId, now: Instant) {
        if let Some(stream) = self.streams.get_mut(&peer) {
            stream.renewals = stream.renewals.saturating_sub(1);
            stream.state = State::Lost(now + RENEW_WAIT_MAX);
        }
    }

    /// Returns when [`Self::poll`] has something to do.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let until = |stream: &KeptStream| match stream.state {
            State::Lost(until) => Some(until),
            State::Up | State::Gone => None,
        };
        self.streams.values().filter_map(until).min()
    }

    /// Returns each stream that was replaced, with the number of times and the last reason.
    pub fn renewals(&self) -> impl Iterator<Item = (PeerId, u32, Loss)> + '_ {
        let renewed = self.streams.iter().filter(|(_, stream)| stream.renewals > 0);
        renewed.map(|(peer, stream)| (*peer, stream.renewals, stream.loss))
    }
}

/// One end's own view of its stream: since when there has been no stable stream, and when that was last reported.
#[derive(Clone, Copy, Debug)]
pub struct Presence {
    absent_since: Instant,
    up_since: Option<Instant>,
    told: Option<Instant>,
}

impl Presence {
    /// Begins without a stream.
    pub fn absent(now: Instant) -> Presence {
        Presence { absent_since: now, up_since: None, told: None }
    }

    /// Notes whether there is a stream. A stream that is lost before it is stable does not end an absence.
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

    /// Returns true if there is a stream.
    pub fn is_present(&self) -> bool {
        self.up_since.is_some()
    }

    /// Returns the duration of the absence, if it is too long.
    pub fn trouble(&self, now: Instant) -> Option<Duration> {
        let absent = now.since(self.absent_since);
        (absent >= ABSENCE_MAX && !self.is_stable(now)).then_some(absent)
    }

    /// Returns the same when a report is due.
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

    const PEER: PeerId = (Role::Receive, 0);
    const OTHER: PeerId = (Role::Send, 1);
    const LONG: Loss = Loss::Link(LinkError::FrameTooLong);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Advances the clock to the next action.
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
        // The new process starts with a new count.
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
        // A complaint of its own before that does not help the process.
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
