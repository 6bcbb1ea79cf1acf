//! The workers as local sees them: one for each user with mail, started when there is some, kept for a
//! while, bounded in number.
//! Must never lose a batch: what a worker does not answer is deferred.

use super::forks::Forks;
use super::gather::{Batch, Item};
use super::target::{Lane, Place};
use super::worker::{FromWorker, ToWorker};
use crate::io::control::stream_pair;
use crate::io::stream::Stream;
use crate::mailbox::{Alarm, Fault};
use bytes::Bytes;
use link::frame;
use mail::{Enhanced, Outcome};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

/// Workers at once.
pub(super) const WORKERS_MAX: usize = 64;
/// How long an idle worker stays.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long one batch may take: as many programs as it has deliveries may each take their time.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3600);

/// A batch that is done.
#[derive(Debug)]
pub struct Done {
    /// Its lane, which is free again.
    pub lane: Lane,
    /// What became of each delivery.
    pub outcomes: Vec<(Item, Outcome)>,
    /// What an administrator has to be told.
    pub alarms: Vec<Alarm>,
}

/// All workers.
pub struct Crew {
    shared: Rc<Shared>,
    lines: RefCell<HashMap<Arc<str>, UnboundedSender<Batch>>>,
}

struct Shared {
    forks: Forks,
    hostname: String,
    done: UnboundedSender<Done>,
    places: Semaphore,
    /// Somebody waits for a place: one idle worker is to leave.
    wanted: Notify,
}

impl Crew {
    /// Nobody yet. What is done goes to `done`.
    pub fn new(forks: Forks, hostname: String, done: UnboundedSender<Done>) -> Crew {
        let places = Semaphore::new(WORKERS_MAX);
        let shared = Rc::new(Shared { forks, hostname, done, places, wanted: Notify::new() });
        Crew { shared, lines: RefCell::default() }
    }

    /// Gives a batch to the worker of `user`; needs a `LocalRuntime`.
    pub fn give(&self, user: &Arc<str>, batch: Batch) {
        let mut lines = self.lines.borrow_mut();
        let batch = match lines.get(user) {
            Some(line) => match line.send(batch) {
                Ok(()) => return,
                Err(refused) => refused.0,
            },
            None => batch,
        };
        let (line, batches) = unbounded_channel();
        let shared = self.shared.clone();
        let name = user.clone();
        tokio::task::spawn_local(async move { shared.tend(name, batch, batches).await });
        lines.retain(|_, line| !line.is_closed());
        lines.insert(user.clone(), line);
    }
}

impl Shared {
    /// One worker's life, as often as it has to be started.
    async fn tend(&self, user: Arc<str>, first: Batch, mut batches: UnboundedReceiver<Batch>) {
        let mut next = Some(first);
        while let Some(batch) = next {
            let place = match self.places.try_acquire() {
                Ok(place) => place,
                Err(_) => {
                    self.wanted.notify_one();
                    self.places.acquire().await.expect("never closed")
                }
            };
            next = self.employ(&user, batch, &mut batches).await;
            drop(place);
        }
    }

    /// Until the worker is idle for long, or fails; a batch that came too late is given back.
    async fn employ(
        &self,
        user: &Arc<str>,
        mut batch: Batch,
        batches: &mut UnboundedReceiver<Batch>,
    ) -> Option<Batch> {
        let mut worker = self.start(user);
        loop {
            let answer = match &mut worker {
                Ok(stream) => self.ask(stream, &batch).await,
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            let failed = answer.is_err();
            let (outcomes, alarms) =
                answer.unwrap_or_else(|error| (refuse(&batch, user, &error), Vec::new()));
            let outcomes = batch.into_iter().zip(outcomes).collect();
            let _ = self.done.send(Done { lane: Lane::Worker(user.clone()), outcomes, alarms });
            let more = tokio::select! {
                biased;
                more = batches.recv() => more,
                () = self.wanted.notified(), if !failed => None,
                () = tokio::time::sleep(IDLE_MAX), if !failed => None,
                () = std::future::ready(()), if failed => None,
            };
            let Some(more) = more else { break };
            if failed {
                return Some(more);
            }
            batch = more;
        }
        batches.close();
        batches.recv().await
    }

    fn start(&self, user: &str) -> io::Result<Stream> {
        let (ours, theirs) = stream_pair()?;
        self.forks.worker(user, theirs)?;
        Stream::new(ours)
    }

    async fn ask(&self, stream: &mut Stream, batch: &Batch) -> io::Result<Answer> {
        let talk = async {
            for group in batch.chunk_by(|one, other| Arc::ptr_eq(&one.message, &other.message)) {
                self.say_group(stream, group).await?;
            }
            let go = encode(&ToWorker::Go(self.hostname.clone()), &[])?;
            write(stream, &mut VecDeque::from([go])).await?;
            answer(stream).await
        };
        let answer = timeout(ANSWER_TIME_MAX, talk).await.map_err(io::Error::from)??;
        let (outcomes, alarms) = &answer;
        let known = alarms.iter().all(|alarm| alarm.delivery < batch.len());
        match outcomes.len() == batch.len() && alarms.len() <= batch.len() && known {
            true => Ok(answer),
            false => Err(io::Error::other("a worker answered something else than it was asked")),
        }
    }

    /// A message, and the places it goes to.
    async fn say_group(&self, stream: &mut Stream, group: &[Item]) -> io::Result<()> {
        let message = &group[0].message;
        let begin = encode(&ToWorker::Message(message.sender().clone()), &[])?;
        let mut output = VecDeque::from([begin]);
        let mut at = 0;
        while let Some(piece) = message.piece_at(at)? {
            at += piece.len() as u64;
            output.push_back(encode(&ToWorker::Piece, &piece)?);
            write(stream, &mut output).await?;
        }
        for item in group {
            if let Place::Worker(place) = &item.place {
                let deliver = ToWorker::Deliver(item.recipient.clone(), place.clone());
                output.push_back(encode(&deliver, &[])?);
            }
        }
        write(stream, &mut output).await
    }
}

fn encode(message: &ToWorker, tail: &[u8]) -> io::Result<Bytes> {
    frame::encode(message, tail).map_err(io::Error::other)
}

async fn write(stream: &mut Stream, output: &mut VecDeque<Bytes>) -> io::Result<()> {
    while !stream.write(output)? {
        // The worker says nothing before it has been told all, so what is readable is its end.
        stream.ready(true).await?;
    }
    Ok(())
}

/// What a worker says of a batch.
type Answer = (Vec<Outcome>, Vec<Alarm>);

async fn answer(stream: &mut Stream) -> io::Result<Answer> {
    loop {
        stream.ready(false).await?;
        let Some(input) = stream.read()? else { continue };
        let decoded = frame::decode::<FromWorker>(input).map_err(io::Error::other)?;
        if let Some((FromWorker::Outcomes(outcomes, alarms), _)) = decoded {
            return Ok((outcomes, alarms));
        }
    }
}

/// The worker was not there or died: what it did before is not known, so that a message may come twice.
fn refuse(batch: &Batch, user: &str, error: &io::Error) -> Vec<Outcome> {
    let whom = if user.is_empty() { "local's own id" } else { user };
    let text = format!("the worker for {whom} ended: {error}");
    let fault = Fault::transient(Enhanced(4, 3, 0), text);
    batch.iter().map(|_| fault.clone().outcome("")).collect()
}
