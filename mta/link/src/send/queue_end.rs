//! The queue process's end: attempts and bodies go out, results come in.
//!
//! Must never accept a result before the sending process has reported what it has under way.

use super::bounded::is_bounded;
use super::{
    Attempt, CHUNK_BYTES_MAX, INLINE_BYTES_MAX, Result, ToQueue, ToSender, UNDER_WAY_MAX, UnderWay,
};
use crate::bounds::ATTEMPT_RECIPIENTS_MAX;
use crate::{LinkError, frame};
use bytes::{Bytes, BytesMut};
use mail::MessageId;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

/// Event for the queue process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum QueueEvent {
    /// The sending process has greeted.
    Hello { incarnation: u64, capacity: u32 },
    /// The sending process has this attempt under way from an earlier queue process or stream. The latest comes first.
    UnderWay(UnderWay),
    /// All attempts that are under way have been reported.
    AllTold,
    /// The sending process was told to end. It takes no more attempts. Queue makes the attempts again that it does not end.
    Drains,
    /// Outcomes of an attempt. Answered with [`QueueEnd::recorded`] when they are durable.
    Result(Result),
    /// Asks for bytes of a body. Answered with [`QueueEnd::chunk`] or [`QueueEnd::chunk_bad`].
    Fetch { attempt: u64, message: MessageId, offset: u64, bytes: u32 },
}

/// State of the greeting. Results are accepted when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    ExpectHello,
    /// Holds the number of attempts reported so far.
    ExpectUnderWay(usize),
    Over,
}

/// The queue process's end of one stream.
#[derive(Debug)]
pub struct QueueEnd {
    build: u64,
    greeting: Greeting,
    /// Message of each attempt that shares an inline body and has no recorded outcome.
    open: HashMap<u64, MessageId>,
    /// Number of such attempts of each message.
    held: HashMap<MessageId, u32>,
    /// Attempts that wait for the answer to a fetch. Each may have one fetch at a time.
    fetching: HashSet<u64>,
    output: VecDeque<Bytes>,
    events: VecDeque<QueueEvent>,
}

impl QueueEnd {
    /// Creates the end of a new stream.
    pub fn new(build: u64) -> Self {
        QueueEnd {
            build,
            greeting: Greeting::ExpectHello,
            open: HashMap::new(),
            held: HashMap::new(),
            fetching: HashSet::new(),
            output: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes the frames that have arrived.
    pub fn handle(&mut self, input: &mut BytesMut) -> std::result::Result<(), LinkError> {
        while let Some((message, _)) = frame::decode::<ToQueue>(input)? {
            match self.greeting {
                Greeting::Over => self.take(message)?,
                _ => self.greet(message)?,
            }
        }
        Ok(())
    }

    fn greet(&mut self, message: ToQueue) -> std::result::Result<(), LinkError> {
        match (self.greeting, message) {
            (Greeting::ExpectHello, ToQueue::Hello { build, .. }) if build != self.build => {
                return Err(LinkError::WrongBuild);
            }
            (Greeting::ExpectHello, ToQueue::Hello { incarnation, capacity, .. }) => {
                self.greeting = Greeting::ExpectUnderWay(0);
                let welcome = ToSender::Welcome { build: self.build };
                self.output.push_back(frame::encode_short(&welcome));
                self.events.push_back(QueueEvent::Hello { incarnation, capacity });
            }
            (Greeting::ExpectUnderWay(told), ToQueue::UnderWay(one))
                if told < UNDER_WAY_MAX && one.recipients.len() <= ATTEMPT_RECIPIENTS_MAX =>
            {
                self.greeting = Greeting::ExpectUnderWay(told + 1);
                self.events.push_back(QueueEvent::UnderWay(one));
            }
            (Greeting::ExpectUnderWay(_), ToQueue::AllTold) => {
                self.greeting = Greeting::Over;
                self.events.push_back(QueueEvent::AllTold);
            }
            _ => return Err(LinkError::NotAccepted),
        }
        Ok(())
    }

    fn take(&mut self, message: ToQueue) -> std::result::Result<(), LinkError> {
        match message {
            ToQueue::Drains => self.events.push_back(QueueEvent::Drains),
            ToQueue::Result(result) if is_bounded(&result) => {
                self.events.push_back(QueueEvent::Result(result))
            }
            ToQueue::Fetch { attempt, message, offset, bytes } if self.fetching.insert(attempt) => {
                let bytes = bytes.min(CHUNK_BYTES_MAX);
                self.events.push_back(QueueEvent::Fetch { attempt, message, offset, bytes });
            }
            _ => return Err(LinkError::NotAccepted),
        }
        Ok(())
    }

    /// Returns true if the other end holds the inline body of this message. The body need not be read then.
    pub fn holds(&self, message: MessageId) -> bool {
        self.held.contains_key(&message)
    }

    /// Hands out an attempt. `body` must be given if it is small and the other end does not [hold](Self::holds) it; it is
    /// ignored otherwise. Refuses an attempt that does not fit into a frame.
    pub fn attempt(
        &mut self,
        attempt: Attempt,
        body: Option<&[u8]>,
    ) -> std::result::Result<(), LinkError> {
        let small = attempt.body.bytes <= INLINE_BYTES_MAX;
        let (id, message) = (attempt.id, attempt.message);
        let users = small.then(|| self.held.entry(message));
        let body = match &users {
            Some(Entry::Vacant(_)) => body,
            _ => None,
        };
        debug_assert!(body.is_some() || !matches!(users, Some(Entry::Vacant(_))));
        let header = ToSender::Attempt { inline: body.is_some(), attempt: Box::new(attempt) };
        self.output.push_back(frame::encode(&header, body.unwrap_or_default())?);
        if let Some(users) = users {
            *users.or_insert(0) += 1;
            self.open.insert(id, message);
        }
        Ok(())
    }

    /// Answers a fetch with at most [`CHUNK_BYTES_MAX`] bytes.
    pub fn chunk(&mut self, attempt: u64, offset: u64, bytes: &[u8]) {
        match frame::encode(&ToSender::Chunk { attempt, offset }, bytes) {
            Ok(frame) => {
                self.fetching.remove(&attempt);
                self.output.push_back(frame);
            }
            Err(_) => self.chunk_bad(attempt),
        }
    }

    /// Answers a fetch of a damaged body.
    pub fn chunk_bad(&mut self, attempt: u64) {
        self.fetching.remove(&attempt);
        self.output.push_back(frame::encode_short(&ToSender::ChunkBad { attempt }));
    }

    /// Tells that the results of these attempts are durable, or need not be.
    pub fn recorded(&mut self, attempts: Vec<u64>) {
        for attempt in &attempts {
            let Some(message) = self.open.remove(attempt) else { continue };
            if let Entry::Occupied(mut users) = self.held.entry(message) {
                *users.get_mut() -= 1;
                if *users.get() == 0 {
                    users.remove();
                }
            }
        }
        self.output.push_back(frame::encode_short(&ToSender::Recorded { attempts }));
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<QueueEvent> {
        self.events.pop_front()
    }

    /// Returns the frames to write, in order.
    pub fn transmit(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.output
    }
}
