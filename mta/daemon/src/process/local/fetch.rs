//! Large messages: fetched from queue chunk by chunk into a nameless file.
//! Must never hold more than one chunk of one message in memory, nor ask for many messages at once.

use crate::mailbox::{Fault, Intake, Message};
use link::send::{Attempt, CHUNK_BYTES_MAX, SenderEnd};
use mail::Enhanced;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Messages fetched at once.
const FETCHES_MAX: usize = 8;

/// A whole message for an attempt, or why there is none.
pub type Fetched = (Box<Attempt>, Result<Arc<Message>, Fault>);

/// Those under way and those that wait.
#[derive(Debug)]
pub struct Fetches {
    stage: OwnedFd,
    under_way: HashMap<u64, Fetch>,
    waiting: VecDeque<Box<Attempt>>,
}

#[derive(Debug)]
struct Fetch {
    attempt: Box<Attempt>,
    intake: Intake,
    offset: u64,
}

impl Fetches {
    /// Messages are staged in this directory.
    pub fn new(stage: OwnedFd) -> Fetches {
        Fetches { stage, under_way: HashMap::new(), waiting: VecDeque::new() }
    }

    /// Takes a small message in, which came with its attempt.
    pub fn small(&self, attempt: &Attempt, body: &[u8]) -> Result<Arc<Message>, Fault> {
        let mut intake = Intake::new(attempt.from.sender.clone());
        let taken = intake.push(body, self.stage.as_fd()).and_then(|()| intake.finish());
        taken.map(Arc::new).map_err(|error| Fault::io("cannot stage the message", &error))
    }

    /// A large one is to be fetched.
    pub fn begin(&mut self, attempt: Box<Attempt>, end: &mut SenderEnd) {
        self.waiting.push_back(attempt);
        self.go_on(end);
    }

    fn go_on(&mut self, end: &mut SenderEnd) {
        while self.under_way.len() < FETCHES_MAX {
            let Some(attempt) = self.waiting.pop_front() else { return };
            let intake = Intake::new(attempt.from.sender.clone());
            let fetch = Fetch { attempt, intake, offset: 0 };
            fetch.ask(end);
            self.under_way.insert(fetch.attempt.id, fetch);
        }
    }

    /// A new queue process is there: what the former one was asked is asked again.
    pub fn ask_again(&self, end: &mut SenderEnd) {
        self.under_way.values().for_each(|fetch| fetch.ask(end));
    }

    /// The answer to what was asked last.
    pub fn chunk(
        &mut self,
        attempt: u64,
        offset: u64,
        bytes: &[u8],
        end: &mut SenderEnd,
    ) -> Option<Fetched> {
        let fetch = self.under_way.get_mut(&attempt).filter(|fetch| fetch.offset == offset)?;
        if bytes.is_empty() && fetch.offset < fetch.attempt.body.bytes {
            return self.bad(attempt, end);
        }
        if let Err(error) = fetch.intake.push(bytes, self.stage.as_fd()) {
            return self.end(attempt, Some(Fault::io("cannot stage the message", &error)), end);
        }
        fetch.offset += bytes.len() as u64;
        if fetch.offset < fetch.attempt.body.bytes {
            fetch.ask(end);
            return None;
        }
        self.end(attempt, None, end)
    }

    /// The body is damaged in the spool.
    pub fn bad(&mut self, attempt: u64, end: &mut SenderEnd) -> Option<Fetched> {
        let fault = Fault::transient(Enhanced(4, 3, 0), "the message is damaged in the spool");
        self.end(attempt, Some(fault), end)
    }

    fn end(&mut self, attempt: u64, fault: Option<Fault>, end: &mut SenderEnd) -> Option<Fetched> {
        let fetch = self.under_way.remove(&attempt)?;
        self.go_on(end);
        let message = match fault {
            Some(fault) => Err(fault),
            None => fetch
                .intake
                .finish()
                .map(Arc::new)
                .map_err(|error| Fault::io("cannot stage the message", &error)),
        };
        Some((fetch.attempt, message))
    }
}

impl Fetch {
    fn ask(&self, end: &mut SenderEnd) {
        let Attempt { id, message, body, .. } = *self.attempt;
        let bytes = u64::from(CHUNK_BYTES_MAX).min(body.bytes - self.offset);
        end.fetch(id, message, self.offset, bytes as u32);
    }
}
