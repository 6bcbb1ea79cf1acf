//! The sending process's end: attempts and bodies come in, results go out.
//!
//! Must never forget a result that the queue process has not recorded.

use super::bounded::cut_to_bound;
use super::{Attempt, CHUNK_BYTES_MAX, INLINE_BYTES_MAX, Result, ToQueue, ToSender, UnderWay};
use crate::bounds::ATTEMPT_RECIPIENTS_MAX;
use crate::{LinkError, frame};
use bytes::{Bytes, BytesMut};
use mail::MessageId;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Event for the sending process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named in the line of their variant")]
pub enum SenderEvent {
    /// An attempt to make. `body` is `Some` if the message has at most [`INLINE_BYTES_MAX`] bytes.
    Attempt { attempt: Box<Attempt>, body: Option<Bytes> },
    /// Answer to a fetch. Answers come in the order of the fetches of one attempt.
    Chunk { attempt: u64, offset: u64, bytes: Bytes },
    /// Answer to a fetch: the body is damaged. The attempt must end before the final dot.
    ChunkBad { attempt: u64 },
}

/// The sending process's end.
#[derive(Debug)]
pub struct SenderEnd {
    build: u64,
    incarnation: u64,
    capacity: u32,
    welcomed: bool,
    drains: bool,
    /// Attempts without a result, and attempts whose result is not recorded.
    pub(super) open: BTreeMap<u64, Open>,
    next_number: u64,
    /// Small bodies, each with the number of open attempts that use it.
    pub(super) bodies: HashMap<MessageId, (Bytes, u32)>,
    output: VecDeque<Bytes>,
    events: VecDeque<SenderEvent>,
}

#[derive(Debug)]
pub(super) struct Open {
    /// Number in the order of arrival.
    number: u64,
    seal: u64,
    message: MessageId,
    recipients: Vec<u32>,
    result: Option<Bytes>,
    holds_body: bool,
}

impl SenderEnd {
    /// Creates an end without a stream. `incarnation` is drawn at random when the process starts, and `capacity` is the
    /// maximum number of attempts that it takes at once.
    pub fn new(build: u64, incarnation: u64, capacity: u32) -> Self {
        SenderEnd {
            build,
            incarnation,
            capacity,
            welcomed: false,
            drains: false,
            open: BTreeMap::new(),
            next_number: 0,
            bodies: HashMap::new(),
            output: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Begins a new stream to a queue process: reports what is under way, and repeats each result that is not recorded. The
    /// caller must repeat its fetches.
    pub fn connected(&mut self) {
        self.output.clear();
        self.welcomed = false;
        self.bodies.clear();
        for open in self.open.values_mut() {
            open.holds_body = false;
        }
        let mut open: Vec<_> = self.open.iter().collect();
        open.sort_unstable_by_key(|(_, open)| open.number);
        let results: Vec<_> = open.iter().filter_map(|(_, open)| open.result.clone()).collect();
        let hello = ToQueue::Hello {
            build: self.build,
            incarnation: self.incarnation,
            capacity: self.capacity,
        };
        self.output.push_back(frame::encode_short(&hello));
        let under_way = open.iter().rev().map(|(attempt, open)| UnderWay {
            attempt: **attempt,
            seal: open.seal,
            message: open.message,
            recipients: open.recipients.clone(),
        });
        // Each report is shorter than its attempt, which came in one frame.
        let under_way = under_way.map(|one| frame::encode_short(&ToQueue::UnderWay(one)));
        self.output.extend(under_way);
        self.output.push_back(frame::encode_short(&ToQueue::AllTold));
        if self.drains {
            self.output.push_back(frame::encode_short(&ToQueue::Drains));
        }
        self.output.extend(results);
    }

    /// Tells the queue process, over each stream, that this process takes no more attempts. Queue makes the attempts again
    /// that have not begun or do not end in time, without counting them as failed.
    pub fn drain(&mut self) {
        if !std::mem::replace(&mut self.drains, true) {
            self.output.push_back(frame::encode_short(&ToQueue::Drains));
        }
    }

    /// Takes the frames that have arrived.
    pub fn handle(&mut self, input: &mut BytesMut) -> std::result::Result<(), LinkError> {
        while let Some((message, tail)) = frame::decode::<ToSender>(input)? {
            self.accept(message, tail)?;
        }
        Ok(())
    }

    fn accept(&mut self, message: ToSender, tail: Bytes) -> std::result::Result<(), LinkError> {
        match message {
            ToSender::Welcome { build } if build != self.build => Err(LinkError::WrongBuild),
            ToSender::Welcome { .. } => {
                self.welcomed = true;
                Ok(())
            }
            _ if !self.welcomed => Err(LinkError::NotAccepted),
            ToSender::Attempt { attempt, inline } => self.attempt(attempt, inline.then_some(tail)),
            ToSender::Chunk { attempt, offset } => {
                self.events.push_back(SenderEvent::Chunk { attempt, offset, bytes: tail });
                Ok(())
            }
            ToSender::ChunkBad { attempt } => {
                self.events.push_back(SenderEvent::ChunkBad { attempt });
                Ok(())
            }
            ToSender::Recorded { attempts } => {
                attempts.into_iter().for_each(|attempt| self.recorded(attempt));
                Ok(())
            }
        }
    }

    fn attempt(
        &mut self,
        attempt: Box<Attempt>,
        inline: Option<Bytes>,
    ) -> std::result::Result<(), LinkError> {
        if attempt.recipients.len() > ATTEMPT_RECIPIENTS_MAX {
            return Err(LinkError::Garbage);
        }
        let small = attempt.body.bytes <= INLINE_BYTES_MAX;
        let body = match (small, inline) {
            (true, inline) => Some(self.body(attempt.message, inline)?),
            (false, None) if !self.bodies.contains_key(&attempt.message) => None,
            (false, _) => return Err(LinkError::Garbage),
        };
        self.next_number += 1;
        let open = Open {
            number: self.next_number,
            seal: attempt.seal,
            message: attempt.message,
            recipients: attempt.recipients.iter().map(|(index, _)| *index).collect(),
            result: None,
            holds_body: body.is_some(),
        };
        self.open.insert(attempt.id, open);
        self.events.push_back(SenderEvent::Attempt { attempt, body });
        Ok(())
    }

    /// Returns the small body for one more attempt. The body came with this attempt or with an earlier one.
    fn body(
        &mut self,
        message: MessageId,
        inline: Option<Bytes>,
    ) -> std::result::Result<Bytes, LinkError> {
        // The frame shares its allocation with many others. Without a copy, one slow attempt would keep all of them in
        // memory.
        let own = inline.map(|body| Bytes::copy_from_slice(&body));
        let (body, users) = match (self.bodies.entry(message), own) {
            (Entry::Occupied(held), None) => held.into_mut(),
            (Entry::Occupied(mut held), Some(own)) => {
                held.insert((own, 0));
                held.into_mut()
            }
            (Entry::Vacant(place), Some(own)) => place.insert((own, 0)),
            (Entry::Vacant(_), None) => return Err(LinkError::Garbage),
        };
        *users += 1;
        Ok(body.clone())
    }

    fn recorded(&mut self, attempt: u64) {
        let Some(open) = self.open.remove(&attempt) else { return };
        if !open.holds_body {
            return;
        }
        if let Entry::Occupied(mut held) = self.bodies.entry(open.message) {
            held.get_mut().1 -= 1;
            if held.get().1 == 0 {
                held.remove();
            }
        }
    }

    /// Sends the result of an attempt, and keeps it until the queue process has recorded it. Cuts replies that are too long
    /// in sum, and returns the result as it was sent.
    pub fn result(&mut self, mut result: Result) -> Result {
        let Some(open) = self.open.get_mut(&result.attempt) else { return result };
        cut_to_bound(&mut result);
        let message = ToQueue::Result(result);
        let frame = frame::encode(&message, &[])
            .expect("outcomes of an attempt fit into a frame once they are cut");
        open.result = Some(frame.clone());
        self.output.push_back(frame);
        match message {
            ToQueue::Result(result) => result,
            _ => unreachable!("the message was made of a result"),
        }
    }

    /// Asks for bytes of a body that did not come with its attempt.
    pub fn fetch(&mut self, attempt: u64, message: MessageId, offset: u64, bytes: u32) {
        let bytes = bytes.min(CHUNK_BYTES_MAX);
        let fetch = ToQueue::Fetch { attempt, message, offset, bytes };
        self.output.push_back(frame::encode_short(&fetch));
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    /// Returns the frames to write, in order.
    pub fn transmit(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.output
    }

    /// Returns true if there are frames to write.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Returns true if this attempt has no result, or its result is not known to be recorded.
    pub fn is_open(&self, attempt: u64) -> bool {
        self.open.contains_key(&attempt)
    }

    /// Returns true if this attempt is known and has no result yet.
    pub fn is_under_way(&self, attempt: u64) -> bool {
        self.open.get(&attempt).is_some_and(|open| open.result.is_none())
    }

    /// Returns true if there are results that are not known to be recorded.
    pub fn has_results(&self) -> bool {
        self.open.values().any(|open| open.result.is_some())
    }

    /// Returns the number of attempts that have no result yet.
    pub fn under_way(&self) -> usize {
        self.open.values().filter(|open| open.result.is_none()).count()
    }
}
