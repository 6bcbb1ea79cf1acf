//! A second thread for recovery: one core reads and checks the spool while another restores the scheduler.
//!
//! Must never change the order of what the spool tells, nor leave anything out.

use mail::{Change, Envelope, MessageId, TransactionId};
use spool::Replay;
use std::ops::Range;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// The number of items in one batch. Waking the thread for each item would cost more than the item.
const BATCH_MAX: usize = 1_024;
/// Upper bound on the batches that wait.
const BATCHES_WAITING_MAX: usize = 8;

/// One step of the replay, with the data that it borrows.
enum Told {
    Snapshot { message: MessageId, blob: Range<usize>, body_bytes: u64 },
    Accepted { message: MessageId, transaction: TransactionId, envelope: Envelope, body_bytes: u64 },
    Change(Change),
}

#[derive(Default)]
struct ReplayBatch {
    told: Vec<Told>,
    /// The blobs of all snapshots, one after another.
    bytes: Vec<u8>,
}

impl ReplayBatch {
    fn add(&mut self, replay: Replay<'_>) {
        self.told.push(match replay {
            Replay::Snapshot { message, blob, body_bytes } => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(blob);
                Told::Snapshot { message, blob: start..self.bytes.len(), body_bytes }
            }
            Replay::Accepted { message, transaction, envelope, body_bytes } => {
                Told::Accepted { message, transaction, envelope, body_bytes }
            }
            Replay::Change(change) => Told::Change(change),
        });
    }

    fn replay(self, take: &mut impl FnMut(Replay<'_>)) {
        for told in self.told {
            take(match told {
                Told::Snapshot { message, blob, body_bytes } => {
                    Replay::Snapshot { message, blob: &self.bytes[blob], body_bytes }
                }
                Told::Accepted { message, transaction, envelope, body_bytes } => {
                    Replay::Accepted { message, transaction, envelope, body_bytes }
                }
                Told::Change(change) => Replay::Change(change),
            });
        }
    }
}

/// Calls `open` on this thread and gives what it replays to `take` on another one, or on this one if no thread can be
/// started. Returns when `take` has had everything. A panic in `take` becomes a panic here.
pub fn aside<R>(
    open: impl FnOnce(&mut dyn FnMut(Replay<'_>)) -> R,
    take: impl FnMut(Replay<'_>) + Send,
) -> R {
    let (tell, told) = sync_channel::<ReplayBatch>(BATCHES_WAITING_MAX);
    let take = Mutex::new(take);
    thread::scope(|scope| {
        let take = &take;
        let taking = move || {
            let mut take = lock(take);
            told.into_iter().for_each(|batch| batch.replay(&mut *take));
        };
        let Ok(taking) = thread::Builder::new().name("replay".into()).spawn_scoped(scope, taking)
        else {
            return open(&mut *lock(take));
        };
        let mut batch = ReplayBatch::default();
        let opened = open(&mut |replay| {
            batch.add(replay);
            if batch.told.len() == BATCH_MAX {
                // Fails only if the thread has panicked, which is reported below.
                let _ = tell.send(std::mem::take(&mut batch));
            }
        });
        let _ = tell.send(batch);
        drop(tell);
        match taking.join() {
            Ok(()) => opened,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a replay as one line.
    fn line(replay: Replay<'_>) -> String {
        match replay {
            Replay::Snapshot { message, blob, body_bytes } => {
                format!("snapshot {} {blob:?} {body_bytes}", message.0)
            }
            Replay::Accepted { message, .. } => format!("accepted {}", message.0),
            Replay::Change(change) => format!("{change:?}"),
        }
    }

    fn tell_all(count: u64, replay: &mut dyn FnMut(Replay<'_>)) {
        for number in 0..count {
            let message = MessageId(number);
            match number % 3 {
                0 => replay(Replay::Change(Change::Retire { message })),
                part => {
                    let blob = number.to_le_bytes();
                    let blob = &blob[..part as usize];
                    replay(Replay::Snapshot { message, blob, body_bytes: number });
                }
            }
        }
    }

    #[test]
    fn all_is_taken_in_and_in_its_order() {
        for count in [0, 1, 1_023, 1_024, 1_025, 50_000] {
            let (mut expected, mut taken) = (Vec::new(), Vec::new());
            tell_all(count, &mut |replay| expected.push(line(replay)));
            let open = |replay: &mut dyn FnMut(Replay<'_>)| {
                tell_all(count, replay);
                "opened"
            };
            let opened = aside(open, |replay| taken.push(line(replay)));
            assert_eq!(opened, "opened");
            assert_eq!(taken, expected);
        }
    }

    #[test]
    #[should_panic(expected = "at message 2000")]
    fn a_panic_in_taking_in_ends_the_opening() {
        let open = |replay: &mut dyn FnMut(Replay<'_>)| tell_all(100_000, replay);
        aside(open, |replay| {
            if let Replay::Snapshot { message, .. } = replay {
                assert!(message.0 != 2_000, "at message 2000");
            }
        });
    }
}
