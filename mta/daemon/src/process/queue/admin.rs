//! The command line's socket: one frame for each question and one for each answer, in order.
//!
//! Must never serve a user that the permissions of the socket keep out.

use super::Shared;
use bytes::{Bytes, BytesMut};
use link::admin::{self, Answer, ROWS_MAX, Request, Status};
use link::control::Role;
use mail::MessageId;
use scheduler::Order;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::Result;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use world::Clock;

/// Upper bound on the connections of command lines.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// A connection that does not take an answer for this time is closed.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// A connection that asks nothing for this time is closed if all connections are in use. A person may take longer
/// otherwise.
const QUESTION_TIME_MAX: Duration = Duration::from_secs(5);

/// Questions that wait for a read or a commit, by number.
#[derive(Default)]
pub struct Questions {
    next: Cell<u64>,
    waiting: RefCell<HashMap<u64, oneshot::Sender<Answer>>>,
}

impl Questions {
    fn ask(&self) -> (u64, oneshot::Receiver<Answer>) {
        let (tell, told) = oneshot::channel();
        let number = self.next.replace(self.next.get() + 1);
        self.waiting.borrow_mut().insert(number, tell);
        (number, told)
    }

    /// Sends the answer to a question.
    pub fn answer(&self, number: u64, answer: Answer) {
        if let Some(tell) = self.waiting.borrow_mut().remove(&number) {
            let _ = tell.send(answer);
        }
    }
}

/// Accepts connections until the process ends.
pub fn serve(shared: Rc<Shared>, socket: OwnedFd) -> Result<impl Future<Output = ()>> {
    let socket = std::os::unix::net::UnixListener::from(socket);
    socket.set_nonblocking(true)?;
    let listener = UnixListener::from_std(socket)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    Ok(async move {
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((connection, _)) => {
                    let (shared, places) = (shared.clone(), places.clone());
                    tokio::task::spawn_local(async move {
                        let _place = place;
                        let _ = attend(&shared, connection, &places).await;
                    });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    })
}

async fn attend(shared: &Shared, mut connection: UnixStream, places: &Semaphore) -> Result<()> {
    let mut input = BytesMut::new();
    loop {
        match admin::decode_request(&mut input) {
            Ok(Some(request)) => {
                let frame = answer_frame(shared, request).await;
                within_answer_time(connection.write_all(&frame)).await?;
            }
            Ok(None) => {
                input.reserve(READ_BYTES);
                match tokio::time::timeout(QUESTION_TIME_MAX, connection.read_buf(&mut input)).await
                {
                    Ok(Ok(0)) => return Ok(()),
                    Ok(read) => read.map(drop)?,
                    Err(_) if places.available_permits() > 0 => {}
                    Err(silent) => return Err(silent.into()),
                }
            }
            Err(error) => {
                let refused = Answer::Refused(error.to_string());
                let frame = admin::encode(&refused).expect("a short text makes a short frame");
                return within_answer_time(connection.write_all(&frame)).await;
            }
        }
    }
}

/// Returns the answer as a frame. A page of rows that is too long for a frame is made again with half of the rows;
/// one row always fits.
async fn answer_frame(shared: &Shared, mut request: Request) -> Bytes {
    loop {
        let error = match admin::encode(&answer(shared, request.clone()).await) {
            Ok(frame) => return frame,
            Err(error) => error,
        };
        match &mut request {
            Request::List { rows_max, .. } if *rows_max > 1 => {
                *rows_max = (*rows_max).min(ROWS_MAX) / 2;
            }
            _ => {
                let refused = Answer::Refused(format!("the answer cannot be sent: {error}"));
                return admin::encode(&refused).expect("a short text makes a short frame");
            }
        }
    }
}

async fn within_answer_time<T>(done: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(ANSWER_TIME_MAX, done).await.map_err(std::io::Error::from)?
}

async fn answer(shared: &Shared, request: Request) -> Answer {
    let now = shared.now();
    match request {
        Request::Summary => shared.queue.borrow().admin_summary(now),
        Request::List { filter, after, rows_max } => {
            shared.queue.borrow().admin_list(&filter, after, rows_max, now)
        }
        Request::Show(message) => show(shared, message).await,
        Request::Explain { message, recipient_first } => {
            shared.queue.borrow().admin_explain(message, recipient_first, now)
        }
        Request::Act { action, filter, after, dry_run } => {
            let (question, told) = shared.questions.ask();
            shared.queue.borrow_mut().admin_act(question, action, &filter, after, dry_run, now);
            shared.moved.notify_one();
            let ending = || Answer::Refused("the queue process is ending".into());
            told.await.unwrap_or_else(|_| ending())
        }
        Request::Run { order } => run(shared, order),
        Request::Status => Answer::Status(status(shared)),
    }
}

async fn show(shared: &Shared, message: MessageId) -> Answer {
    let (question, told) = shared.questions.ask();
    shared.queue.borrow_mut().admin_show(question, message, shared.now());
    shared.moved.notify_one();
    told.await.unwrap_or(Answer::Unknown(message))
}

/// Runs the queue in this order and returns how long reading, sorting and starting took.
fn run(shared: &Shared, order: Order) -> Answer {
    let mut queue = shared.queue.borrow_mut();
    let micros = |from: mail::Instant| shared.clock.now().monotonic.since(from).as_micros() as u64;
    let began = shared.now().monotonic;
    let mut candidates = queue.read_order(order);
    let read_micros = micros(began);
    let sorting = shared.now().monotonic;
    candidates.sort();
    let sort_micros = micros(sorting);
    let messages = candidates.len() as u64;
    let beginning = shared.now();
    queue.run_order(&candidates, beginning);
    let begin_micros = micros(beginning.monotonic);
    drop(queue);
    shared.moved.notify_one();
    Answer::Ran(admin::Ran { messages, read_micros, sort_micros, begin_micros })
}

fn status(shared: &Shared) -> Status {
    let queue = shared.queue.borrow();
    let (counters, usage) = (queue.counters(), queue.usage());
    let counters = [
        ("accepted", counters.accepted),
        ("refused", counters.refused),
        ("attempts", counters.attempts),
        ("delivered", counters.delivered),
        ("deferred", counters.deferred),
        ("failed", counters.failed),
        ("notices", counters.notices),
        ("commits", usage.commits),
        ("commits_failed", usage.commits_failed),
        ("messages_committed", usage.messages_committed),
        ("batch_messages_max", usage.batch_messages_max),
        ("syncs", usage.syncs),
        ("segments", usage.segments),
        ("segments_recycled", usage.recycled),
        ("zeroing_fallbacks", usage.zeroing_fallbacks),
        ("copied_forward", usage.copied_forward),
        ("snapshots", usage.snapshots),
        ("spool_full", u64::from(usage.full)),
        ("spool_broken", u64::from(usage.broken)),
        ("log_lines_dropped", shared.log.dropped()),
    ];
    let counters: Vec<_> =
        counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let now = shared.now();
    let mut processes = shared.health.processes(now.monotonic);
    if let Some(ours) = processes.iter_mut().find(|one| one.role == Role::Queue.name()) {
        ours.counters = counters;
    }
    let receivers: BTreeMap<u16, _> = queue.receiver_memory().collect();
    for one in processes.iter_mut().filter(|one| one.role == Role::Receive.name()) {
        let instance = u16::try_from(one.number).unwrap_or(u16::MAX);
        let refused = receivers.get(&instance).map(|memory| memory.refused);
        let counter = refused.map(|refused| ("session_memory_refused".to_owned(), refused));
        one.counters.extend(counter);
    }
    let troubles = shared.health.troubles(&usage, &receivers, now.monotonic);
    let streams = shared.health.streams();
    Status { version: env!("CARGO_PKG_VERSION").into(), troubles, processes, streams }
}
