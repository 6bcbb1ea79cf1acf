//! The conversations with the workers: a task for each, which gives its worker a batch and hears what
//! became of it. Must never decide what becomes of a batch without an answer: `local` does.

use super::forks::Forks;
use super::worker::{FromWorker, ToWorker};
use crate::io::control::stream_pair;
use crate::io::stream::Stream;
use crate::mailbox::{LocalMessage, MailboxAlarm};
use bytes::Bytes;
use link::frame;
use local::{DeliveryBatch, DeliveryItem, WorkerId};
use mail::Outcome;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// What a worker says of a batch.
pub type Answer = (Vec<Outcome>, Vec<MailboxAlarm>);

/// The answer of a worker, or why there will be none.
#[derive(Debug)]
pub struct WorkerEvent {
    /// The worker.
    pub worker: WorkerId,
    /// `Err`: the worker is gone.
    pub end: io::Result<Answer>,
}

/// The workers and their tasks.
pub struct Crew {
    forks: Option<Forks>,
    hostname: String,
    events: UnboundedSender<WorkerEvent>,
    workers: HashMap<WorkerId, WorkerHandle>,
}

/// A worker that was started. Dropping the handle closes the worker's stream, which ends the worker.
struct WorkerHandle {
    batches: UnboundedSender<DeliveryBatch<Arc<LocalMessage>>>,
    task: JoinHandle<()>,
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Crew {
    /// No worker yet. What the workers say goes to `events`.
    pub fn new(
        forks: Option<Forks>,
        hostname: String,
        events: UnboundedSender<WorkerEvent>,
    ) -> Crew {
        Crew { forks, hostname, events, workers: HashMap::new() }
    }

    /// Starts a worker that runs as `user`; the empty name is local's own id. Needs a `LocalRuntime`.
    pub fn start(&mut self, worker: WorkerId, user: &str) -> io::Result<()> {
        let forks = self
            .forks
            .as_ref()
            .ok_or_else(|| io::Error::other("no worker can be started with these settings"))?;
        let (ours, theirs) = stream_pair()?;
        forks.worker(user, theirs)?;
        let stream = Stream::new(ours)?;
        let (batches, given) = unbounded_channel();
        let (events, hostname) = (self.events.clone(), self.hostname.clone());
        let task = tokio::task::spawn_local(tend(worker, stream, hostname, given, events));
        self.workers.insert(worker, WorkerHandle { batches, task });
        Ok(())
    }

    /// Gives a batch to a worker. One that has ended says so in an event of its own.
    pub fn give(&self, worker: WorkerId, batch: DeliveryBatch<Arc<LocalMessage>>) {
        if let Some(hand) = self.workers.get(&worker) {
            let _ = hand.batches.send(batch);
        }
    }

    /// Ends a worker; inverse of [`Crew::start`].
    pub fn end(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
    }
}

/// Serves one worker until it is gone.
async fn tend(
    worker: WorkerId,
    mut stream: Stream,
    hostname: String,
    mut batches: UnboundedReceiver<DeliveryBatch<Arc<LocalMessage>>>,
    events: UnboundedSender<WorkerEvent>,
) {
    loop {
        let end = tokio::select! {
            biased;
            Some(batch) = batches.recv() => Ok(batch),
            error = closed(&mut stream) => Err(error),
        };
        let end = match end {
            Ok(batch) => ask(&mut stream, &hostname, &batch).await,
            Err(error) => Err(error),
        };
        let is_gone = end.is_err();
        if events.send(WorkerEvent { worker, end }).is_err() || is_gone {
            return;
        }
    }
}

/// Waits for the end of a worker that has no batch.
async fn closed(stream: &mut Stream) -> io::Error {
    loop {
        let read = match stream.ready(false).await {
            Ok(()) => stream.read(),
            Err(error) => return error,
        };
        match read {
            Ok(None) => {}
            Ok(Some(_)) => return io::Error::other("it spoke before it was asked"),
            Err(error) => return error,
        }
    }
}

async fn ask(
    stream: &mut Stream,
    hostname: &str,
    batch: &DeliveryBatch<Arc<LocalMessage>>,
) -> io::Result<Answer> {
    for group in batch.chunk_by(|one, other| Arc::ptr_eq(&one.message, &other.message)) {
        say_group(stream, group).await?;
    }
    let go = encode(&ToWorker::Go(hostname.to_owned()), &[])?;
    write(stream, &mut VecDeque::from([go])).await?;
    answer(stream).await
}

/// Says a message, and the places it goes to.
async fn say_group(
    stream: &mut Stream,
    group: &[DeliveryItem<Arc<LocalMessage>>],
) -> io::Result<()> {
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
        let deliver = ToWorker::Deliver(item.recipient.clone(), item.place.clone());
        output.push_back(encode(&deliver, &[])?);
    }
    write(stream, &mut output).await
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
