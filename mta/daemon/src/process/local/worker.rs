//! A worker: delivers the mail of one user, whose rights are the only ones it has, and ends when its
//! stream is closed. Must never change its user, and never say `Delivered` of what is not durable.
//!
//! | from local | then |
//! |---|---|
//! | `Message` | a message begins |
//! | `Piece` | the next bytes of the message, lines ended by LF |
//! | `Deliver` | one more recipient of the message, and the recipient's place |
//! | `Go` | the batch is delivered; the answer is `Outcomes`, in the order of the `Deliver`s |

use super::pipe;
use crate::mailbox::{
    Base, Fault, Intake, LOCK_WAIT_MAX, LocalMessage, Mailbox, MailboxAlarm, MailboxDelivery,
    Scene, deliver_batch,
};
use bytes::{Bytes, BytesMut};
use link::frame;
use local::DeliveryPlace;
use mail::{Address, Outcome, ReversePath};
use policy::Groups;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use world::Clock as _;

/// What a worker is told.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// A message from this sender begins.
    Message(ReversePath),
    /// The next bytes of the message, in the frame's tail.
    Piece,
    /// The message goes to this recipient, at this place.
    Deliver(Address, DeliveryPlace),
    /// The batch is complete. Holds the name of this host.
    Go(String),
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// One outcome for each `Deliver`, in order; and what an administrator has to be told.
    Outcomes(Vec<Outcome>, Vec<MailboxAlarm>),
}

/// Where large messages are staged, and those for programs.
pub(super) const STAGE_DIRECTORY: &str = "/tmp";
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Directories that are held open between batches.
const BASES_MAX: usize = 16;

/// Serves the stream until its other end is closed. The members of `groups` may write to the user's
/// mailbox.
pub fn run(stream: OwnedFd, groups: Groups) -> io::Result<()> {
    let mut stream = UnixStream::from(stream);
    stream.set_nonblocking(false)?;
    let mut worker = Worker { groups, ..Worker::default() };
    let mut input = BytesMut::new();
    loop {
        while let Some((message, tail)) = frame::decode(&mut input).map_err(io::Error::other)? {
            if let Some(answer) = worker.accept(message, &tail) {
                let frame = frame::encode(&answer, &[]).map_err(io::Error::other)?;
                stream.write_all(&frame)?;
            }
        }
        let filled = input.len();
        input.resize(filled + READ_BYTES, 0);
        let read = stream.read(&mut input[filled..])?;
        input.truncate(filled + read);
        if read == 0 {
            return Ok(());
        }
    }
}

#[derive(Default)]
struct Worker {
    groups: Groups,
    bases: BTreeMap<PathBuf, Arc<Base>>,
    intake: Option<Intake>,
    fault: Option<Fault>,
    message: Option<Arc<LocalMessage>>,
    jobs: Vec<WorkerJob>,
}

/// One delivery, or why there is none.
struct WorkerJob {
    recipient: Address,
    place: DeliveryPlace,
    message: Result<Arc<LocalMessage>, Fault>,
}

impl Worker {
    fn accept(&mut self, message: ToWorker, tail: &Bytes) -> Option<FromWorker> {
        match message {
            ToWorker::Message(sender) => {
                (self.intake, self.message) = (Some(Intake::as_it_is(sender)), None);
                self.fault = None;
            }
            ToWorker::Piece => self.piece(tail),
            ToWorker::Deliver(recipient, place) => {
                let message = self.whole();
                self.jobs.push(WorkerJob { recipient, place, message });
            }
            ToWorker::Go(hostname) => return Some(self.go(hostname)),
        }
        None
    }

    fn piece(&mut self, tail: &[u8]) {
        let Some(intake) = &mut self.intake else { return };
        let stage = File::open(STAGE_DIRECTORY);
        if let Err(error) = stage.and_then(|stage| intake.push(tail, stage.as_fd())) {
            self.fault = Some(Fault::io("cannot stage the message", &error));
            self.intake = None;
        }
    }

    fn whole(&mut self) -> Result<Arc<LocalMessage>, Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if let Some(intake) = self.intake.take() {
            let message =
                intake.finish().map_err(|error| Fault::io("cannot stage the message", &error))?;
            self.message = Some(Arc::new(message));
        }
        self.message.clone().ok_or_else(|| Fault::io("no message", &io::Error::other("no message")))
    }

    fn go(&mut self, hostname: String) -> FromWorker {
        let groups = self.groups;
        let scene = Scene {
            hostname,
            now: world::real::Clock.now().wall,
            lock_wait_max: LOCK_WAIT_MAX,
            groups,
        };
        let jobs = std::mem::take(&mut self.jobs);
        (self.intake, self.message) = (None, None);
        let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(jobs.len());
        // `places` has the position of each delivery in the batch: an alarm names its delivery by it.
        let (mut deliveries, mut places) = (Vec::new(), Vec::new());
        for (place, job) in jobs.into_iter().enumerate() {
            outcomes.push(match self.prepare(job) {
                PreparedJob::Mailbox(delivery) => {
                    deliveries.push(delivery);
                    places.push(place);
                    None
                }
                PreparedJob::Done(outcome) => Some(outcome),
            });
        }
        let mut alarms = Vec::new();
        let mut delivered = deliver_batch(&deliveries, &scene, &mut alarms).into_iter();
        alarms.iter_mut().for_each(|alarm| alarm.delivery = places[alarm.delivery]);
        let next = || delivered.next().expect("deliver_batch answers each delivery");
        let mut next = next;
        let outcomes =
            outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(&mut next)).collect();
        FromWorker::Outcomes(outcomes, alarms)
    }

    fn prepare(&mut self, job: WorkerJob) -> PreparedJob {
        let peer = job.place.to_string();
        let message = match job.message {
            Ok(message) => message,
            Err(fault) => return PreparedJob::Done(fault.outcome(peer)),
        };
        match job.place {
            DeliveryPlace::Command(words) => {
                PreparedJob::Done(pipe::deliver(&words, &message, &job.recipient))
            }
            DeliveryPlace::Mailbox { base, path, format } => match self.base(base) {
                Ok(base) => {
                    let mailbox = Mailbox { base, path, format };
                    PreparedJob::Mailbox(MailboxDelivery {
                        message,
                        recipient: job.recipient,
                        mailbox,
                    })
                }
                Err(error) => {
                    let fault = Fault::io("cannot open the directory of the mailbox", &error);
                    PreparedJob::Done(fault.outcome(peer))
                }
            },
        }
    }

    fn base(&mut self, path: PathBuf) -> io::Result<Arc<Base>> {
        if let Some(known) = self.bases.get(&path) {
            return Ok(known.clone());
        }
        if self.bases.len() >= BASES_MAX {
            self.bases.clear();
        }
        let base = Arc::new(Base::open(path.clone(), false)?);
        self.bases.insert(path, base.clone());
        Ok(base)
    }
}

enum PreparedJob {
    Mailbox(MailboxDelivery),
    Done(Outcome),
}
