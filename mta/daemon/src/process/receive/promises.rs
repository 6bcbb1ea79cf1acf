//! The conversation with the queue process: bodies and envelopes out, promises back to the
//! sessions that wait for them.
//!
//! Must never hold a `RefCell` borrow across an await.

use crate::io::stream::Stream;
use link::receive::{ReceiverEnd, ReceiverEvent, SessionMemory};
use link::recipients::Recipients;
use link::streams::Presence;
use mail::{Durable, Envelope, Instant, Refusal};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use world::Clock;

/// Between two looks at what is waited for. Patience is longer, so that none ends late.
const EXPIRY_LOOK: Duration = Duration::from_secs(1);

/// What became of a message that was handed over.
#[derive(Debug)]
pub enum Answer {
    /// It is durable.
    Promised(Durable),
    /// It was not taken.
    Refused(Refusal),
    /// Nobody knows: close without a reply (RFC 1047).
    Abandoned,
}

/// The receiving end, shared by all sessions.
#[derive(Debug)]
pub struct Promises {
    end: RefCell<ReceiverEnd>,
    waiting: RefCell<HashMap<u64, Slot>>,
    /// The same, by how long they wait.
    since: RefCell<BTreeSet<(Instant, u64)>>,
    patience: Cell<Duration>,
    next_number: Cell<u64>,
    output: Notify,
    credit: Notify,
    presence: Cell<Presence>,
    clock: world::real::Clock,
}

/// What became of one message, and who is to hear it.
#[derive(Debug, Default)]
struct Slot {
    answer: Option<Answer>,
    session: Option<Waker>,
}

/// A message that was handed over. Dropped, its session waits no more, whyever: what is answered
/// later is queued all the same.
#[derive(Debug)]
pub struct Waiting {
    promises: Rc<Promises>,
    since: Instant,
    number: u64,
}

impl Waiting {
    /// What became of it; has the task woken when that is known.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Answer> {
        let mut waiting = self.promises.waiting.borrow_mut();
        let slot = waiting.entry(self.number).or_default();
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.session = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.promises.waiting.borrow_mut().remove(&self.number);
        self.promises.since.borrow_mut().remove(&(self.since, self.number));
    }
}

impl Promises {
    /// `origin` is drawn at random.
    pub fn new(origin: u64, clock: world::real::Clock) -> Rc<Promises> {
        Rc::new(Promises {
            end: RefCell::new(ReceiverEnd::new(crate::io::BUILD, origin)),
            waiting: RefCell::default(),
            since: RefCell::default(),
            patience: Cell::new(Duration::MAX),
            next_number: Cell::new(1),
            output: Notify::new(),
            credit: Notify::new(),
            presence: Cell::new(Presence::absent(clock.now().monotonic)),
            clock,
        })
    }

    /// A number for a new transaction.
    pub fn begin(&self) -> u64 {
        self.next_number.replace(self.next_number.get() + 1)
    }

    /// An answer is waited for so long, and sessions wait while this much is on its way.
    pub fn bound(&self, patience: Duration, held_bytes_max: u64) {
        self.patience.set(patience);
        self.end.borrow_mut().bound_held(held_bytes_max);
        self.credit.notify_waiters();
    }

    /// Nobody is to bring new mail: what was handed over has waited for half of the patience.
    pub fn is_stuck(&self) -> bool {
        let first = self.since.borrow().first().map(|(since, _)| *since);
        first.is_some_and(|since| self.now().since(since) >= self.patience.get() / 2)
    }

    /// Whether this session may hand over more.
    pub fn has_credit(&self, number: u64) -> bool {
        self.end.borrow_mut().may_stage(number)
    }

    /// Bytes of bodies and envelopes that the queue process has not taken or not answered.
    pub fn held_bytes(&self) -> u64 {
        self.end.borrow().held_bytes()
    }

    /// Tells the queue process how the memory of sessions is.
    pub fn tell_memory(&self, memory: SessionMemory) {
        if self.end.borrow_mut().tell_memory(memory) {
            self.output.notify_one();
        }
    }

    /// Waits until this session may hand over more; `false` when that took longer than `patience`.
    pub async fn credit_within(&self, number: u64, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.credit(number)).await.is_ok()
    }

    /// An answer is waited for so long.
    pub fn patience(&self) -> Duration {
        self.patience.get()
    }

    async fn credit(&self, number: u64) {
        loop {
            let credit = self.credit.notified();
            tokio::pin!(credit);
            credit.as_mut().enable();
            if self.has_credit(number) {
                return;
            }
            credit.await;
        }
    }

    /// Hands over a part of a body.
    pub fn stage(&self, number: u64, bytes: &[u8]) {
        self.end.borrow_mut().stage(number, bytes);
        self.output.notify_one();
    }

    /// Gives up what was handed over.
    pub fn unstage(&self, number: u64) {
        self.end.borrow_mut().unstage(number);
        self.output.notify_one();
    }

    /// Hands over the rest, the envelope and its recipients; what becomes of it is to be waited for.
    pub fn accept(
        self: &Rc<Self>,
        number: u64,
        envelope: Envelope,
        recipients: &Recipients,
        last: &[u8],
    ) -> Waiting {
        let since = self.now();
        self.waiting.borrow_mut().insert(number, Slot::default());
        self.since.borrow_mut().insert((since, number));
        self.end.borrow_mut().accept_encoded(number, envelope, recipients, last);
        self.dispatch();
        self.output.notify_one();
        Waiting { promises: self.clone(), since, number }
    }

    /// Gives up answers that have been waited for too long, and has it told when there has been no
    /// queue process for too long, for ever.
    pub async fn expire(self: Rc<Self>, tell: impl Fn(Duration)) {
        loop {
            let (present, now) = (self.end.borrow().is_welcomed(), self.now());
            let mut presence = self.presence.get();
            presence.is_now(present, now);
            presence.alarm(now).into_iter().for_each(&tell);
            self.presence.set(presence);
            tokio::time::sleep(self.first_due().since(self.now()).min(EXPIRY_LOOK)).await;
            while self.first_due() <= self.now() {
                let first = self.since.borrow_mut().pop_first();
                let (_, number) = first.expect("what is due is there");
                self.answer(number, Answer::Abandoned);
            }
        }
    }

    /// When the answer that has been waited for longest is waited for no more.
    fn first_due(&self) -> Instant {
        let first = self.since.borrow().first().map(|(since, _)| *since);
        first.map_or(Instant::from_nanos(u64::MAX), |since| since + self.patience.get())
    }

    /// Serves one stream to a queue process after the other, for ever.
    /// `lost` hears of each that has ended and was not replaced: another is wanted.
    pub async fn serve(
        self: Rc<Self>,
        mut streams: mpsc::Receiver<(u64, OwnedFd)>,
        lost: impl Fn(u64, std::io::Error),
    ) {
        let mut stream = None;
        loop {
            let next = match stream.take() {
                Some(next) => Some(next),
                None => self.wait_for_stream(&mut streams).await,
            };
            let Some((number, fd)) = next else { return };
            self.end.borrow_mut().connected(self.now());
            let ended = async {
                match Stream::new(fd) {
                    Ok(open) => self.converse(open).await,
                    Err(error) => Err(error),
                }
            };
            let ended = tokio::select! {
                biased;
                newer = streams.recv() => {
                    stream = newer;
                    Ok(())
                }
                ended = ended => ended,
            };
            self.end.borrow_mut().disconnected(self.now());
            if let Err(error) = ended {
                lost(number, error);
            }
        }
    }

    async fn wait_for_stream(
        &self,
        streams: &mut mpsc::Receiver<(u64, OwnedFd)>,
    ) -> Option<(u64, OwnedFd)> {
        loop {
            tokio::select! {
                next = streams.recv() => return next,
                () = self.timeout() => {}
            }
        }
    }

    async fn converse(&self, mut stream: Stream) -> std::io::Result<()> {
        let mut written = false;
        loop {
            if !written {
                written = stream.write(self.end.borrow_mut().output())?;
            }
            tokio::select! {
                ready = stream.ready(!written) => ready?,
                () = self.output.notified() => {
                    written = false;
                    continue;
                }
                () = self.timeout() => {}
            }
            if let Some(input) = stream.read()? {
                self.end.borrow_mut().handle(input).map_err(std::io::Error::other)?;
                self.dispatch();
                written = false;
            }
        }
    }

    /// Waits for the moment at which answers have been waited for too long, and gives them up.
    async fn timeout(&self) {
        let by = self.end.borrow().next_wakeup();
        match by {
            Some(by) => tokio::time::sleep(by.since(self.now())).await,
            None => std::future::pending().await,
        }
        self.end.borrow_mut().handle_timeout(self.now());
        self.dispatch();
    }

    fn dispatch(&self) {
        loop {
            let Some(event) = self.end.borrow_mut().poll() else { return };
            match event {
                ReceiverEvent::Promised { number, durable } => {
                    self.answer(number, Answer::Promised(durable));
                }
                ReceiverEvent::Refused { number, refusal } => {
                    self.answer(number, Answer::Refused(refusal));
                }
                ReceiverEvent::Abandoned { number } => self.answer(number, Answer::Abandoned),
                ReceiverEvent::Credit => self.credit.notify_waiters(),
            }
        }
    }

    /// A session that has gone in the meantime hears nothing: its mail is queued all the same.
    fn answer(&self, number: u64, answer: Answer) {
        if let Some(slot) = self.waiting.borrow_mut().get_mut(&number) {
            slot.answer = Some(answer);
            if let Some(session) = slot.session.take() {
                session.wake();
            }
        }
    }

    fn now(&self) -> Instant {
        self.clock.now().monotonic
    }
}
